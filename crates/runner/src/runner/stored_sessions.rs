//! Conversations that harnesses keep in files of their own, and which of them are sessions of this runner.
//!
//! A file that is one of our sessions is listed under the session's name, so that a client opens the session and not
//! the file a second time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use qd_wire::data::{SessionState, SessionStatus, StoredSession};

use crate::driver::Harnesses;

/// Stored conversations of all harnesses, newest first. `sessions` are those of this runner.
pub(crate) async fn list(harnesses: &Harnesses, sessions: &[SessionState]) -> Vec<StoredSession> {
    let (harnesses, known) = (harnesses.clone(), known_of(sessions));
    // A first listing reads whole files.
    let listing = tokio::task::spawn_blocking(move || list_now(&harnesses, known));
    listing.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the stored sessions could not be listed");
        Vec::new()
    })
}

/// A session of this runner, as far as its file matters.
struct KnownSession {
    file: Option<PathBuf>,
    stored: StoredSession,
}

fn known_of(sessions: &[SessionState]) -> Vec<KnownSession> {
    let known = sessions.iter().map(|state| KnownSession {
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

fn list_now(harnesses: &Harnesses, known: Vec<KnownSession>) -> Vec<StoredSession> {
    let workplaces = known.iter().map(|known| PathBuf::from(&known.stored.cwd));
    let workplaces: BTreeSet<PathBuf> = workplaces.filter(|cwd| cwd.is_absolute()).collect();
    let workplaces: Vec<PathBuf> = workplaces.into_iter().collect();
    let owners: HashMap<&Path, &StoredSession> =
        known.iter().filter_map(|known| Some((known.file.as_deref()?, &known.stored))).collect();
    let mut stored = Vec::new();
    let mut found = HashSet::new();
    for row in harnesses.iter() {
        let Some(conversations) = row.harness.stored() else { continue };
        for mut session in conversations.list(&row.settings, &workplaces) {
            let path = PathBuf::from(&session.path);
            if let Some(owner) = owners.get(path.as_path()) {
                session.session_id.clone_from(&owner.session_id);
                session.loaded = owner.loaded;
            }
            found.insert(path);
            stored.push(session);
        }
    }
    // A file may be written with the first answer; until then only we know of the conversation.
    for KnownSession { file, stored: session } in known {
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
#[path = "stored_sessions_tests.rs"]
mod tests;
