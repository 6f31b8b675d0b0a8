//! Every command of the document once with real pi, with the shape of its answer.

use qd_testkit::pi::test_extension;
use serde_json::{Value, json};

use super::{data, demo_with_session, on, pi, pi_with_session};
use crate::{assert_fields, with};

#[tokio::test]
async fn every_read_of_a_pi_session_has_the_documented_shape() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@bash command=\"echo hi\"\n@@final text=\"the end\"").await;
    let mut data = async |kind: &str| data(&mut client, on(&session, kind)).await;
    let state = data("get_state").await;
    assert_fields(&state, json!({"sessionId": session, "isStreaming": false, "model/id": "fake-1"}));
    assert_fields(&state, json!({"model/contextWindow": 128_000}));
    assert!(state["createdAt"].as_str().unwrap().ends_with('Z'), "{state}");
    let models = data("get_available_models").await;
    assert!(models["models"].as_array().unwrap().iter().any(|model| model["id"] == "fake-2"), "{models}");
    let tools = data("get_tools").await;
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"bash") && names.contains(&"read"), "{names:?}");
    assert!(data("get_commands").await["commands"].is_array());
    assert!(data("get_skills").await["skills"].is_array());
    let files = data("list_session_files").await;
    assert_eq!(files["files"][0]["path"], state["sessionFile"], "{files}");
    let messages = data("get_messages").await;
    let last = messages["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["role"], &last["stopReason"]), (&json!("assistant"), &json!("stop")), "{last}");
    assert_eq!(data("get_last_assistant_text").await, json!({"text": "the end"}));
    let stats = data("get_session_stats").await;
    assert_eq!((&stats["sessionId"], &stats["toolCalls"]), (&json!(session), &json!(1)), "{stats}");
    let usage = data("get_context_usage").await;
    assert_eq!(usage["contextWindow"], 128_000, "{usage}");
    let forks = data("get_fork_messages").await;
    assert!(forks["messages"][0]["entryId"].is_string(), "{forks}");
    let tree = data("get_tree").await;
    let nodes = tree["nodes"].as_array().unwrap();
    assert!(nodes.len() >= 4 && nodes.iter().any(|node| node["entryId"] == tree["currentLeafId"]), "{tree}");
}

