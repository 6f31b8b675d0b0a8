//! What pi stores and what it answers, as conversations and data of ours.
#![allow(clippy::expect_used, reason = "a helper of a test fails the test")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod pi_support;

use pi_support::{decode, fixtures};
use qd_core::agent::{AgentEvent, NativeMessage};
use qd_core::harness::AgentReply;
use qd_core::harness::pi::{
    EntriesError, PiFileSummary, PiOutput, commands, conversation_from_reply, fork_points, fork_text,
    has_stable_id, is_cancelled, model, models, state, stats, thinking_level, thinking_levels,
};
use qd_wire::data::ModelRef;
use serde_json::{Value, json};

/// The data of every successful reply to a command, with the messages that ended before it.
fn replies_to(command: &str) -> Vec<(String, Value, Vec<NativeMessage>)> {
    let mut found = Vec::new();
    for fixture in fixtures() {
        let mut messages = Vec::new();
        for output in decode(&fixture.lines) {
            match output {
                PiOutput::Event(AgentEvent::MessageEnded(message)) => messages.push(message),
                PiOutput::Reply(AgentReply { command: name, result: Ok(data), .. }) => {
                    // From here on pi is in another conversation.
                    if ["fork", "clone", "new_session", "switch_session"].contains(&name.as_str()) {
                        messages.clear();
                    }
                    if name == command {
                        found.push((fixture.name.clone(), data, messages.clone()));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(!found.is_empty(), "no fixture has a reply to {command}");
    found
}

/// What the file with these entries says.
fn summary_of(data: &Value) -> PiFileSummary {
    let mut summary = PiFileSummary::default();
    for entry in data["entries"].as_array().expect("entries") {
        summary.line(entry.to_string().as_bytes(), true);
    }
    summary
}

#[test]
fn history_is_what_was_seen_live() {
    for (name, data, live) in replies_to("get_entries") {
        let conversation = conversation_from_reply(&data).expect("entries");
        assert_eq!(conversation.messages.len(), conversation.entry_ids.len());
        let stable = |messages: &[NativeMessage]| -> Vec<NativeMessage> {
            messages.iter().filter(|message| has_stable_id(message)).cloned().collect()
        };
        // A resumed session has more history than this process saw.
        let (stored, live) = (stable(&conversation.messages), stable(&live));
        assert!(stored.ends_with(&live), "{name}: {} stored, {} live", stored.len(), live.len());

        // A file counts as many messages, when its last entry is where the conversation goes on.
        if data["entries"].as_array().and_then(|entries| entries.last()).map(|entry| &entry["id"])
            == Some(&data["leafId"])
        {
            assert_eq!(summary_of(&data).message_count(), conversation.messages.len() as u64, "{name}");
        }
    }
}

fn message(id: &str, parent: Option<&str>, text: &str, time: i64) -> Value {
    json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2026-11-15T06:04:59.214Z",
            "message": { "role": "user", "content": text, "timestamp": time } })
}

#[test]
fn only_the_branch_of_the_leaf_is_the_conversation() {
    let entries = [
        message("a", None, "root", 1),
        message("b", Some("a"), "abandoned", 2),
        message("c", Some("a"), "taken", 3),
        json!({ "type": "context_edit", "id": "d", "parentId": "c", "targetId": "c", "replacement": null }),
        json!({ "type": "session_info", "id": "e", "parentId": "d", "name": "first" }),
        json!({ "type": "session_info", "id": "f", "parentId": "e", "name": "second" }),
        json!({ "type": "custom_message", "id": "g", "parentId": "f", "timestamp": "2026-11-15T06:04:59.214Z",
                "customType": "t", "content": "injected", "display": true }),
    ];
    let conversation =
        conversation_from_reply(&json!({ "entries": entries, "leafId": "g" })).expect("entries");
    assert_eq!(conversation.entry_ids, ["a", "c", "g"]);
    assert_eq!(conversation.title.as_deref(), Some("second"));
    let injected = &conversation.messages[2];
    assert_eq!(injected.head.created_at, 1_794_722_699_214);
    assert!(!has_stable_id(injected) && has_stable_id(&conversation.messages[0]));
    let nothing = conversation_from_reply(&json!({ "entries": entries, "leafId": null })).expect("entries");
    assert!(nothing.messages.is_empty());
}

#[test]
fn broken_history_is_survived() {
    let circle = json!({ "entries": [message("a", Some("b"), "1", 1), message("b", Some("a"), "2", 2)], "leafId": "b" });
    assert_eq!(conversation_from_reply(&circle).expect("entries").entry_ids, ["a", "b"]);
    assert!(matches!(conversation_from_reply(&json!({ "entries": 5 })), Err(EntriesError::Reply(_))));
    // In a file a circle ends too, and half a line is no message.
    assert!(summary_of(&circle).message_count() <= 2);
    let mut summary = summary_of(&json!({ "entries": [message("a", None, "1", 1)] }));
    summary.line(br#"{"type":"message","id":"b","par"#, true);
    assert_eq!(summary.message_count(), 1);
}

#[test]
fn states_of_real_pi() {
    for (name, data, _) in replies_to("get_state") {
        let state = state(&data);
        assert!(state.session_id.is_some() && state.thinking_level.is_some(), "{name}");
        assert!(state.auto_compaction.is_some() && state.model.is_some(), "{name}");
    }
    assert_eq!(state(&Value::Null), state(&json!({ "model": null, "messageCount": "no" })));
}

#[test]
fn data_of_real_pi() {
    let first = |command: &str| replies_to(command).remove(0).1;
    let last = |command: &str| replies_to(command).pop().expect("a reply").1;
    insta::assert_json_snapshot!("stats", stats(&last("get_session_stats")));
    insta::assert_json_snapshot!("models", models(&first("get_available_models")));
    insta::assert_json_snapshot!("commands", commands(&first("get_commands")));
    insta::assert_json_snapshot!("fork_points", fork_points(&last("get_fork_messages")));
    assert!(thinking_levels(&first("get_available_thinking_levels")).contains(&"high".to_owned()));
    assert!(fork_text(&first("fork")).is_some() && !is_cancelled(&first("fork")));
    let fake = |model_id: &str| Some(ModelRef { provider: "fake".to_owned(), model_id: model_id.to_owned() });
    assert_eq!(model(&json!({ "id": "fake-2", "provider": "fake" })), fake("fake-2"));
    assert!(model(&first("set_model")).is_some());
    let cycled = first("cycle_model");
    assert!(model(&cycled).is_some() && thinking_level(&cycled).is_some());
    assert_eq!(thinking_level(&json!({ "level": "low" })).as_deref(), Some("low"));
}

#[test]
fn missing_fields_are_no_error() {
    for data in
        [Value::Null, json!({}), json!([]), json!({ "models": [{}], "commands": [{}], "messages": [{}] })]
    {
        assert!(models(&data).models.is_empty() && commands(&data).commands.is_empty());
        assert!(fork_points(&data).fork_points.is_empty() && thinking_levels(&data).is_empty());
        assert_eq!(stats(&data).total_messages, 0);
        assert_eq!(model(&data), None);
    }
}
