//! Which function does which command, on what thread, and for how long.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use qd_wire::ErrorCode;
use qd_wire::command::Command;
use qd_wire::command_table::Service;
use qd_wire::service::ServiceScope;
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{Cancel, ServiceError};
use super::fs::{Approved, Sender};
use super::gate::changes_files;
use super::limits::Place;
use super::own_data::OwnData;
use super::progress::{PacedChanges, Progress};
use super::root::Root;
use super::task::Call;
use super::{bash, fs, git, host, search, watch};
use crate::session::Shared;

/// What a call has done.
#[derive(Debug, Clone)]
pub(super) struct Done {
    /// The answer.
    pub(super) data: Arc<str>,
    /// What is recorded of it.
    pub(super) summary: Value,
    /// It was done, but what was done failed.
    pub(super) error: Option<String>,
}

impl Done {
    pub(super) fn new<T: Serialize>(data: &T, summary: Value) -> Result<Done, ServiceError> {
        let data = serde_json::to_string(data)
            .map_err(|error| ServiceError::coded(ErrorCode::Internal, error.to_string()))?;
        Ok(Done { data: data.into(), summary, error: None })
    }
}

/// Does it.
pub(super) async fn work(
    call: &Call,
    root: &Path,
    cancel: &Cancel,
    place: Place,
    approved: Option<Approved>,
) -> Result<Done, ServiceError> {
    let limit = call.command.spec().timeout_ms.map(Duration::from_millis);
    let working = async {
        let command = &*call.command;
        match (command.spec().service, command) {
            (_, Command::HostBash(params)) => {
                let _place = place;
                let progress = Progress::new(&call.shared, &call.incoming);
                let session_id = call.session_id();
                let shell = bash::Shell { config: &call.shared.config, root, session_id };
                bash::run(shell, params, cancel, &progress).await
            }
            (Some(Service::Host), _) => {
                let (shared, command) = (Arc::clone(&call.shared), Arc::clone(&call.command));
                blocking(place, move || host::answer(&shared, &command)).await
            }
            (Some(Service::Git), _) => {
                let _place = place;
                let workspace_roots = &call.shared.config.services.workspace_roots;
                let (root, own_data) = own_data(&call.shared, root).await?;
                let ground = git::Ground { root: &root, workspace_roots, own_data };
                git::work(command, &ground, cancel).await
            }
            (Some(Service::Files), _) => files(call, root, cancel, place, approved).await,
            (Some(Service::Shell) | None, _) => Err(unknown(command)),
        }
    };
    if changes_files(&call.command) {
        // What has begun to change something is not left alone.
        return working.await;
    }
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = working => result,
        () = cancel.cancelled() => Err(ServiceError::Cancelled),
        () = over => {
            // A thread that still works looks at this now and then.
            cancel.cancel();
            Err(ServiceError::Timeout)
        }
    }
}

/// Whether a call works in a directory at all.
pub(super) fn needs_directory(command: &Command) -> bool {
    command.spec().service != Some(Service::Host)
}

/// The root without links, and where the runner's own data lies; an error if the root is in it.
pub(super) async fn own_data(shared: &Arc<Shared>, root: &Path) -> Result<(PathBuf, OwnData), ServiceError> {
    let (shared, root) = (Arc::clone(shared), root.to_owned());
    let looked = tokio::task::spawn_blocking(move || {
        let own_data = shared.services.own_data(&shared)?;
        let root = root.canonicalize()?;
        own_data.check_path(&root)?;
        Ok((root, own_data))
    });
    looked.await.map_err(|error| ServiceError::coded(ErrorCode::Internal, error.to_string()))?
}

/// On a thread that may block; the place is kept until it is done, also when nobody waits for it any more.
pub(super) async fn blocking<T: Send + 'static>(
    place: Place,
    action: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
) -> Result<T, ServiceError> {
    let task = tokio::task::spawn_blocking(move || {
        let _place = place;
        action()
    });
    match task.await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a service call failed");
            Err(ServiceError::coded(
                ErrorCode::Internal,
                "The service failed inside; the runner's log says where",
            ))
        }
    }
}

async fn files(
    call: &Call,
    root: &Path,
    cancel: &Cancel,
    place: Place,
    approved: Option<Approved>,
) -> Result<Done, ServiceError> {
    let (shared, command, root) = (Arc::clone(&call.shared), Arc::clone(&call.command), root.to_owned());
    let progress = Progress::new(&shared, &call.incoming);
    let (cancel, principal) = (cancel.clone(), call.incoming.principal.clone());
    blocking(place, move || {
        let root = Root::open_apart_from(shared.services.own_data(&shared)?, &root)?;
        if let Command::FsWatch(params) = &*command {
            let mut changes = PacedChanges::new(progress, cancel.clone());
            watch::watch(&root, params, &cancel, &mut |change| changes.say(&change))?;
            return Done::new(&json!({}), json!({}));
        }
        if changes_files(&command) {
            let sender = Sender { principal: &principal, approved: approved.as_ref() };
            return change_files(&shared, &command, &root, sender, &cancel);
        }
        read_files(&command, &root, &cancel)
    })
    .await
}

