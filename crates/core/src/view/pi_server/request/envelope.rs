//! The fields every command may carry.

use qd_wire::pi_server::{CommandSpec, DEPENDENCIES_MAX, Envelope, NAME_CHARS_MAX, Target, spec};
use serde_json::Value;

use super::cut;
use super::fields::{Fields, is_longer_than, whole_number};

/// The prefix of names the server gives to commands without one.
const RESERVED_PREFIX: &str = "anon:";

/// The server command that may be bound to a version.
const VERSIONED_SERVER_COMMAND: &str = "delete_session";

/// Notes what is wrong, and finds the row of the command.
pub(super) fn check(fields: &mut Fields) -> Option<&'static CommandSpec> {
    let kind = fields.peek_text("type").filter(|kind| !kind.is_empty()).map(str::to_owned);
    if kind.is_none() {
        fields.error("type", "Command must have a string 'type' field");
    }
    check_id(fields);
    check_key(fields);
    check_dependencies(fields);
    let version = fields.peek("ifSessionVersion");
    let names_version = version.is_some();
    if version.is_some_and(|version| whole_number(version).is_none()) {
        fields.error("ifSessionVersion", "Must be a non-negative integer");
    }
    let kind = kind?;
    let spec = spec(&kind);
    if spec.is_none() {
        fields.error("type", format_args!("Unknown command type '{}'", cut(kind)));
    }
    let target = spec.map_or(Target::Server, |spec| spec.target);
    if target == Target::Session {
        check_session(fields);
    }
    let is_versioned =
        target == Target::Session || spec.is_some_and(|spec| spec.name == VERSIONED_SERVER_COMMAND);
    if names_version && !is_versioned {
        fields.error("ifSessionVersion", "Only supported for session-targeted commands");
    }
    spec
}

/// Takes the checked fields out.
pub(super) fn take(fields: &mut Fields) -> Envelope {
    let mut text = |field| match fields.take(field) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (id, idempotency_key) = (text("id"), text("idempotencyKey"));
    let depends_on = match fields.take("dependsOn") {
        Some(Value::Array(items)) => Some(items.into_iter().filter_map(into_text).collect()),
        _ => None,
    };
    let if_session_version = fields.peek("ifSessionVersion").and_then(whole_number);
    Envelope { id, depends_on, if_session_version, idempotency_key }
}

fn check_id(fields: &mut Fields) {
    let Some(id) = fields.peek("id") else { return };
    match id.as_str() {
        Some(id) if is_longer_than(id, NAME_CHARS_MAX) => fields.error("id", too_long()),
        Some(id) if id.starts_with(RESERVED_PREFIX) => {
            fields.error("id", format_args!("Cannot use reserved prefix '{RESERVED_PREFIX}'"));
        }
        Some(id) if !id.trim().is_empty() => {}
        _ => fields.error("id", "Must be a non-empty string if provided"),
    }
}

fn check_key(fields: &mut Fields) {
    let Some(key) = fields.peek("idempotencyKey") else { return };
    match key.as_str() {
        Some(key) if key.trim().is_empty() => {
            fields.error("idempotencyKey", "Must be a non-empty string if provided");
        }
        Some(key) if is_longer_than(key, NAME_CHARS_MAX) => fields.error("idempotencyKey", too_long()),
        Some(_) => {}
        None => fields.error("idempotencyKey", "Must be a non-empty string if provided"),
    }
}

fn check_dependencies(fields: &mut Fields) {
    let Some(dependencies) = fields.peek("dependsOn") else { return };
    let Value::Array(dependencies) = dependencies else {
        return fields.error("dependsOn", "Must be an array of command IDs");
    };
    if dependencies.len() > DEPENDENCIES_MAX {
        // The items are not looked at: their errors would be as many as they are.
        return fields.error("dependsOn", format_args!("Too many dependencies (max {DEPENDENCIES_MAX})"));
    }
    let wrong = |item: &Value| match item.as_str() {
        Some(name) if is_longer_than(name, NAME_CHARS_MAX) => Some(too_long()),
        Some(name) if !name.trim().is_empty() => None,
        _ => Some("Must be a non-empty command ID string".to_owned()),
    };
    let errors: Vec<_> = dependencies.iter().map(wrong).collect();
    let needs_id = !dependencies.is_empty() && fields.peek_text("id").is_none();
    for (position, error) in errors.into_iter().enumerate() {
        if let Some(error) = error {
            fields.error(&format!("dependsOn[{position}]"), error);
        }
    }
    if needs_id {
        fields.error("id", "Required when dependsOn is provided");
    }
}

fn check_session(fields: &mut Fields) {
    match fields.peek_text("sessionId") {
        // No session has such a name, and lanes are named after sessions.
        Some(name) if is_longer_than(name, NAME_CHARS_MAX) => fields.error("sessionId", too_long()),
        Some(name) if !name.trim().is_empty() => {}
        _ => fields.error("sessionId", "Session commands must have a non-empty string 'sessionId'"),
    }
}

fn too_long() -> String {
    format!("Too long (max {NAME_CHARS_MAX} chars)")
}

fn into_text(value: Value) -> Option<String> {
    if let Value::String(text) = value { Some(text) } else { None }
}
