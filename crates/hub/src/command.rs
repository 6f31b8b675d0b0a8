//! A client's frame: understood as far as routing needs it, then answered here or sent to its runner.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use qd_wire::Command;
use qd_wire::command_table::{Answerer, CommandSpec, spec};
use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use crate::connection::Mailbox;
use crate::head::{Fields, json_string};
use crate::pending::{Pending, PendingKind};
use crate::reads::{HubCommand, Read};
use crate::registry::{Hub, Runner, SessionEntry};
use crate::reply::{self, ReplyTo};

/// Objects and arrays inside each other in one frame.
const NESTING_MAX: usize = 100;
/// Bytes of a client's `id`.
const ID_BYTES_MAX: usize = 1024;
/// Who a client is, until there are accounts.
const OWNER: &str = "owner";
/// The runner checks dependencies and does nothing else.
const BARRIER: &str = "_barrier";
/// Fields the hub writes itself, whatever a client says.
const OWN_FIELDS: [&str; 6] = ["channel", "type", "id", "user_id", "connection_id", "client_command_id"];
/// Fields that must come at most once, because hub and runner both act on them.
const HEAD_FIELDS: [&str; 6] = ["channel", "id", "cmd", "session_id", "runner_id", "depends_on"];

/// What is left to do for the connection.
pub(crate) enum Handled {
    Reply(Bytes),
    /// A runner will answer.
    Sent,
    Read(HubCommand),
    Detach {
        session_id: Arc<str>,
        reply: ReplyTo,
    },
}

/// Who sent a frame.
pub(crate) struct Sender<'a> {
    pub(crate) hub: &'a Hub,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    pub(crate) attachments: usize,
}

struct Parsed<'a> {
    fields: Fields<'a>,
    cmd: Cow<'a, str>,
    session_id: Option<Cow<'a, str>>,
    runner_id: Option<Cow<'a, str>>,
    has_dependencies: bool,
}

/// A runner-bound command, as far as it is known.
struct Route {
    spec: &'static CommandSpec,
    runner: Arc<Runner>,
    reply: ReplyTo,
}

/// Acts on one frame.
pub(crate) fn handle(sender: &Sender<'_>, text: &str) -> Handled {
    let fields: Fields<'_> = match read_fields(text) {
        Ok(fields) => fields,
        Err(error) => return Handled::Reply(reply::system_error(None, &error)),
    };
    let id = fields.get("id").filter(|id| id.get() != "null").map(RawValue::get);
    if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        let error = format!("The id is longer than {ID_BYTES_MAX} bytes");
        return Handled::Reply(reply::system_error(None, &error));
    }
    let parsed = match read_head(fields) {
        Ok(parsed) => parsed,
        Err(error) => return Handled::Reply(reply::system_error(id, &error)),
    };
    let mut reply = ReplyTo {
        id: id.map(Into::into),
        cmd: (&*parsed.cmd).into(),
        session_id: parsed.session_id.as_deref().map(Arc::from),
        runner_id: None,
    };
    match dispatch(sender, text, &parsed, &mut reply) {
        Ok(handled) => handled,
        Err(error) => Handled::Reply(reply.error(&error)),
    }
}

fn read_fields(text: &str) -> Result<Fields<'_>, String> {
    if is_too_deep(text) {
        return Err(format!("The frame is nested too deeply (max {NESTING_MAX})"));
    }
    if !text.trim_start().starts_with('{') {
        return Err("The frame is not a JSON object".to_owned());
    }
    serde_json::from_str(text).map_err(|error| format!("The frame is not valid JSON: {error}"))
}

