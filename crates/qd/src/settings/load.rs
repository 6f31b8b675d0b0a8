//! Reading the layers and putting them on top of each other.
//!
//! A value that is wrong is an error with its source (the file, the variable, the flag), never silently a default: a
//! server that starts with other settings than its owner wrote is worse than one that does not start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::{
    Flags, HarnessCommands, Layer, LogLevel, Program, Resume, RunnerSocket, SecondsOrOff, Settings, Tls,
    harness, pi, services,
};
use crate::error::{CliError, Result};

const LISTEN_DEFAULT: &str = "127.0.0.1:7433";
const RUNNER_ID_DEFAULT: &str = "local";
// It stands in every event of its sessions and in addresses.
const RUNNER_ID_BYTES_MAX: usize = 64;
const MAX_SESSIONS_DEFAULT: u64 = 1000;
const RUNNER_TIMEOUT_DEFAULT: u64 = 30;
const SPOOL_MIB_DEFAULT: u64 = 256;
const HANG_WARNING_DEFAULT: u64 = 30;
const PROBE_INTERVAL_DEFAULT: u64 = 30;
/// A year of seconds; more is a mistake of units.
const SECONDS_MAX: u64 = 365 * 24 * 60 * 60;
/// A tebibyte; more is a mistake of units.
const MIB_MAX: u64 = 1 << 20;
/// The socket's name, in the runtime directory or in the data directory.
const SOCKET_NAME: &str = "qd-runner.sock";

/// The environment as it was at the start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(HashMap<String, String>);

impl Environment {
    /// The variables of this process; values that are not text are left out.
    pub(crate) fn of_process() -> Environment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn parse<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                Err(CliError::usage(format!("the environment variable {name} is invalid: {error}")))
            }
        }
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }

    fn base_directory(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        // The XDG rules: a path that is not absolute is ignored.
        let named = self.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| self.home().map(|home| home.join(below_home)))
    }
}

#[cfg(test)]
impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(variables: I) -> Self {
        Environment(variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// Settings for tests: the defaults of somebody at home in `/h`, and these flags.
#[cfg(test)]
pub(crate) fn test_settings(flags: Flags) -> Settings {
    load(&Environment::from_iter([("HOME", "/h")]), None, flags).unwrap()
}

/// The settings in force; `config` is the file named by `--config`.
pub(crate) fn load(environment: &Environment, config: Option<&Path>, flags: Flags) -> Result<Settings> {
    let program = flags.program;
    let file = read_file(environment, config)?;
    let layer = Layer::from_flags(flags).over(Layer::from_environment(environment)?).over(file);
    resolve(environment, layer, program)
}

fn resolve(environment: &Environment, mut layer: Layer, program: Program) -> Result<Settings> {
    // Kept, because `qd pi-server` may take another directory only if the person has named none.
    let is_data_dir_default = layer.data_dir.is_none();
    let data_dir = data_dir(environment, layer.data_dir.clone(), program)?;
    let max_sessions = layer.max_sessions.unwrap_or(MAX_SESSIONS_DEFAULT);
    if max_sessions == 0 {
        return Err(
            CliError::usage("max_sessions is 0, so no session could ever start").hint("set it to 1 or more")
        );
    }
    let spool_mib = bounded("spool_max_mib", layer.spool_max_mib.unwrap_or(SPOOL_MIB_DEFAULT), MIB_MAX)?;
    let hang_restart = seconds_or_off("hang_restart", layer.hang_restart)?;
    let face = pi::face(&layer)?;
    let breakers = pi::breakers(&layer)?;
    let services = services::services(environment, &mut layer)?;
    let (runs, login_life, audit_life) =
        (services::runs(&layer)?, services::login_life(&layer)?, services::audit_life(&layer)?);
    let push = services::push(&layer)?;
    let log_file = layer.log_file.take().map(|path| std::path::absolute(expand_home(environment, path)));
    Ok(Settings {
        runner_sockets: runner_sockets(environment, layer.runner_socket, &data_dir, program)?,
        data_dir,
        is_data_dir_default,
        question_timeout: pi::question_timeout(layer.question_timeout_seconds, program)?,
        agent_idle_stop: pi::agent_idle_stop(layer.agent_idle_stop_minutes)?,
        breakers,
        pi_server_port: layer.pi_server_port,
        pi: face,
        url: layer.url,
        token: layer.token,
        fingerprint: layer.fingerprint,
        log_level: layer.log_level.unwrap_or(LogLevel::Warn),
        services,
        agent_environment: layer.agent_environment.unwrap_or_default().0,
        runs,
        login_life,
        audit_life,
        push,
        log_file: log_file.transpose()?,
        listen: layer.listen.unwrap_or_else(|| LISTEN_DEFAULT.to_owned()),
        tls: layer.tls.unwrap_or(Tls::Auto),
        tls_files: tls_files(environment, layer.tls_cert, layer.tls_key)?,
        allowed_hosts: layer.allowed_hosts.unwrap_or_default(),
        runner_timeout: seconds("runner_timeout", layer.runner_timeout, RUNNER_TIMEOUT_DEFAULT)?,
        runner_id: checked_runner_id(layer.runner_id.unwrap_or_else(|| RUNNER_ID_DEFAULT.to_owned()))?,
        harnesses: harness::harnesses(environment, &layer.harnesses),
        max_sessions,
        spool_bytes_max: spool_mib << 20,
        resume: layer.resume.unwrap_or(Resume::OnUse),
        hang_warning: seconds("hang_warning", layer.hang_warning, HANG_WARNING_DEFAULT)?,
        hang_restart,
        probe_interval: seconds("probe_interval", layer.probe_interval, PROBE_INTERVAL_DEFAULT)?,
        local: false,
    })
}

fn data_dir(environment: &Environment, named: Option<PathBuf>, program: Program) -> Result<PathBuf> {
    let data_dir = match (named, program) {
        (Some(path), _) => expand_home(environment, path),
        (None, program) => {
            let base = environment.base_directory("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
                CliError::usage("HOME is not set, so there is no default data directory")
                    .hint("set one with --data-dir")
            })?;
            match program {
                Program::Qd => base.join("qd"),
                Program::PiServer => base.join("qd/pi-server"),
            }
        }
    };
    // Agents and sockets are found by it from other directories too.
    Ok(std::path::absolute(data_dir)?)
}

/// A name for a runner that can stand in headers, paths and tables.
pub(crate) fn checked_runner_id(runner_id: String) -> Result<String> {
    if runner_id.is_empty()
        || runner_id.len() > RUNNER_ID_BYTES_MAX
        || !runner_id.chars().all(is_runner_id_character)
    {
        return Err(CliError::usage(format!("runner_id '{runner_id}' is invalid"))
            .hint(format!(
                "take up to {RUNNER_ID_BYTES_MAX} letters, digits, '.', '_' and '-'; `qd runner join` takes it with --name"
            )));
    }
    Ok(runner_id)
}

/// The name of a machine as a runner's name; what does not fit becomes a dash.
pub(crate) fn runner_id_of_hostname(hostname: &str) -> String {
    let fits = |character: char| if is_runner_id_character(character) { character } else { '-' };
    let name: String = hostname.chars().map(fits).take(RUNNER_ID_BYTES_MAX).collect();
    if name.is_empty() { "runner".to_owned() } else { name }
}

fn is_runner_id_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-".contains(character)
}

