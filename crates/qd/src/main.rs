//! The one binary, `qd`: the server (`up`), the command line that talks to it, and the guard of agent processes.
//!
//! Settings, terminal text and exit codes live here. No protocol and no session logic: those are in the crates
//! below, and the command line is a client like any other.
#![forbid(unsafe_code)]

mod arguments;
mod client;
mod clock;
mod commands;
#[cfg(test)]
mod documentation;
mod error;
mod output;
mod private_files;
mod process_memory;
mod runner;
mod server;
mod settings;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::fmt::writer::MakeWriterExt;

use arguments::{Cli, Command, PiServerArguments, ServerFlags, UpArguments};
use commands::{doctor, mcp, people, services, sessions, shims};
use error::{CliError, ErrorKind, Result};
use output::Output;
use server::{pi_server, up};
use settings::{Environment, Flags, Program, Settings};

fn main() -> ExitCode {
    // The guard must be small and alone: before the parser, before any thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "guard") {
        return qd_runner::guard::main(std::env::args_os().skip(2));
    }
    process_memory::protect();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return parse_error(&error),
    };
    let environment = Environment::of_process();
    let output = Output::new(cli.json, &environment);
    match run(cli, &environment, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_silent() {
                output.note(&if output.json { format!("{}\n", error.to_json()) } else { error.to_human() });
            }
            ExitCode::from(error.kind.exit_code())
        }
    }
}

/// `--help` and `--version` arrive here too; they are no errors.
fn parse_error(error: &clap::Error) -> ExitCode {
    // Without a terminal to read it, the exit code says enough.
    let _unread = error.print();
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(ErrorKind::Usage.exit_code()),
    }
}

fn run(cli: Cli, environment: &Environment, output: &Output) -> Result<()> {
    let Cli { command, config, common, local, .. } = cli;
    // A closure, because each command brings its own flags and some need no settings: `qd completions` works with a
    // broken file.
    let settings = |flags: Flags| -> Result<Settings> {
        let mut settings = settings::load(environment, config.as_deref(), Flags { common, ..flags })?;
        settings.local = local;
        start_log(&settings)?;
        Ok(settings)
    };
    if local && !talks_to_sessions(&command) {
        return Err(CliError::usage(
            "--local applies only to commands that talk to sessions of this machine",
        )
        .hint("omit --local"));
    }
    match command {
        Command::Up(arguments) => {
            let UpArguments { ready_json, insecure_bind, flags: ServerFlags { up, pi, runner } } = *arguments;
            let settings = settings(Flags { up, pi, runner, ..Flags::default() })?;
            up::run(&settings, environment, output, up::UpMode { ready_json, insecure_bind })
        }
        Command::PiServer(arguments) => {
            let PiServerArguments { port, pi, runner } = *arguments;
            let settings = settings(Flags { pi, runner, program: Program::PiServer, ..Flags::default() })?;
            pi_server::run(&settings, environment, output, port)
        }
        Command::Runner(arguments) => {
            let mut command = arguments.command;
            let settings = settings(Flags { runner: runner::flags(&mut command), ..Flags::default() })?;
            runner::run(&settings, environment, output, command)
        }
        Command::Doctor(arguments) => {
            let ServerFlags { up, pi, runner } = *arguments;
            let settings = settings(Flags { up, pi, runner, ..Flags::default() })?;
            block_on(doctor::run(&settings, output))
        }
        Command::Completions(arguments) => completions(arguments.shell),
        Command::Guard => Err(CliError::usage("`qd guard` can only be started by the server")),
        command => {
            let settings = settings(Flags::default())?;
            block_on(talk(&settings, output, command))
        }
    }
}

/// Whether a runner alone could answer the command.
fn talks_to_sessions(command: &Command) -> bool {
    !matches!(
        command,
        Command::Up(_)
            | Command::PiServer(_)
            | Command::Token(_)
            | Command::Log(_)
            | Command::Shims(_)
            | Command::User(_)
            | Command::LoginLink
            | Command::Hosts(_)
            | Command::Search(_)
            | Command::Doctor(_)
            | Command::Completions(_)
            | Command::Guard
    )
}

/// The commands that talk to a server.
async fn talk(settings: &Settings, output: &Output, command: Command) -> Result<()> {
    match command {
        Command::Run(arguments) => sessions::run::run(settings, output, arguments).await,
        Command::Ls(arguments) => sessions::list::run(settings, output, arguments).await,
        Command::Attach(arguments) => sessions::attach::run(settings, output, arguments).await,
        Command::Logs(arguments) => sessions::logs::run(settings, output, arguments).await,
        Command::Send(arguments) => sessions::control::send(settings, output, arguments).await,
        Command::Steer(arguments) => sessions::control::steer(settings, output, arguments).await,
        Command::Abort(arguments) => sessions::control::abort(settings, output, &arguments.session).await,
        Command::Approve(arguments) => sessions::approve::approve(settings, output, arguments).await,
        Command::Deny(arguments) => sessions::approve::deny(settings, output, arguments).await,
        Command::Stop(arguments) => sessions::control::stop(settings, output, &arguments.session).await,
        Command::Restart(arguments) => sessions::control::restart(settings, output, &arguments.session).await,
        Command::Rm(arguments) => sessions::control::remove(settings, output, &arguments.session).await,
        Command::Search(arguments) => sessions::search::run(settings, output, arguments).await,
        Command::Approvals(arguments) => sessions::approvals::run(settings, output, arguments).await,
        Command::Fs(arguments) => services::fs::run(settings, output, arguments).await,
        Command::Git(arguments) => services::git::run(settings, output, arguments).await,
        Command::Bash(arguments) => services::bash::run(settings, output, arguments).await,
        Command::Log(arguments) => people::audit::run(settings, output, arguments.command).await,
        Command::User(arguments) => people::user::run(settings, output, arguments.command).await,
        Command::LoginLink => people::login_link::run(settings, output).await,
        Command::Token(arguments) => people::token::run(settings, output, arguments.command).await,
        Command::Hosts(arguments) => people::hosts::run(settings, output, arguments.command).await,
        Command::Shims(arguments) => shims::run(settings, output, arguments),
        Command::Mcp(arguments) => mcp::run(settings, output, arguments).await,
        Command::Up(_)
        | Command::PiServer(_)
        | Command::Runner(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Guard => Err(CliError::usage("this command does not talk to a server")),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread may still wait for a line of stdin; it ends with the process.
    runtime.shutdown_background();
    result
}

/// To stderr, and to the file where one is named.
fn start_log(settings: &Settings) -> Result<()> {
    let builder = tracing_subscriber::fmt().with_max_level(settings.log_level.filter());
    // It can only be set already, which no path through this program does.
    let _already_set = match &settings.log_file {
        None => {
            let subscriber = builder.with_writer(std::io::stderr).finish();
            tracing::subscriber::set_global_default(subscriber)
        }
        Some(path) => {
            let file = private_files::append_private(path).map_err(|error| {
                CliError::usage(format!("cannot write the log {}: {error}", path.display()))
                    .hint("use another file with --log-file")
            })?;
            let subscriber = builder.with_ansi(false).with_writer(std::io::stderr.and(file)).finish();
            tracing::subscriber::set_global_default(subscriber)
        }
    };
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "qd", &mut script);
    Ok(std::io::stdout().lock().write_all(&script)?)
}
