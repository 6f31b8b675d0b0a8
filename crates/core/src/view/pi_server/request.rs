//! Frames of clients: decoding, validation, and the canonical command that does the work of each.
//!
//! A frame is parsed once. Everything that is wrong with it is collected into one answer, in the order and the words
//! of the original server, except where it let wrong fields through or refused right ones.

mod canonical;
mod command;
mod envelope;
mod fields;
mod surrogates;
mod ui;

use qd_wire::JsonObject;
use qd_wire::pi_server::{Command, CommandSpec, Envelope, NAME_CHARS_MAX, Target};
use serde_json::Value;

pub use canonical::{FieldWriter, named_runner, write_parameters};
use fields::Fields;
pub use surrogates::whole_characters;

/// A command that may be admitted.
#[derive(Debug, Clone, PartialEq)]
pub struct PiServerRequest {
    pub spec: &'static CommandSpec,
    pub command: Command,
    pub envelope: Envelope,
    /// The session it names; a stray one on a command of the server alone is ignored.
    pub session_id: Option<String>,
    /// Of all fields but `id` and `idempotencyKey`, whatever their order; zeros if it has neither, because nobody can
    /// repeat it.
    pub fingerprint: [u8; 32],
}

/// What was wrong with a frame, and what its answer must say.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidFrame {
    /// Echoed as it was sent.
    pub id: Option<Value>,
    /// The sent type, or `unknown`.
    pub command: String,
    pub error: String,
}

/// Fields that name the intent and are no part of it.
const IDENTITY_FIELDS: &[&str] = &["id", "idempotencyKey"];

/// The `command` of answers to frames that have no type.
const UNKNOWN: &str = "unknown";

/// Reads one frame. Of fields that are there twice the last counts, as in JavaScript.
pub fn read(text: &str) -> Result<Box<PiServerRequest>, Box<InvalidFrame>> {
    let object: JsonObject = match serde_json::from_str(text) {
        Ok(object) => object,
        Err(_) => match whole_characters(text).and_then(|whole| serde_json::from_str(&whole).ok()) {
            Some(object) => object,
            None => return Err(Box::new(not_an_object(text))),
        },
    };
    let mut fields = Fields::new(object);
    let Some(spec) = envelope::check(&mut fields) else { return Err(Box::new(invalid(fields))) };
    let is_named = IDENTITY_FIELDS.iter().any(|name| fields.object().contains_key(*name));
    let fingerprint = match fields.has_errors() || !is_named {
        true => [0; 32],
        false => crate::fingerprint::of_fields(fields.object(), IDENTITY_FIELDS),
    };
    let session_id = match spec.target {
        Target::Server => None,
        Target::Named | Target::Session => fields.peek_text("sessionId").map(str::to_owned),
    };
    match command::read(spec.name, &mut fields).filter(|_| !fields.has_errors()) {
        Some(command) => {
            let envelope = envelope::take(&mut fields);
            Ok(Box::new(PiServerRequest { spec, command, envelope, session_id, fingerprint }))
        }
        None => Err(Box::new(invalid(fields))),
    }
}

fn not_an_object(text: &str) -> InvalidFrame {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let begins_an_object = text.trim_start().starts_with('{');
    // An object that reads as JSON but not into memory holds something no value can hold, as the number 1e999.
    let error = match is_json && !begins_an_object {
        true => "Validation failed: root: Command must be an object",
        false => "Invalid JSON",
    };
    InvalidFrame { id: None, command: UNKNOWN.to_owned(), error: error.to_owned() }
}

fn invalid(fields: Fields) -> InvalidFrame {
    let (mut object, errors) = fields.into_parts();
    let command = match object.remove("type") {
        Some(Value::String(kind)) if !kind.is_empty() => cut(kind),
        _ => UNKNOWN.to_owned(),
    };
    InvalidFrame {
        id: object.remove("id"),
        command,
        error: format!("Validation failed: {}", errors.join("; ")),
    }
}

/// The name of a command that does not exist may be as long as a frame; nobody needs all of it back.
fn cut(mut kind: String) -> String {
    if let Some((end, _)) = kind.char_indices().nth(NAME_CHARS_MAX) {
        kind.truncate(end);
    }
    kind
}
