//! The order in which commands of one connection reach one session: what needs no row in the journal does not
//! overtake what was sent before it and waits for its row, or has it and is just being sent. The machine of admission
//! knows when a row is written, but not when the command is on its way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use qd_core::view::pi_server::admission::SubmissionToken;

use crate::faces::pi_server::commands::pending_commands::CommandJob;

/// A connection and a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CommandLane {
    connection_id: Arc<str>,
    session_id: Arc<str>,
}

impl CommandLane {
    /// `None` for a command that is about no session.
    fn of(job: &CommandJob) -> Option<Self> {
        let session_id = Arc::clone(job.session_id.as_ref()?);
        Some(Self { connection_id: Arc::clone(&job.client.asker.connection_id), session_id })
    }
}

/// Commands whose rows are on their way, each with what waits behind it.
#[derive(Default)]
pub(crate) struct SendOrder(HashMap<CommandLane, VecDeque<QueuedSend>>);

struct QueuedSend {
    token: SubmissionToken,
    behind: Vec<CommandJob>,
}

impl SendOrder {
    /// The row of this command is on its way. What is given is to be handed to [`SendOrder::release`].
    pub(crate) fn reserve(&mut self, job: &CommandJob) -> Option<CommandLane> {
        let lane = CommandLane::of(job)?;
        let place = QueuedSend { token: job.token, behind: Vec::new() };
        self.0.entry(lane.clone()).or_default().push_back(place);
        Some(lane)
    }

    /// Gives the command back if it may be done now; else it is kept until [`SendOrder::release`] gives it.
    pub(crate) fn admit(&mut self, job: CommandJob) -> Option<CommandJob> {
        // Mostly nothing is on its way.
        if self.0.is_empty() {
            return Some(job);
        }
        let places = CommandLane::of(&job).and_then(|lane| self.0.get_mut(&lane));
        // One whose own row was on its way has waited already.
        let places = places.filter(|places| places.iter().all(|place| place.token != job.token));
        match places.and_then(|places| places.iter_mut().rev().find(|place| place.token < job.token)) {
            Some(place) => {
                place.behind.push(job);
                None
            }
            None => Some(job),
        }
    }

    /// The command was sent, or will not be. Gives those that waited for it, which are to be sent next; then this is
    /// to be called again, because others may have come behind them meanwhile. `None` when that is over.
    pub(crate) fn release(&mut self, lane: &CommandLane, token: SubmissionToken) -> Option<Vec<CommandJob>> {
        let places = self.0.get_mut(lane)?;
        let at = places.iter().position(|place| place.token == token)?;
        let behind = std::mem::take(&mut places.get_mut(at)?.behind);
        if !behind.is_empty() {
            return Some(behind);
        }
        places.remove(at);
        if places.is_empty() {
            self.0.remove(lane);
        }
        None
    }
}
