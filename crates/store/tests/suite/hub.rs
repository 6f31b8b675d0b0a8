use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_store::{
    AppendSummary, HubSession, HubStore, LOGINS_MAX, LoginRow, MESSAGE_PAGE_BYTES_MAX, MessageRow, NewRecord,
    RecordEffect, SEQ_MAX, SessionPatch, SessionTotals, StoreError,
};

use super::HubFiles;
use crate::fixtures::{message, put, record};

fn session(session_id: &str, updated_at: i64) -> HubSession {
    HubSession {
        session_id: session_id.into(),
        runner_id: "local".into(),
        harness: "pi".into(),
        cwd: "/tmp".into(),
        title: Some("first title".into()),
        state: "idle".into(),
        created_at: 5,
        updated_at,
        meta_json: Some("{}".into()),
        ..HubSession::default()
    }
}

async fn listed(store: &HubStore, session_id: &str) -> Option<HubSession> {
    store.sessions().await.unwrap().into_iter().find(|session| session.session_id == session_id)
}

async fn page_ids(store: &HubStore, before: Option<i64>, limit: usize) -> (Vec<String>, Option<i64>, u64) {
    let page = store.messages_page("s", before, limit).await.unwrap();
    let id = |body: &Bytes| String::from_utf8(body.to_vec()).unwrap().split('"').nth(3).unwrap().to_owned();
    (page.messages.iter().map(id).collect(), page.first_idx, page.total)
}

/// Records of many sessions in one call come back in order, by cursor, within both limits, byte for byte.
pub(crate) async fn records_come_back_in_order(place: &impl HubFiles) {
    let store = place.hub().await;
    let batch = (1..=50).flat_map(|seq| [record("a", seq, None), record("b", seq, None)]).collect();
    let appended = store.append(batch).await.unwrap();
    assert_eq!(appended.inserted, 100);
    assert_eq!(appended.heads, [(Arc::from("a"), 50), (Arc::from("b"), 50)]);

    let all = store.records_after("a", 0, 1000, usize::MAX).await.unwrap();
    let expected: Vec<_> = (1..=50).map(|seq| (seq, record("a", seq, None).body)).collect();
    assert_eq!(all, expected);
    assert_eq!(store.records_after("a", 20, 7, usize::MAX).await.unwrap(), expected[20..27]);
    let bytes = expected[0].1.len() + expected[1].1.len();
    assert_eq!(store.records_after("a", 0, 1000, bytes).await.unwrap(), expected[..2]);
    assert_eq!(store.records_after("a", 0, 1000, 0).await.unwrap(), expected[..1], "at least one");
    assert_eq!(store.records_after("a", 50, 1000, 1000).await.unwrap(), []);
    assert_eq!(store.records_after("a", u64::MAX, 1000, 1000).await.unwrap(), []);
    assert_eq!(store.records_after("nobody", 0, 1000, 1000).await.unwrap(), []);
    store.close().await;

    let store = place.hub().await;
    assert_eq!(store.records_after("a", 0, 1000, usize::MAX).await.unwrap(), expected, "after reopening");
    let listed = listed(&store, "a").await.unwrap();
    assert_eq!((listed.last_seq, &*listed.runner_id), (50, "r1"), "whose it is does not depend on an effect");
}

/// Records are also found by their event: from a cursor on, or the newest; within both limits, of one session only.
pub(crate) async fn records_are_found_by_their_event(place: &impl HubFiles) {
    let store = place.hub().await;
    let of = |session: &str, seq: u64| {
        let event = if seq.is_multiple_of(3) { "run.output" } else { "tool.end" };
        NewRecord { event: event.into(), ..record(session, seq, None) }
    };
    store.append((1..=30).flat_map(|seq| [of("a", seq), of("b", seq)]).collect()).await.unwrap();
    let outputs: Vec<_> = (1..=10).map(|turn| (turn * 3, record("a", turn * 3, None).body)).collect();
    const OUTPUT: &[&str] = &["run.output"];

    assert_eq!(store.records_of("a", OUTPUT, 0, 99, usize::MAX).await.unwrap(), outputs);
    assert_eq!(store.records_of("a", OUTPUT, 6, 3, usize::MAX).await.unwrap(), outputs[2..5]);
    assert_eq!(store.records_of("a", OUTPUT, 0, 99, 0).await.unwrap(), outputs[..1], "at least one");
    assert_eq!(store.records_of("a", OUTPUT, 30, 99, usize::MAX).await.unwrap(), []);
    assert_eq!(store.records_of("nobody", OUTPUT, 0, 99, usize::MAX).await.unwrap(), []);
    let both = store.records_of("a", &["run.output", "tool.end"], 0, 99, usize::MAX).await.unwrap();
    assert_eq!(both.len(), 30);
    assert_eq!(store.records_of("a", &["agent.idle"], 0, 99, usize::MAX).await.unwrap(), []);

    assert_eq!(store.newest_records_of("a", OUTPUT, 99, usize::MAX).await.unwrap(), outputs);
    assert_eq!(store.newest_records_of("a", OUTPUT, 3, usize::MAX).await.unwrap(), outputs[7..]);
    assert_eq!(store.newest_records_of("a", OUTPUT, 99, 0).await.unwrap(), outputs[9..], "at least one");
    assert_eq!(store.newest_records_of("nobody", OUTPUT, 99, usize::MAX).await.unwrap(), []);
}

