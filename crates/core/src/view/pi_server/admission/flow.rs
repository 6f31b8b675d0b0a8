//! From the turn of a command to its announcement (sections 7, 9 and 11).

use std::sync::Arc;

use super::command::{Command, Joined, Phase};
use super::identities::Record;
use super::timers::{Timer, after};
use super::{Admission, Effect, Outcome, Token, words};

impl Admission {
    /// Lets everything go on that can, the one that came first always first.
    pub(super) fn run(&mut self, now: i64, effects: &mut Vec<Effect>) {
        while let Some(token) = self.ready.pop_first() {
            self.go_on(now, token, effects);
        }
    }

    fn go_on(&mut self, now: i64, token: Token, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get(&token) else { return };
        if let Phase::Outside = command.phase {
            if let Some(error) = command.failed_wait() {
                return self.conclude(now, token, words::failure(error), effects);
            }
            if command.pending_wait().is_some() {
                return;
            }
            self.come_back(token);
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        if !matches!(command.phase, Phase::Queued) || !self.lanes.take_turn(&command.place, token) {
            return;
        }
        command.holds_lane = command.place.is_lane();
        if !command.started {
            command.started = true;
            effects.push(Effect::Started(token));
        }
        self.turn(now, token, effects);
    }

    /// It is a command's turn: its dependencies are looked at, and if they are met it begins.
    fn turn(&mut self, now: i64, token: Token, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        if !command.evaluated {
            command.evaluated = true;
            match self.evaluate(token) {
                Err(error) => return self.conclude(now, token, words::failure(error), effects),
                Ok(waits) if !waits.is_empty() => {
                    self.await_others(token, waits);
                    return self.go_outside(now, token);
                }
                Ok(_) => {}
            }
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        if command.is_durable() && command.taken_up.is_none() {
            command.phase = Phase::Journaling;
            effects.push(Effect::Journal(token));
        } else {
            self.execute(token, effects);
        }
    }

    fn go_outside(&mut self, now: i64, token: Token) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        let at = after(now, self.limits.dependency_wait_ms);
        command.phase = Phase::Outside;
        command.holds_lane = false;
        command.wait_deadline = Some(at);
        self.timers.set(at, token, Timer::Dependencies);
        self.lanes.leave(&command.place, token, &mut self.ready);
    }

    /// Its dependencies are met: it lines up again, at the place of its arrival.
    fn come_back(&mut self, token: Token) {
        self.await_no_longer(token);
        let Some(command) = self.commands.get_mut(&token) else { return };
        self.timers.clear(command.wait_deadline.take(), token, Timer::Dependencies);
        command.phase = Phase::Queued;
        self.lanes.enter(&command.place, token, command.is_birth());
    }

    pub(super) fn begin_execution(&mut self, token: Token, effects: &mut Vec<Effect>) {
        if self.commands.get(&token).is_some_and(|command| matches!(command.phase, Phase::Journaling)) {
            self.execute(token, effects);
        }
    }

    fn execute(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        command.phase = Phase::Executing;
        self.counters.executed += 1;
        effects.push(Effect::Execute { token, uid: command.uid().clone() });
    }

    /// A time is over: the command fails, whatever it was doing.
    pub(super) fn run_out(&mut self, now: i64, token: Token, timer: Timer, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        let outcome = match timer {
            Timer::Command => {
                command.deadline = None;
                let after_ms = command.submission.timeout_ms.unwrap_or_default();
                let error = words::timed_out(command.submission.spec.name, after_ms);
                if let Phase::Executing = command.phase {
                    effects.push(Effect::Cancel { token, uid: command.uid().clone() });
                }
                Outcome { timed_out: true, ..words::failure(error) }
            }
            Timer::Dependencies => {
                command.wait_deadline = None;
                let id = command.pending_wait().unwrap_or_default();
                words::failure(words::dependency_timed_out(id, self.limits.dependency_wait_ms))
            }
        };
        self.conclude(now, token, outcome, effects);
    }

    /// Decides the outcome, once. It is announced when it is stored; a lane is held until then, but one that was
    /// not at its turn is in nobody's way any more.
    pub(super) fn conclude(&mut self, now: i64, token: Token, outcome: Outcome, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get_mut(&token) else { return };
        if let Phase::Storing { .. } = command.phase {
            return;
        }
        self.timers.clear(command.deadline.take(), token, Timer::Command);
        self.timers.clear(command.wait_deadline.take(), token, Timer::Dependencies);
        if let Phase::Queued = command.phase
            && !command.holds_lane
        {
            self.lanes.leave(&command.place, token, &mut self.ready);
        }
        let outcome = Arc::new(outcome);
        let durable = command.is_durable();
        if command.is_identified() {
            let (uid, outcome) = (command.uid().clone(), outcome.clone());
            effects.push(Effect::Store { token, uid, outcome, wait: durable });
        }
        let decided = Phase::Storing { outcome, finished_at: now };
        if let Phase::Outside = std::mem::replace(&mut command.phase, decided) {
            self.await_no_longer(token);
        }
        if !durable {
            self.announce_stored(now, token, effects);
        }
    }

    /// Announces a command whose outcome is stored, or need not be, and those that waited for it.
    pub(super) fn announce_stored(&mut self, now: i64, token: Token, effects: &mut Vec<Effect>) {
        let Some(command) = self.commands.get(&token) else { return };
        let Phase::Storing { outcome, finished_at } = &command.phase else { return };
        let (outcome, finished_at) = (outcome.clone(), *finished_at);
        let Some(mut command) = self.commands.remove(&token) else { return };
        if command.holds_lane {
            self.lanes.leave(&command.place, token, &mut self.ready);
        }
        let joined = std::mem::take(&mut command.joined);
        let dependents = std::mem::take(&mut command.dependents);
        self.keep_outcome(command, finished_at, &outcome, effects);
        effects.push(Effect::Announce { token, outcome: outcome.clone(), replayed: false });
        self.joined -= joined.len();
        for Joined { submission, id_is_new } in joined {
            if id_is_new {
                self.keep_alias(now, &submission, &outcome, effects);
            }
            let outcome = outcome.clone();
            effects.push(Effect::Announce { token: submission.token, outcome, replayed: true });
        }
        let failure = (!outcome.success).then(|| words::reason(&outcome));
        self.tell_dependents(token, dependents, failure.as_ref());
    }

    fn keep_outcome(
        &mut self,
        command: Command,
        finished_at: i64,
        outcome: &Arc<Outcome>,
        effects: &mut Vec<Effect>,
    ) {
        if !command.is_identified() {
            return;
        }
        let submission = &command.submission;
        let Some(taken_up) = command.taken_up else {
            let record = Record::of(submission, finished_at, outcome);
            return self.identities.keep(Record { key: command.key, ..record });
        };
        self.identities.keep(Record { finished_at, outcome: Some(outcome.clone()), ..*taken_up });
        if command.id_is_alias {
            self.keep_alias(finished_at, submission, outcome, effects);
        }
    }
}
