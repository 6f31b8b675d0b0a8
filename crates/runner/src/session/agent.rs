//! The agent of a session: started when needed, listened to, stopped.
//!
//! Starting takes two steps that both come back as inputs: `Started` (there is a process) and `Prepared` (it answers
//! and has told about itself). In between the session may have been closed, so each step carries the generation of
//! the agent it belongs to, and a late one is dropped.

pub(crate) mod agent_state;
mod idle_stop;
pub(crate) mod provider_calls;
mod supervision;

use std::collections::HashSet;
use std::sync::Arc;

use qd_core::agent::{AgentEvent, AgentRequest, QuestionAnswer};
use qd_core::command_queue::QueueInput;
use qd_core::ledger::SubmissionToken;
use qd_core::session::{AgentEnd, ReadyAgent};
use qd_wire::data::SessionCreatedData;
use qd_wire::event::NotifyLevel;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use self::agent_state::{AgentSlot, AgentState};
use super::actor::SessionActor;
use super::commands::admission::AdmittedCommand;
use super::commands::json_text;
use super::{SessionInput, session_row};
use crate::clock::now_ms;
use crate::driver::{self, AgentProgress, Driver, StartRequest};
use crate::process::CloseMode;

/// Events kept from before the session is ready. What is more is dropped: a flood must not fill memory for a session
/// that may never exist.
const EARLY_EVENTS_MAX: usize = 1024;

impl SessionActor {
    /// Starts the agent unless it is there or on its way.
    pub(super) fn start_agent(&mut self) {
        if self.agent.state != AgentState::None || self.worktree.is_being_made {
            return;
        }
        let request = match AgentSlot::take(&self.shared) {
            Ok(slot) => {
                self.agent.slot = Some(slot);
                session_row::start_request(&self.session, &self.config, self.agent.bridge)
            }
            Err(error) => Err(error),
        };
        self.launch(request, None);
    }

    /// Starts the agent of last time when it is its turn: all at once would be too much for the machine. Without
    /// room for another agent the session stays as it is, until it is used.
    pub(super) fn resume_agent(&mut self) {
        match AgentSlot::take(&self.shared) {
            Ok(slot) => self.agent.slot = Some(slot),
            Err(reason) => {
                let session_id = &self.session.identity().session_id;
                tracing::warn!(session_id, %reason, "a session is not resumed");
                return;
            }
        }
        let request = session_row::start_request(&self.session, &self.config, self.agent.bridge);
        let (go, hurry) = oneshot::channel();
        self.agent.resuming = Some(go);
        self.launch(request, Some(hurry));
    }

    fn launch(&mut self, request: Result<StartRequest, CodedError>, hurry: Option<oneshot::Receiver<()>>) {
        self.agent.state = AgentState::Starting;
        self.agent.generation += 1;
        self.session.starting(now_ms(), &mut self.out);
        let (shared, sender, generation) = (self.shared.clone(), self.sender.clone(), self.agent.generation);
        tokio::spawn(async move {
            let permit = match hurry {
                None => None,
                Some(hurry) => tokio::select! {
                    // A person who needs the session now goes before its turn in the line of those that resume.
                    biased;
                    word = hurry => match word {
                        Ok(()) => None,
                        // The session has stopped before it was its turn.
                        Err(_) => return,
                    },
                    permit = Arc::clone(&shared.resuming).acquire_owned() => match permit {
                        Ok(permit) => Some(permit),
                        // The runner stops.
                        Err(_) => return,
                    },
                },
            };
            let result = match request {
                Ok(request) => driver::start(&shared.config, request).await,
                Err(error) => Err(error),
            };
            let input = SessionInput::Started { generation, result: Box::new(result), permit };
            if let Err(unsent) = sender.send(input).await
                && let SessionInput::Started { result, .. } = unsent.0
                && let Ok(driver) = *result
            {
                // The session ended meanwhile; nobody else would stop this agent.
                driver.close(CloseMode::Graceful).await;
            }
        });
    }

    pub(super) async fn agent_started(
        &mut self,
        generation: u32,
        result: Result<Driver, CodedError>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        match result {
            Ok(driver) if generation != self.agent.generation || self.agent.state != AgentState::Starting => {
                driver.close(CloseMode::Graceful).await
            }
            Ok(driver) => {
                let handle = driver.handle();
                self.agent.driver = Some(driver);
                self.update_driver_watch();
                self.watch_process();
                self.spawn_input(async move {
                    let result = Box::new(handle.prepare().await);
                    // Held until the agent is prepared: preparing is what costs the machine when many come up at
                    // once.
                    drop(permit);
                    SessionInput::Prepared { generation, result }
                });
            }
            Err(error) if generation == self.agent.generation => self.agent_failed(error).await,
            Err(_) => {}
        }
    }

