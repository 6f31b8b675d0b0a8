//! The line of a command, and its way to the runner.

use std::io::Write;
use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::command_table::{Lane, TAKE_BACK};
use qd_wire::people::Permissions;
use tokio::time::{Duration, Instant};

use super::fields::CommandFields;
use super::route::Destination;
use super::{Command, CommandSubject};
use crate::access::audit::CommandNote;
use crate::command::ask::CommandSender;
use crate::command::pending::{AnswerTo, PendingCommand, PendingKind};
use crate::hub::Hub;
use crate::runners::line_head::{JsonFields, json_string};
use crate::runners::link::RunnerSendQueue;

/// Fields the hub writes itself, whatever a client says.
pub(super) const OWN_FIELDS: [&str; 11] = [
    "channel",
    "type",
    "id",
    "user_id",
    "user_role",
    "user_permissions",
    "connection_id",
    "client_command_id",
    "depends_on",
    "wait",
    "wait_ms",
];
/// Room for what the hub says beside the fields of a command.
const HEAD_BYTES: usize = 256;

/// A command on its way out, and who gets the answer.
pub(super) struct CommandSend {
    to: AnswerTo,
    kind: PendingKind,
    mutating: bool,
    is_service: bool,
    /// How long the runner may take to answer.
    limit: Option<Duration>,
    /// Of a command that changes something.
    note: Option<Box<CommandNote>>,
}

impl CommandSend {
    pub(super) fn new(
        hub: &Hub,
        asker: &CommandSender,
        command: &Command<'_>,
        to: AnswerTo,
        kind: PendingKind,
    ) -> Self {
        let spec = command.spec;
        let of_table = || {
            let limit = spec.timeout_ms.map(Duration::from_millis)?;
            Some(hub.config.limits.command_timeout.unwrap_or(limit))
        };
        let note = match (&kind, command.is_check_only()) {
            // It is only asked for the conditions of what the hub answers itself.
            (PendingKind::Barrier(_), _) | (_, true) => None,
            (_, false) => CommandNote::of(spec, &asker.principal, command.session_id()),
        };
        Self {
            to,
            note,
            kind,
            // Nothing is done by one that only asks whether it could be.
            mutating: spec.mutating && !command.is_check_only(),
            is_service: spec.lane == Lane::Service,
            limit: command.limit.unwrap_or_else(of_table),
        }
    }
}

/// Sends the command to its runner under a number of ours, which its line names. A client is to be told of an error by the caller; a face
/// is told here.
pub(super) fn send(
    hub: &Arc<Hub>,
    destination: &Destination,
    sending: CommandSend,
    line: impl FnOnce(u64) -> Vec<u8>,
) -> Result<Option<u64>, CodedError> {
    let Destination { runner, link } = destination;
    let CommandSend { to, kind, mutating, is_service, limit, mut note } = sending;
    if let Some(note) = &mut note {
        note.at(&runner.id);
    }
    let creates = matches!(kind, PendingKind::Create);
    // Before the line is queued: a fast runner may answer before `push` returns.
    let number = hub.pending.insert(PendingCommand {
        to,
        runner_id: Arc::clone(&runner.id),
        link: Arc::clone(&link.send_queue),
        mutating,
        is_service,
        deadline: limit.map(|limit| Instant::now() + limit),
        kind,
        note,
    });
    let line = line(number);
    if let Err(error) = link.send_queue.push(&line) {
        // Not there any more: the link has ended, and whoever found that has answered.
        let Some(pending) = hub.pending.remove(number) else { return Ok(None) };
        let error = error.coded(&runner.id);
        if let AnswerTo::Client { .. } = pending.to {
            return Err(error);
        }
        pending.fail(hub, &error, false);
        return Ok(None);
    }
    // The runner reports its load only with heartbeats; until then this keeps the next session from going to the same
    // one.
    if creates {
        runner.note_create();
    }
    Ok(Some(number))
}

