//! A foreign host's event as a canonical record.
//!
//! Hosts of others are of many versions and no schema is checked. A field that is missing gets the original's default
//! where it has one; an event that cannot be understood keeps its place as a notice, because the numbers of a run
//! have no gaps.

use qd_wire::event::{Event, EventPayload, NotifyLevel, OtherEvent};
use qd_wire::input::InputOutcome;
use qd_wire::run::{AwaitingReason, Decision, PTY_HARNESS, PermissionDetails, PermissionSource};
use qd_wire::{InputRequest, JsonObject};
use serde_json::Value;

/// The size of a terminal that nobody told, the original's.
pub const COLS: u16 = 80;
pub const ROWS: u16 = 24;

/// The longest name of an event that is kept as it is, in bytes; it stands in every list of events.
const KIND_BYTES_MAX: usize = 64;

/// An event as a record; the second value says what was wrong with it, for the host. Whatever it is, its number is
/// used: a run's records have no holes.
pub fn record(kind: &str, data: Value) -> (EventPayload, Option<String>) {
    let fields = Fields(match data {
        Value::Object(fields) => fields,
        Value::Null => JsonObject::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            JsonObject::from_iter([("value".to_owned(), other)])
        }
    });
    match known(kind, &fields) {
        Ok(Some(event)) => (EventPayload::Known(event), None),
        Ok(None) if kind.len() <= KIND_BYTES_MAX => (other(kind, fields), None),
        Ok(None) => {
            let problem = "the type is too long".to_owned();
            (notice(&format!("The host sent an event whose type has {} bytes", kind.len())), Some(problem))
        }
        Err(problem) => {
            let message = format!("The host sent a '{kind}' that cannot be read: {problem}");
            (notice(&message), Some(problem.to_string()))
        }
    }
}

/// What stands in the place of an event that never came. The first record of a run makes it known.
pub fn lost(seq: u64) -> EventPayload {
    if seq > 1 {
        return notice(&format!("The host never sent record {seq} of this run"));
    }
    EventPayload::Known(Event::SessionCreated {
        resumed: false,
        harness: PTY_HARNESS.to_owned(),
        cwd: None,
        capabilities: None,
    })
}

fn notice(message: &str) -> EventPayload {
    EventPayload::Known(Event::Notify { level: NotifyLevel::Warning, message: message.to_owned() })
}

/// An event this version does not know, or that says nothing canonical (`run.ready`): kept under `x-` and its type,
/// with its data, so that apps get it as it came.
fn other(kind: &str, fields: Fields) -> EventPayload {
    let rest = JsonObject::from_iter([("data".to_owned(), Value::Object(fields.0))]);
    EventPayload::Other(OtherEvent { event: format!("x-{kind}"), rest })
}

fn known(kind: &str, fields: &Fields) -> Result<Option<Event>, MissingField> {
    Ok(Some(match kind {
        "run.started" => Event::RunStarted {
            tool: fields.text("tool").unwrap_or_else(|| "unknown".to_owned()),
            cwd: fields.text("cwd").unwrap_or_default(),
            command: fields.text("command").unwrap_or_default(),
            pid: fields.number("pid"),
            cols: fields.number("cols").unwrap_or(COLS),
            rows: fields.number("rows").unwrap_or(ROWS),
        },
        // Optional fields get the original's defaults, so that an older host is not refused.
        "run.output" => Event::RunOutput {
            stream: fields.text("stream").unwrap_or_else(|| "stdout".to_owned()),
            text: fields.required("text")?,
        },
        "run.awaiting_input" => Event::RunAwaitingInput {
            reason: fields.reason(),
            prompt: fields.text("prompt"),
            request_id: fields.text("request_id"),
        },
        "run.exited" => Event::RunExited {
            // Unknown, and not 0: a run that does not say how it ended must not look successful.
            exit_code: fields.number("exit_code").unwrap_or(-1),
            signal: fields.number("signal"),
            error: fields.text("error"),
        },
        "run.input" => Event::RunInput {
            actor: fields.actor(),
            input_id: fields.required("input_id")?,
            text_redacted: fields.text("text_redacted").unwrap_or_default(),
            text_sha256: fields.text("text_sha256").unwrap_or_default(),
            // A host tells of actors, not of people known here.
            user_id: None,
        },
        "run.resized" => Event::RunResized {
            cols: fields.number("cols").ok_or(MissingField("cols"))?,
            rows: fields.number("rows").ok_or(MissingField("rows"))?,
        },
        "run.permission_requested" => Event::AgentInputNeeded { request: permission(fields)? },
        "run.permission_decided" => Event::AgentInputResolved {
            request_id: fields.required("request_id")?,
            outcome: Some(InputOutcome::Answered),
            user_id: None,
            decision: fields.decision(),
            actor: fields.text("actor"),
            asked_seq: None,
            answer: None,
        },
        "tool.call" => Event::ServiceCall {
            request_id: fields.required("request_id")?,
            tool: fields.required("tool")?,
            actor: fields.actor(),
            args: fields.value("args").unwrap_or(Value::Null),
            user_id: None,
        },
        "tool.result" => Event::ServiceResult {
            request_id: fields.required("request_id")?,
            tool: fields.required("tool")?,
            actor: fields.actor(),
            ok: fields.0.get("ok").and_then(Value::as_bool).unwrap_or(false),
            duration_ms: fields.number("duration_ms").unwrap_or(0),
            result: fields.value("result"),
            error: fields.text("error"),
            user_id: None,
        },
        _ => return Ok(None),
    }))
}

