//! What a person reads when something fails: what kind, what happened, what to do next.
//!
//! Exit codes follow the kind, or the server's code where there is one, and are part of the interface. The server's
//! sentences speak of the protocol; `refusal` replaces those parts by what a person types, chosen by the code.

use std::io;
use std::path::Path;

use qd_link::client::{AttachError, CallError, ConnectError};
use qd_wire::rest::ErrorBody;
use qd_wire::{CodedError, CommandResponse, ErrorCode};

use crate::output::harmless;

/// The kinds decide the exit code and the word at the beginning of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The request was understood and could not be done.
    Failed,
    /// The same, for a reason that the server gave a code.
    Coded(ErrorCode),
    /// The command line or the configuration is wrong.
    Usage,
    /// There is a server, and it does not let us in.
    Refused,
    /// The same, with the server's code for it.
    RefusedAs(ErrorCode),
    /// No server.
    Unreachable,
    /// Whoever read our output went away.
    BrokenPipe,
    /// The program that was shown ended with this code; it has said why itself.
    Exited(u8),
}

impl ErrorKind {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            ErrorKind::BrokenPipe => 0,
            ErrorKind::Exited(code) => code,
            ErrorKind::Failed | ErrorKind::Refused => 1,
            ErrorKind::Coded(code) | ErrorKind::RefusedAs(code) => code.exit_code(),
            ErrorKind::Usage => 2,
            ErrorKind::Unreachable => 3,
        }
    }

    /// What the server does not let us in with; kinds without a code are those of older servers.
    pub(crate) fn refused(code: Option<ErrorCode>) -> ErrorKind {
        code.map_or(ErrorKind::Refused, ErrorKind::RefusedAs)
    }

    fn code(self) -> Option<ErrorCode> {
        match self {
            ErrorKind::Coded(code) | ErrorKind::RefusedAs(code) => Some(code),
            ErrorKind::Failed
            | ErrorKind::Usage
            | ErrorKind::Refused
            | ErrorKind::Unreachable
            | ErrorKind::BrokenPipe
            | ErrorKind::Exited(_) => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Failed | ErrorKind::Coded(_) => "failed",
            ErrorKind::Usage => "usage",
            ErrorKind::Refused | ErrorKind::RefusedAs(_) => "refused",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::BrokenPipe => "broken_pipe",
            ErrorKind::Exited(_) => "exited",
        }
    }
}

/// What most of this crate returns.
pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

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

    /// A file cannot be read or written.
    pub(crate) fn cannot(what: &str, path: &Path, error: &io::Error) -> CliError {
        CliError::failed(format!("cannot {what} {}: {error}", path.display()))
    }

    /// The program that was shown ended with this code.
    pub(crate) fn exited(code: u8, error: Option<String>) -> CliError {
        CliError { kind: ErrorKind::Exited(code), message: error.unwrap_or_default(), hint: None }
    }

    /// Whether there is nothing to add to what was shown.
    pub(crate) fn is_silent(&self) -> bool {
        self.kind == ErrorKind::BrokenPipe || self.message.is_empty()
    }

    /// Says what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }

    /// The text for a terminal. Servers and agents have their words in it, so it is made harmless.
    pub(crate) fn to_human(&self) -> String {
        harmless(&match &self.hint {
            Some(hint) => format!("error: {}\nhint: {hint}\n", self.message),
            None => format!("error: {}\n", self.message),
        })
    }

    /// The value for `--json`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut error = serde_json::json!({ "kind": self.kind.as_str(), "message": self.message });
        if let Some(code) = self.kind.code() {
            error["code"] = code.as_str().into();
        }
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

impl From<getrandom::Error> for CliError {
    fn from(error: getrandom::Error) -> Self {
        CliError::failed(format!("the system gave no random bytes: {error}"))
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        const TOKEN_HINT: &str = "pass a valid token with --token or QD_TOKEN; the owner's is in the file \
                                  `owner-token` of the server's data directory";
        const ADDRESS_HINT: &str = "give the server's address as --url http://127.0.0.1:7433";
        let (kind, hint) = match &error {
            ConnectError::Unreachable { .. } => {
                (ErrorKind::Unreachable, "start a server with `qd up`, or use another one with --url")
            }
            ConnectError::TimedOut { .. } => {
                (ErrorKind::Unreachable, "the server may be busy or the network slow; retry")
            }
            ConnectError::NotQuarterdeck { .. } => (ErrorKind::Unreachable, ADDRESS_HINT),
            ConnectError::BadUrl { .. } => (ErrorKind::Usage, ADDRESS_HINT),
            ConnectError::BadToken => (ErrorKind::Refused, TOKEN_HINT),
            ConnectError::Untrusted { .. } => (
                ErrorKind::Refused,
                "give the server's fingerprint with --fingerprint or QD_FINGERPRINT; `qd up` prints it when it starts",
            ),
            ConnectError::Denied { status, body } => {
                let body = serde_json::from_str::<ErrorBody>(body);
                let hint = match status {
                    403 => {
                        "the server does not accept this Host or Origin; see `allowed_hosts` in `qd up --help`"
                    }
                    _ => TOKEN_HINT,
                };
                (ErrorKind::refused(body.ok().and_then(|body| body.code)), hint)
            }
        };
        let message = match &error {
            // What the server says there is for programs; the hint is for people.
            ConnectError::Denied { status: 401, .. } => "the server refused the token (HTTP 401)".to_owned(),
            _ => error.to_string(),
        };
        CliError { kind, message, hint: Some(hint.to_owned()) }
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Closed(_) => CliError::unreachable(error.to_string())
                .hint("the command may or may not have taken effect; check with `qd ls` and `qd logs`"),
            CallError::TooManyPending => refusal(ErrorCode::TooManyInFlight.with(error.to_string()), None),
            CallError::Encode(_) => CliError::failed(error.to_string()),
            CallError::Decode(_) => CliError::failed(error.to_string())
                .hint("the server may have another version; compare `qd --version` with `qd doctor`"),
            CallError::Refused(response) => match response.failed() {
                Some(error) => refusal(error, None),
                None => CliError::failed("the command failed without an error message"),
            },
        }
    }
}

