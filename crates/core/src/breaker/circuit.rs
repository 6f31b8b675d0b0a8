//! One circuit: closed, open, or tried with a few calls.

use std::collections::VecDeque;

use qd_wire::data::CircuitState;

use super::CircuitLimits;

/// Why nothing is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CircuitRefusal {
    /// For so long, at least one second.
    Open { seconds: i64 },
    /// As many tests as may be are under way.
    Testing,
}

/// One circuit.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    state: CircuitState,
    changed_at: i64,
    /// When it failed within the window, oldest first; never more than the threshold.
    failures: VecDeque<i64>,
    last_failure_at: Option<i64>,
    /// Tests under way.
    tests: u64,
    /// Tests that went well.
    successes: u64,
    /// Which test this is: calls of an earlier one hold no place in it.
    round: u64,
}

impl Circuit {
    pub(super) fn new(now: i64) -> Self {
        Circuit { changed_at: now, ..Circuit::default() }
    }

    /// Lets a call through or not. A test gets the number to give its place back with.
    pub(super) fn admit(&mut self, now: i64, limits: &CircuitLimits) -> Result<Option<u64>, CircuitRefusal> {
        self.refresh(now, limits);
        match self.state {
            CircuitState::Closed => Ok(None),
            CircuitState::Open => {
                let left = self.changed_at.saturating_add(limits.recovery_ms).saturating_sub(now);
                Err(CircuitRefusal::Open { seconds: left.saturating_add(999).max(1000) / 1000 })
            }
            CircuitState::HalfOpen if self.tests >= limits.half_open_max => Err(CircuitRefusal::Testing),
            CircuitState::HalfOpen => {
                self.tests += 1;
                Ok(Some(self.round))
            }
        }
    }

    /// Gives the place of a test back.
    pub(super) fn release(&mut self, round: Option<u64>) {
        if round == Some(self.round) && self.state == CircuitState::HalfOpen {
            self.tests = self.tests.saturating_sub(1);
        }
    }

    pub(super) fn succeeded(&mut self, now: i64, limits: &CircuitLimits) {
        self.refresh(now, limits);
        // A call from before says nothing about now, unless it is tried.
        if self.state == CircuitState::HalfOpen {
            self.successes += 1;
            if self.successes >= limits.successes_to_close {
                self.become_state(now, CircuitState::Closed);
            }
        }
    }

    pub(super) fn failed(&mut self, now: i64, limits: &CircuitLimits) {
        self.refresh(now, limits);
        self.last_failure_at = Some(now);
        match self.state {
            CircuitState::Open => {}
            CircuitState::HalfOpen => self.become_state(now, CircuitState::Open),
            CircuitState::Closed => {
                self.failures.push_back(now);
                if self.failures.len() >= limits.threshold {
                    self.become_state(now, CircuitState::Open);
                }
            }
        }
    }

    /// How it stands, without a change.
    pub(super) fn state(&self, now: i64, limits: &CircuitLimits) -> CircuitState {
        let is_over = now.saturating_sub(self.changed_at) >= limits.recovery_ms;
        if self.state == CircuitState::Open && is_over { CircuitState::HalfOpen } else { self.state }
    }

    pub(super) fn failures(&self, now: i64, limits: &CircuitLimits) -> u64 {
        let in_window = |at: &&i64| now.saturating_sub(**at) < limits.window_ms;
        self.failures.iter().filter(in_window).count() as u64
    }

    pub(super) fn last_failure_at(&self) -> Option<i64> {
        self.last_failure_at
    }

    pub(super) fn changed_at(&self) -> i64 {
        self.changed_at
    }

    pub(super) fn tests(&self) -> u64 {
        self.tests
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_calm(&mut self, now: i64, limits: &CircuitLimits) -> bool {
        self.refresh(now, limits);
        self.state == CircuitState::Closed && self.failures.is_empty()
    }

    fn refresh(&mut self, now: i64, limits: &CircuitLimits) {
        while self.failures.front().is_some_and(|at| now.saturating_sub(*at) >= limits.window_ms) {
            self.failures.pop_front();
        }
        let state = self.state(now, limits);
        if state != self.state {
            self.become_state(now, state);
        }
    }

    fn become_state(&mut self, now: i64, state: CircuitState) {
        self.state = state;
        self.changed_at = now;
        self.tests = 0;
        self.successes = 0;
        self.round += 1;
        if state == CircuitState::Closed {
            self.failures.clear();
        }
    }
}
