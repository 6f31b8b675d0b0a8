//! Sections 7 to 11 once more, as plainly as possible: lists that are searched from the start for everything, and one
//! rule for who goes on: the first in the list that can. Nothing here is shared with the machine but its types.

use std::sync::Arc;

use qd_wire::command_table::Lane;
use qd_wire::pi_server::{Bucket, spec};

use super::super::{
    AdmissionEffect, AdmissionLimits, PiServerOutcome, PiServerSubmission, RestoredSubmission,
    SubmissionToken,
};
use super::bounds::{REMEMBERED_MS, excess};
use super::command::{Ending, ModelCommand, ModelPhase, ModelRow, failed, item, key_of, may_be_lost, row};

enum Found {
    InFlight(usize),
    Row(usize),
}

pub(super) struct Model {
    limits: AdmissionLimits,
    items: Vec<ModelCommand>,
    rows: Vec<ModelRow>,
    /// How every command ended that was announced.
    settled: Vec<(SubmissionToken, Option<String>)>,
    charges: Vec<(i64, Arc<str>, Bucket, Option<String>)>,
    evicted: Vec<Arc<str>>,
    out: Vec<AdmissionEffect>,
}

impl Model {
    pub(super) fn new(limits: AdmissionLimits) -> Self {
        Model {
            limits,
            items: Vec::new(),
            rows: Vec::new(),
            settled: Vec::new(),
            charges: Vec::new(),
            evicted: Vec::new(),
            out: Vec::new(),
        }
    }

