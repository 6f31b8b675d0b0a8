//! The link to the hub: connecting, saying hello, reading what the hub says. The runner lives without it.
//!
//! Reading, writing and beating are three futures that never wait for each other: acks are taken where they are
//! read, commands go to the runner's task, which never waits for a link, and every answer either has room or a
//! queue. So there is no circle in which both sides wait.
//!
//! An `origin` is the number of one link (or of one local client). Everything that belongs to a link carries it, so
//! that what was meant for a link that has ended is never written to the one that came after it.

mod handshake;
mod heartbeat;
mod queue_sender;
pub(crate) mod run_protocol;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_link::backoff::Backoff;
use qd_link::memory::{LinkEnd, LinkReceiver};
use qd_link::mutex::Mutex;
use qd_link::runner::HubConnector;
use qd_wire::ErrorCode;
use qd_wire::link::LinkLine;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::runner::{LinkCommand, RunnerError};
use crate::session::RunnerContext;
use handshake::{DEFLATE, WelcomedLink};

pub(crate) use handshake::describe_all;
pub(crate) use heartbeat::load;

/// The longest pause between two attempts: delivery is to resume within 2 s of the hub's return.
const RETRY_MAX: Duration = Duration::from_millis(1500);

/// A hub that says no is asked again after this.
/// A refusal needs a person (a revoked runner, a version), and asking again quickly would only fill logs.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// An attempt that takes longer has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Answers may take this long to go out when the runner stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How a command begins as our own hub writes it.
const COMMAND_FRONT: &[u8] = b"{\"type\":\"command\",";

/// How a runner reaches its hub.
pub enum Uplink {
    /// One link for life (`qd up`): the runner ends when it does.
    Memory(LinkEnd),
    /// Dialled again and again.
    Dial(Arc<dyn HubConnector>),
    /// There is no hub.
    None,
}

/// Why the runner's key was not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0}")]
    NotMade(Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    NotStored(Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps the runner's key and its successor.
pub trait KeyKeeper: Send + Sync {
    /// Makes and stores the next key; gives its SHA-256 in hex.
    fn make_next(&self) -> Result<String, KeyError>;
    /// The hub has taken the next key of this SHA-256: it counts from now on.
    fn promote(&self, key_hash: &str) -> Result<(), KeyError>;
    /// The SHA-256 in hex of a next key the hub has not confirmed yet.
    fn pending(&self) -> Option<String> {
        None
    }
}

impl std::fmt::Debug for dyn KeyKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyKeeper")
    }
}

/// How the link to the hub stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkStatus {
    /// Unix milliseconds; `None` while there is no link.
    pub connected_since: Option<i64>,
    /// Why the last attempt failed or the last link ended.
    pub last_failure: Option<String>,
    /// The same for programs, where the hub gave a code.
    pub failure_code: Option<ErrorCode>,
}

/// Why there is no link any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkEndReason {
    Lost(String),
    /// The hub does not want this runner.
    Refused(String, Option<ErrorCode>),
    /// The runner stops.
    Stopped,
}

/// The task that keeps the link.
#[derive(Clone)]
pub(crate) struct UplinkTask {
    pub(crate) shared: Arc<RunnerContext>,
    pub(crate) commands: mpsc::Sender<LinkCommand>,
    pub(crate) status: SharedUplinkStatus,
    pub(crate) started_at: i64,
    pub(crate) stop: CancellationToken,
}

/// The status, for whoever asks.
#[derive(Clone, Default)]
pub(crate) struct SharedUplinkStatus(Arc<Mutex<UplinkStatus>>);

impl SharedUplinkStatus {
    pub(crate) fn get(&self) -> UplinkStatus {
        self.0.lock().clone()
    }

    fn is_up(&self) {
        *self.0.lock() = UplinkStatus { connected_since: Some(now_ms()), ..UplinkStatus::default() };
    }

    fn is_down(&self, reason: &str, failure_code: Option<ErrorCode>) {
        let last_failure = Some(reason.to_owned());
        *self.0.lock() = UplinkStatus { connected_since: None, last_failure, failure_code };
    }
}

impl UplinkTask {
    /// Says hello on the one link of `qd up`.
    pub(crate) async fn welcome(&self, link: LinkEnd) -> Result<WelcomedLink, RunnerError> {
        match self.handshake(link, &[]).await {
            Ok(welcomed) => {
                self.status.is_up();
                Ok(welcomed)
            }
            Err(LinkEndReason::Lost(reason) | LinkEndReason::Refused(reason, _)) => {
                Err(RunnerError::NoWelcome(reason))
            }
            Err(LinkEndReason::Stopped) => Err(RunnerError::NoWelcome("the runner stops".to_owned())),
        }
    }

