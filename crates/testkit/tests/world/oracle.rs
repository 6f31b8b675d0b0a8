//! What everybody was told, in one place: the fate of each submission, the body of each record.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use qd_wire::{CommandResponse, ErrorCode};

use crate::trace;

/// A command with an idempotency key, sent as often as it takes to learn its fate.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) key: String,
    pub(crate) session: String,
    pub(crate) client: String,
    pub(crate) kind: SubmissionKind,
    pub(crate) sent: u64,
    /// What the runner said, once and for all.
    pub(crate) fate: Option<SubmissionFate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubmissionKind {
    Create {
        runner: String,
    },
    /// Prompt, steer, follow-up and run input: text for the agent, with an image or without.
    Say {
        cmd: &'static str,
        script: &'static str,
        has_image: bool,
    },
    Close,
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubmissionFate {
    Success,
    Failed(String),
    Indeterminate,
}

/// How an answer counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Known for ever.
    Settled,
    /// The runner was not reached, or nobody knows whether it was: ask again.
    AskAgain,
}

/// What the hub, and not a runner, says; then nothing was stored and asking again is right.
fn is_not_reached(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::RunnerOffline
            | ErrorCode::RunnerNotFound
            | ErrorCode::SessionNotFound
            | ErrorCode::HarnessNotFound
            | ErrorCode::LinkLost
            | ErrorCode::TimedOut
            | ErrorCode::StorageFull
            | ErrorCode::ShuttingDown
    )
}

/// The image that some inputs carry; nobody decodes it.
pub(crate) const IMAGE_DATA: &str = "cXVhcnRlcmRlY2s=";

#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) submissions: BTreeMap<String, Submission>,
    /// Sessions that somebody tried to create, and on which runner.
    pub(crate) sessions: BTreeMap<String, String>,
    /// Those whose creation was told.
    pub(crate) created: BTreeSet<String>,
    /// What clients were shown of each record.
    pub(crate) records: BTreeMap<(String, u64), u64>,
    /// The state of each runner as a client was last told it.
    pub(crate) runners: BTreeMap<String, String>,
    /// The state of each session as a client was last told it.
    pub(crate) states: BTreeMap<String, String>,
    /// What was answered to each question, by session and question, where the answer was acknowledged.
    pub(crate) answers: BTreeMap<(String, String), String>,
}

impl Oracle {
    /// Takes the answer to a submission.
    pub(crate) fn answered(&mut self, who: &str, key: &str, response: &CommandResponse) -> Verdict {
        let Some(submission) = self.submissions.get_mut(key) else { return Verdict::Settled };
        let error = response.error.clone().unwrap_or_default();
        let is_replayed = response.replayed == Some(true);
        let fate = if response.success {
            SubmissionFate::Success
        } else if response.indeterminate == Some(true) {
            SubmissionFate::Indeterminate
        } else {
            SubmissionFate::Failed(error)
        };
        let is_final = response.success || is_replayed || {
            !response.code.is_some_and(is_not_reached) && fate != SubmissionFate::Indeterminate
        };
        let text =
            format!("{key} {} -> {fate:?}{}", response.cmd, if is_replayed { " (replayed)" } else { "" });
        trace::note(who, &text);
        if !is_final {
            trace::count("answers unknown");
            return Verdict::AskAgain;
        }
        match &submission.fate {
            None => {
                trace::count(match fate {
                    SubmissionFate::Success => "submissions succeeded",
                    SubmissionFate::Failed(_) => "submissions failed",
                    SubmissionFate::Indeterminate => "submissions indeterminate",
                });
                submission.fate = Some(fate);
            }
            Some(before) if *before != fate => {
                let detail = format!("{key}: {before:?} became {fate:?}");
                trace::violate(who, "outcomes", &detail);
            }
            Some(_) => trace::count("outcomes asked again"),
        }
        Verdict::Settled
    }

    /// An answer to a question was acknowledged: there is one such answer at most.
    pub(crate) fn question_answered(
        &mut self,
        who: &str,
        session: String,
        request_id: String,
        value: String,
    ) {
        trace::count("questions answered");
        let question = (session, request_id);
        if let Some(before) = self.answers.get(&question) {
            trace::violate(who, "answers", &format!("{question:?} took {before:?} and then {value:?}"));
        }
        self.answers.insert(question, value);
    }

    /// A client was shown a record: everybody must be shown the same.
    pub(crate) fn shown(&mut self, who: &str, session: &str, seq: u64, hash: u64) {
        trace::count("records shown");
        match self.records.get(&(session.to_owned(), seq)) {
            None => {
                self.records.insert((session.to_owned(), seq), hash);
            }
            Some(before) if *before != hash => {
                let detail = format!("session {session}: record {seq} is not what others were shown");
                trace::violate(who, "records", &detail);
            }
            Some(_) => {}
        }
    }
}

/// Bodies that were read before; the same bytes say the same.
#[derive(Default)]
pub(crate) struct RecordBodies(RefCell<BTreeMap<u64, u64>>);

impl RecordBodies {
    /// A hash of what a record says; zero for what is none.
    pub(crate) fn hash(&self, text: &str) -> u64 {
        let bytes = trace::fnv(0, text.as_bytes());
        *self.0.borrow_mut().entry(bytes).or_insert_with(|| body_hash(text).unwrap_or(0))
    }
}

/// A hash of what an event says, whatever way its fields are written.
fn body_hash(text: &str) -> Option<u64> {
    let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
    let object = value.as_object_mut()?;
    for envelope in ["channel", "type", "runner_id"] {
        object.remove(envelope);
    }
    Some(trace::fnv(0, canonical(&value).as_bytes()))
}

/// Text with sorted keys.
fn canonical(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(object) => {
            let sorted: BTreeMap<_, _> = object.iter().collect();
            let fields: Vec<String> =
                sorted.into_iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        serde_json::Value::Array(list) => {
            format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}
