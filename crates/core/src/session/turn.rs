//! One turn: from the first start to the settle, whatever retries and compactions happen inside.

use qd_wire::ErrorCode;
use qd_wire::event::Event;
use qd_wire::message::StopReason;

/// What must be known when the turn settles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// How the last answer ended.
    pub(super) last_stop: Option<StopReason>,
    /// The last answer's error, in the provider's words.
    pub(super) last_error: Option<String>,
    /// A person asked to stop; some agents then report an error instead.
    pub(super) abort_requested: bool,
    /// Messages of people in it that came by no prompt we know, or under another text than they were sent with.
    pub(super) foreign_inputs: usize,
}

impl Turn {
    /// The turn's one terminal outcome.
    pub(super) fn outcome(&self, aborted: bool) -> StopReason {
        if aborted || self.abort_requested || self.last_stop == Some(StopReason::Aborted) {
            StopReason::Aborted
        } else {
            self.last_stop.unwrap_or(StopReason::Stop)
        }
    }
}

/// An error of the agent that is not about one phase of its turn.
pub(super) fn agent_error(code: ErrorCode, error: String, recoverable: bool) -> Event {
    Event::AgentError { error, recoverable, phase: None, code: Some(code) }
}
