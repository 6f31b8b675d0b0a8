//! Commands of the hub's own faces: the same way as a client's, without a connection to answer to.

use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::command_table::{Answerer, CommandClass, CommandSpec, Lane, Permission, spec};
use tokio::time::Duration;

use super::route::{Destination, NoRoute, route, to_runner};
use super::send::{LineHead, Sending, command_line, prepared_line, send, time_limit};
use super::{
    ATTACH, BARRIER, CREATE, DELETE, GET_STATE, check_permission, check_terminal, find_session, from_copies,
    hub_read, invalid, is_check_only, unknown_command,
};
use crate::ask::{Answered, Asker, OnAnswer, OnProgress};
use crate::envelope::{Parsed, read_asked_head, read_fields};
use crate::pending::{AnswerTo, PendingKind};
use crate::principals::check_revoked;
use crate::reads::{HubCommand, Read};
use crate::registry::{Hub, SessionEntry};
use crate::reply::ReplyTo;

const CLOSE: &str = "session.close";

/// Takes back a command that has run out of time. Between a face and the runner; no client may send it.
const CANCEL: CommandSpec = CommandSpec {
    name: "_cancel",
    lane: Lane::Control,
    mutating: false,
    timeout_ms: Some(30_000),
    // Whoever may ask may take back what they asked.
    permission: Permission::View,
    answerer: Answerer::Runner,
    needs_session: true,
    class: CommandClass::Other,
};

/// One command of a face.
pub(crate) struct Asking<'a> {
    pub(crate) asker: &'a Asker,
    pub(crate) text: &'a str,
    /// Replaces the time limit of the command; the inner `None` for as long as the runner's link lasts.
    pub(crate) limit: Option<Option<Duration>>,
    pub(crate) on_progress: Option<OnProgress>,
}

/// Where such a command goes.
enum Plan<'a> {
    Read(HubCommand),
    Send { destination: Destination, parsed: Parsed<'a>, kind: PendingKind, cmd: &'static str },
}

/// Sends the command to its runner, or answers it here.
pub(crate) fn send_ask(hub: &Arc<Hub>, asking: Asking<'_>, on_answer: OnAnswer) -> Option<u64> {
    let (spec, session, plan) = match plan(hub, asking.asker, asking.text) {
        Ok(planned) => planned,
        Err(error) => {
            on_answer(hub, Answered::failure(error));
            return None;
        }
    };
    let (destination, parsed, kind, cmd) = match plan {
        Plan::Read(command) => {
            command.run_for_face(hub, on_answer);
            return None;
        }
        Plan::Send { destination, parsed, kind, cmd } => (destination, parsed, kind, cmd),
    };
    let session_id = match &session {
        Some(session) => Some(Arc::clone(&session.id)),
        None => parsed.session_id.as_deref().map(Arc::from),
    };
    // Nothing is done by one that only asks whether it could be.
    let mutating = spec.mutating && !is_check_only(&parsed);
    let limit = asking.limit.unwrap_or_else(|| time_limit(hub, spec));
    let on_progress = asking.on_progress;
    let to = AnswerTo::Face { cmd: spec.name, session_id, on_answer, on_progress };
    let is_service = spec.lane == Lane::Service;
    let sending = Sending { to, kind, mutating, is_service, limit };
    let Asker { principal, rights, connection_id, .. } = asking.asker;
    let head = LineHead { user_id: principal, user_role: rights.role, connection_id, client_id: None, cmd };
    let sent = send(hub, &destination, sending, |number| command_line(number, &head, &parsed));
    note_refused(sent)
}

/// A command of a face about one session, written by the face itself and not read again here.
pub(crate) struct Prepared<'a> {
    pub(crate) asker: &'a Asker,
    pub(crate) session: &'a Arc<SessionEntry>,
    pub(crate) spec: &'static CommandSpec,
    /// The text of a JSON object on one line, with `cmd` and `session_id`.
    pub(crate) text: &'a str,
    /// How long the runner may take; `None` for as long as its link lasts.
    pub(crate) limit: Option<Duration>,
}

