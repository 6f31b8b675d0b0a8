//! The commands that say one thing to one session: `send`, `steer`, `abort`, `stop`, `rm`.

use qd_link::client::Request;
use qd_wire::Command;
use qd_wire::command::{NoParams, PromptParams, SteerParams, StreamingBehavior};

use crate::arguments::{SendArguments, SteerArguments};
use crate::error::CliError;
use crate::output::Output;
use crate::server;
use crate::settings::Settings;

pub(crate) async fn send(
    settings: &Settings,
    output: &Output,
    arguments: SendArguments,
) -> Result<(), CliError> {
    let message = super::text_of(&arguments.message)?;
    let streaming_behavior = match (arguments.steer, arguments.follow_up) {
        (true, _) => Some(StreamingBehavior::Steer),
        (false, true) => Some(StreamingBehavior::FollowUp),
        (false, false) => None,
    };
    let params = PromptParams { message, images: None, streaming_behavior, client_id: None };
    say(settings, output, &arguments.session, Command::Prompt(params), "sent to").await
}

pub(crate) async fn steer(
    settings: &Settings,
    output: &Output,
    arguments: SteerArguments,
) -> Result<(), CliError> {
    let message = super::text_of(&arguments.message)?;
    let params = SteerParams { message, images: None, client_id: None };
    say(settings, output, &arguments.session, Command::Steer(params), "steered").await
}

pub(crate) async fn abort(settings: &Settings, output: &Output, session: &str) -> Result<(), CliError> {
    say(settings, output, session, Command::Abort(NoParams {}), "aborted").await
}

pub(crate) async fn stop(settings: &Settings, output: &Output, session: &str) -> Result<(), CliError> {
    say(settings, output, session, Command::SessionClose(NoParams {}), "stopped").await
}

pub(crate) async fn remove(settings: &Settings, output: &Output, session: &str) -> Result<(), CliError> {
    say(settings, output, session, Command::SessionDelete(NoParams {}), "removed").await
}

async fn say(
    settings: &Settings,
    output: &Output,
    session: &str,
    command: Command,
    done: &str,
) -> Result<(), CliError> {
    let (client, _frames) = server::connect(settings).await?;
    let session_id = server::resolve_session(&client, Some(session)).await?;
    let response = super::succeed(&client, &Request::session(&session_id, command)).await?;
    super::report(output, &response, &format!("{done} {session_id}"))
}
