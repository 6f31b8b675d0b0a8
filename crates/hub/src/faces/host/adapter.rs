//! One connection of a foreign host: a tiny runner towards the hub.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use qd_core::view::run::host::foreign_run::ForeignRun;
use qd_core::view::run::host::reorder_buffer::ReorderBuffer;
use qd_link::clock::now_ms;
use qd_link::memory::{LinkEnd, LinkReceiver, LinkSender};
use qd_link::mutex::Mutex;
use qd_wire::data::SessionStatus;
use qd_wire::event::EventPayload;
use qd_wire::link::{HelloSession, LinkLine, LinkResponse, RunnerHeartbeat, RunnerHello, RunnerWelcome};
use qd_wire::{CodedError, CommandResponse, ErrorCode};
use serde_json::Value;
use tokio::time::{Duration, Instant, interval};

use super::inputs::PendingInputs;
use super::send_queue::HostSendQueue;
use crate::hub::Hub;
use crate::runners::link::line_of;
use crate::sessions::reads::unreadable;

/// How often the hub hears that the host is there, and time limits are looked at.
const BEAT: Duration = Duration::from_secs(10);
/// How often the limits of calls are looked at.
const LIMITS: Duration = Duration::from_millis(500);

/// What the futures of one connection share.
pub(super) struct HostAdapter {
    pub(super) hub: Arc<Hub>,
    pub(super) host_id: Arc<str>,
    pub(super) out: HostSendQueue,
    /// Towards the hub.
    pub(super) link: LinkSender,
    pub(super) state: Mutex<AdapterState>,
    started: Instant,
}

/// What is known on this connection.
#[derive(Default)]
pub(super) struct AdapterState {
    pub(super) runs: HashMap<String, HostRun>,
    /// Runs that wait for a missing event.
    pub(super) holes: HashSet<String>,
    /// Bytes of events that wait for those before them, all runs together.
    pub(super) held_bytes: usize,
    /// Calls the host has not answered, by their `request_id`.
    pub(super) calls: HashMap<String, HostCall>,
    /// Inputs the host has not recorded.
    pub(super) inputs: PendingInputs,
    /// Runs that were asked for under a key, oldest first: the same key again starts nothing again.
    pub(super) starts: VecDeque<RequestedRun>,
    /// When it was last noted that the host is there.
    pub(super) noted_at: i64,
}

/// One run of the host.
pub(super) struct HostRun {
    pub(super) arrivals: ReorderBuffer<HeldEvent>,
    /// Not read yet: of a run that ended before this connection.
    pub(super) book: Option<ForeignRun>,
    pub(super) gate: EventGate,
}

/// An event that may wait for others.
pub(super) struct HeldEvent {
    pub(super) ts: i64,
    pub(super) event: EventPayload,
}

/// What becomes of a run's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventGate {
    Open,
    /// It is not this host's; the host was told.
    Refused,
    /// It was deleted: its events are taken and dropped.
    Deleted,
}

impl HostRun {
    pub(super) fn new(seq: u64, book: Option<ForeignRun>, gate: EventGate) -> Self {
        HostRun { arrivals: ReorderBuffer::after(seq), book, gate }
    }
}

/// Who asked, as the link names it.
#[derive(Debug, Clone)]
pub(super) struct LinkCommand {
    pub(super) id: String,
    pub(super) cmd: String,
    pub(super) run_id: Option<String>,
}

/// A run that was asked for.
pub(super) struct RequestedRun {
    pub(super) principal: String,
    pub(super) key: String,
    pub(super) request_id: String,
    /// Known when the host has answered.
    pub(super) run_id: Option<String>,
}

/// A call on its way.
pub(super) struct HostCall {
    pub(super) asker: LinkCommand,
    pub(super) kind: &'static str,
    pub(super) deadline: Option<i64>,
}

