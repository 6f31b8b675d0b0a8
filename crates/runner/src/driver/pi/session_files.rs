//! Session files of pi on this machine: found, read, and opened only where they may be.

mod check;
mod find;
mod read;

pub(super) use check::{CheckedFile, SessionFileError, check_below};

use std::path::PathBuf;

use qd_core::agent::NativeMessage;
use qd_core::harness::pi::{conversation_from_file, has_stable_id};
use qd_wire::CodedError;
use qd_wire::data::StoredSession;

use crate::driver::{HarnessSettings, StoredConversations};

/// Bytes read of one conversation; of a longer one pi itself tells when it runs again.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// What pi keeps in its directory and beside projects.
pub(super) struct PiFiles;

impl StoredConversations for PiFiles {
    fn list(&self, settings: &HarnessSettings, workplaces: &[PathBuf]) -> Vec<StoredSession> {
        let mut directories = vec![settings.user_dir.join("sessions")];
        directories.extend(workplaces.iter().map(|cwd| find::project_sessions(cwd)));
        if let Ok(here) = std::env::current_dir() {
            directories.extend(here.ancestors().map(find::project_sessions));
        }
        find::session_files(&directories).iter().filter_map(read::summary).collect()
    }

    /// A conversation may also be named by its id, which is looked for where the session works.
    fn check(&self, settings: &HarnessSettings, named: &str) -> Result<(), CodedError> {
        if named.contains(['/', '.']) {
            check_below(&settings.user_dir, named)?;
        }
        Ok(())
    }

    fn cwd_of(&self, settings: &HarnessSettings, named: &str) -> Option<String> {
        check_below(&settings.user_dir, named).ok().map(|checked| checked.cwd().to_owned())
    }

    fn messages(&self, settings: &HarnessSettings, native_session_file: &str) -> Option<Vec<NativeMessage>> {
        let checked = check_below(&settings.user_dir, native_session_file).ok()?;
        let bytes = checked.read_all(FILE_BYTES_MAX);
        let report = |error: &std::io::Error| tracing::warn!(%error, "a conversation's file cannot be read");
        let mut messages = conversation_from_file(&bytes.inspect_err(report).ok()?).messages;
        messages.retain(has_stable_id);
        Some(messages)
    }
}

#[cfg(test)]
#[path = "session_files/session_files_tests.rs"]
mod tests;
