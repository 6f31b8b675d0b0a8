//! Directories that a connection watches. Each watch is a command that stays in flight until it is taken back.
//!
//! A watch and its end race with the runner's answer, so each has a number: a late answer for an older watch of the
//! same directory does not end the newer one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qd_link::mutex::Mutex;
use qd_wire::channel::{ChannelScope, FilesEvent};
use qd_wire::command_table::CommandName;
use qd_wire::service::FsChanges;
use qd_wire::{CodedError, ErrorCode, JsonObject};

use super::{FilesCall, error_frame, event_frame};
use crate::command::ask::{CommandAnswer, OnProgress, ask, cancel_asked};
use crate::connection::Mailbox;
use crate::hub::Hub;

/// What may wait for a client when changes are told to it; what would be more is not told, but that there was some is.
const CHANGES_BACKLOG_MAX: usize = 1 << 20;
/// Directories one connection watches at a time.
const WATCHES_MAX: usize = 64;

/// The directories a connection watches, by their address.
#[derive(Clone, Default)]
pub(crate) struct DirectoryWatches(Arc<Mutex<WatchTable>>);

#[derive(Default)]
struct WatchTable {
    /// The number of the last watch on this connection.
    last: u64,
    open: HashMap<WatchedDirectory, DirectoryWatch>,
}

/// The same path is another directory on another machine.
#[derive(Clone, PartialEq, Eq, Hash)]
struct WatchedDirectory {
    /// `None` for the only one there is.
    runner_id: Option<String>,
    /// The path, or the session whose directory it is.
    name: String,
}

struct DirectoryWatch {
    /// Its own, so that the end of one does not end another of the same directory.
    number: u64,
    /// The command that does it; known when it is sent.
    command: Option<u64>,
}

impl DirectoryWatches {
    /// The connection is over.
    pub(crate) fn end(&self, hub: &Hub) {
        let open = std::mem::take(&mut self.0.lock().open);
        for command in open.into_values().filter_map(|watch| watch.command) {
            cancel_asked(hub, command);
        }
    }

    /// The number of a new watch, and the command of the one it replaces.
    fn start_watch(&self, directory: &WatchedDirectory) -> Result<(u64, Option<u64>), CodedError> {
        let mut state = self.0.lock();
        if state.open.len() >= WATCHES_MAX && !state.open.contains_key(directory) {
            let error = format!("This connection watches {WATCHES_MAX} directories, the most it may");
            return Err(ErrorCode::LimitReached.with(error));
        }
        state.last += 1;
        let number = state.last;
        let before = state.open.insert(directory.clone(), DirectoryWatch { number, command: None });
        Ok((number, before.and_then(|before| before.command)))
    }

    /// A watch was sent; its answer may have come already.
    fn sent(&self, directory: &WatchedDirectory, number: u64, command: u64) {
        if let Some(watch) = self.0.lock().open.get_mut(directory).filter(|watch| watch.number == number) {
            watch.command = Some(command);
        }
    }

    /// Removes this watch, and no other; whether it was there.
    fn remove(&self, directory: &WatchedDirectory, number: u64) -> bool {
        let mut state = self.0.lock();
        let is_own = state.open.get(directory).is_some_and(|watch| watch.number == number);
        is_own && state.open.remove(directory).is_some()
    }
}

