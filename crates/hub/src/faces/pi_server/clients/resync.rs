//! Telling clients that missed events how a session stands.

use std::sync::Arc;

use bytes::Bytes;
use qd_core::view::pi_server::answer;
use qd_wire::ErrorCode;
use qd_wire::command_table::CommandName;
use qd_wire::data::AttachData;
use qd_wire::pi_server::FaceEvent;
use serde_json::Value;
use tokio::time::{Duration, sleep};

use crate::command::Command;
use crate::command::ask::ask;
use crate::faces::pi_server::PiServer;
use crate::faces::pi_server::clients::client::PiClient;
use crate::faces::pi_server::clients::followers::ResyncTargets;
use crate::faces::pi_server::commands::lifecycle;
use crate::faces::pi_server::counters::PiCounters;
use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

/// How long until a runner that could not say how a session stands is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl PiServer {
    /// Asks the session's runner how it stands, and gives the answer to these clients.
    pub(crate) fn resync(&self, hub: &Arc<Hub>, resync: ResyncTargets) {
        let Some(client) = resync.clients.first() else { return };
        PiCounters::count(&self.counters.resyncs);
        let (client, command) = (Arc::clone(client), attach(&resync.entry));
        ask(hub, &client.asker, command, move |hub, answer| {
            if answer.failed_with(ErrorCode::SessionNotFound) {
                return hub.faces.pi_server.followers.give_up(hub, &resync);
            }
            let frames = answer.read::<AttachData>().ok().as_ref().map(event);
            let clients = hub.faces.pi_server.followers.end_resync(&resync, frames.as_ref());
            // One whose runner is away is told when it is back.
            if frames.is_none() && !clients.is_empty() && !hub.is_away(&resync.entry.runner_id) {
                retry_later(hub, clients);
            }
        });
    }
}

fn retry_later(hub: &Arc<Hub>, clients: Vec<Arc<PiClient>>) {
    hub.spawn(async move |hub| {
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            // A hub that stops does not wait for this.
            () = hub.faces.pi_server.stopping.cancelled() => return,
        }
        for client in clients.iter().filter(|client| !client.is_closed()) {
            for resync in hub.faces.pi_server.followers.catch_up(client) {
                hub.faces.pi_server.resync(&hub, resync);
            }
        }
    });
}

/// The canonical question for all that a client needs to go on.
pub(crate) fn attach(entry: &Arc<SessionEntry>) -> Command<'static> {
    // The records are not wanted, only what is not in them.
    Command::new(CommandName::SessionAttach).on_session(entry).with("after", entry.committed_seq())
}

/// The `session_resync` event.
pub(crate) fn event(attach: &AttachData) -> Bytes {
    let questions = attach.pending_input.iter().map(answer::ui_request);
    let event = FaceEvent::SessionResync {
        session_info: answer::session_info(&attach.state),
        message: attach.partial.as_ref().map_or(Value::Null, answer::partial_message),
        pending_requests: questions.filter_map(|question| serde_json::to_value(question).ok()).collect(),
    };
    lifecycle::event(&attach.state.session_id, &event)
}
