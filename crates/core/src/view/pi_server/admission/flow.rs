//! From the turn of a command to its announcement (sections 7, 9 and 11).
//!
//! A command goes from `Queued` (in its lane) to `Executing`, and ends in `Storing`. In between it may be `Outside`
//! (waiting for others, without its lane) and `Journaling` (its row is being written). Its outcome is decided once, by
//! whatever comes first: the answer, the time limit, a failed dependency or a refusal.

use std::collections::BTreeSet;
use std::sync::Arc;

use qd_wire::CodedError;

use super::command::{AdmittedCommand, CommandFate, CommandPhase, JoinedRepeat};
use super::identities::IdentityHolder;
use super::remembered_commands::RememberedCommand;
use super::timers::{Timer, after};
use super::{Admission, AdmissionEffect, PiServerOutcome, SubmissionToken, error_texts};

impl Admission {
    /// Lets everything go on that can, the one that came first always first.
    pub(super) fn run(&mut self, now: i64, effects: &mut Vec<AdmissionEffect>) {
        while let Some(token) = self.ready.pop_first() {
            self.go_on(now, token, effects);
        }
    }

    fn go_on(&mut self, now: i64, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        let Some(command) = self.commands.get(&token) else { return };
        if let CommandPhase::Outside = command.phase {
            if let Some(error) = command.failed_wait() {
                return self.conclude(now, token, error_texts::failure(error), effects);
            }
            // Woken by one of several dependencies; the others still run.
            if command.pending_wait().is_some() {
                return;
            }
            self.come_back(token);
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        if !matches!(command.phase, CommandPhase::Queued) || !self.lanes.take_turn(&command.place, token) {
            return;
        }
        command.holds_lane = command.place.is_held();
        // A command that comes back from waiting for others has been announced as started before.
        if !command.started {
            command.started = true;
            effects.push(AdmissionEffect::Started(token));
        }
        self.turn(now, token, effects);
    }

    /// It is a command's turn: its dependencies are looked at, and if they are met it begins.
    fn turn(&mut self, now: i64, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        // Once only, when it is its turn: what a name stands for is fixed then, even if it is used again later.
        if !command.evaluated {
            command.evaluated = true;
            match self.evaluate(token) {
                Err(error) => return self.conclude(now, token, error_texts::failure(error), effects),
                Ok(waits) if !waits.is_empty() => {
                    self.await_others(token, waits);
                    return self.go_outside(now, token);
                }
                Ok(_) => {}
            }
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        // Asking the runner again is safe only as long as the runner still remembers the command.
        if command.taken_up.as_ref().is_some_and(|record| record.is_too_old(now)) {
            let outcome = error_texts::too_old(command.submission.spec.name);
            self.conclude(now, token, outcome, effects);
        } else if command.is_written_first() {
            command.phase = CommandPhase::Journaling;
            self.lanes.begin_row(&command.place, token);
            effects.push(AdmissionEffect::Journal(token));
        } else {
            self.execute(token, effects);
        }
    }

    fn go_outside(&mut self, now: i64, token: SubmissionToken) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        let at = after(now, self.limits.dependency_wait_ms);
        command.phase = CommandPhase::Outside;
        command.holds_lane = false;
        command.wait_deadline = Some(at);
        self.timers.set(at, token, Timer::Dependencies);
        // It must not hold the lane while it waits: what it waits for may be behind it in the same lane.
        self.lanes.leave(&command.place, token, &mut self.ready);
    }

    /// Its dependencies are met: it lines up again, at the place of its arrival.
    fn come_back(&mut self, token: SubmissionToken) {
        self.await_no_longer(token);
        let Some(command) = self.commands.get_mut(&token) else { return };
        self.timers.clear(command.wait_deadline.take(), token, Timer::Dependencies);
        command.phase = CommandPhase::Queued;
        self.lanes.enter(&command.place, token, command.is_birth());
    }

    pub(super) fn begin_execution(&mut self, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        let Some(command) = self.commands.get(&token) else { return };
        if let CommandPhase::Journaling = command.phase {
            self.lanes.end_row(&command.place, token, &mut self.ready);
            self.execute(token, effects);
        }
    }

    fn execute(&mut self, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        command.phase = CommandPhase::Executing;
        self.counters.executed += 1;
        let session_id = command.taken_up.as_ref().and_then(|record| record.session_id.clone());
        effects.push(AdmissionEffect::Execute { token, uid: command.uid().clone(), session_id });
        // Nobody knows how long a person takes to answer; others of the session must not wait for that.
        if command.submission.frees_lane && std::mem::take(&mut command.holds_lane) {
            self.lanes.leave(&command.place, token, &mut self.ready);
        }
    }

    /// A time is over: the command fails, whatever it was doing.
    pub(super) fn run_out(
        &mut self,
        now: i64,
        token: SubmissionToken,
        timer: Timer,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        let outcome = match timer {
            Timer::Command => {
                command.deadline = None;
                let after_ms = command.submission.timeout_ms.unwrap_or_default();
                let error = error_texts::timed_out(command.submission.spec.name, after_ms);
                // Before that nobody has begun anything that could be cancelled.
                if let CommandPhase::Executing = command.phase {
                    effects.push(AdmissionEffect::Cancel { token, uid: command.uid().clone() });
                }
                PiServerOutcome { timed_out: true, ..error_texts::failure(error) }
            }
            Timer::Dependencies => {
                command.wait_deadline = None;
                let id = command.pending_wait().unwrap_or_default();
                error_texts::failure(error_texts::dependency_timed_out(id, self.limits.dependency_wait_ms))
            }
        };
        self.conclude(now, token, outcome, effects);
    }

    /// The commands of a principal, in the order in which they came.
    pub(super) fn tokens_of(&self, principal: &str) -> BTreeSet<SubmissionToken> {
        let own = self.commands.iter().filter(|(_, command)| *command.submission.principal == *principal);
        own.map(|(token, _)| *token).collect()
    }

    /// Refuses a command that has not begun, as if it had never been sent.
    pub(super) fn abandon(
        &mut self,
        now: i64,
        token: SubmissionToken,
        error: &CodedError,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let Some(command) = self.commands.get(&token) else { return };
        // A command that was taken up may have run in its first life, so it cannot be forgotten.
        let fate = if command.taken_up.is_some() { CommandFate::InDoubt } else { CommandFate::Forgotten };
        if let CommandPhase::Queued | CommandPhase::Outside | CommandPhase::Journaling = command.phase {
            self.decide(now, token, error_texts::failure(error.clone()), fate, effects);
        }
    }

    /// Decides the outcome, once.
    pub(super) fn conclude(
        &mut self,
        now: i64,
        token: SubmissionToken,
        outcome: PiServerOutcome,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let Some(command) = self.commands.get(&token) else { return };
        let fate = command.fate(&outcome);
        self.decide(now, token, outcome, fate, effects);
    }

    /// The outcome is announced when it is stored, if it is; a lane is held until then, but one that was not at its
    /// turn is in nobody's way any more.
    fn decide(
        &mut self,
        now: i64,
        token: SubmissionToken,
        outcome: PiServerOutcome,
        fate: CommandFate,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        // Decided already: an outcome that arrives after the time limit, or the reverse, changes nothing.
        if let CommandPhase::Storing { .. } = command.phase {
            return;
        }
        self.timers.clear(command.deadline.take(), token, Timer::Command);
        self.timers.clear(command.wait_deadline.take(), token, Timer::Dependencies);
        let outcome = Arc::new(outcome);
        if fate == CommandFate::Kept {
            let (uid, outcome, wait) = (command.uid().clone(), outcome.clone(), command.is_durable());
            effects.push(AdmissionEffect::Store { token, uid, outcome, wait });
        }
        let announce_at_once = fate != CommandFate::Kept || !command.is_durable();
        let decided = CommandPhase::Storing { outcome, finished_at: now };
        match std::mem::replace(&mut command.phase, decided) {
            CommandPhase::Queued if !command.holds_lane => {
                self.lanes.leave(&command.place, token, &mut self.ready);
            }
            CommandPhase::Journaling => {
                self.lanes.end_row(&command.place, token, &mut self.ready);
                if fate == CommandFate::Forgotten {
                    // Its row may be there: a write that was reported as failed, or is still under way.
                    self.identities.evict(command.submission.uid.clone());
                }
            }
            CommandPhase::Outside => self.await_no_longer(token),
            CommandPhase::Queued | CommandPhase::Executing | CommandPhase::Storing { .. } => {}
        }
        if announce_at_once {
            self.announce(now, token, fate, effects);
        }
    }

    /// Announces a command whose outcome is stored, or need not be, and those that waited for it.
    pub(super) fn announce(
        &mut self,
        now: i64,
        token: SubmissionToken,
        fate: CommandFate,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let Some(command) = self.commands.get(&token) else { return };
        let CommandPhase::Storing { outcome, finished_at } = &command.phase else { return };
        let (outcome, finished_at) = (outcome.clone(), *finished_at);
        let Some(mut command) = self.commands.remove(&token) else { return };
        if command.holds_lane {
            self.lanes.leave(&command.place, token, &mut self.ready);
        }
        let joined = std::mem::take(&mut command.joined);
        let dependents = std::mem::take(&mut command.dependents);
        // Repeats that joined count too, or a client could hold any number of them.
        self.leave_flight(&command.submission.principal, 1 + joined.len());
        match fate {
            CommandFate::Kept => self.keep_outcome(command, finished_at, &outcome, effects),
            CommandFate::InDoubt => self.keep_in_doubt(now, command),
            CommandFate::Forgotten => self.free_names(&command),
        }
        // The original before those that joined it: its client must not see a replay of what it has not heard yet.
        effects.push(AdmissionEffect::Announce { token, outcome: outcome.clone(), replayed: false });
        for JoinedRepeat { submission, id_is_new } in joined {
            if id_is_new && fate == CommandFate::Kept {
                self.keep_alias(now, &submission, &outcome, effects);
            } else if id_is_new {
                let id = submission.id.as_deref();
                self.identities.free(&submission.principal, id, None, IdentityHolder::InFlight(token));
            }
            let outcome = outcome.clone();
            effects.push(AdmissionEffect::Announce { token: submission.token, outcome, replayed: true });
        }
        let failure = (!outcome.success).then(|| error_texts::reason(&outcome));
        // Last, when the names of this command stand for its outcome: a dependent looks them up when its turn comes.
        self.tell_dependents(token, dependents, failure.as_ref());
    }

    fn leave_flight(&mut self, principal: &str, count: usize) {
        self.in_flight -= count;
        if let Some(own) = self.in_flight_of.get_mut(principal) {
            *own -= count;
            if *own == 0 {
                self.in_flight_of.remove(principal);
            }
        }
    }

    fn keep_outcome(
        &mut self,
        command: AdmittedCommand,
        finished_at: i64,
        outcome: &Arc<PiServerOutcome>,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let submission = &command.submission;
        let Some(taken_up) = command.taken_up else {
            let record = RememberedCommand::of(submission, command.accepted_at, finished_at, Some(outcome));
            return self.identities.keep(finished_at, RememberedCommand { key: command.key, ..record });
        };
        let record = RememberedCommand { finished_at, outcome: Some(outcome.clone()), ..*taken_up };
        self.identities.keep(finished_at, record);
        if command.id_is_alias {
            self.keep_alias(finished_at, submission, outcome, effects);
        }
    }

    fn keep_in_doubt(&mut self, now: i64, command: AdmittedCommand) {
        if command.id_is_alias {
            self.free_names(&command);
        }
        let record = match command.taken_up {
            Some(taken_up) => *taken_up,
            None => {
                let record = RememberedCommand::of(&command.submission, command.accepted_at, 0, None);
                RememberedCommand { key: command.key, ..record }
            }
        };
        self.identities.keep(now, record);
    }

    fn free_names(&mut self, command: &AdmittedCommand) {
        let submission = &command.submission;
        let holder = IdentityHolder::InFlight(submission.token);
        let key = command.key.as_deref().filter(|_| !command.id_is_alias);
        self.identities.free(&submission.principal, submission.id.as_deref(), key, holder);
    }
}
