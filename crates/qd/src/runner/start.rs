//! `qd runner start`: the runner of this machine, for a hub elsewhere.
//!
//! The runner keeps running whatever becomes of its link: a hub that is unreachable, restarted or that refuses it
//! only changes what is reported here, once for each change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qd_link::host::HostDialer;
use qd_link::runner::{HubConnector, RunnerDialer};
use qd_runner::{RunServer, Runner, Uplink, UplinkStatus};
use qd_store::{RunnerStore, StoreOptions};
use qd_wire::ErrorCode;
use tokio_util::sync::CancellationToken;

use super::config::{RunnerRole, runner_config};
use super::join::refuse_hub_dir;
use super::keys::KeyFile;
use super::link_state::{LinkState, brief};
use super::membership::Membership;
use crate::client::connection;
use crate::client::rest::server_url;
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::server::data_dir::DataDir;
use crate::server::runner_socket::{self, ChosenSocket};
use crate::server::stop_signals::StopSignals;
use crate::server::up::serve_on_threads;
use crate::settings::{Environment, Settings};

/// How often the connection is looked at, to say what changed.
const STATUS_INTERVAL: Duration = Duration::from_millis(300);

/// Serves until SIGTERM or SIGINT.
pub(super) fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    membership: Membership,
    host_token: Option<String>,
    ready_json: bool,
) -> Result<()> {
    refuse_hub_dir(&settings.data_dir)?;
    let _taken = DataDir::take(&settings.data_dir)?;
    let place = runner_socket::choose_socket(settings)?;
    if let Some(notice) = place.as_ref().and_then(|place| place.notice.as_ref()) {
        output.note(&format!("note: {notice}\n"));
    }
    if let Some(attempt) = &membership.attempt {
        output.note(&harmless(&format!(
            "note: joining {new} was started but never confirmed, so this runner still works for {}. To stay, do nothing; to \
             change over, repeat: qd runner join {new} --force --name {}\n",
            membership.url,
            attempt.runner_id,
            new = attempt.url,
        )));
    }
    let socket = place.map(|ChosenSocket { path, .. }| path);
    let ready_json = ready_json || output.json;
    let start = RunnerProcess { settings, environment, output, membership, host_token, socket, ready_json };
    serve_on_threads(start.serve())
}

struct RunnerProcess<'a> {
    settings: &'a Settings,
    environment: &'a Environment,
    output: &'a Output,
    membership: Membership,
    /// For a server of somebody else, which is reached as a host of the run protocol.
    host_token: Option<String>,
    socket: Option<PathBuf>,
    ready_json: bool,
}

