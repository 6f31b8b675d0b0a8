//! The configuration: defaults < `qd.toml` < `QD_*` environment < flags. The table below declares each setting
//! once; file format, environment, flags, help and documentation are made from it.

mod load;
mod values;

use std::path::PathBuf;

pub(crate) use load::{Environment, load};
pub(crate) use values::{HostList, LogLevel, Words};

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
    ) => {
        /// Every setting, in the order of the documentation.
        #[cfg(test)]
        pub(crate) const SETTINGS: &[SettingSpec] = &[
            $( SettingSpec { name: stringify!($g_name), environment: $g_env, flag: $g_flag, default: $g_default, help: $g_help }, )*
            $( SettingSpec { name: stringify!($u_name), environment: $u_env, flag: $u_flag, default: $u_default, help: $u_help }, )*
        ];

        /// Settings that every subcommand takes as flags.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct CommonFlags {
            $( #[arg(long = $g_flag, global = true, value_name = $g_value,
                help = concat!($g_help, " [env: ", $g_env, "] [default: ", $g_default, "]"))]
            pub(crate) $g_name: Option<$g_type>, )*
        }

        /// Settings of the server.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct UpFlags {
            $( #[arg(long = $u_flag, value_name = $u_value,
                help = concat!($u_help, " [env: ", $u_env, "] [default: ", $u_default, "]"))]
            pub(crate) $u_name: Option<$u_type>, )*
        }

        /// One source of settings: the file, the environment or the flags.
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Layer {
            $( #[serde(default)] pub(crate) $g_name: Option<$g_type>, )*
            $( #[serde(default)] pub(crate) $u_name: Option<$u_type>, )*
        }

        impl Layer {
            /// This layer where it says something, else the one below.
            fn over(self, below: Layer) -> Layer {
                Layer {
                    $( $g_name: self.$g_name.or(below.$g_name), )*
                    $( $u_name: self.$u_name.or(below.$u_name), )*
                }
            }

            fn from_environment(environment: &Environment) -> Result<Layer, crate::error::CliError> {
                Ok(Layer {
                    $( $g_name: environment.parse($g_env)?, )*
                    $( $u_name: environment.parse($u_env)?, )*
                })
            }

            fn from_flags(common: CommonFlags, up: UpFlags) -> Layer {
                Layer { $( $g_name: common.$g_name, )* $( $u_name: up.$u_name, )* }
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
        log_level: LogLevel, "log-level", "QD_LOG_LEVEL", "LEVEL", "warn",
            "What is written to stderr: off, error, warn, info, debug, trace";
    }
    up {
        listen: String, "listen", "QD_LISTEN", "ADDRESS", "127.0.0.1:7433",
            "Where to listen; port 0 takes a free one";
        allowed_hosts: HostList, "allowed-hosts", "QD_ALLOWED_HOSTS", "HOSTS", "none",
            "More names clients may use in Host and Origin, separated by commas";
        pi_command: Words, "pi-command", "QD_PI_COMMAND", "WORDS", "pi",
            "How to start pi; words as in a shell, but no shell is used";
        runner_id: String, "runner-id", "QD_RUNNER_ID", "NAME", "local",
            "The name of this machine in lists";
        max_sessions: u64, "max-sessions", "QD_MAX_SESSIONS", "COUNT", "1000",
            "How many sessions may be open at one time";
    }
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) log_level: LogLevel,
    pub(crate) listen: String,
    pub(crate) allowed_hosts: HostList,
    pub(crate) pi_command: Words,
    pub(crate) runner_id: String,
    pub(crate) max_sessions: u64,
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
