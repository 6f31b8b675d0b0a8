//! The times at which something ends by itself.

use std::collections::BTreeSet;

use super::SubmissionToken;

/// Which time is over. Where both are over at once the command's own counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Command,
    Dependencies,
}

/// All timers, the next first.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(i64, SubmissionToken, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: i64, token: SubmissionToken, timer: Timer) {
        self.0.insert((at, token, timer));
    }

    pub(super) fn clear(&mut self, at: Option<i64>, token: SubmissionToken, timer: Timer) {
        if let Some(at) = at {
            self.0.remove(&(at, token, timer));
        }
    }

    pub(super) fn next(&self) -> Option<i64> {
        self.0.first().map(|(at, _, _)| *at)
    }

    /// Takes the next one whose time has come.
    pub(super) fn pop(&mut self, now: i64) -> Option<(SubmissionToken, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, token, timer)| (token, timer))
    }
}

/// A point in time some milliseconds from now.
pub(super) fn after(now: i64, ms: u64) -> i64 {
    now.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX))
}
