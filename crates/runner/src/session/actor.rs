//! The loop of a session.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qd_core::agent::AgentEvent;
use qd_core::ledger::{IdName, Outcome, Token};
use qd_core::outbox::Outbox;
use qd_core::session::{Memory, Session};
use qd_link::memory::LinkSender;
use qd_store::{OutcomeRow, RunnerStore};
use qd_wire::command::SessionConfig;
use qd_wire::data::ProcessStats;
use tokio::sync::{mpsc, oneshot};

use super::admit::{Admitted, Held};
use super::prompts::Door;
use super::{Ended, Incoming, MAILBOX_MAX, SessionInput};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::driver::{AgentFailure, Driver, DriverHandle, Progress};
use crate::submissions::Submissions;

/// Inputs taken before the results are published.
const INPUTS_PER_ROUND_MAX: usize = 64;

/// Process figures go out this often.
const HEARTBEAT_MS: i64 = 10_000;

/// Process figures are read this often at most.
const STATS_MS_MAX: i64 = 2_000;

/// What all sessions of a runner share.
pub(crate) struct Shared {
    pub(crate) config: RunnerConfig,
    pub(crate) store: RunnerStore,
    pub(crate) link: LinkSender,
    pub(crate) submissions: Submissions,
    /// Agents running or starting, for `max_sessions`.
    pub(crate) agents: Arc<AtomicUsize>,
    /// Told when a session's task ends for good.
    pub(crate) ended: mpsc::Sender<Ended>,
}

/// One of the `max_sessions` agents a runner may have at once; given back on drop.
pub(super) struct AgentSlot(Arc<AtomicUsize>);

impl AgentSlot {
    pub(super) fn take(shared: &Shared) -> Result<AgentSlot, String> {
        let max = shared.config.max_sessions;
        let taken = shared
            .agents
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < max).then_some(count + 1));
        match taken {
            Ok(_) => Ok(AgentSlot(Arc::clone(&shared.agents))),
            Err(_) => Err(format!("Session limit reached ({max} sessions); close one or raise max_sessions")),
        }
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where the agent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentState {
    None,
    Starting,
    Ready,
}

/// One session.
pub(crate) struct SessionActor {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Session,
    pub(super) config: SessionConfig,
    pub(super) created_at: i64,
    /// Whether the session has ever been ready; before that a failure leaves no trace.
    pub(super) exists: bool,
    pub(super) driver: Option<Driver>,
    pub(super) agent: AgentState,
    pub(super) slot: Option<AgentSlot>,
    /// Raised with every start and stop, so that late news of an old agent is recognised.
    pub(super) generation: u32,
    /// Cleared when our own extension keeps the agent from starting.
    pub(super) bridge: bool,
    pub(super) mailbox: mpsc::Receiver<SessionInput>,
    pub(super) sender: mpsc::Sender<SessionInput>,
    pub(super) out: Outbox,
    pub(super) outcomes: Vec<OutcomeRow>,
    /// Commands whose outcome goes out with this round; whoever waits for them is told after the commit.
    pub(super) settled: Vec<(Token, Outcome)>,
    /// What the store has of the session, besides its counters.
    pub(super) stored: Option<Memory>,
    /// What the agent did before the session was ready; told after `session.created`.
    pub(super) early: Vec<AgentEvent>,
    /// The questions the store knows of.
    pub(super) stored_questions: HashSet<String>,
    pub(super) lane: VecDeque<Admitted>,
    pub(super) lane_busy: Option<Token>,
    /// Commands that wait for the agent to be ready.
    pub(super) parked: Vec<Admitted>,
    /// Commands that wait for other commands.
    pub(super) held: HashMap<Token, Held>,
    pub(super) door: Door,
    pub(super) running: HashMap<Token, Admitted>,
    pub(super) creating: Option<Token>,
    pub(super) aborts: u32,
    pub(super) next_heartbeat: i64,
    /// Process figures and when they were read: reading them costs more than answering a command.
    stats: Option<(i64, ProcessStats)>,
    pub(super) finished: bool,
    stopping: Option<oneshot::Sender<()>>,
}

/// What woke the session.
enum Wake {
    Input(Option<SessionInput>),
    Agent(Progress),
    Timer,
}

