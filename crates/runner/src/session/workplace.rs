//! Where a session may work: wherever an owner likes, and for everybody else within `workspace_roots`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qd_wire::command::SessionConfig;
use qd_wire::people::{Places, Rights};
use qd_wire::{CodedError, ErrorCode};

use super::actor::RunnerContext;
use super::session_row::home_of;
use crate::services::is_within;

/// Refuses a directory that is neither within `workspace_roots` nor that of a session, unless an owner wants it. Who
/// names none gets the usual one, or the first of `workspace_roots` where that is not allowed.
pub(super) async fn hold_to_workspaces(
    shared: &Arc<RunnerContext>,
    rights: Rights,
    config: &mut SessionConfig,
) -> Result<(), CodedError> {
    match rights.places() {
        Places::All => return Ok(()),
        Places::Workspaces | Places::Sessions => {}
    }
    let roots = shared.config.services.workspace_roots.clone();
    let wanted = config.cwd.clone();
    if wanted.as_deref().is_some_and(|cwd| !Path::new(cwd).is_absolute()) {
        // Refused for everybody, in words of its own.
        return Ok(());
    }
    let cwd = wanted.clone().unwrap_or_else(|| home_of(&shared.config));
    let looked = tokio::task::spawn_blocking(move || allowed(Path::new(&cwd), &roots)).await;
    let found = looked.map_err(|error| ErrorCode::Internal.with(error.to_string()))?;
    match (found, wanted) {
        (Workplace::Allowed(_), None) => {}
        (Workplace::Allowed(path), Some(_)) => config.cwd = Some(path),
        (Workplace::Elsewhere(_), None) => {
            let first = shared.config.services.workspace_roots.first();
            config.cwd =
                Some(first.ok_or_else(|| refusal(shared, "the usual one"))?.to_string_lossy().into_owned());
        }
        (Workplace::Elsewhere(path), Some(cwd)) => {
            if !is_of_a_session(shared, &path).await? {
                return Err(refusal(shared, &format!("'{cwd}'")));
            }
            config.cwd = Some(path.to_string_lossy().into_owned());
        }
        (Workplace::Missing, Some(cwd)) => {
            return Err(ErrorCode::NotFound.with(format!("There is no directory '{cwd}' on this runner")));
        }
        (Workplace::Missing, None) => return Err(refusal(shared, "the usual one, which is missing,")),
    }
    Ok(())
}

/// What a directory is.
enum Workplace {
    /// Within `workspace_roots`; as it is to be written.
    Allowed(String),
    /// Somewhere else; without links.
    Elsewhere(PathBuf),
    Missing,
}

fn allowed(cwd: &Path, roots: &[PathBuf]) -> Workplace {
    // Without links, or one inside would lead out; and what was looked at is what the session gets.
    let Ok(path) = cwd.canonicalize() else { return Workplace::Missing };
    if is_within(&path, roots) {
        return Workplace::Allowed(path.to_string_lossy().into_owned());
    }
    Workplace::Elsewhere(path)
}

/// Whether a session works in just this directory. Whoever may work with sessions may work there already.
async fn is_of_a_session(shared: &Arc<RunnerContext>, path: &Path) -> Result<bool, CodedError> {
    let rows = shared.store.sessions().await;
    let rows = rows.map_err(|error| ErrorCode::StoreUnavailable.with(error.to_string()))?;
    let (home, path) = (home_of(&shared.config), path.to_owned());
    let looking = tokio::task::spawn_blocking(move || {
        rows.iter().any(|row| {
            let config: Option<SessionConfig> = serde_json::from_str(&row.config_json).ok();
            let cwd = config.map(|config| config.cwd.unwrap_or_else(|| home.clone()));
            cwd.and_then(|cwd| Path::new(&cwd).canonicalize().ok()).is_some_and(|cwd| cwd == path)
        })
    });
    looking.await.map_err(|error| ErrorCode::Internal.with(error.to_string()))
}

fn refusal(shared: &RunnerContext, cwd: &str) -> CodedError {
    let roots: Vec<String> =
        shared.config.services.workspace_roots.iter().map(|root| root.display().to_string()).collect();
    ErrorCode::PermissionDenied.with(format!(
        "cwd: {cwd} is not within the runner's workspace_roots ({}), and only an owner works elsewhere; name a directory \
         within them, or add it to workspace_roots (QD_WORKSPACE_ROOTS) on the runner",
        roots.join(", ")
    ))
}
