//! The `files` and `terminal` channels of `/ws/mux`: other words for canonical commands and the records of runs.

mod files;
mod terminal;

use serde::de::DeserializeOwned;
use serde_json::Value;

use qd_wire::CodedError;

pub(crate) use files::{DirectoryWatches, handle as handle_files};
pub(crate) use terminal::{
    TerminalOpened, WatchedTerminals, handle as handle_terminal, show as show_terminal,
};

/// Reads a frame of a channel; the error comes with the `id` of the frame as far as that can be read.
fn read_frame<T: DeserializeOwned>(text: &str) -> Result<T, (Option<Value>, CodedError)> {
    serde_json::from_str(text).map_err(|error| {
        let id = serde_json::from_str::<Value>(text).ok().and_then(|value| value.get("id").cloned());
        (id, CodedError::invalid(format!("The frame cannot be read: {error}")))
    })
}
