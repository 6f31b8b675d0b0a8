//! The subcommands that talk to a server: one file each, grouped by what they are about.

pub(crate) mod doctor;
pub(crate) mod mcp;
pub(crate) mod people;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod shims;
