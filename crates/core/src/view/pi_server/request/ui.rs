//! Answers to dialogs.

use qd_wire::pi_server::{ExtensionUiResponse, NAME_CHARS_MAX, UiResponse};
use serde_json::Value;

use super::fields::{Fields, is_longer_than};

/// Reads an answer; none when its errors were noted.
pub(super) fn ui_response(session_id: String, fields: &mut Fields) -> Option<ExtensionUiResponse> {
    let request_id = fields.required_text("requestId");
    if is_longer_than(&request_id, NAME_CHARS_MAX) {
        fields.error("requestId", format_args!("Too long (max {NAME_CHARS_MAX} chars)"));
    }
    // Names of sessions may have dots, and names of requests begin with them.
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.');
    if !request_id.bytes().all(is_letter) {
        // The original's words, though it refused dots too.
        let message = "Must contain only alphanumeric characters, colons, underscores, and dashes";
        fields.error("requestId", message);
    }
    let Some(Value::Object(object)) = fields.take("response") else {
        fields.error("response", "Required object");
        return None;
    };
    let response = fields.within("response.", object, response)?;
    Some(ExtensionUiResponse { session_id, request_id, response })
}

fn response(fields: &mut Fields) -> Option<UiResponse> {
    let method = fields.take("method");
    Some(match method.as_ref().and_then(Value::as_str) {
        Some("select") => UiResponse::Select { value: text(fields)? },
        Some("input") => UiResponse::Input { value: text(fields)? },
        Some("editor") => UiResponse::Editor { value: text(fields)? },
        Some("confirm") => UiResponse::Confirm { confirmed: fields.required_flag("confirmed") },
        Some("interview") => match fields.take("responses") {
            Some(Value::Object(responses)) => {
                UiResponse::Interview { responses: responses.into_iter().collect() }
            }
            _ => {
                fields.error("responses", "Required object");
                return None;
            }
        },
        Some("cancelled") => UiResponse::Cancelled {},
        _ => {
            fields.error("method", "Must be one of: select, confirm, input, editor, interview, cancelled");
            return None;
        }
    })
}

/// An empty text is an answer too.
fn text(fields: &mut Fields) -> Option<String> {
    match fields.take("value") {
        Some(Value::String(text)) => Some(text),
        _ => {
            fields.error("value", "Required string");
            None
        }
    }
}
