//! Texts of canonical errors in the words of the document.

use super::super::request::Request;

/// A canonical error as the document words it; what it does not word stays as it is.
pub fn error(request: &Request, error: &str) -> String {
    session_error(request, error).or_else(|| question_error(error)).unwrap_or_else(|| in_camel_case(error))
}

fn session_error(request: &Request, error: &str) -> Option<String> {
    let rest = error.strip_prefix("Session ")?;
    if rest.starts_with("limit reached") {
        // The advice after it is for the operator of a runner.
        return Some(error.split_inclusive(')').next().unwrap_or(error).to_owned());
    }
    let (name, rest) = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split_once("' ")?,
        None => rest.split_once(' ')?,
    };
    if rest.starts_with("not found") {
        return Some(match request.envelope.if_session_version {
            Some(version) => format!("Session {name} not found for ifSessionVersion={version}"),
            None => format!("Session {name} not found"),
        });
    }
    // To a client of this face there is one machine only.
    let is_taken = rest.starts_with("already exists")
        || (rest.starts_with("lives on runner ") && rest.contains("cannot be created"));
    is_taken.then(|| format!("Session {name} already exists"))
}

fn question_error(error: &str) -> Option<String> {
    if let Some(rest) = error.strip_prefix("No pending input request with id '") {
        return Some(format!("No pending UI request with id {}", rest.strip_suffix('\'').unwrap_or(rest)));
    }
    let rest = error.strip_prefix("Input request '")?;
    let name =
        rest.strip_suffix("' was already answered").or_else(|| rest.strip_suffix("' has timed out"))?;
    Some(format!("Request {name} already settled"))
}

fn in_camel_case(error: &str) -> String {
    let mut text = error.to_owned();
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
