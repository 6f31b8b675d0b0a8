//! The runner's own task: routing of commands to sessions, shutdown. It never waits for a link.
//!
//! Commands go on to a session's mailbox or to a task of their own, so a slow session or call delays nobody else's.

pub(crate) mod process_table;
mod queries;
mod restore;
mod routing;
mod stored_sessions;

pub(crate) use routing::{respond, respond_with};

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_core::breaker::Breakers;
use qd_link::mutex::Mutex;
use qd_store::{OutcomeLimits, RunnerStore, StoreError};
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::hub_delivery::HubDelivery;
use crate::local_socket::{LocalError, LocalServer};
use crate::process;
use crate::session::{InputHashKey, RunnerContext, SessionEnded, SessionInput};
use crate::submissions::Submissions;
use crate::uplink::{SharedUplinkStatus, Uplink, UplinkStatus, UplinkTask};

/// How long sessions may take to stop; below the ten seconds a server has in all.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// Old outcomes are removed this often.
const PRUNE: Duration = Duration::from_secs(60 * 60);

/// Commands that may wait for the runner's task; those who read them wait when it is full.
const COMMANDS_MAX: usize = 256;

/// Outcomes kept on disk.
const OUTCOME_ROWS_MAX: u64 = 100_000;
const OUTCOME_BYTES_MAX: u64 = 64 * 1024 * 1024;
const OUTCOME_AGE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Why a runner could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error("the runner's store: {0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    NoWelcome(String),
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// A command as it came by a link.
pub(crate) struct LinkCommand {
    pub(crate) origin: u64,
    /// From a client at the runner's own socket, who is the runner's owner.
    pub(crate) is_local: bool,
    /// That client is a program of this session, and not the owner.
    pub(crate) within: Option<Arc<str>>,
    pub(crate) line: Bytes,
}

/// A running runner.
pub struct Runner {
    task: JoinHandle<()>,
    status: SharedUplinkStatus,
}

impl Runner {
    /// Takes up the sessions of last time and serves until `shutdown`, with a hub or without. Returns when the
    /// sessions are there; with a link in memory when the hub has said welcome.
    pub async fn start(
        config: RunnerConfig,
        store: RunnerStore,
        uplink: Uplink,
        shutdown: CancellationToken,
    ) -> Result<Runner, RunnerError> {
        process::become_reaper();
        if config.sweep_abandoned {
            tokio::task::spawn_blocking(process::sweep_abandoned);
        }
        store.mark_in_flight_indeterminate().await?;
        store.prune_outcomes(outcome_limits()).await?;
        let submissions = Submissions::restore(store.load_outcomes().await?);
        let (ended_sender, ended) = mpsc::channel(64);
        let (commands_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let hub_delivery = HubDelivery::new(&config.runner_id);
        let breakers = Mutex::new(Breakers::new(config.breakers));
        let input_key = InputHashKey::new(&config.data_dir);
        let shared = Arc::new(RunnerContext {
            config,
            store,
            hub_delivery,
            process_table: self::process_table::ProcessTable::default(),
            submissions,
            breakers,
            agents: Arc::default(),
            resuming: Arc::new(Semaphore::new(resuming_max())),
            services: crate::services::Services::default(),
            input_key,
            ended: ended_sender,
        });
        let local = match &shared.config.local_socket {
            Some(path) => Some(LocalServer::bind(path)?),
            None => None,
        };
        restore::restore_sessions(&shared).await?;
        let status = SharedUplinkStatus::default();
        let stop = CancellationToken::new();
        let local = local.map(|server| server.start(&shared, &commands_sender, &stop));
        let mut task =
            RunnerTask { shared, commands, ended, local, uplink: None, over: CancellationToken::new(), stop };
        match task.start_uplink(uplink, commands_sender, &status).await {
            Ok(()) => Ok(Runner { task: tokio::spawn(task.run(shutdown)), status }),
            Err(error) => {
                task.stop().await;
                Err(error)
            }
        }
    }

    /// How the link to the hub stands.
    pub fn status(&self) -> UplinkStatus {
        self.status.get()
    }

    /// Waits until the runner has stopped its sessions and closed its store.
    pub async fn join(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the runner's task failed");
        }
    }
}

impl RunnerContext {
    /// Refuses new work while the hub has not taken what there is already.
    pub(crate) fn check_spool_room(&self) -> Result<(), CodedError> {
        let bytes_max = self.config.spool_bytes_max;
        if self.store.spool_bytes() < bytes_max {
            return Ok(());
        }
        Err(ErrorCode::StorageFull.with(format!(
            "The runner holds {} MiB of records the hub has not taken; new prompts are refused until it does. \
             Check the connection to the hub.",
            bytes_max >> 20
        )))
    }
}

struct RunnerTask {
    shared: Arc<RunnerContext>,
    commands: mpsc::Receiver<LinkCommand>,
    ended: mpsc::Receiver<SessionEnded>,
    local: Option<JoinHandle<()>>,
    uplink: Option<JoinHandle<()>>,
    /// The one link of `qd up` has ended.
    over: CancellationToken,
    /// Ends the links, after the sessions.
    stop: CancellationToken,
}

impl RunnerTask {
    async fn start_uplink(
        &mut self,
        uplink: Uplink,
        commands: mpsc::Sender<LinkCommand>,
        status: &SharedUplinkStatus,
    ) -> Result<(), RunnerError> {
        let task = UplinkTask {
            shared: Arc::clone(&self.shared),
            commands,
            status: status.clone(),
            started_at: now_ms(),
            stop: self.stop.clone(),
        };
        self.uplink = match uplink {
            Uplink::Memory(link) => {
                let welcomed = task.welcome(link).await?;
                Some(tokio::spawn(task.run_once(welcomed, self.over.clone())))
            }
            Uplink::Dial(connect) => Some(tokio::spawn(task.run(connect))),
            Uplink::None => None,
        };
        Ok(())
    }

    async fn run(mut self, shutdown: CancellationToken) {
        let over = self.over.clone();
        let mut prune = tokio::time::interval(PRUNE);
        // The first tick comes at once, and the start has pruned already.
        prune.tick().await;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = over.cancelled() => break,
                Some(command) = self.commands.recv() => self.take_command(&command),
                Some(ended) = self.ended.recv() => self.session_ended(ended),
                _ = prune.tick() => self.prune().await,
            }
        }
        self.stop().await;
    }

    async fn prune(&self) {
        self.shared.services.expire_uploads(now_ms());
        if let Err(error) = self.shared.store.prune_outcomes(outcome_limits()).await {
            tracing::warn!(%error, "old outcomes could not be removed");
        }
    }

    /// Stops all sessions at once, each in its own time, and closes the store.
    async fn stop(mut self) {
        // Agents that wait for their turn to start need not any more.
        self.shared.resuming.close();
        let sessions = std::mem::take(&mut *self.shared.hub_delivery.mailboxes.lock());
        let mut waiting = Vec::new();
        for (_, sender) in sessions {
            let (done, stopped) = oneshot::channel();
            // A session whose mailbox is full is busy, not gone; it takes this one when it can.
            waiting.push(tokio::spawn(async move {
                if sender.send(SessionInput::Shutdown(done)).await.is_ok() {
                    // An error means that the session ended, which is what we want.
                    let _ = stopped.await;
                }
            }));
        }
        let all = async {
            for session in waiting {
                if let Err(error) = session.await {
                    tracing::error!(%error, "a session did not stop cleanly");
                }
            }
        };
        if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!("some sessions did not stop in time; their agents are killed");
        }
        self.stop.cancel();
        for link in self.uplink.take().into_iter().chain(self.local.take()) {
            if let Err(error) = link.await {
                tracing::error!(%error, "a link did not end cleanly");
            }
        }
        self.shared.store.close().await;
    }
}

/// Agents of last time that come up at once: starting one keeps about a core busy.
fn resuming_max() -> usize {
    2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn outcome_limits() -> OutcomeLimits {
    OutcomeLimits {
        rows_max: OUTCOME_ROWS_MAX,
        bytes_max: OUTCOME_BYTES_MAX,
        created_before: now_ms() - OUTCOME_AGE_MS,
    }
}