/// A body can be replaced by a later record, together with it and once, or by hand; others stay.
pub(crate) async fn an_earlier_record_is_rewritten(place: &impl HubFiles) {
    fn short(body: &[u8]) -> Option<Vec<u8>> {
        (body.len() > 3).then(|| b"{}".to_vec())
    }
    let store = place.hub().await;
    let bodies = async |store: &HubStore| -> Vec<usize> {
        let records = store.records_after("s", 0, 99, usize::MAX).await.unwrap();
        records.into_iter().map(|(_, body)| body.len()).collect()
    };
    let whole = record("s", 1, None).body.len();
    let rewrite = |seq| Some(RecordEffect::Rewrite { seq, with: short });
    store.append(vec![record("s", 1, None), record("s", 2, None), record("other", 1, None)]).await.unwrap();
    store.append(vec![record("s", 3, rewrite(2))]).await.unwrap();
    assert_eq!(bodies(&store).await, [whole, 2, whole]);
    // In the same batch, and for a record nobody has.
    store
        .append(vec![record("s", 4, None), record("s", 5, rewrite(4)), record("s", 6, rewrite(99))])
        .await
        .unwrap();
    assert_eq!(bodies(&store).await, [whole, 2, whole, 2, whole, whole]);
    store.rewrite_record("s", 1, short).await.unwrap();
    store.rewrite_record("s", 50, short).await.unwrap();
    store.rewrite_record("nobody", 1, short).await.unwrap();
    assert_eq!(bodies(&store).await, [2, 2, whole, 2, whole, whole]);
    let other = store.records_after("other", 0, 9, 9999).await.unwrap();
    assert_eq!(other, [(1, record("other", 1, None).body)]);
}

/// The row of a session that only writes is stored now and then; how far it has come is known all the same.
pub(crate) async fn how_far_a_session_is_does_not_depend_on_its_row(place: &impl HubFiles) {
    let at = |seq: u64, ts: i64| NewRecord { ts, ..record("s", seq, None) };
    let store = place.hub().await;
    store.append(vec![at(1, 5000)]).await.unwrap();
    store.append(vec![at(2, 5400)]).await.unwrap();
    store.append(vec![at(3, 5900)]).await.unwrap();
    let row = listed(&store, "s").await.unwrap();
    assert_eq!((row.last_seq, row.updated_at), (3, 5000));
    let again = store.append(vec![at(2, 5400)]).await.unwrap();
    assert_eq!(again.heads, [(Arc::from("s"), 3)], "a repeated record is acked with all that is there");
    store.append(vec![at(4, 6000)]).await.unwrap();
    assert_eq!(listed(&store, "s").await.unwrap().updated_at, 6000);
    store.append(vec![at(5, 6001)]).await.unwrap();
    store.close().await;
    let store = place.hub().await;
    assert_eq!(store.session("s").await.unwrap().unwrap().last_seq, 5);
    // A clock that was set back does not hold the row back for ever.
    store.append(vec![at(6, 4000)]).await.unwrap();
    assert_eq!(listed(&store, "s").await.unwrap().updated_at, 6000);
    assert_eq!(store.append(vec![at(1, 5000)]).await.unwrap().heads, [(Arc::from("s"), 6)]);
}

/// A record that comes twice keeps its first body, and its effect does not run again over newer state.
pub(crate) async fn repeated_records_change_nothing(place: &impl HubFiles) {
    let store = place.hub().await;
    let title = |text: &str| {
        let patch = SessionPatch { title: Some(text.into()), ..SessionPatch::default() };
        Some(RecordEffect::SessionPatch(Box::new(patch)))
    };
    store.append(vec![record("s", 1, title("old")), record("s", 2, title("new"))]).await.unwrap();
    let mut again = record("s", 1, title("old"));
    again.body = Bytes::from_static(b"other");
    let appended = store.append(vec![again, record("s", 3, None)]).await.unwrap();
    assert_eq!(
        appended,
        AppendSummary { inserted: 1, duplicates: 1, heads: vec![(Arc::from("s"), 3)], totals: vec![] }
    );
    assert_eq!(listed(&store, "s").await.unwrap().title.as_deref(), Some("new"));
    assert_eq!(store.records_after("s", 0, 1, 1000).await.unwrap(), [(1, record("s", 1, None).body)]);
}

