//! The one binary, `qd`: the server (`up`), the command line that talks to it, and the guard of agent processes.
//!
//! Settings, terminal text and exit codes live here. No protocol and no session logic: those are in the crates
//! below, and the command line is a client like any other.
#![forbid(unsafe_code)]

mod app;
mod approval;
mod arguments;
mod clock;
mod commands;
mod conversation;
mod data_dir;
mod doctor;
#[cfg(test)]
mod documentation;
mod error;
mod files;
mod mcp;
mod output;
mod pi_server;
mod render;
mod rest;
mod runner;
mod server;
mod settings;
mod socket;
mod table;
mod terminal;
mod token;
mod up;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::fmt::writer::MakeWriterExt;

use arguments::{Cli, Command, DoctorArguments, PiServerArguments, UpArguments};
use error::{CliError, ErrorKind};
use output::Output;
use settings::{Environment, Flags, Program, Settings};

fn main() -> ExitCode {
    // The guard must be small and alone: before the parser, before any thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "guard") {
        return qd_runner::guard::main(std::env::args_os().skip(2));
    }
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

fn run(cli: Cli, environment: &Environment, output: &Output) -> Result<(), CliError> {
    let Cli { command, config, common, local, .. } = cli;
    let settings = |flags: Flags| -> Result<Settings, CliError> {
        let mut settings = settings::load(environment, config.as_deref(), Flags { common, ..flags })?;
        settings.local = local;
        start_log(&settings)?;
        Ok(settings)
    };
    if local && !talks_to_sessions(&command) {
        return Err(CliError::usage("--local is for commands that talk to sessions of this machine"));
    }
    match command {
        Command::Up(arguments) => {
            let UpArguments { ready_json, insecure_bind, flags: up, pi, runner } = *arguments;
            let settings = settings(Flags { up, pi, runner, ..Flags::default() })?;
            up::run(&settings, environment, output, up::Mode { ready_json, insecure_bind })
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
            let DoctorArguments { flags: up, pi, runner } = *arguments;
            let settings = settings(Flags { up, pi, runner, ..Flags::default() })?;
            block_on(doctor::run(&settings, output))
        }
        Command::Completions(arguments) => completions(arguments.shell),
        Command::Guard => Err(CliError::usage("`qd guard` is started by the server only")),
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
async fn talk(settings: &Settings, output: &Output, command: Command) -> Result<(), CliError> {
    match command {
        Command::Run(arguments) => commands::run::run(settings, output, arguments).await,
        Command::Ls(arguments) => commands::list::run(settings, output, arguments).await,
        Command::Attach(arguments) => commands::attach::run(settings, output, arguments).await,
        Command::Logs(arguments) => commands::logs::run(settings, output, arguments).await,
        Command::Send(arguments) => commands::control::send(settings, output, arguments).await,
        Command::Steer(arguments) => commands::control::steer(settings, output, arguments).await,
        Command::Abort(arguments) => commands::control::abort(settings, output, &arguments.session).await,
        Command::Approve(arguments) => commands::approve::approve(settings, output, arguments).await,
        Command::Deny(arguments) => commands::approve::deny(settings, output, arguments).await,
        Command::Stop(arguments) => commands::control::stop(settings, output, &arguments.session).await,
        Command::Restart(arguments) => commands::control::restart(settings, output, &arguments.session).await,
        Command::Rm(arguments) => commands::control::remove(settings, output, &arguments.session).await,
        Command::Search(arguments) => commands::search::run(settings, output, arguments).await,
        Command::Token(arguments) => token::run(settings, output, arguments.command).await,
        Command::Mcp(arguments) => mcp::run(settings, output, arguments).await,
        Command::Approvals(arguments) => commands::approvals::run(settings, output, arguments).await,
        Command::Fs(arguments) => commands::fs::run(settings, output, arguments).await,
        Command::Git(arguments) => commands::git::run(settings, output, arguments).await,
        Command::Bash(arguments) => commands::bash::run(settings, output, arguments).await,
        Command::Log(arguments) => commands::audit::run(settings, output, arguments.command).await,
        Command::Shims(arguments) => commands::shims::run(settings, output, arguments),
        Command::User(arguments) => commands::user::run(settings, output, arguments.command).await,
        Command::LoginLink => commands::login_link::run(settings, output).await,
        Command::Hosts(arguments) => commands::hosts::run(settings, output, arguments.command).await,
        Command::Up(_)
        | Command::PiServer(_)
        | Command::Runner(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Guard => Err(CliError::usage("this command does not talk to a server")),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread may still wait for a line of stdin; it ends with the process.
    runtime.shutdown_background();
    result
}

/// To stderr, and to the file where one is named.
fn start_log(settings: &Settings) -> Result<(), CliError> {
    let builder = tracing_subscriber::fmt().with_max_level(settings.log_level.filter());
    // It can only be set already, which no path through this program does.
    let _already_set = match &settings.log_file {
        None => {
            let subscriber = builder.with_writer(std::io::stderr).finish();
            tracing::subscriber::set_global_default(subscriber)
        }
        Some(path) => {
            let file = files::append_private(path).map_err(|error| {
                CliError::usage(format!("cannot write the log {}: {error}", path.display()))
                    .hint("name another file with --log-file")
            })?;
            let subscriber = builder.with_ansi(false).with_writer(std::io::stderr.and(file)).finish();
            tracing::subscriber::set_global_default(subscriber)
        }
    };
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "qd", &mut script);
    Ok(std::io::stdout().lock().write_all(&script)?)
}
