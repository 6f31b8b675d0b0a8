//! Asking a runner where a session stands, for those who follow it. The hub asks on its own account, so there is nothing
//! to admit.

use std::borrow::Cow;
use std::sync::Arc;

use qd_wire::command_table::CommandName;

use super::Command;
use super::client::{OutboundCommand, forward};
use super::route::Destination;
use crate::command::pending::PendingKind;
use crate::command::reply::ReplyTo;
use crate::connection::Mailbox;
use crate::hub::Hub;
use crate::runners::link::RunnerLink;
use crate::sessions::session::SessionEntry;

/// Asks for a client that fell behind. Says whether that was possible.
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
