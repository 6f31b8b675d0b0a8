//! `qd run`.
//!
//! The session is created with a key, so that a connection that breaks after the request does not leave a second
//! session behind.

use std::path::{Path, PathBuf};

use qd_link::client::{AttachStart, Attachment, ClientRequest};
use qd_wire::Command;
use qd_wire::command::{PromptParams, SessionConfig, SessionCreateParams};
use qd_wire::data::{RunnerInfo, RunnerStatus, SessionCreatedData};
use qd_wire::message::StopReason;
use qd_wire::run::{PTY_HARNESS, RunConfig};
use serde_json::json;

use crate::arguments::RunArguments;
use crate::client::connection;
use crate::client::conversation::{
    Conversation, ConversationEnd, FollowOptions, stdin_is_terminal, stdin_lines,
};
use crate::client::terminal::{self, AtInputEnd};
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::{Output, harmless, one_line};
use crate::runner::hostname;
use crate::settings::Settings;

/// As much of a command line as a list shows.
const TITLE_CHARACTERS_MAX: usize = 80;

/// Creates a session, prompts it, and follows the turn.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: RunArguments) -> Result<()> {
    if !arguments.command.is_empty() {
        return program(settings, output, arguments).await;
    }
    let prompt = super::prompt_text(&arguments.prompt)?;
    let config = session_config(&arguments, &std::env::current_dir()?)?;
    let attachment = create(settings, output, &arguments, config).await?;
    let session_id = attachment.session_id().to_owned();
    if arguments.detach {
        return detach(output, &attachment, &session_id, prompt).await;
    }
    let interactive = stdin_is_terminal() && !output.json && arguments.prompt != ["-"];
    let options = FollowOptions {
        one_turn: true,
        quiet: arguments.quiet,
        lines: if interactive { Some(stdin_lines()?) } else { None },
        interactive,
    };
    let mut conversation = Conversation::new(output, attachment, options)?;
    conversation.prompt(prompt);
    match conversation.follow().await? {
        ConversationEnd::Idle(None | Some(StopReason::Stop | StopReason::Length | StopReason::ToolUse)) => {
            Ok(())
        }
        ConversationEnd::Idle(Some(StopReason::Error)) => {
            Err(CliError::failed("the turn ended with an error")
                .hint(format!("show the conversation: qd logs {session_id}")))
        }
        ConversationEnd::Idle(Some(StopReason::Aborted)) => {
            Err(CliError::failed("the turn was aborted")
                .hint(format!("continue with: qd attach {session_id}")))
        }
        ConversationEnd::Closed => Err(CliError::failed("the session was closed before the turn ended")),
        // Only the end of a pipe is told so.
        ConversationEnd::Troubled => Err(CliError::failed("some of the input failed")),
        ConversationEnd::Detached => {
            output.note(&harmless(&format!("detached; the session keeps running: qd attach {session_id}\n")));
            Ok(())
        }
    }
}

/// Runs a program in a terminal, and shows it on this one.
async fn program(settings: &Settings, output: &Output, mut arguments: RunArguments) -> Result<()> {
    arguments.harness = PTY_HARNESS.to_owned();
    let mut config = session_config(&arguments, &std::env::current_dir()?)?;
    let size = terminal::window_size();
    // Lists show what runs.
    config.title =
        config.title.or_else(|| Some(one_line(&arguments.command.join(" "), TITLE_CHARACTERS_MAX)));
    config.run = Some(RunConfig {
        tool: arguments.tool.clone(),
        argv: arguments.command.clone(),
        cols: size.map(|(cols, _)| cols),
        rows: size.map(|(_, rows)| rows),
        ..RunConfig::default()
    });
    let attachment = create(settings, output, &arguments, config).await?;
    let session_id = attachment.session_id().to_owned();
    if arguments.detach {
        return report_id(output, &session_id);
    }
    super::attach::show_run(output, attachment, AtInputEnd::Tell).await
}

/// Makes the session and follows it.
async fn create(
    settings: &Settings,
    output: &Output,
    arguments: &RunArguments,
    mut config: SessionConfig,
) -> Result<Attachment> {
    let connection = connection::connect(settings, output).await?;
    // If the connection breaks after the request, the same key finds the session that was created instead of a second
    // one.
    let key = clock::random_hex(12)?;
    let runners = connection.runners().await?;
    if let Some(name) = &arguments.runner {
        check_reachable(&runners, name, connection.is_local())?;
    }
    let placement = placement(&runners, arguments, &hostname());
    if !placement.keeps_directory {
        config.cwd = None;
    }
    // What a program writes is wanted from its first byte on, and not as a screen.
    let (is_program, after) = (config.run.is_some(), config.run.is_some().then_some(0));
    let start = match (placement.runner_id, arguments.wait) {
        (None, None) if !is_program => {
            AttachStart::Create { session_id: None, config, idempotency_key: Some(key) }
        }
        (runner_id, wait) => {
            let create = Command::SessionCreate(SessionCreateParams { config, check_only: None });
            let request = super::waiting(ClientRequest::anywhere(create), wait).idempotency_key(key);
            let request = match runner_id {
                Some(runner_id) => request.runner(runner_id),
                None => request,
            };
            let created: SessionCreatedData = connection.client.query(&request).await?;
            AttachStart::Attach { session_id: created.session_id, after }
        }
    };
    connection.attach(start).await
}

