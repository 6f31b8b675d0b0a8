//! The configuration: defaults < `qd.toml` < `QD_*` environment < flags. The table below declares each setting
//! once; file format, environment, flags, help and documentation are made from it.

mod load;
mod values;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use load::{Environment, checked_runner_id, load, runner_id_of_hostname};
pub(crate) use values::{HangRestart, HostList, LogLevel, Resume, RunnerSocket, Tls, Words};

/// One row of the table, for documentation.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingSpec {
    pub(crate) name: &'static str,
    pub(crate) environment: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

macro_rules! settings {
    (
        everywhere { $( $g_name:ident: $g_type:ty, $g_flag:literal, $g_env:literal, $g_value:literal, $g_default:literal, $g_help:literal; )* }
        up { $( $u_name:ident: $u_type:ty, $u_flag:literal, $u_env:literal, $u_value:literal, $u_default:literal, $u_help:literal; )* }
        runner { $( $r_name:ident: $r_type:ty, $r_flag:literal, $r_env:literal, $r_value:literal, $r_default:literal, $r_help:literal; )* }
    ) => {
        /// Every setting, in the order of the documentation.
        #[cfg(test)]
        pub(crate) const SETTINGS: &[SettingSpec] = &[
            $( SettingSpec { name: stringify!($g_name), environment: $g_env, flag: $g_flag, default: $g_default, help: $g_help }, )*
            $( SettingSpec { name: stringify!($u_name), environment: $u_env, flag: $u_flag, default: $u_default, help: $u_help }, )*
            $( SettingSpec { name: stringify!($r_name), environment: $r_env, flag: $r_flag, default: $r_default, help: $r_help }, )*
        ];

        /// Settings that every subcommand takes as flags.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct CommonFlags {
            $( #[arg(long = $g_flag, global = true, value_name = $g_value,
                help = concat!($g_help, " [env: ", $g_env, "] [default: ", $g_default, "]"))]
            pub(crate) $g_name: Option<$g_type>, )*
        }

        /// Settings of the hub, for `qd up`.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct UpFlags {
            $( #[arg(long = $u_flag, value_name = $u_value,
                help = concat!($u_help, " [env: ", $u_env, "] [default: ", $u_default, "]"))]
            pub(crate) $u_name: Option<$u_type>, )*
        }

        /// Settings of a runner, for `qd up` and `qd runner`.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct RunnerFlags {
            $( #[arg(long = $r_flag, value_name = $r_value,
                help = concat!($r_help, " [env: ", $r_env, "] [default: ", $r_default, "]"))]
            pub(crate) $r_name: Option<$r_type>, )*
        }

        /// One source of settings: the file, the environment or the flags.
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Layer {
            $( #[serde(default)] pub(crate) $g_name: Option<$g_type>, )*
            $( #[serde(default)] pub(crate) $u_name: Option<$u_type>, )*
            $( #[serde(default)] pub(crate) $r_name: Option<$r_type>, )*
        }

        impl Layer {
            /// This layer where it says something, else the one below.
            fn over(self, below: Layer) -> Layer {
                Layer {
                    $( $g_name: self.$g_name.or(below.$g_name), )*
                    $( $u_name: self.$u_name.or(below.$u_name), )*
                    $( $r_name: self.$r_name.or(below.$r_name), )*
                }
            }

            fn from_environment(environment: &Environment) -> Result<Layer, crate::error::CliError> {
                Ok(Layer {
                    $( $g_name: environment.parse($g_env)?, )*
                    $( $u_name: environment.parse($u_env)?, )*
                    $( $r_name: environment.parse($r_env)?, )*
                })
            }

            fn from_flags(flags: Flags) -> Layer {
                let Flags { common, up, runner } = flags;
                Layer {
                    $( $g_name: common.$g_name, )*
                    $( $u_name: up.$u_name, )*
                    $( $r_name: runner.$r_name, )*
                }
            }
        }
    };
}

settings! {
    // name: type, flag, environment, value, default, help
    everywhere {
        data_dir: PathBuf, "data-dir", "QD_DATA_DIR", "DIR", "$XDG_DATA_HOME/qd",
            "Where the server keeps everything: database, token, sessions";
        url: String, "url", "QD_URL", "URL", "the server running on the data directory",
            "The server the command talks to";
        token: String, "token", "QD_TOKEN", "TOKEN", "the owner's, from the data directory",
            "The token shown to that server";
        fingerprint: String, "fingerprint", "QD_FINGERPRINT", "HEX", "the system's authorities decide",
            "The certificate to trust at that server: its SHA-256, as `qd up` prints it";
        runner_socket: RunnerSocket, "runner-socket", "QD_RUNNER_SOCKET", "PATH", "$XDG_RUNTIME_DIR/qd-runner.sock",
            "Where the runner of this machine listens for local commands; off: nowhere";
        log_level: LogLevel, "log-level", "QD_LOG_LEVEL", "LEVEL", "warn",
            "What is written to stderr: off, error, warn, info, debug, trace";
    }
    up {
        listen: String, "listen", "QD_LISTEN", "ADDRESS", "127.0.0.1:7433",
            "Where to listen; port 0 takes a free one";
        tls: Tls, "tls", "QD_TLS", "WHEN", "auto",
            "Encrypt with TLS: on, off, or auto (when others can reach the address)";
        tls_cert: PathBuf, "tls-cert", "QD_TLS_CERT", "FILE", "a self-signed one, made at the first start",
            "The certificate and its chain, PEM";
        tls_key: PathBuf, "tls-key", "QD_TLS_KEY", "FILE", "that of the self-signed one",
            "The key of the certificate, PEM";
        allowed_hosts: HostList, "allowed-hosts", "QD_ALLOWED_HOSTS", "HOSTS", "none",
            "More names clients may use in Host and Origin, separated by commas";
        runner_timeout: u64, "runner-timeout", "QD_RUNNER_TIMEOUT", "SECONDS", "30",
            "A runner without a sign of life for this long is shown as unhealthy";
        runner_id: String, "runner-id", "QD_RUNNER_ID", "NAME", "local",
            "The name of this machine in lists";
    }
    runner {
        pi_command: Words, "pi-command", "QD_PI_COMMAND", "WORDS", "pi",
            "How to start pi; words as in a shell, but no shell is used";
        max_sessions: u64, "max-sessions", "QD_MAX_SESSIONS", "COUNT", "1000",
            "How many sessions may be open at one time";
        spool_max_mib: u64, "spool-max-mib", "QD_SPOOL_MAX_MIB", "MIB", "256",
            "How much may wait for the hub while it is away; at the bound new prompts are refused";
        resume: Resume, "resume", "QD_RESUME", "WHEN", "on-use",
            "When the agents of last time start again: on-use (with the next prompt) or at-start";
        hang_warning: u64, "hang-warning", "QD_HANG_WARNING", "SECONDS", "30",
            "Warn when a working agent says nothing for this long";
        hang_restart: HangRestart, "hang-restart", "QD_HANG_RESTART", "SECONDS", "off",
            "End and restart an agent that hangs for this long";
        probe_interval: u64, "probe-interval", "QD_PROBE_INTERVAL", "SECONDS", "30",
            "How often an agent is asked whether it still answers";
    }
}

/// What the command line says, group by group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    pub(crate) common: CommonFlags,
    pub(crate) up: UpFlags,
    pub(crate) runner: RunnerFlags,
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) fingerprint: Option<String>,
    /// Sockets of a runner on this machine, the wanted one first; empty when there shall be none.
    pub(crate) runner_sockets: Vec<PathBuf>,
    pub(crate) log_level: LogLevel,
    pub(crate) listen: String,
    pub(crate) tls: Tls,
    /// Certificate and key.
    pub(crate) tls_files: Option<(PathBuf, PathBuf)>,
    pub(crate) allowed_hosts: HostList,
    pub(crate) runner_timeout: Duration,
    pub(crate) runner_id: String,
    pub(crate) pi_command: Words,
    pub(crate) max_sessions: u64,
    pub(crate) spool_bytes_max: u64,
    pub(crate) resume: Resume,
    pub(crate) hang_warning: Duration,
    pub(crate) hang_restart: Option<Duration>,
    pub(crate) probe_interval: Duration,
    /// Talk to the runner of this machine, not to a hub.
    pub(crate) local: bool,
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
