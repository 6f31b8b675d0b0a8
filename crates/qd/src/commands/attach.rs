//! `qd attach`.

use qd_link::client::{AttachStart, Attachment};
use qd_wire::run::is_terminal;

use crate::arguments::AttachArguments;
use crate::clock;
use crate::conversation::{Conversation, Ending, Manner, stdin_is_terminal, stdin_lines};
use crate::error::CliError;
use crate::output::{Output, harmless};
use crate::server::{self, Connection};
use crate::settings::Settings;
use crate::terminal::{self, AtInputEnd};

/// Shows a program in a terminal on this one; its exit code becomes ours.
pub(crate) async fn show_run(
    output: &Output,
    attachment: Attachment,
    at_input_end: AtInputEnd,
) -> Result<(), CliError> {
    let session_id = attachment.session_id().to_owned();
    match terminal::follow(output, attachment, at_input_end).await? {
        terminal::Ending::Detached => {
            output.note(&harmless(&format!("detached; the program goes on: qd attach {session_id}\n")));
            Ok(())
        }
        terminal::Ending::Gone => Err(CliError::failed("the session was closed before the program ended")),
        terminal::Ending::Exited { exit_code, signal, error } => {
            match terminal::exit_code(exit_code, signal) {
                0 => Ok(()),
                code => Err(CliError::exited(code, error)),
            }
        }
    }
}

/// Follows a session and talks to it.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: AttachArguments,
) -> Result<(), CliError> {
    let Connection { options, client, frames } = server::connect(settings, output).await?;
    let session_id = server::resolve_session(&client, arguments.session.as_deref()).await?;
    let state = server::state(&client, &session_id).await?;
    if is_terminal(&state.harness) {
        // A person gets the screen at once; a pipe gets everything, from the beginning.
        let after = if terminal::is_interactive(output) { None } else { Some(0) };
        if after.is_none() {
            terminal::fit(&client, &session_id).await?;
        }
        let start = AttachStart::Attach { session_id, after };
        let attachment =
            Attachment::open_on(options, client, frames, start, Box::new(clock::random_number)).await?;
        return show_run(output, attachment, AtInputEnd::Watch).await;
    }
    let start = AttachStart::Attach { session_id: session_id.clone(), after: None };
    let attachment =
        Attachment::open_on(options, client, frames, start, Box::new(clock::random_number)).await?;
    let interactive = stdin_is_terminal() && !output.json;
    if interactive {
        output.note(
            &output.error_style.dim(&format!("attached to {}; Ctrl-D detaches\n", harmless(&session_id))),
        );
    }
    let manner = Manner { one_turn: false, quiet: false, lines: Some(stdin_lines()?), interactive };
    match Conversation::new(output, attachment, manner)?.follow().await? {
        Ending::Troubled => Err(CliError::failed("not everything could be done")
            .hint(format!("what happened is above, and in: qd logs {session_id}"))),
        Ending::Idle(_) | Ending::Closed => Ok(()),
        Ending::Detached => {
            output.note(&harmless(&format!("detached; the session goes on: qd attach {session_id}\n")));
            Ok(())
        }
    }
}
