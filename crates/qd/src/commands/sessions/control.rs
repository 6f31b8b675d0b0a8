//! The commands that say one thing to one session: `send`, `steer`, `abort`, `stop`, `restart`, `rm`.

use qd_link::client::ClientRequest;
use qd_wire::Command;
use qd_wire::command::{NoParams, PromptParams, SteerParams, StreamingBehavior};
use qd_wire::data::SessionStatus;

use crate::arguments::{SendArguments, SteerArguments};
use crate::client::connection;
use crate::client::sessions::is_busy;
use crate::error::{Result, session_refusal};
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn send(settings: &Settings, output: &Output, arguments: SendArguments) -> Result<()> {
    let message = super::prompt_text(&arguments.message)?;
    let streaming_behavior = match (arguments.steer, arguments.follow_up) {
        (true, _) => Some(StreamingBehavior::Steer),
        (false, true) => Some(StreamingBehavior::FollowUp),
        (false, false) => None,
    };
    let params = PromptParams { message, images: None, streaming_behavior, client_id: None };
    let (connection, session_id) = connection::connect_to(settings, output, Some(&arguments.session)).await?;
    let request = ClientRequest::session(&session_id, Command::Prompt(params));
    let response = connection.client.call(&super::waiting(request, arguments.wait)).await?;
    output.report(&super::succeeded(&session_id, response)?, &format!("sent to {session_id}"))
}

pub(crate) async fn steer(settings: &Settings, output: &Output, arguments: SteerArguments) -> Result<()> {
    let message = super::prompt_text(&arguments.message)?;
    let params = SteerParams { message, images: None, client_id: None };
    call_session(settings, output, &arguments.session, Command::Steer(params), "steered").await
}

pub(crate) async fn abort(settings: &Settings, output: &Output, session: &str) -> Result<()> {
    let (connection, session_id) = connection::connect_to(settings, output, Some(session)).await?;
    // Asked before the abort, because afterwards the session is idle either way and nobody could say what was aborted.
    let before = connection.session_state(&session_id).await?;
    let request = ClientRequest::session(&session_id, Command::Abort(NoParams {}));
    let response = connection.client.call(&request).await?;
    let mut sentence = match is_busy(before.status) {
        true => format!("aborted {session_id}"),
        false => format!("nothing to abort: {session_id} is {}", before.status.as_str()),
    };
    // A session without a process refuses, and that is as good: nothing ran in it. Of one that is away nobody knows.
    if !response.success && (is_busy(before.status) || before.status == SessionStatus::Offline) {
        return Err(session_refusal(&session_id, response));
    }
    let after = connection.session_state(&session_id).await?;
    if let Some(queued) = queued_sentence(after.queue.steering.len() + after.queue.follow_up.len()) {
        sentence.push_str(&format!("\n{queued}"));
    }
    output.report(&response, &sentence)
}

/// What becomes of the messages that wait.
fn queued_sentence(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 queued message stays and runs with the next prompt".to_owned()),
        _ => Some(format!("{count} queued messages stay and run with the next prompt")),
    }
}

pub(crate) async fn stop(settings: &Settings, output: &Output, session: &str) -> Result<()> {
    let (connection, session_id) = connection::connect_to(settings, output, Some(session)).await?;
    let before = connection.session_state(&session_id).await?;
    let request = ClientRequest::session(&session_id, Command::SessionClose(NoParams {}));
    let response = connection.client.call(&request).await?;
    if before.status == SessionStatus::Closed {
        return output.report(&response, &format!("{session_id} is already closed"));
    }
    output.report(&super::succeeded(&session_id, response)?, &format!("stopped {session_id}"))
}

pub(crate) async fn restart(settings: &Settings, output: &Output, session: &str) -> Result<()> {
    call_session(settings, output, session, Command::SessionRestart(NoParams {}), "restarted").await
}

pub(crate) async fn remove(settings: &Settings, output: &Output, session: &str) -> Result<()> {
    call_session(settings, output, session, Command::SessionDelete(NoParams {}), "removed").await
}

async fn call_session(
    settings: &Settings,
    output: &Output,
    session: &str,
    command: Command,
    done: &str,
) -> Result<()> {
    let (connection, session_id) = connection::connect_to(settings, output, Some(session)).await?;
    let response = super::call(&connection.client, &session_id, command).await?;
    output.report(&response, &format!("{done} {session_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_queued_is_said() {
        let [none, one, two] = [0, 1, 2].map(queued_sentence);
        assert_eq!(none, None);
        assert_eq!(one.unwrap(), "1 queued message stays and runs with the next prompt");
        assert_eq!(two.unwrap(), "2 queued messages stay and run with the next prompt");
    }
}
