//! Error codes: what a program decides by when something was refused or failed. The sentence beside a code is for
//! people and may change; a code never changes its meaning.
//!
//! A new kind of failure gets a code of its own only if a program would act on it; otherwise `failed` or
//! `invalid_request` with a clear sentence is enough.

use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::derive::{JsonSchema, TS};
use serde::{Deserialize, Deserializer, Serialize};

/// What is known of a code beside its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorSpec {
    pub code: ErrorCode,
    /// The status of a REST answer that fails with it.
    pub http_status: u16,
    /// The exit code of `qd` when a command fails with it.
    pub exit_code: u8,
    /// The same request may succeed later, without anybody changing it.
    pub retry: bool,
    pub about: &'static str,
}

macro_rules! error_codes {
    ($($variant:ident $name:literal $status:literal $exit:literal $retry:literal $about:literal;)*) => {
        /// Why a request was refused or failed. One list for every face, the runner link and the command line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, TS, JsonSchema)]
        pub enum ErrorCode {
            $(
                #[doc = $about]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        /// Every code, in the order of the documentation.
        pub const ERRORS: &[ErrorSpec] = &[$(ErrorSpec {
            code: ErrorCode::$variant,
            http_status: $status,
            exit_code: $exit,
            retry: $retry,
            about: $about,
        },)*];

        impl ErrorCode {
            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $name,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            pub const fn exit_code(self) -> u8 {
                match self { $(ErrorCode::$variant => $exit,)* }
            }

            /// The code of this name, if this version knows it.
            pub fn parse(name: &str) -> Option<ErrorCode> {
                match name { $($name => Some(ErrorCode::$variant),)* _ => None }
            }
        }
    };
}

// variant, name, HTTP status, exit code, whether a retry may succeed, meaning
error_codes! {
    InvalidRequest "invalid_request" 400 1 false "A field is missing, has the wrong type or a value that is not allowed.";
    UnknownCommand "unknown_command" 400 1 false "There is no command, channel or route of this name.";
    Unsupported "unsupported" 400 1 false "The command exists, but this session's agent, this runner or this hub cannot do it.";
    TooLarge "too_large" 413 1 false "The request or one of its fields is larger than allowed.";
    NotLoggedIn "not_logged_in" 401 1 false "The request has no valid token or login.";
    PermissionDenied "permission_denied" 403 1 false "The caller's role or token does not have the permission.";
    RunnerRevoked "runner_revoked" 401 1 false "The runner was revoked and has to join again.";
    ForbiddenOrigin "forbidden_origin" 403 1 false "The request came through a host name or from a web page that is not allowed.";
    CodeExpired "code_expired" 410 1 false "The invitation or login code has expired or was used already.";
    Denied "denied" 403 1 false "A person was asked and said no, or there was nobody to ask.";
    NotFound "not_found" 404 1 false "What the request names does not exist: a file, a person, a token, an entry, a command in flight.";
    SessionNotFound "session_not_found" 404 1 false "There is no such session.";
    RunnerNotFound "runner_not_found" 404 1 false "There is no such runner.";
    HarnessNotFound "harness_not_found" 404 1 false "No runner that could take the session has this agent installed.";
    QuestionNotFound "question_not_found" 404 1 false "There is no such question, or it is not open any more.";
    QuestionAnswered "question_answered" 409 1 false "Somebody else has already answered the question.";
    QuestionTimedOut "question_timed_out" 409 1 false "Nobody answered the question in time, so it is settled.";
    AlreadyExists "already_exists" 409 1 false "Something of this name exists already.";
    SessionExists "session_exists" 409 1 false "A session of this name exists already.";
    Conflict "conflict" 409 1 false "The request does not fit the present state; the text says why.";
    WrongRunner "wrong_runner" 409 1 false "The session is on another runner than the request names.";
    VersionMismatch "version_mismatch" 409 1 false "The session changed: it does not have the version named in `if_session_version`.";
    IdempotencyConflict "idempotency_conflict" 409 1 false "The `idempotency_key` was used for another command.";
    SessionClosed "session_closed" 409 1 false "The session is closed; `session.restart` opens it again.";
    RunEnded "run_ended" 409 1 false "The program in the terminal has ended; `session.restart` starts it again.";
    InputClosed "input_closed" 409 1 false "The program has closed its terminal, so it reads no more input.";
    InputFull "input_full" 503 1 true "The program does not read its input at the moment.";
    AgentBusy "agent_busy" 409 1 false "The agent is working; say with `streaming_behavior` when it should read the message.";
    DependencyFailed "dependency_failed" 424 1 false "A command named in `depends_on` failed or is unknown.";
    Cancelled "cancelled" 409 1 false "The command was taken back before it was done.";
    TimedOut "timed_out" 504 1 true "The command was not done in time.";
    Indeterminate "indeterminate" 504 1 false "Nobody can know whether the command took effect. Look before sending it again.";
    RateLimited "rate_limited" 429 1 true "Too many requests in a short time.";
    TooManyInFlight "too_many_in_flight" 429 1 true "Too many commands of this connection wait for their answers; nothing was done.";
    Busy "busy" 503 1 true "Too much is waiting already.";
    LimitReached "limit_reached" 409 1 false "A configured limit is reached, such as the sessions of a runner.";
    StorageFull "storage_full" 507 1 true "The runner has no room for more records until the hub takes some.";
    DiskFull "disk_full" 507 1 false "The runner's disk, or its user's share of it, is full.";
    ProviderPaused "provider_paused" 503 1 true "Calls to a model provider or to the shell fail repeatedly, so they are paused.";
    AgentFailed "agent_failed" 502 1 false "The agent itself refused or reported an error.";
    AgentGone "agent_gone" 502 1 true "The agent's process could not be started or has ended.";
    AgentHung "agent_hung" 502 1 true "The agent's process did not answer and was killed.";
    Interrupted "interrupted" 409 1 true "Quarterdeck stopped while the agent was working; what it had not finished is lost.";
    RunnerOffline "runner_offline" 503 3 true "The runner that could do it is not connected.";
    LinkLost "link_lost" 503 3 true "The connection to the runner ended before it answered; nothing was changed.";
    StoreUnavailable "store_unavailable" 503 3 true "The hub or the runner cannot use its database.";
    ShuttingDown "shutting_down" 503 3 true "The server is stopping.";
    Internal "internal" 500 1 false "A defect of Quarterdeck; its log says more.";
    Failed "failed" 422 1 false "It could not be done, for a reason without a code of its own; also every code that the reader's version does not know.";
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        // A newer peer may have codes that this version does not know; its answer must still be readable.
        Ok(ErrorCode::parse(&name).unwrap_or(ErrorCode::Failed))
    }
}

impl ErrorCode {
    /// The same request may succeed later, without anybody changing it.
    pub fn may_retry(self) -> bool {
        ERRORS.iter().any(|spec| spec.code == self && spec.retry)
    }

    /// What the system's error means for whoever named the file.
    pub fn of_io(error: &io::Error) -> ErrorCode {
        use io::ErrorKind;
        match error.kind() {
            // A path through something that is no directory names nothing.
            ErrorKind::NotFound | ErrorKind::NotADirectory => ErrorCode::NotFound,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ErrorCode::PermissionDenied,
            ErrorKind::AlreadyExists => ErrorCode::AlreadyExists,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
            _ => ErrorCode::Failed,
        }
    }

    /// The error with this code and this sentence.
    pub fn with(self, message: impl Into<String>) -> CodedError {
        CodedError::new(self, message)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An error on its way to whoever asked: a code for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodedError {
    pub code: ErrorCode,
    pub message: String,
    /// The limit that was reached, where a program can keep to it.
    pub limit: Option<u64>,
}

impl CodedError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        CodedError { code, message: message.into(), limit: None }
    }

    /// A field of the request is missing or wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        CodedError::new(ErrorCode::InvalidRequest, message)
    }

    /// Names the limit that was reached.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        CodedError { limit: u64::try_from(limit).ok(), ..self }
    }

    /// Puts words around the message and keeps the code.
    #[must_use]
    pub fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        CodedError { message: reword(&self.message), ..self }
    }

    /// What the operator of a runner can do about [`CodedError::session_limit`]; the end of its sentence.
    pub const SESSION_LIMIT_ADVICE: &str = "; close one or raise max_sessions";

    /// A runner has as many sessions as it may have.
    pub fn session_limit(max: usize) -> Self {
        let advice = CodedError::SESSION_LIMIT_ADVICE;
        CodedError::new(ErrorCode::LimitReached, format!("Session limit reached ({max} sessions){advice}"))
    }

    /// The one wording of hub and runner for a session that is not there.
    pub fn session_not_found(session_id: &str) -> Self {
        CodedError::new(ErrorCode::SessionNotFound, format!("Session {session_id} not found"))
    }
}

