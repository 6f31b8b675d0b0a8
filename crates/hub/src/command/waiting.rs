//! Commands that wait for a runner that is away.

use std::sync::Arc;

use qd_wire::command_table::CommandSpec;
use qd_wire::{CodedError, ErrorCode};
use tokio::time::{Duration, Instant};

use super::Command;
use super::client::{FrameSender, HandledFrame, OutboundCommand, forward, id_text};
use super::route::{Destination, NoRoute, route};
use crate::command::head::{read_fields, read_head};
use crate::connection::Mailbox;
use crate::hub::Hub;
use crate::runners::link::RunnerLink;
use crate::runners::runner::Runner;

/// What a waiting command costs beside its text.
const WAITING_OVERHEAD_BYTES: usize = 512;

/// One command that is sent when its runner comes.
pub(crate) struct WaitingCommand {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) deadline: Instant,
    spec: &'static CommandSpec,
    text: Box<str>,
    depends_on: Vec<String>,
    outbound: OutboundCommand,
    /// The runner it waits for; `None` for any that will do.
    wanted: Option<Arc<str>>,
    /// Why it waits.
    error: CodedError,
    limit: Duration,
}

impl WaitingCommand {
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + WAITING_OVERHEAD_BYTES
    }

    /// Nobody came in time.
    pub(crate) fn expire(self) {
        let waited = self.limit.as_millis();
        let error = self.error.reworded(|error| format!("{error} (waited {waited} ms in vain)"));
        let OutboundCommand { reply, kind, .. } = self.outbound;
        self.mailbox.send_answer(reply.error(&error), kind.attaches());
    }
}

/// Keeps a command until its runner comes.
pub(super) fn keep_waiting(
    sender: &FrameSender<'_>,
    text: &str,
    command: &Command<'_>,
    outbound: OutboundCommand,
    wanted: Option<Arc<str>>,
    error: CodedError,
    limit: Duration,
) -> Result<HandledFrame, CodedError> {
    let FrameSender { hub, mailbox, .. } = sender;
    let session_id = outbound.reply.session_id.clone();
    let waiting = WaitingCommand {
        mailbox: Arc::clone(mailbox),
        deadline: Instant::now() + limit,
        spec: command.spec,
        text: text.into(),
        depends_on: command.depends_on.clone(),
        outbound,
        wanted: wanted.clone(),
        error: error.clone(),
        limit,
    };
    if !hub.pending.keep_waiting(waiting) {
        return Err(ErrorCode::Busy.with(format!("{error}; too many commands wait for runners already")));
    }
    // The runner may have come while this was decided.
    let session = session_id.and_then(|session_id| hub.session(&session_id));
    if route(hub, command, session.as_ref()).is_ok() {
        send_ready(hub, |waiting| waiting.wanted == wanted, None);
    }
    Ok(HandledFrame::Sent)
}

/// Sends what waits for this runner, or for any. Before the runner is open to others, `link` is the way to it.
pub(crate) fn send_waiting(hub: &Arc<Hub>, runner: &Arc<Runner>, link: Option<&Arc<RunnerLink>>) {
    let early = link.map(|link| Destination { runner: Arc::clone(runner), link: Arc::clone(link) });
    let is_for_it = |waiting: &WaitingCommand| match &waiting.wanted {
        Some(wanted) => *wanted == runner.id,
        // Whoever will do is chosen among those that are open.
        None => early.is_none(),
    };
    send_ready(hub, is_for_it, early.as_ref());
}

fn send_ready(hub: &Arc<Hub>, is_for_it: impl Fn(&WaitingCommand) -> bool, early: Option<&Destination>) {
    // Twice: while some were tried, the runner of another may have come and found nothing that waits.
    for _ in 0..2 {
        let mut left = Vec::new();
        for waiting in hub.pending.take_waiting(&is_for_it) {
            // Nobody waits for the answer any more, or the sender has lost the permission it had when it asked.
            if !waiting.mailbox.is_closed() && !waiting.mailbox.asker.revoked.is_cancelled() {
                left.extend(try_send(hub, waiting, early));
            }
        }
        if left.is_empty() {
            return;
        }
        hub.pending.put_back(left);
    }
}

/// Sends a command, or answers why it cannot be; gives it back when it has to wait on.
fn try_send(hub: &Arc<Hub>, waiting: WaitingCommand, early: Option<&Destination>) -> Option<WaitingCommand> {
    let WaitingCommand { mailbox, deadline, spec, text, depends_on, outbound, wanted, limit, .. } = waiting;
    let (reply, attaches) = (outbound.reply.clone(), outbound.kind.attaches());
    let fail = |error: &CodedError| {
        mailbox.send_answer(reply.error(error), attaches);
    };
    let session = reply.session_id.as_deref().and_then(|session_id| hub.session(session_id));
    if spec.needs_session && session.is_none() {
        fail(&CodedError::session_not_found(reply.session_id.as_deref().unwrap_or_default()));
        return None;
    }
    // The text was read before, so it can be read again.
    let mut command = read_again(spec, &text).inspect_err(|error| fail(error)).ok()?;
    // Those that the hub could settle itself were removed when the command came; the frame still names them.
    command.depends_on.clone_from(&depends_on);
    let found = match early {
        Some(early) => Ok(early.clone()),
        None => route(hub, &command, session.as_ref()),
    };
    let error = match found {
        Ok(destination) => {
            let name = reply.id.as_deref().map(id_text);
            if let Err(error) = forward(hub, &mailbox, &destination, &command, outbound, name.as_deref()) {
                fail(&error);
            }
            return None;
        }
        Err(NoRoute::Never(error)) => {
            fail(&error);
            return None;
        }
        Err(NoRoute::Away { error, .. }) => error,
    };
    drop(command);
    Some(WaitingCommand { mailbox, deadline, spec, text, depends_on, outbound, wanted, error, limit })
}

fn read_again<'a>(spec: &'static CommandSpec, text: &'a str) -> Result<Command<'a>, CodedError> {
    let fields = read_fields(text)?;
    let head = read_head(&fields)?;
    Ok(Command::from_frame(spec, text, fields, head))
}
