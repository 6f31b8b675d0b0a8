//! What a person reads when something fails: what kind, what happened, what to do next.

use std::io;

use qd_link::client::{AttachError, CallError, ConnectError};

/// The kinds decide the exit code and the word at the beginning of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request was understood and could not be done.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// No server, or one that does not let us in.
    Unreachable,
    /// Whoever read our output went away.
    BrokenPipe,
}

impl ErrorKind {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            ErrorKind::BrokenPipe => 0,
            ErrorKind::Failed => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Unreachable => 3,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Failed => "failed",
            ErrorKind::Usage => "usage",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::BrokenPipe => "broken_pipe",
        }
    }
}

/// An error with its way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CliError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    pub(crate) fn failed(message: impl Into<String>) -> CliError {
        CliError { kind: ErrorKind::Failed, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> CliError {
        CliError { kind: ErrorKind::Usage, message: message.into(), hint: None }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> CliError {
        CliError { kind: ErrorKind::Unreachable, message: message.into(), hint: None }
    }

    /// Says what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }

    /// The text for a terminal.
    pub(crate) fn to_human(&self) -> String {
        match &self.hint {
            Some(hint) => format!("error: {}\nhint: {hint}\n", self.message),
            None => format!("error: {}\n", self.message),
        }
    }

    /// The value for `--json`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut error = serde_json::json!({ "kind": self.kind.as_str(), "message": self.message });
        if let Some(hint) = &self.hint {
            error["hint"] = hint.clone().into();
        }
        serde_json::json!({ "error": error })
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CliError { kind: ErrorKind::BrokenPipe, message: error.to_string(), hint: None };
        }
        CliError::failed(error.to_string())
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        let hint = match &error {
            ConnectError::Unreachable { .. } => "start a server with `qd up`, or name another with --url",
            ConnectError::TimedOut { .. } => "is the server busy or the network slow? try again",
            ConnectError::Denied { status: 403, .. } => {
                "the server does not accept this Host or Origin; see `allowed_hosts` in `qd up --help`"
            }
            ConnectError::Denied { .. } | ConnectError::BadToken => {
                "give the right token with --token or QD_TOKEN; the owner's is in the file `owner-token` of the \
                 server's data directory"
            }
            ConnectError::BadUrl { .. } | ConnectError::NotQuarterdeck { .. } => {
                "give the server's address as --url http://127.0.0.1:7433"
            }
        };
        let kind = match &error {
            ConnectError::BadUrl { .. } => ErrorKind::Usage,
            ConnectError::BadToken
            | ConnectError::Unreachable { .. }
            | ConnectError::TimedOut { .. }
            | ConnectError::Denied { .. }
            | ConnectError::NotQuarterdeck { .. } => ErrorKind::Unreachable,
        };
        CliError { kind, message: error.to_string(), hint: Some(hint.to_owned()) }
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Closed(_) => CliError::unreachable(error.to_string())
                .hint("nobody knows whether the command took effect; look with `qd ls` and `qd logs`"),
            CallError::TooManyPending | CallError::Encode(_) => CliError::failed(error.to_string()),
            CallError::Decode(_) => CliError::failed(error.to_string())
                .hint("is the server of another version? compare `qd --version` with `qd doctor`"),
            CallError::Refused(_) => {
                let message = error.to_string();
                match refusal_hint(&message) {
                    Some(hint) => CliError::failed(message).hint(hint),
                    None => CliError::failed(message),
                }
            }
        }
    }
}

impl From<AttachError> for CliError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Connect(error) => error.into(),
            AttachError::Call(error) => error.into(),
            AttachError::GaveUp(_) => CliError::unreachable(error.to_string())
                .hint("the session may still be there: start the server with `qd up`, then `qd attach`"),
        }
    }
}

/// What the command line can add to a refusal of the server.
fn refusal_hint(message: &str) -> Option<&'static str> {
    let message = message.to_lowercase();
    if message.contains("streaming_behavior") {
        Some("add --steer (read before the agent's next step) or --follow-up (read when its turn is done)")
    } else if message.contains("harness") {
        Some("`qd doctor` shows which agents are ready; `--harness demo` needs nothing installed")
    } else if message.contains("session") && (message.contains("not found") || message.contains("no session"))
    {
        Some("`qd ls` shows the sessions")
    } else if message.contains("already") && message.contains("answer") {
        Some("somebody else was faster; `qd ls` shows what still waits")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_error_says_what_to_do() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let errors = [
            ConnectError::Unreachable { address: "127.0.0.1:1".into(), source: refused },
            ConnectError::TimedOut { address: "127.0.0.1:1".into() },
            ConnectError::Denied { status: 401, body: "no".into() },
            ConnectError::Denied { status: 403, body: "host".into() },
            ConnectError::NotQuarterdeck { address: "127.0.0.1:1".into(), reason: "HTTP 404".into() },
            ConnectError::BadUrl { url: "x://".into(), reason: "it names no host" },
            ConnectError::BadToken,
        ];
        let texts: Vec<String> = errors
            .into_iter()
            .map(|error| {
                let error = CliError::from(error);
                format!("{} {}", error.kind.exit_code(), error.to_human())
            })
            .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn a_refusal_gets_the_hint_that_fits() {
        assert!(refusal_hint("the agent works; say streaming_behavior").unwrap().contains("--steer"));
        assert!(refusal_hint("Session not found: s9").unwrap().contains("qd ls"));
        assert!(refusal_hint("unknown harness 'x'").unwrap().contains("doctor"));
        assert_eq!(refusal_hint("disk full"), None);
    }

    #[test]
    fn a_closed_pipe_is_not_a_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind.exit_code(), 0);
    }
}
