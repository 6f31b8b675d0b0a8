//! `files`: each frame becomes one service command, its answer a frame in the words of the channel.
//!
//! The frames keep the names of the clients that this channel is for. Permissions, confinement of paths and approvals
//! are those of the service commands.

mod watches;

use std::sync::Arc;

use bytes::Bytes;
use qd_wire::channel::{ChannelScope, DirEntry, FileStat, FilesCommand, FilesEvent};
use qd_wire::command_table::CommandName;
use qd_wire::mux::{FilesClientFrame, FilesFrame, ServerFrame};
use qd_wire::service::{Encoding, FsDoneData, FsListData, FsReadData, FsStatData, FsTreeData, FsWriteData};
use qd_wire::{CodedError, ErrorCode, JsonObject};
use serde_json::{Value, json};

use super::read_frame;
use crate::command::Command;
use crate::command::ask::{CommandAnswer, ask};
use crate::command::reply::server_frame;
use crate::connection::Mailbox;
use crate::hub::Hub;
pub(crate) use watches::DirectoryWatches;

/// Acts on one frame of the channel.
pub(crate) fn handle(hub: &Arc<Hub>, mailbox: &Arc<Mailbox>, watches: &DirectoryWatches, text: &str) {
    let frame: FilesClientFrame = match read_frame(text) {
        Ok(frame) => frame,
        Err((id, error)) => return mailbox.send(error_frame(id, error)),
    };
    let call = FilesCall { hub, mailbox, id: frame.id, place: frame.place };
    match frame.command {
        FilesCommand::WatchFiles {} => call.watch(watches),
        FilesCommand::UnwatchFiles {} => call.unwatch(watches),
        FilesCommand::CopyToWorkspace { .. } => call.copy_to_workspace(&frame.command),
        command @ (FilesCommand::Tree { .. }
        | FilesCommand::Read { .. }
        | FilesCommand::Write { .. }
        | FilesCommand::List { .. }
        | FilesCommand::Stat { .. }
        | FilesCommand::Delete { .. }
        | FilesCommand::CreateDirectory { .. }
        | FilesCommand::Rename { .. }
        | FilesCommand::Copy { .. }
        | FilesCommand::Move { .. }) => call.run(command),
    }
}

struct FilesCall<'a> {
    hub: &'a Arc<Hub>,
    mailbox: &'a Arc<Mailbox>,
    id: Option<Value>,
    place: ChannelScope,
}

impl FilesCall<'_> {
    fn run(self, command: FilesCommand) {
        let (name, parameters) = canonical(&command);
        // `place` decides where the call runs; the parameters of a frame cannot name another root.
        let canonical = self.command(name, parameters);
        let (mailbox, id) = (Arc::clone(self.mailbox), self.id);
        ask(self.hub, &self.mailbox.asker, canonical, move |_, answer| {
            let event = event(&command, &answer).unwrap_or_else(error_event);
            mailbox.send(event_frame(id, event));
        });
    }

    /// The canonical command, with where it is to be done.
    fn command(&self, name: CommandName, parameters: JsonObject) -> Command<'static> {
        let command = Command::new(name).with_all(parameters).with("actor", "web");
        let ChannelScope { workspace_path, session_id, runner_id } = self.place.clone();
        // A session has its own directory.
        let root = workspace_path.filter(|_| session_id.is_none());
        command.with("root", root).on_if(session_id).at_if(runner_id)
    }

    /// Between two directories of one machine: both must lie within what its runner opens.
    fn copy_to_workspace(self, command: &FilesCommand) {
        let FilesCommand::CopyToWorkspace {
            source_workspace_path,
            source_path,
            target_workspace_path,
            target_path,
        } = command.clone()
        else {
            return;
        };
        let Some((root, source, target)) =
            common_root(&source_workspace_path, &source_path, &target_workspace_path, &target_path)
        else {
            let error = "The two directories have nothing in common, or a path leaves its directory";
            return self.mailbox.send(error_frame(self.id, CodedError::invalid(error)));
        };
        let place = ChannelScope {
            workspace_path: Some(root),
            session_id: None,
            runner_id: self.place.runner_id.clone(),
        };
        let call = FilesCall { place, ..self };
        let parameters = object(json!({"from": source, "to": target, "create_parents": true}));
        let canonical = call.command(CommandName::FsCopy, parameters);
        let (mailbox, id) = (Arc::clone(call.mailbox), call.id);
        ask(call.hub, &call.mailbox.asker, canonical, move |_, answer| {
            let event = match answer.read::<FsDoneData>() {
                Ok(done) => FilesEvent::CopyToWorkspaceResult {
                    source_workspace_path,
                    target_workspace_path,
                    files_copied: done.count,
                    success: true,
                },
                Err(error) => error_event(error),
            };
            mailbox.send(event_frame(id, event));
        });
    }
}