/// Sends it on the shortest way; what has to be thought about takes the long one.
pub(crate) fn send_prepared(hub: &Arc<Hub>, prepared: &Prepared<'_>, on_answer: OnAnswer) {
    let Prepared { asker, session, spec, text, limit } = *prepared;
    let checked = asker.check(spec.name, spec.permission);
    if let Err(error) = checked.and_then(|()| check_terminal(asker.rights, spec, session)) {
        return on_answer(hub, Answered::failure(error));
    }
    let destination = match spec.answerer {
        Answerer::Runner => to_runner(hub, &session.runner_id),
        Answerer::Hub => None,
    };
    let kind = match spec.name {
        CREATE | DELETE => None,
        _ => Some(plain_kind(spec)),
    };
    let (Some(destination), Some(kind)) = (destination, kind) else {
        send_ask(hub, Asking { asker, text, limit: Some(limit), on_progress: None }, on_answer);
        return;
    };
    let session_id = Some(Arc::clone(&session.id));
    let to = AnswerTo::Face { cmd: spec.name, session_id, on_answer, on_progress: None };
    let is_service = spec.lane == Lane::Service;
    let sending = Sending { to, kind, mutating: spec.mutating, is_service, limit };
    let line = |number| prepared_line(number, asker, text);
    note_refused(send(hub, &destination, sending, line));
}

fn note_refused(sent: Result<Option<u64>, CodedError>) -> Option<u64> {
    sent.unwrap_or_else(|error| {
        // Only clients are told by the caller.
        tracing::error!(%error, "a command of a face was refused without an answer");
        None
    })
}

/// Who asks where a session stands follows it already, or is about to: what came before is told before.
fn plain_kind(spec: &CommandSpec) -> PendingKind {
    match spec.name {
        ATTACH | CLOSE | GET_STATE => PendingKind::InOrder,
        _ => PendingKind::Plain,
    }
}

type Planned<'a> = (&'static CommandSpec, Option<Arc<SessionEntry>>, Plan<'a>);

fn plan<'a>(hub: &Arc<Hub>, asker: &Asker, text: &'a str) -> Result<Planned<'a>, CodedError> {
    let parsed = read_fields(text).and_then(read_asked_head)?;
    let spec = row(&parsed.cmd)?;
    check_revoked(&asker.revoked)?;
    check_permission(asker.rights, spec, &parsed)?;
    let session = find_session(hub, spec, &parsed)?;
    if let Some(session) = &session {
        check_terminal(asker.rights, spec, session)?;
    }
    if spec.answerer == Answerer::Hub {
        let read = hub_read(spec, text, &parsed)?;
        if !parsed.has_conditions() {
            let command = hub_command(spec, session.as_deref(), &parsed, read);
            return Ok((spec, session, Plan::Read(command)));
        }
        let command = hub_command(spec, session.as_deref(), &parsed, read);
        let destination = route(hub, spec, session.as_ref(), &parsed, text).map_err(why)?;
        let kind = PendingKind::Barrier(Box::new(command));
        return Ok((spec, session, Plan::Send { destination, parsed, kind, cmd: BARRIER }));
    }
    let kind = match spec.name {
        CREATE if !is_check_only(&parsed) => PendingKind::Create,
        DELETE => PendingKind::Delete,
        _ => plain_kind(spec),
    };
    match route(hub, spec, session.as_ref(), &parsed, text) {
        Ok(destination) => Ok((spec, session, Plan::Send { destination, parsed, kind, cmd: spec.name })),
        Err(NoRoute::Never(error)) => Err(error),
        Err(NoRoute::Away { error, .. }) => {
            let kind = match spec.name {
                ATTACH => PendingKind::Attach {
                    after: parsed.fields.typed("after").map_err(|error| invalid(spec.name, &error))?,
                },
                _ => kind,
            };
            let read = from_copies(spec, kind, session.clone(), &parsed).ok_or(error)?;
            let command = hub_command(spec, session.as_deref(), &parsed, read);
            Ok((spec, session, Plan::Read(command)))
        }
    }
}

fn row(cmd: &str) -> Result<&'static CommandSpec, CodedError> {
    if cmd == CANCEL.name {
        return Ok(&CANCEL);
    }
    spec(cmd).ok_or_else(|| unknown_command(cmd))
}

fn why(no_route: NoRoute) -> CodedError {
    match no_route {
        NoRoute::Away { error, .. } | NoRoute::Never(error) => error,
    }
}

fn hub_command(
    spec: &CommandSpec,
    session: Option<&SessionEntry>,
    parsed: &Parsed<'_>,
    read: Read,
) -> HubCommand {
    let named = || parsed.session_id.as_deref().map(Arc::<str>::from);
    let reply = ReplyTo {
        id: None,
        cmd: spec.name.into(),
        session_id: session.map(|session| Arc::clone(&session.id)).or_else(named),
        runner_id: session.map(|session| Arc::clone(&session.runner_id)),
    };
    HubCommand { reply, read }
}