impl fmt::Display for CodedError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for CodedError {}

impl From<CodedError> for String {
    fn from(error: CodedError) -> Self {
        error.message
    }
}

impl ErrorCode {
    /// The code of an error that an older peer gave without one. This is the only place that reads sentences: the hub
    /// uses it for answers of runners that know no codes, the command line for hubs that know none. The sentences are
    /// those of the versions before codes and are never extended.
    pub fn of_older_peer(error: &str) -> ErrorCode {
        let is_about_session = error.starts_with("Session ");
        let ends = |words: &str| error.trim_end_matches('.').ends_with(words);
        match error {
            _ if error.starts_with("Permission denied") => ErrorCode::PermissionDenied,
            "denied" => ErrorCode::Denied,
            "cancelled" => ErrorCode::Cancelled,
            "timeout" => ErrorCode::TimedOut,
            _ if is_about_session && error.contains(" not found") => ErrorCode::SessionNotFound,
            _ if is_about_session && error.contains(" already exists") => ErrorCode::SessionExists,
            _ if error.starts_with("Session limit reached") => ErrorCode::LimitReached,
            _ if error.starts_with("Session version mismatch") => ErrorCode::VersionMismatch,
            _ if is_about_session && error.contains(" is closed") => ErrorCode::SessionClosed,
            _ if error.starts_with("No pending input request") => ErrorCode::QuestionNotFound,
            _ if error.starts_with("Input request ") && ends("was already answered") => {
                ErrorCode::QuestionAnswered
            }
            _ if error.starts_with("Input request ") && ends("has timed out") => ErrorCode::QuestionTimedOut,
            _ if error.contains("does not read its input") => ErrorCode::InputFull,
            _ if error.contains("has closed its terminal") => ErrorCode::InputClosed,
            _ if error.contains("has ended; session.restart starts it again") => ErrorCode::RunEnded,
            _ if error.starts_with("Too many commands in flight") => ErrorCode::TooManyInFlight,
            _ if error.contains("streaming_behavior") => ErrorCode::AgentBusy,
            _ => ErrorCode::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written_and_listed_once() {
        let mut names = std::collections::BTreeSet::new();
        for spec in ERRORS {
            let text = serde_json::to_string(&spec.code).unwrap();
            assert_eq!(text, format!("\"{}\"", spec.code.as_str()));
            assert_eq!(serde_json::from_str::<ErrorCode>(&text).unwrap(), spec.code);
            assert_eq!(
                (spec.http_status, spec.exit_code),
                (spec.code.http_status(), spec.code.exit_code()),
                "{text}"
            );
            assert_eq!(spec.code.may_retry(), spec.retry, "{text}");
            assert!((400..600).contains(&spec.http_status) && spec.exit_code > 0, "{text}");
            assert!(names.insert(spec.code.as_str()), "{text} is there twice");
        }
    }

    #[test]
    fn a_code_of_a_later_version_is_a_failure_like_any_other() {
        assert_eq!(serde_json::from_str::<ErrorCode>("\"not_yet_thought_of\"").unwrap(), ErrorCode::Failed);
    }

    #[test]
    fn the_errors_of_the_system_have_codes_that_say_as_much() {
        use std::io::ErrorKind;
        for (kind, code) in [
            (ErrorKind::NotFound, ErrorCode::NotFound),
            (ErrorKind::NotADirectory, ErrorCode::NotFound),
            (ErrorKind::PermissionDenied, ErrorCode::PermissionDenied),
            (ErrorKind::ReadOnlyFilesystem, ErrorCode::PermissionDenied),
            (ErrorKind::AlreadyExists, ErrorCode::AlreadyExists),
            (ErrorKind::StorageFull, ErrorCode::DiskFull),
            (ErrorKind::QuotaExceeded, ErrorCode::DiskFull),
            (ErrorKind::Interrupted, ErrorCode::Failed),
        ] {
            assert_eq!(ErrorCode::of_io(&kind.into()), code, "{kind}");
        }
    }

    #[test]
    fn older_peers_are_understood_by_their_sentences() {
        for (error, code) in [
            ("Session s not found", ErrorCode::SessionNotFound),
            ("Session 's' not found for if_session_version=3", ErrorCode::SessionNotFound),
            ("Session 's' already exists; session.attach joins it", ErrorCode::SessionExists),
            ("Session 's' is closed; session.restart opens it again", ErrorCode::SessionClosed),
            ("Session limit reached (3 sessions); close one or raise max_sessions", ErrorCode::LimitReached),
            ("Session version mismatch: expected 3, got 4", ErrorCode::VersionMismatch),
            ("Permission denied: 'prompt' needs the permission 'operate'", ErrorCode::PermissionDenied),
            ("No pending input request with id 'q'", ErrorCode::QuestionNotFound),
            ("Input request 'q' was already answered", ErrorCode::QuestionAnswered),
            ("Input request 'q' has timed out", ErrorCode::QuestionTimedOut),
            ("The program does not read its input: 64 KiB wait for it already.", ErrorCode::InputFull),
            ("The run 'r' has ended; session.restart starts it again", ErrorCode::RunEnded),
            ("denied", ErrorCode::Denied),
            ("The disk is full", ErrorCode::Failed),
        ] {
            assert_eq!(ErrorCode::of_older_peer(error), code, "{error}");
        }
    }
}
