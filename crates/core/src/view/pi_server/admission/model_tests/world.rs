//! What is around the machine: clients that send whatever they like, a store, and sessions with versions that do what
//! they are asked at their own pace. The machine and the model get the same calls, and must want the same done.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use qd_wire::command_table::Lane;
use qd_wire::pi_server::spec;

use super::super::{
    Admission, AdmissionEffect, AdmissionLimits, PiServerOutcome, PiServerSubmission, RestoredSubmission,
    SubmissionToken,
};
use super::kinds::kind;
use super::model::Model;
use super::sessions::{fingerprint, lane, perform};
use crate::choices::Choices;

const COMMANDS: &[&str] = &[
    "create_session",
    "load_session",
    "delete_session",
    "prompt",
    "prompt",
    "set_model",
    "set_model",
    "compact",
    "bash",
    "bash",
    "get_state",
    "get_state",
    "switch_session",
    "abort",
    "steer",
    "list_sessions",
    "extension_ui_response",
];

/// How far a command got, as its effects tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Accepted,
    Started,
    Journal,
    Execute,
    Store,
    Announced,
}

#[derive(Clone)]
struct StoredRow {
    submission: PiServerSubmission,
    accepted_at: i64,
    finished: Option<(i64, PiServerOutcome)>,
}

/// A command with the sessions.
struct Work {
    token: SubmissionToken,
    uid: Arc<str>,
    session: Arc<str>,
}

pub(super) struct World {
    now: i64,
    machine: Admission,
    model: Model,
    limits: AdmissionLimits,
    /// What a planted fault does to the submissions the machine gets.
    fault: fn(&mut PiServerSubmission),
    sent: Vec<PiServerSubmission>,
    /// When each was sent.
    sent_at: Vec<i64>,
    stages: HashMap<SubmissionToken, Stage>,
    calls: u64,
    /// In which call a command was started.
    started_in: HashMap<SubmissionToken, u64>,
    journaling: Vec<SubmissionToken>,
    working: Vec<Work>,
    storing: Vec<SubmissionToken>,
    overdue: Vec<SubmissionToken>,
    /// In the order of writing; the last ones may not be on disk yet.
    rows: Vec<StoredRow>,
    pending_rows: HashMap<SubmissionToken, (Arc<str>, i64, PiServerOutcome)>,
    sessions: BTreeMap<String, u64>,
    /// What each session has done under which uid: they survive the machine, and know nothing of each other.
    done: HashMap<(Arc<str>, Arc<str>), PiServerOutcome>,
    /// Which session was asked to do what: nothing is done in two of them.
    asked: HashMap<Arc<str>, Arc<str>>,
    /// What has happened, and how often.
    pub(super) seen: BTreeMap<&'static str, usize>,
}

