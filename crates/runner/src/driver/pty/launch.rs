//! Which program a run is, and where it is found.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use qd_wire::run::{RunConfig, TERMINAL_HARNESS};
use qd_wire::{CodedError, ErrorCode};

use crate::config::RunnerConfig;
use crate::driver::StartRequest;
use crate::process::program_lookup::find_program;
use crate::process::{Environment, InheritedVariables};

/// What there is where the person has no shell set.
const SHELL: &str = "/bin/sh";

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedProgram {
    pub(super) argv: Vec<OsString>,
    /// A word for people and for the rules of its questions.
    pub(super) tool: String,
    /// The command line, for people.
    pub(super) command: String,
}

/// There is no such program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProgramNotFound {
    #[error("{tool} binary not found: {path}; check the path, or name the program alone")]
    AtPath { tool: String, path: String },
    #[error("{tool} binary not found in PATH: {name}")]
    InPath { tool: String, name: String },
}

impl From<ProgramNotFound> for CodedError {
    fn from(error: ProgramNotFound) -> Self {
        ErrorCode::AgentGone.with(error.to_string())
    }
}

/// The program of a session: its arguments, its command line, or the person's shell.
pub(super) fn program(
    request: &StartRequest,
    environment: &Environment,
) -> Result<ResolvedProgram, ProgramNotFound> {
    let run = request.config.run.clone().unwrap_or_default();
    let is_terminal = request.config.harness == TERMINAL_HARNESS;
    let (argv, command) = words(&run, is_terminal);
    let first = argv.first().cloned().unwrap_or_default();
    let tool = match run.tool.as_deref().map(str::trim).filter(|tool| !tool.is_empty()) {
        Some(tool) => tool.to_owned(),
        None => tool_of(run.cmd.as_deref().filter(|_| run.argv.is_empty()).unwrap_or(&first)),
    };
    let mut argv: Vec<OsString> = argv.into_iter().map(OsString::from).collect();
    let found = find(&first, &request.cwd, environment.variable("PATH").as_deref());
    let Some(found) = found else {
        return Err(if first.contains('/') {
            ProgramNotFound::AtPath { tool, path: first }
        } else {
            ProgramNotFound::InPath { tool, name: first }
        });
    };
    if let Some(name) = argv.first_mut() {
        *name = found.into_os_string();
    }
    Ok(ResolvedProgram { argv, tool, command })
}

fn words(run: &RunConfig, is_terminal: bool) -> (Vec<String>, String) {
    if !run.argv.is_empty() {
        return (run.argv.clone(), run.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    }
    if let Some(cmd) = run.cmd.as_deref().filter(|cmd| !cmd.trim().is_empty()) {
        return (vec!["bash".to_owned(), "-lc".to_owned(), cmd.to_owned()], cmd.to_owned());
    }
    let shell = std::env::var("SHELL").ok().filter(|shell| Path::new(shell).is_file());
    let shell = shell.unwrap_or_else(|| SHELL.to_owned());
    // A terminal is where a person logs in; a run is a program among others.
    let argv = if is_terminal { vec![shell.clone(), "-l".to_owned()] } else { vec![shell.clone()] };
    (argv, shell)
}

/// A word as a shell would have to be given it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The name of the program in a command line.
fn tool_of(command: &str) -> String {
    let is_name = |word: &&str| !word.contains('=');
    let first = command.split_whitespace().find(is_name).unwrap_or(command);
    let name = first.rsplit('/').next().unwrap_or(first);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

/// Looks a program up as a shell does, but never finds our own stand-ins for it.
fn find(name: &str, cwd: &Path, path_variable: Option<&OsStr>) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        let path = cwd.join(name);
        return path.is_file().then_some(path);
    }
    let folders = std::env::split_paths(path_variable?).map(|folder| cwd.join(folder));
    find_program(name, folders)
}

/// The program's variables: the runner's own without its secrets, what names the run, and what the client set.
pub(super) fn environment(runner: &RunnerConfig, request: &StartRequest) -> Environment {
    let run = request.config.run.clone().unwrap_or_default();
    // A size in variables would go before the terminal's own, and be wrong after the first resize.
    let remove = ["COLUMNS", "LINES"];
    let mut set: Vec<(OsString, OsString)> = vec![("TERM".into(), "xterm-256color".into())];
    let client = run.env.iter().filter(|(name, _)| !name.is_empty() && !name.contains(['=', '\0']));
    set.extend(client.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    set.push(("QD_SESSION_ID".into(), OsString::from(&request.session_id)));
    set.push(("QD_RUN_ID".into(), OsString::from(&request.session_id)));
    if let Some(socket) = &runner.local_socket {
        set.push(("QD_SOCKET".into(), socket.clone().into_os_string()));
    }
    Environment { inherit: InheritedVariables::All, remove: remove.map(OsString::from).to_vec(), set }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