pub(crate) async fn sessions_are_listed_patched_and_deleted(place: &impl HubFiles) {
    let store = place.hub().await;
    // A record may come before anybody has described its session.
    store.append(vec![record("s", 1, None)]).await.unwrap();
    let effect = Some(RecordEffect::UpsertSession(Box::new(session("s", 2000))));
    store.append(vec![record("s", 2, effect)]).await.unwrap();
    let effect = Some(RecordEffect::UpsertSession(Box::new(session("t", 9000))));
    store.append(vec![record("t", 1, effect)]).await.unwrap();
    let expected = HubSession { last_seq: 2, ..session("s", 2000) };
    let other = HubSession { last_seq: 1, ..session("t", 9000) };
    assert_eq!(store.sessions().await.unwrap(), [other, expected.clone()]);

    let patch = SessionPatch { closed: Some(true), model: Some("m".into()), ..SessionPatch::default() };
    store.append(vec![record("s", 3, Some(RecordEffect::SessionPatch(Box::new(patch))))]).await.unwrap();
    let expected = HubSession { closed: true, model: Some("m".into()), last_seq: 3, ..expected };
    assert_eq!(listed(&store, "s").await, Some(expected));

    assert!(store.delete_session("s").await.unwrap());
    assert!(!store.delete_session("s").await.unwrap());
    assert_eq!(listed(&store, "s").await, None);
    assert_eq!(store.records_after("s", 0, 10, 1000).await.unwrap(), []);
    store.append(vec![record("s", 1, None)]).await.unwrap();
    assert_eq!(store.records_after("s", 0, 10, 1000).await.unwrap().len(), 1, "a new life starts empty");
}

/// What lists show is kept with the session: counted once for each message, whatever comes again.
pub(crate) async fn lists_are_kept_with_the_session(place: &impl HubFiles) {
    let store = place.hub().await;
    let said = |id: &str, idx: i64, text: Option<&str>| MessageRow {
        last_text: text.map(str::to_owned),
        ..message(id, idx, "content")
    };
    let batch = vec![
        record("s", 1, put(said("m0", 0, Some("first")))),
        record("s", 2, put(said("m1", 1, None))),
        record("t", 1, None),
    ];
    let appended = store.append(batch).await.unwrap();
    let totals = |tokens, cost_usd| SessionTotals { tokens, cost_usd };
    assert_eq!(appended.totals, [(Arc::from("s"), totals(6, 1.0))]);
    let row = listed(&store, "s").await.unwrap();
    assert_eq!((row.last_text.as_deref(), row.totals), (Some("first"), totals(6, 1.0)));

    // The same message again, and another figure for it: only the difference counts.
    store.append(vec![record("s", 2, put(said("m1", 1, Some("repeated"))))]).await.unwrap();
    let changed = MessageRow { tokens: Some(10), ..said("m1", 1, Some("second")) };
    let appended = store.append(vec![record("s", 3, put(changed.clone()))]).await.unwrap();
    assert_eq!(appended.totals, [(Arc::from("s"), totals(13, 1.0))]);

    // What a fork leaves behind was paid for all the same.
    let list = RecordEffect::ReplaceMessages(vec![changed, said("m9", 1, None)]);
    store.append(vec![record("s", 4, Some(list))]).await.unwrap();
    let row = listed(&store, "s").await.unwrap();
    assert_eq!((row.last_text.as_deref(), row.totals), (Some("second"), totals(16, 1.5)));
    store.append(vec![record("s", 5, Some(RecordEffect::ReplaceMessages(Vec::new())))]).await.unwrap();
    assert_eq!(listed(&store, "s").await.unwrap().last_text, None);

    let patch = |branch: &str, error: &str| {
        let (branch, error) = (Some(branch.to_owned()), Some(error.to_owned()));
        Some(RecordEffect::SessionPatch(Box::new(SessionPatch { branch, error, ..SessionPatch::default() })))
    };
    store.append(vec![record("s", 6, patch("main", "it died"))]).await.unwrap();
    let row = listed(&store, "s").await.unwrap();
    assert_eq!((row.branch.as_deref(), row.error.as_deref()), (Some("main"), Some("it died")));
    store.append(vec![record("s", 7, patch("", ""))]).await.unwrap();
    let row = listed(&store, "s").await.unwrap();
    assert_eq!((row.branch, row.error), (None, None), "an empty text takes it away");
    for (seq, state, keeps_failed, expected) in
        [(8, "failed", false, "failed"), (9, "idle", true, "failed"), (10, "idle", false, "idle")]
    {
        let patch = SessionPatch { state: Some(state.to_owned()), keeps_failed, ..SessionPatch::default() };
        store
            .append(vec![record("s", seq, Some(RecordEffect::SessionPatch(Box::new(patch))))])
            .await
            .unwrap();
        assert_eq!(listed(&store, "s").await.unwrap().state, expected, "{seq}");
    }
}