/// Tells the runner that nobody waits for a command any more. Its answer to this has nobody to go to; the command's
/// own answer comes as always. Without `withdraw` a question to a person stays open: the asker may only have lost its
/// connection.
pub(crate) fn send_cancel(number: u64, link: &RunnerSendQueue, withdraw: bool) {
    let cmd = TAKE_BACK.name;
    let line = format!(
        "{{\"type\":\"command\",\"id\":\"h0\",\"user_id\":\"owner\",\"user_role\":\"owner\",\"session_id\":\"_system\",\"cmd\":\"{cmd}\",\
         \"target\":\"h{number}\",\"withdraw\":{withdraw}}}\n"
    );
    if let Err(error) = link.push(line.as_bytes()) {
        tracing::debug!(number, %error, "a runner cannot be told that a command is taken back");
    }
}

/// The line of a command: who asks, then what it says. `name` is the client's own for it; `cmd` is what the runner is
/// asked to do.
pub(super) fn command_line(
    number: u64,
    asker: &CommandSender,
    name: Option<&str>,
    cmd: &str,
    command: &Command<'_>,
) -> Vec<u8> {
    let mut line = Vec::with_capacity(command.fields.bytes() + HEAD_BYTES);
    // Writing to a vector cannot fail.
    let _ = write!(line, "{{\"type\":\"command\",\"id\":\"h{number}\",\"user_id\":");
    push_string(&mut line, &asker.principal);
    line.extend_from_slice(b",\"user_role\":\"");
    line.extend_from_slice(asker.rights.role.as_str().as_bytes());
    line.extend_from_slice(b"\",\"user_permissions\":\"");
    push_words(&mut line, asker.rights.permissions);
    line.extend_from_slice(b"\",\"connection_id\":");
    push_string(&mut line, &asker.connection_id);
    if let Some(name) = name {
        line.extend_from_slice(b",\"client_command_id\":");
        push_string(&mut line, name);
    }
    for (place, id) in command.depends_on.iter().enumerate() {
        line.extend_from_slice(if place == 0 { b",\"depends_on\":[" } else { b"," });
        push_string(&mut line, id);
    }
    if !command.depends_on.is_empty() {
        line.push(b']');
    }
    if !matches!(command.fields, CommandFields::Frame { .. }) {
        write_address(&mut line, cmd, command);
    }
    command.fields.write(&mut line, cmd);
    line.extend_from_slice(b"}\n");
    line
}

/// Permissions as the head of a command says them.
fn push_words(line: &mut Vec<u8>, permissions: Permissions) {
    for (place, permission) in permissions.iter().enumerate() {
        if place > 0 {
            line.push(b' ');
        }
        line.extend_from_slice(permission.as_str().as_bytes());
    }
}

/// Which command it is and where it goes. A client's frame says both among its fields.
fn write_address(line: &mut Vec<u8>, cmd: &str, command: &Command<'_>) {
    line.extend_from_slice(b",\"cmd\":");
    push_string(line, cmd);
    match &command.session {
        CommandSubject::Nothing => {}
        CommandSubject::Named(session_id) => {
            line.extend_from_slice(b",\"session_id\":");
            push_string(line, session_id);
        }
        CommandSubject::Known(session) => {
            line.extend_from_slice(b",\"session_id\":");
            line.extend_from_slice(session.id_json.as_bytes());
        }
    }
    if let Some(runner_id) = &command.runner_id {
        line.extend_from_slice(b",\"runner_id\":");
        push_string(line, runner_id);
    }
}

/// The fields of a client's frame, except what the hub says itself.
pub(super) fn write_frame_fields(line: &mut Vec<u8>, fields: &JsonFields<'_>, cmd: &str) {
    for (name, value) in &fields.0 {
        if OWN_FIELDS.contains(&&**name) {
            continue;
        }
        line.push(b',');
        push_string(line, name);
        line.push(b':');
        if name == "cmd" {
            push_string(line, cmd);
        } else {
            push_on_one_line(line, value.get());
        }
    }
}

/// A string as JSON; nearly all need no escapes.
pub(super) fn push_string(line: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        return line.extend_from_slice(json_string(text).as_bytes());
    }
    line.push(b'"');
    line.extend_from_slice(text.as_bytes());
    line.push(b'"');
}

