//! What was used, and what was said: usage, messages, one session, search and exports over HTTP.

use qd_hub::Limits;
use qd_wire::rest::{ExportData, UsageData};
use serde_json::{Value, json};

use crate::support::{TOKEN, World, assert_fields, created, message_end, record, world_with_session};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A message of the agent that says what it has used.
fn answered(session: &str, seq: u64, idx: u64, at: i64, model: &str, text: &str) -> String {
    let message = json!({"id":format!("m{idx}"),"idx":idx,"role":"assistant","created_at":at,"model":model,
        "provider":"scripted","parts":[{"type":"text","id":"p","text":text}],
        "usage":{"input_tokens":10,"output_tokens":5,"cost_usd":0.25}});
    record(session, seq, "stream.message_end", &format!(",\"message\":{message}"))
}

async fn get(world: &World, path: &str) -> Value {
    let (status, answer) = world.api("GET", path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[tokio::test]
async fn usage_is_added_up_by_day_model_and_session() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.say(&answered("s", 2, 0, DAY_MS, "big", "one")).await;
    runner.say(&answered("s", 3, 1, 2 * DAY_MS - 1, "small", "two")).await;
    runner.say(&created("t")).await;
    runner.say(&answered("t", 2, 0, 2 * DAY_MS, "big", "three")).await;
    runner.stored("t", 2).await;

    let data: UsageData = serde_json::from_value(get(&world, "/api/usage").await).unwrap();
    let days: Vec<_> =
        data.rows.iter().map(|row| (row.day.as_deref().unwrap(), row.sum.input_tokens)).collect();
    assert_eq!(days, [("1970-01-03", 10), ("1970-01-02", 20)], "by day, if nothing is said");
    assert_eq!((data.total.messages, data.total.output_tokens, data.total.cost_usd), (3, 15, 0.75));
    let rows = |data: &Value| data["rows"].as_array().unwrap().len();
    assert_eq!(rows(&get(&world, "/api/usage?by=model").await), 2);
    let by_session = get(&world, "/api/usage?by=session").await;
    assert_eq!((rows(&by_session), &by_session["rows"][0]["session_id"]), (2, &json!("s")));
    assert_eq!(rows(&get(&world, "/api/usage?by=day,model").await), 3);
    let short = get(&world, "/api/usage?by=session&limit=1").await;
    assert_eq!(
        (rows(&short), &short["truncated"], &short["total"]["messages"]),
        (1, &json!(true), &json!(3))
    );
    assert_eq!(get(&world, "/api/usage?from=1970-01-02&to=1970-01-02").await["total"]["messages"], 2);
    assert_eq!(get(&world, &format!("/api/usage?from={}", DAY_MS + 1)).await["total"]["messages"], 2);
    // An hour east the last millisecond of the second is in the third.
    let east = get(&world, "/api/usage?from=1970-01-03&tz_offset_minutes=60").await;
    assert_eq!((rows(&east), &east["total"]["messages"]), (1, &json!(2)));
    assert_eq!(get(&world, "/api/usage?session_id=t").await["total"]["messages"], 1);
    for wrong in ["by=hour", "from=soon", "to=2026-02-30", "tz_offset_minutes=900", "limit=x"] {
        assert_eq!(world.api("GET", &format!("/api/usage?{wrong}")).await.0, 400, "{wrong}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_session_and_its_messages_are_read_and_searched() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    for idx in 0..5 {
        runner.say(&message_end("s", idx + 2, idx)).await;
    }
    runner.stored("s", 6).await;
    let session = get(&world, "/api/sessions/s").await;
    assert_eq!((&session["session_id"], &session["message_count"]), (&json!("s"), &json!(5)));
    assert_eq!(session, get(&world, "/api/sessions").await["sessions"][0]);
    let page = get(&world, "/api/sessions/s/messages?limit=2").await;
    assert_fields(&page, json!({"total": 5, "before": 3, "messages.1.id": "m4"}));
    let page = get(&world, "/api/sessions/s/messages?before=3").await;
    assert_eq!((page["messages"].as_array().unwrap().len(), page.get("before")), (3, None));
    assert_fields(&get(&world, "/api/search?q=word3").await, json!({"hits.0.message_id": "m3"}));
    assert_eq!(get(&world, "/api/search?q=word3&session_id=other").await["hits"], json!([]));
    assert_eq!(
        get(&world, "/api/search?q=hello&limit=2&offset=1").await["hits"].as_array().unwrap().len(),
        2
    );
    assert_eq!(get(&world, "/api/search?q=hello&role=assistant").await["hits"], json!([]));

    for (path, status) in [
        ("/api/sessions/nobody", 404),
        ("/api/sessions/nobody/messages", 404),
        ("/api/sessions/nobody/export", 404),
        ("/api/sessions/s/messages?limit=x", 400),
        ("/api/sessions/s/export?format=pdf", 400),
        ("/api/search", 400),
        ("/api/search?q=x&from=soon", 400),
    ] {
        assert_eq!(world.api("GET", path).await.0, status, "{path}");
    }
    world.stop().await;
}

/// Chunks of a body that comes in pieces, put together.
fn whole(head: &str, body: &str) -> String {
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let (mut rest, mut whole) = (body.as_bytes(), Vec::new());
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return String::from_utf8(whole).unwrap();
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}

async fn export(world: &World, format: &str) -> (String, String) {
    let bearer = format!("Bearer {TOKEN}");
    let path = format!("/api/sessions/s/export?format={format}");
    let (status, head, body) = world.http(&path, &[("Authorization", &bearer)]).await;
    assert_eq!(status, 200, "{body}");
    let body = whole(&head, &body);
    (head, body)
}

/// Also of a long conversation, and while its runner is away.
#[tokio::test]
async fn a_conversation_is_exported_whole_in_every_form() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    for idx in 0..500 {
        runner.say(&message_end("s", idx + 2, idx)).await;
    }
    let bad = "<script>alert(1)</script> </pre> & \u{202e}";
    runner.say(&answered("s", 502, 500, 7, "big", bad)).await;
    runner.stored("s", 502).await;
    drop(runner);

    let (head, text) = export(&world, "json").await;
    assert!(head.contains("content-disposition: attachment; filename=\"s-"), "{head}");
    let data: ExportData = serde_json::from_str(&text).unwrap();
    assert_eq!((data.session.session_id.as_str(), data.messages.len()), ("s", 501));
    assert!(data.messages.iter().enumerate().all(|(at, message)| message.idx == at as u64));

    let (head, text) = export(&world, "html").await;
    assert!(head.contains("content-type: text/html") && head.contains(".html\""), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'") && head.contains("sandbox"),
        "{head}"
    );
    assert_eq!(text.matches("<article").count(), 501);
    assert!(text.contains("word499 hello") && text.ends_with("</html>\n"));
    assert!(
        !text.contains("<script") && text.contains("&lt;script&gt;alert(1)") && text.contains("[U+202E]")
    );
    assert!(!text.contains("http://") && !text.contains("https://"), "it needs nothing else");

    let (head, text) = export(&world, "md").await;
    assert!(head.contains("content-type: text/markdown") && head.contains(".md\""), "{head}");
    assert_eq!(text.matches("\n## ").count(), 501);
    world.stop().await;
}
