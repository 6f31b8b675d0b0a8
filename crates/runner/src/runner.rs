//! The runner's own task: hello, routing of commands to sessions, acks, shutdown.

mod start;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_core::ids::{base36, valid_session_id};
use qd_core::ledger::{Submission, Verdict};
use qd_core::outbox::{EventFront, Outbox, Response};
use qd_link::memory::{LinkEnd, LinkReceiver};
use qd_store::{OutcomeLimits, RunnerStore, StoreError};
use qd_wire::Command;
use qd_wire::command_table::CommandHead;
use qd_wire::link::{LinkLine, RunnerHeartbeat};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::process;
use crate::session::{Ended, Incoming, SessionInput, Shared, spawn_new};
use crate::submissions::{Owner, Release, Submissions};
use start::{hello, resend, restore_sessions};

/// How long sessions may take to stop; below the ten seconds a server has in all.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

const HEARTBEAT: Duration = Duration::from_secs(10);

/// Old outcomes are removed every hour.
const BEATS_PER_PRUNE: u64 = 360;

/// The hub asks whether a command of its own may run.
pub(crate) const BARRIER: &str = "_barrier";

/// How a command begins as our own hub writes it.
const COMMAND_FRONT: &str = "{\"type\":\"command\",";

/// Outcomes kept on disk.
const OUTCOME_ROWS_MAX: u64 = 100_000;
const OUTCOME_BYTES_MAX: u64 = 64 * 1024 * 1024;
const OUTCOME_AGE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Why a runner could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error("the runner's store: {0}")]
    Store(#[from] StoreError),
    #[error("the hub did not welcome the runner: {0}")]
    NoWelcome(&'static str),
}

/// A running runner.
pub struct Runner {
    task: JoinHandle<()>,
}

impl Runner {
    /// Takes up the sessions of last time, says hello, and serves until `shutdown`.
    pub async fn start(
        config: RunnerConfig,
        store: RunnerStore,
        link: LinkEnd,
        shutdown: CancellationToken,
    ) -> Result<Runner, RunnerError> {
        tokio::task::spawn_blocking(process::sweep_abandoned);
        store.mark_in_flight_indeterminate().await?;
        store.prune_outcomes(outcome_limits()).await?;
        let submissions = Submissions::restore(store.load_outcomes().await?);
        let (ended_sender, ended) = mpsc::channel(64);
        let LinkEnd { sender, mut receiver } = link;
        let shared = Arc::new(Shared {
            config,
            store,
            link: sender,
            submissions,
            agents: Arc::default(),
            ended: ended_sender,
        });
        let welcome = hello(&shared, &mut receiver).await?;
        resend(&shared, &welcome).await?;
        let sessions = restore_sessions(&shared, &welcome).await?;
        let task = Task { shared, sessions, ended, started_at: now_ms(), beats: 0 };
        Ok(Runner { task: tokio::spawn(task.run(receiver, shutdown)) })
    }

    /// Waits until the runner has stopped its sessions and closed its store.
    pub async fn join(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the runner's task failed");
        }
    }
}

struct Task {
    shared: Arc<Shared>,
    sessions: HashMap<String, mpsc::Sender<SessionInput>>,
    ended: mpsc::Receiver<Ended>,
    started_at: i64,
    beats: u64,
}