    /// Serves the one link of `qd up`; cancels `over` when it ends.
    pub(crate) async fn run_once(self, welcomed: WelcomedLink, over: CancellationToken) {
        match self.serve(welcomed).await {
            LinkEndReason::Stopped => {}
            LinkEndReason::Lost(reason) | LinkEndReason::Refused(reason, _) => {
                self.status.is_down(&reason, None);
                tracing::info!(reason, "the link to the hub has ended");
            }
        }
        over.cancel();
    }

    /// Connects, and again whenever the link is lost, until the runner stops.
    pub(crate) async fn run(self, connect: Arc<dyn HubConnector>) {
        let mut backoff = Backoff::new(RETRY_MAX);
        let mut last_reason = String::new();
        loop {
            let over = self.connect_and_serve(&*connect, &mut backoff).await;
            let (reason, code, delay) = match over {
                LinkEndReason::Stopped => return,
                LinkEndReason::Refused(reason, code) => {
                    tracing::info!(reason, "the hub refuses this runner; asked again later");
                    (reason, code, REFUSED_RETRY)
                }
                LinkEndReason::Lost(reason) => {
                    // One line per outage, not one per attempt.
                    if reason != last_reason || self.status.get().connected_since.is_some() {
                        tracing::info!(
                            reason,
                            "no link to the hub; sessions go on, records wait in the spool"
                        );
                    }
                    (reason, None, backoff.pause())
                }
            };
            self.status.is_down(&reason, code);
            last_reason = reason;
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    async fn connect_and_serve(&self, connect: &dyn HubConnector, backoff: &mut Backoff) -> LinkEndReason {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connect.connect());
        let connected = tokio::select! {
            () = self.stop.cancelled() => return LinkEndReason::Stopped,
            connected = connecting => connected,
        };
        let link = match connected {
            Ok(Ok(link)) => link,
            Ok(Err(failure)) if failure.is_refusal => {
                return LinkEndReason::Refused(failure.reason, failure.code);
            }
            Ok(Err(failure)) => return LinkEndReason::Lost(failure.reason),
            Err(_) => return LinkEndReason::Lost("the hub did not answer in time".to_owned()),
        };
        let welcomed = tokio::select! {
            () = self.stop.cancelled() => return LinkEndReason::Stopped,
            welcomed = self.handshake(link, &[DEFLATE]) => welcomed,
        };
        match welcomed {
            Ok(welcomed) => {
                tracing::info!("connected to the hub");
                // Only a welcome counts as success; a hub that accepts and then falls silent must not be asked
                // without pause.
                backoff.reset();
                self.status.is_up();
                self.serve(welcomed).await
            }
            Err(over) => over,
        }
    }

    /// Uses a link until it is over.
    async fn serve(&self, welcomed: WelcomedLink) -> LinkEndReason {
        let WelcomedLink { link, mut receiver, rest } = welcomed;
        let hub_delivery = &self.shared.hub_delivery;
        let sender = queue_sender::send_queued(&self.shared, &link);
        tokio::pin!(sender);
        let over = tokio::select! {
            over = self.read(link.origin, &mut receiver, rest) => over,
            () = &mut sender => LinkEndReason::Lost("the hub reads nothing any more".to_owned()),
            () = self.send_heartbeats(link.origin) => LinkEndReason::Stopped,
            () = link.cut.cancelled() => LinkEndReason::Lost("the hub takes no answers".to_owned()),
            () = self.stop.cancelled() => LinkEndReason::Stopped,
        };
        if over == LinkEndReason::Stopped {
            // The answers to the last commands still go out.
            let flushed = async {
                tokio::select! {
                    () = &mut sender => {}
                    () = hub_delivery.wait_until_answers_sent() => {}
                }
            };
            if tokio::time::timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
                tracing::debug!("the hub did not take the last answers");
            }
        }
        hub_delivery.link_down(link.origin);
        self.shared.services.link_gone(link.origin);
        over
    }

    /// Takes what the hub says.
    async fn read(&self, origin: u64, receiver: &mut LinkReceiver, rest: Bytes) -> LinkEndReason {
        let mut block = rest;
        loop {
            let mut start = 0;
            for end in memchr::memchr_iter(b'\n', &block) {
                let line = block.slice(start..end);
                start = end + 1;
                if let Some(over) = self.take_line(origin, line).await {
                    return over;
                }
            }
            block = match receiver.recv().await {
                Some(block) => block,
                None => return LinkEndReason::Lost(receiver.close_reason()),
            };
        }
    }

