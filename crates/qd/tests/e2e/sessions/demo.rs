//! One session of the demo agent: the events of Part 2 in their order, and what is left of them.

use qd_testkit::mux::{names, of, phases, text_of};
use qd_testkit::replica::Replica;
use serde_json::{Value, json};

use crate::{
    answer, assert_fields, begin_endless, demo_asks, demo_with_session, prompt, queue, said_by, say, with,
};

#[tokio::test]
async fn a_prompt_gives_the_events_in_order_and_the_same_ids_as_the_history() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let events = mux.prompt(&session, "/text").await;
    let expected = [
        "stream.message_start",
        "stream.message_end",
        "stream.message_start",
        "stream.message_end",
        "stream.done",
        "agent.idle",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(phases(&events), ["generating"]);
    assert!(events.iter().all(|event| event["runner_id"] == "local" && event["ts"].as_i64() > Some(0)));
    let fields = |name: &str, field: fn(&Value) -> &Value| -> Vec<Value> {
        of(&events, name).into_iter().map(|event| field(event).clone()).collect()
    };
    let started = fields("stream.message_start", |event| &event["message_id"]);
    let ended = fields("stream.message_end", |event| &event["message"]["id"]);
    let messages = mux.messages(&session).await;
    let stored: Vec<Value> = messages.iter().map(|message| message["id"].clone()).collect();
    assert_eq!(started, ended);
    assert_eq!(started, stored);
    assert!(of(&events, "stream.text_delta").iter().all(|delta| delta["message_id"] == started[1]));
    assert_eq!(fields("stream.message_end", |event| &event["message"]), messages);
    assert_eq!(messages[0]["role"], "user");
    assert_eq!(text_of(&messages[0]), "/text");
    assert_eq!(messages[1]["stop_reason"], "stop");
    assert_fields(events.last().unwrap(), json!({"reason": "stop", "message_version/message_count": 2}));
}

#[tokio::test]
async fn thinking_is_streamed_apart_from_the_text() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let events = mux.prompt(&session, "/thinking").await;
    assert_eq!(phases(&events), ["generating", "thinking", "generating"]);
    let joined = |name: &str| -> String {
        of(&events, name).iter().map(|event| event["delta"].as_str().unwrap()).collect()
    };
    let answer = mux.messages(&session).await.pop().unwrap();
    assert_eq!(answer["parts"][0]["type"], "thinking");
    assert_eq!(answer["parts"][0]["text"], joined("stream.thinking_delta"));
    assert_eq!(answer["parts"][1]["type"], "text");
    assert_eq!(answer["parts"][1]["text"], joined("stream.text_delta"));
    assert!(of(&events, "stream.thinking_delta").iter().all(|delta| delta["content_index"] == 0));
    assert!(of(&events, "stream.text_delta").iter().all(|delta| delta["content_index"] == 1));
}

#[tokio::test]
async fn tools_start_progress_and_end_with_their_results_in_the_conversation() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let events = mux.prompt(&session, "/tools").await;
    let expected = [
        "stream.message_start",
        "stream.message_end",
        "stream.message_start",
        "stream.tool_call_start",
        "stream.tool_call_end",
        "stream.tool_call_start",
        "stream.tool_call_end",
        "stream.message_end",
        "stream.done",
        "tool.start",
        "tool.start",
        "tool.end",
        "tool.end",
        "stream.message_start",
        "stream.message_end",
        "stream.message_start",
        "stream.message_end",
        "stream.message_start",
        "stream.message_end",
        "stream.done",
        "agent.idle",
    ];
    assert_eq!(names(&events), expected);
    assert_eq!(
        phases(&events),
        ["generating", "tool_running:read", "tool_running:read, bash", "tool_running:bash", "generating"]
    );
    let calls: Vec<&Value> = of(&events, "stream.tool_call_end").iter().map(|e| &e["tool_call_id"]).collect();
    for name in ["tool.start", "tool.end"] {
        assert_eq!(of(&events, name).iter().map(|event| &event["tool_call_id"]).collect::<Vec<_>>(), calls);
    }
    let progress = of(&events, "tool.progress");
    assert!(progress.len() >= 2 && progress.iter().all(|event| event["partial_output"].is_object()));
    assert!(of(&events, "tool.end").iter().all(|event| event["duration_ms"].is_u64()));
    let messages = mux.messages(&session).await;
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
    assert_eq!(messages[1]["stop_reason"], "tool_use");
    assert_eq!(messages[2]["tool_call_id"], *calls[0]);
    assert_eq!(messages[3]["parts"][0]["type"], "tool_result");
    let ids: std::collections::HashSet<String> =
        messages.iter().map(|message| message["id"].to_string()).collect();
    assert_eq!(ids.len(), messages.len(), "every message has an id of its own");
}

