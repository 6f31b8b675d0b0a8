//! A client's frame: read once, admitted, then answered here or sent to its runner.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use qd_wire::command_table::CommandName;
use qd_wire::service::CancelParams;
use qd_wire::{CodedError, ErrorCode};
use serde_json::value::RawValue;

use super::admission::{
    AdmittedCommand, CommandOrigin, CommandStep, CommandWork, RunnerRoute, admit, find_way,
};
use super::route::Destination;
use super::send::{CommandSend, command_line, send, send_cancel};
use super::waiting::keep_waiting;
use super::{Command, spec_of};
use crate::command::finished_commands::FinishedCommands;
use crate::command::head::{CommandHead, read_fields, read_head};
use crate::command::pending::{AnswerTo, PendingKind};
use crate::command::reply::{self, ReplyTo};
use crate::connection::{Attachment, Mailbox};
use crate::hub::Hub;
use crate::runners::line_head::JsonFields;
use crate::runners::link::RunnerLink;
use crate::sessions::reads::{HubCommand, HubRead};
use crate::sessions::session::SessionEntry;

/// Bytes of a client's `id`.
const ID_BYTES_MAX: usize = 1024;

/// What is left to do for the connection.
pub(crate) enum HandledFrame {
    Reply(Bytes),
    /// A runner will answer.
    Sent,
    Read(HubCommand),
    Detach(ReplyTo),
}

/// Who sent a frame.
pub(crate) struct FrameSender<'a> {
    pub(crate) hub: &'a Arc<Hub>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// The sessions it follows.
    pub(crate) attachments: &'a [Attachment],
    pub(crate) finished: &'a mut FinishedCommands,
}

/// A runner-bound command: what becomes of its answer, and what the runner is asked.
pub(super) struct OutboundCommand {
    pub(super) reply: ReplyTo,
    pub(super) kind: PendingKind,
    /// What the runner is asked to do; not always what the client asked for.
    pub(super) cmd: &'static str,
}

/// Acts on one frame.
pub(crate) fn handle(sender: &mut FrameSender<'_>, text: &str) -> HandledFrame {
    let fields = match read_fields(text) {
        Ok(fields) => fields,
        Err(error) => return HandledFrame::Reply(reply::system_error(None, &error)),
    };
    let id = fields.get("id").filter(|id| id.get() != "null").map(RawValue::get);
    if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        let error = CodedError::invalid(format!("The id is longer than {ID_BYTES_MAX} bytes"));
        return HandledFrame::Reply(reply::system_error(None, &error));
    }
    let head = match read_head(&fields) {
        Ok(head) => head,
        Err(error) => return HandledFrame::Reply(reply::system_error(id, &error)),
    };
    let (cmd, session_id) = (head.cmd.clone(), head.session_id.clone());
    let mut reply = ReplyTo { id: id.map(Into::into), cmd: "".into(), session_id: None, runner_id: None };
    // The name by which later commands can depend on this one.
    let name = id.map(id_text);
    let result = dispatch(sender, CommandFrame { text, fields, head, name: name.as_deref() }, &mut reply);
    if let Some(name) = name {
        match &result {
            // A read changes nothing, so who depends on one need not wait for it: it counts as done until it fails.
            Ok(HandledFrame::Read(_) | HandledFrame::Detach(_) | HandledFrame::Reply(_)) => {
                sender.finished.note(name, Ok(()));
            }
            // The runner knows it now. An old result of ours under the same name must not answer for it.
            Ok(HandledFrame::Sent) => sender.finished.forget(&name),
            Err(error) => sender.finished.note(name, Err(error.clone())),
        }
    }
    result.unwrap_or_else(|error| {
        reply.cmd = cmd.into_owned().into();
        reply.session_id = reply.session_id.or_else(|| session_id.as_deref().map(Arc::from));
        HandledFrame::Reply(reply.error(&error))
    })
}

/// Dependencies name commands by text, so an id that is no string becomes one.
pub(crate) fn id_text(id: &str) -> String {
    serde_json::from_str::<String>(id).unwrap_or_else(|_| id.to_owned())
}

/// A frame that names a command.
struct CommandFrame<'a> {
    text: &'a str,
    fields: JsonFields<'a>,
    head: CommandHead<'a>,
    /// The client's `id` as text.
    name: Option<&'a str>,
}