    async fn take_line(&self, origin: u64, line: Bytes) -> Option<LinkEndReason> {
        // What the hub sends most, recognised without reading the line twice.
        if line.starts_with(COMMAND_FRONT) {
            return self.take_command(origin, line).await;
        }
        match serde_json::from_slice::<HubLine<'_>>(&line) {
            Ok(HubLine { kind, .. }) if kind == "command" => self.take_command(origin, line).await,
            Ok(parsed) => self.take_hub_line(origin, parsed),
            Err(error) => {
                tracing::warn!(%error, "the hub sent a line that is not of the link");
                None
            }
        }
    }

    /// Waits for the runner's task at most, and that waits for no link.
    async fn take_command(&self, origin: u64, line: Bytes) -> Option<LinkEndReason> {
        let command = LinkCommand { origin, is_local: false, within: None, line };
        self.commands.send(command).await.err().map(|_| LinkEndReason::Stopped)
    }

    fn take_hub_line(&self, origin: u64, line: HubLine<'_>) -> Option<LinkEndReason> {
        let hub_delivery = &self.shared.hub_delivery;
        match (&*line.kind, line.session_id, line.seq) {
            ("ack", Some(session_id), Some(seq)) => {
                self.shared.store.ack(&session_id, seq);
                hub_delivery.ack(origin, &session_id, seq);
            }
            ("session.watch", Some(session_id), _) => hub_delivery.watch(&session_id, line.on == Some(true)),
            ("session.refused", Some(session_id), _) => {
                note_refused_session(
                    &self.shared,
                    origin,
                    &session_id,
                    line.reason.as_deref().unwrap_or_default(),
                );
            }
            ("runner.refused", _, _) => {
                let reason = line.reason.map_or_else(|| "no reason given".to_owned(), Into::into);
                return Some(LinkEndReason::Refused(reason, line.code));
            }
            ("runner.rotate", _, _) => self.make_next_key(origin),
            ("runner.rekeyed", _, _) => self.promote_key(line.key_hash.as_deref().unwrap_or_default()),
            _ => {}
        }
        None
    }

    fn make_next_key(&self, origin: u64) {
        let Some(keys) = &self.shared.config.keys else {
            tracing::warn!("the hub asks for a new key, but this runner has none of its own");
            return;
        };
        match keys.make_next() {
            Ok(key_hash) => send_line(&self.shared, origin, &LinkLine::Rekey { key_hash }),
            Err(error) => tracing::error!(%error, "a new key cannot be made; the old one stays"),
        }
    }

    /// The hub's word on the next key may have been lost with the last link, so it is named again.
    fn announce_next_key(&self, origin: u64) {
        if let Some(key_hash) = self.shared.config.keys.as_ref().and_then(|keys| keys.pending()) {
            send_line(&self.shared, origin, &LinkLine::Rekey { key_hash });
        }
    }

    fn promote_key(&self, key_hash: &str) {
        let Some(keys) = &self.shared.config.keys else { return };
        match keys.promote(key_hash) {
            Ok(()) => tracing::info!("the hub has taken the new key"),
            Err(error) => tracing::error!(%error, "the new key cannot be stored; the old one stays"),
        }
    }
}

/// The fields of all lines of the hub but commands.
#[derive(serde::Deserialize)]
struct HubLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    session_id: Option<std::borrow::Cow<'a, str>>,
    seq: Option<u64>,
    #[serde(borrow)]
    reason: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    key_hash: Option<std::borrow::Cow<'a, str>>,
    on: Option<bool>,
    code: Option<ErrorCode>,
}

/// Notes that the hub does not take a session, and says so once.
fn note_refused_session(shared: &RunnerContext, origin: u64, session_id: &str, reason: &str) {
    if shared.hub_delivery.refuse(origin, session_id) {
        tracing::warn!(session_id, reason, "the hub takes nothing of this session");
    }
}

/// Sends a line of the runner itself; never waits.
fn send_line(shared: &RunnerContext, origin: u64, line: &LinkLine) {
    match serde_json::to_vec(line) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            shared.hub_delivery.send_line(origin, bytes.into());
        }
        Err(error) => tracing::error!(%error, "a link line cannot be written"),
    }
}