/// Starts the task of a session that is being created; `first` is its `session.create`.
pub(crate) fn spawn_new(
    shared: &Arc<Shared>,
    session_id: &str,
    config: SessionConfig,
) -> mpsc::Sender<SessionInput> {
    let session = super::row::new_session(&shared.config, session_id, &config);
    spawn(SessionActor::new(shared, session, config, now_ms(), false))
}

/// Starts the task of a session known from before.
pub(crate) fn spawn_restored(
    shared: &Arc<Shared>,
    restored: super::row::Restored,
) -> mpsc::Sender<SessionInput> {
    let mut actor = SessionActor::new(shared, restored.session, restored.config, restored.created_at, true);
    if restored.interrupted {
        actor.session.interrupted(now_ms(), restored.open_questions.clone(), &mut actor.out);
    }
    actor.stored_questions = restored.open_questions.into_iter().collect();
    spawn(actor)
}

fn spawn(actor: SessionActor) -> mpsc::Sender<SessionInput> {
    let sender = actor.sender.clone();
    tokio::spawn(actor.run());
    sender
}

impl SessionActor {
    fn new(
        shared: &Arc<Shared>,
        session: Session,
        config: SessionConfig,
        created_at: i64,
        exists: bool,
    ) -> Self {
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        SessionActor {
            shared: Arc::clone(shared),
            session,
            config,
            created_at,
            exists,
            driver: None,
            agent: AgentState::None,
            slot: None,
            generation: 0,
            bridge: true,
            mailbox,
            sender,
            out: Outbox::default(),
            outcomes: Vec::new(),
            settled: Vec::new(),
            stored: None,
            early: Vec::new(),
            stored_questions: HashSet::new(),
            lane: VecDeque::new(),
            lane_busy: None,
            parked: Vec::new(),
            held: HashMap::new(),
            door: Door::default(),
            running: HashMap::new(),
            creating: None,
            aborts: 0,
            next_heartbeat: 0,
            stats: None,
            finished: false,
            stopping: None,
        }
    }

    async fn run(mut self) {
        let mut events = Vec::new();
        self.publish().await;
        while !self.finished {
            match self.wait(&mut events).await {
                Wake::Input(None) => break,
                Wake::Input(Some(input)) => self.take_inputs(input).await,
                Wake::Agent(progress) => self.agent_progress(progress, &mut events).await,
                Wake::Timer => self.timers().await,
            }
            self.pump_lane().await;
            self.finished |= self.is_phantom();
            self.publish().await;
        }
        let creations = self.refuse_the_rest().await;
        if let Some(done) = self.stopping.take() {
            // The runner may have stopped waiting; the session is down all the same.
            let _ = done.send(());
        }
        let session_id = self.session.identity().session_id.clone();
        if self.shared.ended.send(Ended { session_id, creations }).await.is_err() {
            tracing::debug!("the runner is gone already");
        }
    }

    /// A session whose creation was refused at the door: there is nothing to keep.
    fn is_phantom(&self) -> bool {
        !self.exists
            && self.agent == AgentState::None
            && self.held.is_empty()
            && self.running.is_empty()
            && self.parked.is_empty()
            && self.lane.is_empty()
    }

    /// Every command gets an answer, also one that came too late. Creations are handed back.
    async fn refuse_the_rest(&mut self) -> Vec<Incoming> {
        self.mailbox.close();
        let mut creations = Vec::new();
        let error = format!("Session '{}' not found", self.session.identity().session_id);
        while let Ok(input) = self.mailbox.try_recv() {
            match input {
                SessionInput::Command(incoming) if incoming.cmd == "session.create" => {
                    creations.push(*incoming)
                }
                SessionInput::Command(incoming) => self.refuse(&incoming, &error),
                _ => {}
            }
        }
        let ended = "The session ended before the command did";
        for admitted in std::mem::take(&mut self.running).into_values() {
            // The agent had it: nobody can know how far it came.
            self.finish(admitted, Err(AgentFailure::lost(ended)));
        }
        let held = std::mem::take(&mut self.held).into_values();
        for Held { admitted, joined, .. } in held {
            if joined {
                self.refuse(&admitted.incoming, ended);
            } else {
                self.finish(admitted, Err(AgentFailure::refused(ended)));
            }
        }
        let parked = std::mem::take(&mut self.parked);
        for admitted in parked.into_iter().chain(std::mem::take(&mut self.lane)).chain(self.door.empty()) {
            self.finish(admitted, Err(AgentFailure::refused(ended)));
        }
        self.publish().await;
        creations
    }

