use std::time::Duration;

use bytes::Bytes;
use qd_store::{
    ApprovalRow, InputClaim, OutcomeLimits, OutcomeRow, OutcomeStatus, RunnerBatch, RunnerSession,
    RunnerStore, SessionCounters, StoreError,
};

use super::RunnerFiles;
use crate::fixtures::{line, unit};

pub(crate) fn session(session_id: &str) -> RunnerSession {
    RunnerSession {
        session_id: session_id.into(),
        config_json: "{\"cwd\":\"/\"}".into(),
        native_json: "{}".into(),
        version: 1,
        next_seq: 2,
        next_idx: 3,
        state: "idle".into(),
        title: None,
        created_at: 10,
        updated_at: 11,
        extra_json: Some("{}".into()),
    }
}

fn outcome(id: &str, key: Option<&str>, created_at: i64, status: OutcomeStatus) -> OutcomeRow {
    OutcomeRow {
        principal: "owner".into(),
        id: id.into(),
        session_id: "s".into(),
        idempotency_key: key.map(Into::into),
        fingerprint: Bytes::from_static(b"print"),
        cmd: "prompt".into(),
        response_json: (status == OutcomeStatus::Done).then(|| Bytes::from_static(b"{}")),
        created_at,
        status,
    }
}

async fn put_outcomes(store: &RunnerStore, outcomes: Vec<OutcomeRow>) {
    store.commit(RunnerBatch { outcomes, ..RunnerBatch::default() }).await.unwrap();
}

/// Waits until the acks are stored.
pub(crate) async fn until_spooled(store: &RunnerStore, bytes: u64) {
    let reached = async {
        while store.spool_bytes() != bytes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), reached).await;
    assert!(waited.is_ok(), "the spool holds {} bytes, not {bytes}", store.spool_bytes());
}

pub(crate) async fn spool_keeps_until_acked(place: &impl RunnerFiles) {
    let store = place.runner().await;
    let size = line("a", 1).1.len() as u64;
    store.commit(unit("a", 1..=9)).await.unwrap();
    store.commit(unit("b", 1..=9)).await.unwrap();
    assert_eq!(store.spool_bytes(), 18 * size);
    store.commit(unit("a", 9..=9)).await.unwrap();
    assert_eq!(store.spool_bytes(), 18 * size, "a repeated line counts once");
    assert_eq!(store.spool_after("a", 6, 2).await.unwrap(), [line("a", 7), line("a", 8)]);

    store.ack("a", 3);
    store.ack("a", 2);
    store.ack("b", 9);
    store.ack("nobody", 5);
    until_spooled(&store, 6 * size).await;
    assert_eq!(store.spool_after("a", 3, 2).await.unwrap(), [line("a", 4), line("a", 5)]);
    assert_eq!(store.spool_after("b", 9, 9).await.unwrap(), []);
    store.commit(unit("a", 2..=9)).await.unwrap();
    assert_eq!(store.spool_bytes(), 6 * size, "a line repeated after its ack counts no more");
    store.ack("a", 5);
    store.close().await;

    let store = place.runner().await;
    assert_eq!(store.spool_bytes(), 4 * size, "an ack before the close is not forgotten");
    assert_eq!(store.spool_after("a", 5, 1).await.unwrap(), [line("a", 6)]);
    store.ack("a", 9);
    until_spooled(&store, 0).await;
}

pub(crate) async fn sessions_are_kept_and_deleted(place: &impl RunnerFiles) {
    let store = place.runner().await;
    store.put_session(session("b")).await.unwrap();
    let counters =
        SessionCounters { version: 7, next_seq: 8, next_idx: 9, state: "working".into(), updated_at: 99 };
    let batch = RunnerBatch {
        session_row: Some(session("a")),
        counters: Some(counters),
        index_put: vec![(0, "m0".into()), (1, "m1".into()), (2, "m2".into())],
        approvals_put: vec![approval("a", "q1"), approval("a", "q2")],
        ..unit("a", 1..=3)
    };
    store.commit(batch).await.unwrap();
    store.close().await;

    let store = place.runner().await;
    let expected = RunnerSession {
        version: 7,
        next_seq: 8,
        next_idx: 9,
        state: "working".into(),
        updated_at: 99,
        ..session("a")
    };
    assert_eq!(store.sessions().await.unwrap(), [expected.clone(), session("b")]);
    assert_eq!(store.session("a").await.unwrap(), Some(expected));
    assert_eq!(store.approvals().await.unwrap(), [approval("a", "q1"), approval("a", "q2")]);

    let batch = RunnerBatch {
        session_id: "a".into(),
        index_truncate_from: Some(1),
        index_put: vec![(1, "n1".into())],
        approvals_delete: vec!["q1".into()],
        ..RunnerBatch::default()
    };
    store.commit(batch).await.unwrap();
    assert_eq!(store.message_index("a").await.unwrap(), [(0, "m0".into()), (1, "n1".into())]);
    assert_eq!(store.approvals().await.unwrap(), [approval("a", "q2")]);

    // An ack that waits must not eat the lines of a later session with the same name.
    store.ack("a", 3);
    assert!(store.delete_session("a").await.unwrap());
    assert!(!store.delete_session("a").await.unwrap());
    assert_eq!(store.spool_bytes(), 0);
    store.commit(unit("a", 1..=1)).await.unwrap();
    store.close().await;
    let store = place.runner().await;
    assert_eq!(store.spool_after("a", 0, 9).await.unwrap(), [line("a", 1)]);
    assert_eq!(store.sessions().await.unwrap(), [session("b")]);
    assert_eq!(store.message_index("a").await.unwrap(), []);
    assert_eq!(store.approvals().await.unwrap(), []);
}

