//! A client's frame: understood as far as routing needs it, then answered here or sent to its runner.

mod asked;
mod permission;
mod route;
mod send;
mod waiting;

use std::sync::Arc;

use bytes::Bytes;
use qd_wire::command_table::{Answerer, CommandClass, CommandSpec, Lane, spec};
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::value::RawValue;

use crate::connection::{Attachment, Mailbox};
use crate::envelope::{Parsed, check_conditions, read_fields, read_head};
use crate::finished::Finished;
use crate::head::json_string;
use crate::pending::{AnswerTo, PendingKind};
use crate::principals::check_revoked;
use crate::reads::{HubCommand, Read};
use crate::registry::{Hub, SessionEntry};
use crate::reply::{self, ReplyTo};
use crate::runner_link::Link;
pub(crate) use asked::{Asking, Prepared, send_ask, send_prepared};
use permission::check_permission;
pub(crate) use permission::check_terminal;
use route::{Destination, NoRoute, route};
pub(crate) use send::send_cancel;
use send::{LineHead, Sending, command_line, send, time_limit};
use waiting::keep_waiting;
pub(crate) use waiting::{Waiting, send_waiting};

/// Bytes of a client's `id`.
const ID_BYTES_MAX: usize = 1024;
/// Bytes of what is searched for.
const SEARCH_QUERY_BYTES_MAX: usize = 4 << 10;
/// The runner checks dependencies and does nothing else.
const BARRIER: &str = "_barrier";
const CANCEL: &str = "cancel";
const ATTACH: &str = "session.attach";
const CREATE: &str = "session.create";
const DELETE: &str = "session.delete";
const GET_STATE: &str = "get_state";

/// What is left to do for the connection.
pub(crate) enum Handled {
    Reply(Bytes),
    /// A runner will answer.
    Sent,
    Read(HubCommand),
    Detach(ReplyTo),
}

/// Who sent a frame.
pub(crate) struct Sender<'a> {
    pub(crate) hub: &'a Arc<Hub>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// The sessions it follows.
    pub(crate) attachments: &'a [Attachment],
    pub(crate) finished: &'a mut Finished,
}

/// A runner-bound command: what becomes of its answer, and what the runner is asked.
struct Outbound {
    spec: &'static CommandSpec,
    reply: ReplyTo,
    kind: PendingKind,
    /// What the runner is asked to do; not always what the client asked for.
    cmd: &'static str,
}

/// Acts on one frame.
pub(crate) fn handle(sender: &mut Sender<'_>, text: &str) -> Handled {
    let fields = match read_fields(text) {
        Ok(fields) => fields,
        Err(error) => return Handled::Reply(reply::system_error(None, &error)),
    };
    let id = fields.get("id").filter(|id| id.get() != "null").map(RawValue::get);
    if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        let error = CodedError::invalid(format!("The id is longer than {ID_BYTES_MAX} bytes"));
        return Handled::Reply(reply::system_error(None, &error));
    }
    let mut parsed = match read_head(fields) {
        Ok(parsed) => parsed,
        Err(error) => return Handled::Reply(reply::system_error(id, &error)),
    };
    let mut reply = ReplyTo {
        id: id.map(Into::into),
        cmd: (&*parsed.cmd).into(),
        session_id: parsed.session_id.as_deref().map(Arc::from),
        runner_id: None,
    };
    let result = dispatch(sender, text, &mut parsed, &mut reply);
    if let Some(id) = id.map(id_text) {
        match &result {
            // A read changes nothing, so who depends on one need not wait for it: it counts as done until it fails.
            Ok(Handled::Read(_) | Handled::Detach(_) | Handled::Reply(_)) => {
                sender.finished.note(id, Ok(()));
            }
            Ok(Handled::Sent) => sender.finished.forget(&id),
            Err(error) => sender.finished.note(id, Err(error.clone())),
        }
    }
    result.unwrap_or_else(|error| Handled::Reply(reply.error(&error)))
}

/// Dependencies name commands by text, so an id that is no string becomes one.
pub(crate) fn id_text(id: &str) -> String {
    serde_json::from_str::<String>(id).unwrap_or_else(|_| id.to_owned())
}

