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

use qd_link::client::{ClientRequest, MuxClient};
use qd_wire::{Command, CommandResponse};

use crate::error::{CliError, Result, session_refusal};

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

/// Calls a session, and makes an answer without success an error.
async fn call(client: &MuxClient, session_id: &str, command: Command) -> Result<CommandResponse> {
    let request = ClientRequest::session(session_id, command);
    succeeded(session_id, client.call(&request).await?)
}

/// An answer without success is an error.
fn succeeded(session_id: &str, response: CommandResponse) -> Result<CommandResponse> {
    if response.success { Ok(response) } else { Err(session_refusal(session_id, response)) }
}

/// Lets a command wait for a runner that is away, for so many seconds.
fn waiting(request: ClientRequest, seconds: Option<u64>) -> ClientRequest {
    match seconds {
        Some(seconds) => request.wait(Some(seconds.saturating_mul(1000))),
        None => request,
    }
}