impl Task {
    async fn run(mut self, mut link: LinkReceiver, shutdown: CancellationToken) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                block = link.recv() => match block {
                    Some(block) => self.take_block(&block).await,
                    None => break,
                },
                Some(ended) = self.ended.recv() => self.session_ended(ended).await,
                _ = heartbeat.tick() => self.heartbeat().await,
            }
        }
        self.stop().await;
    }

    async fn session_ended(&mut self, ended: Ended) {
        let Ended { session_id, creations } = ended;
        // A new session may have taken the name already.
        if self.sessions.get(&session_id).is_some_and(mpsc::Sender::is_closed) {
            self.sessions.remove(&session_id);
        }
        for incoming in creations {
            self.create(Some(session_id.clone()), incoming).await;
        }
    }

    async fn take_block(&mut self, block: &Bytes) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            let line = block.slice(start..end);
            start = end + 1;
            self.take_line(line).await;
        }
    }

    async fn take_line(&mut self, line: Bytes) {
        let Ok(text) = std::str::from_utf8(&line) else { return };
        // What the hub sends most, recognised without reading the line twice.
        if text.starts_with(COMMAND_FRONT) {
            return self.take_command(text, &line).await;
        }
        #[derive(serde::Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: std::borrow::Cow<'a, str>,
            session_id: Option<std::borrow::Cow<'a, str>>,
            seq: Option<u64>,
        }
        let Ok(kind) = serde_json::from_str::<Kind<'_>>(text) else {
            tracing::warn!("the hub sent a line that is not of the link");
            return;
        };
        match (kind.kind.as_ref(), kind.session_id, kind.seq) {
            ("ack", Some(session_id), Some(seq)) => self.shared.store.ack(&session_id, seq),
            ("command", _, _) => self.take_command(text, &line).await,
            _ => {}
        }
    }

    async fn take_command(&mut self, text: &str, line: &Bytes) {
        match serde_json::from_str::<CommandHead<'_>>(text) {
            Ok(head) => {
                let incoming = incoming(&self.shared, line, &head);
                let session_id = head.session_id.map(std::borrow::Cow::into_owned);
                self.route(session_id, incoming).await;
            }
            Err(error) => self.refuse_unreadable(text, line, &error.to_string()).await,
        }
    }

    /// Every command gets an answer, also one whose envelope has wrong types.
    async fn refuse_unreadable(&self, text: &str, line: &Bytes, error: &str) {
        #[derive(serde::Deserialize)]
        struct Address<'a> {
            #[serde(borrow)]
            cmd: Option<std::borrow::Cow<'a, str>>,
            #[serde(borrow)]
            id: Option<&'a serde_json::value::RawValue>,
            #[serde(borrow)]
            session_id: Option<std::borrow::Cow<'a, str>>,
        }
        let Ok(Address { cmd, id, session_id }) = serde_json::from_str::<Address<'_>>(text) else {
            tracing::warn!(error, "the hub sent a command that cannot be answered");
            return;
        };
        let head = CommandHead { cmd, id, ..CommandHead::default() };
        let incoming = incoming(&self.shared, line, &head);
        let error = format!("Invalid '{}': {error}", incoming.cmd);
        self.respond(session_id.as_deref().unwrap_or_default(), &incoming, Err(&error)).await;
    }

    async fn route(&mut self, session_id: Option<String>, incoming: Incoming) {
        if incoming.cmd == BARRIER && incoming.if_session_version.is_none() {
            return self.barrier(incoming).await;
        }
        if incoming.cmd == "session.create" {
            return self.create(session_id, incoming).await;
        }
        let session_id = session_id.unwrap_or_default();
        match self.sessions.get(&session_id) {
            Some(sender) => {
                let sender = sender.clone();
                self.forward(&sender, &session_id, incoming).await;
            }
            None => {
                let mut error = format!("Session '{session_id}' not found");
                if let Some(version) = incoming.if_session_version {
                    error.push_str(&format!(" for if_session_version={version}"));
                }
                self.respond(&session_id, &incoming, Err(&error)).await;
            }
        }
    }

    async fn create(&mut self, session_id: Option<String>, incoming: Incoming) {
        let session_id = match session_id.filter(|id| !id.is_empty() && id != qd_wire::SYSTEM_SESSION) {
            Some(id) => id,
            None => mint_session_id(&incoming),
        };
        if !valid_session_id(&session_id) {
            let error =
                "session_id: Use 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit";
            return self.respond(&session_id, &incoming, Err(error)).await;
        }
        let mut incoming = incoming;
        if let Some(sender) = self.sessions.get(&session_id) {
            match sender.try_send(SessionInput::Command(Box::new(incoming))) {
                Ok(()) => return,
                // It has just ended: the name is free.
                Err(mpsc::error::TrySendError::Closed(SessionInput::Command(unsent))) => incoming = *unsent,
                Err(error) => return self.unsent(&session_id, error).await,
            }
        }
        let config = match Command::parse(&incoming.cmd, incoming.text()) {
            Ok(Command::SessionCreate(params)) => params.config,
            Ok(_) => return,
            Err(error) => return self.respond(&session_id, &incoming, Err(&error.to_string())).await,
        };
        let sender = spawn_new(&self.shared, &session_id, config);
        self.sessions.insert(session_id.clone(), sender.clone());
        self.forward(&sender, &session_id, incoming).await;
    }

    async fn forward(&self, sender: &mpsc::Sender<SessionInput>, session_id: &str, incoming: Incoming) {
        if let Err(error) = sender.try_send(SessionInput::Command(Box::new(incoming))) {
            self.unsent(session_id, error).await;
        }
    }

    /// Answers for a session that did not take a command.
    async fn unsent(&self, session_id: &str, error: mpsc::error::TrySendError<SessionInput>) {
        let reason = match &error {
            mpsc::error::TrySendError::Full(_) => {
                "The session is busy: too many commands wait for it. Please retry.".to_owned()
            }
            mpsc::error::TrySendError::Closed(_) => format!("Session '{session_id}' not found"),
        };
        if let SessionInput::Command(incoming) = error.into_inner() {
            self.respond(session_id, &incoming, Err(&reason)).await;
        }
    }

    /// Succeeds when everything the command depends on has.
    async fn barrier(&self, incoming: Incoming) {
        let own = incoming.id_name();
        let submission = Submission {
            token: incoming.token,
            cmd: incoming.cmd.clone(),
            key: None,
            id: own,
            fingerprint: [0; 32],
            depends_on: incoming.depends_on.clone(),
        };
        let (sender, receiver) = oneshot::channel();
        let verdict = self.shared.submissions.submit(now_ms(), submission, || Owner::Once(sender));
        let shared = Arc::clone(&self.shared);
        match verdict {
            Verdict::Run => finish_barrier(&shared, &incoming, Ok(())).await,
            Verdict::Reject(error) => respond(&shared, "", &incoming, Err(&error)).await,
            Verdict::Wait | Verdict::Join | Verdict::Replay(_) => {
                tokio::spawn(async move {
                    let waited = tokio::time::timeout(Duration::from_secs(30), receiver).await;
                    let result = match waited {
                        Ok(Ok(Release::Ready | Release::Joined(_))) => Ok(()),
                        Ok(Ok(Release::Failed(error))) => Err(error),
                        Ok(Err(_)) | Err(_) => Err("Dependencies timed out after 30000ms".to_owned()),
                    };
                    finish_barrier(&shared, &incoming, result).await;
                });
            }
        }
    }

    async fn respond(&self, session_id: &str, incoming: &Incoming, result: Result<(), &str>) {
        respond(&self.shared, session_id, incoming, result).await;
    }

    async fn heartbeat(&mut self) {
        let beat = RunnerHeartbeat {
            runner_id: self.shared.config.runner_id.clone(),
            uptime_s: u64::try_from((now_ms() - self.started_at) / 1000).unwrap_or(0),
            sessions: Vec::new(),
        };
        send_line(&self.shared, &LinkLine::Heartbeat(beat)).await;
        self.beats += 1;
        if self.beats.is_multiple_of(BEATS_PER_PRUNE)
            && let Err(error) = self.shared.store.prune_outcomes(outcome_limits()).await
        {
            tracing::warn!(%error, "old outcomes could not be removed");
        }
    }

    /// Stops all sessions at once, each in its own time, and closes the store.
    async fn stop(mut self) {
        let mut waiting = Vec::new();
        for (_, sender) in self.sessions.drain() {
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
        self.shared.store.close().await;
    }
}

