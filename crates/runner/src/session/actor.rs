//! The loop of a session.
//!
//! Everything that happens to a session (commands, what the agent prints, timers, results of work that was begun)
//! arrives here one after the other, so no state of a session needs a lock. Starting an agent, waiting for its
//! answers and other long work is spawned, and the result comes back as a `SessionInput`. A round ends with a commit
//! of the records it made; its answers leave after that (`publish`).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use qd_core::agent::{AgentEvent, AgentRequest, QuestionAnswer};
use qd_core::breaker::Breakers;
use qd_core::command_queue::QueueInput;
use qd_core::event_writer::{EventWriter, ResponseLine};
use qd_core::ledger::{CommandId, CommandOutcome, IdempotencyKey, Submission, fingerprint};
use qd_core::session::Session;
use qd_link::mutex::Mutex;
use qd_store::{RunnerBatch, RunnerStore};
use qd_wire::CodedError;
use qd_wire::command::SessionConfig;
use qd_wire::command_table::{CommandClass, class_of};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::agent::agent_state::{AgentState, SessionAgent};
use super::agent::provider_calls::ProviderCalls;
use super::commands::pending_commands::PendingCommands;
use super::deadline_timer::DeadlineTimer;
use super::publish::CommitState;
use super::run::TerminalRun;
use super::service_gates::PendingGates;
use super::worktree::WorktreeProgress;
use super::{IncomingCommand, InputHashKey, SessionEnded, SessionInput};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::driver::{AgentProgress, DriverHandle};
use crate::hub_delivery::HubDelivery;
use crate::process::CloseMode;
use crate::runner::process_table::ProcessTable;
use crate::services::Services;
use crate::submissions::Submissions;

/// Inputs taken before the results are published.
/// Enough that a burst shares one commit; few enough that the agent's output is looked at in between.
const INPUTS_PER_ROUND_MAX: usize = 64;

/// How long to wait before what has no record is saved again, after a failure.
/// A store that fails is often a full disk; trying at every event would only fill the log.
const SAVE_RETRY_MS: i64 = 5_000;

/// What all sessions of a runner share.
pub(crate) struct RunnerContext {
    pub(crate) config: RunnerConfig,
    pub(crate) store: RunnerStore,
    pub(crate) hub_delivery: HubDelivery,
    pub(crate) process_table: ProcessTable,
    pub(crate) submissions: Submissions,
    pub(crate) breakers: Mutex<Breakers>,
    /// Agents running or starting, for `max_sessions`.
    pub(crate) agents: Arc<AtomicUsize>,
    /// Agents of last time that may come up at once.
    pub(crate) resuming: Arc<Semaphore>,
    /// Calls of the machine's services.
    pub(crate) services: Services,
    /// Keys the hashes of what was typed.
    pub(crate) input_key: InputHashKey,
    /// Told when a session's task ends for good.
    pub(crate) ended: mpsc::Sender<SessionEnded>,
}

/// One session.
pub(crate) struct SessionActor {
    pub(super) shared: Arc<RunnerContext>,
    pub(super) session: Session,
    pub(super) config: SessionConfig,
    pub(super) created_at: i64,
    /// Whether the session has ever been ready; before that a failure leaves no trace.
    pub(super) exists: bool,
    pub(super) agent: SessionAgent,
    pub(super) mailbox: mpsc::Receiver<SessionInput>,
    pub(super) sender: mpsc::Sender<SessionInput>,
    pub(super) out: EventWriter,
    pub(super) publishing: CommitState,
    /// Of a program in a terminal.
    pub(super) run: TerminalRun,
    /// Commands without an answer, and which of them goes next.
    pub(super) commands: PendingCommands,
    pub(super) provider_calls: ProviderCalls,
    /// The number of the hub's last word on watching.
    pub(super) watch_number: u64,
    /// Service calls that wait for a person, by the id of their question.
    pub(super) gates: PendingGates,
    pub(super) finished: bool,
    /// Why it may not be created where it would work.
    pub(super) refusal: Option<CodedError>,
    pub(super) worktree: WorktreeProgress,
    stopping: Option<oneshot::Sender<()>>,
}

/// What woke the session.
enum WakeReason {
    Input(Option<SessionInput>),
    Agent(AgentProgress),
    Timer,
}