fn permission(fields: &Fields) -> Result<InputRequest, MissingField> {
    let request_id = fields.required("request_id")?;
    let op_tool = fields.text("op_tool");
    let details = PermissionDetails {
        // The document's gate names the operation; what a screen asks has none.
        source: if op_tool.is_some() { PermissionSource::Gate } else { PermissionSource::Screen },
        reason: fields.reason(),
        op_tool,
        op_args: fields.value("op_args"),
        op_args_summary: fields.text("op_args_summary"),
        approve_text: fields.text("approve_text"),
        deny_text: fields.text("deny_text"),
        ..PermissionDetails::default()
    };
    // A type of ours with text keys only: it can always be written.
    let mut metadata = serde_json::to_value(&details).unwrap_or_default();
    if let (Some(questions), Some(metadata)) = (fields.value("questions"), metadata.as_object_mut()) {
        metadata.insert("questions".to_owned(), questions);
    }
    Ok(InputRequest::Permission {
        title: fields.text("prompt").unwrap_or_else(|| "The run asks for permission".to_owned()),
        request_id,
        description: None,
        metadata: Some(metadata),
        timeout: None,
    })
}

/// An event cannot be read without this field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is missing")]
struct MissingField(&'static str);

/// The data of an event. A field of another kind counts as absent, as the original reads it.
struct Fields(JsonObject);

impl Fields {
    fn value(&self, name: &str) -> Option<Value> {
        self.0.get(name).filter(|value| !value.is_null()).cloned()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    fn required(&self, name: &'static str) -> Result<String, MissingField> {
        self.text(name).ok_or(MissingField(name))
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        self.0.get(name).and_then(Value::as_i64).and_then(|number| T::try_from(number).ok())
    }

    fn actor(&self) -> String {
        self.text("actor").unwrap_or_else(|| "system".to_owned())
    }

    fn reason(&self) -> AwaitingReason {
        self.0
            .get("reason")
            .and_then(|reason| serde_json::from_value(reason.clone()).ok())
            .unwrap_or_default()
    }

    fn decision(&self) -> Option<Decision> {
        self.0.get("decision").and_then(|decision| serde_json::from_value(decision.clone()).ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(kind: &str, data: Value) -> String {
        serde_json::to_string(&record(kind, data).0).unwrap()
    }

    #[test]
    fn events_of_the_document_become_records_of_ours() {
        assert_eq!(
            text("run.output", json!({"stream": "stderr", "text": "a\n", "later": 1})),
            r#"{"event":"run.output","stream":"stderr","text":"a\n"}"#
        );
        assert_eq!(
            text(
                "run.started",
                json!({"tool": "codex", "cwd": "/w", "command": "codex", "runner_mode": "pty"})
            ),
            r#"{"event":"run.started","tool":"codex","cwd":"/w","command":"codex","cols":80,"rows":24}"#
        );
        assert_eq!(text("run.exited", json!({"exit_code": 7})), r#"{"event":"run.exited","exit_code":7}"#);
        assert_eq!(
            text("run.awaiting_input", json!({"reason": "whatever", "prompt": "go?"})),
            r#"{"event":"run.awaiting_input","reason":"unknown","prompt":"go?"}"#
        );
    }

    #[test]
    fn hole_06_an_approver_sees_all_that_the_host_sent() {
        let cmd = "cat /home/someuser/projects/webapp/config/production-secrets.yaml \
                   --token ghp_0123456789abcdefghijABCDEFGHIJ012345";
        let args = json!({ "cmd": cmd });
        let data = json!({"request_id": "q", "reason": "permission", "prompt": "bash?", "op_tool": "bash",
            "op_args": args, "op_args_summary": "cat …", "approve_text": "", "deny_text": ""});
        let (EventPayload::Known(Event::AgentInputNeeded { request }), None) =
            record("run.permission_requested", data)
        else {
            panic!("no question");
        };
        let InputRequest::Permission { metadata: Some(metadata), title, .. } = request else {
            panic!("no permission")
        };
        assert_eq!((&metadata["op_args"], &*title), (&args, "bash?"));
        assert_eq!((&metadata["source"], &metadata["op_tool"]), (&json!("gate"), &json!("bash")));
    }

    #[test]
    fn what_is_unknown_is_kept_and_what_cannot_be_read_is_said() {
        let (event, problem) = record("run.ready", json!({"runner_mode": "pty"}));
        assert_eq!(problem, None);
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"event":"x-run.ready","data":{"runner_mode":"pty"}}"#
        );
        for (kind, data) in
            [("run.output", json!({"text": 5})), ("run.input", json!(null)), ("tool.call", json!([1]))]
        {
            let (event, problem) = record(kind, data);
            assert!(problem.is_some() && event.is_record(), "{kind}");
        }
        assert!(record(&"x".repeat(100), Value::Null).1.is_some());
        assert!(matches!(lost(1), EventPayload::Known(Event::SessionCreated { .. })));
        assert!(matches!(lost(2), EventPayload::Known(Event::Notify { .. })));
    }
}