/// A frame may be spread over lines, a link line may not. Line breaks in JSON stand only between its tokens.
fn push_on_one_line(line: &mut Vec<u8>, value: &str) {
    let start = line.len();
    line.extend_from_slice(value.as_bytes());
    if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some() {
        line[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use qd_wire::command_table::{CommandHead, CommandName, Permission};
    use qd_wire::people::{Rights, Role};

    use super::*;
    use crate::command::head::{read_fields, read_head};

    fn asker() -> CommandSender {
        let rights = Rights::of(Role::Viewer);
        CommandSender {
            principal: Arc::from("owner"),
            connection_id: Arc::from("c1"),
            rights,
            ..CommandSender::hub()
        }
    }

    const HEAD: &str = "{\"type\":\"command\",\"id\":\"h3\",\"user_id\":\"owner\",\"user_role\":\"viewer\",\
                        \"user_permissions\":\"view\",\"connection_id\":\"c1\"";

    #[test]
    fn a_command_is_one_line_with_our_head_and_its_own_fields() {
        let text = "{\"channel\":\"agent\",\"id\":7,\"user_id\":\"root\",\"user_role\":\"owner\",\
                    \"user_permissions\":\"manage\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
                    \"images\":[\n {\"a\": \"x\\ny\"}\r\n]}";
        let fields = read_fields(text).unwrap();
        let head = read_head(&fields).unwrap();
        let command = Command::from_frame(CommandName::Prompt.spec(), text, fields, head);
        let line = command_line(3, &asker(), Some("7"), "prompt", &command);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            format!(
                "{HEAD},\"client_command_id\":\"7\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
                 \"images\":[  {{\"a\": \"x\\ny\"}}  ]}}\n"
            )
        );
    }

    #[test]
    fn a_command_of_a_face_says_the_same_whether_the_hub_reads_it_or_not() {
        let line = |name: CommandName| {
            let command = Command::new(name)
                .on("a\"b")
                .at("r")
                .if_version(Some(4))
                .once(None)
                .with("after", 2)
                .with("text", "x\ny")
                .with("none", None::<u8>);
            assert!(command.has_conditions());
            String::from_utf8(command_line(3, &asker(), None, name.spec().name, &command)).unwrap()
        };
        let fields = "\"session_id\":\"a\\\"b\",\"runner_id\":\"r\",";
        // The hub reads of an attach what it needs when the runner is away; keys are written in their order.
        assert_eq!(
            line(CommandName::SessionAttach),
            format!(
                "{HEAD},\"cmd\":\"session.attach\",{fields}\"after\":2,\"if_session_version\":4,\"text\":\"x\\ny\"}}\n"
            )
        );
        assert_eq!(
            line(CommandName::RunStdin),
            format!(
                "{HEAD},\"cmd\":\"run.stdin\",{fields}\"if_session_version\":4,\"after\":2,\"text\":\"x\\ny\"}}\n"
            )
        );
    }

    #[test]
    fn the_runner_reads_the_rights_that_the_hub_has_written() {
        for role in Role::ALL {
            for scope in [None].into_iter().chain(Permission::ALL.map(Some)) {
                let scopes = scope.map_or(Role::Owner.permissions(), |scope| Permissions::of(&[scope]));
                let rights = Rights { role, permissions: role.permissions().and(scopes) };
                let asker = CommandSender { rights, ..CommandSender::hub() };
                let command = Command::new(CommandName::GetState).on("s");
                let line = command_line(3, &asker, None, "get_state", &command);
                let head: CommandHead<'_> = serde_json::from_slice(&line).unwrap();
                assert_eq!(head.rights(), rights);
            }
        }
    }

    #[test]
    fn what_only_the_hub_may_say_is_left_out_of_what_a_face_passes_on() {
        let fields = serde_json::json!({"user_id": "root", "cmd": "bash", "session_id": "t", "depth": 1});
        let serde_json::Value::Object(fields) = fields else { panic!("an object") };
        for name in [CommandName::SessionAttach, CommandName::FsTree] {
            let command = Command::new(name).on(Cow::Borrowed("s")).with_all(fields.clone());
            let line =
                String::from_utf8(command_line(3, &asker(), None, name.spec().name, &command)).unwrap();
            let cmd = name.spec().name;
            assert_eq!(line, format!("{HEAD},\"cmd\":\"{cmd}\",\"session_id\":\"s\",\"depth\":1}}\n"));
        }
    }
}
