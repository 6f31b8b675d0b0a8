use qd_store::{HubSession, MessageRow, RecordEffect, UsageQuery, UsageRow, UsageSum};

use super::HubFiles;
use crate::fixtures::{message, put, record};

const DAY_MS: i64 = 24 * 3600 * 1000;

fn used(id: &str, idx: i64, at: i64, model: &str, usage: &str, cost: Option<f64>) -> MessageRow {
    MessageRow {
        role: "assistant".into(),
        created_at: at,
        model: Some(model.into()),
        provider: Some("p".into()),
        usage_json: Some(usage.into()),
        cost_usd: cost,
        ..message(id, idx, id)
    }
}

fn all() -> UsageQuery {
    UsageQuery { limit: 100, ..UsageQuery::default() }
}

fn days(rows: &[UsageRow]) -> Vec<(&str, u64)> {
    rows.iter().map(|row| (row.day.as_deref().unwrap(), row.sum.messages)).collect()
}

/// Tokens and money by day, model and session; what a fork has left behind counts, what says nothing does not.
pub(crate) async fn usage_adds_up(place: &impl HubFiles) {
    let store = place.hub().await;
    assert_eq!(store.usage(UsageQuery { by_day: true, ..all() }).await.unwrap(), Default::default());
    let session = HubSession {
        session_id: "s".into(),
        runner_id: "r1".into(),
        title: Some("named".into()),
        ..HubSession::default()
    };
    let full = r#"{"input_tokens":10,"output_tokens":20,"cache_read_tokens":3,"cache_write_tokens":4}"#;
    let half = r#"{"input_tokens":1,"output_tokens":2}"#;
    store
        .append(vec![
            record("s", 1, Some(RecordEffect::UpsertSession(Box::new(session)))),
            record("s", 2, put(used("a", 0, DAY_MS, "big", full, Some(0.5)))),
            record("s", 3, put(used("b", 1, 2 * DAY_MS - 1, "small", half, None))),
            record("s", 4, put(message("asked", 2, "no usage"))),
            record(
                "s",
                5,
                Some(RecordEffect::ReplaceMessages(vec![used("b", 0, 2 * DAY_MS - 1, "small", half, None)])),
            ),
            record("t", 1, put(used("a", 0, 2 * DAY_MS, "big", half, Some(0.25)))),
        ])
        .await
        .unwrap();

    let found = store.usage(UsageQuery { by_day: true, ..all() }).await.unwrap();
    assert_eq!(days(&found.rows), [("1970-01-03", 1), ("1970-01-02", 2)]);
    let total = UsageSum {
        input_tokens: 12,
        output_tokens: 24,
        cache_read_tokens: 3,
        cache_write_tokens: 4,
        cost_usd: 0.75,
        messages: 3,
    };
    assert_eq!((found.total, found.truncated), (total, false));
    // East of Greenwich the last millisecond of a day is of the next one.
    let east = UsageQuery { by_day: true, day_offset_ms: 1, ..all() };
    assert_eq!(days(&store.usage(east).await.unwrap().rows), [("1970-01-03", 2), ("1970-01-02", 1)]);

    let found = store.usage(UsageQuery { by_model: true, ..all() }).await.unwrap();
    let models: Vec<_> = found.rows.iter().map(|row| (row.model.as_deref(), row.sum.input_tokens)).collect();
    assert_eq!(models, [(Some("big"), 11), (Some("small"), 1)], "the dearest first");
    let found = store.usage(UsageQuery { by_session: true, limit: 1, ..all() }).await.unwrap();
    assert_eq!(found.rows.len(), 1);
    assert_eq!(
        (found.rows[0].session_id.as_deref(), found.rows[0].title.as_deref()),
        (Some("s"), Some("named"))
    );
    assert_eq!((found.total, found.truncated), (total, true), "the sum counts all");
    let both = store.usage(UsageQuery { by_day: true, by_model: true, ..all() }).await.unwrap();
    assert_eq!(both.rows.len(), 3);

    let window = UsageQuery { from: Some(DAY_MS + 1), to: Some(2 * DAY_MS), ..all() };
    let found = store.usage(window).await.unwrap();
    assert_eq!((found.rows.len(), found.total.messages), (0, 1), "nothing tells them apart");
    let one = UsageQuery { session_id: Some("t".into()), by_model: true, ..all() };
    assert_eq!(store.usage(one).await.unwrap().total.input_tokens, 1);
    store.close().await;
}

/// Agents may say anything of what they use: no answer fails for it.
pub(crate) async fn odd_usage_does_no_harm(place: &impl HubFiles) {
    let store = place.hub().await;
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let greatest = format!(r#"{{"input_tokens":{},"output_tokens":1e400}}"#, u64::MAX);
    let odd = ["5", "null", "not json", r#"{"input_tokens":"many"}"#, r#"{"input_tokens":-5}"#, &deep];
    let mut batch: Vec<_> = odd.into_iter().chain([&*greatest, &*greatest]).enumerate().collect();
    let batch = batch.drain(..).map(|(at, usage)| {
        let row = used(&format!("m{at}"), at as i64, i64::MAX - at as i64, "odd", usage, Some(f64::MAX));
        record("s", at as u64 + 1, put(row))
    });
    store.append(batch.collect()).await.unwrap();
    let query = UsageQuery { by_day: true, by_model: true, day_offset_ms: DAY_MS, ..all() };
    let found = store.usage(query).await.unwrap();
    assert_eq!((found.rows.len(), found.rows[0].day.as_deref()), (1, None), "no calendar has such a day");
    assert!(found.total.cost_usd.is_finite());
    assert_eq!(found.total.input_tokens, u64::MAX);
    store.close().await;
}

/// Forward pages hold the active conversation once, in order.
pub(crate) async fn a_conversation_is_read_from_its_beginning(place: &impl HubFiles) {
    let store = place.hub().await;
    let batch =
        (0..450).map(|idx| record("s", idx as u64 + 1, put(message(&format!("m{idx}"), idx, "hello"))));
    store.append(batch.collect()).await.unwrap();
    let (mut after, mut read) = (None, Vec::new());
    loop {
        let page = store.messages_after("s", after).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        read.extend(page.into_iter().map(|(idx, _)| idx));
    }
    assert_eq!(read, (0..450).collect::<Vec<i64>>());
    assert_eq!(store.messages_after("nobody", None).await.unwrap(), []);
    store.close().await;
}