impl RunnerProcess<'_> {
    async fn serve(&self) -> Result<()> {
        // First of all: a signal that comes while the runner starts must stop it cleanly too.
        let mut signals = StopSignals::listen()?;
        let stop = CancellationToken::new();
        let runner = self.start(&stop).await?;
        let announced = self.announce();
        if announced.is_ok() {
            self.watch(&mut signals, &runner).await;
        }
        stop.cancel();
        // Also when nobody could be told that the runner is ready: its agents are running and must be ended.
        signals.stop_in_time(runner.join()).await;
        announced
    }

    /// Says how the connection goes, until a signal comes.
    async fn watch(&self, signals: &mut StopSignals, runner: &Runner) {
        let Membership { url, .. } = &self.membership;
        let rejoin = self.membership.rejoin_command();
        let mut changes = LinkChanges { url: url.clone(), rejoin, known: None };
        let mut ticks = tokio::time::interval(STATUS_INTERVAL);
        loop {
            tokio::select! {
                () = signals.recv() => return,
                _ = ticks.tick() => self.report_status(&mut changes, &runner.status()),
            }
        }
    }

    /// Says what has changed, here and to `qd runner status`.
    fn report_status(&self, changes: &mut LinkChanges, status: &UplinkStatus) {
        // Written before `line_for`, which replaces what is known.
        if changes.known.as_ref() != Some(status) {
            LinkState::of(status).write(&self.settings.data_dir);
        }
        if let Some(line) = changes.line_for(status).filter(|_| !self.ready_json) {
            self.output.note(&line);
        }
    }

    async fn start(&self, stop: &CancellationToken) -> Result<Runner> {
        let store = RunnerStore::open(&self.settings.data_dir.join("runner.db"), StoreOptions::default());
        let store = store.map_err(|error| {
            CliError::failed(error.to_string()).hint("`qd doctor` checks the data directory and the disk")
        })?;
        let membership = &self.membership;
        let url = server_url(&membership.url)?;
        let (keys, connect): (_, Arc<dyn HubConnector>) = match &self.host_token {
            Some(token) => {
                let mut dialer = HostDialer::new(url, &membership.runner_id, token);
                dialer.allow_plain = membership.allow_plain;
                (None, Arc::new(RunServer::new(dialer, store.clone())))
            }
            None => {
                let keys = KeyFile::new(self.settings.data_dir.clone(), membership.clone());
                let mut dialer = RunnerDialer::new(url, &membership.runner_id, keys.keys());
                dialer.trust = connection::trust(membership.fingerprint.as_deref())?;
                dialer.allow_plain = membership.allow_plain;
                (Some(keys), Arc::new(dialer))
            }
        };
        let role = RunnerRole {
            runner_id: membership.runner_id.clone(),
            local_socket: self.socket.clone(),
            default_cwd: None,
            keys: keys.map(|keys| keys as Arc<dyn qd_runner::KeyKeeper>),
        };
        let config = runner_config(self.settings, self.environment, role)?;
        Runner::start(config, store, Uplink::Dial(connect), stop.clone())
            .await
            .map_err(|error| CliError::failed(error.to_string()))
    }

    fn announce(&self) -> Result<()> {
        let Membership { url, runner_id, .. } = &self.membership;
        let socket = self.socket.as_ref().map(|path| path.display().to_string());
        if self.ready_json {
            return self.output.json_line(&serde_json::json!({
                "runner_id": runner_id, "socket": socket, "pid": std::process::id(), "url": url,
            }));
        }
        self.output.out(&harmless(&format!(
            "The runner '{runner_id}' works for {url}.\n\n  \
             data        {}\n  \
             socket      {}\n  \
             look        qd runner status, qd ls\n  \
             stop        Ctrl-C\n\n",
            self.settings.data_dir.display(),
            socket.as_deref().unwrap_or("none (runner_socket is off)"),
        )))
    }
}

/// Says each change of the connection once.
struct LinkChanges {
    url: String,
    /// What to type when the hub has revoked this runner.
    rejoin: String,
    known: Option<UplinkStatus>,
}

impl LinkChanges {
    fn line_for(&mut self, status: &UplinkStatus) -> Option<String> {
        let before = self.known.replace(status.clone());
        if before.as_ref() == Some(status) {
            return None;
        }
        let was_connected = before.is_some_and(|before| before.connected_since.is_some());
        let url = &self.url;
        let line = match (status.connected_since, status.last_failure.as_deref().map(brief)) {
            (None, Some(reason)) if status.failure_code == Some(ErrorCode::RunnerRevoked) => format!(
                "{url} has revoked this runner ({reason}); its sessions keep running here. To reconnect, get a code with \
                 `qd runner invite` there and type: {}",
                self.rejoin
            ),
            (Some(_), _) => format!("connected to {url}"),
            (None, Some(reason)) if was_connected => {
                format!("connection to {url} lost ({reason}); sessions keep running; retrying")
            }
            (None, Some(reason)) => {
                format!("cannot connect to {url}: {reason}; sessions keep running; retrying")
            }
            (None, None) => return None,
        };
        Some(harmless(&line) + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_the_connection_is_said_once() {
        let mut changes =
            LinkChanges { url: "https://deck".into(), rejoin: "qd runner join".into(), known: None };
        let up = |since| UplinkStatus { connected_since: Some(since), ..UplinkStatus::default() };
        let down =
            |reason: &str| UplinkStatus { last_failure: Some(reason.into()), ..UplinkStatus::default() };
        assert_eq!(changes.line_for(&UplinkStatus::default()), None);
        let first = changes.line_for(&down("no route")).unwrap();
        assert!(first.starts_with("cannot connect to https://deck: no route;"), "{first}");
        assert_eq!(changes.line_for(&down("no route")), None);
        assert!(changes.line_for(&up(1)).unwrap().starts_with("connected to https://deck"));
        assert_eq!(changes.line_for(&up(1)), None);
        let lost = changes.line_for(&down("cut\u{1b}")).unwrap();
        assert!(lost.contains("lost (cut\u{fffd}); sessions keep running"), "{lost}");
        let revoked =
            UplinkStatus { failure_code: Some(ErrorCode::RunnerRevoked), ..down("no longer wanted") };
        assert!(changes.line_for(&revoked).unwrap().contains("type: qd runner join"));
        assert!(changes.line_for(&up(2)).is_some(), "a short loss is seen by the new beginning");
    }
}
