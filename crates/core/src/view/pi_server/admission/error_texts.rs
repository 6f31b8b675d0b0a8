//! The texts a client may read, as the document and the original word them.
//!
//! Clients compare the document's sentences, so those change only with it.

use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::PiServerOutcome;

pub(super) fn busy() -> CodedError {
    ErrorCode::Busy.with("Server busy - too many concurrent commands. Please retry.")
}

/// What the commands of a principal are told that it may do nothing any more.
pub(super) fn revoked() -> CodedError {
    ErrorCode::PermissionDenied.with("The access token was revoked")
}

/// What a dependent is told of a command that was cut off and nobody has repeated.
pub(super) const IN_DOUBT: &str =
    "it was cut off and its outcome is not known; send it again with the same id to learn it";

/// The outcome of a command that was cut off so long ago that nobody remembers whether it was done.
pub(super) fn too_old(command: &str) -> PiServerOutcome {
    let error = format!(
        "Nobody can know any more whether '{command}' was done: it was cut off too long ago, and is not done \
         again. Look at the session, and send it with another id if it is still wanted"
    );
    PiServerOutcome { indeterminate: true, ..failure(ErrorCode::Indeterminate.with(error)) }
}

pub(super) fn conflict(what: &str, name: &str, before: &str, now: &str) -> CodedError {
    let error = format!("Conflicting {what} '{name}': previously used for '{before}', now used for '{now}'");
    ErrorCode::IdempotencyConflict.with(error)
}

pub(super) fn timed_out(command: &str, after_ms: u64) -> CodedError {
    ErrorCode::TimedOut.with(format!("Command '{command}' timed out after {after_ms}ms"))
}

pub(super) fn dependency_timed_out(id: &str, after_ms: u64) -> CodedError {
    timed_out(&format!("dependsOn:{id}"), after_ms)
}

pub(super) fn depends_on_itself(id: &str) -> CodedError {
    ErrorCode::InvalidRequest.with(format!("Command '{id}' cannot depend on itself"))
}

pub(super) fn dependency_unknown(id: &str) -> CodedError {
    ErrorCode::DependencyFailed.with(format!("Dependency '{id}' is unknown"))
}

/// The most of a dependency's error that is quoted: in a chain of dependents each would quote all before it, and
/// texts that grow with the square of its length are no help to anybody.
const QUOTED_CHARS_MAX: usize = 1000;

pub(super) fn dependency_failed(id: &str, error: &str) -> CodedError {
    let error = match error.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("Dependency '{id}' failed: {error}"),
        Some((end, _)) => format!("Dependency '{id}' failed: {}…", &error[..end]),
    };
    ErrorCode::DependencyFailed.with(error)
}

pub(super) fn dependency_behind(id: &str) -> CodedError {
    let error =
        format!("Dependency '{id}' is queued in the same lane and cannot be awaited from this command");
    ErrorCode::DependencyFailed.with(error)
}

/// Why a command failed, for those that depend on it.
pub(super) fn reason(outcome: &PiServerOutcome) -> Arc<str> {
    outcome.error.clone().unwrap_or_else(|| "no reason was given".into())
}

/// The outcome of a command that failed without being executed.
pub(super) fn failure(error: CodedError) -> PiServerOutcome {
    PiServerOutcome {
        code: Some(error.code),
        error: Some(error.message.into()),
        ..PiServerOutcome::default()
    }
}

/// The name of a key within its scope. The length keeps a scope and a key from being read as another pair.
pub(super) fn scoped(scope: &str, key: &str) -> Box<str> {
    format!("{}:{scope}{key}", scope.len()).into()
}
