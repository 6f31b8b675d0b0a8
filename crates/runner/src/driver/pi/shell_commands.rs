//! A person's own shell commands, and what becomes of them in the conversation: pi writes them into its history
//! without an event, at once or when its turn is over.
//!
//! They become messages when they are found in the history; the time of the last one that was told keeps them from
//! being told twice.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use qd_core::agent::{AgentRequest, NativeMessage};
use qd_wire::command::BashParams;
use serde_json::{Value, json};

use super::PiHandle;
use super::execute::reply_data;
use crate::clock::now_ms;
use crate::driver::{AgentResult, CommandEffect, ExecuteResult, ExecutedCommand};

/// Which shell commands the session has been told of.
pub(super) struct ReportedShellCommands {
    /// Commands that are in no message of ours yet.
    missing: AtomicUsize,
    /// The time of the last one told; later ones are new.
    until: AtomicI64,
    /// One look at the history at a time, so that nothing is told twice.
    looking: tokio::sync::Mutex<()>,
}

impl Default for ReportedShellCommands {
    fn default() -> Self {
        ReportedShellCommands {
            missing: AtomicUsize::new(0),
            // What this pi has not run itself is not its news.
            until: AtomicI64::new(now_ms() - 1),
            looking: tokio::sync::Mutex::default(),
        }
    }
}

/// Runs a shell command in the session's directory, beside whatever pi does.
pub(super) async fn run(handle: &PiHandle, params: &BashParams, native: bool) -> ExecuteResult {
    let exclude_from_context = params.exclude_from_context.unwrap_or(false);
    let request = AgentRequest::Bash { command: params.command.clone(), exclude_from_context };
    let reply = handle.request(request).await?;
    handle.reported_shell_commands().missing.fetch_add(1, Ordering::Relaxed);
    let effects = news(handle).await?;
    let data = reply_data(native, reply, |reply| {
        Ok(json!({
            "output": reply.get("output"),
            "exit_code": reply.get("exitCode"),
            "cancelled": reply.get("cancelled"),
            "truncated": reply.get("truncated"),
            "full_output_path": reply.get("fullOutputPath"),
        }))
    })?;
    Ok(ExecutedCommand { data: Some(data), effects, ..ExecutedCommand::default() })
}

/// Shell commands that are in pi's history and not in ours yet.
pub(super) async fn news(handle: &PiHandle) -> AgentResult<Vec<CommandEffect>> {
    let reported_shell_commands = handle.reported_shell_commands();
    let _looking = reported_shell_commands.looking.lock().await;
    if reported_shell_commands.missing.load(Ordering::Relaxed) == 0 {
        return Ok(Vec::new());
    }
    let until = reported_shell_commands.until.load(Ordering::Relaxed);
    let mut messages = handle.conversation().await?;
    messages.retain(|message| is_shell(message) && message.head.created_at > until);
    let Some(last) = messages.iter().map(|message| message.head.created_at).max() else {
        // pi works, and writes them down when it has finished.
        return Ok(Vec::new());
    };
    reported_shell_commands.until.store(last, Ordering::Relaxed);
    let found = messages.len();
    // Cannot fail: the closure always gives a value.
    let _ = reported_shell_commands
        .missing
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |missing| Some(missing.saturating_sub(found)));
    Ok(vec![CommandEffect::Added(messages)])
}

fn is_shell(message: &NativeMessage) -> bool {
    let native_role = message.metadata.as_ref().and_then(|metadata| metadata.get("native_role"));
    native_role.and_then(Value::as_str) == Some("bashExecution")
}
