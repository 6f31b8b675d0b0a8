//! `qd run`.

use std::path::{Path, PathBuf};

use qd_link::client::{Attachment, Start};
use qd_wire::command::SessionConfig;
use qd_wire::message::StopReason;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::clock;
use crate::conversation::{Conversation, Ending, Manner, stdin_is_terminal, stdin_lines};
use crate::error::CliError;
use crate::output::{Output, harmless};
use crate::server;
use crate::settings::Settings;

/// Creates a session, prompts it, and follows the turn.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: RunArguments,
) -> Result<(), CliError> {
    let options = server::locate(settings)?;
    let prompt = super::text_of(&arguments.prompt)?;
    let start = Start::Create {
        session_id: None,
        config: session_config(&arguments, &std::env::current_dir()?)?,
        idempotency_key: Some(
            clock::random_hex(12).map_err(|error| CliError::failed(format!("no randomness: {error}")))?,
        ),
    };
    let attachment = Attachment::open(options, start, Box::new(clock::random_number)).await?;
    let session_id = attachment.session_id().to_owned();
    if arguments.detach {
        return detach(output, &attachment, &session_id, prompt).await;
    }
    let interactive = stdin_is_terminal() && !output.json && arguments.prompt != ["-"];
    let manner = Manner {
        one_turn: true,
        quiet: arguments.quiet,
        lines: if interactive { Some(stdin_lines()?) } else { None },
        interactive,
    };
    let mut conversation = Conversation::new(output, attachment, manner)?;
    conversation.prompt(prompt);
    match conversation.follow().await? {
        Ending::Idle(None | Some(StopReason::Stop | StopReason::Length | StopReason::ToolUse)) => Ok(()),
        Ending::Idle(Some(StopReason::Error)) => Err(CliError::failed("the turn ended with an error")
            .hint(format!("see it whole: qd logs {session_id}"))),
        Ending::Idle(Some(StopReason::Aborted)) => {
            Err(CliError::failed("the turn was aborted").hint(format!("go on: qd attach {session_id}")))
        }
        Ending::Closed => Err(CliError::failed("the session was closed before the turn ended")),
        // Only the end of a pipe is told so.
        Ending::Troubled => Err(CliError::failed("not everything could be done")),
        Ending::Detached => {
            output.note(&harmless(&format!("detached; the session goes on: qd attach {session_id}\n")));
            Ok(())
        }
    }
}

async fn detach(
    output: &Output,
    attachment: &Attachment,
    session_id: &str,
    prompt: String,
) -> Result<(), CliError> {
    use qd_link::client::Request;
    use qd_wire::Command;
    use qd_wire::command::PromptParams;
    let params = PromptParams { message: prompt, images: None, streaming_behavior: None, client_id: None };
    let client = attachment.client().ok_or_else(|| CliError::unreachable("the connection was lost"))?;
    super::succeed(client, &Request::session(session_id, Command::Prompt(params))).await?;
    if output.json {
        output.json_line(&json!({ "session_id": session_id }))
    } else {
        output.out(&format!("{}\n", harmless(session_id)))
    }
}

fn session_config(arguments: &RunArguments, current: &Path) -> Result<SessionConfig, CliError> {
    let cwd: PathBuf = match &arguments.cwd {
        // `join` keeps an absolute path as it is.
        Some(directory) => current.join(directory),
        None => current.to_path_buf(),
    };
    let cwd = cwd.to_str().ok_or_else(|| {
        CliError::usage(format!("the directory {} is not valid UTF-8", cwd.display()))
            .hint("name another with --cwd")
    })?;
    let (provider, model) = match &arguments.model {
        None => (None, None),
        Some(model) => match model.split_once('/') {
            Some((provider, id)) if !provider.is_empty() && !id.is_empty() => {
                (Some(provider.to_owned()), Some(id.to_owned()))
            }
            _ => {
                return Err(CliError::usage(format!("'{model}' is not a model"))
                    .hint("write provider/id, such as anthropic/claude-sonnet-4-5"));
            }
        },
    };
    Ok(SessionConfig {
        harness: arguments.harness.clone(),
        cwd: Some(cwd.to_owned()),
        provider,
        model,
        title: arguments.title.clone(),
        ..SessionConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Cli, Command};
    use clap::Parser;

    fn config(arguments: &[&str]) -> Result<SessionConfig, CliError> {
        let cli = Cli::try_parse_from([&["qd", "run"], arguments, &["hello"]].concat()).unwrap();
        let Command::Run(arguments) = cli.command else { panic!("not run") };
        session_config(&arguments, Path::new("/here"))
    }

    #[test]
    fn the_session_follows_the_arguments() {
        let plain = config(&[]).unwrap();
        assert_eq!((plain.harness.as_str(), plain.cwd.as_deref(), plain.model), ("pi", Some("/here"), None));
        let full = config(&["--harness", "demo", "--cwd", "sub", "--model", "openrouter/a/b"]).unwrap();
        assert_eq!(full.cwd.as_deref(), Some("/here/sub"));
        assert_eq!((full.provider.as_deref(), full.model.as_deref()), (Some("openrouter"), Some("a/b")));
        assert!(config(&["--model", "sonnet"]).unwrap_err().hint.unwrap().contains("provider/id"));
    }
}
