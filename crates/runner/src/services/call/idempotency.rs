//! Calls with an identity run at most once: a repeat gets the outcome of the first.
//!
//! Only calls with an `idempotency_key` or with `depends_on` are known to the ledger: the answers of the others may be
//! large, and nobody can name them again.

use std::sync::Arc;
use std::time::Duration;

use qd_core::ledger::{CommandOutcome, LedgerVerdict, Submission};
use qd_store::RunnerBatch;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::oneshot;

use super::{ServiceError, ServiceResult};
use crate::clock::now_ms;
use crate::session::{IncomingCommand, RunnerContext};
use crate::submissions::{WaitOwner, WaitResult, in_flight_row, outcome_row, plain_outcome};

/// How long a call waits for those it depends on.
const DEPENDENCY_WAIT: Duration = Duration::from_secs(30);

/// Bounds of what a sender may write there, as for commands of sessions.
const KEY_BYTES_MAX: usize = 256;
const DEPENDENCIES_MAX: usize = 32;

/// What the ledger says to a call.
pub(crate) enum CallAdmission {
    /// It goes on; with its identity, if it has one.
    Go(Option<Box<Submission>>),
    /// It has been done.
    Replay(Box<CommandOutcome>),
    Refused(CodedError),
}

/// Asks the ledger, and waits for what the call depends on or repeats.
pub(crate) async fn admit(shared: &RunnerContext, scope: &str, incoming: &IncomingCommand) -> CallAdmission {
    if incoming.idempotency_key.is_none() && incoming.depends_on.is_empty() {
        return CallAdmission::Go(None);
    }
    let key = incoming.idempotency_key.as_ref();
    if key.is_some_and(|key| key.trim().is_empty() || key.len() > KEY_BYTES_MAX) {
        return CallAdmission::Refused(CodedError::invalid(format!(
            "idempotency_key: Must have 1 to {KEY_BYTES_MAX} bytes"
        )));
    }
    if incoming.depends_on.len() > DEPENDENCIES_MAX {
        return CallAdmission::Refused(CodedError::invalid(format!(
            "depends_on: Too many dependencies (max {DEPENDENCIES_MAX})"
        )));
    }
    let submission = incoming.submission(scope);
    let (sender, release) = oneshot::channel();
    let verdict = shared.submissions.submit(now_ms(), submission.clone(), || WaitOwner::Once(sender));
    let run_admitted = || CallAdmission::Go(Some(Box::new(submission.clone())));
    let release = match verdict {
        LedgerVerdict::Run => return run_admitted(),
        LedgerVerdict::Replay(outcome) => return CallAdmission::Replay(Box::new(outcome)),
        LedgerVerdict::Reject(rejection) => return CallAdmission::Refused(rejection.into()),
        // As long as the first one takes.
        LedgerVerdict::Join => release.await.ok(),
        LedgerVerdict::Wait => tokio::time::timeout(DEPENDENCY_WAIT, release).await.ok().and_then(Result::ok),
    };
    let error = match release {
        Some(WaitResult::Ready) => return run_admitted(),
        Some(WaitResult::Joined(outcome)) => return CallAdmission::Replay(Box::new(outcome)),
        Some(WaitResult::Failed(rejection)) => CodedError::from(rejection),
        None => ErrorCode::TimedOut.with(format!(
            "Command 'depends_on:{}' timed out after {}ms",
            shared.submissions.missing(submission.token).join(", "),
            DEPENDENCY_WAIT.as_millis()
        )),
    };
    let refused = outcome(&incoming.cmd, &Err(error.clone().into()));
    shared.submissions.finish(now_ms(), submission.token, &refused);
    CallAdmission::Refused(error)
}

/// On disk before it runs: after a crash it is known to have been under way.
pub(crate) async fn store_in_flight(
    shared: &RunnerContext,
    submission: &Submission,
    what: &str,
) -> ServiceResult<()> {
    if submission.key.is_none() {
        return Ok(());
    }
    store(shared, in_flight_row(submission, now_ms(), what)).await
}

/// Stores what came of it, and tells whoever waited.
pub(crate) async fn finish(
    shared: &RunnerContext,
    submission: &Submission,
    result: &ServiceResult<Arc<str>>,
) {
    let outcome = outcome(&submission.cmd, result);
    if submission.key.is_some()
        && let Err(error) = store(shared, outcome_row(submission, now_ms(), Some(&outcome))).await
    {
        tracing::error!(%error, cmd = submission.cmd, "the outcome of a service call cannot be stored");
    }
    shared.submissions.finish(now_ms(), submission.token, &outcome);
}

async fn store(shared: &RunnerContext, row: qd_store::OutcomeRow) -> ServiceResult<()> {
    let batch =
        RunnerBatch { session_id: row.session_id.clone(), outcomes: vec![row], ..RunnerBatch::default() };
    let stored = shared.store.commit(batch).await;
    stored.map_err(|error| {
        ErrorCode::StoreUnavailable.with(format!("The runner cannot store anything: {error}")).into()
    })
}

fn outcome(cmd: &str, result: &ServiceResult<Arc<str>>) -> CommandOutcome {
    let outcome = plain_outcome(cmd, result.clone().map(Some).map_err(CodedError::from));
    CommandOutcome { timed_out: matches!(result, Err(ServiceError::Timeout)), ..outcome }
}
