//! Hub and runner in one process, joined by the in-memory link.
//!
//! A stop goes from the outside in: clients of the pi-server face are told first and their commands can end, then the
//! runner stops its sessions while the hub still takes their records, and the hub goes last.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use qd_hub::{
    HubConfig, HubError, HubTls, LocalRunner, LoginCodes, OwnerToken, PiConnector, PiServerPorts, PushKey,
    serve_with,
};
use qd_link::memory;
use qd_runner::{Runner, Uplink};
use qd_store::{HubStore, RunnerStore, StoreOptions};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Result};
use crate::runner::config::{RunnerRole, runner_config};
use crate::server::runner_socket;
use crate::settings::{Environment, Settings};

/// All of a stop takes less than ten seconds. What clients of the pi-server protocol have under way gets the face's own
/// `shutdown_timeout`, which is four of them at most; then the runner stops its sessions, and both together end by this.
const WORK_AND_RUNNER_GRACE: Duration = Duration::from_millis(7500);
/// Then the clients get one second to take their last frames, and the hub one to commit the last records.
const CLIENTS_GRACE: Duration = Duration::from_secs(1);

/// Where the pair listens, and with which certificate.
pub(crate) struct ServerSockets {
    pub(crate) listener: TcpListener,
    /// For clients of the pi-server protocol alone.
    pub(crate) pi_listener: Option<TcpListener>,
    pub(crate) tls: Option<HubTls>,
    pub(crate) local_socket: Option<PathBuf>,
    /// Where a session works that names no directory; the home directory unless said otherwise.
    pub(crate) default_cwd: Option<PathBuf>,
}

/// The running pair.
pub(crate) struct HubAndRunner {
    hub: JoinHandle<Result<(), HubError>>,
    runner: Option<Runner>,
    hub_store: HubStore,
    /// The process's own way to the pi-server face.
    pi_connector: PiConnector,
    hub_stop: CancellationToken,
    runner_stop: CancellationToken,
    stop: CancellationToken,
    login_codes: LoginCodes,
}

impl HubAndRunner {
    /// Opens the stores, starts the hub, and the runner behind it; returns when clients can be served.
    pub(crate) async fn start(
        settings: &Settings,
        environment: &Environment,
        token: &str,
        ServerSockets { listener, pi_listener, tls, local_socket, default_cwd }: ServerSockets,
        stop: &CancellationToken,
    ) -> Result<HubAndRunner> {
        let open = |error: qd_store::StoreError| {
            CliError::failed(error.to_string()).hint("`qd doctor` checks the data directory and the disk")
        };
        let hub_store =
            HubStore::open(&settings.data_dir.join("hub.db"), StoreOptions::default()).map_err(open)?;
        let runner_store =
            RunnerStore::open(&settings.data_dir.join("runner.db"), StoreOptions::default()).map_err(open)?;
        let (hub_end, runner_end) = memory::pair();
        let login_codes = LoginCodes::default();
        let hub_stop = CancellationToken::new();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut config = hub_config(settings, token, &login_codes, listener.local_addr()?);
        config.tls = tls;
        config.faces.push.key = Some(push_key(settings)?);
        let local = LocalRunner { runner_id: settings.runner_id.clone(), link: hub_end };
        let (pi_connector, connector) = PiConnector::new();
        let pi_listener = pi_listener.map(tokio::net::TcpListener::from_std).transpose()?;
        let ports = PiServerPorts { listener: pi_listener, connector: Some(connector) };
        let serving = serve_with(config, listener, hub_store.clone(), Some(local), hub_stop.clone(), ports);
        let hub = tokio::spawn(serving);
        let role =
            RunnerRole { runner_id: settings.runner_id.clone(), local_socket, default_cwd, keys: None };
        let config = runner_config(settings, environment, role)?;
        let runner_stop = CancellationToken::new();
        let runner = Runner::start(config, runner_store, Uplink::Memory(runner_end), runner_stop.clone())
            .await
            .map_err(|error| CliError::failed(error.to_string()))?;
        let stop = stop.clone();
        let runner = Some(runner);
        Ok(HubAndRunner { hub, runner, hub_store, pi_connector, hub_stop, runner_stop, stop, login_codes })
    }

    /// One more client of the pi-server protocol, which is the owner: its stream speaks WebSocket frames, without a
    /// handshake.
    pub(crate) async fn join_face(&self, stream: DuplexStream) -> Result<()> {
        let joined = self.pi_connector.serve(Box::new(stream), None).await;
        joined.map_err(|error| CliError::failed(error.to_string()))
    }

    /// The address a browser opens once to be logged in.
    pub(crate) fn login_url(&self, url: &str) -> Result<String> {
        let code = self
            .login_codes
            .issue()
            .ok_or_else(|| CliError::failed("the system gave no random bytes for a login code"))?;
        Ok(format!("{url}/login?code={code}"))
    }

    /// Waits for the end: early when the hub fails, else after the stop, the runner's last records stored.
    pub(crate) async fn finished(&mut self) -> Result<()> {
        let ended = tokio::select! {
            ended = &mut self.hub => Some(ended),
            () = self.stop.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                // Clients of the pi-server protocol hear of it first, and what they have under way can still end. A hub
                // that is gone has told them already.
                let runner_ends = Instant::now() + WORK_AND_RUNNER_GRACE;
                let _gone = self.pi_connector.shut_down().await;
                self.runner_stop.cancel();
                if let Some(runner) = self.runner.take()
                    && timeout_at(runner_ends, runner.join()).await.is_err()
                {
                    // The guard of the agents outlives us and ends those that are left.
                    tracing::warn!("some agents did not end in time");
                }
                self.hub_stop.cancel();
                (&mut self.hub).await
            }
        };
        self.hub_store.close().await;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CliError::failed(error.to_string())),
            Err(error) => Err(CliError::failed(format!("the hub failed: {error}"))),
        }
    }
}

/// The socket is a convenience here: without it the hub still answers.
pub(crate) fn local_socket(settings: &Settings) -> Option<PathBuf> {
    match runner_socket::choose_socket(settings) {
        Ok(place) => {
            let place = place?;
            if let Some(notice) = &place.notice {
                tracing::warn!("{notice}");
            }
            Some(place.path)
        }
        Err(error) => {
            let hint = error.hint.unwrap_or_default();
            tracing::warn!("{}; local commands need the hub ({hint})", error.message);
            None
        }
    }
}

/// What pushes are signed with; browsers know the server by it, so it is made once.
fn push_key(settings: &Settings) -> Result<PushKey> {
    PushKey::open(&settings.data_dir.join("push-key.pem"))
        .map_err(|error| CliError::failed(error.to_string()))
}

fn hub_config(settings: &Settings, token: &str, login_codes: &LoginCodes, listen: SocketAddr) -> HubConfig {
    let mut config = HubConfig::new(OwnerToken::new(token), login_codes.clone());
    config.server_version = env!("CARGO_PKG_VERSION").to_owned();
    config.allowed_hosts = super::tls::names(settings, listen);
    config.limits.shutdown_grace = CLIENTS_GRACE;
    config.limits.runner_silence_max = settings.runner_timeout;
    config.faces.pi_server = settings.pi.clone();
    config.login_life = settings.login_life;
    config.audit_life = settings.audit_life;
    config.log_path = settings.log_file.clone();
    config.faces.push = settings.push.clone();
    config.app = crate::server::app::FILES;
    config
}
