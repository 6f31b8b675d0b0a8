//! Real pi: models, thinking levels, names, switches, and the user's own files.

use qd_testkit::mux::{Mux, of};
use qd_testkit::qd::files_below;
use qd_wire::ErrorCode;
use serde_json::{Value, json};

use crate::{pi, pi_session, restarted, session_rows, until, with};

fn on(session: &str, cmd: &str, more: Value) -> Value {
    with(crate::on(session, cmd), more)
}

async fn model_of(mux: &mut Mux, session: &str) -> Value {
    mux.state(session).await["model"]["model_id"].clone()
}

#[tokio::test]
async fn the_model_is_chosen_changed_and_everybody_is_told() {
    let (qd, mut mux, llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-2"})).await;
    assert_eq!(model_of(&mut mux, &session).await, "fake-2");
    let data =
        mux.ok(on(&session, "set_model", json!({"provider": "fakeanth", "model_id": "fake-anth"}))).await;
    assert_eq!(data, json!({"provider": "fakeanth", "model_id": "fake-anth"}));
    let changed = mux.wait_event("config.model_changed").await;
    assert_eq!((&changed["provider"], &changed["model_id"]), (&json!("fakeanth"), &json!("fake-anth")));
    mux.prompt(&session, "@@text").await;
    assert_eq!(llm.requests().last().unwrap().model(), "fake-anth");
    mux.skip();
    // pi itself sends no event for this.
    let data = mux.ok(on(&session, "cycle_model", json!({}))).await;
    let changed = mux.wait_event("config.model_changed").await;
    assert_eq!(changed["model_id"], data["model_id"]);
    assert_ne!(changed["model_id"], "fake-anth");
    assert_eq!(model_of(&mut mux, &session).await, data["model_id"]);
    let error =
        mux.refused(on(&session, "set_model", json!({"provider": "fake", "model_id": "nobody"}))).await;
    assert!(error.contains("nobody"), "{error}");
    assert_eq!(model_of(&mut mux, &session).await, data["model_id"]);
    let list = mux.ok(on(&session, "get_models", json!({}))).await;
    let mut ids: Vec<&str> =
        list["models"].as_array().unwrap().iter().map(|m| m["model_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["fake-1", "fake-2", "fake-anth", "fake-small"]);
    assert_eq!(session_rows(&mut mux).await[0]["model"], data["model_id"]);
}

#[tokio::test]
async fn thinking_levels_are_set_cycled_and_wrong_ones_refused() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-2", "thinking_level": "low"})).await;
    assert_eq!(mux.state(&session).await["thinking_level"], "low");
    let data = mux.ok(on(&session, "set_thinking_level", json!({"level": "high"}))).await;
    assert_eq!(data["level"], "high");
    assert_eq!(mux.wait_event("config.thinking_level_changed").await["level"], "high");
    let error = mux
        .refused_as(ErrorCode::InvalidRequest, on(&session, "set_thinking_level", json!({"level": "bogus"})))
        .await;
    assert!(error.contains("minimal") && error.contains("high"), "{error}");
    assert_eq!(mux.state(&session).await["thinking_level"], "high");
    let data = mux.ok(on(&session, "cycle_thinking_level", json!({}))).await;
    assert_eq!(mux.wait_event("config.thinking_level_changed").await["level"], data["level"]);
    assert_ne!(data["level"], "high");
    assert_eq!(mux.state(&session).await["thinking_level"], data["level"]);
}

#[tokio::test]
async fn nothing_a_session_sets_changes_the_users_files() {
    let (qd, mut mux, _llm) = pi().await;
    let user = qd.sandbox().pi_dir();
    let mut before = files_below(&user);
    let session = pi_session(&qd, &mut mux, json!({})).await;
    for (cmd, enabled, field) in
        [("set_auto_compaction", false, "auto_compaction"), ("set_auto_retry", false, "auto_retry")]
    {
        mux.ok(on(&session, cmd, json!({"enabled": enabled}))).await;
        assert_eq!(mux.state(&session).await[field], enabled, "{field}");
    }
    mux.ok(on(&session, "set_model", json!({"provider": "fake", "model_id": "fake-2"}))).await;
    mux.ok(on(&session, "set_thinking_level", json!({"level": "high"}))).await;
    let events = mux.prompt(&session, "@@error status=500 times=1").await;
    assert!(of(&events, "retry.start").is_empty(), "retries are off");
    assert_eq!(events.last().unwrap()["reason"], "error");
    let is_session = |path: &std::path::Path| path.starts_with(user.join("sessions"));
    let mut after = files_below(&user);
    assert!(after.iter().any(|(path, _)| is_session(path)), "the session file is where plain pi keeps it");
    // Credentials are shared and may appear; they are not settings.
    for files in [&mut before, &mut after] {
        files.retain(|(path, _)| !is_session(path) && !path.ends_with("auth.json"));
    }
    assert_eq!(after, before);
    // A new session starts from the user's settings, not from those of the last one.
    let other = pi_session(&qd, &mut mux, json!({})).await;
    assert_eq!(model_of(&mut mux, &other).await, "fake-1");
    let events = mux.prompt(&other, "@@error status=500 times=1\n@@text text=other").await;
    assert_eq!(of(&events, "retry.start").len(), 1);
}

#[tokio::test]
async fn a_session_is_named_and_its_figures_are_told() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"title": "Given"})).await;
    assert_eq!(mux.state(&session).await["title"], "Given");
    mux.ok(on(&session, "set_session_name", json!({"name": "  Harbour  "}))).await;
    assert_eq!(mux.wait_event("session.title_changed").await["title"], "Harbour");
    mux.refused(on(&session, "set_session_name", json!({"name": ""}))).await;
    mux.prompt(&session, "@@bash command=true\n@@usage input=50 output=5").await;
    let stats = mux.ok(on(&session, "get_stats", json!({}))).await;
    assert_eq!((&stats["user_messages"], &stats["assistant_messages"]), (&json!(1), &json!(2)));
    assert_eq!((&stats["tool_calls"], &stats["tool_results"]), (&json!(1), &json!(1)));
    assert!(stats["tokens"]["total"].as_u64() > Some(50), "{stats}");
    assert!(stats["cost_usd"].as_f64() > Some(0.0), "{stats}");
    let commands = mux.ok(on(&session, "get_commands", json!({}))).await;
    assert!(commands["commands"].is_array());
    // The first look may come before the new process has become pi; the next comes with the heartbeat.
    until("the figures of the process", async || {
        let process = mux.state(&session).await["process"].clone();
        let is_pi = process["alive"] == true
            && process["pid"].as_u64() > Some(1)
            && process["rss_bytes"].as_u64() > Some(1 << 20);
        if is_pi { Ok(()) } else { Err(process.to_string()) }
    })
    .await;
    let (_qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.state(&session).await["title"], "Harbour");
    mux.attach_and_prompt(&session, "@@text").await;
    assert_eq!(mux.state(&session).await["title"], "Harbour");
}

#[tokio::test]
async fn a_new_conversation_keeps_the_model_and_the_thinking_level() {
    let (qd, mut mux, llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-2", "thinking_level": "low"})).await;
    mux.prompt(&session, "@@text").await;
    mux.ok(on(&session, "session.new", json!({}))).await;
    let state = mux.state(&session).await;
    assert_eq!((&state["model"]["model_id"], &state["thinking_level"]), (&json!("fake-2"), &json!("low")));
    mux.prompt(&session, "@@text").await;
    assert_eq!(llm.requests().last().unwrap().model(), "fake-2");
    mux.ok(on(&session, "set_model", json!({"provider": "fake", "model_id": "fake-1"}))).await;
    mux.ok(on(&session, "session.new", json!({}))).await;
    assert_eq!(model_of(&mut mux, &session).await, "fake-1");
}