    pub(super) fn effects(&mut self) -> Vec<AdmissionEffect> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn evicted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.evicted)
    }

    pub(super) fn restore(&mut self, row: RestoredSubmission) {
        let key = row.key.map(|key| (row.scope, key)).filter(|key| {
            let older = self
                .rows
                .iter()
                .rev()
                .find(|old| old.principal == row.principal && old.key.as_ref() == Some(key));
            let Some((at, _)) = older.and_then(|old| old.done.as_ref()) else { return true };
            row.outcome.is_none() || row.finished_at.unwrap_or(0) >= at + self.limits.key_ttl_ms
        });
        let done = row.outcome.map(|outcome| (row.finished_at.unwrap_or(0), outcome));
        let may_be_lost = spec(&row.command).is_some_and(may_be_lost);
        let at = row.finished_at.unwrap_or(row.accepted_at);
        let row = ModelRow {
            uid: row.uid,
            principal: row.principal,
            id: row.id,
            key,
            fingerprint: row.fingerprint,
            command: row.command,
            may_be_lost,
            session: row.session_id,
            accepted_at: row.accepted_at,
            done,
        };
        self.keep(at, row);
    }

    pub(super) fn submit(&mut self, now: i64, submission: PiServerSubmission) {
        self.out.push(AdmissionEffect::Accepted(submission.token));
        self.arrive(now, submission);
        self.go(now);
    }

    pub(super) fn journaled(&mut self, now: i64, token: SubmissionToken) {
        if let Some(at) = self.at(token).filter(|at| self.items[*at].state == ModelPhase::Writing) {
            self.work(at);
        }
        self.go(now);
    }

    pub(super) fn finish(&mut self, now: i64, token: SubmissionToken, outcome: PiServerOutcome) {
        if let Some(at) = self.at(token).filter(|at| self.items[*at].undecided()) {
            self.conclude(now, at, outcome);
        }
        self.go(now);
    }

    pub(super) fn refuse(&mut self, now: i64, token: SubmissionToken, error: &str) {
        self.give_up(now, token, error);
        self.go(now);
    }

    pub(super) fn revoke(&mut self, now: i64, principal: &str) {
        let own = self.items.iter().filter(|item| *item.submission.principal == *principal);
        let tokens: Vec<SubmissionToken> = own.map(|item| item.submission.token).collect();
        tokens.into_iter().for_each(|token| self.give_up(now, token, "The access token was revoked"));
        self.go(now);
    }

    /// What has not begun does not begin any more, and what is in doubt stays so.
    fn give_up(&mut self, now: i64, token: SubmissionToken, error: &str) {
        let Some(at) = self.at(token) else { return };
        if let ModelPhase::InLine | ModelPhase::Aside | ModelPhase::Writing = self.items[at].state {
            let again = self.items[at].again.is_some();
            let ending = if again { Ending::InDoubt } else { Ending::Gone };
            self.end(now, at, failed(error.into()), ending);
        }
    }

    pub(super) fn stored(&mut self, now: i64, token: SubmissionToken) {
        if let Some(at) = self.at(token).filter(|at| matches!(self.items[*at].state, ModelPhase::Keeping(..)))
        {
            self.announce(now, at, Ending::Kept);
        }
        self.go(now);
    }

    pub(super) fn tick(&mut self, now: i64) {
        loop {
            let commands = self.items.iter().filter_map(|item| Some((item.ends?, item.submission.token, 0)));
            let waits =
                self.items.iter().filter_map(|item| Some((item.waits_until?, item.submission.token, 1)));
            let Some((at, token, what)) = commands.chain(waits).min() else { return };
            if at > now {
                return;
            }
            let index = self.at(token).unwrap();
            let item = &self.items[index];
            let outcome = if what == 0 {
                let (name, ms) = (item.submission.spec.name, item.submission.timeout_ms.unwrap());
                if item.state == ModelPhase::Working {
                    self.out.push(AdmissionEffect::Cancel { token, uid: item.uid() });
                }
                PiServerOutcome {
                    timed_out: true,
                    ..failed(format!("Command '{name}' timed out after {ms}ms"))
                }
            } else {
                let first = item.awaited.iter().find(|(_, on)| self.end_of(*on).is_none());
                let (id, ms) = (&first.unwrap().0, self.limits.dependency_wait_ms);
                failed(format!("Command 'dependsOn:{id}' timed out after {ms}ms"))
            };
            self.conclude(now, index, outcome);
            self.go(now);
        }
    }

    fn at(&self, token: SubmissionToken) -> Option<usize> {
        self.items.iter().position(|item| item.submission.token == token)
    }

    fn end_of(&self, token: SubmissionToken) -> Option<&Option<String>> {
        self.settled.iter().find(|(settled, _)| *settled == token).map(|(_, error)| error)
    }

    fn main_of(&self, at: usize) -> usize {
        match self.items[at].state {
            ModelPhase::Echo(token, _) => self.at(token).unwrap(),
            _ => at,
        }
    }

    fn find_id(&self, principal: &str, id: &str) -> Option<Found> {
        if let Some(at) = self.items.iter().position(|item| item.has_id(principal, id)) {
            return Some(Found::InFlight(self.main_of(at)));
        }
        let known = |row: &ModelRow| *row.principal == *principal && row.id.as_deref() == Some(id);
        self.rows.iter().rposition(known).map(Found::Row)
    }

    fn find_key(&self, now: i64, principal: &str, key: &(String, String)) -> Option<Found> {
        if let Some(at) = self.items.iter().position(|item| item.has_key(principal, key)) {
            return Some(Found::InFlight(at));
        }
        let known = |row: &ModelRow| *row.principal == *principal && row.key.as_ref() == Some(key);
        let at = self.rows.iter().rposition(known)?;
        let expired = self.rows[at].done.as_ref().is_some_and(|(at, _)| now - at >= self.limits.key_ttl_ms);
        (!expired).then_some(Found::Row(at))
    }

    fn arrive(&mut self, now: i64, submission: PiServerSubmission) {
        let token = submission.token;
        let by_key = key_of(&submission).and_then(|key| self.find_key(now, &submission.principal, &key));
        let by_id = submission.id.as_ref().and_then(|id| self.find_id(&submission.principal, id));
        let new_id = submission.id.is_some() && by_id.is_none();
        let (what, name) = match by_key {
            Some(_) => ("idempotencyKey", submission.key.clone()),
            None => ("id", submission.id.clone()),
        };
        let own = self.items.iter().filter(|item| item.submission.principal == submission.principal);
        let busy = self.items.len() >= self.limits.in_flight_max
            || own.count() >= self.limits.in_flight_per_principal_max;
        let mut again = None;
        if let Some(found) = by_key.or(by_id) {
            let (fingerprint, before) = match found {
                Found::InFlight(at) => {
                    let other = &self.items[at].submission;
                    (other.fingerprint, other.spec.name.to_owned())
                }
                Found::Row(at) => (self.rows[at].fingerprint, self.rows[at].command.clone()),
            };
            if fingerprint != submission.fingerprint {
                let (name, now_for) = (name.unwrap(), submission.spec.name);
                return self.reject(
                    token,
                    format!("Conflicting {what} '{name}': previously used for '{before}', now used for '{now_for}'"),
                );
            }
            match found {
                Found::InFlight(_) if busy => return self.refuse_busy(token),
                Found::InFlight(at) => {
                    let state = ModelPhase::Echo(self.items[at].submission.token, new_id);
                    return self.items.push(item(now, submission, state));
                }
                Found::Row(at) => match self.rows[at].done.clone() {
                    Some((_, outcome)) => return self.repeat(now, submission, new_id, outcome),
                    None if now - self.rows[at].accepted_at >= REMEMBERED_MS => {
                        let outcome = too_old(&submission).into();
                        return self.out.push(AdmissionEffect::Announce { token, outcome, replayed: true });
                    }
                    None => again = Some(at),
                },
            }
        }
        if let Some(error) = self.too_fast(now, &submission) {
            return self.reject(token, error);
        }
        if busy {
            return self.refuse_busy(token);
        }
        let session = submission.session_id.clone().filter(|_| submission.names_session);
        self.charges.push((now, submission.principal.clone(), submission.spec.bucket, session));
        let again = again.map(|at| self.rows.remove(at));
        let mut item = item(now, submission, ModelPhase::InLine);
        item.ends = item.submission.timeout_ms.map(|ms| now + i64::try_from(ms).unwrap());
        item.own_id_is_new = again.is_some() && new_id;
        item.checked = again.is_some();
        item.again = again;
        self.items.push(item);
    }

    fn too_fast(&self, now: i64, submission: &PiServerSubmission) -> Option<String> {
        let session = submission.session_id.clone().filter(|_| submission.names_session);
        let mine =
            self.charges.iter().filter(|charge| charge.0 > now - 60_000 && charge.1 == submission.principal);
        let same = mine.clone().filter(|charge| charge.2 == submission.spec.bucket && charge.3 == session);
        let (mine, same, rate) = (mine.count(), same.count(), self.limits.rate);
        let reached = |count: usize, limit: u32| limit > 0 && count >= limit as usize;
        if submission.spec.bucket == Bucket::UiResponse {
            let limit = rate.ui_per_minute;
            if reached(same, limit) {
                return Some(format!("Extension UI response rate limit exceeded ({limit} responses/minute)"));
            }
        } else if reached(same, rate.per_minute) {
            return Some(format!("Rate limit exceeded ({} commands/minute)", rate.per_minute));
        }
        let limit = rate.global_per_minute;
        reached(mine, limit).then(|| format!("Global rate limit exceeded ({limit} commands/minute)"))
    }

    fn reject(&mut self, token: SubmissionToken, error: String) {
        self.out.push(AdmissionEffect::Announce { token, outcome: failed(error).into(), replayed: false });
    }

    fn refuse_busy(&mut self, token: SubmissionToken) {
        self.reject(token, "Server busy - too many concurrent commands. Please retry.".into());
    }

    fn repeat(&mut self, now: i64, submission: PiServerSubmission, new_id: bool, outcome: PiServerOutcome) {
        let token = submission.token;
        if new_id {
            self.keep_other_id(now, &submission, &outcome);
        }
        self.out.push(AdmissionEffect::Announce { token, outcome: outcome.into(), replayed: true });
    }

    fn keep_other_id(&mut self, now: i64, submission: &PiServerSubmission, outcome: &PiServerOutcome) {
        let (token, uid) = (submission.token, submission.uid.clone());
        self.out.push(AdmissionEffect::Store { token, uid, outcome: outcome.clone().into(), wait: false });
        self.keep(now, ModelRow { key: None, ..row(submission, now, Some((now, outcome.clone()))) });
    }

    fn keep(&mut self, now: i64, row: ModelRow) {
        self.rows.push(row);
        while let Some(at) = excess(&self.rows, &self.limits, now) {
            self.evicted.push(self.rows.remove(at).uid);
        }
    }

    /// The first that can go on does, until nobody can.
    fn go(&mut self, now: i64) {
        while let Some(at) = (0..self.items.len()).find(|at| self.can_go_on(*at)) {
            if self.items[at].state == ModelPhase::InLine {
                self.take_turn(now, at);
                continue;
            }
            let failure = self.items[at].awaited.iter().find_map(|(id, on)| match self.end_of(*on) {
                Some(Some(error)) => Some(format!("Dependency '{id}' failed: {error}")),
                _ => None,
            });
            match failure {
                Some(error) => self.conclude(now, at, failed(error)),
                None => {
                    self.items[at].state = ModelPhase::InLine;
                    self.items[at].waits_until = None;
                }
            }
        }
    }

    fn can_go_on(&self, at: usize) -> bool {
        let item = &self.items[at];
        match item.state {
            ModelPhase::Aside => {
                let ends: Vec<_> = item.awaited.iter().map(|(_, on)| self.end_of(*on)).collect();
                ends.iter().any(|end| matches!(end, Some(Some(_)))) || ends.iter().all(Option::is_some)
            }
            ModelPhase::InLine => {
                let lane = item.lane();
                let lane_is_free = lane.is_none()
                    || !self.items.iter().enumerate().any(|(other_at, other)| {
                        other.lane() == lane
                            && (other.at_turn || (other.state == ModelPhase::InLine && other_at < at))
                    });
                let same =
                    |other: &&ModelCommand| item.session().is_some() && other.session() == item.session();
                let before = || self.items[..at].iter().filter(same);
                let work = item.submission.spec.lane == Lane::Session;
                let born = work || !before().any(|other| other.is_birth() && other.is_there());
                let over = !item.is_birth() || !before().any(|other| other.is_end() && other.is_there());
                let written =
                    !item.follows_rows() || !before().any(|other| other.state == ModelPhase::Writing);
                lane_is_free && born && over && written
            }
            _ => false,
        }
    }

    fn take_turn(&mut self, now: i64, at: usize) {
        let token = self.items[at].submission.token;
        self.items[at].at_turn = self.items[at].lane().is_some() || self.items[at].is_end();
        if !std::mem::replace(&mut self.items[at].started, true) {
            self.out.push(AdmissionEffect::Started(token));
        }
        if !std::mem::replace(&mut self.items[at].checked, true) {
            match self.check_dependencies(at) {
                Err(error) => return self.conclude(now, at, failed(error)),
                Ok(awaited) if awaited.is_empty() => {}
                Ok(awaited) => {
                    let item = &mut self.items[at];
                    item.awaited = awaited;
                    item.state = ModelPhase::Aside;
                    item.at_turn = false;
                    item.waits_until = Some(now + i64::try_from(self.limits.dependency_wait_ms).unwrap());
                    return;
                }
            }
        }
        let again = self.items[at].again.as_ref();
        if again.is_some_and(|row| now - row.accepted_at >= REMEMBERED_MS) {
            self.conclude(now, at, too_old(&self.items[at].submission));
        } else if self.items[at].durable() && again.is_none() {
            self.items[at].state = ModelPhase::Writing;
            self.out.push(AdmissionEffect::Journal(token));
        } else {
            self.work(at);
        }
    }

    fn check_dependencies(&self, at: usize) -> Result<Vec<(String, SubmissionToken)>, String> {
        let item = &self.items[at];
        let mut awaited = Vec::new();
        for id in &item.submission.depends_on {
            if item.submission.id.as_ref() == Some(id) {
                return Err(format!("Command '{id}' cannot depend on itself"));
            }
            match self.find_id(&item.submission.principal, id) {
                None => return Err(format!("Dependency '{id}' is unknown")),
                Some(Found::Row(row)) => match &self.rows[row].done {
                    Some((_, outcome)) if outcome.success => {}
                    Some((_, outcome)) => {
                        return Err(format!(
                            "Dependency '{id}' failed: {}",
                            outcome.error.as_deref().unwrap()
                        ));
                    }
                    None => {
                        return Err(format!(
                            "Dependency '{id}' failed: it was cut off and its outcome is not known; \
                             send it again with the same id to learn it"
                        ));
                    }
                },
                Some(Found::InFlight(on)) => {
                    let behind = on > at && item.lane().is_some() && item.lane() == self.items[on].lane();
                    if on == at || behind || self.leads_to(on, at) {
                        return Err(format!(
                            "Dependency '{id}' is queued in the same lane and cannot be awaited from this command"
                        ));
                    }
                    awaited.push((id.clone(), self.items[on].submission.token));
                }
            }
        }
        Ok(awaited)
    }

    /// Whether a command waits for another one, itself or by others. There are no circles among those that wait.
    fn leads_to(&self, from: usize, to: usize) -> bool {
        from == to
            || self.items[from].state == ModelPhase::Aside
                && self.items[from]
                    .awaited
                    .iter()
                    .any(|(_, on)| self.at(*on).is_some_and(|next| self.leads_to(next, to)))
    }

    fn work(&mut self, at: usize) {
        self.items[at].state = ModelPhase::Working;
        let item = &self.items[at];
        let session_id = item.again.as_ref().and_then(|row| row.session.as_deref()).map(Into::into);
        self.out.push(AdmissionEffect::Execute { token: item.submission.token, uid: item.uid(), session_id });
    }

    fn conclude(&mut self, now: i64, at: usize, outcome: PiServerOutcome) {
        let ending = self.items[at].ending(&outcome);
        self.end(now, at, outcome, ending);
    }

    fn end(&mut self, now: i64, at: usize, outcome: PiServerOutcome, ending: Ending) {
        let item = &mut self.items[at];
        item.ends = None;
        item.waits_until = None;
        let before = std::mem::replace(&mut item.state, ModelPhase::Keeping(outcome.clone(), now));
        if before == ModelPhase::Writing && ending == Ending::Gone {
            self.evicted.push(item.submission.uid.clone());
        }
        let (token, durable) = (item.submission.token, item.durable());
        if ending == Ending::Kept {
            self.out.push(AdmissionEffect::Store {
                token,
                uid: item.uid(),
                outcome: outcome.into(),
                wait: durable,
            });
        }
        if ending != Ending::Kept || !durable {
            self.announce(now, at, ending);
        }
    }

    fn announce(&mut self, now: i64, at: usize, ending: Ending) {
        let item = self.items.remove(at);
        let ModelPhase::Keeping(outcome, finished_at) = item.state.clone() else { unreachable!() };
        let token = item.submission.token;
        let kept = ending == Ending::Kept;
        let done = kept.then(|| (finished_at, outcome.clone()));
        if ending != Ending::Gone {
            let at = if kept { finished_at } else { now };
            match &item.again {
                Some(again) => self.keep(at, ModelRow { done, ..again.clone() }),
                None => self.keep(at, row(&item.submission, item.accepted_at, done)),
            }
        }
        if kept && item.again.is_some() && item.own_id_is_new {
            self.keep_other_id(finished_at, &item.submission, &outcome);
        }
        self.out.push(AdmissionEffect::Announce { token, outcome: outcome.clone().into(), replayed: false });
        while let Some(at) = self
            .items
            .iter()
            .position(|item| matches!(item.state, ModelPhase::Echo(main, _) if main == token))
        {
            let echo = self.items.remove(at);
            let new_id = kept && echo.state == ModelPhase::Echo(token, true);
            self.repeat(now, echo.submission, new_id, outcome.clone());
        }
        let error = (!outcome.success).then(|| outcome.error.as_deref().unwrap().to_owned());
        self.settled.push((token, error));
    }
}

fn too_old(submission: &PiServerSubmission) -> PiServerOutcome {
    let name = submission.spec.name;
    let error = format!(
        "Nobody can know any more whether '{name}' was done: it was cut off too long ago, and is not done again. \
         Look at the session, and send it with another id if it is still wanted"
    );
    PiServerOutcome { indeterminate: true, ..failed(error) }
}