impl From<AttachError> for CliError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Connect(error) => error.into(),
            AttachError::Call(error) => error.into(),
        }
    }
}

/// What a session answers that refuses a command. The answer does not name the session, but whoever asked knows it.
pub(crate) fn session_refusal(session_id: &str, response: CommandResponse) -> CliError {
    match response.failed() {
        Some(error) => refusal(error, Some(session_id)),
        None => CallError::Refused(Box::new(response)).into(),
    }
}

/// A refusal of the server in the words of the command line, with what helps in the cases we know.
pub(crate) fn refusal(error: CodedError, session_id: Option<&str>) -> CliError {
    let CodedError { code, message, .. } = error;
    // The sentence after the first part speaks of commands and fields of the protocol, which nobody types.
    let message = match code {
        ErrorCode::AgentBusy => "The agent is working.".to_owned(),
        ErrorCode::SessionClosed | ErrorCode::RunnerNotFound | ErrorCode::RunnerOffline => {
            message.split(';').next().unwrap_or(&message).to_owned()
        }
        _ => message.replace("session.restart", "`qd restart`"),
    };
    let hint = match code {
        ErrorCode::AgentBusy => {
            "add --steer (read before the agent's next step) or --follow-up (read when its turn is done)"
        }
        ErrorCode::SessionClosed => &format!("reopen it: qd restart {}", session_id.unwrap_or("ID")),
        ErrorCode::RunnerNotFound => "`qd runner list` shows the runners",
        ErrorCode::RunnerOffline => {
            "start it there (`qd runner start`); `qd run` and `qd send` can wait for it: --wait SECONDS"
        }
        ErrorCode::HarnessNotFound => {
            "`qd doctor` shows which agents are ready, and one that needs nothing installed"
        }
        ErrorCode::SessionNotFound => "`qd ls` shows the sessions",
        ErrorCode::QuestionAnswered => "somebody else answered first; `qd ls` shows open questions",
        _ => return CliError { kind: ErrorKind::Coded(code), message, hint: None },
    };
    CliError { kind: ErrorKind::Coded(code), message, hint: None }.hint(hint)
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
            ConnectError::Untrusted { address: "10.0.0.5:1".into(), reason: "another certificate".into() },
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
        let refusal = |code: ErrorCode, text: &str| super::refusal(code.with(text), Some("s1"));
        let busy =
            refusal(ErrorCode::AgentBusy, "The agent is working. Set streaming_behavior to \"steer\".");
        assert_eq!(busy.message, "The agent is working.");
        assert!(busy.hint.unwrap().contains("--steer"));
        let closed =
            refusal(ErrorCode::SessionClosed, "Session 's1' is closed; session.restart opens it again");
        assert_eq!(closed.message, "Session 's1' is closed");
        assert!(closed.hint.unwrap().ends_with("qd restart s1"));
        assert!(refusal(ErrorCode::SessionNotFound, "Session s9 not found").hint.unwrap().contains("qd ls"));
        assert!(refusal(ErrorCode::HarnessNotFound, "no 'x'").hint.unwrap().contains("doctor"));
        assert_eq!(refusal(ErrorCode::Failed, "disk full; session not found").hint, None);
        let away = refusal(
            ErrorCode::RunnerOffline,
            "Runner desk is offline; start it and try again, or send with wait:true",
        );
        assert_eq!(away.message, "Runner desk is offline");
        assert!(away.hint.clone().unwrap().contains("--wait"));
        assert_eq!((away.kind.exit_code(), &away.to_json()["error"]["code"]), (3, &"runner_offline".into()));
        let unknown = refusal(ErrorCode::RunnerNotFound, "There is no runner x; get_runners lists those");
        assert!(unknown.hint.unwrap().contains("qd runner list"));
    }

    #[test]
    fn words_of_a_server_cannot_steer_the_terminal() {
        let denied = ConnectError::Denied { status: 403, body: "no\u{1b}[2J\u{202e}".into() };
        let closed = CallError::Closed("bye\u{1b}]0;x\u{7}".into());
        let refused: CommandResponse = serde_json::from_value(serde_json::json!({"event":"response",
            "session_id":"s","runner_id":"r","ts":1,"id":"1","cmd":"prompt","success":false,"error":"\u{1b}[2J"}))
        .unwrap();
        let refused = CallError::Refused(Box::new(refused));
        for error in [CliError::from(denied), CliError::from(closed), CliError::from(refused)] {
            let text = error.to_human();
            assert!(text.contains('\u{fffd}') && !text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text:?}");
        }
    }

    #[test]
    fn json_has_the_code_of_a_refused_connection() {
        let denied = |body: &str| CliError::from(ConnectError::Denied { status: 401, body: body.into() });
        let coded = denied(r#"{"error":"no","code":"not_logged_in"}"#).to_json();
        assert_eq!(
            (&coded["error"]["kind"], &coded["error"]["code"]),
            (&"refused".into(), &"not_logged_in".into())
        );
        assert_eq!(denied("no").to_json()["error"].get("code"), None);
        let pending = CliError::from(CallError::TooManyPending).to_json();
        assert_eq!(pending["error"]["code"], "too_many_in_flight");
    }

    #[test]
    fn a_closed_pipe_is_not_a_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.kind.exit_code(), 0);
    }
}
