//! Golden transcripts: what the real pi printed goes in, canonical events come out, for every recorded file.

use crate::support::{Replay, fixtures};

/// Long texts (system prompts, tool output) are cut in the snapshot; their length is kept.
fn shortened(value: &mut serde_json::Value) {
    const SHOWN_MAX: usize = 72;
    match value {
        serde_json::Value::String(text) => {
            let count = text.chars().count();
            if count > SHOWN_MAX {
                *text = format!("{}… ({count} characters)", text.chars().take(SHOWN_MAX).collect::<String>());
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(shortened),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(shortened),
        _ => {}
    }
}

#[test]
fn recorded_sessions_become_canonical_events() {
    for fixture in fixtures() {
        let replay = Replay::of(&fixture);
        let mut lines = Vec::new();
        for mut event in replay.events {
            for noise in ["type", "session_id", "runner_id", "ts"] {
                event.as_object_mut().unwrap().remove(noise);
            }
            shortened(&mut event);
            lines.push(event.to_string());
        }
        insta::assert_snapshot!(fixture.name.clone(), lines.join("\n"));
    }
}

#[test]
fn every_message_that_starts_ends_under_the_same_id() {
    for fixture in fixtures() {
        let replay = Replay::of(&fixture);
        let mut open: Option<String> = None;
        for event in &replay.events {
            match event["event"].as_str().unwrap() {
                "stream.message_start" => {
                    assert_eq!(open, None, "{}: two messages at once", fixture.name);
                    open = Some(event["message_id"].as_str().unwrap().to_owned());
                }
                // What an agent never showed has no beginning.
                "stream.message_end" if event["message"]["interrupted"] == true => {}
                "stream.message_end" => {
                    let id = event["message"]["id"].as_str().unwrap();
                    assert_eq!(open.take().as_deref(), Some(id), "{}", fixture.name);
                }
                "stream.text_delta" | "stream.thinking_delta" | "stream.tool_call_delta" => {
                    assert_eq!(event["message_id"].as_str(), open.as_deref(), "{}", fixture.name);
                }
                _ => {}
            }
        }
        assert_eq!(open, None, "{}: a message was left open after the process was gone", fixture.name);
    }
}

#[test]
fn deltas_add_up_to_the_message() {
    for fixture in fixtures() {
        let replay = Replay::of(&fixture);
        let mut text: std::collections::BTreeMap<u64, String> = Default::default();
        for event in &replay.events {
            match event["event"].as_str().unwrap() {
                "stream.message_start" => text.clear(),
                "stream.text_delta" => {
                    let block = text.entry(event["content_index"].as_u64().unwrap()).or_default();
                    assert_eq!(
                        event["offset"].as_u64().unwrap(),
                        block.chars().count() as u64,
                        "{}",
                        fixture.name
                    );
                    block.push_str(event["delta"].as_str().unwrap());
                }
                "stream.message_end" if !text.is_empty() => {
                    let parts = event["message"]["parts"].as_array().unwrap();
                    let whole: String = parts
                        .iter()
                        .filter(|part| part["type"] == "text")
                        .map(|part| part["text"].as_str().unwrap())
                        .collect();
                    let streamed: String = text.values().map(String::as_str).collect();
                    assert_eq!(streamed, whole, "{}", fixture.name);
                    text.clear();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn records_are_numbered_without_holes_and_a_turn_ends_once() {
    for fixture in fixtures() {
        let replay = Replay::of(&fixture);
        let numbers: Vec<u64> = replay.events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{}", fixture.name);
        let mut working = false;
        for event in &replay.events {
            match event["event"].as_str().unwrap() {
                "agent.working" => working = true,
                "agent.idle" => {
                    assert!(working, "{}: idle twice", fixture.name);
                    working = false;
                }
                _ => {}
            }
        }
        assert!(!working, "{}: the turn has no end", fixture.name);
    }
}