#[tokio::test]
async fn a_question_waits_for_the_answer_and_the_agent_goes_on_with_it() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    let request = demo_asks(&mut mux, &session).await["request"].clone();
    assert_eq!((&request["type"], &request["options"][1]), (&json!("select"), &json!("green")));
    let state = mux.state(&session).await;
    assert_eq!(state["pending_input"], json!([request]));
    let colour = |value: &str| answer(&session, &request["request_id"], json!({"value": value}));
    assert!(mux.refused(colour("pink")).await.contains("red, green, blue"));
    mux.ok(colour("green")).await;
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_eq!((&resolved["request_id"], &resolved["outcome"]), (&request["request_id"], &json!("answered")));
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let messages = mux.messages(&session).await;
    assert!(text_of(messages.last().unwrap()).contains("green"));
    assert_eq!(mux.state(&session).await["pending_input"], json!([]));
}

#[tokio::test]
async fn a_failed_answer_is_an_error_and_the_session_goes_on() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let events = mux.prompt(&session, "/error").await;
    let end = &names(&events)[4..];
    assert_eq!(end, ["stream.done", "agent.error", "agent.idle"]);
    let error = of(&events, "agent.error")[0];
    assert!(error["error"].as_str().unwrap().contains("overloaded"));
    assert_eq!(error["recoverable"], true);
    assert_eq!(events.last().unwrap()["reason"], "error");
    let messages = mux.messages(&session).await;
    assert_eq!(messages[1]["stop_reason"], "error");
    let events = mux.prompt(&session, "hello").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(text_of(mux.messages(&session).await.last().unwrap()).contains("/question"));
}

#[tokio::test]
async fn a_long_answer_arrives_complete() {
    let (_qd, mut mux, session) = demo_with_session().await;
    mux.prompt(&session, "/long 5000").await;
    let mut replica = Replica::default();
    mux.frames().iter().for_each(|frame| replica.take(frame));
    assert_eq!(replica.compared, 1);
    let answer = text_of(replica.messages.last().unwrap());
    assert_eq!(answer.split_whitespace().count(), 5000);
    assert!(answer.ends_with("word4999 "));
    assert_eq!(mux.messages(&session).await, replica.messages);
}

#[tokio::test]
async fn the_scripts_are_listed_as_commands() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let data = mux.ok(json!({"cmd": "get_commands", "session_id": session})).await;
    let commands = data["commands"].as_array().unwrap();
    let names: Vec<&Value> = commands.iter().map(|command| &command["name"]).collect();
    assert_eq!(names, ["text", "thinking", "tools", "question", "error", "late", "long"]);
    let models = mux.ok(json!({"cmd": "get_models", "session_id": session})).await;
    assert_eq!(models["models"][0]["model_id"], "demo-1");
    let refused = mux.refused(json!({"cmd": "compact", "session_id": session})).await;
    assert!(refused.contains("demo agent does not support 'compact'"), "{refused}");
}

#[tokio::test]
async fn abort_ends_the_turn_and_keeps_what_was_said() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = begin_endless(&mut mux, &session).await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "aborted");
    let answer = mux.messages(&session).await.pop().unwrap();
    assert_eq!(answer["stop_reason"], "aborted");
    assert!(text_of(&answer).starts_with("word0 word1 "));
    let events = mux.prompt(&session, "/text").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_prompt_while_working_needs_to_say_when_it_is_read_and_the_queue_is_seen() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    let asked = demo_asks(&mut mux, &session).await;
    let error = mux.refused(prompt(&session, "and now?")).await;
    assert!(error.contains("streaming_behavior") && error.contains("follow_up"), "{error}");
    let later = json!({"streaming_behavior": "follow_up"});
    mux.ok(with(prompt(&session, "/text later"), later)).await;
    mux.ok(say("steer", &session, "/text sooner")).await;
    let both = queue(&["/text sooner"], &["/text later"]);
    assert_eq!(mux.state(&session).await["queue"], both);
    mux.wait_for("both", |frame| frame["event"] == "queue.changed" && frame["queue"] == both).await;
    mux.ok(answer(&session, &asked["request"]["request_id"], json!({"value": "red"}))).await;
    let none = queue(&[], &[]);
    mux.wait_for("none", |frame| frame["event"] == "queue.changed" && frame["queue"] == none).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(of(&events, "agent.idle").len(), 1, "all of it is one turn");
    let asked = said_by(&mut mux, "user", &session).await;
    assert_eq!(asked, ["/question", "/text sooner", "/text later"]);
}

#[tokio::test]
async fn a_prompt_carries_the_clients_own_name_for_it_and_its_sender() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    mux.ok(json!({"cmd": "prompt", "session_id": session, "message": "/text", "client_id": "draft-7"})).await;
    mux.until_idle(&session, from).await;
    let messages = mux.messages(&session).await;
    assert_fields(&messages[0], json!({"client_id": "draft-7", "sender/id": "owner"}));
    assert!(messages[1].get("client_id").is_none());
}
