//! The configuration: defaults < `qd.toml` < `QD_*` environment < flags. The table below declares each setting
//! once; file format, environment, flags, help and documentation are made from it.

mod harness;
mod load;
mod pi;
mod services;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use qd_core::breaker::BreakerConfig;
use qd_hub::{PiServerConfig, PushConfig};
use qd_runner::driver::Harnesses;
use qd_runner::{RunsConfig, ServiceConfig};

use crate::error::Result;

pub(crate) use harness::HarnessCommands;
#[cfg(test)]
pub(crate) use harness::command_settings;
#[cfg(test)]
pub(crate) use load::test_settings;
pub(crate) use load::{Environment, checked_runner_id, load, runner_id_of_hostname};
pub(crate) use values::{
    HostList, LogLevel, OnOff, PathList, Resume, RoleList, RunnerSocket, SecondsOrOff, Tls, VariableList,
    Words,
};

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
        pi { $( $p_name:ident: $p_type:ty, $p_flag:literal, $p_env:literal, $p_value:literal, $p_default:literal, $p_help:literal; )* }
        pi_switches { $( $s_name:ident, $s_flag:literal, $s_env:literal, $s_help:literal; )* }
        runner { $( $r_name:ident: $r_type:ty, $r_flag:literal, $r_env:literal, $r_value:literal, $r_default:literal, $r_help:literal; )* }
    ) => {
        /// Every setting, in the order of the documentation.
        #[cfg(test)]
        pub(crate) const SETTINGS: &[SettingSpec] = &[
            $( SettingSpec { name: stringify!($g_name), environment: $g_env, flag: $g_flag, default: $g_default, help: $g_help }, )*
            $( SettingSpec { name: stringify!($u_name), environment: $u_env, flag: $u_flag, default: $u_default, help: $u_help }, )*
            $( SettingSpec { name: stringify!($p_name), environment: $p_env, flag: $p_flag, default: $p_default, help: $p_help }, )*
            $( SettingSpec { name: stringify!($s_name), environment: $s_env, flag: $s_flag, default: "false", help: $s_help }, )*
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

        /// Settings of the pi-server protocol, for `qd up` and `qd pi-server`.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings of the pi-server protocol")]
        pub(crate) struct PiFlags {
            $( #[arg(long = $p_flag, value_name = $p_value,
                help = concat!($p_help, " [env: ", $p_env, "] [default: ", $p_default, "]"))]
            pub(crate) $p_name: Option<$p_type>, )*
            $( #[arg(long = $s_flag, value_name = "BOOL", num_args = 0..=1, require_equals = true,
                default_missing_value = "true", help = concat!($s_help, " [env: ", $s_env, "]"))]
            pub(crate) $s_name: Option<bool>, )*
        }

        /// Settings of a runner, for `qd up`, `qd pi-server` and `qd runner`.
        #[derive(Debug, Clone, Default, clap::Args)]
        #[command(next_help_heading = "Settings")]
        pub(crate) struct RunnerFlags {
            $( #[arg(long = $r_flag, value_name = $r_value,
                help = concat!($r_help, " [env: ", $r_env, "] [default: ", $r_default, "]"))]
            pub(crate) $r_name: Option<$r_type>, )*
            #[command(flatten)]
            pub(crate) harnesses: HarnessCommands,
        }

        /// One source of settings: the file, the environment or the flags.
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Layer {
            $( #[serde(default)] pub(crate) $g_name: Option<$g_type>, )*
            $( #[serde(default)] pub(crate) $u_name: Option<$u_type>, )*
            $( #[serde(default)] pub(crate) $p_name: Option<$p_type>, )*
            $( #[serde(default)] pub(crate) $s_name: Option<bool>, )*
            $( #[serde(default)] pub(crate) $r_name: Option<$r_type>, )*
            /// How to start harnesses; read apart, because the table of harnesses names them.
            #[serde(skip)]
            pub(crate) harnesses: HarnessCommands,
        }

        impl Layer {
            /// This layer where it says something, else the one below.
            fn over(self, below: Layer) -> Layer {
                Layer {
                    $( $g_name: self.$g_name.or(below.$g_name), )*
                    $( $u_name: self.$u_name.or(below.$u_name), )*
                    $( $p_name: self.$p_name.or(below.$p_name), )*
                    $( $s_name: self.$s_name.or(below.$s_name), )*
                    $( $r_name: self.$r_name.or(below.$r_name), )*
                    harnesses: self.harnesses.over(below.harnesses),
                }
            }

            fn from_environment(environment: &Environment) -> Result<Layer> {
                Ok(Layer {
                    $( $g_name: environment.parse($g_env)?, )*
                    $( $u_name: environment.parse($u_env)?, )*
                    $( $p_name: environment.parse($p_env)?, )*
                    $( $s_name: environment.parse($s_env)?, )*
                    $( $r_name: environment.parse($r_env)?, )*
                    harnesses: HarnessCommands::from_environment(environment)?,
                })
            }

            fn from_flags(flags: Flags) -> Layer {
                let Flags { common, up, pi, runner, program: _ } = flags;
                Layer {
                    $( $g_name: common.$g_name, )*
                    $( $u_name: up.$u_name, )*
                    $( $p_name: pi.$p_name, )*
                    $( $s_name: pi.$s_name, )*
                    $( $r_name: runner.$r_name, )*
                    harnesses: runner.harnesses,
                }
            }
        }
    };
}

settings! {
    // name: type, flag, environment, value, default, help
    everywhere {
        data_dir: PathBuf, "data-dir", "QD_DATA_DIR", "DIR", "$XDG_DATA_HOME/qd",
            "Store all server data in this directory: databases, token, sessions";
        url: String, "url", "QD_URL", "URL", "the server running on the data directory",
            "Talk to the server at this address";
        token: String, "token", "QD_TOKEN", "TOKEN", "the owner token in the data directory",
            "Authenticate to that server with this token";
        fingerprint: String, "fingerprint", "QD_FINGERPRINT", "HEX", "trust the system's certificate authorities",
            "Trust only the certificate with this SHA-256 fingerprint, as printed by `qd up`";
        runner_socket: RunnerSocket, "runner-socket", "QD_RUNNER_SOCKET", "PATH", "$XDG_RUNTIME_DIR/qd-runner.sock",
            "Accept local commands for this machine's runner on this socket; off disables it";
        log_level: LogLevel, "log-level", "QD_LOG_LEVEL", "LEVEL", "warn",
            "Log to stderr at this level: off, error, warn, info, debug, trace";
        log_file: PathBuf, "log-file", "QD_LOG_FILE", "FILE", "none",
            "Also write the log to this file; users with the manage permission can then read its end remotely";
    }
    up {
        listen: String, "listen", "QD_LISTEN", "ADDRESS", "127.0.0.1:7433",
            "Listen on this address and port; port 0 picks a free one";
        tls: Tls, "tls", "QD_TLS", "WHEN", "auto",
            "Use TLS: on, off, or auto (when other machines can reach the address)";
        tls_cert: PathBuf, "tls-cert", "QD_TLS_CERT", "FILE", "self-signed, created at the first start",
            "Use this certificate with its chain, PEM";
        tls_key: PathBuf, "tls-key", "QD_TLS_KEY", "FILE", "the key of the self-signed certificate",
            "Use this private key of the certificate, PEM";
        allowed_hosts: HostList, "allowed-hosts", "QD_ALLOWED_HOSTS", "HOSTS", "none",
            "Accept these host names too in Host and Origin headers, separated by commas";
        runner_timeout: u64, "runner-timeout", "QD_RUNNER_TIMEOUT", "SECONDS", "30",
            "Show a runner as unhealthy after this many seconds of silence";
        runner_id: String, "runner-id", "QD_RUNNER_ID", "NAME", "local",
            "Show this machine in lists under this name";
        login_hours: u64, "login-hours", "QD_LOGIN_HOURS", "HOURS", "720",
            "Sign browsers out after this many hours without use";
        audit_days: u64, "audit-days", "QD_AUDIT_DAYS", "DAYS", "90",
            "Keep the audit log for this many days; 0 keeps it forever";
        push_contact: String, "push-contact", "QD_PUSH_CONTACT", "URL", "mailto:admin@localhost",
            "Give this contact address to browser push services: mailto:… or https://…";
        push_done_seconds: u64, "push-done-seconds", "QD_PUSH_DONE_SECONDS", "SECONDS", "30",
            "Notify about the end of a turn only if it took at least this long";
        push_loopback: OnOff, "push-loopback", "QD_PUSH_LOOPBACK", "WHETHER", "off",
            "Allow push services on this machine over plain HTTP; for tests";
        pi_server_port: u16, "pi-server-port", "QD_PI_SERVER_PORT", "PORT", "none; clients use /ws/pi",
            "Serve clients of the pi-server protocol on this port too, at the address of --listen; 0 picks a free one";
    }
    pi {
        pi_rate_per_minute: u32, "pi-rate-per-minute", "QD_PI_RATE_PER_MINUTE", "COUNT", "100",
            "Accept this many commands per minute from each client for each session; 0 for no limit";
        pi_global_rate_per_minute: u32, "pi-global-rate-per-minute", "QD_PI_GLOBAL_RATE_PER_MINUTE", "COUNT", "1000",
            "Accept this many commands per minute from each client in total; 0 for no limit";
        pi_ui_rate_per_minute: u32, "pi-ui-rate-per-minute", "QD_PI_UI_RATE_PER_MINUTE", "COUNT", "60",
            "Accept this many dialog answers per minute from each client for each session; 0 for no limit";
        pi_message_bytes_max: u64, "pi-message-bytes-max", "QD_PI_MESSAGE_BYTES_MAX", "BYTES", "10485760",
            "Refuse messages from clients that are larger than this";
        pi_connections_max: u64, "pi-connections-max", "QD_PI_CONNECTIONS_MAX", "COUNT", "1000",
            "Accept at most this many connections";
        pi_sessions_max: u64, "pi-sessions-max", "QD_PI_SESSIONS_MAX", "COUNT", "100",
            "Allow at most this many open sessions; more create_session and load_session commands are refused";
        pi_pending_max: u64, "pi-pending-max", "QD_PI_PENDING_MAX", "COUNT", "100",
            "Accept at most this many unanswered commands per connection";
        pi_in_flight_max: u64, "pi-in-flight-max", "QD_PI_IN_FLIGHT_MAX", "COUNT", "10000",
            "Accept at most this many unanswered commands of all clients";
        pi_in_flight_per_principal_max: u64, "pi-in-flight-per-principal-max", "QD_PI_IN_FLIGHT_PER_PRINCIPAL_MAX", "COUNT", "5000",
            "Accept at most this many unanswered commands per token, so that one client cannot block the others";
        pi_outcomes_max: u64, "pi-outcomes-max", "QD_PI_OUTCOMES_MAX", "COUNT", "10000",
            "Store this many outcomes; a repeated command is answered from them instead of running again";
        pi_outcome_bytes_max: u64, "pi-outcome-bytes-max", "QD_PI_OUTCOME_BYTES_MAX", "BYTES", "67108864",
            "Store outcomes of at most this size in total";
        pi_idempotency_minutes: u64, "pi-idempotency-minutes", "QD_PI_IDEMPOTENCY_MINUTES", "MINUTES", "10",
            "Remember an idempotencyKey for this long";
        pi_dependency_wait_seconds: u64, "pi-dependency-wait-seconds", "QD_PI_DEPENDENCY_WAIT_SECONDS", "SECONDS", "30",
            "Let a command wait this long for the commands in its dependsOn";
        pi_work_timeout_seconds: u64, "pi-work-timeout-seconds", "QD_PI_WORK_TIMEOUT_SECONDS", "SECONDS", "300",
            "Limit bash and compact to this time; other work has no limit";
        pi_read_timeout_seconds: u64, "pi-read-timeout-seconds", "QD_PI_READ_TIMEOUT_SECONDS", "SECONDS", "30",
            "Limit reads, aborts and dialog answers to this time";
        pi_backlog_bytes_max: u64, "pi-backlog-bytes-max", "QD_PI_BACKLOG_BYTES_MAX", "BYTES", "1048576",
            "Queue this much data for a slow client before events are skipped; the client is told about the gap";
    }
    pi_switches {
        insecure_no_auth, "insecure-no-auth", "QD_INSECURE_NO_AUTH",
            "DANGEROUS: accept clients of the pi-server protocol without a token, which gives every program on this machine a shell; only for old clients, only on loopback";
    }
    runner {
        workspace_roots: PathList, "workspace-roots", "QD_WORKSPACE_ROOTS", "DIRS", "the home directory",
            "Allow the files of these directories to be used without a session; separated by colons";
        gate_skip_roles: RoleList, "gate-skip-roles", "QD_GATE_SKIP_ROLES", "ROLES", "owner",
            "Let these roles change files and run shell commands without approval: viewer, operator, owner, separated by commas, or none";
        gate_timeout_minutes: u64, "gate-timeout-minutes", "QD_GATE_TIMEOUT_MINUTES", "MINUTES", "0",
            "Let a call wait this long for approval; 0 for no limit";
        agent_environment: VariableList, "agent-environment", "QD_AGENT_ENVIRONMENT", "NAMES", "none",
            "Give agents these environment variables too, besides those they need; separated by commas, NAME* for all that begin so";
        run_kill_seconds: u64, "run-kill-seconds", "QD_RUN_KILL_SECONDS", "SECONDS", "5",
            "Kill a program that has not exited this long after it was asked to";
        terminal_idle_minutes: u64, "terminal-idle-minutes", "QD_TERMINAL_IDLE_MINUTES", "MINUTES", "720",
            "Close a terminal without input and output after this long; 0 for never";
        max_sessions: u64, "max-sessions", "QD_MAX_SESSIONS", "COUNT", "1000",
            "Allow at most this many open sessions";
        spool_max_mib: u64, "spool-max-mib", "QD_SPOOL_MAX_MIB", "MIB", "256",
            "Use this much disk space for records while the hub is unreachable; when it is full, new prompts are refused";
        resume: Resume, "resume", "QD_RESUME", "WHEN", "on-use",
            "Restart agents after a restart of the server: on-use (with the next prompt) or at-start";
        hang_warning: u64, "hang-warning", "QD_HANG_WARNING", "SECONDS", "30",
            "Warn when a working agent is silent for this long";
        hang_restart: SecondsOrOff, "hang-restart", "QD_HANG_RESTART", "SECONDS", "off",
            "Restart an agent that hangs for this long";
        probe_interval: u64, "probe-interval", "QD_PROBE_INTERVAL", "SECONDS", "30",
            "Check this often whether an agent still responds";
        question_timeout_seconds: SecondsOrOff, "question-timeout-seconds", "QD_QUESTION_TIMEOUT_SECONDS", "SECONDS",
            "off; 60 in `qd pi-server`",
            "Let a question wait this long for an answer; then the asker gets an error";
        agent_idle_stop_minutes: u64, "agent-idle-stop-minutes", "QD_AGENT_IDLE_STOP_MINUTES", "MINUTES", "0",
            "Stop an agent that has been idle for this long; the next prompt restarts it; 0 for never";
        circuit_breakers: OnOff, "circuit-breakers", "QD_CIRCUIT_BREAKERS", "WHETHER", "on",
            "Pause prompts to a provider that keeps failing, and shell commands that keep timing out";
        breaker_failures: u64, "breaker-failures", "QD_BREAKER_FAILURES", "COUNT", "5",
            "Pause a provider after this many failures";
        breaker_window_seconds: u64, "breaker-window-seconds", "QD_BREAKER_WINDOW_SECONDS", "SECONDS", "60",
            "Count provider failures within this window";
        breaker_recovery_seconds: u64, "breaker-recovery-seconds", "QD_BREAKER_RECOVERY_SECONDS", "SECONDS", "30",
            "Pause for this long, then let a few requests through as a test";
        bash_breaker_failures: u64, "bash-breaker-failures", "QD_BASH_BREAKER_FAILURES", "COUNT", "10",
            "Pause shell commands of a session after this many timeouts";
        bash_breaker_failures_all: u64, "bash-breaker-failures-all", "QD_BASH_BREAKER_FAILURES_ALL", "COUNT", "50",
            "Pause shell commands of all sessions after this many timeouts in total";
        bash_breaker_window_seconds: u64, "bash-breaker-window-seconds", "QD_BASH_BREAKER_WINDOW_SECONDS", "SECONDS", "120",
            "Count shell timeouts within this window";
    }
}

/// What the command line says, group by group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    pub(crate) common: CommonFlags,
    pub(crate) up: UpFlags,
    pub(crate) pi: PiFlags,
    pub(crate) runner: RunnerFlags,
    pub(crate) program: Program,
}

/// Which program the settings are for: two of them have other defaults in `qd pi-server`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Program {
    #[default]
    Qd,
    /// Made to run beside `qd up`, and for clients of the original, whose dialogs end after a minute.
    PiServer,
}

/// The settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    /// Nobody named it.
    pub(crate) is_data_dir_default: bool,
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) fingerprint: Option<String>,
    /// Sockets of a runner on this machine, the wanted one first; empty when there shall be none.
    pub(crate) runner_sockets: Vec<PathBuf>,
    pub(crate) log_level: LogLevel,
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) login_life: Duration,
    /// How long it is kept who did what; `None` for ever.
    pub(crate) audit_life: Option<Duration>,
    /// Pushes to browsers; the key comes from the data directory.
    pub(crate) push: PushConfig,
    /// What services of the machine may do.
    pub(crate) services: ServiceConfig,
    /// Variables that agents get besides those they need.
    pub(crate) agent_environment: Vec<String>,
    /// How programs in terminals are ended.
    pub(crate) runs: RunsConfig,
    pub(crate) listen: String,
    pub(crate) tls: Tls,
    /// Certificate and key.
    pub(crate) tls_files: Option<(PathBuf, PathBuf)>,
    pub(crate) allowed_hosts: HostList,
    pub(crate) runner_timeout: Duration,
    pub(crate) runner_id: String,
    /// The kinds of agents, each with what is set for it.
    pub(crate) harnesses: Harnesses,
    pub(crate) max_sessions: u64,
    pub(crate) spool_bytes_max: u64,
    pub(crate) resume: Resume,
    pub(crate) hang_warning: Duration,
    pub(crate) hang_restart: Option<Duration>,
    pub(crate) probe_interval: Duration,
    pub(crate) question_timeout: Option<Duration>,
    pub(crate) agent_idle_stop: Option<Duration>,
    pub(crate) breakers: BreakerConfig,
    /// Of `qd up`; 0 for any free one.
    pub(crate) pi_server_port: Option<u16>,
    /// The pi-server protocol, its limits.
    pub(crate) pi: PiServerConfig,
    /// Talk to the runner of this machine, not to a hub.
    pub(crate) local: bool,
}

impl Settings {
    /// The same with another data directory, and what lies in it by default.
    pub(crate) fn in_data_dir(&self, data_dir: PathBuf) -> Settings {
        let moved = |socket: &PathBuf| match socket.strip_prefix(&self.data_dir) {
            Ok(rest) => data_dir.join(rest),
            Err(_) => socket.clone(),
        };
        let runner_sockets = self.runner_sockets.iter().map(moved).collect();
        Settings { data_dir, runner_sockets, ..self.clone() }
    }
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;
