//! What a command says beside its name and its address.

use std::borrow::Cow;

use qd_wire::command_table::{CommandSpec, parameters, parameters_of};
use qd_wire::{CodedError, ErrorCode, JsonObject};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::send::{OWN_FIELDS, push_string, write_frame_fields};
use crate::command::head;
use crate::runners::line_head::JsonFields;

/// Room for the fields of most commands.
const WRITTEN_BYTES: usize = 128;

/// The fields of a command, in the form in which its asker has them.
pub(super) enum CommandFields<'a> {
    /// A client's frame, whose values are not read until somebody needs one.
    Frame { text: &'a str, fields: JsonFields<'a> },
    /// Of a command that the hub has written itself and reads itself too.
    Object(JsonObject),
    /// Of one that the hub has written itself and only forwards: `,"name":value` for each field, on one line.
    Written(Vec<u8>),
}

impl CommandFields<'_> {
    /// None yet, in the form that such a command needs.
    pub(super) fn empty(spec: &CommandSpec) -> Self {
        if spec.is_read_by_hub() {
            return CommandFields::Object(JsonObject::new());
        }
        CommandFields::Written(Vec::with_capacity(WRITTEN_BYTES))
    }

    /// Adds a field; one that is `null` is left out, which means the same.
    pub(super) fn add<T: Serialize + ?Sized>(&mut self, name: Cow<'_, str>, value: &T) {
        debug_assert!(!is_reserved(&name), "'{name}' is not for askers to say");
        let added = match self {
            CommandFields::Frame { .. } => {
                debug_assert!(false, "a client's frame is complete");
                return;
            }
            CommandFields::Object(object) => serde_json::to_value(value).map(|value| {
                if !value.is_null() {
                    object.insert(name.into_owned(), value);
                }
            }),
            CommandFields::Written(line) => write_field(line, &name, value),
        };
        if let Err(error) = added {
            debug_assert!(false, "what the hub says must serialise: {error}");
        }
    }

    /// Adds all of them, except what only the hub may say.
    pub(super) fn add_all(&mut self, fields: JsonObject) {
        for (name, value) in fields.into_iter().filter(|(name, _)| !is_reserved(name)) {
            match self {
                CommandFields::Object(object) => {
                    object.insert(name, value);
                }
                CommandFields::Written(_) | CommandFields::Frame { .. } => {
                    self.add(Cow::Owned(name), &value);
                }
            }
        }
    }

    /// One field, where it is there; `null` counts as absent.
    pub(super) fn typed<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        match self {
            CommandFields::Frame { fields, .. } => fields.typed(name),
            CommandFields::Object(object) => object.get(name).map_or(Ok(None), Option::<T>::deserialize),
            CommandFields::Written(_) => Ok(None),
        }
    }

    /// All of them, as the parameters of the command.
    pub(super) fn parameters<T: DeserializeOwned>(&self, spec: &CommandSpec) -> Result<T, CodedError> {
        match self {
            CommandFields::Frame { text, .. } => Ok(parameters(spec.name, text)?),
            CommandFields::Object(object) => Ok(parameters_of(spec.name, object)?),
            CommandFields::Written(_) => {
                Err(ErrorCode::Internal.with(format!("The hub does not read '{}'", spec.name)))
            }
        }
    }

    /// The conditions of a client's command must be readable; the hub writes its own well.
    pub(super) fn check_conditions(&self) -> Result<(), CodedError> {
        match self {
            CommandFields::Frame { fields, .. } => head::check_conditions(fields),
            CommandFields::Object(_) | CommandFields::Written(_) => Ok(()),
        }
    }

    /// About how many bytes they take in a line.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CommandFields::Frame { text, .. } => text.len(),
            // An estimate: the line grows if it has to.
            CommandFields::Object(object) => object.len() * WRITTEN_BYTES,
            CommandFields::Written(text) => text.len(),
        }
    }

    /// Writes them behind other fields of an object. `cmd` takes the place of the name in a frame.
    pub(super) fn write(&self, line: &mut Vec<u8>, cmd: &str) {
        match self {
            CommandFields::Frame { fields, .. } => write_frame_fields(line, fields, cmd),
            CommandFields::Object(object) => {
                for (name, value) in object {
                    // Values that are in memory can be written.
                    let _ = write_field(line, name, value);
                }
            }
            CommandFields::Written(text) => line.extend_from_slice(text),
        }
    }
}

fn is_reserved(name: &str) -> bool {
    OWN_FIELDS.contains(&name) || name == "cmd" || name == "session_id"
}

fn write_field<T: Serialize + ?Sized>(line: &mut Vec<u8>, name: &str, value: &T) -> serde_json::Result<()> {
    let before = line.len();
    line.push(b',');
    push_string(line, name);
    line.push(b':');
    let start = line.len();
    let written = serde_json::to_writer(&mut *line, value);
    if written.is_err() || &line[start..] == b"null" {
        line.truncate(before);
    }
    written
}
