//! Each rule of sections 7 to 11 by itself, with its error_texts.

use super::{
    Admission, AdmissionEffect, AdmissionLimits, IN_DOUBT_MAX_MS, PiServerOutcome, PiServerSubmission,
    RestoredSubmission, SubmissionToken, error_texts, rate,
};

use qd_wire::pi_server::spec;

mod bounds;
mod dependencies;
mod doubt;
mod durability;
mod lanes;
mod replay;
mod timeouts;

/// A machine with its clock and a caller that journals and stores at once, unless told not to.
struct TestAdmission {
    admission: Admission,
    now: i64,
    tokens: SubmissionToken,
    /// Whether journal and store answer at once.
    prompt_store: bool,
}

impl TestAdmission {
    fn new() -> Self {
        TestAdmission::with(AdmissionLimits {
            rate: rate::RateLimits { per_minute: 0, global_per_minute: 0, ui_per_minute: 0 },
            ..AdmissionLimits::default()
        })
    }

    fn with(limits: AdmissionLimits) -> Self {
        TestAdmission { admission: Admission::new(limits), now: 1_000, tokens: 0, prompt_store: true }
    }

    fn call(
        &mut self,
        call: impl FnOnce(&mut Admission, i64, &mut Vec<AdmissionEffect>),
    ) -> Vec<AdmissionEffect> {
        let mut effects = Vec::new();
        call(&mut self.admission, self.now, &mut effects);
        let mut done = 0;
        while self.prompt_store && done < effects.len() {
            match effects[done].clone() {
                AdmissionEffect::Journal(token) => self.admission.journaled(self.now, token, &mut effects),
                AdmissionEffect::Store { token, wait: true, .. } => {
                    self.admission.stored(self.now, token, &mut effects)
                }
                _ => {}
            }
            done += 1;
        }
        effects
    }

    fn send(&mut self, submission: PiServerSubmission) -> (SubmissionToken, Vec<String>) {
        self.tokens += 1;
        let token = self.tokens;
        let uid = format!("u{token}").into();
        let submission = PiServerSubmission { token, uid, ..submission };
        (token, told(&self.call(|admission, now, effects| admission.submit(now, submission, effects))))
    }

    fn succeed(&mut self, token: SubmissionToken) -> Vec<String> {
        let outcome = PiServerOutcome {
            success: true,
            data: Some(format!("\"{token}\"").into()),
            ..PiServerOutcome::default()
        };
        self.finish(token, outcome)
    }

    fn fail(&mut self, token: SubmissionToken, error: &str) -> Vec<String> {
        self.finish(token, error_texts::failure(qd_wire::ErrorCode::Failed.with(error)))
    }

    fn finish(&mut self, token: SubmissionToken, outcome: PiServerOutcome) -> Vec<String> {
        told(&self.call(|admission, now, effects| admission.finish(now, token, outcome, effects)))
    }

    fn refuse(&mut self, token: SubmissionToken, error: &str) -> Vec<String> {
        told(&self.call(|admission, now, effects| admission.refuse(now, token, error, effects)))
    }

    fn revoke(&mut self, principal: &str) -> Vec<String> {
        told(&self.call(|admission, now, effects| admission.principal_revoked(now, principal, effects)))
    }

    fn pass(&mut self, ms: i64) -> Vec<String> {
        self.now += ms;
        told(&self.call(|admission, now, effects| admission.tick(now, effects)))
    }
}

/// A command of principal `p`, whose meaning is its name, session and dependencies.
fn command(name: &str, session: &str) -> PiServerSubmission {
    let mut fingerprint = [0; 32];
    for (at, byte) in name.bytes().chain(session.bytes()).enumerate() {
        fingerprint[at % 32] ^= byte;
    }
    PiServerSubmission {
        token: 0,
        principal: "p".into(),
        spec: spec(name).unwrap(),
        id: None,
        key: None,
        session_id: (!session.is_empty()).then(|| session.to_owned()),
        names_session: !session.is_empty(),
        depends_on: Vec::new(),
        if_session_version: None,
        fingerprint,
        timeout_ms: None,
        uid: "".into(),
        frees_lane: false,
    }
}

impl PiServerSubmission {
    fn id(self, id: &str) -> Self {
        PiServerSubmission { id: Some(id.into()), ..self }
    }

    fn key(self, key: &str) -> Self {
        PiServerSubmission { key: Some(key.into()), ..self }
    }

    fn after(self, ids: &[&str]) -> Self {
        PiServerSubmission { depends_on: ids.iter().map(|id| (*id).to_owned()).collect(), ..self }
    }

    fn of(self, principal: &str) -> Self {
        PiServerSubmission { principal: principal.into(), ..self }
    }

    fn within(self, ms: u64) -> Self {
        PiServerSubmission { timeout_ms: Some(ms), ..self }
    }

    fn other_payload(self) -> Self {
        let mut fingerprint = self.fingerprint;
        fingerprint[31] ^= 1;
        PiServerSubmission { fingerprint, ..self }
    }
}

/// When rows of an earlier life were accepted.
const ACCEPTED_AT: i64 = 500;

