//! What other faces do to sessions.

use std::sync::Arc;

use qd_core::view::pi_server::answer;
use qd_wire::data::SessionState;

use crate::command::ask::{CommandSender, ask};
use crate::faces::pi_server::commands::lifecycle;
use crate::faces::pi_server::commands::sessions::get_state;
use crate::faces::pi_server::{PiServer, is_open};
use crate::hub::Hub;

impl PiServer {
    /// A command of this face failed, and may have left something all the same.
    pub(crate) fn announce_if_changed(&self, hub: &Arc<Hub>, session_id: &str) {
        if hub.session(session_id).is_some_and(|entry| is_open(&entry)) {
            self.note_there(hub, session_id);
        } else {
            self.note_gone(hub, session_id);
        }
    }

    pub(crate) fn note_gone(&self, hub: &Hub, session_id: &str) {
        let mut pending = self.pending.lock();
        if !pending.needs_announcement(session_id, false) {
            return;
        }
        pending.announce_deleted(session_id);
        drop(pending);
        self.followers.end_session(hub, session_id);
    }

    pub(crate) fn note_there(&self, hub: &Arc<Hub>, session_id: &str) {
        {
            let mut pending = self.pending.lock();
            if !pending.needs_announcement(session_id, true) {
                return;
            }
            if pending.clients().is_empty() {
                // Who comes later finds it in the list; the runner need not be asked.
                return pending.note_known_sessions([Arc::from(session_id)]);
            }
        }
        let asker = CommandSender::hub();
        let session_id: Arc<str> = Arc::from(session_id);
        let command = get_state(session_id.to_string());
        ask(hub, &asker, command, move |hub, answer| {
            let Ok(state) = answer.read::<SessionState>() else { return };
            let mut pending = hub.faces.pi_server.pending.lock();
            // It may be gone again, or told by now.
            if pending.needs_announcement(&session_id, true)
                && hub.session(&session_id).is_some_and(|entry| is_open(&entry))
            {
                let frames = lifecycle::session_created(&session_id, &answer::session_info(&state));
                pending.announce_created(&session_id, &frames);
            }
        });
    }
}
