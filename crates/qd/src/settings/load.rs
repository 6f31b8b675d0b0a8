//! Reading the layers and putting them on top of each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{CommonFlags, HostList, Layer, LogLevel, Settings, UpFlags, Words};
use crate::error::CliError;

const LISTEN_DEFAULT: &str = "127.0.0.1:7433";
const RUNNER_ID_DEFAULT: &str = "local";
const RUNNER_ID_BYTES_MAX: usize = 64;
const MAX_SESSIONS_DEFAULT: u64 = 1000;

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

    pub(super) fn parse<T: FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, CliError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                Err(CliError::usage(format!("the environment variable {name} is not usable: {error}")))
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
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Environment(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

/// The settings in force; `config` is the file named by `--config`.
pub(crate) fn load(
    environment: &Environment,
    config: Option<&Path>,
    common: CommonFlags,
    up: UpFlags,
) -> Result<Settings, CliError> {
    let file = read_file(environment, config)?;
    let layer = Layer::from_flags(common, up).over(Layer::from_environment(environment)?).over(file);
    resolve(environment, layer)
}

fn resolve(environment: &Environment, layer: Layer) -> Result<Settings, CliError> {
    let data_dir = match layer.data_dir {
        Some(path) => expand_home(environment, path),
        None => environment
            .base_directory("XDG_DATA_HOME", ".local/share")
            .map(|base| base.join("qd"))
            .ok_or_else(|| {
                CliError::usage("HOME is not set, so there is no place for data")
                    .hint("name one with --data-dir")
            })?,
    };
    let runner_id = layer.runner_id.unwrap_or_else(|| RUNNER_ID_DEFAULT.to_owned());
    let plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    if runner_id.is_empty() || runner_id.len() > RUNNER_ID_BYTES_MAX || !runner_id.chars().all(plain) {
        return Err(CliError::usage(format!("runner_id '{runner_id}' is not usable"))
            .hint(format!("take up to {RUNNER_ID_BYTES_MAX} letters, digits, '.', '_' and '-'")));
    }
    let max_sessions = layer.max_sessions.unwrap_or(MAX_SESSIONS_DEFAULT);
    if max_sessions == 0 {
        return Err(
            CliError::usage("max_sessions is 0, so no session could ever start").hint("take 1 or more")
        );
    }
    Ok(Settings {
        data_dir,
        url: layer.url,
        token: layer.token,
        log_level: layer.log_level.unwrap_or(LogLevel::Warn),
        listen: layer.listen.unwrap_or_else(|| LISTEN_DEFAULT.to_owned()),
        allowed_hosts: layer.allowed_hosts.unwrap_or_else(HostList::none),
        pi_command: layer.pi_command.unwrap_or_else(|| Words::one("pi")),
        runner_id,
        max_sessions,
    })
}

fn read_file(environment: &Environment, config: Option<&Path>) -> Result<Layer, CliError> {
    let named = config.map(Path::to_path_buf).or_else(|| environment.get("QD_CONFIG").map(PathBuf::from));
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
                .hint("name the file with --config or QD_CONFIG"));
        }
    };
    toml::from_str(&text).map_err(|error| {
        CliError::usage(format!("{} is not valid: {}", path.display(), error.to_string().trim_end()))
            .hint("docs/cli.md lists every setting")
    })
}

fn expand_home(environment: &Environment, path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), environment.home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_), None) | (Err(_), _) => path,
    }
}