#[tokio::test]
async fn every_change_of_a_pi_session_works_and_counts() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    // Long enough that there is something to compact.
    let long = "word ".repeat(400);
    client.turn(&session, &format!("@@text text=\"one\"\n{long}")).await;
    client.turn(&session, &format!("@@text text=\"two\"\n{long}")).await;
    let start = client.ok(on(&session, "get_state")).await["sessionVersion"].as_u64().unwrap();
    let with = |kind: &str, more: Value| with(on(&session, kind), more);
    let model = client.ok(with("set_model", json!({"provider": "fake", "modelId": "fake-2"}))).await;
    assert_eq!(model["data"]["model"]["id"], "fake-2", "{model}");
    let cycled = client.ok(with("cycle_model", json!({"direction": "backward"}))).await["data"].clone();
    assert_eq!(cycled["model"]["id"], "fake-1", "{cycled}");
    client.ok(with("set_model", json!({"provider": "fake", "modelId": "fake-2"}))).await;
    client.ok(with("set_thinking_level", json!({"level": "high"}))).await;
    client.ok(with("set_thinking_level", json!({"level": "none"}))).await;
    assert!(client.ok(on(&session, "cycle_thinking_level")).await["data"]["level"].is_string());
    for kind in ["set_auto_compaction", "set_auto_retry"] {
        client.ok(with(kind, json!({"enabled": true}))).await;
    }
    client.ok(with("set_session_name", json!({"name": "named"}))).await;
    for kind in ["abort_retry", "abort_compaction", "abort_bash", "abort"] {
        client.ok(on(&session, kind)).await;
    }
    let version = client.ok(on(&session, "get_state")).await["sessionVersion"].as_u64().unwrap();
    assert_eq!(version, start + 13);
    // From the second question on it goes another way.
    let forks = client.ok(on(&session, "get_fork_messages")).await["data"]["messages"].clone();
    let entry = forks.as_array().unwrap().last().expect("two questions").clone();
    let forked = client.ok(with("fork", json!({"entryId": entry["entryId"]}))).await["data"].clone();
    assert_eq!((&forked["cancelled"], &forked["text"]), (&json!(false), &entry["text"]), "{forked}");
    let messages = client.ok(on(&session, "get_messages")).await["data"]["messages"].clone();
    let spoken = messages.as_array().unwrap().iter().filter(|message| message["role"] != "system");
    assert_eq!(spoken.count(), 2, "one question and its answer: {messages}");
    client.turn(&session, &format!("@@text text=\"another\"\n{long}")).await;
    let compacted =
        client.ok(with("compact", json!({"customInstructions": "briefly"}))).await["data"].clone();
    assert!(compacted["summary"].is_string() && compacted["firstKeptEntryId"].is_string(), "{compacted}");
    let tree = client.ok(on(&session, "get_tree")).await["data"]["nodes"].clone();
    let user = tree.as_array().unwrap().iter().find(|node| node["role"] == "user").unwrap();
    let target = json!({"targetId": user["entryId"]});
    let moved = client.ok(with("navigate_tree", target)).await["data"].clone();
    assert_eq!(moved["cancelled"], false, "{moved}");
    assert_eq!(client.ok(on(&session, "new_session")).await["data"], json!({"cancelled": false}));
    let state = client.ok(on(&session, "get_state")).await["data"].clone();
    assert_eq!(state["messageCount"], 0, "{state}");
    let text = client.ok(on(&session, "get_last_assistant_text")).await["data"].clone();
    assert_eq!(text, json!({"text": null}));
    let error = client.refused(with("set_model", json!({"provider": "fake", "modelId": "nope"}))).await;
    assert!(error.contains("Model not found: fake/nope"), "{error}");
}

#[tokio::test]
async fn commands_of_extensions_are_listed_without_our_own() {
    let (qd, mut client, _llm) = pi().await;
    let extensions = [test_extension("dialogs.ts")];
    let session = client.create(json!({"cwd": qd.sandbox().work(), "extensions": extensions})).await;
    let commands = client.ok(on(&session, "get_commands")).await["data"]["commands"].clone();
    let names: Vec<&str> =
        commands.as_array().unwrap().iter().filter_map(|command| command["name"].as_str()).collect();
    assert!(names.contains(&"dlg-select"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("qd-")), "{names:?}");
}

#[tokio::test]
async fn the_server_tells_of_itself() {
    let (_qd, mut client, session) = demo_with_session().await;
    let health = client.ok(json!({"type": "health_check"})).await["data"].clone();
    let healthy =
        json!({"healthy": true, "issues": [], "hasOpenCircuit": false, "hasOpenBashCircuit": false});
    assert_eq!(health, healthy);
    let metrics = client.ok(json!({"type": "get_metrics"})).await["data"].clone();
    assert_eq!((&metrics["sessionCount"], &metrics["connectionCount"]), (&json!(1), &json!(1)), "{metrics}");
    for part in
        ["commandsRejected", "rateLimitUsage", "stores", "circuitBreakers", "bashCircuitBreaker", "metrics"]
    {
        assert!(!metrics[part].is_null(), "{part}");
    }
    assert_eq!(metrics["bashCircuitBreaker"]["globalState"], "closed");
    let list = client.ok(json!({"type": "list_sessions"})).await;
    assert!(list.get("sessionVersion").is_none());
    assert_eq!(list["data"]["sessions"][0]["sessionId"], session.as_str());
    let history = client.ok(json!({"type": "get_command_history", "limit": 2})).await["data"].clone();
    assert_eq!((&history["returned"], &history["truncated"]), (&json!(2), &json!(true)), "{history}");
    let error = client.refused(json!({"type": "get_command_history", "limit": 501})).await;
    assert_eq!(error, "Validation failed: limit: Must be between 1 and 500");
}
