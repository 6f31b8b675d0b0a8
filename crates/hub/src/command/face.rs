//! Commands of the hub's own faces: admitted like a client's, and answered to a callback.

use std::borrow::Cow;
use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::Command;
use super::admission::{Admitted, Origin, Step, Way, admit, find_way};
use super::route::Destination;
use super::send::{Sending, command_line, send};
use crate::command::ask::{Asker, OnAnswer};
use crate::command::pending::{AnswerTo, PendingKind};
use crate::command::reply::ReplyTo;
use crate::hub::Hub;
use crate::sessions::reads::HubCommand;

/// A command that nothing speaks against: it was admitted, and it is known who does it.
pub(crate) struct Ready<'a> {
    command: Command<'a>,
    session_id: Option<Arc<str>>,
    next: Next,
}

/// Who does it.
enum Next {
    Hub(HubCommand),
    Runner { destination: Destination, kind: PendingKind, cmd: &'static str },
}

impl Ready<'_> {
    /// The runner that will be asked.
    pub(crate) fn runner_id(&self) -> Option<&Arc<str>> {
        match &self.next {
            Next::Hub(_) => None,
            Next::Runner { destination, .. } => Some(&destination.runner.id),
        }
    }
}

/// Admits a face's command and finds who does it.
pub(crate) fn prepare<'a>(hub: &Hub, asker: &Asker, command: Command<'a>) -> Result<Ready<'a>, CodedError> {
    let Admitted { command, session, work } = admit(hub, asker, &Origin::Face, command)?;
    let session_id = command.kept_session_id(session.as_ref());
    let reply = || ReplyTo {
        id: None,
        cmd: Cow::Borrowed(command.spec.name),
        session_id: session_id.clone(),
        runner_id: session.as_ref().map(|session| Arc::clone(&session.runner_id)),
    };
    let next = match Step::of(work, &command, reply) {
        Some(Step::Answer(read)) => Next::Hub(read),
        Some(Step::Ask { kind, cmd }) => match find_way(hub, &command, session.as_ref(), &kind)? {
            Way::To(destination) => Next::Runner { destination, kind, cmd },
            Way::Away { from_copies: Some(read), .. } => Next::Hub(HubCommand { reply: reply(), read }),
            Way::Away { error, .. } => return Err(error),
        },
        None => return Err(ErrorCode::Unsupported.with("Only a connection can do this")),
    };
    Ok(Ready { command, session_id, next })
}

/// Sends a command to its runner, or answers it here. Gives its number if there is something to take back.
pub(crate) fn send_ready(
    hub: &Arc<Hub>,
    asker: &Asker,
    ready: Ready<'_>,
    on_answer: OnAnswer,
) -> Option<u64> {
    let Ready { mut command, session_id, next } = ready;
    let (destination, kind, cmd) = match next {
        Next::Hub(read) => {
            read.run_for_face(hub, on_answer);
            return None;
        }
        Next::Runner { destination, kind, cmd } => (destination, kind, cmd),
    };
    let on_progress = command.on_progress.take();
    let to = AnswerTo::Face { cmd: command.spec.name, session_id, on_answer, on_progress };
    let sending = Sending::new(hub, &command, to, kind);
    let sent = send(hub, &destination, sending, |number| command_line(number, asker, None, cmd, &command));
    sent.unwrap_or_else(|error| {
        // Only clients are told by the caller.
        tracing::error!(%error, "a command of a face was refused without an answer");
        None
    })
}
