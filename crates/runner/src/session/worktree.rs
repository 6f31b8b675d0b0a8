//! The directory of a session: a worktree made for it where it wants one, and what is checked out there.
//!
//! Making a worktree can take long, so it is done beside the session, and the agent starts when it is there. If the
//! session never comes to be, the worktree is removed again, and its branch if that was new; once the session exists
//! they are the user's.

use std::path::Path;

use super::SessionInput;
use super::actor::SessionActor;
use crate::clock::now_ms;
use crate::services::git::branch;
use qd_wire::CodedError;

use crate::services::SessionWorktree;

/// The worktree of a session that is being created.
#[derive(Default)]
pub(super) struct WorktreeProgress {
    /// Made for this session, which is not yet there.
    pub(super) made: Option<SessionWorktree>,
    /// It is being made, and the agent starts when it is there.
    pub(super) is_being_made: bool,
}

impl SessionActor {
    /// Makes the worktree that the session is to work in; its agent starts when that is there.
    pub(super) fn make_worktree(&mut self) {
        self.worktree.is_being_made = true;
        let (shared, sender) = (self.shared.clone(), self.sender.clone());
        let session_id = self.session.identity().session_id.clone();
        let (cwd, config) = (self.config.cwd.clone(), self.config.worktree.clone().unwrap_or_default());
        tokio::spawn(async move {
            let result = match SessionWorktree::plan(&shared, &session_id, cwd.as_deref(), &config).await {
                Ok(worktree) => worktree.make().await.map(|()| worktree),
                Err(error) => Err(error),
            };
            let input = SessionInput::WorktreeMade(Box::new(result));
            if let Err(unsent) = sender.send(input).await
                && let SessionInput::WorktreeMade(result) = unsent.0
                && let Ok(worktree) = *result
            {
                // The session ended meanwhile; nobody else would take it away.
                worktree.undo().await;
            }
        });
    }

    pub(super) async fn worktree_made(&mut self, result: Result<SessionWorktree, CodedError>) {
        self.worktree.is_being_made = false;
        match result {
            // Whoever wanted the session has been told that there is none.
            Ok(worktree) if !self.commands.queue().is_agent_awaited() => worktree.undo().await,
            Ok(worktree) => {
                let (cwd, state) = (worktree.cwd(), worktree.state());
                // From here on the session is configured as if it had named this directory, also for its next start.
                self.config.cwd = Some(cwd.clone());
                if let Some(config) = &mut self.config.worktree {
                    config.branch = Some(state.branch.clone());
                }
                self.session.works_in(cwd, state);
                self.worktree.made = Some(worktree);
                self.start_agent();
            }
            Err(error) => {
                self.refuse_waiting(&error);
            }
        }
    }

    /// The session did not come to be: nothing of it is left.
    pub(super) async fn undo_worktree(&mut self) {
        if let Some(worktree) = self.worktree.made.take().filter(|_| !self.exists) {
            worktree.undo().await;
        }
    }

    /// Looks what is checked out where the session works; the agent may have changed it.
    pub(super) fn update_branch(&mut self) {
        let cwd = self.session.identity().cwd.as_deref();
        let branch = cwd.and_then(|cwd| branch::of_directory(Path::new(cwd)));
        self.session.branch_changed(now_ms(), branch, &mut self.out);
    }
}