/// The deepest directory that holds both, and the two paths from there. Each path must stay in its directory.
fn common_root(
    source_root: &str,
    source: &str,
    target_root: &str,
    target: &str,
) -> Option<(String, String, String)> {
    let parts = |path: &str| -> Option<Vec<String>> {
        let named = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        named.map(|part| (part != "..").then(|| part.to_owned())).collect()
    };
    // Paths are compared as text here. The runner confines them again, where symlinks can be seen.
    if !source_root.starts_with('/')
        || !target_root.starts_with('/')
        || source.starts_with('/')
        || target.starts_with('/')
    {
        return None;
    }
    let (from, to) = (parts(source_root)?, parts(target_root)?);
    let common = from.iter().zip(&to).take_while(|(left, right)| left == right).count();
    // Nothing in common would mean the root directory of the machine, which is no workspace.
    if common == 0 {
        return None;
    }
    let rest = |root: &[String], path: &str| -> Option<String> {
        Some(root[common..].iter().cloned().chain(parts(path)?).collect::<Vec<_>>().join("/"))
    };
    Some((format!("/{}", from[..common].join("/")), rest(&from, source)?, rest(&to, target)?))
}

/// The command that does the work, and its parameters.
fn canonical(command: &FilesCommand) -> (CommandName, JsonObject) {
    let (name, parameters) = match command {
        FilesCommand::Tree { path, depth, include_hidden, offset, limit } => (
            CommandName::FsTree,
            json!({"path": path, "depth": depth, "include_hidden": include_hidden, "offset": offset, "limit": limit}),
        ),
        FilesCommand::Read { path, offset, length } => (
            CommandName::FsRead,
            // Always base64: the channel does not say beforehand whether a file is text.
            json!({"path": path, "offset": offset, "length": length, "encoding": Encoding::Base64}),
        ),
        FilesCommand::Write { path, content, create_parents, expected_hash } => (
            CommandName::FsWrite,
            json!({
                "path": path, "content": content, "encoding": Encoding::Base64,
                "create_parents": create_parents, "expected_hash": expected_hash,
            }),
        ),
        FilesCommand::List { path, include_hidden } => {
            (CommandName::FsList, json!({"path": path, "include_hidden": include_hidden, "limit": 5000}))
        }
        FilesCommand::Stat { path } => (CommandName::FsStat, json!({"path": path})),
        FilesCommand::Delete { path, recursive } => {
            (CommandName::FsDelete, json!({"path": path, "recursive": recursive}))
        }
        FilesCommand::CreateDirectory { path, create_parents } => {
            (CommandName::FsCreateDirectory, json!({"path": path, "create_parents": create_parents}))
        }
        FilesCommand::Rename { from, to, overwrite } => (CommandName::FsRename, moved(from, to, *overwrite)),
        FilesCommand::Copy { from, to, overwrite } => (CommandName::FsCopy, moved(from, to, *overwrite)),
        FilesCommand::Move { from, to, overwrite } => (CommandName::FsMove, moved(from, to, *overwrite)),
        // These have their own functions; `handle` never sends them here.
        FilesCommand::CopyToWorkspace { .. } => (CommandName::FsCopy, Value::Null),
        FilesCommand::WatchFiles {} | FilesCommand::UnwatchFiles {} => (CommandName::FsWatch, Value::Null),
    };
    (name, object(parameters))
}

fn object(value: Value) -> JsonObject {
    if let Value::Object(object) = value { object } else { JsonObject::new() }
}

fn moved(from: &str, to: &str, overwrite: Option<bool>) -> Value {
    json!({"from": from, "to": to, "overwrite": overwrite})
}