fn row(
    submission: &PiServerSubmission,
    uid: &str,
    done: Option<(i64, PiServerOutcome)>,
) -> RestoredSubmission {
    RestoredSubmission {
        token: 0,
        principal: submission.principal.clone(),
        id: submission.id.clone(),
        key: submission.key.clone(),
        scope: Admission::scope(submission).to_owned(),
        command: submission.spec.name.to_owned(),
        fingerprint: submission.fingerprint,
        uid: uid.into(),
        finished_at: done.as_ref().map(|(at, _)| *at),
        outcome: done.map(|(_, outcome)| outcome),
        session_id: submission.session_id.clone(),
        accepted_at: ACCEPTED_AT,
    }
}

fn success(data: &str) -> PiServerOutcome {
    PiServerOutcome { success: true, data: Some(data.into()), ..PiServerOutcome::default() }
}

/// Effects as short error_texts: what happened to which token.
fn told(effects: &[AdmissionEffect]) -> Vec<String> {
    effects.iter().map(word).collect()
}

fn word(effect: &AdmissionEffect) -> String {
    match effect {
        AdmissionEffect::Accepted(token) => format!("accepted {token}"),
        AdmissionEffect::Started(token) => format!("started {token}"),
        AdmissionEffect::Journal(token) => format!("journal {token}"),
        AdmissionEffect::Execute { token, uid, session_id: None } => format!("execute {token} as {uid}"),
        AdmissionEffect::Execute { token, uid, session_id: Some(session) } => {
            format!("execute {token} as {uid} in {session}")
        }
        AdmissionEffect::Cancel { token, uid } => format!("cancel {token} as {uid}"),
        AdmissionEffect::Store { token, uid, wait, .. } => {
            format!("store {token} as {uid}{}", if *wait { "" } else { " behind" })
        }
        AdmissionEffect::Announce { token, outcome, replayed } => {
            let how = if *replayed { "replayed" } else { "finished" };
            let text = outcome.error.as_deref().or(outcome.data.as_deref()).unwrap_or("nothing");
            format!("{how} {token}: {text}")
        }
    }
}

/// Only what clients see of it.
fn seen(told: Vec<String>) -> Vec<String> {
    let wire = ["accepted", "started", "finished", "replayed"];
    told.into_iter().filter(|line| wire.iter().any(|word| line.starts_with(word))).collect()
}

#[test]
fn the_figures_are_told() {
    let mut desk = TestAdmission::with(AdmissionLimits {
        in_flight_max: 2,
        rate: rate::RateLimits { per_minute: 3, global_per_minute: 4, ui_per_minute: 1 },
        ..AdmissionLimits::default()
    });
    let (first, _) = desk.send(command("prompt", "s").id("a").key("k"));
    desk.send(command("bash", "t").id("b"));
    desk.send(command("prompt", "s").id("a").key("k"));
    desk.send(command("set_model", "s").id("c"));
    desk.succeed(first);
    desk.send(command("set_model", "s").id("c"));
    let metrics = desk.admission.metrics("p", desk.now);
    assert_eq!((metrics.global_count, metrics.global_limit), (3, 4));
    assert_eq!((metrics.executed, metrics.lane_count), (3, 2));
    let replay = metrics.replay;
    assert_eq!((replay.in_flight_count, replay.max_in_flight_commands), (2, 2));
    assert_eq!((replay.outcome_count, replay.idempotency_cache_size), (1, 1));
    assert_eq!(replay.in_flight_rejections, 2, "a repeat that would wait counts as one in flight");
}

#[test]
fn too_many_in_flight_are_refused_and_not_remembered() {
    let mut desk = TestAdmission::with(AdmissionLimits { in_flight_max: 1, ..AdmissionLimits::default() });
    let (first, _) = desk.send(command("get_state", "s").id("a"));
    let busy = "Server busy - too many concurrent commands. Please retry.";
    let (second, told) = desk.send(command("get_messages", "s").id("b"));
    assert_eq!(told, [format!("accepted {second}"), format!("finished {second}: {busy}")]);
    desk.succeed(first);
    let (third, told) = desk.send(command("get_messages", "s").id("b"));
    assert_eq!(told[2], format!("execute {third} as u3"), "the id is still free");
}

#[test]
fn rates_are_refused_and_replays_are_free() {
    let mut desk = TestAdmission::with(AdmissionLimits {
        rate: rate::RateLimits { per_minute: 1, ..rate::RateLimits::default() },
        ..AdmissionLimits::default()
    });
    let (first, _) = desk.send(command("get_state", "s").id("a"));
    desk.succeed(first);
    let (second, told) = desk.send(command("get_state", "s").id("b"));
    let error = "Rate limit exceeded (1 commands/minute)";
    assert_eq!(told, [format!("accepted {second}"), format!("finished {second}: {error}")]);
    let (third, told) = desk.send(command("get_state", "s").id("a"));
    assert_eq!(told, [format!("accepted {third}"), format!("replayed {third}: \"1\"")]);
    let (_, told) = desk.send(command("get_state", "t").id("b"));
    assert_eq!(told.len(), 3, "another session has its own bucket, and the id is still free");
    assert_eq!(desk.admission.metrics("p", desk.now).rate_limit_rejections, 1);
}
