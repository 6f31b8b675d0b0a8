//! The runner's ledger behind a lock, and who waits for what.
//!
//! The lock is held for a decision and never while something is sent: waiters are collected first and told
//! afterwards.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use qd_core::ledger::{
    CommandId, CommandOutcome, IdempotencyKey, Ledger, LedgerLimits, LedgerRejection, LedgerVerdict,
    ReleasedCommands, Submission, SubmissionToken,
};
use qd_link::mutex::Mutex;
use qd_store::{OutcomeRow, OutcomeStatus};
use qd_wire::{CodedError, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::session::{IncomingCommand, SessionInput};

/// Said of a command that was cut off by a crash.
pub(crate) const INDETERMINATE: &str = "Indeterminate: qd stopped before the command's result was known; look at the session, then send it again \
     with a new idempotency_key";

/// What a command came to: the `data` of its answer, or why there is none.
type CommandResult = Result<Option<Arc<str>>, CodedError>;

/// What a waiting command is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WaitResult {
    /// The command it duplicates has finished.
    Joined(CommandOutcome),
    /// Its dependencies have succeeded.
    Ready,
    /// A dependency failed.
    Failed(LedgerRejection),
}

/// Whom to tell.
pub(crate) enum WaitOwner {
    Session(mpsc::Sender<SessionInput>),
    Once(oneshot::Sender<WaitResult>),
}

/// All submissions of a runner.
#[derive(Default)]
pub(crate) struct Submissions {
    inner: Mutex<LedgerState>,
    next_token: AtomicU64,
    /// By session, until the session has told of them.
    cut_off: Mutex<BTreeMap<String, Vec<CutOffCommand>>>,
}

/// A submission that was under way when the runner died, and of which no one has been told.
pub(crate) struct CutOffCommand {
    pub(crate) row: OutcomeRow,
    /// The beginning of what it said.
    pub(crate) beginning: String,
}

impl CutOffCommand {
    /// The row of a submission whose fate has been told.
    pub(crate) fn into_reported_row(self) -> OutcomeRow {
        let response_json = stored_response(&indeterminate(&self.row.cmd));
        OutcomeRow { response_json, status: OutcomeStatus::Indeterminate, ..self.row }
    }
}

/// What is stored in the place of an answer while there is none.
#[derive(Serialize, Deserialize)]
struct StoredBeginning {
    begun: String,
}

#[derive(Default)]
struct LedgerState {
    ledger: Ledger,
    owners: HashMap<SubmissionToken, WaitOwner>,
}

/// What is stored of an answer.
#[derive(Serialize, Deserialize)]
struct StoredResponse {
    success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Absent in rows of versions before codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_version: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
}

impl Submissions {
    /// Takes up what survived a restart.
    pub(crate) fn restore(rows: Vec<OutcomeRow>) -> Self {
        let mut ledger = Ledger::new(LedgerLimits::default());
        let mut next_token = 0;
        let mut cut_off: BTreeMap<String, Vec<CutOffCommand>> = BTreeMap::new();
        for row in rows {
            if let Some(beginning) = beginning_of(&row) {
                cut_off
                    .entry(row.session_id.clone())
                    .or_default()
                    .push(CutOffCommand { row: row.clone(), beginning });
            }
            let Ok(fingerprint) = <[u8; 32]>::try_from(row.fingerprint.as_ref()) else { continue };
            let outcome = stored_outcome(&row);
            let key = row.idempotency_key.map(|key| IdempotencyKey {
                principal: row.principal.clone(),
                scope: row.session_id,
                key,
            });
            let id = (!row.id.is_empty()).then_some(CommandId {
                principal: row.principal,
                connection: String::new(),
                id: row.id,
            });
            next_token += 1;
            let submission =
                Submission { token: next_token, cmd: row.cmd, key, id, fingerprint, depends_on: Vec::new() };
            ledger.restore(submission, row.created_at, outcome);
        }
        let inner = Mutex::new(LedgerState { ledger, owners: HashMap::new() });
        let next_token = AtomicU64::new(next_token + 1);
        Submissions { inner, next_token, cut_off: Mutex::new(cut_off) }
    }

    /// What was under way in a session when the runner died; given once.
    pub(crate) fn take_cut_off(&self, session_id: &str) -> Vec<CutOffCommand> {
        let mut cut_off = self.cut_off.lock();
        cut_off.remove(session_id).unwrap_or_default()
    }