impl HostAdapter {
    pub(super) fn new(hub: &Arc<Hub>, host_id: &Arc<str>, link: LinkSender) -> Arc<Self> {
        Arc::new(HostAdapter {
            hub: Arc::clone(hub),
            host_id: Arc::clone(host_id),
            out: HostSendQueue::new(host_id),
            link,
            state: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Serves until the host or the hub ends it.
    pub(super) async fn run(self: Arc<Self>, socket: LinkEnd, mut from_hub: LinkReceiver) {
        let LinkEnd { sender, receiver } = socket;
        let rest = match self.introduce(&mut from_hub).await {
            Ok(rest) => rest,
            Err(reason) => {
                tracing::warn!(host = %self.host_id, %reason, "a host's connection ends before it began");
                self.out.error(None, None, &reason);
                return self.refuse(&sender, &reason.message);
            }
        };
        // What the hub says comes first: it says why it is going before it is gone.
        let reason = tokio::select! {
            biased;
            over = self.read_hub(from_hub, rest) => over.unwrap_or_else(|reason| {
                self.refuse(&sender, &reason.message);
                reason.message
            }),
            reason = self.read_host(receiver) => reason,
            () = self.out.write(&sender) => "the host takes nothing any more".to_owned(),
            () = self.beat() => "the hub is gone".to_owned(),
        };
        tracing::info!(host = %self.host_id, reason, "a foreign host's connection is over");
    }

    /// The connection ends by the hub's will, which is said to the host as far as it takes anything.
    fn refuse(&self, socket: &LinkSender, reason: &str) {
        while let Some(message) = self.out.take() {
            if socket.try_send(message).is_err() {
                break;
            }
        }
        socket.refuse(reason);
    }

    /// Says hello for the host and takes the welcome; gives what came with it.
    async fn introduce(&self, from_hub: &mut LinkReceiver) -> Result<Bytes, CodedError> {
        let mut books = self.books().await.map_err(|error| unreadable(&error))?;
        let hello = self.hello(&books);
        self.link.send(line_of(&LinkLine::Hello(hello)).into()).await.map_err(|_| hub_gone())?;
        let block = from_hub.recv().await.ok_or_else(hub_gone)?;
        let length = memchr::memchr(b'\n', &block).map_or(block.len(), |end| end + 1);
        let welcome = match serde_json::from_slice(&block[..length]) {
            Ok(LinkLine::Welcome(welcome)) => welcome,
            Ok(LinkLine::Refused { reason, code }) => {
                return Err(code.unwrap_or(ErrorCode::Conflict).with(reason));
            }
            _ => return Err(ErrorCode::Internal.with("the hub did not say welcome")),
        };
        // What an older connection brought was committed before the welcome, and after the books were read.
        for session in &welcome.sessions {
            if let Some(book) = books.get_mut(&session.session_id) {
                let read = self.read_on(&session.session_id, book).await;
                read.map_err(|error| unreadable(&error))?;
            }
        }
        self.open(&welcome, books);
        Ok(block.slice(length..))
    }

    fn hello(&self, books: &HashMap<String, ForeignRun>) -> RunnerHello {
        let sessions = self.hub.sessions_of(&self.host_id).into_iter().map(|entry| {
            let ended = ForeignRun::ended(entry.committed_seq());
            let book = books.get(&*entry.id).unwrap_or(&ended);
            HelloSession {
                session_id: entry.id.to_string(),
                last_seq: entry.committed_seq(),
                state: Some(Box::new(book.state(&entry.id, &self.host_id))),
            }
        });
        // Deleted runs stay named, so that their tombstones stay: the host knows nothing of deleting.
        let deleted = self.hub.deleted_sessions_of(&self.host_id).into_iter().map(|run_id| HelloSession {
            session_id: run_id.to_string(),
            last_seq: 0,
            state: None,
        });
        RunnerHello {
            runner_id: self.host_id.to_string(),
            hostname: self.host_id.to_string(),
            // None: a host is used by name, it is not chosen for what nobody placed.
            harnesses: Vec::new(),
            max_sessions: 0,
            version: "run protocol".to_owned(),
            os: String::new(),
            sessions: sessions.chain(deleted).collect(),
            compression: Vec::new(),
        }
    }

    fn open(&self, welcome: &RunnerWelcome, mut books: HashMap<String, ForeignRun>) {
        let mut state = self.state.lock();
        for session in &welcome.sessions {
            let run_id = &session.session_id;
            self.out.acks(|acks, _| acks.known(run_id, session.last_seq));
            let mut book = books.remove(run_id);
            if let Some(book) = &mut book {
                book.seq = book.seq.max(session.last_seq);
            }
            let run = HostRun::new(session.last_seq, book, EventGate::Open);
            state.runs.insert(run_id.clone(), run);
        }
        for refused in &welcome.refused {
            state.runs.insert(refused.session_id.clone(), HostRun::new(0, None, EventGate::Refused));
        }
    }

    /// The host's sign of life towards the hub, for as long as its connection lives.
    async fn beat(&self) {
        let mut beats = interval(BEAT);
        let mut limits = interval(LIMITS);
        loop {
            let block = tokio::select! {
                _ = beats.tick() => line_of(&LinkLine::Heartbeat(RunnerHeartbeat {
                    runner_id: self.host_id.to_string(),
                    uptime_s: self.started.elapsed().as_secs(),
                    sessions: Vec::new(),
                    load: None,
                })),
                _ = limits.tick() => self.over_time(),
            };
            if !block.is_empty() && self.link.send(block.into()).await.is_err() {
                return;
            }
        }
    }

    /// The answers to calls whose time is over.
    fn over_time(&self) -> Vec<u8> {
        let now = now_ms();
        let mut state = self.state.lock();
        let mut block = Vec::new();
        for asker in state.inputs.over_time(now) {
            let error = format!("Host {} did not confirm the input in time", self.host_id);
            block.extend(self.timed_out(&asker, error));
        }
        let is_over = |call: &HostCall| call.deadline.is_some_and(|deadline| deadline <= now);
        let over: Vec<String> =
            state.calls.iter().filter(|(_, call)| is_over(call)).map(|(id, _)| id.clone()).collect();
        for call in over.iter().filter_map(|id| state.calls.remove(id)) {
            let error = format!("Host {} did not answer '{}' in time", self.host_id, call.kind);
            block.extend(self.timed_out(&call.asker, error));
        }
        block
    }

    /// The line of an answer.
    pub(super) fn response(
        &self,
        asker: &LinkCommand,
        result: Result<Option<Value>, &CodedError>,
    ) -> Vec<u8> {
        line_of(&LinkLine::Response(self.answer(asker, result)))
    }

    fn timed_out(&self, asker: &LinkCommand, error: String) -> Vec<u8> {
        let mut answer = self.answer(asker, Err(&ErrorCode::TimedOut.with(error)));
        answer.response.timed_out = Some(true);
        line_of(&LinkLine::Response(answer))
    }

    fn answer(&self, asker: &LinkCommand, result: Result<Option<Value>, &CodedError>) -> LinkResponse {
        let (success, data, error) = match result {
            Ok(data) => (true, data, None),
            Err(error) => (false, None, Some(error)),
        };
        LinkResponse {
            session_id: asker.run_id.clone(),
            runner_id: Some(self.host_id.to_string()),
            ts: Some(now_ms()),
            response: CommandResponse {
                id: Some(Value::from(asker.id.as_str())),
                cmd: asker.cmd.clone(),
                success,
                data,
                error: error.map(|error| error.message.clone()),
                code: error.map(|error| error.code),
                limit: error.and_then(|error| error.limit),
                session_version: None,
                replayed: None,
                indeterminate: None,
                timed_out: None,
            },
        }
    }

    /// Whether the hub knows a run as one that has ended.
    pub(super) fn has_ended(&self, run_id: &str) -> bool {
        self.hub.session(run_id).is_some_and(|entry| entry.status() == SessionStatus::Closed)
    }
}

fn hub_gone() -> CodedError {
    ErrorCode::ShuttingDown.with("the hub is gone")
}