    pub(super) async fn agent_prepared(&mut self, generation: u32, result: Result<ReadyAgent, CodedError>) {
        if generation != self.agent.generation || self.agent.state != AgentState::Starting {
            return;
        }
        let up = match result {
            Ok(up) => up,
            Err(error) => {
                self.close_agent(CloseMode::Graceful).await;
                return self.try_without_bridge(error).await;
            }
        };
        // A program in a terminal has no conversation to read, so it is up as soon as it runs.
        if let Some(start) = self.agent.driver.as_ref().and_then(|driver| driver.run_start()).cloned() {
            return self.run_prepared(start);
        }
        if self.agent.driver.is_none() {
            return self
                .agent_failed(
                    ErrorCode::AgentGone.with(
                        "The agent ended right after it started; its stderr and `qd doctor` may say why",
                    ),
                )
                .await;
        }
        let known = match self.shared.store.message_index(&self.session.identity().session_id).await {
            Ok(index) => index.into_iter().map(|(_, id)| id).collect::<HashSet<_>>(),
            Err(error) => {
                return self.agent_failed(ErrorCode::StoreUnavailable.with(error.to_string())).await;
            }
        };
        let resumed = self.exists || !up.conversation.is_empty();
        self.exists = true;
        self.agent.state = AgentState::Ready;
        self.session.ready(now_ms(), resumed, up, &known, &mut self.out);
        self.update_branch();
        // Only now do these have a session whose numbers they can take.
        for event in std::mem::take(&mut self.agent.early) {
            self.session.agent_event(now_ms(), event, &mut self.out);
        }
        self.refuse_questions();
        if let Some(title) = self.config.title.clone().filter(|_| self.session.memory().title.is_none()) {
            self.session.title_changed(now_ms(), title, &mut self.out);
        }
        self.agent.health.ready(now_ms());
        // Last of all: this releases the commands that waited, and they must find everything above in place.
        self.notify_queue(QueueInput::AgentReady);
    }

    /// Our own extension must never keep an agent from starting: once more without it.
    async fn try_without_bridge(&mut self, error: CodedError) {
        let blame = self.shared.config.harnesses.blame_extension(&self.config.harness, &error.message);
        let Some(message) = blame.filter(|_| self.agent.bridge) else {
            return self.agent_failed(error).await;
        };
        self.agent.bridge = false;
        tracing::warn!(message);
        self.start_agent();
        // Told with the early events, when the session is ready.
        self.agent.early.push(AgentEvent::Notify { level: NotifyLevel::Warning, message });
    }

    /// The agent could not be started.
    async fn agent_failed(&mut self, error: CodedError) {
        self.close_agent(CloseMode::Graceful).await;
        self.agent.early.clear();
        self.undo_worktree().await;
        if self.exists {
            // A program that could not be started again is over, as it was before.
            let gone = match self.is_run() {
                true => AgentEnd::Closed { reason: error.message.clone() },
                false => AgentEnd::Died { error: error.message.clone() },
            };
            self.session.gone(now_ms(), gone, &mut self.out);
        }
        self.refuse_waiting(&error);
    }

    /// Ends the agent, if there is one. Whoever waits for an answer of it learns then that none will come.
    pub(super) async fn close_agent(&mut self, how: CloseMode) {
        let driver = self.agent.driver.take();
        self.forget_agent();
        if let Some(driver) = driver {
            driver.close(how).await;
        }
    }

    /// There is no agent any more, as far as our books go.
    pub(super) fn forget_agent(&mut self) {
        self.agent.generation += 1;
        self.agent.state = AgentState::None;
        self.agent.slot = None;
        self.agent.resuming = None;
        self.notify_queue(QueueInput::AgentGone);
        self.agent.stats = None;
        self.agent.health.gone();
        self.forget_provider_calls();
        self.agent.idle_since = None;
        self.shared.process_table.remove(&self.session.identity().session_id);
    }

    /// Refuses what waits for an agent that will not come. A session that never came up leaves nothing behind but
    /// these answers.
    pub(super) fn refuse_waiting(&mut self, error: &CodedError) {
        // Where no session comes to be, commands that wait for nothing but their lane are refused too.
        let with_lanes = !self.exists;
        self.notify_queue(QueueInput::RefuseWaiting { error: error.clone(), with_lanes });
        self.carry_out_answers();
        if !self.exists {
            self.finished = true;
            self.remove_private_directory();
        }
    }

    /// Answers the command that waited for the agent to start.
    pub(super) async fn answer_start(&mut self, token: SubmissionToken) {
        let Some(admitted) = self.commands.take(token) else { return };
        self.worktree.made = None;
        let session_id = self.session.identity().session_id.clone();
        let attach = self.attach_data(None).await;
        let result = json_text(&SessionCreatedData { session_id, attach }).map(Some);
        self.finish(admitted, result);
    }

