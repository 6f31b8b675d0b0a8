//! The parrot's lines, pure: what would be `core/harness/parrot`.

use qd_core::agent::{AgentEvent, AgentRequest, MessageHead, NativeMessage};
use qd_core::harness::{AgentRefusal, AgentReply, Codec, Decoded, UnsupportedRequest};
use qd_wire::data::QueueState;
use qd_wire::message::{KnownPart, Part, Role, StopReason};
use serde_json::{Value, json};

/// Its lines have no state between them.
#[derive(Debug, Default)]
pub(crate) struct ParrotCodec;

impl Codec for ParrotCodec {
    type Private = std::convert::Infallible;

    fn decode(&mut self, line: &[u8], _now: i64, out: &mut Vec<Decoded<Self::Private>>) {
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => {
                let preview = String::from_utf8_lossy(line).into_owned();
                return out.push(Decoded::Malformed { error: error.to_string(), preview });
            }
        };
        let Some(event) = value["e"].as_str() else {
            let result = match value["error"].as_str() {
                Some(error) => Err(AgentRefusal::Failed(error.to_owned())),
                None => Ok(value.clone()),
            };
            let id = value["n"].as_str().map(str::to_owned);
            return out.push(Decoded::Reply(AgentReply { id, command: String::new(), result }));
        };
        out.extend(events(event, &value).into_iter().map(Decoded::Event));
    }

    fn encode(&self, id: &str, request: &AgentRequest) -> Result<Vec<u8>, UnsupportedRequest> {
        let order = match request {
            AgentRequest::Prompt { message, .. } => json!({"n": id, "do": "say", "text": message}),
            AgentRequest::Abort => json!({"n": id, "do": "stop"}),
            AgentRequest::GetState => json!({"n": id, "do": "ping"}),
            AgentRequest::ClearQueue => json!({"n": id, "do": "take_back"}),
            _ => return Err(UnsupportedRequest),
        };
        Ok(format!("{order}\n").into_bytes())
    }
}

fn events(event: &str, value: &Value) -> Vec<AgentEvent> {
    let text = value["text"].as_str().unwrap_or_default().to_owned();
    let head = |role| MessageHead { role, created_at: value["at"].as_i64().unwrap_or(0), tool_call_id: None };
    match event {
        "begin" => vec![AgentEvent::TurnStarted],
        "heard" => {
            vec![
                AgentEvent::MessageStarted(head(Role::User)),
                AgentEvent::MessageEnded(message(head(Role::User), text)),
            ]
        }
        "speaks" => vec![AgentEvent::MessageStarted(head(Role::Assistant))],
        "word" => vec![AgentEvent::TextDelta { index: 0, delta: text }],
        "spoke" => vec![
            AgentEvent::StreamDone { reason: StopReason::Stop },
            AgentEvent::MessageEnded(message(head(Role::Assistant), text)),
        ],
        "asks" => {
            let request = json!({"type": "input", "request_id": "q", "title": text});
            serde_json::from_value(request).map(AgentEvent::InputNeeded).into_iter().collect()
        }
        "queue" => vec![AgentEvent::QueueChanged(waiting(&value["waiting"]))],
        "end" => vec![AgentEvent::TurnSettled { aborted: value["stopped"] == true }],
        other => {
            let mut fields = value.as_object().cloned().unwrap_or_default();
            fields.remove("e");
            vec![AgentEvent::Unknown { event: other.to_owned(), fields }]
        }
    }
}

/// The parrot knows no steering: all that waits follows.
pub(crate) fn waiting(texts: &Value) -> QueueState {
    let texts = texts.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    QueueState { steering: Vec::new(), follow_up: texts.collect() }
}

fn message(head: MessageHead, text: String) -> NativeMessage {
    let stop_reason = (head.role == Role::Assistant).then_some(StopReason::Stop);
    NativeMessage {
        head,
        parts: vec![Part::Known(KnownPart::Text { id: "p0".to_owned(), text, format: None, meta: None })],
        model: None,
        provider: None,
        stop_reason,
        usage: None,
        tool_name: None,
        is_error: None,
        error: None,
        metadata: None,
    }
}