impl SessionActor {
    pub(super) fn new(
        shared: &Arc<RunnerContext>,
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
            agent: SessionAgent::new(&shared.config.supervision),
            mailbox,
            sender,
            out: EventWriter::default(),
            publishing: CommitState::default(),
            run: TerminalRun::default(),
            commands: PendingCommands::default(),
            provider_calls: ProviderCalls::default(),
            watch_number: 0,
            gates: PendingGates::default(),
            finished: false,
            refusal: None,
            worktree: WorktreeProgress::default(),
            stopping: None,
        }
    }

    /// In a box, or the future would hold the session twice: as it was given and as it is used.
    pub(super) async fn run(mut self: Box<Self>) {
        let mut events = Vec::new();
        let mut timer = DeadlineTimer::default();
        self.publish().await;
        self.save().await;
        while !self.finished {
            match self.wait(&mut events, &mut timer).await {
                WakeReason::Input(None) => break,
                WakeReason::Input(Some(input)) => {
                    self.take_inputs(input).await;
                    // A key is answered with its echo in the same round: one commit and one delivery instead of two.
                    self.wait_for_echo(&mut events).await;
                }
                WakeReason::Agent(progress) => self.agent_progress(progress, &mut events).await,
                WakeReason::Timer => self.timers().await,
            }
            self.carry_out_effects().await;
            self.supervise().await;
            self.stop_if_idle().await;
            // An agent that was stopped just now may have made way for others.
            self.carry_out_effects().await;
            self.finished |= self.was_never_created();
            self.publish().await;
            self.save().await;
        }
        self.undo_worktree().await;
        let creations = self.refuse_remaining_inputs().await;
        if let Some(done) = self.stopping.take() {
            // The runner may have stopped waiting; the session is down all the same.
            let _ = done.send(());
        }
        let session_id = self.session.identity().session_id.clone();
        if self.shared.ended.send(SessionEnded { session_id, creations }).await.is_err() {
            tracing::debug!("the runner is gone already");
        }
    }

    /// A session whose creation was refused: there is nothing to keep.
    fn was_never_created(&self) -> bool {
        !self.exists && self.agent.state == AgentState::None && self.commands.queue().is_empty()
    }

    /// Every command gets an answer, also one that came too late. Creations are handed back.
    async fn refuse_remaining_inputs(&mut self) -> Vec<IncomingCommand> {
        // Closed first, so that nothing can arrive between the last look and the end of the task.
        self.mailbox.close();
        let mut creations = Vec::new();
        let error = CodedError::session_not_found(&self.session.identity().session_id);
        while let Ok(input) = self.mailbox.try_recv() {
            match input {
                SessionInput::Command(incoming) if class_of(&incoming.cmd) == CommandClass::Create => {
                    // The runner makes a new session of these when this one has ended.
                    creations.push(*incoming)
                }
                SessionInput::Command(incoming) => self.refuse(&incoming, &error),
                _ => {}
            }
        }
        self.notify_queue(QueueInput::Close);
        self.carry_out_answers();
        self.publish().await;
        creations
    }

    async fn wait(&mut self, events: &mut Vec<AgentEvent>, timer: &mut DeadlineTimer) -> WakeReason {
        let deadline = self.next_deadline();
        // A program that is not read fills its terminal's buffer and waits, instead of our memory growing.
        let is_held_back = self.is_held_back();
        let driver = self.agent.driver.as_mut().filter(|_| !is_held_back);
        let agent = async {
            match driver {
                Some(driver) => driver.next(events).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            input = self.mailbox.recv() => WakeReason::Input(input),
            progress = agent => WakeReason::Agent(progress),
            () = timer.wait_until(deadline) => WakeReason::Timer,
        }
    }

    pub(super) async fn take_inputs(&mut self, first: SessionInput) {
        let mut next = Some(first);
        for _ in 0..INPUTS_PER_ROUND_MAX {
            // Effects are carried out after each input: the next command must see what the one before it has changed.
            let Some(input) = next.take() else { break };
            self.take_input(input).await;
            self.carry_out_effects().await;
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
            // Answers of an agent that has been replaced meanwhile say nothing about the one that runs now.
            SessionInput::Probed { generation } => {
                if generation == self.agent.generation {
                    self.agent.health.answered();
                }
            }
            SessionInput::Changes { generation, effects } => {
                if generation == self.agent.generation {
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
            // The hub may know higher numbers than a runner whose database is an older copy.
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
        self.agent.was_up_at_shutdown = self.agent.state != AgentState::None && !self.is_run();
        if self.exists {
            if self.agent.state != AgentState::None {
                self.stop_agent(qd_core::session::AgentEnd::Stopped).await;
            }
        // It never became a session, so there is nothing to record; only the process must not stay behind.
        } else if let Some(driver) = self.agent.driver.take() {
            self.forget_agent();
            driver.close(CloseMode::Graceful).await;
        }
        self.finished = true;
    }

    /// The runner stops.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    fn next_deadline(&self) -> Option<i64> {
        let questions = self.session.next_question_deadline();
        let commands = self.commands.queue().next_deadline();
        let health = self.agent.health.next_deadline();
        let others = [self.idle_deadline(), self.run_deadline()];
        [questions, commands, health].into_iter().chain(others).flatten().min()
    }

    async fn timers(&mut self) {
        let now = now_ms();
        for (request_id, answer) in self.session.expire_questions(now, &mut self.out) {
            self.answer_agent(request_id, answer);
        }
        self.gates_timed_out().await;
        self.notify_queue(QueueInput::Tick);
        self.run_timers(now).await;
    }

    /// Stores what changed without a record: what the hub has, what a kept input became, where the agent's file is.
    async fn save(&mut self) {
        let now = now_ms();
        // Compared as a whole: a list of what to watch for would be forgotten when a field is added.
        let is_stored = self.publishing.stored.as_ref() == Some(self.session.memory());
        if !self.exists || self.finished || is_stored || now < self.publishing.save_after {
            return;
        }
        let batch = RunnerBatch {
            session_id: self.session.identity().session_id.clone(),
            session_row: Some(super::session_row::session_row(self, now)),
            ..RunnerBatch::default()
        };
        match self.shared.store.commit(batch).await {
            Ok(()) => self.publishing.stored = Some(self.session.memory().clone()),
            Err(error) => {
                tracing::warn!(%error, "a session's row could not be stored; it is tried again");
                self.publishing.save_after = now + SAVE_RETRY_MS;
            }
        }
    }

    /// Tells the agent what became of a question.
    pub(super) fn answer_agent(&self, request_id: String, answer: QuestionAnswer) {
        let Some(handle) = self.handle() else { return };
        if let Err(failure) = handle.send_without_reply(AgentRequest::Answer { request_id, answer }) {
            tracing::warn!(error = failure.error, "the agent could not be told what became of its question");
        }
    }

    /// Runs something beside the session; what comes of it, if anything, is an input of the session, if that is still
    /// there.
    pub(super) fn spawn_input<I: Into<Option<SessionInput>> + Send>(
        &self,
        work: impl Future<Output = I> + Send + 'static,
    ) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let input: Option<SessionInput> = work.await.into();
            if let Some(input) = input
                && sender.send(input).await.is_err()
            {
                tracing::debug!("a session ended before something it waited for");
            }
        });
    }

    pub(super) fn handle(&self) -> Option<DriverHandle> {
        self.agent.driver.as_ref().map(|driver| driver.handle())
    }
}

