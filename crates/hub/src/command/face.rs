//! Commands of the hub's own faces: admitted like a client's, and answered to a callback.

use std::borrow::Cow;
use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::Command;
use super::admission::{AdmittedCommand, CommandOrigin, CommandStep, RunnerRoute, admit, find_way};
use super::route::Destination;
use super::send::{CommandSend, command_line, send};
use crate::command::ask::{CommandSender, OnAnswer};
use crate::command::pending::{AnswerTo, PendingKind};
use crate::command::reply::ReplyTo;
use crate::hub::Hub;
use crate::sessions::reads::HubCommand;

/// A command that nothing speaks against: it was admitted, and it is known who does it.
pub(crate) struct ReadyCommand<'a> {
    command: Command<'a>,
    session_id: Option<Arc<str>>,
    next: ReadyWork,
}

/// Who does it.
enum ReadyWork {
    Hub(HubCommand),
    Runner { destination: Destination, kind: PendingKind, cmd: &'static str },
}

impl ReadyCommand<'_> {
    /// The runner that will be asked.
    pub(crate) fn runner_id(&self) -> Option<&Arc<str>> {
        match &self.next {
            ReadyWork::Hub(_) => None,
            ReadyWork::Runner { destination, .. } => Some(&destination.runner.id),
        }
    }
}

/// Admits a face's command and finds who does it.
pub(crate) fn prepare<'a>(
    hub: &Hub,
    asker: &CommandSender,
    command: Command<'a>,
) -> Result<ReadyCommand<'a>, CodedError> {
    let AdmittedCommand { command, session, work } = admit(hub, asker, &CommandOrigin::Face, command)?;
    let session_id = command.kept_session_id(session.as_ref());
    let reply = || ReplyTo {
        id: None,
        cmd: Cow::Borrowed(command.spec.name),
        session_id: session_id.clone(),
        runner_id: session.as_ref().map(|session| Arc::clone(&session.runner_id)),
    };
    let next = match CommandStep::of(work, &command, reply) {
        Some(CommandStep::Answer(read)) => ReadyWork::Hub(read),
        Some(CommandStep::Ask { kind, cmd }) => match find_way(hub, &command, session.as_ref(), &kind)? {
            RunnerRoute::To(destination) => ReadyWork::Runner { destination, kind, cmd },
            RunnerRoute::Away { from_copies: Some(read), .. } => {
                ReadyWork::Hub(HubCommand { reply: reply(), read })
            }
            RunnerRoute::Away { error, .. } => return Err(error),
        },
        None => return Err(ErrorCode::Unsupported.with("Only a connection can do this")),
    };
    Ok(ReadyCommand { command, session_id, next })
}

/// Sends a command to its runner, or answers it here. Gives its number if there is something to take back.
pub(crate) fn send_ready(
    hub: &Arc<Hub>,
    asker: &CommandSender,
    ready: ReadyCommand<'_>,
    on_answer: OnAnswer,
) -> Option<u64> {
    let ReadyCommand { mut command, session_id, next } = ready;
    let (destination, kind, cmd) = match next {
        ReadyWork::Hub(read) => {
            read.run_for_face(hub, on_answer);
            return None;
        }
        ReadyWork::Runner { destination, kind, cmd } => (destination, kind, cmd),
    };
    let on_progress = command.on_progress.take();
    let to = AnswerTo::Face { cmd: command.spec.name, session_id, on_answer, on_progress };
    let sending = CommandSend::new(hub, &command, to, kind);
    let sent = send(hub, &destination, sending, |number| command_line(number, asker, None, cmd, &command));
    sent.unwrap_or_else(|error| {
        // Only clients are told by the caller.
        tracing::error!(%error, "a command of a face was refused without an answer");
        None
    })
}