/// An input's name is taken once, through any restart, and is free again when its session is gone.
pub(crate) async fn inputs_are_taken_once(place: &impl RunnerFiles) {
    let store = place.runner().await;
    store.put_session(session("a")).await.unwrap();
    let take =
        async |store: &RunnerStore, session: &str, input| store.take_input(session, input).await.unwrap();
    assert_eq!(take(&store, "a", "i1").await, InputClaim::New);
    assert_eq!(take(&store, "a", "i1").await, InputClaim::Begun);
    assert_eq!(take(&store, "b", "i1").await, InputClaim::New, "another session has names of its own");
    assert_eq!(take(&store, "a", "i2").await, InputClaim::New);
    assert_eq!(take(&store, "a", "i3").await, InputClaim::New);
    let ended = RunnerBatch {
        session_id: "a".into(),
        inputs_settle: vec!["i1".into()],
        inputs_delete: vec!["i2".into()],
        ..RunnerBatch::default()
    };
    store.commit(ended).await.unwrap();
    store.close().await;

    let store = place.runner().await;
    assert_eq!(take(&store, "a", "i1").await, InputClaim::Settled);
    assert_eq!(take(&store, "a", "i2").await, InputClaim::New, "it was refused, so it may come again");
    assert_eq!(take(&store, "a", "i3").await, InputClaim::Begun, "its outcome was never stored");
    assert!(store.delete_session("a").await.unwrap());
    assert_eq!(take(&store, "a", "i1").await, InputClaim::New);
    assert_eq!(take(&store, "b", "i1").await, InputClaim::Begun);
}

fn approval(session_id: &str, request_id: &str) -> ApprovalRow {
    let body_json = Bytes::from(format!("{{\"request_id\":\"{request_id}\"}}"));
    ApprovalRow { session_id: session_id.into(), request_id: request_id.into(), body_json }
}

/// All of a unit or nothing of it, and the units queued with it are stored.
pub(crate) async fn a_unit_is_atomic(place: &impl RunnerFiles) {
    let store = place.runner().await;
    let good = store.enqueue_commit(unit("good", 1..=3)).await.unwrap();
    let counters =
        SessionCounters { version: 1, next_seq: 1, next_idx: 1, state: "idle".into(), updated_at: 1 };
    // Seq 0 is no record, and it comes last: everything before it must be undone.
    let mut bad =
        RunnerBatch { session_row: Some(session("bad")), counters: Some(counters), ..unit("bad", 1..=3) };
    bad.spool.push(line("bad", 0));
    let bad = store.enqueue_commit(bad).await.unwrap();
    let more = store.enqueue_commit(unit("more", 1..=3)).await.unwrap();
    assert!(good.await.is_ok());
    assert!(matches!(bad.await, Err(StoreError::Invalid(_))));
    let added = more.await.unwrap();
    assert_eq!(store.session("bad").await.unwrap(), None);
    assert_eq!(store.spool_after("bad", 0, 9).await.unwrap(), []);
    assert_eq!(store.spool_after("more", 0, 9).await.unwrap().len(), 3);
    assert_eq!(store.spool_bytes(), added + 3 * line("good", 1).1.len() as u64);
}

pub(crate) async fn outcomes_are_found_and_updated(place: &impl RunnerFiles) {
    use OutcomeStatus::{Done, InFlight, Indeterminate};
    let store = place.runner().await;
    put_outcomes(&store, vec![outcome("1", Some("k1"), 1, InFlight), outcome("2", None, 2, InFlight)]).await;
    put_outcomes(&store, vec![outcome("1", Some("k1"), 1, Done)]).await;
    // The id comes again with another key: the first key's proof stays.
    put_outcomes(&store, vec![outcome("1", Some("k2"), 3, Done)]).await;
    store.close().await;

    let store = place.runner().await;
    assert_eq!(store.mark_in_flight_indeterminate().await.unwrap(), 1);
    let expected = [
        outcome("1", Some("k1"), 1, Done),
        outcome("2", None, 2, Indeterminate),
        outcome("1", Some("k2"), 3, Done),
    ];
    assert_eq!(store.load_outcomes().await.unwrap(), expected);
}

pub(crate) async fn outcomes_are_pruned_oldest_first(place: &impl RunnerFiles) {
    use OutcomeStatus::{Done, InFlight};
    let store = place.runner().await;
    let rows =
        (0..10).map(|n| outcome(&n.to_string(), None, n, if n == 2 { InFlight } else { Done })).collect();
    put_outcomes(&store, rows).await;
    let limits = OutcomeLimits { rows_max: 100, bytes_max: u64::MAX, created_before: 0 };
    let left = async || -> Vec<String> {
        store.load_outcomes().await.unwrap().into_iter().map(|outcome| outcome.id).collect()
    };
    assert_eq!(store.prune_outcomes(limits).await.unwrap(), 0);
    let old = OutcomeLimits { created_before: 4, ..limits };
    assert_eq!(store.prune_outcomes(old).await.unwrap(), 3);
    assert_eq!(left().await, ["2", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(store.prune_outcomes(OutcomeLimits { rows_max: 5, ..limits }).await.unwrap(), 2);
    assert_eq!(left().await, ["2", "6", "7", "8", "9"]);
    assert_eq!(store.prune_outcomes(OutcomeLimits { bytes_max: 900, ..limits }).await.unwrap(), 2);
    assert_eq!(left().await, ["2", "8", "9"]);
    assert_eq!(store.prune_outcomes(OutcomeLimits { rows_max: 0, ..limits }).await.unwrap(), 2);
    assert_eq!(left().await, ["2"], "what is in flight is never removed");
}