impl FilesCall<'_> {
    /// Which directory is meant.
    fn directory(&self) -> Result<WatchedDirectory, CodedError> {
        let ChannelScope { workspace_path, session_id, runner_id } = &self.place;
        let of_session = session_id.as_deref().and_then(|session_id| self.hub.session(session_id));
        let of_session = of_session.map(|session| session.runner_id.to_string());
        let runner_id = of_session.or_else(|| runner_id.clone()).or_else(|| self.only_runner());
        let name = workspace_path.clone().or_else(|| session_id.clone());
        let name = name.ok_or_else(|| CodedError::invalid("workspace_path is required"))?;
        Ok(WatchedDirectory { runner_id, name })
    }

    /// Where there is one machine, it need not be named.
    fn only_runner(&self) -> Option<String> {
        let runners = self.hub.runners();
        let mut connected = runners.iter().filter(|runner| runner.link().is_some());
        let first = connected.next()?;
        connected.next().is_none().then(|| first.id.to_string())
    }

    pub(super) fn watch(self, watches: &DirectoryWatches) {
        let begun = self.directory().and_then(|directory| {
            let (number, before) = watches.start_watch(&directory)?;
            Ok((directory, number, before))
        });
        let (directory, number, before) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.mailbox.send(error_frame(self.id, error)),
        };
        if let Some(before) = before {
            cancel_asked(self.hub, before);
        }
        let command = self.command(CommandName::FsWatch, JsonObject::new());
        // The runner says first that it watches, which may be well after it was asked.
        let is_on = Arc::new(AtomicBool::new(false));
        let on_progress: OnProgress = {
            let (mailbox, id, name) = (Arc::clone(self.mailbox), self.id.clone(), directory.name.clone());
            let is_on = Arc::clone(&is_on);
            Arc::new(move |_, data| {
                if !is_on.swap(true, Ordering::AcqRel) {
                    let workspace_path = name.clone();
                    let event = FilesEvent::WatchFilesResult { workspace_path, success: true };
                    mailbox.send(event_frame(id.clone(), event));
                }
                send_changes(&mailbox, &name, data.get());
            })
        };
        let on_answer = {
            let (mailbox, id, mine) = (Arc::clone(self.mailbox), self.id.clone(), watches.clone());
            let directory = directory.clone();
            move |_: &Arc<Hub>, answer: CommandAnswer| {
                // One that was on and was taken back or replaced has been answered for.
                if mine.remove(&directory, number) || !is_on.load(Ordering::Acquire) {
                    mailbox.send(error_frame(id, answer.reason()));
                }
            }
        };
        let command = command.on_progress(on_progress);
        if let Some(command) = ask(self.hub, &self.mailbox.asker, command, on_answer) {
            watches.sent(&directory, number, command);
        }
    }

    pub(super) fn unwatch(self, watches: &DirectoryWatches) {
        let directory = match self.directory() {
            Ok(directory) => directory,
            Err(error) => return self.mailbox.send(error_frame(self.id, error)),
        };
        let found = watches.0.lock().open.remove(&directory);
        let success = found.is_some();
        if let Some(command) = found.and_then(|watch| watch.command) {
            cancel_asked(self.hub, command);
        }
        let event = FilesEvent::UnwatchFilesResult { workspace_path: directory.name, success };
        self.mailbox.send(event_frame(self.id, event));
    }
}

/// Tells what has changed, one frame for each change.
fn send_changes(mailbox: &Mailbox, workspace_path: &str, data: &str) {
    let Ok(mut changes) = serde_json::from_str::<FsChanges>(data) else {
        return tracing::error!("the changes of files cannot be read");
    };
    let mut frames = Vec::new();
    let mut push = |event_type: String, path: String, is_dir: bool| {
        let entry_type = if is_dir { "directory" } else { "file" }.to_owned();
        let workspace_path = workspace_path.to_owned();
        let event = FilesEvent::FileChanged { event_type, path, entry_type, workspace_path };
        frames.extend_from_slice(&event_frame(None, event));
    };
    for change in changes.changes.drain(..) {
        let kind = if change.is_dir { "dir" } else { "file" };
        // A directory is only made or removed: what changes is in it.
        let event_type = match &*change.change {
            "modified" if change.is_dir => continue,
            word => format!("{kind}_{word}"),
        };
        push(event_type, change.path, change.is_dir);
    }
    if changes.overflow {
        push("overflow".to_owned(), ".".to_owned(), true);
    }
    if !frames.is_empty() && !mailbox.put_unless_full(frames.into(), CHANGES_BACKLOG_MAX) {
        tracing::debug!("a client does not read; it is not told of changed files");
    }
}