fn dispatch(
    sender: &Sender<'_>,
    text: &str,
    parsed: &mut Parsed<'_>,
    reply: &mut ReplyTo,
) -> Result<Handled, CodedError> {
    let spec = spec(&parsed.cmd).ok_or_else(|| unknown_command(&parsed.cmd))?;
    check_revoked(&sender.mailbox.revoked)?;
    check_permission(sender.mailbox.rights, spec, parsed)?;
    check_conditions(&parsed.fields)?;
    if let Some(id) = reply.id.as_deref() {
        sender.finished.settle(&id_text(id), &mut parsed.depends_on)?;
    }
    if spec.class == CommandClass::Detach && reply.session_id.is_some() && !parsed.has_conditions() {
        return Ok(Handled::Detach(reply.clone()));
    }
    if spec.name == CANCEL {
        return cancel(sender, text, reply);
    }
    let session = find_session(sender.hub, spec, parsed)?;
    if let Some(session) = &session {
        check_terminal(sender.mailbox.rights, spec, session)?;
        reply.session_id = Some(Arc::clone(&session.id));
        reply.runner_id = Some(Arc::clone(&session.runner_id));
    }
    let read = match spec.answerer {
        Answerer::Hub => Some(hub_read(spec, text, parsed)?),
        Answerer::Runner => None,
    };
    if let Some(Read::Sessions) = read {
        sender.hub.show_sessions(sender.mailbox);
    }
    let kind = match spec.name {
        ATTACH => PendingKind::Attach {
            after: parsed.fields.typed("after").map_err(|error| invalid(spec.name, &error))?,
        },
        CREATE if !is_check_only(parsed) => PendingKind::Create,
        DELETE => PendingKind::Delete,
        _ => PendingKind::Plain,
    };
    let wait = parsed.wait()?;
    let attaches = kind.attaches();
    check_attachments(sender, attaches, reply)?;
    let in_flight_max = sender.hub.config.limits.in_flight_max;
    if !sender.mailbox.try_begin(in_flight_max, attaches) {
        return Err(ErrorCode::TooManyInFlight
            .with(format!("Too many commands in flight on this connection (max {in_flight_max})")));
    }
    let outbound = match read {
        Some(read) if !parsed.has_conditions() => {
            return Ok(Handled::Read(HubCommand { reply: reply.clone(), read }));
        }
        Some(read) => {
            let command = Box::new(HubCommand { reply: reply.clone(), read });
            Outbound { spec, reply: reply.clone(), kind: PendingKind::Barrier(command), cmd: BARRIER }
        }
        None => Outbound { spec, reply: reply.clone(), kind, cmd: spec.name },
    };
    let handled = match route(sender.hub, spec, session.as_ref(), parsed, text) {
        Ok(destination) => forward(sender.hub, sender.mailbox, &destination, parsed, outbound),
        Err(NoRoute::Away { error, wanted }) => match wait {
            Some(limit) => keep_waiting(sender, text, parsed, outbound, wanted, error, limit),
            None => match from_copies(outbound.spec, outbound.kind, session, parsed) {
                Some(read) => Ok(Handled::Read(HubCommand { reply: outbound.reply, read })),
                None if wanted.is_some() => {
                    Err(error.reworded(|error| format!("{error}, or send with wait:true")))
                }
                None => Err(error),
            },
        },
        Err(NoRoute::Never(error)) => Err(error),
    };
    // A command that was not sent gets its answer at once and is in flight no more.
    handled.inspect_err(|_| sender.mailbox.end_command(attaches))
}

/// Takes back a command of the same connection that is not answered yet.
fn cancel(sender: &Sender<'_>, text: &str, reply: &ReplyTo) -> Result<Handled, CodedError> {
    let Command::Cancel(params) = Command::parse(CANCEL, text)? else {
        return Err(CodedError::invalid(format!("'{CANCEL}' cannot be read")));
    };
    let found = sender.hub.pending.of_client(sender.mailbox, &params.target);
    let Some((number, link)) = found else {
        return Err(ErrorCode::NotFound
            .with(format!("No command '{}' of this connection waits for its answer", params.target)));
    };
    send_cancel(number, &link, true);
    Ok(Handled::Reply(reply.success(None)))
}

