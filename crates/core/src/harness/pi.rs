//! pi in RPC mode: one JSON object a line, both ways. Nothing here reads or writes; a driver does.

mod bridge;
mod decode;
mod deltas;
mod encode;
mod entries;
mod extension;
mod message;
mod native;
mod other_events;
mod replies;
mod stored;
mod tree;
mod version;

pub use bridge::{BridgeMessage, PiNavigated, PiTool, navigate_prompt, private_command};
pub use decode::{PiCodec, PiOutput, UNKNOWN_FIELDS_BYTES_MAX};
pub use encode::encode;
pub use entries::{
    EntriesError, PiConversation, conversation_from_file, conversation_from_reply, has_stable_id,
};
pub use native::pass_through;
pub use replies::{
    PiState, cleared_queue, cleared_texts, commands, context_usage, fork_points, fork_text, is_cancelled,
    last_assistant_text, model, models, native_commands, skills, state, stats, thinking_level,
    thinking_levels,
};
pub use stored::{PiFileSummary, PiHeader, session_header};
pub use tree::tree;
pub use version::{MINIMUM_VERSION, PiVersion, PiVersionError, check_version};