    /// Takes what the agent did.
    pub(super) async fn agent_progress(&mut self, progress: AgentProgress, events: &mut Vec<AgentEvent>) {
        let now = now_ms();
        if !events.is_empty() {
            self.agent.health.output(now);
        }
        if self.exists {
            let mut settled = false;
            for event in events.drain(..) {
                settled |= matches!(event, AgentEvent::TurnSettled { .. });
                self.learn_from_event(now, &event);
                self.session.agent_event(now, event, &mut self.out);
            }
            self.refuse_questions();
            // A question that came after the abort was sent: the agent waits for its answer and would never see the
            // abort.
            if self.commands.queue().is_aborting() {
                self.cancel_questions();
            }
            if settled {
                self.note_native_file();
                self.poll_agent_changes();
                self.update_branch();
            }
        } else {
            // A record of a session that may never come to be would take a number that is not its own.
            let room = EARLY_EVENTS_MAX.saturating_sub(self.agent.early.len());
            self.agent.early.extend(events.drain(..).take(room));
        }
        match progress {
            AgentProgress::Output(texts) => return self.run_output(texts),
            AgentProgress::Exited(exit) => return self.run_ended(exit),
            AgentProgress::Events | AgentProgress::Gone { .. } => {}
        }
        if let AgentProgress::Gone { error } = progress {
            self.agent.driver = None;
            // While it is coming up, the failed preparation tells the whole story.
            if self.agent.state == AgentState::Ready {
                self.forget_agent();
                self.complete_from_file().await;
                self.session.gone(now, AgentEnd::Died { error: error.clone() }, &mut self.out);
                self.refuse_waiting(&ErrorCode::AgentGone.with(error));
            }
        }
    }

    /// The turn has begun that was to be aborted before: the agent is told again.
    pub(super) fn abort_turn(&mut self) {
        let Some(handle) = self.handle().filter(|_| self.session.is_working()) else { return };
        self.session.abort_requested();
        // Nobody waits for the answer: whoever asked has one, and the turn's end tells the rest.
        match handle.send_request(AgentRequest::Abort) {
            Ok(sent) => drop(sent),
            Err(failure) => tracing::warn!(error = failure.error, "a turn could not be aborted"),
        }
    }

    /// Stored with the end of the turn, so that a file that is gone after a crash is missed.
    fn note_native_file(&mut self) {
        let memory = self.session.memory();
        let file = memory.native_session_file.as_deref().filter(|_| !memory.is_native_file_written);
        if file.is_some_and(|file| std::path::Path::new(file).is_file()) {
            self.session.native_file_written();
        }
    }

    /// An agent that waits for an answer cannot be aborted: every open question is cancelled first.
    pub(super) fn cancel_questions(&mut self) {
        let ids = self.session.open_question_ids();
        if ids.is_empty() {
            return;
        }
        self.session.withdraw_questions(now_ms(), &mut self.out);
        ids.into_iter().for_each(|request_id| self.answer_agent(request_id, QuestionAnswer::Cancelled));
    }

    /// Cancels questions there was no place for: whoever asked must not wait for ever.
    fn refuse_questions(&mut self) {
        for request_id in self.session.take_refused_questions() {
            tracing::warn!(request_id, "too many questions are open; one was cancelled");
            self.answer_agent(request_id, QuestionAnswer::Cancelled);
        }
    }

    /// Some changes have no event (model, name, conversation); a finished turn or command is the moment to look.
    pub(super) fn poll_agent_changes(&self) {
        let Some(handle) = self.handle() else { return };
        let generation = self.agent.generation;
        let known = self.session.memory().native_session_id.clone();
        self.spawn_input(async move {
            // An agent that is gone by now has reported that itself.
            let effects = handle.unannounced_changes(known.as_deref()).await.ok()?;
            Some(SessionInput::Changes { generation, effects })
        });
    }

    /// Ends the agent and tells everybody.
    pub(super) async fn stop_agent(&mut self, gone: AgentEnd) {
        if self.is_run() {
            return self.stop_run(gone).await;
        }
        self.close_agent(CloseMode::Graceful).await;
        self.agent.early.clear();
        self.complete_from_file().await;
        if self.exists {
            self.session.gone(now_ms(), gone, &mut self.out);
        }
        let error = ErrorCode::AgentGone
            .with("The session was stopped while its agent was starting; session.restart starts it again");
        self.refuse_waiting(&error);
    }

    /// Lets a command wait for the agent to be ready.
    pub(super) fn park_until_ready(&mut self, admitted: AdmittedCommand) {
        let token = admitted.token();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::Park { token });
    }

    /// Starts the agent for somebody who needs it.
    pub(super) fn start_agent_now(&mut self) {
        if let Some(go) = self.agent.resuming.take() {
            // Whoever uses the session does not wait for its turn. It may have come already.
            let _ = go.send(());
        }
        self.start_agent();
    }

    /// Removes the agent's private directory.
    pub(super) fn remove_private_directory(&self) {
        let directory = self.shared.config.session_dir(&self.session.identity().session_id);
        if !directory.exists() {
            return;
        }
        // An agent's temporary files can be many.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = std::fs::remove_dir_all(&directory)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(directory = %directory.display(), %error, "a private directory could not be removed");
            }
        });
    }
}
