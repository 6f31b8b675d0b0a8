//! What a command depends on (section 9): found out at its turn, waited for outside of its lane.

use std::collections::HashSet;
use std::sync::Arc;

use qd_wire::CodedError;

use super::command::{CommandPhase, DependencyWait, WaitState};
use super::identities::IdentityHolder;
use super::{Admission, SubmissionToken, error_texts};

/// How many waiting commands are looked at for a circle. A longer one is not found but ended by the time limit of
/// waiting, so that nobody can make every command of all others expensive.
const CIRCLE_COMMANDS_MAX: usize = 1000;

impl Admission {
    /// What a command has to wait for, or why it fails. The first dependency in its list that fails counts.
    pub(super) fn evaluate(&self, token: SubmissionToken) -> Result<Vec<DependencyWait>, CodedError> {
        let Some(command) = self.commands.get(&token) else { return Ok(Vec::new()) };
        let submission = &command.submission;
        let mut waits = Vec::new();
        for (name, id) in submission.depends_on.iter().enumerate() {
            if submission.id.as_ref() == Some(id) {
                return Err(error_texts::depends_on_itself(id));
            }
            match self.identities.id(&submission.principal, id) {
                None => return Err(error_texts::dependency_unknown(id)),
                Some(IdentityHolder::Kept(slot)) => {
                    let outcome = self.identities.record(slot).and_then(|record| record.outcome.as_ref());
                    match outcome {
                        None => return Err(error_texts::dependency_failed(id, error_texts::IN_DOUBT)),
                        Some(outcome) if outcome.success => {}
                        Some(outcome) => {
                            return Err(error_texts::dependency_failed(id, &error_texts::reason(outcome)));
                        }
                    }
                }
                Some(IdentityHolder::InFlight(on)) => {
                    if self.is_behind(token, on) || self.closes_circle(token, on) {
                        return Err(error_texts::dependency_behind(id));
                    }
                    waits.push(DependencyWait { name, on, state: WaitState::Pending });
                }
            }
        }
        Ok(waits)
    }

    /// Tells those that depend on a command how it ended, and those that can go on by that are ready.
    pub(super) fn tell_dependents(
        &mut self,
        token: SubmissionToken,
        dependents: impl IntoIterator<Item = SubmissionToken>,
        failure: Option<&Arc<str>>,
    ) {
        for dependent in dependents {
            let Some(command) = self.commands.get_mut(&dependent) else { continue };
            for wait in command.waits.iter_mut().filter(|wait| wait.on == token) {
                wait.state = match failure {
                    None => WaitState::Met,
                    Some(error) => WaitState::Failed(error.clone()),
                };
            }
            if failure.is_some() || command.pending_wait().is_none() {
                self.ready.insert(dependent);
            }
        }
    }

    /// Lines a command up as a dependent of those it waits for.
    pub(super) fn await_others(&mut self, token: SubmissionToken, waits: Vec<DependencyWait>) {
        for wait in &waits {
            if let Some(other) = self.commands.get_mut(&wait.on) {
                other.dependents.insert(token);
            }
        }
        if let Some(command) = self.commands.get_mut(&token) {
            command.waits = waits;
            self.forward_waiters += usize::from(command.waits_forward());
        }
    }

    /// The opposite of [`Admission::await_others`].
    pub(super) fn await_no_longer(&mut self, token: SubmissionToken) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        self.forward_waiters -= usize::from(command.waits_forward());
        for wait in std::mem::take(&mut command.waits) {
            if let Some(other) = self.commands.get_mut(&wait.on) {
                other.dependents.remove(&token);
            }
        }
    }

    /// Whether `on` stands behind `token` in its own lane, or is the same command under another id.
    fn is_behind(&self, token: SubmissionToken, on: SubmissionToken) -> bool {
        let (Some(command), Some(other)) = (self.commands.get(&token), self.commands.get(&on)) else {
            return false;
        };
        on == token || (on > token && command.place.shares_lane(&other.place))
    }

    /// Whether `on` waits, itself or by others, for `token`.
    fn closes_circle(&self, token: SubmissionToken, on: SubmissionToken) -> bool {
        // Commands that wait for earlier ones only cannot form a circle, so that nothing has to be walked.
        if self.forward_waiters == 0 && on < token {
            return false;
        }
        let mut seen = HashSet::from([on]);
        let mut open = vec![on];
        while let Some(next) = open.pop() {
            if next == token {
                return true;
            }
            if seen.len() > CIRCLE_COMMANDS_MAX {
                return false;
            }
            let Some(command) = self.commands.get(&next) else { continue };
            if !matches!(command.phase, CommandPhase::Outside) {
                continue;
            }
            let pending = command.waits.iter().filter(|wait| matches!(wait.state, WaitState::Pending));
            open.extend(pending.map(|wait| wait.on).filter(|on| seen.insert(*on)));
        }
        false
    }
}