fn incoming(shared: &Shared, line: &Bytes, head: &CommandHead<'_>) -> Incoming {
    let owned = |text: &Option<std::borrow::Cow<'_, str>>| text.as_ref().map(|text| text.to_string());
    Incoming {
        token: shared.submissions.token(),
        link_id: head.id.and_then(|id| serde_json::from_str(id.get()).ok()).unwrap_or_default(),
        cmd: owned(&head.cmd).unwrap_or_default(),
        line: line.clone(),
        principal: owned(&head.user_id).unwrap_or_default(),
        connection: owned(&head.connection_id).unwrap_or_default(),
        client_command_id: owned(&head.client_command_id),
        idempotency_key: owned(&head.idempotency_key),
        depends_on: head.depends_on.clone().unwrap_or_default(),
        if_session_version: head.if_session_version,
    }
}

/// A new id; with a key it is made from the key, so that a repeated create finds its session.
fn mint_session_id(incoming: &Incoming) -> String {
    let mut seed = [0u8; 8];
    match &incoming.idempotency_key {
        Some(key) => {
            let named = serde_json::json!([incoming.principal, key]).to_string();
            seed.copy_from_slice(&qd_core::ledger::fingerprint(&named)[..8]);
        }
        None => {
            // Without randomness the token still makes the id unique within this run.
            if getrandom::fill(&mut seed).is_err() {
                seed = (now_ms().unsigned_abs() ^ incoming.token).to_le_bytes();
            }
        }
    }
    format!("s{}", base36(u64::from_le_bytes(seed) >> 12))
}

async fn finish_barrier(shared: &Shared, incoming: &Incoming, result: Result<(), String>) {
    let outcome = qd_core::ledger::Outcome {
        cmd: incoming.cmd.clone(),
        result: result.clone().map(|()| None),
        session_version: None,
        indeterminate: false,
    };
    shared.submissions.finish(now_ms(), incoming.token, &outcome);
    let result = match &result {
        Ok(()) => Ok(()),
        Err(error) => Err(error.as_str()),
    };
    respond(shared, "", incoming, result).await;
}

async fn respond(shared: &Shared, session_id: &str, incoming: &Incoming, result: Result<(), &str>) {
    let front = EventFront::new(session_id, &shared.config.runner_id);
    let mut out = Outbox::default();
    let response = Response {
        id: &incoming.link_id,
        cmd: &incoming.cmd,
        result: result.map(|()| None),
        session_version: None,
        replayed: false,
        indeterminate: false,
    };
    out.response(&front, now_ms(), &response);
    let bytes = out.take().bytes;
    if shared.link.send(bytes.into()).await.is_err() {
        tracing::debug!("the hub is gone");
    }
}

async fn send_line(shared: &Shared, line: &LinkLine) {
    match serde_json::to_vec(line) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            if shared.link.send(bytes.into()).await.is_err() {
                tracing::debug!("the hub is gone");
            }
        }
        Err(error) => tracing::error!(%error, "a link line cannot be written"),
    }
}

fn outcome_limits() -> OutcomeLimits {
    OutcomeLimits {
        rows_max: OUTCOME_ROWS_MAX,
        bytes_max: OUTCOME_BYTES_MAX,
        created_before: now_ms() - OUTCOME_AGE_MS,
    }
}
