//! `qd bash`.
//!
//! Output comes twice: in pieces while the command runs, some of which may be left out, and at the end in the answer.
//! What was shown is counted, so that the rest can be printed exactly once.

use std::io::Write;

use qd_wire::service::{BashData, BashOutput};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::client::ServiceClient;
use crate::arguments::BashArguments;
use crate::client::terminal;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::Settings;

const ID: &str = "bash";

/// Runs a command there, and shows what it prints here.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: BashArguments) -> Result<()> {
    let mut client = ServiceClient::open(settings, output, &arguments.target).await?;
    let timeout_ms = arguments.timeout.map(|seconds| seconds * 1000);
    let parameters = json!({"command": arguments.command.join(" "), "timeout_ms": timeout_ms});
    client.send(ID, "host.bash", parameters).await?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut shown = ShownOutput::default();
    loop {
        let value = tokio::select! {
            value = client.next_frame() => value?,
            _ = interrupts.recv() => {
                // The loop goes on: the answer says how the command ended, and has the rest of its output.
                client.cancel(ID).await?;
                continue;
            }
        };
        if value["id"] != ID {
            continue;
        }
        match value["event"].as_str() {
            Some("progress") => {
                let Ok(piece) = serde_json::from_value::<BashOutput>(value["data"].clone()) else { continue };
                if output.json {
                    output.json_line(&piece)?;
                } else {
                    shown.piece(&piece)?;
                }
            }
            Some("response") => return ended(output, &value, &shown),
            _ => {}
        }
    }
}

/// How much of each stream has been shown, in bytes from its beginning. What comes after a gap waits for the answer,
/// so that nothing is shown twice or out of order.
#[derive(Default)]
struct ShownOutput {
    stdout: u64,
    stderr: u64,
}

impl ShownOutput {
    fn piece(&mut self, piece: &BashOutput) -> Result<()> {
        let is_error = piece.stream == "stderr";
        let shown = if is_error { &mut self.stderr } else { &mut self.stdout };
        if piece.offset == Some(*shown) {
            *shown += piece.text.len() as u64;
            print(is_error, &piece.text)?;
        }
        Ok(())
    }
}

fn print(is_error: bool, text: &str) -> Result<()> {
    if is_error {
        return Ok(std::io::stderr().lock().write_all(text.as_bytes())?);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The rest of what it printed, and its exit code as ours.
fn ended(output: &Output, response: &Value, shown: &ShownOutput) -> Result<()> {
    if response["success"] != true {
        return Err(CliError::failed(response["error"].as_str().unwrap_or("the command could not be run")));
    }
    let data: BashData = serde_json::from_value(response["data"].clone())
        .map_err(|error| CliError::failed(format!("the answer cannot be read: {error}")))?;
    if output.json {
        output.json_line(&data)?;
    } else {
        rest(output, &data, shown)?;
    }
    if data.timed_out {
        return Err(
            CliError::failed("the command timed out and was stopped").hint("allow more time with --timeout")
        );
    }
    if data.cancelled {
        // What a shell says of a program that Ctrl-C has ended (128 + SIGINT).
        return Err(CliError::exited(130, Some("cancelled".to_owned())));
    }
    match terminal::exit_code(data.exit_code.unwrap_or(-1), data.signal) {
        0 => Ok(()),
        code => Err(CliError::exited(code, None)),
    }
}

/// What was not shown while it ran: the answer has the end of each stream.
fn rest(output: &Output, data: &BashData, shown: &ShownOutput) -> Result<()> {
    for (text, total, seen, is_error) in [
        (&data.stdout, data.stdout_bytes, shown.stdout, false),
        (&data.stderr, data.stderr_bytes, shown.stderr, true),
    ] {
        let kept_from = total.saturating_sub(text.len() as u64);
        if seen < kept_from {
            let name = if is_error { "stderr" } else { "stdout" };
            output.note(&format!(
                "[qd: {} bytes of {name} left out here; send it to a file]\n",
                kept_from - seen
            ));
        }
        let from = usize::try_from(seen.saturating_sub(kept_from)).unwrap_or(usize::MAX);
        print(is_error, text.get(from.min(text.len())..).unwrap_or(text))?;
    }
    Ok(())
}
