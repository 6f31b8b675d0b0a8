use std::time::Duration;

use qd_store::{
    AccessTokenRow, HostRow, HostTrust, HubStore, LOGINS_MAX, LoginRow, PENDING_HOSTS_MAX, PEOPLE_MAX,
    PersonChange, PersonRow, PersonStored, TokenStored,
};

use super::HubFiles;

const LIFE: Duration = Duration::from_secs(1000);

fn person(username: &str) -> PersonRow {
    PersonRow {
        username: username.into(),
        password_hash: "$argon2id$1".into(),
        role: "operator".into(),
        created_at: 100,
        ..PersonRow::default()
    }
}

fn login(hash: u8, username: Option<&str>) -> LoginRow {
    LoginRow {
        token_hash: vec![hash; 32],
        username: username.map(Into::into),
        created_at: 1,
        last_used_at: 1,
        label: "phone".into(),
    }
}

fn token(owner: Option<&str>, name: &str, hash: &[u8]) -> AccessTokenRow {
    AccessTokenRow {
        name: name.into(),
        owner: owner.map(Into::into),
        token_hash: hash.to_vec(),
        created_at: 100,
        ..AccessTokenRow::default()
    }
}

async fn is_in(store: &HubStore, login: u8, token: &[u8]) -> (bool, bool) {
    let login = store.check_login(&[login; 32], 2, LIFE).await.unwrap();
    (login.is_some(), store.check_access_token(token, 2).await.unwrap().is_some())
}

pub(crate) async fn people_are_kept_and_changed(place: &impl HubFiles) {
    let store = place.hub().await;
    assert_eq!(store.put_person(person("bob")).await.unwrap(), PersonStored::Added);
    assert_eq!(store.put_person(person("alice")).await.unwrap(), PersonStored::Added);
    let other = PersonRow { role: "owner".into(), ..person("bob") };
    assert_eq!(store.put_person(other).await.unwrap(), PersonStored::NameTaken);
    store.note_person_login("bob", 500).await.unwrap();
    store.close().await;

    let store = place.hub().await;
    let bob = PersonRow { last_login_at: Some(500), ..person("bob") };
    assert_eq!(store.people().await.unwrap(), [person("alice"), bob.clone()]);
    let role = PersonChange { role: Some("viewer".into()), ..PersonChange::default() };
    assert!(store.change_person("bob", role.clone()).await.unwrap());
    assert!(!store.change_person("nobody", role).await.unwrap());
    assert_eq!(store.person("bob").await.unwrap(), Some(PersonRow { role: "viewer".into(), ..bob }));
    assert!(store.delete_person("bob").await.unwrap());
    assert!(!store.delete_person("bob").await.unwrap());
    assert_eq!(store.person("bob").await.unwrap(), None);
}

pub(crate) async fn a_change_of_a_person_ends_their_accesses(place: &impl HubFiles) {
    let store = place.hub().await;
    let change = |change: PersonChange| store.change_person("alice", change);
    let let_in = async || {
        store.put_login(login(7, Some("alice"))).await.unwrap();
        let put = store.put_access_token(token(Some("alice"), "laptop", b"theirs")).await.unwrap();
        assert_eq!(put, TokenStored::Added);
    };
    store.put_person(person("alice")).await.unwrap();
    store.put_login(login(8, None)).await.unwrap();
    store.put_access_token(token(None, "laptop", b"others")).await.unwrap();

    let_in().await;
    change(PersonChange { role: Some("owner".into()), ..PersonChange::default() }).await.unwrap();
    assert_eq!(is_in(&store, 7, b"theirs").await, (true, true), "another role is no other person");
    change(PersonChange { password_hash: Some("2".into()), ..PersonChange::default() }).await.unwrap();
    assert_eq!(is_in(&store, 7, b"theirs").await, (false, false));
    let_in().await;
    change(PersonChange { disabled: Some(true), ..PersonChange::default() }).await.unwrap();
    assert_eq!(is_in(&store, 7, b"theirs").await, (false, false));
    assert!(store.person("alice").await.unwrap().unwrap().disabled);
    let_in().await;
    assert!(store.delete_person("alice").await.unwrap());
    assert_eq!(is_in(&store, 7, b"theirs").await, (false, false));
    assert_eq!(is_in(&store, 8, b"others").await, (true, true), "those of others stay");
}

pub(crate) async fn names_of_principals_are_unique(place: &impl HubFiles) {
    let store = place.hub().await;
    store.put_person(person("alice")).await.unwrap();
    assert_eq!(store.put_access_token(token(None, "ci", b"1")).await.unwrap(), TokenStored::Added);
    assert_eq!(store.put_access_token(token(None, "alice", b"2")).await.unwrap(), TokenStored::NameTaken);
    assert_eq!(store.put_person(person("ci")).await.unwrap(), PersonStored::NameTaken);
    // A token of a person is no principal of its own.
    assert_eq!(store.put_access_token(token(Some("alice"), "ci", b"3")).await.unwrap(), TokenStored::Added);
    assert_eq!(
        store.put_access_token(token(Some("alice"), "alice", b"4")).await.unwrap(),
        TokenStored::Added
    );
    assert_eq!(
        store.put_access_token(token(Some("alice"), "ci", b"5")).await.unwrap(),
        TokenStored::NameTaken
    );
    let names: Vec<(Option<String>, String)> =
        store.access_tokens().await.unwrap().into_iter().map(|token| (token.owner, token.name)).collect();
    let alice = || Some("alice".to_owned());
    assert_eq!(names, [(None, "ci".into()), (alice(), "alice".into()), (alice(), "ci".into())]);
    assert_eq!(store.delete_access_token(Some("alice"), "ci").await.unwrap(), Some(b"3".to_vec()));
    assert!(store.check_access_token(b"1", 2).await.unwrap().is_some(), "the other one of the name stays");
}

