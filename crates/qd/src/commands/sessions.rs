//! Sessions: started, listed, followed, prompted, answered, ended.

pub(crate) mod approvals;
pub(crate) mod approve;
pub(crate) mod attach;
pub(crate) mod control;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod run;
pub(crate) mod search;

use std::io::Read;

use qd_link::client::{CallError, ClientRequest, MuxClient};
use qd_wire::mux::{Channel, ClientFrame};
use qd_wire::{Command, CommandResponse};

use crate::error::{CliError, Result};

/// The longest text read from stdin.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The words of a prompt; a lone `-` means stdin.
fn prompt_text(words: &[String]) -> Result<String> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > STDIN_BYTES_MAX {
        return Err(CliError::usage(format!("stdin is longer than {STDIN_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(CliError::usage("stdin is empty").hint("give the prompt as an argument, or pipe it in"));
    }
    Ok(text)
}

/// Calls, and makes an answer without success an error.
async fn call(client: &MuxClient, request: &ClientRequest) -> Result<CommandResponse> {
    succeeded(client.call(request).await?)
}

/// An answer without success is an error.
fn succeeded(response: CommandResponse) -> Result<CommandResponse> {
    if response.success { Ok(response) } else { Err(CallError::Refused(Box::new(response)).into()) }
}

/// A command that may wait for a runner that is away, for so many seconds.
fn waiting_frame(session_id: Option<&str>, command: Command, wait: Option<u64>) -> ClientFrame {
    ClientFrame {
        channel: Channel::Agent,
        id: None,
        session_id: session_id.map(str::to_owned),
        runner_id: None,
        idempotency_key: None,
        depends_on: None,
        if_session_version: None,
        wait: wait.map(|_| true),
        wait_ms: wait.map(|seconds| seconds.saturating_mul(1000)),
        command,
    }
}

/// Sends such a command; an answer without success is an error.
async fn call_frame(client: &MuxClient, frame: &ClientFrame) -> Result<CommandResponse> {
    let value = serde_json::to_value(frame).map_err(CallError::Encode)?;
    succeeded(client.call_value(value).await?)
}
