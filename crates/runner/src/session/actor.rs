//! The loop of a session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qd_core::agent::{AgentEvent, AgentRequest, Answer};
use qd_core::breaker::{BashCall, Breakers};
use qd_core::health::Health;
use qd_core::ledger::{IdName, Outcome, Token};
use qd_core::outbox::Outbox;
use qd_core::session::{Memory, Session};
use qd_store::{OutcomeRow, RunnerBatch, RunnerStore};
use qd_wire::command::SessionConfig;
use qd_wire::command_table::{CommandClass, class_of};
use qd_wire::data::ProcessStats;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::admit::{Admitted, Held};
use super::breakers::Call;
use super::kept::Delivery;
use super::prompts::Door;
use super::queue::QueueEdits;
use super::run::Run;
use super::service::Gates;
use super::{Ended, Incoming, InputKey, SessionInput};
use crate::board::Board;
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::driver::{AgentFailure, Driver, DriverHandle, Progress};
use crate::outlet::Outlet;
use crate::services::{Services, SessionWorktree};
use crate::submissions::Submissions;

/// Inputs taken before the results are published.
const INPUTS_PER_ROUND_MAX: usize = 64;

/// How long to wait before what has no record is saved again, after a failure.
const SAVE_RETRY_MS: i64 = 5_000;

/// What all sessions of a runner share.
pub(crate) struct Shared {
    pub(crate) config: RunnerConfig,
    pub(crate) store: RunnerStore,
    pub(crate) outlet: Outlet,
    pub(crate) board: Board,
    pub(crate) submissions: Submissions,
    pub(crate) breakers: Mutex<Breakers>,
    /// Agents running or starting, for `max_sessions`.
    pub(crate) agents: Arc<AtomicUsize>,
    /// Agents of last time that may come up at once.
    pub(crate) resuming: Arc<Semaphore>,
    /// Calls of the machine's services.
    pub(crate) services: Services,
    /// Keys the hashes of what was typed.
    pub(crate) input_key: InputKey,
    /// Told when a session's task ends for good.
    pub(crate) ended: mpsc::Sender<Ended>,
}