/// The parser skips unread values without recursion, but the runner reads them: depth is checked here.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > NESTING_MAX {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn read_head(fields: Fields<'_>) -> Result<Parsed<'_>, String> {
    for name in HEAD_FIELDS {
        if fields.0.iter().filter(|(key, _)| key == name).count() > 1 {
            return Err(format!("The field '{name}' comes twice"));
        }
    }
    let channel = text_field(&fields, "channel")?.ok_or("The frame has no channel")?;
    match &*channel {
        "agent" => {}
        "system" => return Err("The system channel takes no commands; use 'agent'".to_owned()),
        "files" | "terminal" | "hstry" | "trx" => {
            return Err(format!("Channel '{channel}' is not served by this version"));
        }
        _ => return Err(format!("Unknown channel '{channel}'")),
    }
    let cmd = text_field(&fields, "cmd")?.ok_or("The frame has no cmd")?;
    let session_id = text_field(&fields, "session_id")?;
    let runner_id = text_field(&fields, "runner_id")?;
    let dependencies: Option<Vec<String>> = fields
        .typed("depends_on")
        .map_err(|_| "The field 'depends_on' must be a list of command ids".to_owned())?;
    let has_dependencies = dependencies.is_some_and(|list| !list.is_empty());
    Ok(Parsed { fields, cmd, session_id, runner_id, has_dependencies })
}

fn text_field<'a>(fields: &Fields<'a>, name: &str) -> Result<Option<Cow<'a, str>>, String> {
    let Some(value) = fields.get(name).filter(|value| value.get() != "null") else { return Ok(None) };
    let text: String =
        serde_json::from_str(value.get()).map_err(|_| format!("The field '{name}' must be a string"))?;
    Ok(Some(Cow::Owned(text)))
}

fn dispatch(
    sender: &Sender<'_>,
    text: &str,
    parsed: &Parsed<'_>,
    reply: &mut ReplyTo,
) -> Result<Handled, String> {
    let spec = spec(&parsed.cmd).ok_or_else(|| format!("Unknown command '{}'", parsed.cmd))?;
    if let ("session.detach", Some(session_id)) = (spec.name, &reply.session_id) {
        return Ok(Handled::Detach { session_id: Arc::clone(session_id), reply: reply.clone() });
    }
    let session = find_session(sender.hub, spec, parsed)?;
    if let Some(session) = &session {
        reply.session_id = Some(Arc::clone(&session.id));
        reply.runner_id = Some(session.runner_id());
    }
    let read = match spec.answerer {
        Answerer::Hub => Some(hub_read(spec, text, parsed)?),
        Answerer::Runner => None,
    };
    let kind = match spec.name {
        "session.attach" => PendingKind::Attach {
            after: parsed.fields.typed("after").map_err(|error| invalid(spec.name, &error))?,
        },
        "session.create" => PendingKind::Create,
        "session.delete" => PendingKind::Delete,
        _ => PendingKind::Plain,
    };
    let attaches = matches!(kind, PendingKind::Attach { .. } | PendingKind::Create);
    if attaches && sender.attachments >= sender.hub.config.limits.attachments_max {
        let max = sender.hub.config.limits.attachments_max;
        return Err(format!(
            "This connection follows {max} sessions, the most it may; detach from one first"
        ));
    }
    let in_flight_max = sender.hub.config.limits.in_flight_max;
    if !sender.mailbox.try_begin(in_flight_max) {
        return Err(format!("Too many commands in flight on this connection (max {in_flight_max})"));
    }
    let handled = match read {
        Some(read) if !parsed.has_dependencies => {
            return Ok(Handled::Read(HubCommand { reply: reply.clone(), read }));
        }
        Some(read) => {
            let command = Box::new(HubCommand { reply: reply.clone(), read });
            route(sender.hub, spec, session.as_ref(), parsed, reply)
                .and_then(|route| forward(sender, route, parsed, PendingKind::Barrier(command), BARRIER))
        }
        None => route(sender.hub, spec, session.as_ref(), parsed, reply)
            .and_then(|route| forward(sender, route, parsed, kind, spec.name)),
    };
    // A command that was not sent gets its answer at once and is in flight no more.
    handled.inspect_err(|_| sender.mailbox.answered())
}

fn invalid(cmd: &str, error: &serde_json::Error) -> String {
    format!("Invalid '{cmd}': {error}")
}

