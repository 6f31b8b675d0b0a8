//! Canonical commands over HTTP, for scripts: one command, one answer.
//!
//! Commands that follow something need a connection and are refused here. A caller that hangs up has its service
//! calls taken back, like a client that disconnects.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json};
use http::StatusCode;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::oneshot;

use crate::access::principals::Principal;
use crate::command::ask::{CommandAnswer, CommandSender, ask, cancel_asked};
use crate::command::head::{read_body_head, read_fields};
use crate::command::{Command, spec_of};
use crate::hub::Hub;
use crate::rest::request::{Caller, RestResult};
use crate::server::Server;

/// The greatest body; a file of the greatest size that one write takes fits, as base64.
const BODY_BYTES_MAX: usize = 48 << 20;

/// `POST /api/commands`: the body is a canonical command with its `cmd`, as on `/ws/mux`. A command that failed is an
/// answer too: 200 with `success: false`.
pub(crate) async fn run(State(server): State<Server>, Caller(principal): Caller, body: Body) -> RestResult {
    let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        let text = format!("The body cannot be read, or is longer than {BODY_BYTES_MAX} bytes: {error}");
        ErrorCode::TooLarge.with(text)
    })?;
    let answer = match read(&bytes)? {
        Ok(command) => ask_and_wait(&server.hub, &principal, command).await,
        Err(error) => CommandAnswer::failure(error),
    };
    let is_forbidden = answer.failed_with(ErrorCode::PermissionDenied);
    let status = if is_forbidden { StatusCode::FORBIDDEN } else { StatusCode::OK };
    Ok((status, Json(answer)).into_response())
}

/// A command that can be asked for over HTTP, or why its address or conditions cannot be read, which is an answer. The
/// error is of a body that names no such command.
fn read(bytes: &[u8]) -> Result<Result<Command<'_>, CodedError>, CodedError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CodedError::invalid("The body is not UTF-8"))?;
    let no_command = |error: &dyn std::fmt::Display| {
        CodedError::invalid(format!("The body must be a JSON object with 'cmd': {error}"))
    };
    let fields = read_fields(text).map_err(|error| no_command(&error.message))?;
    let cmd = fields.text("cmd").map_err(|error| no_command(&error))?;
    let cmd = cmd.ok_or_else(|| no_command(&"missing field `cmd`"))?;
    let spec = spec_of(&cmd)?;
    if spec.needs_connection() {
        return Err(ErrorCode::Unsupported.with(format!("'{cmd}' needs a connection; use /ws/mux")));
    }
    Ok(read_body_head(&fields).map(|head| Command::from_frame(spec, text, fields, head)))
}

/// Asks and waits. When nobody waits any more, a service is taken back.
pub(crate) async fn ask_and_wait(
    hub: &Arc<Hub>,
    principal: &Principal,
    command: Command<'_>,
) -> CommandAnswer {
    let asker = CommandSender::new(principal, Arc::from("http"));
    let (sender, answer) = oneshot::channel();
    let number = ask(hub, &asker, command, move |_, answer| {
        // The asker may have gone.
        let _ = sender.send(answer);
    });
    let mut given_up = CancelOnDrop { hub, number };
    let answer = answer.await;
    given_up.number = None;
    answer.unwrap_or_else(|_| {
        CommandAnswer::failure(
            ErrorCode::ShuttingDown.with("The hub is shutting down; retry when it is back"),
        )
    })
}

/// Takes back what was asked for, unless it is answered.
struct CancelOnDrop<'a> {
    hub: &'a Arc<Hub>,
    number: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            cancel_asked(self.hub, number);
        }
    }
}
