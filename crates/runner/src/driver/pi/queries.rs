//! Commands that only look.

use std::path::Path;
use std::time::UNIX_EPOCH;

use qd_core::agent::AgentRequest;
use qd_core::harness::pi;
use qd_wire::{Command, ErrorCode};
use serde_json::{Value, json};

use super::PiHandle;
use super::execute::{reply_data, unsupported};
use crate::driver::{AgentFailure, AgentResult, ExecuteResult, ExecutedCommand, to_value};

/// Session files told of one working directory; the newest.
const FILES_MAX: usize = 10_000;

/// Answers a command that changes nothing.
pub(super) async fn read(handle: &PiHandle, command: &Command, native: bool) -> ExecuteResult {
    let data = match command {
        Command::GetStats(_) => {
            let reply = handle.request(AgentRequest::GetStats).await?;
            reply_data(native, reply, |reply| to_value(&pi::stats(reply)))?
        }
        Command::GetModels(_) => {
            let reply = handle.request(AgentRequest::GetModels).await?;
            reply_data(native, reply, |reply| to_value(&pi::models(reply)))?
        }
        Command::GetCommands(_) => {
            let mut reply = handle.request(AgentRequest::GetCommands).await?;
            pi::native_commands(&mut reply);
            reply_data(native, reply, |reply| to_value(&pi::commands(reply)))?
        }
        Command::GetForkPoints(_) => {
            let reply = handle.request(AgentRequest::GetForkPoints).await?;
            reply_data(native, reply, |reply| to_value(&pi::fork_points(reply)))?
        }
        Command::GetSkills(_) => pi::skills(&handle.request(AgentRequest::GetCommands).await?),
        Command::GetTools(_) => tools(handle)?,
        Command::GetNativeMessages(_) => {
            json!({ "native": handle.request(AgentRequest::GetMessages).await? })
        }
        Command::GetLastAssistantText(_) => {
            let text = pi::last_assistant_text(&handle.request(AgentRequest::GetLastAssistantText).await?);
            reply_data(native, json!({ "text": text }), |same| Ok(same.clone()))?
        }
        Command::GetContextUsage(_) => {
            let stats = handle.request(AgentRequest::GetStats).await?;
            let usage = stats.get("contextUsage").cloned().unwrap_or_default();
            reply_data(native, usage, |_| Ok(pi::context_usage(&stats)))?
        }
        Command::GetTree(_) => pi::tree(&handle.request(AgentRequest::GetEntries { since: None }).await?),
        Command::ListSessionFiles(_) => session_files(&handle.place().sessions).await?,
        other => return Err(unsupported(other)),
    };
    Ok(ExecutedCommand::with_data(data))
}

fn tools(handle: &PiHandle) -> AgentResult<Value> {
    let Some(tools) = handle.bridge().tools() else {
        let error = "The tools are not known: Quarterdeck's extension does not run in this pi. \
                     session.restart tries it again.";
        return Err(AgentFailure::refused(ErrorCode::Unsupported.with(error)));
    };
    let tools = tools.into_iter().map(|tool| json!({ "name": tool.name, "description": tool.description }));
    Ok(json!({ "tools": tools.collect::<Vec<_>>() }))
}

/// The conversations of the session's working directory, newest first.
async fn session_files(directory: &Path) -> AgentResult<Value> {
    let directory = directory.to_owned();
    let listing = tokio::task::spawn_blocking(move || files_in(&directory));
    let mut files = listing.await.map_err(|error| ErrorCode::Internal.with(error.to_string()))?;
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    files.truncate(FILES_MAX);
    let files = files.into_iter().map(|(path, modified_at)| {
        let name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
        json!({ "path": path, "name": name, "modified_at": modified_at })
    });
    Ok(json!({ "files": files.collect::<Vec<_>>() }))
}

/// Session files with the Unix milliseconds of their last change.
fn files_in(directory: &Path) -> Vec<(String, i64)> {
    // The directory is made with the first session; without it there is none.
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let files = entries.flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let path = entry.path();
        path.extension().filter(|extension| *extension == "jsonl")?;
        let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some((path.to_string_lossy().into_owned(), i64::try_from(modified.as_millis()).ok()?))
    });
    files.collect()
}
