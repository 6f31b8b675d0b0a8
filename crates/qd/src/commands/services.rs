//! Services of a session's machine: its files, git and shell.

pub(crate) mod bash;
mod client;
pub(crate) mod fs;
pub(crate) mod git;