fn read_files(command: &Command, root: &Root, cancel: &Cancel) -> Result<Done, ServiceError> {
    match command {
        Command::FsRead(params) => {
            let data = fs::read(root, params, cancel)?;
            let bytes = data.content.len();
            let summary =
                json!({ "path": data.path, "bytes": bytes, "size": data.size, "truncated": data.truncated });
            Done::new(&data, summary)
        }
        Command::FsList(params) => {
            let data = fs::list(root, params, cancel)?;
            let summary =
                json!({ "path": data.path, "count": data.entries.len(), "truncated": data.truncated });
            Done::new(&data, summary)
        }
        Command::FsTree(params) => {
            let data = fs::tree(root, params, cancel)?;
            let summary =
                json!({ "path": data.path, "count": data.visited_nodes, "truncated": data.truncated });
            Done::new(&data, summary)
        }
        Command::FsStat(params) => {
            let data = fs::stat(root, params, cancel)?;
            let summary = json!({ "path": data.path, "exists": data.exists, "size": data.size });
            Done::new(&data, summary)
        }
        Command::FsSearch(params) => {
            let data = search::search(root, params, cancel)?;
            let summary = json!({ "count": data.matches.len(), "truncated": data.truncated });
            Done::new(&data, summary)
        }
        other => Err(unknown(other)),
    }
}

fn change_files(
    shared: &Shared,
    command: &Command,
    root: &Root,
    sender: Sender<'_>,
    cancel: &Cancel,
) -> Result<Done, ServiceError> {
    // A file is written whole or not at all, and what can be done at once is not stopped in the middle.
    let never = &Cancel::default();
    match command {
        Command::FsWrite(params) => {
            let data = fs::write(root, params, never)?;
            let summary =
                json!({ "path": data.path, "bytes_written": data.bytes_written, "truncated": false });
            Done::new(&data, summary)
        }
        Command::FsUpload(params) => {
            let data = fs::upload(&shared.services.uploads, root, params, sender, never)?;
            let path = data.written.as_ref().map(|written| &written.path);
            let summary = json!({ "path": path, "received": data.received });
            Done::new(&data, summary)
        }
        Command::FsCreateDirectory(params) => changed(fs::create_directory(root, params, never)?),
        Command::FsRename(params) => changed(fs::rename(root, params, never)?),
        Command::FsMove(params) => changed(fs::move_(root, params, cancel)?),
        Command::FsCopy(params) => changed(fs::copy(root, params, cancel)?),
        Command::FsDelete(params) => changed(fs::delete(root, params, cancel)?),
        other => Err(unknown(other)),
    }
}

fn changed(data: qd_wire::service::FsDoneData) -> Result<Done, ServiceError> {
    let summary = serde_json::to_value(&data)
        .map_err(|error| ServiceError::coded(ErrorCode::Internal, error.to_string()))?;
    Done::new(&data, summary)
}

fn unknown(command: &Command) -> ServiceError {
    ServiceError::coded(
        ErrorCode::Unsupported,
        format!("'{}' is not a service of this runner", command.spec().name),
    )
}

/// The fields all service commands have.
pub(super) fn scope_of(command: &Command) -> Option<&ServiceScope> {
    Some(match command {
        Command::FsRead(params) => &params.scope,
        Command::FsWrite(params) => &params.scope,
        Command::FsUpload(params) => &params.scope,
        Command::FsList(params) => &params.scope,
        Command::FsTree(params) => &params.scope,
        Command::FsStat(params) => &params.scope,
        Command::FsSearch(params) => &params.scope,
        Command::FsCreateDirectory(params) => &params.scope,
        Command::FsRename(params) | Command::FsMove(params) | Command::FsCopy(params) => &params.scope,
        Command::FsDelete(params) => &params.scope,
        Command::FsWatch(params) => &params.scope,
        Command::GitStatus(params) => &params.scope,
        Command::GitDiff(params) => &params.scope,
        Command::GitLog(params) => &params.scope,
        Command::GitWorktrees(params) => &params.scope,
        Command::GitWorktreeAdd(params) => &params.scope,
        Command::GitWorktreeRemove(params) => &params.scope,
        Command::HostBash(params) => &params.scope,
        Command::HostInfo(params) => &params.scope,
        Command::HostDoctor(params) => &params.scope,
        Command::HostCapabilities(params) => &params.scope,
        Command::HostLogs(params) => &params.scope,
        _ => return None,
    })
}