pub(crate) async fn messages_are_paged_and_replaced(place: &impl HubFiles) {
    let store = place.hub().await;
    let batch = (0..5).map(|idx| record("s", idx as u64 + 1, put(message(&format!("m{idx}"), idx, "x"))));
    store.append(batch.collect()).await.unwrap();
    let ids = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(page_ids(&store, None, 2).await, (ids(&["m3", "m4"]), Some(3), 5));
    assert_eq!(page_ids(&store, Some(3), 2).await, (ids(&["m1", "m2"]), Some(1), 5));
    assert_eq!(page_ids(&store, Some(1), 2).await, (ids(&["m0"]), Some(0), 5));
    assert_eq!(page_ids(&store, Some(0), 2).await, (vec![], None, 5));

    // Great messages end a page early; the one that is too much is the last, so that every page has one.
    let great = "x".repeat(MESSAGE_PAGE_BYTES_MAX * 2 / 3);
    let batch =
        (0..4).map(|idx| record("great", idx as u64 + 1, put(message(&format!("g{idx}"), idx, &great))));
    store.append(batch.collect()).await.unwrap();
    let page = store.messages_page("great", None, 9).await.unwrap();
    assert_eq!((page.messages.len(), page.first_idx, page.total), (2, Some(2), 4));

    // A fork: the first two stay, a third follows another way.
    let list = vec![message("m0", 0, "x"), message("m1", 1, "x"), message("n2", 2, "x")];
    store.append(vec![record("s", 6, Some(RecordEffect::ReplaceMessages(list)))]).await.unwrap();
    assert_eq!(page_ids(&store, None, 9).await, (ids(&["m0", "m1", "n2"]), Some(0), 3));
    let sessions = store.sessions().await.unwrap();
    let counts: Vec<_> = sessions.iter().map(|it| (it.session_id.as_str(), it.message_count)).collect();
    assert_eq!(counts, [("s", 3), ("great", 4)]);
    // And back to the first branch.
    let list = (0..4).map(|idx| message(&format!("m{idx}"), idx, "x")).collect();
    store.append(vec![record("s", 7, Some(RecordEffect::ReplaceMessages(list)))]).await.unwrap();
    assert_eq!(page_ids(&store, None, 9).await, (ids(&["m0", "m1", "m2", "m3"]), Some(0), 4));
    store.append(vec![record("s", 8, Some(RecordEffect::ReplaceMessages(vec![])))]).await.unwrap();
    assert_eq!(page_ids(&store, None, 9).await, (vec![], None, 0));
}

/// A request that cannot be stored fails alone and whole; those queued with it are stored.
pub(crate) async fn a_bad_request_fails_alone(place: &impl HubFiles) {
    let store = place.hub().await;
    let mut pending = Vec::new();
    for number in 0..20 {
        let session_id = format!("s{number}");
        let second = if number % 5 == 0 { SEQ_MAX + 1 } else { 2 };
        let batch = vec![record(&session_id, 1, None), record(&session_id, second, None)];
        pending.push(store.enqueue_append(batch).await.unwrap());
    }
    for (number, request) in pending.into_iter().enumerate() {
        let result = request.await;
        let stored = store.records_after(&format!("s{number}"), 0, 10, 1000).await.unwrap().len();
        if number % 5 == 0 {
            assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
            assert_eq!(stored, 0);
        } else {
            assert_eq!((result.unwrap().inserted, stored), (2, 2));
        }
    }
}

