//! Subscriptions to pushes: how they come, change and go.

use qd_store::{HubStore, LoginRow, PUSH_SUBSCRIPTIONS_MAX, PersonChange, PersonRow, PushChange, PushRow};

use super::HubFiles;

fn subscription(id: &str, principal: &str, login: Option<u8>) -> PushRow {
    PushRow {
        subscription_id: id.into(),
        principal: principal.into(),
        login_hash: login.map(|login| vec![login; 32]),
        endpoint: format!("https://push.example/{id}"),
        p256dh: vec![4; 65],
        auth: vec![5; 16],
        label: "phone".into(),
        topics: "approval done".into(),
        content: false,
        created_at: 100,
        ..PushRow::default()
    }
}

async fn log_in(store: &HubStore, hash: u8, username: Option<&str>) {
    let login = LoginRow {
        token_hash: vec![hash; 32],
        username: username.map(Into::into),
        created_at: 1000,
        last_used_at: 1000,
        label: "phone".into(),
    };
    store.put_login(login).await.unwrap();
}

async fn ids(store: &HubStore) -> Vec<String> {
    let rows = store.push_subscriptions(0).await.unwrap();
    let mut ids: Vec<String> = rows.into_iter().map(|row| row.subscription_id).collect();
    ids.sort();
    ids
}

pub(crate) async fn push_subscriptions_are_kept_and_changed(place: &impl HubFiles) {
    let store = place.hub().await;
    let row = subscription("a", "owner", None);
    assert_eq!(store.put_push_subscription(row.clone()).await.unwrap(), row);
    store.note_push("a", 500, None).await.unwrap();
    store.note_push("a", 600, Some("HTTP 500".into())).await.unwrap();
    store.close().await;

    let store = place.hub().await;
    let noted = PushRow {
        last_success_at: Some(500),
        last_failure_at: Some(600),
        last_failure: Some("HTTP 500".into()),
        ..row.clone()
    };
    assert_eq!(store.push_subscriptions_of("owner").await.unwrap(), std::slice::from_ref(&noted));
    assert_eq!(store.push_subscription("a", 0).await.unwrap(), Some(noted));
    let change = PushChange { content: Some(true), ..PushChange::default() };
    assert!(!store.change_push_subscription("alice", "a", change.clone()).await.unwrap(), "not theirs");
    assert!(store.change_push_subscription("owner", "a", change).await.unwrap());
    let change = PushChange { topics: Some("failed".into()), ..PushChange::default() };
    assert!(store.change_push_subscription("owner", "a", change).await.unwrap());
    let changed = store.push_subscription("a", 0).await.unwrap().unwrap();
    assert_eq!((changed.content, &*changed.topics, &*changed.label), (true, "failed", "phone"));

    // The same browser again, with other keys: the same subscription.
    let again =
        PushRow { endpoint: row.endpoint.clone(), auth: vec![9; 16], ..subscription("b", "owner", None) };
    let renewed = store.put_push_subscription(again).await.unwrap();
    assert_eq!((&*renewed.subscription_id, renewed.auth, renewed.created_at), ("a", vec![9; 16], 100));
    assert_eq!((renewed.last_failure_at, renewed.last_success_at), (None, Some(500)));
    // Somebody else at the same browser: theirs.
    let other = PushRow { endpoint: row.endpoint, ..subscription("c", "alice", None) };
    assert_eq!(store.put_push_subscription(other).await.unwrap().subscription_id, "c");
    assert!(store.push_subscriptions_of("owner").await.unwrap().is_empty());

    assert!(!store.delete_push_subscription(Some("owner"), "c").await.unwrap());
    assert!(store.delete_push_subscription(Some("alice"), "c").await.unwrap());
    assert!(!store.delete_push_subscription(None, "c").await.unwrap());
}

pub(crate) async fn push_subscriptions_go_with_logins_and_people(place: &impl HubFiles) {
    let store = place.hub().await;
    let person = PersonRow { username: "alice".into(), role: "operator".into(), ..PersonRow::default() };
    store.put_person(person.clone()).await.unwrap();
    log_in(&store, 1, Some("alice")).await;
    log_in(&store, 2, Some("alice")).await;
    log_in(&store, 3, None).await;
    for (id, principal, login) in
        [("a1", "alice", Some(1)), ("a2", "alice", Some(2)), ("o3", "owner", Some(3)), ("o", "owner", None)]
    {
        store.put_push_subscription(subscription(id, principal, login)).await.unwrap();
    }
    assert_eq!(ids(&store).await, ["a1", "a2", "o", "o3"]);
    let alive = store.push_subscriptions(1000).await.unwrap();
    assert_eq!(alive.len(), 1, "logins that were not used for too long are over: {alive:?}");
    assert_eq!(store.push_subscription("o3", 1000).await.unwrap(), None);

    store.delete_login(&[1; 32]).await.unwrap();
    assert_eq!(ids(&store).await, ["a2", "o", "o3"]);
    let disabled = PersonChange { disabled: Some(true), ..PersonChange::default() };
    store.change_person("alice", disabled).await.unwrap();
    assert_eq!(ids(&store).await, ["o", "o3"], "their logins are over");
    store.put_push_subscription(subscription("a", "alice", None)).await.unwrap();
    store.delete_person("alice").await.unwrap();
    assert_eq!(ids(&store).await, ["o", "o3"]);
}

pub(crate) async fn push_subscriptions_are_bounded_each(place: &impl HubFiles) {
    let store = place.hub().await;
    store.put_push_subscription(subscription("theirs", "alice", None)).await.unwrap();
    for number in 0..PUSH_SUBSCRIPTIONS_MAX {
        let row = PushRow {
            created_at: 100 + number as i64,
            ..subscription(&format!("s{number:02}"), "owner", None)
        };
        store.put_push_subscription(row).await.unwrap();
    }
    store.note_push("s00", 10_000, None).await.unwrap();
    store.put_push_subscription(subscription("new", "owner", None)).await.unwrap();
    let left = ids(&store).await;
    assert_eq!(left.len(), PUSH_SUBSCRIPTIONS_MAX + 1);
    for id in ["s00", "new", "theirs"] {
        assert!(left.contains(&id.to_owned()), "{id} in {left:?}");
    }
    assert!(!left.contains(&"s01".to_owned()), "the one that has worked least recently goes: {left:?}");
}
