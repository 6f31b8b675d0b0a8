//! Session files of pi on this machine: found, read, and opened only where they may be.

mod check;
mod find;
mod read;

pub(crate) use check::{CheckedFile, check_below};

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use qd_wire::data::{SessionState, SessionStatus, StoredSession};

use crate::config::RunnerConfig;

/// Opens the session file a client named, if it is one and lies where session files may be.
pub(crate) fn check(config: &RunnerConfig, path: &str) -> Result<CheckedFile, String> {
    check_below(&config.pi_user_dir, path)
}

/// Where the conversation in the file took place; none if this is no session file of ours to open.
pub(crate) fn cwd_of(config: &RunnerConfig, path: &str) -> Option<String> {
    check(config, path).ok().map(|checked| checked.cwd().to_owned())
}

/// Session files under the allowed directories, newest first. `sessions` are those of this runner.
pub(crate) async fn list(config: &RunnerConfig, sessions: &[SessionState]) -> Vec<StoredSession> {
    let (user_dir, known) = (config.pi_user_dir.clone(), known_of(sessions));
    // A first listing reads whole files.
    let listing = tokio::task::spawn_blocking(move || list_now(&user_dir, known));
    listing.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the stored sessions could not be listed");
        Vec::new()
    })
}

/// A session of this runner, as far as its file matters.
struct Known {
    file: Option<PathBuf>,
    stored: StoredSession,
}

fn known_of(sessions: &[SessionState]) -> Vec<Known> {
    let known = sessions.iter().map(|state| Known {
        file: state.native_session_file.as_deref().map(PathBuf::from),
        stored: StoredSession {
            session_id: state.session_id.clone(),
            path: state.native_session_file.clone().unwrap_or_default(),
            cwd: state.cwd.clone().unwrap_or_default(),
            title: state.title.clone(),
            created_at: state.created_at.unwrap_or(0),
            modified_at: state.created_at.unwrap_or(0),
            message_count: state.message_count,
            provider: state.model.as_ref().map(|model| model.provider.clone()),
            model: state.model.as_ref().map(|model| model.model_id.clone()),
            thinking_level: state.thinking_level.clone(),
            exists: false,
            loaded: state.status != SessionStatus::Closed,
        },
    });
    known.collect()
}

fn list_now(user_dir: &Path, known: Vec<Known>) -> Vec<StoredSession> {
    let mut directories = vec![user_dir.join("sessions")];
    let workplaces = known.iter().map(|known| PathBuf::from(&known.stored.cwd));
    directories.extend(workplaces.filter(|cwd| cwd.is_absolute()).map(|cwd| find::project_sessions(&cwd)));
    if let Ok(here) = std::env::current_dir() {
        directories.extend(here.ancestors().map(find::project_sessions));
    }
    let owners: HashMap<&Path, &StoredSession> =
        known.iter().filter_map(|known| Some((known.file.as_deref()?, &known.stored))).collect();
    let mut stored = Vec::new();
    let mut found = HashSet::new();
    for file in find::session_files(&directories) {
        let Some(mut session) = read::summary(&file) else { continue };
        if let Some(owner) = owners.get(file.path.as_path()) {
            session.session_id.clone_from(&owner.session_id);
            session.loaded = owner.loaded;
        }
        found.insert(file.path);
        stored.push(session);
    }
    // pi writes the file with the first answer; until then only we know of the conversation.
    for Known { file, stored: session } in known {
        if let Some(file) = file
            && session.loaded
            && !found.contains(&file)
        {
            stored.push(StoredSession { exists: file.is_file(), ..session });
        }
    }
    stored.sort_by(|a, b| b.modified_at.cmp(&a.modified_at).then_with(|| a.path.cmp(&b.path)));
    stored
}

#[cfg(test)]
#[path = "stored/stored_tests.rs"]
mod tests;
