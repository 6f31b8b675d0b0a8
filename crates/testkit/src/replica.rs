//! What a careful client makes of the frames of one session: the conversation, the message being generated, the cursor.
//! It panics on anything a client could not make sense of: a hole, a repetition, a delta at the wrong place.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken promise is a failed test")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::mux::short;

/// One session as a client sees it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Replica {
    /// The last record seen.
    pub seq: u64,
    pub messages: Vec<Value>,
    pub is_idle: bool,
    /// Records up to here were promised by the last answer to an attach.
    promised: u64,
    partial: Option<PartialMessage>,
    /// How many streamed messages were compared with their end.
    pub compared: usize,
    /// Deltas may be lost when a link to a runner breaks: what streamed is then the beginning of the message.
    may_miss_deltas: bool,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct PartialMessage {
    message_id: String,
    blocks: BTreeMap<u64, String>,
}

impl Replica {
    /// What these frames say of one session, taken in order from the beginning.
    pub fn of(frames: &[Value], session_id: &str) -> Replica {
        let mut replica = Replica::default();
        frames.iter().filter(|frame| frame["session_id"] == session_id).for_each(|frame| replica.take(frame));
        replica
    }

    /// A client behind links that break: what streamed may be only the beginning of a message.
    pub fn behind_bad_links() -> Replica {
        Replica { may_miss_deltas: true, ..Replica::default() }
    }

    /// The command that attaches again where this client stands.
    pub fn attach(&self, session_id: &str) -> Value {
        match self.seq {
            0 => json!({"cmd": "session.attach", "session_id": session_id}),
            after => json!({"cmd": "session.attach", "session_id": session_id, "after": after}),
        }
    }

    /// Whether the agent waits, and everything that was promised has come.
    pub fn is_settled(&self) -> bool {
        self.is_idle && self.seq >= self.promised
    }

    /// Takes one frame of the session, in the order it came.
    pub fn take(&mut self, frame: &Value) {
        match frame["event"].as_str() {
            Some("response") if frame["cmd"] == "session.attach" || frame["cmd"] == "session.create" => {
                assert_eq!(frame["success"], true, "{}", short(frame));
                self.attached(&frame["data"], frame["cmd"] == "session.create");
            }
            Some("session.resync") => self.attached(frame, false),
            Some("response") | None => {}
            Some(name) => self.event(name, frame),
        }
    }

    fn attached(&mut self, data: &Value, is_new: bool) {
        if data["resume"] == "gap" || self.seq == 0 || is_new {
            // A resync without a list means that every message is there or follows.
            if let Some(messages) = data["messages"].as_array() {
                self.messages = messages.clone();
            }
            self.seq = data["seq"].as_u64().unwrap();
        }
        self.promised = data["state"]["seq"].as_u64().unwrap();
        self.is_idle = data["state"]["status"] == "idle";
        self.partial = data["partial"]["message"].as_object().map(|message| {
            let block = |block: &Value| {
                let text = block["text"].as_str().unwrap().to_owned();
                assert_eq!(block["offset"], text.chars().count(), "{block}");
                (block["content_index"].as_u64().unwrap(), text)
            };
            let blocks = message["blocks"].as_array().unwrap().iter().map(block).collect();
            PartialMessage { message_id: message["message_id"].as_str().unwrap().to_owned(), blocks }
        });
    }

    fn event(&mut self, name: &str, frame: &Value) {
        if let Some(seq) = frame["seq"].as_u64() {
            assert_eq!(seq, self.seq + 1, "records come one after the other: {}", short(frame));
            self.seq = seq;
        }
        match name {
            "stream.message_start" => {
                let message_id = frame["message_id"].as_str().unwrap().to_owned();
                self.partial = Some(PartialMessage { message_id, blocks: BTreeMap::new() });
            }
            "stream.text_delta" | "stream.thinking_delta" | "stream.tool_call_delta" => self.delta(frame),
            "stream.message_end" => self.message_end(&frame["message"]),
            "messages" => self.messages = frame["messages"].as_array().unwrap().clone(),
            "agent.working" => self.is_idle = false,
            // What is replayed is history: the answer to the attach knew better.
            "agent.idle" if self.seq > self.promised => self.is_idle = true,
            _ => {}
        }
    }

    fn delta(&mut self, frame: &Value) {
        let partial =
            self.partial.as_mut().unwrap_or_else(|| panic!("a delta without a message: {}", short(frame)));
        assert_eq!(frame["message_id"], partial.message_id.as_str(), "{}", short(frame));
        let block = partial.blocks.entry(frame["content_index"].as_u64().unwrap()).or_default();
        assert_eq!(frame["offset"], block.chars().count(), "a delta at the wrong place: {}", short(frame));
        block.push_str(frame["delta"].as_str().unwrap());
    }

    fn message_end(&mut self, message: &Value) {
        // A message of the snapshot may come once more as a record.
        let known = message["idx"].as_u64().and_then(|idx| self.messages.get_mut(usize::try_from(idx).ok()?));
        if let Some(known) = known.filter(|known| known["id"] == message["id"]) {
            known.clone_from(message);
            return;
        }
        assert_eq!(
            message["idx"],
            self.messages.len(),
            "messages come one after the other: {}",
            short(message)
        );
        if let Some(partial) = self.partial.take_if(|partial| message["id"] == partial.message_id.as_str()) {
            self.compare(&partial, message);
        }
        self.messages.push(message.clone());
    }

    /// The streamed texts must be those of the finished message.
    fn compare(&mut self, partial: &PartialMessage, message: &Value) {
        let streamed: Vec<&str> = partial.blocks.values().map(String::as_str).collect();
        if streamed.is_empty() {
            return;
        }
        let parts = message["parts"].as_array().unwrap();
        let same = |(streamed, part): (&&str, &Value)| match part["type"].as_str() {
            // Arguments stream as JSON text, whatever its spaces.
            Some("tool_call") => {
                serde_json::from_str::<Value>(streamed).is_ok_and(|input| input == part["input"])
            }
            _ => part["text"] == **streamed,
        };
        if self.may_miss_deltas && streamed.len() <= parts.len() {
            let begins = |(streamed, part): (&&str, &Value)| {
                part["type"] == "tool_call"
                    || part["text"].as_str().is_some_and(|text| text.starts_with(*streamed))
            };
            assert!(
                streamed.iter().zip(parts).all(begins),
                "{}\n{}",
                short(&json!(streamed)),
                short(message)
            );
            return;
        }
        let is_whole = streamed.len() == parts.len() && streamed.iter().zip(parts).all(same);
        assert!(is_whole, "{}\n{}", short(&json!(streamed)), short(message));
        self.compared += 1;
    }
}
