//! `qd attach`.

use qd_link::client::{Attachment, Start};

use crate::arguments::AttachArguments;
use crate::clock;
use crate::conversation::{Conversation, Ending, Manner, stdin_is_terminal, stdin_lines};
use crate::error::CliError;
use crate::output::{Output, harmless};
use crate::server::{self, Connection};
use crate::settings::Settings;

/// Follows a session and talks to it.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: AttachArguments,
) -> Result<(), CliError> {
    let Connection { options, client, frames } = server::connect(settings, output).await?;
    let session_id = server::resolve_session(&client, arguments.session.as_deref()).await?;
    let start = Start::Attach { session_id: session_id.clone(), after: None };
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
