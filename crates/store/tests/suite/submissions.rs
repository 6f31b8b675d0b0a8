use bytes::Bytes;
use qd_store::{HistoryQuery, HubStore, SubmissionRow};

use super::HubFiles;
use crate::fixtures::submission;

fn finished(row: SubmissionRow, at: i64) -> SubmissionRow {
    SubmissionRow {
        finished_at: Some(at),
        success: Some(true),
        outcome_json: Some(Bytes::from_static(b"{\"success\":true}")),
        data_json: Some(Bytes::from(format!("{{\"of\":\"{}\"}}", row.uid))),
        ..row
    }
}

fn listed(row: SubmissionRow) -> SubmissionRow {
    SubmissionRow { data_json: None, ..row }
}

fn uids(rows: &[SubmissionRow]) -> Vec<&str> {
    rows.iter().map(|row| &*row.uid).collect()
}

async fn ask(store: &HubStore, query: HistoryQuery) -> (Vec<String>, bool) {
    let (rows, is_truncated) = store.submission_history(query).await.unwrap();
    (rows.iter().map(|row| row.uid.to_string()).collect(), is_truncated)
}

pub(crate) async fn submissions_are_kept_and_finished(place: &impl HubFiles) {
    let store = place.hub().await;
    let (first, second) = (submission("u1", "ann", 100), submission("u2", "ann", 50));
    store.put_submission(first.clone()).await.unwrap();
    store.put_submission(second.clone()).await.unwrap();
    store.finish_submission(finished(first.clone(), 110)).await.unwrap();
    // A read is stored once, when it is over; and who asked what under which name does not change afterwards.
    let bare = SubmissionRow {
        uid: "u3".into(),
        principal: "ben".into(),
        scope: "_server_".into(),
        command: "list_sessions".into(),
        fingerprint: [9; 32],
        finished_at: Some(7),
        success: Some(false),
        ..SubmissionRow::default()
    };
    store.finish_submission(bare.clone()).await.unwrap();
    store
        .finish_submission(SubmissionRow { principal: "eve".into(), command: "bash".into(), ..bare.clone() })
        .await
        .unwrap();
    let expected = [finished(first, 110), second.clone(), bare.clone()];
    assert_eq!(store.submissions(10).await.unwrap(), expected, "by arrival, whatever the clock did");
    store.close().await;

    let store = place.hub().await;
    assert_eq!(store.submissions(usize::MAX).await.unwrap(), expected);
    assert_eq!(store.submissions(2).await.unwrap(), [second, bare], "the newest, oldest first");
    assert_eq!(store.submissions(0).await.unwrap(), []);
}

pub(crate) async fn submissions_go_and_names_are_free_again(place: &impl HubFiles) {
    let store = place.hub().await;
    for number in 1..=9 {
        store.put_submission(submission(&format!("u{number}"), "ann", number)).await.unwrap();
    }
    store.delete_submissions(vec!["u1".into(), "u5".into(), "nobody's".into()]).await.unwrap();
    store.delete_submissions(Vec::new()).await.unwrap();
    let rows = store.submissions(20).await.unwrap();
    assert_eq!(uids(&rows), ["u2", "u3", "u4", "u6", "u7", "u8", "u9"]);
    assert_eq!(store.keep_submissions(3).await.unwrap(), 4);
    assert_eq!(store.keep_submissions(3).await.unwrap(), 0);
    assert_eq!(uids(&store.submissions(20).await.unwrap()), ["u7", "u8", "u9"]);
    store.put_submission(submission("u1", "ann", 10)).await.unwrap();
    // Several at once; one that begins after its end was told is over all the same.
    let ben = [
        finished(submission("u20", "ben", 11), 12),
        submission("u20", "ben", 11),
        submission("u21", "ben", 11),
    ];
    store.write_submissions(ben.clone().into()).await.unwrap();
    assert_eq!(store.submissions(2).await.unwrap(), [ben[0].clone(), ben[2].clone()]);
    store.delete_submissions_of("ben").await.unwrap();
    store.close().await;
    let store = place.hub().await;
    assert_eq!(uids(&store.submissions(20).await.unwrap()), ["u7", "u8", "u9", "u1"]);
    assert_eq!(store.keep_submissions(0).await.unwrap(), 4);
    assert_eq!(store.submissions(20).await.unwrap(), []);
}

pub(crate) async fn history_is_ones_own_and_newest_first(place: &impl HubFiles) {
    let store = place.hub().await;
    for number in 1..=6_i64 {
        let row = submission(&format!("u{number}"), "ann", 100 * number);
        let session_id = Some(if number % 2 == 0 { "even" } else { "odd" }.to_owned());
        let row = SubmissionRow { session_id, ..row };
        store.put_submission(row.clone()).await.unwrap();
        store.finish_submission(finished(row, 100 * number + 1)).await.unwrap();
    }
    store.put_submission(submission("u7", "ann", 600)).await.unwrap();
    store.put_submission(submission("theirs", "ben", 300)).await.unwrap();

    let all = || HistoryQuery { principal: "ann".into(), limit: 10, ..HistoryQuery::default() };
    assert_eq!(
        ask(&store, all()).await.0,
        ["u7", "u6", "u5", "u4", "u3", "u2", "u1"],
        "the later of two alike first"
    );
    for (limit, expected) in [(7, false), (6, true), (1, true), (0, true)] {
        let (rows, is_truncated) = ask(&store, HistoryQuery { limit, ..all() }).await;
        assert_eq!((rows.len(), is_truncated), (limit, expected));
    }
    let check = async |query: HistoryQuery, expected: &[&str]| {
        assert_eq!(
            ask(&store, query.clone()).await,
            (expected.iter().map(|&uid| uid.into()).collect(), false),
            "{query:?}"
        );
    };
    check(HistoryQuery { from: Some(300), to: Some(500), ..all() }, &["u5", "u4", "u3"]).await;
    check(HistoryQuery { from: Some(601), ..all() }, &[]).await;
    check(HistoryQuery { session_id: Some("odd".into()), ..all() }, &["u5", "u3", "u1"]).await;
    check(HistoryQuery { command_id: Some("id-u4".into()), ..all() }, &["u4"]).await;
    check(HistoryQuery { session_id: Some("odd".into()), command_id: Some("id-u4".into()), ..all() }, &[])
        .await;
    check(HistoryQuery { principal: "eve".into(), ..all() }, &[]).await;

    let (rows, _) = store.submission_history(HistoryQuery { to: Some(100), ..all() }).await.unwrap();
    let row = SubmissionRow { session_id: Some("odd".into()), ..submission("u1", "ann", 100) };
    assert_eq!(rows, [listed(finished(row, 101))], "all but the data");
}
