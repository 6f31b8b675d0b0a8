//! Runs the function of each service command, on the right thread and within its time limit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use qd_wire::ErrorCode;
use qd_wire::command::Command;
use qd_wire::command_table::Service;
use serde::Serialize;
use serde_json::{Value, json};

use super::Call;
use super::gate::changes_files;
use super::limits::CallPermit;
use super::progress::{CallProgress, PacedChanges};
use super::{Cancellation, ServiceError, ServiceResult};
use crate::services::fs::{ApprovedUpload, UploadSender};
use crate::services::host::bash;
use crate::services::root::Root;
use crate::services::root::own_data::OwnData;
use crate::services::{fs, git, host, search, watch};
use crate::session::RunnerContext;

/// What a call has done.
#[derive(Debug, Clone)]
pub(crate) struct CallOutput {
    /// The answer.
    pub(crate) data: Arc<str>,
    /// What is recorded of it.
    pub(crate) summary: Value,
    /// It was done, but what was done failed.
    pub(crate) error: Option<String>,
}

/// What came of a call.
pub(crate) type CallResult = ServiceResult<CallOutput>;

impl CallOutput {
    /// A call that was done; `summary` says what is recorded of its answer.
    pub(crate) fn new<T: Serialize>(data: T, summary: impl FnOnce(&T) -> Value) -> CallResult {
        let text = serde_json::to_string(&data)?;
        Ok(CallOutput { data: text.into(), summary: summary(&data), error: None })
    }
}

/// Carries out a call that was admitted and approved.
pub(crate) async fn work(
    call: &Call,
    root: &Path,
    cancel: &Cancellation,
    permit: CallPermit,
    approved: Option<ApprovedUpload>,
) -> CallResult {
    let limit = call.command.spec().timeout_ms.map(Duration::from_millis);
    let working = async {
        let command = &*call.command;
        match (command.spec().service, command) {
            (_, Command::HostBash(params)) => {
                let _permit = permit;
                let progress = CallProgress::new(&call.shared, &call.incoming);
                let session_id = call.session_id();
                let shell = bash::ShellContext { config: &call.shared.config, root, session_id };
                bash::run(shell, params, cancel, &progress).await
            }
            (Some(Service::Host), _) => {
                let (shared, command) = (Arc::clone(&call.shared), Arc::clone(&call.command));
                blocking(permit, move || host::answer(&shared, &command)).await
            }
            (Some(Service::Git), _) => {
                let _permit = permit;
                let workspace_roots = &call.shared.config.services.workspace_roots;
                let (root, own_data) = own_data(&call.shared, root).await?;
                let directory = git::GitDirectory { root: &root, workspace_roots, own_data };
                git::work(command, &directory, cancel).await
            }
            (Some(Service::Files), _) => files(call, root, cancel, permit, approved).await,
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
pub(crate) fn needs_directory(command: &Command) -> bool {
    command.spec().service != Some(Service::Host)
}

/// The root without links, and where the runner's own data lies; an error if the root is in it.
pub(crate) async fn own_data(shared: &Arc<RunnerContext>, root: &Path) -> ServiceResult<(PathBuf, OwnData)> {
    let (shared, root) = (Arc::clone(shared), root.to_owned());
    let looked = tokio::task::spawn_blocking(move || {
        let own_data = shared.services.own_data(&shared)?;
        let root = root.canonicalize()?;
        own_data.check_path(&root)?;
        Ok((root, own_data))
    });
    looked.await?
}

/// On a thread that may block; the place is kept until it is done, also when nobody waits for it any more.
pub(crate) async fn blocking<T: Send + 'static>(
    permit: CallPermit,
    action: impl FnOnce() -> ServiceResult<T> + Send + 'static,
) -> ServiceResult<T> {
    let task = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        action()
    });
    match task.await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a service call failed");
            refuse!(Internal, "The service failed inside; the runner's log says where")
        }
    }
}

async fn files(
    call: &Call,
    root: &Path,
    cancel: &Cancellation,
    permit: CallPermit,
    approved: Option<ApprovedUpload>,
) -> CallResult {
    let (shared, command, root) = (Arc::clone(&call.shared), Arc::clone(&call.command), root.to_owned());
    let progress = CallProgress::new(&shared, &call.incoming);
    let (cancel, principal) = (cancel.clone(), call.incoming.principal.clone());
    blocking(permit, move || {
        let root = Root::open_apart_from(shared.services.own_data(&shared)?, &root)?;
        if let Command::FsWatch(params) = &*command {
            let mut changes = PacedChanges::new(progress, cancel.clone());
            watch::watch(&root, params, &cancel, &mut |change| changes.send(&change))?;
            return CallOutput::new(json!({}), Value::clone);
        }
        if changes_files(&command) {
            let sender = UploadSender { principal: &principal, approved: approved.as_ref() };
            return change_files(&shared, &command, &root, sender, &cancel);
        }
        read_files(&command, &root, &cancel)
    })
    .await
}

fn read_files(command: &Command, root: &Root, cancel: &Cancellation) -> CallResult {
    match command {
        Command::FsRead(params) => CallOutput::new(
            fs::read(root, params, cancel)?,
            |data| json!({ "path": data.path, "bytes": data.content.len(), "size": data.size, "truncated": data.truncated }),
        ),
        Command::FsList(params) => CallOutput::new(
            fs::list(root, params, cancel)?,
            |data| json!({ "path": data.path, "count": data.entries.len(), "truncated": data.truncated }),
        ),
        Command::FsTree(params) => CallOutput::new(
            fs::tree(root, params, cancel)?,
            |data| json!({ "path": data.path, "count": data.visited_nodes, "truncated": data.truncated }),
        ),
        Command::FsStat(params) => CallOutput::new(
            fs::stat(root, params, cancel)?,
            |data| json!({ "path": data.path, "exists": data.exists, "size": data.size }),
        ),
        Command::FsSearch(params) => CallOutput::new(
            search::search(root, params, cancel)?,
            |data| json!({ "count": data.matches.len(), "truncated": data.truncated }),
        ),
        other => Err(unknown(other)),
    }
}

fn change_files(
    shared: &RunnerContext,
    command: &Command,
    root: &Root,
    sender: UploadSender<'_>,
    cancel: &Cancellation,
) -> CallResult {
    // A file is written whole or not at all, and what can be done at once is not stopped in the middle.
    let never = &Cancellation::default();
    let done = match command {
        Command::FsWrite(params) => {
            return CallOutput::new(
                fs::write(root, params, never)?,
                |data| json!({ "path": data.path, "bytes_written": data.bytes_written, "truncated": false }),
            );
        }
        Command::FsUpload(params) => {
            let data = fs::upload(&shared.services.uploads, root, params, sender, never)?;
            return CallOutput::new(data, |data| {
                let path = data.written.as_ref().map(|written| &written.path);
                json!({ "path": path, "received": data.received })
            });
        }
        Command::FsCreateDirectory(params) => fs::create_directory(root, params, never)?,
        Command::FsRename(params) => fs::rename(root, params, never)?,
        Command::FsMove(params) => fs::rename(root, params, cancel)?,
        Command::FsCopy(params) => fs::copy(root, params, cancel)?,
        Command::FsDelete(params) => fs::delete(root, params, cancel)?,
        other => return Err(unknown(other)),
    };
    let summary = serde_json::to_value(&done)?;
    CallOutput::new(done, |_| summary)
}

fn unknown(command: &Command) -> ServiceError {
    let name = command.spec().name;
    ServiceError::coded(ErrorCode::Unsupported, format!("'{name}' is not a service of this runner"))
}
