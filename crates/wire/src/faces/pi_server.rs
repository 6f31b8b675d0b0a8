//! The pi-server document: its commands with their fields, its answers, its events, and the table that declares
//! each command once. Field names are the document's (`camelCase`).

mod command;
mod data;
mod event;
mod table;

pub use command::*;
pub use data::*;
pub use event::*;
#[cfg(feature = "codegen")]
pub(crate) use table::visit_data;
pub use table::{Bucket, COMMANDS, Command, CommandSpec, Target, spec};
#[cfg(feature = "codegen")]
pub use table::{TypeRow, type_rows};

/// The version announced in `server_ready`.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// The longest `id`, `idempotencyKey` and name of a session, in characters.
pub const NAME_CHARS_MAX: usize = 256;

/// The most commands one command may depend on.
pub const DEPENDENCIES_MAX: usize = 32;
