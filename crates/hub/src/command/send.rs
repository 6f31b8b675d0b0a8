//! The line of a command, and its way to the runner.

use std::fmt::Write;
use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::command_table::CommandSpec;
use qd_wire::people::Role;
use tokio::time::{Duration, Instant};

use super::id_text;
use super::route::Destination;
use crate::ask::Asker;
use crate::envelope::Parsed;
use crate::head::json_string;
use crate::pending::{AnswerTo, Pending, PendingKind};
use crate::registry::Hub;
use crate::runner_link::Outbox;

/// Fields the hub writes itself, whatever a client says.
const OWN_FIELDS: [&str; 10] = [
    "channel",
    "type",
    "id",
    "user_id",
    "user_role",
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
    pub(super) is_service: bool,
    pub(super) limit: Option<Duration>,
}

/// What the hub says of a command beside its own fields.
pub(super) struct LineHead<'a> {
    pub(super) user_id: &'a str,
    pub(super) user_role: Role,
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
) -> Result<Option<u64>, CodedError> {
    let Destination { runner, link } = destination;
    let Sending { to, kind, mutating, is_service, limit } = sending;
    let creates = matches!(kind, PendingKind::Create);
    let number = hub.pending.insert(Pending {
        to,
        runner_id: Arc::clone(&runner.id),
        link: Arc::clone(&link.outbox),
        mutating,
        is_service,
        deadline: limit.map(|limit| Instant::now() + limit),
        kind,
    });
    let line = line(number);
    if let Err(error) = link.outbox.push(line.as_bytes()) {
        // Not there any more: the link has ended, and whoever found that has answered.
        let Some(pending) = hub.pending.remove(number) else { return Ok(None) };
        let error = error.coded(&runner.id);
        if let AnswerTo::Client { .. } = pending.to {
            return Err(error);
        }
        pending.fail(hub, &error, false);
        return Ok(None);
    }
    if creates {
        runner.note_create();
    }
    Ok(Some(number))
}

/// Tells the runner that nobody waits for a command any more. Its answer to this has nobody to go to; the command's
/// own answer comes as always. Without `withdraw` a question to a person stays open: the asker may only have lost its
/// connection.
pub(crate) fn send_cancel(number: u64, link: &Outbox, withdraw: bool) {
    let line = format!(
        "{{\"type\":\"command\",\"id\":\"h0\",\"user_id\":\"owner\",\"user_role\":\"owner\",\"session_id\":\"_system\",\"cmd\":\"_cancel\",\
         \"target\":\"h{number}\",\"withdraw\":{withdraw}}}\n"
    );
    if let Err(error) = link.push(line.as_bytes()) {
        tracing::debug!(number, %error, "a runner cannot be told that a command is taken back");
    }
}

pub(super) fn command_line(number: u64, head: &LineHead<'_>, parsed: &Parsed<'_>) -> String {
    let body_bytes: usize =
        parsed.fields.0.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum();
    let mut line = line_start(number, head.user_id, head.user_role, head.connection_id, body_bytes);
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
pub(super) fn prepared_line(number: u64, asker: &Asker, text: &str) -> String {
    let Asker { principal, rights, connection_id, .. } = asker;
    let mut line = line_start(number, principal, rights.role, connection_id, text.len());
    line.push(',');
    line.push_str(text.strip_prefix('{').unwrap_or(text));
    line.push('\n');
    line
}

fn line_start(number: u64, user_id: &str, user_role: Role, connection_id: &str, body_bytes: usize) -> String {
    let mut line = String::with_capacity(body_bytes + 160);
    // Writing to a String cannot fail.
    let _ = write!(line, "{{\"type\":\"command\",\"id\":\"h{number}\",\"user_id\":");
    push_string(&mut line, user_id);
    line.push_str(",\"user_role\":\"");
    line.push_str(user_role.as_str());
    line.push('"');
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
        let text = "{\"channel\":\"agent\",\"id\":7,\"user_id\":\"root\",\"user_role\":\"owner\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
                    \"images\":[\n {\"a\": \"x\\ny\"}\r\n]}";
        let parsed = read_head(read_fields(text).unwrap()).unwrap();
        let head = LineHead {
            user_id: "owner",
            user_role: Role::Viewer,
            connection_id: "c1",
            client_id: Some("7"),
            cmd: "prompt",
        };
        assert_eq!(
            command_line(3, &head, &parsed),
            "{\"type\":\"command\",\"id\":\"h3\",\"user_id\":\"owner\",\"user_role\":\"viewer\",\"connection_id\":\"c1\",\
             \"client_command_id\":\"7\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
             \"images\":[  {\"a\": \"x\\ny\"}  ]}\n"
        );
    }
}
