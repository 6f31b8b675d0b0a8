//! pi in RPC mode: one JSON object a line, both ways. Nothing here reads or writes; a driver does.

mod decode;
mod encode;
mod entries;
mod events;
mod extension;
mod message;
mod replies;
mod time;
mod update;
mod version;

pub use decode::{PiCodec, PiOutput, PiReply, UNKNOWN_FIELDS_BYTES_MAX};
pub use encode::encode;
pub use entries::{
    EntriesError, PiConversation, conversation_from_file, conversation_from_reply, has_stable_id,
};
pub use replies::{
    PiState, commands, fork_points, fork_text, is_cancelled, model, models, state, stats, thinking_level,
    thinking_levels,
};
pub use version::{MINIMUM_VERSION, PiVersion, PiVersionError, check_version};
