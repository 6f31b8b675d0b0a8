//! `qd attach`.

use qd_link::client::{Attachment, MuxClient, Start};
use qd_wire::message::StopReason;

use crate::arguments::AttachArguments;
use crate::clock;
use crate::conversation::{Conversation, Ending, Manner, stdin_is_terminal, stdin_lines};
use crate::error::CliError;
use crate::output::Output;
use crate::server;
use crate::settings::Settings;

/// Follows a session and talks to it.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: AttachArguments,
) -> Result<(), CliError> {
    let options = server::locate(settings)?;
    let (client, frames) = MuxClient::connect_with(&options).await?;
    let session_id = server::resolve_session(&client, arguments.session.as_deref()).await?;
    let start = Start::Attach { session_id: session_id.clone(), after: None };
    let attachment =
        Attachment::open_on(options, client, frames, start, Box::new(clock::random_number)).await?;
    let interactive = stdin_is_terminal() && !output.json;
    if interactive {
        output.note(&output.style.dim(&format!("attached to {session_id}; Ctrl-D detaches\n")));
    }
    let manner = Manner { one_turn: false, quiet: false, lines: Some(stdin_lines()?), interactive };
    match Conversation::new(output, attachment, manner)?.follow().await? {
        Ending::Idle(Some(StopReason::Error)) => Err(CliError::failed("the turn ended with an error")),
        Ending::Idle(_) | Ending::Closed => Ok(()),
        Ending::Detached => {
            output.note(&format!("detached; the session goes on: qd attach {session_id}\n"));
            Ok(())
        }
    }
}