/// A runner alone starts sessions on its own machine only.
fn check_reachable(runners: &[RunnerInfo], name: &str, is_socket: bool) -> Result<()> {
    match runners.first() {
        Some(own) if is_socket && own.runner_id != name => Err(CliError::unreachable(format!(
            "without the hub, sessions can start on this machine only ('{}')",
            own.runner_id
        ))
        .hint("omit --runner, or retry when the hub is back")),
        Some(_) | None => Ok(()),
    }
}

/// Where a session shall run.
#[derive(Debug, PartialEq)]
struct SessionPlacement {
    runner_id: Option<String>,
    /// The current directory means something there.
    keeps_directory: bool,
}

/// The current directory is one of this machine, so without a word the session runs here, if it can.
fn placement(runners: &[RunnerInfo], arguments: &RunArguments, hostname: &str) -> SessionPlacement {
    // Whoever names a directory knows on which machine it is, and with one machine there is no choice.
    if arguments.cwd.is_some() || runners.len() < 2 {
        return SessionPlacement { runner_id: arguments.runner.clone(), keeps_directory: true };
    }
    if let Some(name) = &arguments.runner {
        let named = runners.iter().find(|runner| runner.runner_id == *name);
        let keeps_directory = named.is_none_or(|runner| runner.hostname == hostname);
        return SessionPlacement { runner_id: Some(name.clone()), keeps_directory };
    }
    let fits = |runner: &&RunnerInfo| {
        let can = runner.status == RunnerStatus::Online && runner.harnesses.contains(&arguments.harness);
        can && runner.hostname == hostname
    };
    let here: Vec<&RunnerInfo> = runners.iter().filter(fits).collect();
    match here.as_slice() {
        // It runs elsewhere, where this directory means nothing; the runner uses its own default.
        [] => SessionPlacement { runner_id: None, keeps_directory: false },
        [one] => SessionPlacement { runner_id: Some(one.runner_id.clone()), keeps_directory: true },
        _ => SessionPlacement { runner_id: None, keeps_directory: true },
    }
}

async fn detach(output: &Output, attachment: &Attachment, session_id: &str, prompt: String) -> Result<()> {
    let params = PromptParams { message: prompt, images: None, streaming_behavior: None, client_id: None };
    let client = attachment.client().ok_or_else(|| CliError::unreachable("the connection was lost"))?;
    super::call(client, session_id, Command::Prompt(params)).await?;
    report_id(output, session_id)
}

/// The id, for whoever goes on without us.
fn report_id(output: &Output, session_id: &str) -> Result<()> {
    output.report(&json!({ "session_id": session_id }), session_id)
}

fn session_config(arguments: &RunArguments, current: &Path) -> Result<SessionConfig> {
    let cwd: PathBuf = match &arguments.cwd {
        // `join` keeps an absolute path as it is.
        Some(directory) => current.join(directory),
        None => current.to_path_buf(),
    };
    let cwd = cwd.to_str().ok_or_else(|| {
        CliError::usage(format!("the directory {} is not valid UTF-8", cwd.display()))
            .hint("use another one with --cwd")
    })?;
    let (provider, model) = match &arguments.model {
        None => (None, None),
        Some(model) => match model.split_once('/') {
            Some((provider, id)) if !provider.is_empty() && !id.is_empty() => {
                (Some(provider.to_owned()), Some(id.to_owned()))
            }
            _ => {
                return Err(CliError::usage(format!("'{model}' is not a model"))
                    .hint("use provider/id, such as anthropic/claude-sonnet-4-5"));
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

    fn parsed(arguments: &[&str]) -> RunArguments {
        let cli = Cli::try_parse_from([&["qd", "run"], arguments, &["hello"]].concat()).unwrap();
        let Command::Run(arguments) = cli.command else { panic!("not run") };
        arguments
    }

    fn config(arguments: &[&str]) -> Result<SessionConfig> {
        session_config(&parsed(arguments), Path::new("/here"))
    }

    #[test]
    fn a_session_runs_where_its_directory_is() {
        let runner = |name: &str, status: &str| -> RunnerInfo {
            serde_json::from_value(json!({"runner_id":name,"hostname":format!("{name}-host"),"os":"linux",
                "version":"1","status":status,"harnesses":["demo"],"max_sessions":9,"session_count":0}))
            .unwrap()
        };
        let fleet = [runner("desk", "online"), runner("attic", "online"), runner("barn", "offline")];
        let at = |hostname: &str, words: &[&str]| {
            let placement = placement(&fleet, &parsed(&[&["--harness", "demo"], words].concat()), hostname);
            (placement.runner_id.unwrap_or_default(), placement.keeps_directory)
        };
        assert_eq!(at("desk-host", &[]), ("desk".into(), true));
        assert_eq!(at("desk-host", &["--runner", "attic"]), ("attic".into(), false));
        assert_eq!(at("desk-host", &["--runner", "attic", "--cwd", "/srv"]), ("attic".into(), true));
        assert_eq!(at("desk-host", &["--runner", "desk"]), ("desk".into(), true));
        assert_eq!(at("barn-host", &[]), (String::new(), false), "nobody is here");
        assert_eq!(at("barn-host", &["--cwd", "/srv"]), (String::new(), true));
        assert!(check_reachable(&fleet[..1], "desk", true).is_ok());
        assert!(check_reachable(&fleet, "nobody", false).is_ok(), "the hub knows better");
        assert!(check_reachable(&fleet[..1], "attic", true).unwrap_err().message.contains("'desk'"));
        let alone = placement(&fleet[..1], &parsed(&[]), "elsewhere");
        assert_eq!(alone, SessionPlacement { runner_id: None, keeps_directory: true });
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
