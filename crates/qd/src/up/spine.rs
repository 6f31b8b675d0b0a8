//! Hub and runner in one process, joined by the in-memory link.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use qd_hub::{HubConfig, HubError, LoginCodes, OwnerToken};
use qd_link::memory;
use qd_runner::process::{GuardCommand, ProcessConfig};
use qd_runner::{Runner, RunnerConfig};
use qd_store::{HubStore, RunnerStore, StoreOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::settings::{Environment, Settings};

/// The runner stops its sessions first, within eight seconds of its own; so the clients get one second.
const CLIENTS_GRACE: Duration = Duration::from_secs(1);

/// The running pair.
pub(super) struct Spine {
    hub: JoinHandle<Result<(), HubError>>,
    runner: Option<Runner>,
    hub_store: HubStore,
    hub_stop: CancellationToken,
    stop: CancellationToken,
    login_codes: LoginCodes,
}

impl Spine {
    /// Opens the stores, starts the hub, and the runner behind it; returns when clients can be served.
    pub(super) async fn start(
        settings: &Settings,
        environment: &Environment,
        token: &str,
        listener: TcpListener,
        stop: &CancellationToken,
    ) -> Result<Spine, CliError> {
        let open = |error: qd_store::StoreError| {
            CliError::failed(error.to_string()).hint("`qd doctor` looks at the data directory and the disk")
        };
        let hub_store =
            HubStore::open(&settings.data_dir.join("hub.db"), StoreOptions::default()).map_err(open)?;
        let runner_store =
            RunnerStore::open(&settings.data_dir.join("runner.db"), StoreOptions::default()).map_err(open)?;
        let (hub_end, runner_end) = memory::pair();
        let login_codes = LoginCodes::default();
        let hub_stop = CancellationToken::new();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut config = hub_config(settings, token, &login_codes);
        // A bare address cannot be a name made to point here, so the one we listen on is safe to allow.
        config.allowed_hosts.push(listener.local_addr()?.ip().to_string());
        let hub = tokio::spawn(qd_hub::serve(config, listener, hub_store.clone(), hub_end, hub_stop.clone()));
        let config = runner_config(settings, environment)?;
        let runner = Runner::start(config, runner_store, runner_end, stop.clone())
            .await
            .map_err(|error| CliError::failed(error.to_string()))?;
        Ok(Spine { hub, runner: Some(runner), hub_store, hub_stop, stop: stop.clone(), login_codes })
    }

    /// The address a browser opens once to be logged in.
    pub(super) fn login_url(&self, url: &str) -> Result<String, CliError> {
        let code =
            self.login_codes.issue().ok_or_else(|| CliError::failed("no randomness for a login code"))?;
        Ok(format!("{url}/login?code={code}"))
    }

    /// Waits for the end: early when the hub fails, else after the stop, the runner's last records stored.
    pub(super) async fn finished(&mut self) -> Result<(), CliError> {
        let ended = tokio::select! {
            ended = &mut self.hub => Some(ended),
            () = self.stop.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                if let Some(runner) = self.runner.take() {
                    runner.join().await;
                }
                self.hub_stop.cancel();
                (&mut self.hub).await
            }
        };
        self.hub_store.close().await;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CliError::failed(error.to_string())),
            Err(error) => Err(CliError::failed(format!("the hub broke: {error}"))),
        }
    }
}

fn hub_config(settings: &Settings, token: &str, login_codes: &LoginCodes) -> HubConfig {
    let mut config = HubConfig::new(OwnerToken::new(token), login_codes.clone());
    config.server_version = env!("CARGO_PKG_VERSION").to_owned();
    config.allowed_hosts = settings.allowed_hosts.names().to_vec();
    config.limits.shutdown_grace = CLIENTS_GRACE;
    config
}

fn runner_config(settings: &Settings, environment: &Environment) -> Result<RunnerConfig, CliError> {
    let home = environment.home().unwrap_or_else(|| PathBuf::from("/"));
    let pi_user_dir =
        environment.get("PI_CODING_AGENT_DIR").map_or_else(|| home.join(".pi/agent"), PathBuf::from);
    Ok(RunnerConfig {
        runner_id: settings.runner_id.clone(),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: settings.data_dir.clone(),
        pi_command: settings.pi_command.as_slice().to_vec(),
        pi_user_dir,
        default_cwd: Some(home),
        max_sessions: usize::try_from(settings.max_sessions).unwrap_or(usize::MAX),
        guard: GuardCommand { program: std::env::current_exe()?, args: vec!["guard".into()] },
        process: ProcessConfig::default(),
    })
}