pub(crate) async fn logins_are_kept(place: &impl HubFiles) {
    let store = place.hub().await;
    let login = LoginRow {
        token_hash: vec![7; 32],
        username: None,
        created_at: 1,
        last_used_at: 1,
        label: "phone".into(),
    };
    store.put_login(login.clone()).await.unwrap();
    let life = Duration::from_secs(1000);
    let check = async |hash: &[u8], now| store.check_login(hash, now, life).await.unwrap();
    assert_eq!(check(&[7; 32], 2).await, Some(login.clone()));
    assert_eq!(check(&[8; 32], 2).await, None);
    assert_eq!(check(&[7; 32], 100_000).await, Some(login.clone()), "a use soon after is not written");
    assert_eq!(check(&[7; 32], 100_001).await, Some(LoginRow { last_used_at: 100_000, ..login.clone() }));
    assert_eq!(check(&[7; 32], 1_100_000).await, None, "unused for too long");
    assert!(store.delete_login(&[7; 32]).await.unwrap());
    assert!(!store.delete_login(&[7; 32]).await.unwrap());
    assert_eq!(check(&[7; 32], 2).await, None);

    for number in 0..=LOGINS_MAX {
        let hash = vec![u8::try_from(number).unwrap(); 32];
        let login = LoginRow { token_hash: hash, last_used_at: 10 + number as i64, ..login.clone() };
        store.put_login(login).await.unwrap();
    }
    assert_eq!(check(&[0; 32], 200).await, None, "the oldest goes");
    assert!(check(&[1; 32], 200).await.is_some());
    // A disk that fails takes no notes, and locks nobody out.
    store.refuse_for_tests().await.unwrap();
    assert!(check(&[1; 32], 500_000).await.is_some());
}

/// What was queued before the close is stored; what comes after gets a clear error.
pub(crate) async fn close_finishes_what_is_queued(place: &impl HubFiles) {
    let store = place.hub().await;
    let mut pending = Vec::new();
    for seq in 1..=600 {
        pending.push(store.enqueue_append(vec![record("s", seq, None)]).await.unwrap());
    }
    store.close().await;
    for request in pending {
        request.await.unwrap();
    }
    assert!(matches!(store.append(vec![record("s", 601, None)]).await, Err(StoreError::Closed)));
    assert!(matches!(store.sessions().await, Err(StoreError::Closed)));
    store.close().await;
    assert_eq!(place.hub().await.records_after("s", 0, 1000, usize::MAX).await.unwrap().len(), 600);
}

/// Whether a request is done by the writer or, being short, at once: a later one never comes before an earlier one.
pub(crate) async fn great_and_short_requests_keep_their_order(place: &impl HubFiles) {
    let store = place.hub().await;
    let titled = |seq: u64, title: &str, bytes: usize| {
        let patch = SessionPatch { title: Some(title.to_owned()), ..SessionPatch::default() };
        let effect = Some(RecordEffect::SessionPatch(Box::new(patch)));
        NewRecord { body: vec![b' '; bytes].into(), ..record("s", seq, effect) }
    };
    for round in 0..1500 {
        let great = store.enqueue_append(vec![titled(2 * round + 1, "great", 40 << 10)]).await.unwrap();
        // Later and later, so that every moment of the writer's work is met.
        (0..round % 150 * 40).for_each(|_| std::hint::spin_loop());
        let short = store.enqueue_append(vec![titled(2 * round + 2, "short", 8)]).await.unwrap();
        short.await.unwrap();
        great.await.unwrap();
        assert_eq!(store.session("s").await.unwrap().unwrap().title.as_deref(), Some("short"), "{round}");
    }
    store.close().await;
}

/// A request that a rule refuses is told apart from a full disk, and from a store that is closed: callers drop the one
/// and wait with the other.
pub(crate) async fn errors_say_whose_fault_it_is(place: &impl HubFiles) {
    let store = place.hub().await;
    store.append(vec![record("s", 1, None)]).await.unwrap();
    store.refuse_for_tests().await.unwrap();
    let patch = SessionPatch { title: Some("bad".into()), ..SessionPatch::default() };
    let refused = store
        .append(vec![record("s", 2, Some(RecordEffect::SessionPatch(Box::new(patch))))])
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Constraint(_)) && refused.is_refusal(), "{refused:?}");
    let invalid = store.append(vec![record("s", 0, None)]).await.unwrap_err();
    assert!(matches!(invalid, StoreError::Invalid(_)) && invalid.is_refusal(), "{invalid:?}");

    store.set_full_for_tests(true).await.unwrap();
    let great = || vec![NewRecord { body: vec![b'x'; 1 << 20].into(), ..record("s", 2, None) }];
    let full = store.append(great()).await.unwrap_err();
    assert!(matches!(full, StoreError::Full) && !full.is_refusal(), "{full:?}");
    store.set_full_for_tests(false).await.unwrap();
    store.append(great()).await.unwrap();

    store.close().await;
    let closed = store.append(vec![record("s", 3, None)]).await.unwrap_err();
    assert!(matches!(closed, StoreError::Closed) && !closed.is_refusal(), "{closed:?}");
}
