//! The subcommands that talk to a server, one file each.

pub(crate) mod approvals;
pub(crate) mod approve;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod bash;
pub(crate) mod control;
pub(crate) mod fs;
pub(crate) mod git;
pub(crate) mod hosts;
pub(crate) mod list;
pub(crate) mod login_link;
pub(crate) mod logs;
pub(crate) mod run;
pub(crate) mod search;
mod service;
pub(crate) mod shims;
pub(crate) mod user;

use std::io::Read;

use qd_link::client::{CallError, ClientRequest, MuxClient};
use qd_wire::mux::{Channel, ClientFrame};
use qd_wire::{Command, CommandResponse};
use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::output::{Output, harmless};

/// The longest text read from stdin.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The words of a prompt; a lone `-` means stdin.
fn text_of(words: &[String]) -> Result<String, CliError> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > STDIN_BYTES_MAX {
        return Err(CliError::usage(format!("stdin holds more than {STDIN_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(
            CliError::usage("stdin is empty").hint("write the prompt behind the command, or pipe it in")
        );
    }
    Ok(text)
}

/// Calls, and makes an answer without success an error.
async fn succeed(client: &MuxClient, request: &ClientRequest) -> Result<CommandResponse, CliError> {
    let response = client.call(request).await?;
    if response.success { Ok(response) } else { Err(CallError::Refused(Box::new(response)).into()) }
}

/// A command that may wait for a runner that is away, for so many seconds.
fn frame(session_id: Option<&str>, command: Command, wait: Option<u64>) -> ClientFrame {
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
async fn call_frame(client: &MuxClient, frame: &ClientFrame) -> Result<CommandResponse, CliError> {
    let value = serde_json::to_value(frame).map_err(CallError::Encode)?;
    let response = client.call_value(value).await?;
    if response.success { Ok(response) } else { Err(CallError::Refused(Box::new(response)).into()) }
}

/// What an answer brings.
fn data<T: DeserializeOwned>(response: CommandResponse) -> Result<T, CliError> {
    Ok(serde_json::from_value(response.data.unwrap_or_default()).map_err(CallError::Decode)?)
}

/// Says that a command worked: its answer as JSON, or a sentence.
fn report(output: &Output, response: &CommandResponse, sentence: &str) -> Result<(), CliError> {
    if output.json { output.json_line(response) } else { say(output, sentence) }
}

fn say(output: &Output, sentence: &str) -> Result<(), CliError> {
    output.out(&format!("{}\n", harmless(sentence)))
}