/// Whether a `session.create` creates nothing and only asks whether it could.
fn is_check_only(parsed: &Parsed<'_>) -> bool {
    parsed.fields.get("check_only").is_some_and(|value| value.get() == "true")
}

/// Refuses one more session to follow when there are too many, those on their way included.
fn check_attachments(sender: &Sender<'_>, attaches: bool, reply: &ReplyTo) -> Result<(), CodedError> {
    let is_attached = sender.attachments.iter().any(|it| Some(&it.session.id) == reply.session_id.as_ref());
    let max = sender.hub.config.limits.attachments_max;
    if attaches && !is_attached && sender.attachments.len() + sender.mailbox.attaching() >= max {
        return Err(ErrorCode::LimitReached.with(format!(
            "This connection follows {max} sessions, the most it may; detach from one first"
        )));
    }
    Ok(())
}

/// What the hub can do for a session whose runner is away.
fn from_copies(
    spec: &CommandSpec,
    kind: PendingKind,
    session: Option<Arc<SessionEntry>>,
    parsed: &Parsed<'_>,
) -> Option<Read> {
    let session = session.filter(|_| !parsed.has_conditions())?;
    match kind {
        PendingKind::Attach { after } => Some(Read::AwayAttach { session, after }),
        PendingKind::Delete => Some(Read::Bury(session)),
        PendingKind::Plain | PendingKind::InOrder if spec.name == GET_STATE => Some(Read::AwayState(session)),
        PendingKind::Plain
        | PendingKind::InOrder
        | PendingKind::Create
        | PendingKind::Barrier(_)
        | PendingKind::Resync { .. }
        | PendingKind::ResyncAll => None,
    }
}

fn invalid(cmd: &str, error: &serde_json::Error) -> CodedError {
    CodedError::invalid(format!("Invalid '{cmd}': {error}"))
}

fn unknown_command(cmd: &str) -> CodedError {
    ErrorCode::UnknownCommand.with(format!("Unknown command '{cmd}'"))
}

fn find_session(
    hub: &Hub,
    spec: &CommandSpec,
    parsed: &Parsed<'_>,
) -> Result<Option<Arc<SessionEntry>>, CodedError> {
    let Some(session_id) = &parsed.session_id else {
        return if spec.needs_session {
            Err(CodedError::invalid(format!("'{}' needs a session_id", spec.name)))
        } else {
            Ok(None)
        };
    };
    let session = hub.session(session_id);
    if spec.name == CREATE {
        check_name(hub, session_id, session.as_deref(), parsed.runner_id.as_deref())?;
    }
    // A service may do without a session, but not with one that is not there.
    let is_service = spec.lane == Lane::Service && **session_id != *qd_wire::SYSTEM_SESSION;
    if !spec.needs_session && !is_service {
        return Ok(session);
    }
    let session = session.ok_or_else(|| CodedError::session_not_found(session_id))?;
    match &parsed.runner_id {
        Some(named) if **named != *session.runner_id => Err(ErrorCode::WrongRunner
            .with(format!("Session {session_id} is on runner {}, not on {named}", session.runner_id))),
        _ => Ok(Some(session)),
    }
}

/// A session never moves, so its name is not free on another runner; nor while its runner has yet to delete it.
fn check_name(
    hub: &Hub,
    session_id: &str,
    session: Option<&SessionEntry>,
    runner_id: Option<&str>,
) -> Result<(), CodedError> {
    if let Some(session) = session
        && let Some(named) = runner_id.filter(|named| *named != &*session.runner_id)
    {
        let owner = &session.runner_id;
        return Err(ErrorCode::SessionExists.with(format!(
            "Session {session_id} lives on runner {owner} and cannot be created on {named}; delete it first, or take another name"
        )));
    }
    match hub.buried_at(session_id) {
        Some(owner) => Err(ErrorCode::Conflict.with(format!(
            "Session {session_id} was deleted while runner {owner} was away; its name is free when {owner} has come back"
        ))),
        None => Ok(()),
    }
}

