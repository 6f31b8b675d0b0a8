//! The fields of an app's message, read with the words that the document has for what is wrong. A field that is
//! `null` counts as left out, as in the original.

use qd_wire::{CodedError, JsonObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Bytes of an identity: a UUID has 36.
const ID_BYTES_MAX: usize = 256;
/// Bytes of the word that says how something came.
const ACTOR_BYTES_MAX: usize = 32;
/// Who an app acts as where it does not say.
const WEB: &str = "web";

/// The fields of `data`.
pub(super) struct Fields(pub(super) JsonObject);

impl Fields {
    /// An identity that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<String, CodedError> {
        match self.0.get(name) {
            Some(Value::String(text)) if text.len() > ID_BYTES_MAX => {
                Err(CodedError::invalid(format!("{name} is longer than {ID_BYTES_MAX} bytes")))
            }
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(Value::String(_) | Value::Null) | None => {
                Err(CodedError::invalid(format!("missing {name}")))
            }
            Some(_) => Err(CodedError::invalid(format!("{name} must be a string"))),
        }
    }

    /// A text that must be there, empty or not.
    pub(super) fn text(&self, name: &str) -> Result<String, CodedError> {
        match self.0.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Null) | None => Err(CodedError::invalid(format!("missing {name}"))),
            Some(_) => Err(CodedError::invalid(format!("{name} must be a string"))),
        }
    }

    /// A number within bounds, where it is there.
    pub(super) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, CodedError> {
        let number = match self.0.get(name) {
            Some(Value::Null) | None => return Ok(None),
            Some(value) => value.as_u64(),
        };
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(CodedError::invalid(format!("{name} must be a whole number from {least} to {most}"))),
        }
    }

    /// How it came; anything that is no short word is `web`.
    pub(super) fn actor(&self) -> String {
        let actor = self.0.get("actor").and_then(Value::as_str).unwrap_or(WEB);
        let is_word = (1..=ACTOR_BYTES_MAX).contains(&actor.len()) && !actor.chars().any(char::is_control);
        if is_word { actor } else { WEB }.to_owned()
    }

    /// These of the fields, where they are there.
    pub(super) fn some(&self, names: &[&str]) -> JsonObject {
        let found = names.iter().filter_map(|name| Some((*name, self.0.get(*name)?)));
        found
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    }

    /// All of them, read.
    pub(super) fn typed<T: DeserializeOwned>(&self) -> Result<T, CodedError> {
        serde_json::from_value(Value::Object(self.0.clone()))
            .map_err(|error| CodedError::invalid(format!("invalid data: {error}")))
    }
}
