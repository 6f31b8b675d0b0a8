//! The directory a call works in: that of its session, or one that the settings or another session allow.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qd_wire::people::{Places, Rights};
use qd_wire::service::ServiceScope;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::{ServiceError, ServiceResult};
use crate::session::{RunnerContext, ServiceFacts, ServiceInput, SessionInput};
use crate::uplink::describe_all;

/// How long a session may take to say where it works; it may be storing something large.
const FACTS_TIMEOUT: Duration = Duration::from_secs(30);

/// The directory a call works in, and what is known of its session.
#[derive(Debug, Clone)]
pub(crate) struct CallDirectory {
    pub(crate) path: PathBuf,
    /// Without a session none.
    pub(crate) facts: Option<ServiceFacts>,
}

/// The place of a call in a session.
pub(crate) async fn in_session(
    session: &mpsc::Sender<SessionInput>,
    session_id: &str,
    scope: &ServiceScope,
) -> ServiceResult<CallDirectory> {
    if scope.root.is_some() {
        return Err(ServiceError::invalid(
            "'root' is for calls without a session; with a session_id paths are in the session's directory",
        ));
    }
    let (answer, facts) = oneshot::channel();
    let asked = async {
        session.send(SessionInput::Service(ServiceInput::Facts(answer))).await.ok()?;
        facts.await.ok()
    };
    let facts = match tokio::time::timeout(FACTS_TIMEOUT, asked).await {
        Ok(Some(facts)) if facts.exists => facts,
        Ok(_) => return Err(CodedError::session_not_found(session_id).into()),
        Err(_) => refuse!(Busy, "The session is busy and does not answer. Please retry."),
    };
    let Some(cwd) = facts.cwd.clone() else {
        refuse!(Conflict, "Session '{session_id}' works in no directory");
    };
    Ok(CallDirectory { path: PathBuf::from(cwd), facts: Some(facts) })
}

/// The place of a call without a session. Without the permission for files that is where sessions work, and not the
/// rest of the disk.
pub(crate) async fn without_session(
    shared: &RunnerContext,
    scope: &ServiceScope,
    rights: Rights,
) -> ServiceResult<CallDirectory> {
    let Some(root) = scope.root.as_deref().filter(|root| !root.is_empty()) else {
        refuse!(InvalidRequest, "Name a session_id, or a directory as 'root'");
    };
    let path = PathBuf::from(root);
    if !path.is_absolute() || root.contains('\0') {
        refuse!(InvalidRequest, "root: Must be an absolute path, not '{root}'");
    }
    let workspace_roots = shared.config.services.workspace_roots.clone();
    let only_sessions = rights.places() == Places::Sessions;
    let found = tokio::task::spawn_blocking(move || {
        // Resolved before it is compared, or a link inside an allowed directory would lead out of it.
        let path = path.canonicalize()?;
        let is_allowed = is_within(&path, &workspace_roots);
        Ok::<_, std::io::Error>((path, is_allowed))
    })
    .await?;
    let (path, is_allowed) = match found {
        Ok(found) => found,
        // Who may not look there does not learn whether it is there either.
        Err(_) if only_sessions => return Err(only_of_sessions(root, rights)),
        Err(error) => {
            let code = ErrorCode::of_io(&error);
            return Err(code.with(format!("root: There is no directory '{root}': {error}")).into());
        }
    };
    if (is_allowed && !only_sessions) || is_of_a_session(shared, path.clone()).await? {
        return Ok(CallDirectory { path, facts: None });
    }
    if only_sessions {
        return Err(only_of_sessions(root, rights));
    }
    let error = format!(
        "root: '{root}' is neither within the runner's workspace_roots nor the directory of a session; add it to \
         workspace_roots (QD_WORKSPACE_ROOTS) on the runner"
    );
    Err(ErrorCode::PermissionDenied.with(error).into())
}

fn only_of_sessions(root: &str, rights: Rights) -> ServiceError {
    let error = format!(
        "root: '{root}' is not the directory of a session, and this access (role {}) does not have the permission \
         'files', which others need: name a session_id, or ask an operator",
        rights.role.as_str()
    );
    ErrorCode::PermissionDenied.with(error).into()
}

/// Whether a path without links lies in one of these directories, or is one.
pub(crate) fn is_within(path: &Path, directories: &[PathBuf]) -> bool {
    directories.iter().any(|directory| directory.canonicalize().is_ok_and(|known| path.starts_with(known)))
}

async fn is_of_a_session(shared: &RunnerContext, path: PathBuf) -> ServiceResult<bool> {
    let states = describe_all(shared).await;
    let directories: Vec<PathBuf> =
        states.into_values().filter_map(|state| state.cwd.clone().map(PathBuf::from)).collect();
    Ok(tokio::task::spawn_blocking(move || is_within(&path, &directories)).await?)
}