impl World {
    pub(super) fn new(limits: AdmissionLimits, fault: fn(&mut PiServerSubmission)) -> Self {
        World {
            now: 1_000_000,
            machine: Admission::new(limits),
            model: Model::new(limits),
            limits,
            fault,
            sent: Vec::new(),
            sent_at: Vec::new(),
            stages: HashMap::new(),
            calls: 0,
            started_in: HashMap::new(),
            journaling: Vec::new(),
            working: Vec::new(),
            storing: Vec::new(),
            overdue: Vec::new(),
            rows: Vec::new(),
            pending_rows: HashMap::new(),
            sessions: BTreeMap::from([("a".into(), 0), ("b".into(), 0)]),
            done: HashMap::new(),
            asked: HashMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// One thing happens.
    pub(super) fn act(&mut self, mut choices: Choices) -> Result<(), String> {
        match choices.below(100) {
            0..37 => self.send_new(&mut choices),
            37..52 => self.send_again(&mut choices),
            52..66 => self.end_work(&mut choices),
            66..78 => self.journal_one(&mut choices),
            78..89 => self.store_one(&mut choices),
            89..96 => self.pass_time(&mut choices),
            96 => self.finish_late(),
            97 => self.revoke(choices.of(&["p", "q"])),
            _ => self.restart(&mut choices),
        }
    }

    /// Everything comes to its end, and nothing is left.
    pub(super) fn wind_down(&mut self) -> Result<(), String> {
        let mut choices = Choices(7);
        while !self.journaling.is_empty() || !self.working.is_empty() || !self.storing.is_empty() {
            self.journal_one(&mut choices)?;
            self.end_work(&mut choices)?;
            self.store_one(&mut choices)?;
        }
        let open: Vec<_> = self.stages.iter().filter(|(_, stage)| **stage != Stage::Announced).collect();
        let metrics = self.machine.metrics("p", self.now);
        check(open.is_empty(), || format!("never finished: {open:?}"))?;
        check(self.machine.next_deadline().is_none(), || "a timer is left".into())?;
        check(metrics.lane_count == 0 && metrics.replay.in_flight_count == 0, || format!("left: {metrics:?}"))
    }

    fn send_new(&mut self, choices: &mut Choices) -> Result<(), String> {
        let name = choices.of(COMMANDS);
        let Some(spec) = spec(name) else { return Err(format!("no command {name}")) };
        let session = choices.of(&["a", "a", "a", "b", "c"]);
        let (session_id, names_session) = match name {
            "list_sessions" => (None, false),
            "create_session" if choices.one_in(2) => (Some(format!("minted-{}", self.sent.len())), false),
            // A client that was told the name of a session uses it.
            _ => match self.rows.iter().rev().find(|row| {
                row.submission.session_id.as_deref().is_some_and(|name| name.starts_with("minted"))
            }) {
                Some(row) if choices.one_in(4) => (row.submission.session_id.clone(), true),
                _ => (Some(session.to_owned()), true),
            },
        };
        // Ids count up as naive clients count; some come twice. Dependencies are on earlier ones mostly.
        let number = self.sent.len() as i64 + 1;
        let near = |choices: &mut Choices, offsets: &[i64]| (number + choices.of(offsets)).to_string();
        let depends_on = (0..choices.of(&[0, 0, 0, 0, 1, 1, 2]))
            .map(|_| match self.sent.iter().rev().filter_map(|sent| sent.id.clone()).nth(choices.below(4)) {
                Some(id) if !choices.one_in(5) => id,
                _ => near(choices, &[0, 1, 1, 1, 2, 2, 90]),
            })
            .collect();
        let if_session_version = choices.one_in(10).then(|| choices.below(3) as u64);
        let mut submission = PiServerSubmission {
            token: 0,
            principal: choices.of(&["p", "p", "p", "p", "p", "q"]).into(),
            spec,
            id: (!choices.one_in(8)).then(|| near(choices, &[0, 0, 0, 0, 0, 0, 0, 0, -1, -5])),
            key: choices.one_in(4).then(|| choices.of(&["x", "y"]).to_owned()),
            session_id,
            names_session,
            depends_on,
            if_session_version,
            fingerprint: [0; 32],
            timeout_ms: choices.of(&[None, None, None, Some(40), Some(100), Some(130)]),
            uid: "".into(),
            frees_lane: false,
        };
        submission.fingerprint = fingerprint(&submission, choices.below(2));
        self.send(submission)
    }

    /// A retry: as it was, under another id, or with only one of its names.
    fn send_again(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let recent = self.sent.len() - 1 - choices.below(self.sent.len().min(8));
        // Many repeat what they got no answer to.
        let cut_off = self.rows.iter().rev().find(|row| row.finished.is_none()).filter(|_| choices.one_in(2));
        let mut submission = cut_off.map_or(&self.sent[recent], |row| &row.submission).clone();
        if !submission.names_session && submission.session_id.is_some() {
            submission.session_id = Some(format!("minted-{}", self.sent.len()));
        }
        match choices.below(6) {
            0 => submission.id = Some((self.sent.len() + 1).to_string()),
            1 => submission.key = None,
            2 => submission.id = None,
            3 => submission.key = Some(choices.of(&["x", "y"]).into()),
            _ => {}
        }
        self.send(submission)
    }

    fn send(&mut self, mut submission: PiServerSubmission) -> Result<(), String> {
        submission.token = self.sent.len() as SubmissionToken + 1;
        submission.uid = format!("u{}", submission.token).into();
        self.sent.push(submission.clone());
        self.sent_at.push(self.now);
        let mut seen = submission.clone();
        (self.fault)(&mut seen);
        let mut effects = Vec::new();
        self.machine.submit(self.now, seen, &mut effects);
        self.model.submit(self.now, submission);
        self.compare(effects)
    }

    fn end_work(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.working.is_empty() {
            return Ok(());
        }
        let work = self.working.remove(choices.below(self.working.len()));
        let token = work.token;
        let outcome = match choices.below(60) {
            // The link is lost, before or after the work is done.
            number @ 0..4 => {
                if number > 1 {
                    self.perform(&work, false);
                }
                PiServerOutcome { indeterminate: true, settled: false, ..failed("The link was lost") }
            }
            4..6 => {
                let outcome = PiServerOutcome { indeterminate: true, ..failed("The runner does not know") };
                self.done.entry((work.session, work.uid)).or_insert(outcome).clone()
            }
            number => self.perform(&work, number < 18),
        };
        self.finish(token, outcome)
    }

    fn finish(&mut self, token: SubmissionToken, outcome: PiServerOutcome) -> Result<(), String> {
        let mut effects = Vec::new();
        self.machine.finish(self.now, token, outcome.clone(), &mut effects);
        self.model.finish(self.now, token, outcome);
        self.compare(effects)
    }

    /// Work that was told to stop ends all the same.
    fn finish_late(&mut self) -> Result<(), String> {
        let Some(token) = self.overdue.pop() else { return Ok(()) };
        self.finish(token, PiServerOutcome { success: true, ..PiServerOutcome::default() })
    }

    fn journal_one(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.journaling.is_empty() {
            return Ok(());
        }
        // Each principal's rows are reported in the order in which its commands came.
        let principal = &self.submission(choices.of(&self.journaling)).principal;
        let own = self.journaling.iter().filter(|token| self.submission(**token).principal == *principal);
        let Some(token) = own.min().copied() else { return Ok(()) };
        self.journaling.retain(|journaling| *journaling != token);
        if choices.one_in(20) {
            let mut effects = Vec::new();
            self.machine.refuse(self.now, token, "The store is full", &mut effects);
            self.model.refuse(self.now, token, "The store is full");
            return self.compare(effects);
        }
        let submission = self.submission(token).clone();
        if !self.rows.iter().any(|row| row.submission.uid == submission.uid) {
            let accepted_at = self.sent_at[token as usize - 1];
            self.rows.push(StoredRow { submission, accepted_at, finished: None });
        }
        let mut effects = Vec::new();
        self.machine.journaled(self.now, token, &mut effects);
        self.model.journaled(self.now, token);
        self.compare(effects)
    }

    fn store_one(&mut self, choices: &mut Choices) -> Result<(), String> {
        if self.storing.is_empty() {
            return Ok(());
        }
        let token = self.storing.remove(choices.below(self.storing.len()));
        if let Some((uid, at, outcome)) = self.pending_rows.remove(&token) {
            self.write(token, &uid, at, outcome);
        }
        let mut effects = Vec::new();
        self.machine.stored(self.now, token, &mut effects);
        self.model.stored(self.now, token);
        self.compare(effects)
    }

    fn write(&mut self, token: SubmissionToken, uid: &Arc<str>, at: i64, outcome: PiServerOutcome) {
        match self.rows.iter_mut().find(|row| row.submission.uid == *uid) {
            Some(row) => row.finished = Some((at, outcome)),
            None => {
                let submission = self.submission(token).clone();
                let accepted_at = self.sent_at[token as usize - 1];
                self.rows.push(StoredRow { submission, accepted_at, finished: Some((at, outcome)) });
            }
        }
    }

    fn pass_time(&mut self, choices: &mut Choices) -> Result<(), String> {
        self.now += choices.of(&[1, 1, 10, 10, 45, 45, 90, 90, 140, 140, 30_000, 30_000, 82_800_000]);
        let mut effects = Vec::new();
        self.machine.tick(self.now, &mut effects);
        self.model.tick(self.now);
        self.compare(effects)
    }

    fn revoke(&mut self, principal: &str) -> Result<(), String> {
        let mut effects = Vec::new();
        self.machine.principal_revoked(self.now, principal, &mut effects);
        self.model.revoke(self.now, principal);
        self.compare(effects)
    }

    /// The process dies and starts again: what was not on disk is gone, what was cut off is in doubt.
    fn restart(&mut self, choices: &mut Choices) -> Result<(), String> {
        self.machine = Admission::new(self.limits);
        self.model = Model::new(self.limits);
        self.stages.retain(|_, stage| *stage == Stage::Announced);
        // The sessions go on: some of what they had been asked they do, the rest they never got.
        while !self.working.is_empty() {
            let work = self.working.remove(0);
            if choices.one_in(2) {
                self.perform(&work, false);
            }
        }
        (self.journaling, self.storing, self.overdue) = Default::default();
        self.pending_rows.clear();
        for row in self.rows.clone() {
            let submission = &row.submission;
            let restored = RestoredSubmission {
                token: submission.token,
                principal: submission.principal.clone(),
                id: submission.id.clone(),
                key: submission.key.clone(),
                scope: Admission::scope(submission).to_owned(),
                command: submission.spec.name.to_owned(),
                fingerprint: submission.fingerprint,
                uid: submission.uid.clone(),
                finished_at: row.finished.as_ref().map(|(at, _)| *at),
                outcome: row.finished.as_ref().map(|(_, outcome)| outcome.clone()),
                session_id: submission.session_id.clone(),
                accepted_at: row.accepted_at,
            };
            self.machine.restore(RestoredSubmission {
                fingerprint: self.seen_fingerprint(submission),
                ..restored.clone()
            });
            self.model.restore(restored);
        }
        self.compare(Vec::new())
    }

    fn seen_fingerprint(&self, submission: &PiServerSubmission) -> [u8; 32] {
        let mut seen = submission.clone();
        (self.fault)(&mut seen);
        seen.fingerprint
    }

    fn submission(&self, token: SubmissionToken) -> &PiServerSubmission {
        &self.sent[token as usize - 1]
    }

    /// What the session's authority does: once per uid, and with the version rules of section 10.
    fn perform(&mut self, work: &Work, fails: bool) -> PiServerOutcome {
        let name = (work.session.clone(), work.uid.clone());
        if let Some(outcome) = self.done.get(&name) {
            return outcome.clone();
        }
        let submission = &self.sent[work.token as usize - 1];
        let outcome = match perform(&mut self.sessions, submission, &work.session, fails) {
            Ok(session_version) => {
                // Some of what is read is long.
                let more = if submission.spec.mutating { 0 } else { work.token as usize % 3 * 40 };
                let data = format!("{{\"done\":\"{}\"}}{:more$}", work.uid, "");
                PiServerOutcome {
                    success: true,
                    data: Some(data.into()),
                    session_version,
                    ..PiServerOutcome::default()
                }
            }
            Err(error) => failed(&error),
        };
        if submission.spec.mutating {
            self.done.insert(name, outcome.clone());
        }
        outcome
    }

    /// Both must want the same; what they want is then done.
    fn compare(&mut self, effects: Vec<AdmissionEffect>) -> Result<(), String> {
        let expected = self.model.effects();
        // The model knows the document's sentences; that each has a code is checked here.
        let effects: Vec<AdmissionEffect> =
            effects.into_iter().map(without_code).collect::<Result<_, _>>()?;
        check(effects == expected, || format!("machine {effects:#?}\nmodel {expected:#?}"))?;
        let (evicted, expected) = (self.machine.evicted(), self.model.evicted());
        check(evicted == expected, || {
            format!("forgotten by the machine {evicted:?}, by the model {expected:?}")
        })?;
        self.calls += 1;
        for effect in effects {
            self.carry_out(effect)?;
        }
        self.rows.retain(|row| !evicted.contains(&row.submission.uid));
        Ok(())
    }

    fn carry_out(&mut self, effect: AdmissionEffect) -> Result<(), String> {
        match effect {
            AdmissionEffect::Accepted(token) => self.reach(token, Stage::Accepted)?,
            AdmissionEffect::Started(token) => {
                self.reach(token, Stage::Started)?;
                self.started_in.insert(token, self.calls);
            }
            AdmissionEffect::Journal(token) => {
                self.reach(token, Stage::Journal)?;
                self.journaling.push(token);
            }
            AdmissionEffect::Execute { token, uid, session_id } => self.begin(token, uid, session_id)?,
            AdmissionEffect::Cancel { token, .. } => {
                self.working.retain(|work| work.token != token);
                self.overdue.push(token);
            }
            AdmissionEffect::Store { token, uid, outcome, wait: true } => {
                self.reach(token, Stage::Store)?;
                self.journaling.retain(|journaling| *journaling != token);
                self.pending_rows.insert(token, (uid, self.now, (*outcome).clone()));
                self.storing.push(token);
            }
            AdmissionEffect::Store { token, uid, outcome, wait: false } => {
                self.write(token, &uid, self.now, (*outcome).clone());
            }
            AdmissionEffect::Announce { token, outcome, replayed } => {
                check(!self.storing.contains(&token), || format!("{token} announced before it is stored"))?;
                self.reach(token, Stage::Announced)?;
                let what = kind(&outcome);
                self.journaling.retain(|journaling| *journaling != token);
                self.note(if replayed && what != "too old" { "replayed" } else { what });
            }
        }
        Ok(())
    }

    /// Accepted comes first, everything at most once, and nothing after the announcement.
    fn reach(&mut self, token: SubmissionToken, stage: Stage) -> Result<(), String> {
        let before = self.stages.insert(token, stage);
        let in_order = match before {
            None => stage == Stage::Accepted,
            Some(before) => before < stage,
        };
        check(in_order, || format!("{token} went from {before:?} to {stage:?}"))
    }

    fn begin(
        &mut self,
        token: SubmissionToken,
        uid: Arc<str>,
        session_id: Option<Arc<str>>,
    ) -> Result<(), String> {
        self.reach(token, Stage::Execute)?;
        let submission = self.submission(token);
        let own: Arc<str> = submission.session_id.as_deref().unwrap_or_default().into();
        let (is_taken_up, is_read) = (uid != submission.uid, !submission.spec.mutating);
        let is_elsewhere = session_id.as_ref().is_some_and(|session| *session != own);
        let session = session_id.unwrap_or(own);
        let before = self.asked.insert(uid.clone(), session.clone());
        check(before.as_ref().is_none_or(|before| *before == session), || {
            format!("{uid} was asked of {before:?} and of {session}")
        })?;
        self.is_in_order(token, &session)?;
        if is_elsewhere {
            self.note("taken up elsewhere");
        } else if is_taken_up {
            self.note("taken up");
        } else if self.started_in[&token] < self.calls && is_read {
            self.note("waited, then done");
        }
        self.working.push(Work { token, uid, session });
        Ok(())
    }

    /// Nobody else of its lane is at work (section 7.3), and it overtakes nobody who waits only for the store.
    fn is_in_order(&self, token: SubmissionToken, session: &str) -> Result<(), String> {
        let submission = self.submission(token);
        let lane_of = lane(submission, session);
        let same =
            |work: &&Work| lane_of.is_some() && lane_of == lane(self.submission(work.token), &work.session);
        let beside = self.working.iter().find(same).map(|work| work.token);
        check(beside.is_none(), || format!("{token} goes beside {beside:?} in lane {lane_of:?}"))?;
        let mut overtaken = self.journaling.iter().filter(|other| {
            let sent = self.submission(**other);
            **other < token
                && sent.principal == submission.principal
                && sent.session_id.as_deref() == Some(session)
        });
        let is_read = submission.spec.lane == Lane::Read;
        check(is_read || overtaken.next().is_none(), || format!("{token} overtakes another: {submission:?}"))
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

fn failed(error: &str) -> PiServerOutcome {
    PiServerOutcome { error: Some(error.into()), ..PiServerOutcome::default() }
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(complaint()) }
}

/// The same effect without the code of its error, which must be there for every error of the machine's own.
fn without_code(effect: AdmissionEffect) -> Result<AdmissionEffect, String> {
    let plain =
        |outcome: Arc<PiServerOutcome>| Arc::new(PiServerOutcome { code: None, ..(*outcome).clone() });
    Ok(match effect {
        AdmissionEffect::Announce { token, outcome, replayed } => {
            AdmissionEffect::Announce { token, outcome: plain(outcome), replayed }
        }
        AdmissionEffect::Store { token, uid, outcome, wait } => {
            AdmissionEffect::Store { token, uid, outcome: plain(outcome), wait }
        }
        other => other,
    })
}