#[allow(clippy::wildcard_enum_match_arm)] // The hub answers these itself; any other is refused by its name.
fn hub_read(spec: &CommandSpec, text: &str, parsed: &Parsed<'_>) -> Result<Read, CodedError> {
    match Command::parse(spec.name, text)? {
        Command::GetMessages(params) => Ok(Read::Messages(params)),
        Command::ListSessions(_) => Ok(Read::Sessions),
        Command::SessionDetach(_) => Ok(Read::Detach),
        Command::GetRunners(_) => Ok(Read::Runners),
        Command::Search(params) if params.query.len() > SEARCH_QUERY_BYTES_MAX => {
            Err(ErrorCode::TooLarge.with(format!("The query is longer than {SEARCH_QUERY_BYTES_MAX} bytes")))
        }
        Command::Search(params) => {
            let session_id = parsed.session_id.as_deref().filter(|id| *id != qd_wire::SYSTEM_SESSION);
            Ok(Read::Search { params: Box::new(params), session_id: session_id.map(str::to_owned) })
        }
        _ => Err(ErrorCode::Unsupported.with(format!("'{}' is not served by this hub", spec.name))),
    }
}

/// Sends a client's command to its runner.
fn forward(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    destination: &Destination,
    parsed: &Parsed<'_>,
    outbound: Outbound,
) -> Result<Handled, CodedError> {
    let Outbound { spec, mut reply, kind, cmd } = outbound;
    reply.runner_id = Some(Arc::clone(&destination.runner.id));
    let client_id = reply.id.clone();
    let sending = Sending {
        to: AnswerTo::Client { mailbox: Arc::clone(mailbox), reply },
        kind,
        mutating: spec.mutating,
        is_service: spec.lane == Lane::Service,
        limit: time_limit(hub, spec),
    };
    let head = LineHead {
        user_id: &mailbox.principal,
        user_role: mailbox.rights.role,
        connection_id: &mailbox.connection_id,
        client_id: client_id.as_deref(),
        cmd,
    };
    send(hub, destination, sending, |number| command_line(number, &head, parsed)).map(|_| Handled::Sent)
}

/// Asks the runner where a session stands, for a client that fell behind. Says whether that was possible.
pub(crate) fn request_resync(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    session: &SessionEntry,
    after: u64,
    generation: u64,
) -> bool {
    let Some(runner) = hub.runner(&session.runner_id) else { return false };
    let Some(link) = runner.link() else { return false };
    let kind = PendingKind::Resync { after, generation };
    ask_state(hub, mailbox, &Destination { runner, link }, session, after, kind)
}

/// Asks a runner that is back where a session stands, for all who follow it.
pub(crate) fn request_resync_of_all(hub: &Arc<Hub>, link: &Arc<Link>, session: &SessionEntry) {
    let Some(runner) = hub.runner(&session.runner_id) else { return };
    let destination = Destination { runner, link: Arc::clone(link) };
    let after = session.committed_seq();
    if !ask_state(hub, &Mailbox::nobody(), &destination, session, after, PendingKind::ResyncAll) {
        tracing::debug!(session = %session.id, "the runner that came is gone again");
    }
}

fn ask_state(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    destination: &Destination,
    session: &SessionEntry,
    after: u64,
    kind: PendingKind,
) -> bool {
    let Some(spec) = spec(ATTACH) else { return false };
    let reply =
        ReplyTo { id: None, cmd: ATTACH.into(), session_id: Some(Arc::clone(&session.id)), runner_id: None };
    let text =
        format!("{{\"session_id\":{},\"cmd\":\"{ATTACH}\",\"after\":{after}}}", json_string(&session.id));
    let Ok(fields) = read_fields(&text) else { return false };
    let parsed =
        Parsed { fields, cmd: ATTACH.into(), session_id: None, runner_id: None, depends_on: Vec::new() };
    forward(hub, mailbox, destination, &parsed, Outbound { spec, reply, kind, cmd: ATTACH }).is_ok()
}