/// The answer in the words of the channel.
fn event(command: &FilesCommand, answer: &CommandAnswer) -> Result<FilesEvent, CodedError> {
    if let Some(error) = answer.failed() {
        return Err(error);
    }
    match command {
        FilesCommand::Tree { .. } => answer.read::<FsTreeData>().map(|tree| FilesEvent::TreeResult {
            path: tree.path,
            entries: tree.entries,
            truncated: tree.truncated,
            stop_reason: tree.stop_reason,
            visited_nodes: tree.visited_nodes,
            elapsed_ms: tree.elapsed_ms,
            next_offset: tree.next_offset,
            total_entries: tree.total_entries,
        }),
        FilesCommand::Read { .. } => answer.read::<FsReadData>().map(|read| FilesEvent::ReadResult {
            path: read.path,
            content: read.content,
            size: read.size,
            truncated: read.truncated,
            next_offset: read.next_offset,
            hash: read.hash,
        }),
        FilesCommand::Write { .. } => answer.read::<FsWriteData>().map(|written| FilesEvent::WriteResult {
            path: written.path,
            success: true,
            hash: written.hash,
        }),
        FilesCommand::List { .. } => answer.read::<FsListData>().map(listed),
        FilesCommand::Stat { .. } => answer.read::<FsStatData>().map(stated),
        FilesCommand::Delete { path, .. } => {
            Ok(FilesEvent::DeleteResult { path: path.clone(), success: true })
        }
        FilesCommand::CreateDirectory { path, .. } => {
            Ok(FilesEvent::CreateDirectoryResult { path: path.clone(), success: true })
        }
        FilesCommand::Rename { from, to, .. } => {
            Ok(FilesEvent::RenameResult { from: from.clone(), to: to.clone(), success: true })
        }
        FilesCommand::Copy { from, to, .. } => {
            Ok(FilesEvent::CopyResult { from: from.clone(), to: to.clone(), success: true })
        }
        FilesCommand::Move { from, to, .. } => {
            Ok(FilesEvent::MoveResult { from: from.clone(), to: to.clone(), success: true })
        }
        FilesCommand::CopyToWorkspace { .. }
        | FilesCommand::WatchFiles {}
        | FilesCommand::UnwatchFiles {} => {
            Err(ErrorCode::Internal.with("This answer belongs to another command"))
        }
    }
}

fn listed(list: FsListData) -> FilesEvent {
    let entries = list.entries.into_iter().map(|entry| DirEntry {
        name: entry.name,
        is_dir: entry.is_dir,
        is_symlink: entry.is_symlink,
        size: entry.size_bytes.unwrap_or(0),
        modified_at: entry.modified_at.unwrap_or(0),
    });
    FilesEvent::ListResult { path: list.path, entries: entries.collect(), truncated: list.truncated }
}

fn stated(stat: FsStatData) -> FilesEvent {
    let path = stat.path;
    let stat = FileStat {
        exists: stat.exists,
        is_file: stat.is_file,
        is_dir: stat.is_dir,
        is_symlink: stat.is_symlink,
        size: stat.size,
        modified_at: stat.modified_at,
        created_at: stat.created_at,
        mode: stat.mode,
    };
    FilesEvent::StatResult { path, stat }
}

fn error_event(error: CodedError) -> FilesEvent {
    FilesEvent::Error { error: error.message, code: Some(error.code) }
}

fn error_frame(id: Option<Value>, error: CodedError) -> Bytes {
    event_frame(id, error_event(error))
}

fn event_frame(id: Option<Value>, event: FilesEvent) -> Bytes {
    server_frame(&ServerFrame::Files(FilesFrame { id, event }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_are_copied_between_from_what_holds_both() {
        let found = common_root("/home/a/one", "x/y", "/home/a/two", "./z");
        assert_eq!(found, Some(("/home/a".to_owned(), "one/x/y".to_owned(), "two/z".to_owned())));
        assert_eq!(common_root("/home/a", "../x", "/home/b", "z"), None);
        assert_eq!(common_root("/home/a", "/etc/passwd", "/home/b", "z"), None);
        assert_eq!(common_root("/home", "x", "/srv", "z"), None);
    }
}
