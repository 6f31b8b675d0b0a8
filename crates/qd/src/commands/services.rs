//! Services of a session's machine: its files, git and shell.

pub(crate) mod bash;
pub(crate) mod client;
pub(crate) mod fs;
pub(crate) mod git;