/// Has the command done, or says why it is not. `reply` learns whom it is about.
fn dispatch(
    sender: &FrameSender<'_>,
    frame: CommandFrame<'_>,
    reply: &mut ReplyTo,
) -> Result<HandledFrame, CodedError> {
    let FrameSender { hub, mailbox, finished, .. } = sender;
    let CommandFrame { text, fields, head, name } = frame;
    let spec = spec_of(&head.cmd)?;
    reply.cmd = Cow::Borrowed(spec.name);
    let command = Command::from_frame(spec, text, fields, head);
    let admitted = admit(hub, &mailbox.asker, &CommandOrigin::Client { finished, name }, command)?;
    let AdmittedCommand { command, session, work } = admitted;
    reply.session_id = command.kept_session_id(session.as_ref());
    reply.runner_id = session.as_ref().map(|session| Arc::clone(&session.runner_id));
    match work {
        CommandWork::Detach => return Ok(HandledFrame::Detach(reply.clone())),
        CommandWork::Cancel => return cancel(sender, &command, reply),
        CommandWork::Hub(HubRead::Sessions) => hub.show_sessions(mailbox),
        CommandWork::Hub(_) | CommandWork::Runner(_) => {}
    }
    // Everything that can refuse the command comes before it counts as in flight.
    let wait = command.wait()?;
    let attaches = matches!(&work, CommandWork::Runner(kind) if kind.attaches());
    check_attachments(sender, attaches, reply)?;
    let in_flight_max = hub.config.limits.in_flight_max;
    if !mailbox.try_begin_command(in_flight_max, attaches) {
        return Err(ErrorCode::TooManyInFlight
            .with(format!("Too many commands in flight on this connection (max {in_flight_max})"))
            .with_limit(in_flight_max));
    }
    let handled = match CommandStep::of(work, &command, || reply.clone()) {
        Some(CommandStep::Answer(read)) => return Ok(HandledFrame::Read(read)),
        Some(CommandStep::Ask { kind, cmd }) => {
            match find_way(hub, &mailbox.asker, &command, session.as_ref(), &kind) {
                Ok(RunnerRoute::To(destination)) => {
                    let outbound = OutboundCommand { reply: reply.clone(), kind, cmd };
                    forward(hub, mailbox, &destination, &command, outbound, name)
                }
                Ok(RunnerRoute::Away { error, wanted, from_copies }) => match (wait, from_copies) {
                    (Some(limit), _) => {
                        let outbound = OutboundCommand { reply: reply.clone(), kind, cmd };
                        keep_waiting(sender, text, &command, outbound, wanted, error, limit)
                    }
                    (None, Some(read)) => Ok(HandledFrame::Read(HubCommand { reply: reply.clone(), read })),
                    (None, None) if wanted.is_some() => {
                        Err(error.reworded(|error| format!("{error}, or send with wait:true")))
                    }
                    (None, None) => Err(error),
                },
                Err(error) => Err(error),
            }
        }
        None => Err(ErrorCode::Internal.with("This command was done already")),
    };
    // A command that was not sent gets its answer at once and is in flight no more.
    handled.inspect_err(|_| mailbox.end_command(attaches))
}

/// Takes back a command of the same connection that is not answered yet.
fn cancel(
    sender: &FrameSender<'_>,
    command: &Command<'_>,
    reply: &ReplyTo,
) -> Result<HandledFrame, CodedError> {
    let CancelParams { target, .. } = command.parameters()?;
    let Some((number, link)) = sender.hub.pending.of_client(sender.mailbox, &target) else {
        return Err(ErrorCode::NotFound
            .with(format!("No command '{target}' of this connection waits for its answer")));
    };
    send_cancel(number, &link, true);
    Ok(HandledFrame::Reply(reply.success(None)))
}

/// Refuses one more session to follow when there are too many, those on their way included.
fn check_attachments(sender: &FrameSender<'_>, attaches: bool, reply: &ReplyTo) -> Result<(), CodedError> {
    let is_attached = sender.attachments.iter().any(|it| Some(&it.session.id) == reply.session_id.as_ref());
    let max = sender.hub.config.limits.attachments_max;
    if attaches && !is_attached && sender.attachments.len() + sender.mailbox.attaching() >= max {
        return Err(ErrorCode::LimitReached.with(format!(
            "This connection follows {max} sessions, the most it may; detach from one first"
        )));
    }
    Ok(())
}

/// Sends a client's command to its runner; `name` is the client's `id` as text.
pub(super) fn forward(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    destination: &Destination,
    command: &Command<'_>,
    outbound: OutboundCommand,
    name: Option<&str>,
) -> Result<HandledFrame, CodedError> {
    let OutboundCommand { mut reply, kind, cmd } = outbound;
    reply.runner_id = Some(Arc::clone(&destination.runner.id));
    let to = AnswerTo::Client { mailbox: Arc::clone(mailbox), reply };
    let sending = CommandSend::new(hub, &mailbox.asker, command, to, kind);
    let line = |number| command_line(number, &mailbox.asker, name, cmd, command);
    send(hub, destination, sending, line).map(|_| HandledFrame::Sent)
}

/// Asks the runner of a session where it stands, for a client that fell behind. The hub asks on its own account, so there
/// is nothing to admit. Says whether that was possible.
pub(crate) fn request_resync(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    session: &Arc<SessionEntry>,
    after: u64,
    generation: u64,
) -> bool {
    let Some(runner) = hub.runner(&session.runner_id) else { return false };
    let Some(link) = runner.link() else { return false };
    let kind = PendingKind::Resync { after, generation };
    ask_state(hub, mailbox, &Destination { runner, link }, session, after, kind)
}

/// Asks a runner that is back, for all who follow the session.
pub(crate) fn request_resync_of_all(hub: &Arc<Hub>, link: &Arc<RunnerLink>, session: &Arc<SessionEntry>) {
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
    session: &Arc<SessionEntry>,
    after: u64,
    kind: PendingKind,
) -> bool {
    let command = Command::new(CommandName::SessionAttach).on_session(session).with("after", after);
    let cmd = command.spec.name;
    let reply = ReplyTo {
        id: None,
        cmd: Cow::Borrowed(cmd),
        session_id: Some(Arc::clone(&session.id)),
        runner_id: None,
    };
    forward(hub, mailbox, destination, &command, OutboundCommand { reply, kind, cmd }, None).is_ok()
}