/// The place named, or the usual one with the data directory behind it.
fn runner_sockets(
    environment: &Environment,
    socket: Option<RunnerSocket>,
    data_dir: &Path,
    program: Program,
) -> Result<Vec<PathBuf>> {
    Ok(match socket {
        Some(RunnerSocket::Off) => Vec::new(),
        Some(RunnerSocket::At(path)) => vec![std::path::absolute(expand_home(environment, path))?],
        // The usual place is for the server or the runner of this machine.
        None if program == Program::PiServer => vec![data_dir.join(SOCKET_NAME)],
        None => {
            let runtime = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from);
            // The variable may name a directory of a login that is over.
            let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir());
            runtime.into_iter().chain([data_dir.to_path_buf()]).map(|base| base.join(SOCKET_NAME)).collect()
        }
    })
}

fn tls_files(
    environment: &Environment,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some((expand_home(environment, certificate), expand_home(environment, key))))
        }
        (Some(_), None) | (None, Some(_)) => {
            Err(CliError::usage("tls_cert and tls_key must be set together, and one is missing")
                .hint("set both, or neither for a self-signed certificate"))
        }
    }
}

pub(super) fn seconds_or_off(name: &str, value: Option<SecondsOrOff>) -> Result<Option<Duration>> {
    match value.unwrap_or(SecondsOrOff::Off) {
        SecondsOrOff::Off => Ok(None),
        SecondsOrOff::After(after) => seconds(name, Some(after), after).map(Some),
    }
}

pub(super) fn seconds(name: &str, value: Option<u64>, default: u64) -> Result<Duration> {
    bounded(name, value.unwrap_or(default), SECONDS_MAX).map(Duration::from_secs)
}

pub(super) fn bounded(name: &str, value: u64, max: u64) -> Result<u64> {
    if (1..=max).contains(&value) {
        return Ok(value);
    }
    Err(CliError::usage(format!("{name} is {value}")).hint(format!("use a value from 1 to {max}")))
}

fn read_file(environment: &Environment, config: Option<&Path>) -> Result<Layer> {
    let named = config.map(Path::to_path_buf).or_else(|| environment.get("QD_CONFIG").map(PathBuf::from));
    // A file that was named and is missing is a mistake; the default one need not exist.
    let must_exist = named.is_some();
    let default =
        || environment.base_directory("XDG_CONFIG_HOME", ".config").map(|base| base.join("qd/qd.toml"));
    let Some(path) = named.or_else(default) else { return Ok(Layer::default()) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
            return Ok(Layer::default());
        }
        Err(error) => {
            return Err(CliError::usage(format!("cannot read {}: {error}", path.display()))
                .hint("set the file with --config or QD_CONFIG"));
        }
    };
    parse_file(&text).map_err(|error| {
        CliError::usage(format!("{} is not valid: {}", path.display(), error.trim_end()))
            .hint("docs/settings.md lists every setting")
    })
}

fn parse_file(text: &str) -> Result<Layer, String> {
    let (harnesses, rest) = HarnessCommands::take_from(text)?;
    let layer: Layer = toml::from_str(&rest).map_err(|error| error.to_string())?;
    Ok(Layer { harnesses, ..layer })
}

pub(super) fn expand_home(environment: &Environment, path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), environment.home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_), None) | (Err(_), _) => path,
    }
}