impl IncomingCommand {
    /// The name other commands may depend on.
    pub(crate) fn id_name(&self) -> Option<CommandId> {
        let id = self.client_command_id.clone()?;
        Some(CommandId { principal: self.principal.clone(), connection: self.connection.clone(), id })
    }

    /// A response to it that says no more than its result.
    pub(crate) fn response<'a>(
        &'a self,
        result: Result<Option<&'a str>, &'a CodedError>,
    ) -> ResponseLine<'a> {
        plain_response(self.origin, &self.link_id, &self.cmd, result)
    }

    /// The response that repeats what came of it before.
    pub(crate) fn replay<'a>(&'a self, outcome: &'a CommandOutcome) -> ResponseLine<'a> {
        ResponseLine {
            session_version: outcome.session_version,
            replayed: true,
            indeterminate: outcome.indeterminate,
            timed_out: outcome.timed_out,
            ..self.response(outcome.result.as_ref().map(Option::as_deref))
        }
    }

    /// Its identity for the ledger; its key counts within `scope`.
    pub(crate) fn submission(&self, scope: &str) -> Submission {
        let key = self.idempotency_key.as_ref().map(|key| IdempotencyKey {
            principal: self.principal.clone(),
            scope: scope.to_owned(),
            key: key.clone(),
        });
        Submission {
            token: self.token,
            cmd: self.cmd.clone(),
            // Only a key is ever compared; hashing every read would cost more than answering it.
            fingerprint: if key.is_some() { fingerprint(self.text()) } else { [0; 32] },
            key,
            id: self.id_name(),
            depends_on: self.depends_on.clone(),
        }
    }

    /// Whether the session is what the sender thinks it is.
    pub(crate) fn check_version(&self, version: u64) -> Result<(), CodedError> {
        match self.if_session_version {
            Some(expected) if expected != version => {
                refuse!(VersionMismatch, "Session version mismatch: expected {expected}, got {version}")
            }
            _ => Ok(()),
        }
    }

    /// The command as text; the link carries UTF-8 only.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.line).unwrap_or("{}")
    }
}

/// A response that says no more than the result of a command.
pub(crate) fn plain_response<'a>(
    origin: u64,
    id: &'a str,
    cmd: &'a str,
    result: Result<Option<&'a str>, &'a CodedError>,
) -> ResponseLine<'a> {
    ResponseLine {
        origin,
        id,
        cmd,
        result,
        session_version: None,
        replayed: false,
        indeterminate: false,
        timed_out: false,
    }
}