impl Shared {
    pub(crate) fn breakers(&self) -> MutexGuard<'_, Breakers> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the `max_sessions` agents a runner may have at once; given back on drop.
pub(super) struct AgentSlot(Arc<AtomicUsize>);

impl AgentSlot {
    pub(super) fn take(shared: &Shared) -> Result<AgentSlot, CodedError> {
        let max = shared.config.max_sessions;
        let taken = shared
            .agents
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < max).then_some(count + 1));
        match taken {
            Ok(_) => Ok(AgentSlot(Arc::clone(&shared.agents))),
            Err(_) => Err(ErrorCode::LimitReached
                .with(format!("Session limit reached ({max} sessions); close one or raise max_sessions"))),
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
    /// The agent of last time waits for its turn to start; a word sent here makes it go at once, a drop never.
    pub(super) resuming: Option<oneshot::Sender<()>>,
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
    /// When the counters were last stored, and with which state.
    pub(super) row_stored: Option<(i64, &'static str)>,
    /// What the agent did before the session was ready; told after `session.created`.
    pub(super) early: Vec<AgentEvent>,
    /// Inputs whose names may come again: they were taken and then refused.
    pub(super) refused_inputs: Vec<String>,
    /// Of a program in a terminal.
    pub(super) run: Run,
    /// The questions the store knows of.
    pub(super) stored_questions: BTreeSet<String>,
    /// The names of images the store has.
    pub(super) stored_images: BTreeSet<String>,
    pub(super) lane: VecDeque<Admitted>,
    pub(super) lane_busy: Option<Token>,
    /// Shell commands that wait for the one that runs.
    pub(super) shell: VecDeque<Admitted>,
    pub(super) shell_busy: Option<Token>,
    /// Commands that wait for the agent to be ready.
    pub(super) parked: Vec<Admitted>,
    /// Commands that wait for other commands.
    pub(super) held: BTreeMap<Token, Held>,
    pub(super) door: Door,
    pub(super) queue_edits: QueueEdits,
    pub(super) running: BTreeMap<Token, Admitted>,
    /// Commands that were answered because their time was over, and that the agent may still answer.
    pub(super) given_up: BTreeMap<Token, Admitted>,
    pub(super) creating: Option<Token>,
    /// Aborts that the agent has not answered.
    pub(super) aborts: BTreeSet<Token>,
    /// An abort came after a prompt and before its turn, with this many turns begun: it is for the next one.
    pub(super) abort_next: Option<u64>,
    pub(super) health: Health,
    /// The figures of the last look at the process: reading them costs more than answering a command.
    pub(super) stats: Option<ProcessStats>,
    /// Commands whose first answer of the provider is still to come, oldest first.
    pub(super) calls: VecDeque<Call>,
    /// Shell commands under way.
    pub(super) bash_calls: BTreeMap<Token, BashCall>,
    /// The number of the hub's last word on watching.
    pub(super) watch_number: u64,
    /// Since when there is nothing for the agent to do.
    pub(super) idle_since: Option<i64>,
    /// A kept input on its way to the agent.
    pub(super) delivery: Option<Delivery>,
    /// The agent refused a kept input: the rest waits for its next start.
    pub(super) is_delivery_blocked: bool,
    /// The agent ran when the runner stopped.
    pub(super) was_up_at_shutdown: bool,
    /// What has no record is saved again at this time at the earliest, after a failure.
    save_after: i64,
    /// Service calls that wait for a person, by the id of their question.
    pub(super) gates: Gates,
    pub(super) finished: bool,
    /// Made for this session, which is not yet there.
    pub(super) new_worktree: Option<SessionWorktree>,
    /// It is being made, and the agent starts when it is there.
    pub(super) is_making_worktree: bool,
    stopping: Option<oneshot::Sender<()>>,
}

/// What woke the session.
enum Wake {
    Input(Option<SessionInput>),
    Agent(Progress),
    Timer,
}

impl SessionActor {
    pub(super) fn new(
        shared: &Arc<Shared>,
        (sender, mailbox): (mpsc::Sender<SessionInput>, mpsc::Receiver<SessionInput>),
        session: Session,
        config: SessionConfig,
        created_at: i64,
        exists: bool,
    ) -> Self {
        let mut session = session;
        let timeout = shared.config.question_timeout;
        session.set_question_timeout(timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok()));
        SessionActor {
            shared: Arc::clone(shared),
            session,
            config,
            created_at,
            exists,
            driver: None,
            agent: AgentState::None,
            slot: None,
            resuming: None,
            generation: 0,
            bridge: true,
            mailbox,
            sender,
            out: Outbox::default(),
            outcomes: Vec::new(),
            settled: Vec::new(),
            stored: None,
            row_stored: None,
            early: Vec::new(),
            refused_inputs: Vec::new(),
            run: Run::default(),
            stored_questions: BTreeSet::new(),
            stored_images: BTreeSet::new(),
            lane: VecDeque::new(),
            lane_busy: None,
            shell: VecDeque::new(),
            shell_busy: None,
            parked: Vec::new(),
            held: BTreeMap::new(),
            door: Door::default(),
            queue_edits: QueueEdits::default(),
            running: BTreeMap::new(),
            given_up: BTreeMap::new(),
            creating: None,
            aborts: BTreeSet::new(),
            abort_next: None,
            health: Health::new(&shared.config.supervision),
            stats: None,
            calls: VecDeque::new(),
            bash_calls: BTreeMap::new(),
            watch_number: 0,
            idle_since: None,
            delivery: None,
            is_delivery_blocked: false,
            was_up_at_shutdown: false,
            save_after: 0,
            gates: Gates::default(),
            finished: false,
            new_worktree: None,
            is_making_worktree: false,
            stopping: None,
        }
    }

    /// In a box, or the future would hold the session twice: as it was given and as it is used.
    pub(super) async fn run(mut self: Box<Self>) {
        let mut events = Vec::new();
        self.publish().await;
        self.save().await;
        while !self.finished {
            match self.wait(&mut events).await {
                Wake::Input(None) => break,
                Wake::Input(Some(input)) => {
                    self.take_inputs(input).await;
                    self.wait_for_echo(&mut events).await;
                }
                Wake::Agent(progress) => self.agent_progress(progress, &mut events).await,
                Wake::Timer => self.timers().await,
            }
            self.pump_lanes().await;
            self.deliver_kept().await;
            self.supervise().await;
            self.look_after_idle().await;
            self.finished |= self.is_phantom();
            self.publish().await;
            self.save().await;
        }
        self.undo_worktree().await;
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
            && self.shell.is_empty()
    }

    /// Every command gets an answer, also one that came too late. Creations are handed back.
    async fn refuse_the_rest(&mut self) -> Vec<Incoming> {
        self.mailbox.close();
        let mut creations = Vec::new();
        let error = CodedError::session_not_found(&self.session.identity().session_id);
        while let Ok(input) = self.mailbox.try_recv() {
            match input {
                SessionInput::Command(incoming) if class_of(&incoming.cmd) == CommandClass::Create => {
                    creations.push(*incoming)
                }
                SessionInput::Command(incoming) => self.refuse(&incoming, &error),
                _ => {}
            }
        }
        let ended = ErrorCode::AgentGone.with("The session ended before the command did");
        for admitted in std::mem::take(&mut self.running).into_values() {
            // The agent had it: nobody can know how far it came.
            self.finish(admitted, Err(AgentFailure::lost(ended.message.clone())));
        }
        let held = std::mem::take(&mut self.held).into_values();
        for Held { admitted, joined, .. } in held {
            if joined {
                self.refuse(&admitted.incoming, &ended);
            } else {
                self.finish(admitted, Err(ended.clone().into()));
            }
        }
        let parked = std::mem::take(&mut self.parked).into_iter().chain(self.queue_edits.empty());
        let lanes = std::mem::take(&mut self.lane).into_iter().chain(std::mem::take(&mut self.shell));
        for admitted in parked.chain(lanes).chain(self.door.empty()) {
            self.finish(admitted, Err(ended.clone().into()));
        }
        self.publish().await;
        creations
    }

    async fn wait(&mut self, events: &mut Vec<AgentEvent>) -> Wake {
        let deadline = self.next_deadline();
        let is_held_back = self.is_held_back();
        let driver = self.driver.as_mut().filter(|_| !is_held_back);
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

    pub(super) async fn take_inputs(&mut self, first: SessionInput) {
        let mut next = Some(first);
        for _ in 0..INPUTS_PER_ROUND_MAX {
            let Some(input) = next.take() else { break };
            self.take_input(input).await;
            self.pump_lanes().await;
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
            SessionInput::Started { generation, result, permit } => {
                self.agent_started(generation, *result, permit).await;
            }
            SessionInput::Prepared { generation, result } => self.agent_prepared(generation, *result).await,
            SessionInput::WorktreeMade(result) => self.worktree_made(*result).await,
            SessionInput::Executed { token, result } => self.executed(token, *result),
            SessionInput::Probed { generation } => {
                if generation == self.generation {
                    self.health.answered();
                }
            }
            SessionInput::Changes { generation, effects } => {
                if generation == self.generation {
                    effects.into_iter().for_each(|effect| self.apply(effect));
                }
            }
            // Of a session that may never come to be there is nothing to tell.
            SessionInput::Watch { number, on } => self.watch(number, on),
            SessionInput::Describe(_) | SessionInput::Snapshot | SessionInput::HubHas(_) if !self.exists => {}
            SessionInput::Describe(answer) => {
                // Nobody may be waiting any more.
                let _ = answer.send(Box::new(self.session.state()));
            }
            SessionInput::Snapshot => self.resync().await,
            SessionInput::HubHas(seq) => self.session.skip_to(seq),
            SessionInput::Service(input) => self.service(input).await,
            SessionInput::Shutdown(done) => {
                self.stopping = Some(done);
                self.shutdown().await;
            }
        }
    }

    async fn shutdown(&mut self) {
        // A program ends with us; an agent goes on when we are back.
        self.was_up_at_shutdown = self.agent != AgentState::None && !self.is_run();
        if self.exists {
            if self.agent != AgentState::None {
                self.stop_agent(qd_core::session::Gone::Stopped).await;
            }
        } else if let Some(driver) = self.driver.take() {
            self.forget_agent();
            driver.close().await;
        }
        self.finished = true;
    }

    /// The runner stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    fn next_deadline(&self) -> Option<i64> {
        let questions = self.session.next_question_deadline();
        let held = self.held.values().filter_map(|held| held.deadline).min();
        let health = self.health.next_deadline();
        let others = [self.door.deadline(), self.idle_deadline(), self.run_deadline()];
        [questions, held, health].into_iter().chain(others).flatten().min()
    }

    async fn timers(&mut self) {
        let now = now_ms();
        for (request_id, answer) in self.session.expire_questions(now, &mut self.out) {
            self.answer_agent(request_id, answer);
        }
        self.gates_timed_out().await;
        self.expire_held(now);
        self.door_timer(now);
        self.run_timers(now).await;
    }

    /// Stores what changed without a record: what the hub has, what a kept input became, where the agent's file is.
    async fn save(&mut self) {
        let now = now_ms();
        let is_stored = self.stored.as_ref() == Some(self.session.memory());
        if !self.exists || self.finished || is_stored || now < self.save_after {
            return;
        }
        let batch = RunnerBatch {
            session_id: self.session.identity().session_id.clone(),
            session_row: Some(super::row::session_row(self, now)),
            ..RunnerBatch::default()
        };
        match self.shared.store.commit(batch).await {
            Ok(()) => self.stored = Some(self.session.memory().clone()),
            Err(error) => {
                tracing::warn!(%error, "a session's row could not be stored; it is tried again");
                self.save_after = now + SAVE_RETRY_MS;
            }
        }
    }

    /// Tells the agent what became of a question.
    pub(super) fn answer_agent(&self, request_id: String, answer: Answer) {
        let Some(handle) = self.handle() else { return };
        if let Err(error) = handle.tell(AgentRequest::Answer { request_id, answer }) {
            tracing::warn!(%error, "the agent could not be told what became of its question");
        }
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
