//! What pi has written of a conversation, read while no pi has it.

use qd_core::agent::NativeMessage;
use qd_core::harness::pi::{conversation_from_file, has_stable_id};

use crate::config::RunnerConfig;
use crate::stored;

/// Bytes read of one file; of a longer one pi itself tells when it runs again.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The messages in a session's file; none where it cannot be read. Blocks.
pub(crate) fn stored_conversation(config: &RunnerConfig, file: &str) -> Option<Vec<NativeMessage>> {
    let checked = stored::check(config, file).ok()?;
    let bytes = checked.read_all(FILE_BYTES_MAX);
    let bytes =
        bytes.inspect_err(|error| tracing::warn!(file, %error, "a conversation cannot be read")).ok()?;
    let mut messages = conversation_from_file(&bytes).messages;
    messages.retain(has_stable_id);
    Some(messages)
}