fn find_session(
    hub: &Hub,
    spec: &CommandSpec,
    parsed: &Parsed<'_>,
) -> Result<Option<Arc<SessionEntry>>, String> {
    let Some(session_id) = &parsed.session_id else {
        return if spec.needs_session {
            Err(format!("'{}' needs a session_id", spec.name))
        } else {
            Ok(None)
        };
    };
    if !spec.needs_session {
        return Ok(hub.session(session_id));
    }
    let session = hub.session(session_id).ok_or_else(|| format!("Session {session_id} not found"))?;
    let runner_id = session.runner_id();
    match &parsed.runner_id {
        Some(named) if **named != *runner_id => {
            Err(format!("Session {session_id} is on runner {runner_id}, not on {named}"))
        }
        _ => Ok(Some(session)),
    }
}

fn hub_read(spec: &CommandSpec, text: &str, parsed: &Parsed<'_>) -> Result<Read, String> {
    match Command::parse(spec.name, text).map_err(|error| error.to_string())? {
        Command::GetMessages(params) => Ok(Read::Messages(params)),
        Command::ListSessions(_) => Ok(Read::Sessions),
        Command::GetRunners(_) => Ok(Read::Runners),
        Command::Search(params) => {
            let session_id = parsed.session_id.as_deref().filter(|id| *id != qd_wire::SYSTEM_SESSION);
            Ok(Read::Search { params, session_id: session_id.map(str::to_owned) })
        }
        _ => Err(format!("'{}' is not served by this hub", spec.name)),
    }
}

fn route(
    hub: &Hub,
    spec: &'static CommandSpec,
    session: Option<&Arc<SessionEntry>>,
    parsed: &Parsed<'_>,
    reply: &ReplyTo,
) -> Result<Route, String> {
    let wanted = match (&parsed.runner_id, session) {
        (Some(named), _) => Some(Arc::from(&**named)),
        (None, Some(session)) => Some(session.runner_id()),
        (None, None) => None,
    };
    let runner = match wanted {
        Some(id) => {
            hub.runner(&id).ok_or_else(|| format!("Runner {id} is not connected; start it and try again"))?
        }
        None => hub.runners().into_iter().next().ok_or("No runner is connected; start one and try again")?,
    };
    let mut reply = reply.clone();
    reply.runner_id = Some(Arc::clone(&runner.id));
    Ok(Route { spec, runner, reply })
}

/// Sends the command to its runner under a number of ours.
fn forward(
    sender: &Sender<'_>,
    route: Route,
    parsed: &Parsed<'_>,
    kind: PendingKind,
    cmd: &str,
) -> Result<Handled, String> {
    let client_id = route.reply.id.clone();
    let limit = route.spec.timeout_ms.map(Duration::from_millis);
    let limit = limit.map(|limit| sender.hub.config.limits.command_timeout.unwrap_or(limit));
    let number = sender.hub.pending.insert(Pending {
        mailbox: Arc::clone(sender.mailbox),
        reply: route.reply,
        runner_id: Arc::clone(&route.runner.id),
        mutating: route.spec.mutating,
        deadline: limit.map(|limit| Instant::now() + limit),
        kind,
    });
    let line = command_line(number, &sender.mailbox.connection_id, client_id.as_deref(), parsed, cmd);
    route.runner.outbox.push(line.as_bytes()).map_err(|error| {
        sender.hub.pending.remove(number);
        format!("Runner {}: {error}", route.runner.id)
    })?;
    Ok(Handled::Sent)
}

