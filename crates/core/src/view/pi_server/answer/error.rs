//! Canonical errors in the words of the document, by their codes.

use qd_wire::pi_server::Command;
use qd_wire::{CodedError, ErrorCode};

use super::super::request::PiServerRequest;

/// A canonical error as the document words it; what it does not word stays as it is. `session_id` is the session the
/// command is about.
pub fn error(request: &PiServerRequest, session_id: Option<&str>, error: CodedError) -> CodedError {
    let CodedError { code, message, limit } = error;
    let message = reworded(request, session_id, code, &message).unwrap_or_else(|| in_camel_case(message));
    CodedError { code, message, limit }
}

#[allow(clippy::wildcard_enum_match_arm)] // The document words these itself; any other is told in our words.
fn reworded(
    request: &PiServerRequest,
    session_id: Option<&str>,
    code: ErrorCode,
    message: &str,
) -> Option<String> {
    match code {
        ErrorCode::SessionNotFound => {
            let session_id = session_id?;
            Some(match request.envelope.if_session_version {
                Some(version) => format!("Session {session_id} not found for ifSessionVersion={version}"),
                None => format!("Session {session_id} not found"),
            })
        }
        // To a client of this face there is one machine only.
        ErrorCode::SessionExists => Some(format!("Session {} already exists", session_id?)),
        // The advice is for the operator of a runner.
        ErrorCode::LimitReached => message.strip_suffix(CodedError::SESSION_LIMIT_ADVICE).map(str::to_owned),
        ErrorCode::NotFound if matches!(request.command, Command::CreateSession(_)) => {
            Some("CWD must point to an existing directory".to_owned())
        }
        ErrorCode::QuestionNotFound => {
            Some(format!("No pending UI request with id {}", question_id(request)?))
        }
        ErrorCode::QuestionAnswered | ErrorCode::QuestionTimedOut => {
            Some(format!("Request {} already settled", question_id(request)?))
        }
        _ => None,
    }
}

fn question_id(request: &PiServerRequest) -> Option<&str> {
    let Command::ExtensionUiResponse(response) = &request.command else { return None };
    Some(&response.request_id)
}

fn in_camel_case(mut text: String) -> String {
    for (ours, theirs) in [
        ("if_session_version", "ifSessionVersion"),
        ("idempotency_key", "idempotencyKey"),
        ("session_id", "sessionId"),
    ] {
        if text.contains(ours) {
            text = text.replace(ours, theirs);
        }
    }
    text
}