    async fn wait(&mut self, events: &mut Vec<AgentEvent>) -> Wake {
        let deadline = self.next_deadline();
        let driver = &mut self.driver;
        let agent = async {
            match driver {
                Some(driver) => driver.next(events).await,
                None => std::future::pending().await,
            }
        };
        let timer = async {
            match deadline {
                Some(at) => {
                    let wait = u64::try_from(at - now_ms()).unwrap_or(0);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            input = self.mailbox.recv() => Wake::Input(input),
            progress = agent => Wake::Agent(progress),
            () = timer => Wake::Timer,
        }
    }

    async fn take_inputs(&mut self, first: SessionInput) {
        let mut next = Some(first);
        for _ in 0..INPUTS_PER_ROUND_MAX {
            let Some(input) = next.take() else { break };
            self.take_input(input).await;
            self.pump_lane().await;
            if self.finished {
                break;
            }
            next = self.mailbox.try_recv().ok();
        }
        // The bound can leave one input in hand; it must not be lost.
        if let Some(input) = next {
            self.take_input(input).await;
        }
    }

    async fn take_input(&mut self, input: SessionInput) {
        match input {
            SessionInput::Command(incoming) => self.admit(incoming).await,
            SessionInput::Released { token, release } => self.released(token, *release).await,
            SessionInput::Started { generation, result } => self.agent_started(generation, *result).await,
            SessionInput::Prepared { generation, result } => self.agent_prepared(generation, *result).await,
            SessionInput::Executed { token, result } => self.executed(token, *result),
            SessionInput::Changes { generation, effects } => {
                if generation == self.generation {
                    effects.into_iter().for_each(|effect| self.apply(effect));
                }
            }
            SessionInput::Shutdown(done) => {
                self.stopping = Some(done);
                self.shutdown().await;
            }
        }
    }

    async fn shutdown(&mut self) {
        if self.exists {
            if self.agent != AgentState::None {
                self.stop_agent(qd_core::session::Gone::Stopped).await;
            }
        } else if let Some(driver) = self.driver.take() {
            driver.close().await;
        }
        self.finished = true;
    }

    fn next_deadline(&self) -> Option<i64> {
        let questions = self.session.next_question_deadline();
        let held = self.held.values().filter_map(|held| held.deadline).min();
        let heartbeat = (self.next_heartbeat > 0).then_some(self.next_heartbeat);
        [questions, held, heartbeat, self.door.deadline()].into_iter().flatten().min()
    }

    async fn timers(&mut self) {
        let now = now_ms();
        self.session.expire_questions(now, &mut self.out);
        self.expire_held(now);
        self.door_timer(now);
        if self.next_heartbeat > 0 && self.next_heartbeat <= now {
            self.next_heartbeat = now + HEARTBEAT_MS;
            if let Some(process) = self.process_stats(now) {
                self.session.heartbeat(now, process, &mut self.out);
            }
        }
    }

    /// The agent's process figures, not older than [`STATS_MS_MAX`].
    pub(super) fn process_stats(&mut self, now: i64) -> Option<ProcessStats> {
        if let Some((at, stats)) = &self.stats
            && self.driver.is_some()
            && now - at < STATS_MS_MAX
        {
            return Some(stats.clone());
        }
        let stats = self.driver.as_ref().and_then(Driver::stats);
        self.stats = stats.clone().map(|stats| (now, stats));
        stats
    }

    pub(super) fn start_heartbeat(&mut self) {
        self.stats = None;
        let has_process = self.process_stats(now_ms()).is_some();
        self.next_heartbeat = if has_process { now_ms() + HEARTBEAT_MS } else { 0 };
    }

    pub(super) fn handle(&self) -> Option<DriverHandle> {
        self.driver.as_ref().map(Driver::handle)
    }
}

impl Incoming {
    /// The name other commands may depend on.
    pub(crate) fn id_name(&self) -> Option<IdName> {
        let id = self.client_command_id.clone()?;
        Some(IdName { principal: self.principal.clone(), connection: self.connection.clone(), id })
    }

    /// The command as text; the link carries UTF-8 only.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.line).unwrap_or("{}")
    }
}