    pub(crate) fn token(&self) -> SubmissionToken {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the command is a repeat, whose answer is known or on its way.
    pub(crate) fn is_repeat(&self, now: i64, submission: &Submission) -> bool {
        self.inner.lock().ledger.is_repeat(now, submission)
    }

    /// Asks the ledger; a command that waits is told through `owner`.
    pub(crate) fn submit(
        &self,
        now: i64,
        submission: Submission,
        owner: impl FnOnce() -> WaitOwner,
    ) -> LedgerVerdict {
        let token = submission.token;
        let mut inner = self.inner.lock();
        let verdict = inner.ledger.submit(now, submission);
        if matches!(verdict, LedgerVerdict::Wait | LedgerVerdict::Join) {
            inner.owners.insert(token, owner());
        }
        verdict
    }

    /// Notes a command that was answered as soon as it came.
    pub(crate) fn answered_at_once(&self, incoming: &IncomingCommand) {
        if let Some(id) = &incoming.client_command_id {
            let IncomingCommand { token, principal, connection, .. } = incoming;
            self.inner.lock().ledger.answered_at_once(*token, principal, connection, id);
        }
    }

    /// Notes the end of a command and wakes whoever waited for it.
    pub(crate) fn finish(&self, now: i64, token: SubmissionToken, outcome: &CommandOutcome) {
        let mut inner = self.inner.lock();
        inner.owners.remove(&token);
        let released = inner.ledger.finish(now, token, outcome);
        let mut deliveries = Vec::new();
        let ReleasedCommands { joined, ready, failed } = released;
        let releases = joined
            .into_iter()
            .map(|token| (token, WaitResult::Joined(outcome.clone())))
            .chain(ready.into_iter().map(|token| (token, WaitResult::Ready)))
            .chain(failed.into_iter().map(|(token, error)| (token, WaitResult::Failed(error))));
        for (token, release) in releases {
            if let Some(owner) = inner.owners.remove(&token) {
                deliveries.push((token, release, owner));
            }
        }
        drop(inner);
        for (token, release, owner) in deliveries {
            deliver(token, release, owner);
        }
    }

    /// The ids a command still waits for.
    pub(crate) fn missing(&self, token: SubmissionToken) -> Vec<String> {
        self.inner.lock().ledger.missing(token)
    }
}

fn deliver(token: SubmissionToken, release: WaitResult, owner: WaitOwner) {
    match owner {
        // A receiver that is gone has already answered for itself.
        WaitOwner::Once(sender) => drop(sender.send(release)),
        WaitOwner::Session(sender) => {
            // The mailbox may be full at this moment, and its owner may be waiting for us.
            tokio::spawn(async move {
                let input = SessionInput::Released { token, release: Box::new(release) };
                if sender.send(input).await.is_err() {
                    tracing::debug!(token, "a waiting command's session is gone");
                }
            });
        }
    }
}

/// The row that makes an outcome durable.
pub(crate) fn outcome_row(submission: &Submission, now: i64, outcome: Option<&CommandOutcome>) -> OutcomeRow {
    let principal = match (&submission.key, &submission.id) {
        (Some(key), _) => key.principal.clone(),
        (None, Some(id)) => id.principal.clone(),
        (None, None) => String::new(),
    };
    OutcomeRow {
        principal,
        id: submission.id.as_ref().map(|id| id.id.clone()).unwrap_or_default(),
        session_id: submission.key.as_ref().map(|key| key.scope.clone()).unwrap_or_default(),
        idempotency_key: submission.key.as_ref().map(|key| key.key.clone()),
        fingerprint: Bytes::copy_from_slice(&submission.fingerprint),
        cmd: submission.cmd.clone(),
        response_json: outcome.and_then(stored_response),
        created_at: now,
        status: match outcome {
            None => OutcomeStatus::InFlight,
            Some(outcome) if outcome.indeterminate => OutcomeStatus::Indeterminate,
            Some(_) => OutcomeStatus::Done,
        },
    }
}

/// The row of a submission that is about to run: after a crash it tells a person what was cut off.
pub(crate) fn in_flight_row(submission: &Submission, now: i64, beginning: &str) -> OutcomeRow {
    let begun = serde_json::to_vec(&StoredBeginning { begun: beginning.to_owned() });
    OutcomeRow { response_json: begun.ok().map(Bytes::from), ..outcome_row(submission, now, None) }
}

fn beginning_of(row: &OutcomeRow) -> Option<String> {
    if row.status == OutcomeStatus::Done {
        return None;
    }
    let stored: StoredBeginning = serde_json::from_slice(row.response_json.as_ref()?).ok()?;
    Some(stored.begun)
}

fn stored_outcome(row: &OutcomeRow) -> CommandOutcome {
    let stored: Option<StoredResponse> =
        row.response_json.as_ref().and_then(|json| serde_json::from_slice(json).ok());
    match stored {
        Some(stored) if row.status != OutcomeStatus::InFlight => CommandOutcome {
            cmd: row.cmd.clone(),
            result: if stored.success {
                Ok(stored.data.map(|data| Arc::from(data.get())))
            } else {
                let error = stored.error.unwrap_or_default();
                let code = stored.code.unwrap_or_else(|| ErrorCode::of_older_peer(&error));
                Err(code.with(error))
            },
            session_version: stored.session_version,
            indeterminate: row.status == OutcomeStatus::Indeterminate,
            timed_out: stored.timed_out,
        },
        _ => indeterminate(&row.cmd),
    }
}

/// The outcome of a command of which nobody knows what became.
fn indeterminate(cmd: &str) -> CommandOutcome {
    let result = Err(ErrorCode::Indeterminate.with(INDETERMINATE));
    CommandOutcome { indeterminate: true, ..plain_outcome(cmd, result) }
}

/// An outcome that says no more than its result.
pub(crate) fn plain_outcome(cmd: &str, result: CommandResult) -> CommandOutcome {
    let cmd = cmd.to_owned();
    CommandOutcome { cmd, result, session_version: None, indeterminate: false, timed_out: false }
}

fn stored_response(outcome: &CommandOutcome) -> Option<Bytes> {
    let CommandOutcome { result, session_version, timed_out, .. } = outcome;
    let data = result.as_ref().ok().and_then(|data| RawValue::from_string(data.as_ref()?.to_string()).ok());
    let error = result.as_ref().err();
    let stored = StoredResponse {
        success: result.is_ok(),
        data,
        error: error.map(|error| error.message.clone()),
        code: error.map(|error| error.code),
        session_version: *session_version,
        timed_out: *timed_out,
    };
    serde_json::to_vec(&stored).ok().map(Bytes::from)
}
