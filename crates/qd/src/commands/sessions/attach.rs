//! `qd attach`.

use qd_link::client::{AttachStart, Attachment};
use qd_wire::run::is_terminal;

use crate::arguments::AttachArguments;
use crate::client::connection;
use crate::client::conversation::{
    Conversation, ConversationEnd, FollowOptions, stdin_is_terminal, stdin_lines,
};
use crate::client::terminal::{self, AtInputEnd};
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Shows a program in a terminal on this one; its exit code becomes ours.
pub(crate) async fn show_run(
    output: &Output,
    attachment: Attachment,
    at_input_end: AtInputEnd,
) -> Result<()> {
    let session_id = attachment.session_id().to_owned();
    match terminal::follow(output, attachment, at_input_end).await? {
        terminal::TerminalEnd::Detached => {
            output.note(&harmless(&format!("detached; the program keeps running: qd attach {session_id}\n")));
            Ok(())
        }
        terminal::TerminalEnd::Gone => {
            Err(CliError::failed(format!("session {session_id} was closed before the program ended"))
                .hint(format!("show its output: qd logs {session_id}")))
        }
        terminal::TerminalEnd::Exited { exit_code, signal, error } => {
            match terminal::exit_code(exit_code, signal) {
                0 => Ok(()),
                code => Err(CliError::exited(code, error)),
            }
        }
    }
}

/// Follows a session and talks to it.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: AttachArguments) -> Result<()> {
    let (connection, session_id) =
        connection::connect_to(settings, output, arguments.session.as_deref()).await?;
    let state = connection.session_state(&session_id).await?;
    if is_terminal(&state.harness) {
        // A person gets the screen at once; a pipe gets everything, from the beginning.
        let after = if terminal::is_interactive(output) { None } else { Some(0) };
        if after.is_none() {
            // Before attaching, so that the screen in the answer already has the size of this window.
            terminal::send_window_size(&connection.client, &session_id).await?;
        }
        let attachment = connection.attach(AttachStart::Attach { session_id, after }).await?;
        return show_run(output, attachment, AtInputEnd::Watch).await;
    }
    let start = AttachStart::Attach { session_id: session_id.clone(), after: None };
    let attachment = connection.attach(start).await?;
    let interactive = stdin_is_terminal() && !output.json;
    if interactive {
        output.note(
            &output.error_style.dim(&format!("attached to {}; Ctrl-D detaches\n", harmless(&session_id))),
        );
    }
    let options = FollowOptions { one_turn: false, quiet: false, lines: Some(stdin_lines()?), interactive };
    match Conversation::new(output, attachment, options)?.follow().await? {
        ConversationEnd::Troubled => Err(CliError::failed("some of the input failed")
            .hint(format!("see the output above, or: qd logs {session_id}"))),
        ConversationEnd::Idle(_) | ConversationEnd::Closed => Ok(()),
        ConversationEnd::Detached => {
            output.note(&harmless(&format!("detached; the session keeps running: qd attach {session_id}\n")));
            Ok(())
        }
    }
}
