use qd_store::{DELETED_SESSIONS_MAX, RunnerNote, RunnerRow, SearchQuery};

use super::HubFiles;
use crate::fixtures::{message, put, record};

fn runner(runner_id: &str) -> RunnerRow {
    RunnerRow {
        runner_id: runner_id.into(),
        key_hash: vec![1; 32],
        hostname: "box".into(),
        os: "linux".into(),
        version: "0.1.0".into(),
        harnesses_json: "[\"pi\"]".into(),
        max_sessions: 8,
        joined_at: 100,
        ..RunnerRow::default()
    }
}

fn note(runner_id: &str) -> RunnerNote {
    RunnerNote {
        runner_id: runner_id.into(),
        hostname: "other".into(),
        os: "macos".into(),
        version: "0.2.0".into(),
        harnesses_json: "[]".into(),
        max_sessions: 9,
        seen_at: 700,
    }
}

pub(crate) async fn runners_are_kept_rotated_and_revoked(place: &impl HubFiles) {
    let store = place.hub().await;
    store.put_runner(runner("b")).await.unwrap();
    store.put_runner(RunnerRow { last_seen_at: Some(5), ..runner("a") }).await.unwrap();
    store.put_runner(runner("a")).await.unwrap();
    assert_eq!(store.runners().await.unwrap(), [runner("a"), runner("b")], "the second replaces the first");
    assert_eq!(store.runner("nobody").await.unwrap(), None);

    assert!(store.set_next_key("a", &[2; 32]).await.unwrap());
    assert!(store.set_next_key("a", &[3; 32]).await.unwrap());
    assert!(!store.set_next_key("nobody", &[3; 32]).await.unwrap());
    assert!(!store.promote_key("a", &[2; 32], 500).await.unwrap(), "a later rotation took its place");
    assert!(!store.promote_key("b", &[1; 32], 500).await.unwrap(), "nothing is prepared");
    store.close().await;

    let store = place.hub().await;
    let prepared = RunnerRow { next_key_hash: Some(vec![3; 32]), ..runner("a") };
    assert_eq!(store.runner("a").await.unwrap(), Some(prepared), "the old key still opens");
    assert!(store.promote_key("a", &[3; 32], 500).await.unwrap());
    assert!(!store.promote_key("a", &[3; 32], 501).await.unwrap());
    let rotated = RunnerRow { key_hash: vec![3; 32], rotated_at: Some(500), ..runner("a") };
    assert_eq!(store.runner("a").await.unwrap(), Some(rotated.clone()));

    assert!(store.set_next_key("a", &[4; 32]).await.unwrap());
    assert!(store.revoke_runner("a", 600).await.unwrap());
    assert!(!store.revoke_runner("a", 601).await.unwrap());
    assert!(!store.revoke_runner("nobody", 601).await.unwrap());
    assert!(!store.promote_key("a", &[4; 32], 602).await.unwrap(), "a revoked runner gets no key");
    assert!(!store.set_next_key("a", &[5; 32]).await.unwrap());

    store.note_runner(note("a")).await.unwrap();
    store.note_runner(note("own")).await.unwrap();
    let noted = |row: RunnerRow| RunnerRow {
        hostname: "other".into(),
        os: "macos".into(),
        version: "0.2.0".into(),
        harnesses_json: "[]".into(),
        max_sessions: 9,
        last_seen_at: Some(700),
        ..row
    };
    let revoked = RunnerRow { next_key_hash: Some(vec![4; 32]), revoked_at: Some(600), ..noted(rotated) };
    let own = RunnerRow { key_hash: vec![], joined_at: 700, ..noted(runner("own")) };
    assert_eq!(store.runners().await.unwrap(), [revoked, runner("b"), own]);
    store.put_runner(runner("a")).await.unwrap();
    assert_eq!(store.runner("a").await.unwrap(), Some(runner("a")), "joining again ends a revocation");
}

pub(crate) async fn sessions_are_buried_until_their_runner_knows(place: &impl HubFiles) {
    let store = place.hub().await;
    for session_id in ["s", "t"] {
        let records =
            vec![record(session_id, 1, put(message("m", 0, "needle"))), record(session_id, 2, None)];
        store.append(records).await.unwrap();
    }
    assert!(store.mark_session_deleted("s", "away", 10).await.unwrap());
    assert!(!store.mark_session_deleted("early", "away", 11).await.unwrap(), "nothing of it has come yet");
    assert!(!store.mark_session_deleted("x", "other", 12).await.unwrap());
    store.close().await;

    let store = place.hub().await;
    let left: Vec<_> =
        store.sessions().await.unwrap().into_iter().map(|it| (it.session_id, it.last_seq)).collect();
    assert_eq!(left, [("t".to_owned(), 2)]);
    assert_eq!(store.records_after("s", 0, 9, 999).await.unwrap(), []);
    assert_eq!(store.messages_page("s", None, 9).await.unwrap().total, 0);
    let query = SearchQuery { text: "needle".into(), limit: 9, ..SearchQuery::default() };
    assert_eq!(store.search(query).await.unwrap().len(), 1);
    assert_eq!(store.deleted_sessions_of("away").await.unwrap(), ["s", "early"]);
    assert_eq!(store.runner_of_deleted("s").await.unwrap().as_deref(), Some("away"));
    assert_eq!(store.runner_of_deleted("t").await.unwrap(), None);

    assert!(!store.mark_session_deleted("s", "away", 13).await.unwrap());
    assert_eq!(
        store.deleted_sessions_of("away").await.unwrap(),
        ["early", "s"],
        "once each, the last burial counts"
    );
    assert!(store.forget_deleted_session("s").await.unwrap());
    assert!(!store.forget_deleted_session("s").await.unwrap());
    assert_eq!(store.deleted_sessions_of("away").await.unwrap(), ["early"]);
    assert_eq!(store.deleted_sessions_of("other").await.unwrap(), ["x"]);
    assert_eq!(store.deleted_sessions_of("nobody").await.unwrap(), [""; 0]);
    assert_eq!(store.runner_of_deleted("s").await.unwrap(), None);
}

pub(crate) async fn the_oldest_tombstones_go(place: &impl HubFiles) {
    let store = place.hub().await;
    let bury = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            store.mark_session_deleted(&format!("s{number}"), "away", 1).await.unwrap();
        }
    };
    bury(0..DELETED_SESSIONS_MAX + 1).await;
    assert_eq!(store.runner_of_deleted("s0").await.unwrap(), None);
    assert_eq!(store.runner_of_deleted("s1").await.unwrap().as_deref(), Some("away"));
    assert!(store.forget_deleted_session("s5").await.unwrap());
    bury(DELETED_SESSIONS_MAX + 1..DELETED_SESSIONS_MAX + 4).await;
    let left = store.deleted_sessions_of("away").await.unwrap();
    assert_eq!(left.len(), DELETED_SESSIONS_MAX);
    assert_eq!(left[..3], ["s3", "s4", "s6"], "the room of one that went is used");
}
