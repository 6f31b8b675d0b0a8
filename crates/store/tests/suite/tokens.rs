use qd_store::{ACCESS_TOKENS_MAX, AccessTokenRow, HubStore, TokenStored};

use super::HubFiles;

fn token(name: &str, hash: &[u8]) -> AccessTokenRow {
    AccessTokenRow {
        name: name.into(),
        token_hash: hash.to_vec(),
        created_at: 100,
        ..AccessTokenRow::default()
    }
}

async fn name_of(store: &HubStore, hash: &[u8], now: i64) -> Option<String> {
    store.check_access_token(hash, now).await.unwrap().map(|token| token.name)
}

pub(crate) async fn access_tokens_are_kept_and_checked(place: &impl HubFiles) {
    let store = place.hub().await;
    assert_eq!(store.put_access_token(token("ci", b"one")).await.unwrap(), TokenStored::Added);
    assert_eq!(store.put_access_token(token("bot", b"two")).await.unwrap(), TokenStored::Added);
    assert_eq!(store.put_access_token(token("ci", b"three")).await.unwrap(), TokenStored::NameTaken);
    assert!(store.put_access_token(token("other", b"one")).await.is_err(), "two names for one token");
    assert_eq!(store.check_access_token(b"three", 200).await.unwrap(), None);
    assert_eq!(name_of(&store, b"one", 200).await.as_deref(), Some("ci"));
    assert_eq!(name_of(&store, b"one", 60_199).await.as_deref(), Some("ci"));
    store.close().await;

    let store = place.hub().await;
    let used = AccessTokenRow { last_used_at: Some(200), ..token("ci", b"one") };
    assert_eq!(store.access_tokens().await.unwrap(), [token("bot", b"two"), used], "noted once a minute");
    store.check_access_token(b"one", 60_200).await.unwrap();
    assert_eq!(store.access_tokens().await.unwrap()[1].last_used_at, Some(60_200));

    assert_eq!(store.delete_access_token(None, "ci").await.unwrap(), Some(b"one".to_vec()));
    assert_eq!(store.delete_access_token(None, "ci").await.unwrap(), None);
    assert_eq!(store.check_access_token(b"one", 300).await.unwrap(), None);
    assert_eq!(store.put_access_token(token("ci", b"three")).await.unwrap(), TokenStored::Added);
    assert_eq!(name_of(&store, b"three", 300).await.as_deref(), Some("ci"));
}

pub(crate) async fn access_tokens_are_bounded(place: &impl HubFiles) {
    let store = place.hub().await;
    for number in 0..ACCESS_TOKENS_MAX {
        let token = token(&format!("t{number}"), &number.to_be_bytes());
        assert_eq!(store.put_access_token(token).await.unwrap(), TokenStored::Added);
    }
    assert_eq!(store.put_access_token(token("t0", b"more")).await.unwrap(), TokenStored::NameTaken);
    assert_eq!(store.put_access_token(token("more", b"more")).await.unwrap(), TokenStored::TooMany);
    assert_eq!(store.access_tokens().await.unwrap().len(), ACCESS_TOKENS_MAX);
    assert!(store.delete_access_token(None, "t7").await.unwrap().is_some());
    assert_eq!(store.put_access_token(token("more", b"more")).await.unwrap(), TokenStored::Added);
}
