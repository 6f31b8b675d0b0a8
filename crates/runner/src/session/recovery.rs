//! A session after a restart of its runner, or after the end of its agent: what was under way is told, and inputs that
//! the conversation does not show are looked up in the agent's own file before they are called interrupted.
//!
//! The order is that of the conversation: what the agent wrote to its file comes first, then what is called
//! interrupted because not even the file shows it, and the agent starts last.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use qd_core::agent::Image;
use qd_core::session::StoredQuestion;
use qd_wire::command_table::{CommandClass, class_of};

use super::actor::SessionActor;
use crate::clock::now_ms;

impl SessionActor {
    /// The runner is back: tells what became of everything that was under way when it ended, and starts the agent again
    /// where it should run.
    pub(super) async fn recover(&mut self, was_working: bool, may_resume: bool, stored: Vec<StoredQuestion>) {
        self.load_images().await;
        self.complete_from_file().await;
        let now = now_ms();
        self.publishing.stored_questions =
            stored.iter().map(|question| question.request.request_id().to_owned()).collect();
        // What an agent asked is withdrawn with it; a call at the gate waits on.
        let gone = self.session.restore_questions(now, stored);
        self.session.interrupted(now, was_working, gone, &mut self.out);
        if self.is_run() {
            self.run_cut_off();
        }
        for cut_off in self.shared.submissions.take_cut_off(&self.session.identity().session_id) {
            // A lost abort needs no words: what it should have ended is over.
            if class_of(&cut_off.row.cmd) != CommandClass::Abort {
                self.session.cut_off(now, &cut_off.row.cmd, &cut_off.beginning, &mut self.out);
            }
            // Stored with the record that tells of it, so that it is told once.
            self.publishing.outcomes.push(cut_off.into_reported_row());
        }
        if may_resume && self.shared.config.resume_at_start {
            self.resume_agent();
        }
    }

    /// Adds what the agent wrote into its own file and never told us. Only where that decides whether an input was read:
    /// an agent that comes up tells all of it anyway.
    pub(super) async fn complete_from_file(&mut self) {
        if !self.exists || !self.session.has_unshown() {
            return;
        }
        let Some(file) = self.session.memory().native_session_file.clone() else { return };
        let (shared, harness) = (Arc::clone(&self.shared), self.config.harness.clone());
        let reading =
            tokio::task::spawn_blocking(move || shared.config.harnesses.stored_messages(&harness, &file));
        let conversation = reading.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the agent's own file could not be read");
            None
        });
        let Some(conversation) = conversation.filter(|messages| !messages.is_empty()) else { return };
        // The index knows what was announced once that is stored.
        self.publish().await;
        let session_id = &self.session.identity().session_id;
        match self.shared.store.message_index(session_id).await {
            Ok(index) => {
                let known: HashSet<String> = index.into_iter().map(|(_, id)| id).collect();
                self.session.complete_conversation(now_ms(), conversation, &known, &mut self.out);
            }
            Err(error) => tracing::error!(%error, session_id, "what the agent has read cannot be compared"),
        }
    }

    /// Reads the images of inputs that wait.
    async fn load_images(&mut self) {
        let missing = self.session.missing_images();
        if missing.is_empty() {
            return;
        }
        let session_id = self.session.identity().session_id.clone();
        let rows = match self.shared.store.input_images(&session_id).await {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::error!(%error, session_id, "the images of messages that wait cannot be read");
            }
        };
        self.publishing.stored_images = rows.iter().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>();
        let mut images: BTreeMap<String, Arc<Vec<Image>>> = BTreeMap::new();
        for (key, body) in rows {
            match serde_json::from_slice(&body) {
                Ok(read) => drop(images.insert(key, Arc::new(read))),
                Err(error) => tracing::error!(%error, session_id, key, "stored images cannot be read"),
            }
        }
        self.session.restore_images(&images);
    }
}
