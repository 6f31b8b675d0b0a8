//! The line of a command, and its way to the runner.

use std::fmt::Write;
use std::sync::Arc;

use qd_wire::command_table::CommandSpec;
use tokio::time::{Duration, Instant};

use super::id_text;
use super::route::Destination;
use crate::envelope::Parsed;
use crate::head::json_string;
use crate::pending::{AnswerTo, Pending, PendingKind};
use crate::registry::Hub;

/// Fields the hub writes itself, whatever a client says.
const OWN_FIELDS: [&str; 9] = [
    "channel",
    "type",
    "id",
    "user_id",
    "connection_id",
    "client_command_id",
    "depends_on",
    "wait",
    "wait_ms",
];

/// How long a runner may take to answer.
pub(super) fn time_limit(hub: &Hub, spec: &CommandSpec) -> Option<Duration> {
    let limit = spec.timeout_ms.map(Duration::from_millis)?;
    Some(hub.config.limits.command_timeout.unwrap_or(limit))
}

/// A command on its way out, and who gets the answer.
pub(super) struct Sending {
    pub(super) to: AnswerTo,
    pub(super) kind: PendingKind,
    pub(super) mutating: bool,
    pub(super) limit: Option<Duration>,
}

/// What the hub says of a command beside its own fields.
pub(super) struct LineHead<'a> {
    pub(super) user_id: &'a str,
    pub(super) connection_id: &'a str,
    /// The client's `id` as it came.
    pub(super) client_id: Option<&'a str>,
    /// What the runner is asked to do; not always what the client asked for.
    pub(super) cmd: &'a str,
}

/// Sends the command to its runner under a number of ours, which its line names. A client is to be told of an error by the caller; a face
/// is told here.
pub(super) fn send(
    hub: &Arc<Hub>,
    destination: &Destination,
    sending: Sending,
    line: impl FnOnce(u64) -> String,
) -> Result<(), String> {
    let Destination { runner, link } = destination;
    let Sending { to, kind, mutating, limit } = sending;
    let creates = matches!(kind, PendingKind::Create);
    let number = hub.pending.insert(Pending {
        to,
        runner_id: Arc::clone(&runner.id),
        link: Arc::clone(&link.outbox),
        mutating,
        deadline: limit.map(|limit| Instant::now() + limit),
        kind,
    });
    let line = line(number);
    if let Err(error) = link.outbox.push(line.as_bytes()) {
        // Not there any more: the link has ended, and whoever found that has answered.
        let Some(pending) = hub.pending.remove(number) else { return Ok(()) };
        let error = format!("Runner {}: {error}", runner.id);
        if let AnswerTo::Client { .. } = pending.to {
            return Err(error);
        }
        pending.fail(hub, &error, false);
        return Ok(());
    }
    if creates {
        runner.note_create();
    }
    Ok(())
}

pub(super) fn command_line(number: u64, head: &LineHead<'_>, parsed: &Parsed<'_>) -> String {
    let body_bytes: usize =
        parsed.fields.0.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum();
    let mut line = line_start(number, head.user_id, head.connection_id, body_bytes);
    if let Some(id) = head.client_id {
        line.push_str(",\"client_command_id\":");
        line.push_str(&json_string(&id_text(id)));
    }
    if !parsed.depends_on.is_empty() {
        let list: Vec<String> = parsed.depends_on.iter().map(|id| json_string(id)).collect();
        line.push_str(&format!(",\"depends_on\":[{}]", list.join(",")));
    }
    for (name, value) in &parsed.fields.0 {
        if OWN_FIELDS.contains(&&**name) {
            continue;
        }
        line.push(',');
        push_string(&mut line, name);
        line.push(':');
        if name == "cmd" {
            push_string(&mut line, head.cmd);
        } else {
            push_on_one_line(&mut line, value.get());
        }
    }
    line.push_str("}\n");
    line
}

/// The same for the text of a JSON object that the hub has written itself: on one line, with nothing in it that the
/// hub writes here.
pub(super) fn prepared_line(number: u64, user_id: &str, connection_id: &str, text: &str) -> String {
    let mut line = line_start(number, user_id, connection_id, text.len());
    line.push(',');
    line.push_str(text.strip_prefix('{').unwrap_or(text));
    line.push('\n');
    line
}

fn line_start(number: u64, user_id: &str, connection_id: &str, body_bytes: usize) -> String {
    let mut line = String::with_capacity(body_bytes + 160);
    // Writing to a String cannot fail.
    let _ = write!(line, "{{\"type\":\"command\",\"id\":\"h{number}\",\"user_id\":");
    push_string(&mut line, user_id);
    line.push_str(",\"connection_id\":");
    push_string(&mut line, connection_id);
    line
}

/// A string as JSON; nearly all need no escapes.
fn push_string(line: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        return line.push_str(&json_string(text));
    }
    line.push('"');
    line.push_str(text);
    line.push('"');
}

/// A frame may be spread over lines, a link line may not. Line breaks in JSON stand only between its tokens.
fn push_on_one_line(line: &mut String, value: &str) {
    if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_none() {
        return line.push_str(value);
    }
    line.extend(
        value.chars().map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{read_fields, read_head};

    #[test]
    fn a_command_is_one_line_with_our_head_and_its_own_fields() {
        let text = "{\"channel\":\"agent\",\"id\":7,\"user_id\":\"root\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
                    \"images\":[\n {\"a\": \"x\\ny\"}\r\n]}";
        let parsed = read_head(read_fields(text).unwrap()).unwrap();
        let head = LineHead { user_id: "owner", connection_id: "c1", client_id: Some("7"), cmd: "prompt" };
        assert_eq!(
            command_line(3, &head, &parsed),
            "{\"type\":\"command\",\"id\":\"h3\",\"user_id\":\"owner\",\"connection_id\":\"c1\",\
             \"client_command_id\":\"7\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
             \"images\":[  {\"a\": \"x\\ny\"}  ]}\n"
        );
    }
}