pub(crate) async fn tokens_end_and_keep_their_scopes(place: &impl HubFiles) {
    let store = place.hub().await;
    let token = AccessTokenRow {
        scopes: Some("view files".into()),
        expires_at: Some(1000),
        ..token(None, "ci", b"one")
    };
    store.put_access_token(token.clone()).await.unwrap();
    assert_eq!(store.check_access_token(b"one", 999).await.unwrap(), Some(token));
    assert_eq!(store.check_access_token(b"one", 1000).await.unwrap(), None);
    assert_eq!(store.access_tokens().await.unwrap().len(), 1, "it is shown until it is removed");
}

pub(crate) async fn logins_of_people_are_bounded_each(place: &impl HubFiles) {
    let store = place.hub().await;
    store.put_login(login(255, None)).await.unwrap();
    store.put_login(login(254, Some("bob"))).await.unwrap();
    let count = u8::try_from(LOGINS_MAX).unwrap();
    for number in 0..count {
        let login = LoginRow { last_used_at: i64::from(number) + 10, ..login(number, Some("alice")) };
        assert!(store.put_login(login).await.unwrap().is_empty());
    }
    let one_more = LoginRow { last_used_at: 5, ..login(count, Some("alice")) };
    assert_eq!(store.put_login(one_more).await.unwrap(), [vec![0; 32]], "the one unused for longest");
    let logins = store.logins_of(Some("alice")).await.unwrap();
    assert_eq!((logins.len(), logins[0].token_hash[0]), (LOGINS_MAX, count - 1));
    assert_eq!(store.logins_of(None).await.unwrap(), [login(255, None)]);
    assert_eq!(store.logins_of(Some("bob")).await.unwrap(), [login(254, Some("bob"))]);
}

pub(crate) async fn people_are_bounded(place: &impl HubFiles) {
    let store = place.hub().await;
    for number in 0..PEOPLE_MAX {
        assert_eq!(store.put_person(person(&format!("p{number}"))).await.unwrap(), PersonStored::Added);
    }
    assert_eq!(store.put_person(person("p0")).await.unwrap(), PersonStored::NameTaken);
    assert_eq!(store.put_person(person("more")).await.unwrap(), PersonStored::TooMany);
    assert!(store.delete_person("p7").await.unwrap());
    assert_eq!(store.put_person(person("more")).await.unwrap(), PersonStored::Added);
}

fn host(host_id: &str, first_seen_at: i64) -> HostRow {
    HostRow {
        host_id: host_id.into(),
        token_hash: vec![3; 32],
        trust: HostTrust::Pending,
        first_seen_at,
        last_seen_at: None,
        address: Some("1.2.3.4".into()),
    }
}

pub(crate) async fn hosts_are_kept_and_trusted(place: &impl HubFiles) {
    let store = place.hub().await;
    assert!(store.put_host(host("a", 10)).await.unwrap());
    let rogue = HostRow { token_hash: vec![4; 32], trust: HostTrust::Trusted, ..host("a", 20) };
    assert!(!store.put_host(rogue).await.unwrap(), "the first one stays");
    assert!(!store.confirm_host("a", &[4; 32]).await.unwrap(), "another token");
    assert_eq!(store.host("a").await.unwrap().unwrap().trust, HostTrust::Pending);
    assert!(store.confirm_host("a", &[3; 32]).await.unwrap());
    assert_eq!(store.host("a").await.unwrap().unwrap().trust, HostTrust::Trusted);
    assert!(!store.confirm_host("nobody", &[3; 32]).await.unwrap());
    assert!(store.set_host_trust("a", HostTrust::Trusted).await.unwrap());
    assert!(!store.set_host_trust("nobody", HostTrust::Trusted).await.unwrap());
    store.touch_host("a", 100_000).await.unwrap();
    store.touch_host("a", 100_001).await.unwrap();
    store.close().await;

    let store = place.hub().await;
    let trusted = HostRow { trust: HostTrust::Trusted, last_seen_at: Some(100_000), ..host("a", 10) };
    assert_eq!(store.host("a").await.unwrap(), Some(trusted.clone()), "noted once a minute");
    for number in 0..=PENDING_HOSTS_MAX {
        store.put_host(host(&format!("p{number:03}"), 1000 - number as i64)).await.unwrap();
    }
    let hosts = store.hosts().await.unwrap();
    assert_eq!(hosts.len(), PENDING_HOSTS_MAX + 1);
    assert_eq!(hosts[0], trusted, "only those nobody has confirmed go");
    assert!(store.host(&format!("p{PENDING_HOSTS_MAX:03}")).await.unwrap().is_some(), "the last one stays");
    assert!(store.delete_host("a").await.unwrap());
    assert!(!store.delete_host("a").await.unwrap());
    assert_eq!(store.host("a").await.unwrap(), None);
}