fn command_line(
    number: u64,
    connection_id: &str,
    client_id: Option<&str>,
    parsed: &Parsed<'_>,
    cmd: &str,
) -> String {
    let body_bytes: usize =
        parsed.fields.0.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum();
    let mut line = String::with_capacity(body_bytes + 160);
    line.push_str(&format!(
        "{{\"type\":\"command\",\"id\":\"h{number}\",\"user_id\":\"{OWNER}\",\"connection_id\":\"{connection_id}\""
    ));
    if let Some(id) = client_id {
        // Dependencies name commands by text, so an id that is no string becomes one.
        let id = serde_json::from_str::<String>(id).unwrap_or_else(|_| id.to_owned());
        line.push_str(",\"client_command_id\":");
        line.push_str(&json_string(&id));
    }
    for (name, value) in &parsed.fields.0 {
        if OWN_FIELDS.contains(&&**name) {
            continue;
        }
        line.push(',');
        line.push_str(&json_string(name));
        line.push(':');
        if name == "cmd" {
            line.push_str(&json_string(cmd));
        } else {
            push_on_one_line(&mut line, value.get());
        }
    }
    line.push_str("}\n");
    line
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

/// Asks the runner where a session stands, for a client that fell behind. Says whether that was possible.
pub(crate) fn request_resync(
    hub: &Hub,
    mailbox: &Arc<Mailbox>,
    session: &SessionEntry,
    after: u64,
    generation: u64,
) -> bool {
    let runner_id = session.runner_id();
    let Some(runner) = hub.runner(&runner_id) else { return false };
    let limit = spec("session.attach").and_then(|spec| spec.timeout_ms).map(Duration::from_millis);
    let number = hub.pending.insert(Pending {
        mailbox: Arc::clone(mailbox),
        reply: ReplyTo {
            id: None,
            cmd: "session.attach".into(),
            session_id: Some(Arc::clone(&session.id)),
            runner_id: Some(Arc::clone(&runner_id)),
        },
        runner_id,
        mutating: false,
        deadline: limit.map(|limit| Instant::now() + limit),
        kind: PendingKind::Resync { after, generation },
    });
    let session_id = json_string(&session.id);
    let line = format!(
        "{{\"type\":\"command\",\"id\":\"h{number}\",\"user_id\":\"{OWNER}\",\"connection_id\":\"{}\",\
         \"session_id\":{session_id},\"cmd\":\"session.attach\",\"after\":{after}}}\n",
        mailbox.connection_id
    );
    if runner.outbox.push(line.as_bytes()).is_ok() {
        return true;
    }
    hub.pending.remove(number);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings() {
        assert!(!is_too_deep(&format!("{{\"a\":\"{}\\\"[\"}}", "[".repeat(500))));
        assert!(!is_too_deep(&"[]".repeat(500)));
        assert!(is_too_deep(&"[".repeat(101)));
        assert!(is_too_deep(&"{\"a\":".repeat(200_000)));
    }

    #[test]
    fn a_command_is_one_line_with_our_head_and_its_own_fields() {
        let text = "{\"channel\":\"agent\",\"id\":7,\"user_id\":\"root\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
                    \"images\":[\n {\"a\": \"x\\ny\"}\r\n]}";
        let parsed = read_head(read_fields(text).unwrap()).unwrap();
        assert_eq!(
            command_line(3, "c1", Some("7"), &parsed, "prompt"),
            "{\"type\":\"command\",\"id\":\"h3\",\"user_id\":\"owner\",\"connection_id\":\"c1\",\
             \"client_command_id\":\"7\",\"cmd\":\"prompt\",\"session_id\":\"s\",\
             \"images\":[  {\"a\": \"x\\ny\"}  ]}\n"
        );
    }

    #[test]
    fn what_is_no_command_is_named() {
        for (text, error) in [
            ("7", "not a JSON object"),
            ("{\"channel\":\"agent\"", "not valid JSON"),
            ("{}", "no channel"),
            ("{\"channel\":\"agent\"}", "no cmd"),
            ("{\"channel\":7}", "'channel' must be a string"),
            ("{\"channel\":\"agent\",\"cmd\":[]}", "'cmd' must be a string"),
            ("{\"channel\":\"agent\",\"cmd\":\"x\",\"cmd\":\"y\"}", "'cmd' comes twice"),
            ("{\"channel\":\"agent\",\"cmd\":\"x\",\"depends_on\":5}", "list of command ids"),
            ("{\"channel\":\"moon\",\"cmd\":\"x\"}", "Unknown channel 'moon'"),
        ] {
            let found = read_fields(text).and_then(|fields| read_head(fields).map(drop)).unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
