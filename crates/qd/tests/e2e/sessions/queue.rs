//! What waits for the agent is changed by a person, and what lists show of a session.

use qd_testkit::mux::{Mux, short};
use serde_json::{Value, json};

use crate::{
    PIXEL, demo, demo_asks, on, pi_with_session, prompt, queue, restarted, said_by, say, session_rows, with,
};

fn queue_set(session: &str, steering: &[&str], follow_up: &[&str]) -> Value {
    with(on(session, "queue.set"), queue(steering, follow_up))
}

#[tokio::test]
async fn pi_reads_the_queue_as_it_was_changed() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    mux.ok(prompt(&session, "@@hold name=a")).await;
    mux.wait_event("stream.text_delta").await;
    let image = json!({"data": PIXEL, "media_type": "image/png"});
    let more = json!({"images": [image], "client_id": "mine"});
    mux.ok(with(say("follow_up", &session, "@@text text=looked"), more)).await;
    mux.ok(say("follow_up", &session, "@@text text=removed")).await;
    mux.ok(say("follow_up", &session, "@@text text=before")).await;
    let all = queue(&[], &["@@text text=looked", "@@text text=removed", "@@text text=before"]);
    mux.wait_for("all wait", |frame| frame["queue"] == all).await;

    let wanted = ["@@text text=after", "@@text text=looked"];
    let data = mux.ok(queue_set(&session, &[], &wanted)).await;
    assert_eq!(data, queue(&[], &wanted), "{}", short(&data));
    llm.release("a");
    // Between two of them the agent may be idle for a moment.
    let is_last =
        |frame: &Value| frame["event"] == "stream.message_end" && frame["message"]["client_id"] == "mine";
    mux.wait_for("the last of the queue", is_last).await;
    mux.wait_event("agent.idle").await;
    let said = said_by(&mut mux, "user", &session).await;
    assert_eq!(said, ["@@hold name=a", "@@text text=after", "@@text text=looked"]);
    let messages = mux.messages(&session).await;
    let looked = messages.iter().find(|message| message["client_id"] == "mine").unwrap();
    assert!(looked["parts"].to_string().contains("image"), "its image came with it: {}", short(looked));
    assert_eq!(mux.state(&session).await["queue"], queue(&[], &[]));

    // What was read cannot be changed any more, which is said.
    let data = mux.ok(queue_set(&session, &[], &["@@text text=looked"])).await;
    assert_eq!(data["taken"], json!(["@@text text=looked"]), "{}", short(&data));
    assert_eq!(said_by(&mut mux, "user", &session).await.len(), 3);
}

#[tokio::test]
async fn pi_reads_a_changed_queue_after_an_abort_with_the_next_prompt() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(say("follow_up", &session, "@@text text=one")).await;
    mux.ok(say("follow_up", &session, "@@text text=two")).await;
    let both = queue(&[], &["@@text text=one", "@@text text=two"]);
    mux.wait_for("both wait", |frame| frame["queue"] == both).await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    mux.until_idle(&session, from).await;
    let data = mux.ok(queue_set(&session, &[], &["@@text text=two"])).await;
    assert_eq!(data, queue(&[], &["@@text text=two"]));
    assert_eq!(mux.state(&session).await["status"], "idle", "nothing begins by itself");
    let from = mux.frames().len();
    mux.ok(prompt(&session, "@@text text=asked")).await;
    mux.wait_for("an empty queue", |frame| frame["queue"] == queue(&[], &[])).await;
    mux.until_idle(&session, from).await;
    let said = said_by(&mut mux, "user", &session).await;
    assert_eq!(said, ["@@hold name=never", "@@text text=two", "@@text text=asked"]);
}

#[tokio::test]
async fn pi_says_which_thinking_levels_a_model_takes() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let data = mux.ok(json!({"cmd": "get_models", "session_id": session})).await;
    let models = data["models"].as_array().unwrap();
    for model in models {
        let levels = model["thinking_levels"].as_array().unwrap();
        assert_eq!(levels.len() > 1, model["reasoning"] == true, "{}", short(model));
        assert!(levels.contains(&json!("off")), "{}", short(model));
    }
    assert!(models.iter().any(|model| model["reasoning"] == true), "{}", short(&data));
}

async fn summary(mux: &mut Mux, session: &str) -> Value {
    session_rows(mux).await.into_iter().find(|row| row["session_id"] == session).unwrap()
}

#[tokio::test]
async fn lists_show_what_a_session_says_costs_and_asks() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    mux.ok(json!({"cmd": "list_sessions"})).await;
    mux.prompt(&session, "@@text text=\"first\\n\\tline\"\n@@usage input=100 output=7").await;
    let told =
        |frame: &Value| frame["type"] == "session.changed" && frame["session"]["last_text"] == "first line";
    let changed = mux.wait_for("the list is told", told).await;
    assert_eq!(changed["session"]["tokens"], 107, "{}", short(&changed));
    let line = summary(&mut mux, &session).await;
    assert_eq!((&line["last_text"], &line["tokens"]), (&json!("first line"), &json!(107)));
    assert!(line["cost_usd"].as_f64().unwrap() > 0.0, "{}", short(&line));
    assert_eq!((&line["phase"], &line["working_since"]), (&Value::Null, &Value::Null));

    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_for("it works", |frame| frame["session"]["phase"] == "generating").await;
    let line = summary(&mut mux, &session).await;
    assert!(line["working_since"].as_i64().is_some(), "{}", short(&line));
    assert_eq!(line["state"], "working");
    let (_qd, mut mux) = restarted(qd).await;
    let line = summary(&mut mux, &session).await;
    let kept = (&line["tokens"], &line["last_text"]);
    assert_eq!(kept, (&json!(107), &json!("@@hold name=never")), "{}", short(&line));
}

#[tokio::test]
async fn the_oldest_question_is_in_the_list_and_a_search_is_filtered() {
    let (_qd, mut mux) = demo().await;
    let session = mux.create(json!({"harness": "demo", "title": "Hulls"})).await;
    mux.ok(json!({"cmd": "list_sessions"})).await;
    let asked = demo_asks(&mut mux, &session).await;
    let line = summary(&mut mux, &session).await;
    assert_eq!(line["pending_title"], asked["request"]["title"], "{}", short(&line));
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;

    mux.prompt(&session, "/text barnacle").await;
    let hits = |filter: Value| with(json!({"cmd": "search", "query": "barnacle"}), filter);
    let found = mux.ok(hits(json!({"harness": "demo", "session_id": session, "from": 0}))).await;
    let hit = &found["hits"][0];
    assert_eq!((&hit["title"], &hit["harness"]), (&json!("Hulls"), &json!("demo")), "{}", short(&found));
    assert!(hit["runner_id"].is_string() && hit["cwd"].is_string(), "{}", short(hit));
    for (field, value) in [
        ("harness", json!("pi")),
        ("to", json!(1)),
        ("session_id", json!("nobody")),
        ("runner_id", json!("elsewhere")),
    ] {
        let found = mux.ok(hits(json!({field: value}))).await;
        assert_eq!(found["hits"], json!([]), "{field}");
    }
}
