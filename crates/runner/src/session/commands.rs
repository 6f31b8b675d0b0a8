//! What each command does.
//!
//! A command comes here when the command queue says that it is its turn. It ends in exactly one `finish`, either at
//! once or when the agent's answer comes back as an input; until then it waits in `PendingCommands`.

pub(crate) mod admission;
pub(crate) mod pending_commands;
pub(crate) mod prompts;
mod queue_edit;
mod queue_effects;
mod timeouts;
mod undelivered;

use std::sync::Arc;

use qd_core::agent::AgentRequest;
use qd_core::command_queue::{AgentAnswer, AgentWork, QueueInput};
use qd_core::ledger::SubmissionToken;
use qd_core::redact::redact;
use qd_core::session::{AgentEnd, SettledAnswer};
use qd_core::view::run::host::server_connection::PRINCIPAL as FOREIGN_SERVER;
use qd_wire::command::InputResponseParams;
use qd_wire::data::{SessionState, SessionStatus};
use qd_wire::event::NotifyLevel;
use qd_wire::run::{PermissionSource, RunSignal, RunStopData, RunStopParams};
use qd_wire::{CodedError, Command, ErrorCode};
use serde::Serialize;

use self::admission::AdmittedCommand;
use self::prompts::prompt_text;
use super::actor::SessionActor;
use super::agent::agent_state::AgentState;
use super::{SessionInput, session_row};
use crate::clock::now_ms;
use crate::driver::{AgentFailure, AgentResult, CommandEffect, ExecuteResult, ExecutedCommand};
use crate::text;

impl SessionActor {
    /// Carries out a command whose turn it is and whose version was checked.
    pub(super) async fn execute_checked(&mut self, admitted: AdmittedCommand) {
        match &admitted.command {
            Command::SessionCreate(_) => self.create(admitted),
            Command::SessionAttach(params) => {
                let params = params.clone();
                self.attach(admitted, &params).await;
            }
            Command::RunInput(params) => {
                let params = params.clone();
                self.run_input(admitted, &params).await;
            }
            Command::RunStdin(_) | Command::RunResize(_) | Command::RunStop(_) | Command::RunScreen(_) => {
                self.run_command(admitted).await;
            }
            // These arms stand before those for agents: clients of a program in a terminal may use an agent's
            // commands for it.
            Command::Prompt(_) | Command::Steer(_) | Command::FollowUp(_) if self.is_run() => {
                self.prompt_run(admitted);
            }
            // Ctrl-C is what a person would press; the program decides whether it ends.
            Command::Abort(_) if self.is_run() => {
                self.run_stop(admitted, &RunStopParams { signal: Some(RunSignal::Int), actor: None });
            }
            Command::GetState(_) => {
                let state = self.state();
                self.answer_with(admitted, &state);
            }
            Command::QueueSet(_) => self.enqueue_queue_edit(admitted),
            Command::InputResponse(params) => self.input_response(params.clone(), admitted).await,
            Command::SessionClose(_) => self.close(admitted).await,
            Command::SessionDelete(_) => self.delete(admitted).await,
            Command::SessionRestart(_) => self.restart(admitted).await,
            Command::Abort(_) => self.abort(admitted),
            Command::Delegate(_) | Command::DelegateCancel(_) => {
                let error = ErrorCode::Unsupported.with("Delegation is not available on this runner yet");
                self.finish(admitted, Err(error.into()));
            }
            // The hub answers these itself; a local client that sends one is told.
            Command::SessionDetach(_)
            | Command::GetMessages(_)
            | Command::ListSessions(_)
            | Command::GetRunners(_)
            | Command::Search(_) => {
                let error = ErrorCode::Unsupported.with(format!(
                    "'{}' is answered by the hub, not by a runner",
                    admitted.command.spec().name
                ));
                self.finish(admitted, Err(error.into()));
            }
            _ => self.execute_on_agent(admitted),
        }
    }

    /// How the session and its process stand.
    pub(super) fn state(&mut self) -> SessionState {
        let mut state = self.session.state();
        state.process = self.process_stats();
        state
    }

    /// What only programs in terminals can do; an agent can at least be stopped.
    async fn run_command(&mut self, admitted: AdmittedCommand) {
        let command = admitted.command.clone();
        match &command {
            Command::RunStdin(params) => self.run_stdin(admitted, params),
            Command::RunResize(params) => self.run_resize(admitted, *params),
            Command::RunStop(params) if self.is_run() => self.run_stop(admitted, params),
            Command::RunStop(RunStopParams { signal: Some(RunSignal::Int), .. }) => self.abort(admitted),
            Command::RunStop(_) => self.close(admitted).await,
            _ => self.run_screen(admitted).await,
        }
    }

    /// Commands that need a living agent; it is started for them where that makes sense.
    pub(super) fn execute_on_agent(&mut self, admitted: AdmittedCommand) {
        if let Some(Err(error)) = prompt_text(&admitted.command).map(|text| self.check_input(text)) {
            return self.finish(admitted, Err(error.into()));
        }
        match (self.agent.state, self.session.status()) {
            (AgentState::Ready, _) => {}
            // Closing is a decision of a person; a prompt does not undo it, only `session.restart` does.
            (AgentState::None, SessionStatus::Closed) => {
                return self.finish(admitted, Err(self.closed().into()));
            }
            // Starting an agent in order to abort it would be absurd.
            (AgentState::None, _) if is_abort(&admitted.command) => {
                return self.finish(admitted, Err(self.not_running().into()));
            }
            _ => return self.park_until_ready(admitted),
        }
        if let Err(error) = self.admit_provider_call(admitted.token(), &admitted.command) {
            return self.finish(admitted, Err(error.into()));
        }
        // Prompts go through the queue machine, which gives the agent one at a time; anything else may overtake them.
        if admitted.command.spec().is_input() {
            self.enqueue_prompt(admitted);
        } else {
            self.write_request_to_agent(admitted, None);
        }
    }

    pub(super) fn closed(&self) -> CodedError {
        let session_id = &self.session.identity().session_id;
        ErrorCode::SessionClosed
            .with(format!("Session '{session_id}' is closed; session.restart opens it again"))
    }

    pub(super) fn not_running(&self) -> CodedError {
        let why = self.session.error().unwrap_or("it is not started");
        ErrorCode::AgentGone.with(format!(
            "Session '{}' has no running agent ({why}); a prompt or session.restart starts it",
            self.session.identity().session_id
        ))
    }

    /// Gives the agent a command that is no prompt; the result comes back as an input.
    fn write_request_to_agent(&mut self, admitted: AdmittedCommand, request: Option<AgentRequest>) {
        let Some(handle) = self.handle() else {
            let error = self.not_running();
            return self.finish(admitted, Err(error.into()));
        };
        let is_abort = request.as_ref().is_some_and(|request| matches!(request, AgentRequest::Abort));
        // Written here and not in the task, so that commands reach the agent in the order they came.
        let sent = match request.map(|request| handle.send_request(request)).transpose() {
            Ok(sent) => sent,
            Err(failure) => return self.finish(admitted, Err(failure)),
        };
        let (token, command) = (admitted.token(), admitted.command.clone());
        let native = admitted.incoming.native;
        // From here on the agent may be in either conversation, until it answers.
        if is_move(&command) {
            self.session.move_begun();
        }
        self.commands.put(admitted);
        let work = if is_abort { AgentWork::Abort } else { AgentWork::Request };
        self.notify_queue(QueueInput::Running { token, work });
        self.spawn_input(async move {
            let result = match sent {
                Some(sent) => sent.reply().await.map(|_| ExecutedCommand::default()),
                None => handle.execute(&command, native).await,
            };
            SessionInput::Executed { token, result: Box::new(result) }
        });
    }

    /// The agent is done with a command.
    pub(super) fn executed(&mut self, token: SubmissionToken, result: ExecuteResult) {
        // Our own refusals say nothing about the agent.
        if result.as_ref().err().is_none_or(|failure| failure.is_reply) {
            self.agent.health.answered();
        }
        let Some(work) = self.commands.queue().work_of(token) else { return };
        if let AgentWork::Delivery { turns_before } = work {
            return self.undelivered_answered(token, turns_before, result);
        }
        let Some(admitted) = self.commands.take(token) else { return };
        match work {
            // If a turn began in between, the agent's word that it handled the prompt is out of date.
            AgentWork::Prompt { turns_before } => self.prompt_answered(admitted, turns_before, result),
            AgentWork::QueueEdit => self.queue_given_back(admitted, result),
            AgentWork::Request | AgentWork::Abort | AgentWork::Start | AgentWork::Delivery { .. } => {
                self.request_answered(admitted, result);
            }
        }
    }

    fn request_answered(&mut self, admitted: AdmittedCommand, result: ExecuteResult) {
        let token = admitted.token();
        self.notify_queue(QueueInput::Answered { token, answer: AgentAnswer::Done });
        if result.is_ok() {
            self.call_succeeded(token, &admitted.command);
        }
        // Effects become events before the answer is written, so that a client that has the answer has the events
        // too.
        let result = result.map(|executed| {
            executed.effects.into_iter().for_each(|effect| self.apply(effect));
            executed.data
        });
        if is_move(&admitted.command) {
            self.session.move_over();
        }
        let result = result.map(|data| data.or_else(|| stopped(&admitted.command)));
        let result = result.and_then(|data| data.as_ref().map(json_text).transpose());
        self.finish(admitted, result);
    }

    pub(super) fn apply(&mut self, effect: CommandEffect) {
        let now = now_ms();
        match effect {
            CommandEffect::Facts(facts) => self.session.learn(now, facts, &mut self.out),
            CommandEffect::AutoCompaction(enabled) => self.session.set_auto_compaction(enabled),
            CommandEffect::AutoRetry(enabled) => self.session.set_auto_retry(enabled),
            CommandEffect::Title(title) => self.session.title_changed(now, title, &mut self.out),
            CommandEffect::Added(messages) => self.session.add_messages(now, messages, &mut self.out),
            CommandEffect::Warning(message) => {
                self.session.notify(now, NotifyLevel::Warning, message, &mut self.out)
            }
            CommandEffect::Conversation { native_session_id, native_session_file, messages, queue } => {
                let (session, out) = (&mut self.session, &mut self.out);
                session.replace_conversation(now, native_session_id, native_session_file, messages, out);
                session.leave_queue_behind(now, queue, out);
            }
        }
    }

    fn create(&mut self, admitted: AdmittedCommand) {
        // The second creation of a name may come while the first is still starting its agent.
        if self.exists || self.commands.queue().is_agent_awaited() {
            let error = ErrorCode::SessionExists.with(format!(
                "Session '{}' already exists; session.attach joins it",
                self.session.identity().session_id
            ));
            return self.finish(admitted, Err(error.into()));
        }
        let refused = self.refusal.clone().map_or(Ok(()), Err);
        if let Err(error) = session_row::check_cwd_of(&self.config).and(refused) {
            return self.finish(admitted, Err(error.into()));
        }
        self.await_start(admitted);
        if self.config.worktree.is_some() {
            self.make_worktree();
        } else {
            self.start_agent();
        }
    }

    async fn input_response(&mut self, params: InputResponseParams, admitted: AdmittedCommand) {
        let params = &params;
        if let Err(error) = self.check_answer(&admitted, params) {
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        if self.is_answer_hidden() {
            // Before the answer is recorded, which would keep what was typed.
            self.session.mark_secret(&params.request_id);
        }
        let now = now_ms();
        // The agent gets the answer before it is recorded as given: if writing fails, the question must still be open.
        let passed_on = match self.session.answered_by(now, params) {
            Ok(answered) => self.pass_answer_to_agent(params, answered),
            Err(error) => Err(CodedError::from(error).into()),
        };
        if let Err(failure) = &passed_on
            && !failure.lost
        {
            // The agent does not have it: the question stays open.
            return self.finish(admitted, passed_on.map(|()| None));
        }
        let user = admitted.incoming.principal.clone();
        let answered = match self.session.answer(now, params, Some(&user), &mut self.out) {
            Ok(answered) => answered,
            Err(error) => return self.finish(admitted, Err(CodedError::from(error).into())),
        };
        match answered.source() {
            PermissionSource::Gate => {
                self.finish(admitted, Ok(None));
                self.gate_answered(&params.request_id, answered).await;
            }
            PermissionSource::Screen => self.answer_screen(admitted, params, &answered),
            PermissionSource::Agent => self.finish(admitted, passed_on.map(|()| None)),
        }
    }

    /// Passes an answer on, if it is the agent that asked.
    fn pass_answer_to_agent(&self, params: &InputResponseParams, answered: SettledAnswer) -> AgentResult<()> {
        if answered.source() != PermissionSource::Agent {
            return Ok(());
        }
        let handle = self.handle().ok_or_else(|| self.not_running())?;
        handle.send_without_reply(AgentRequest::Answer {
            request_id: params.request_id.clone(),
            answer: answered.answer,
        })
    }

    /// Whether the question is still there, and this person may answer it so.
    fn check_answer(
        &mut self,
        admitted: &AdmittedCommand,
        params: &InputResponseParams,
    ) -> Result<(), CodedError> {
        self.take_available_output();
        if self.is_screen_stale(&params.request_id) {
            // What is typed goes to whatever asks by now, so it must be what the person has read.
            self.update_screen_question(now_ms());
            if !self.session.is_open_question(&params.request_id) {
                refuse!(
                    QuestionNotFound,
                    "the program no longer asks this question; read its screen again before you answer"
                );
            }
        }
        let incoming = &admitted.incoming;
        // Who may skip the gate could have made the call without asking, so approving one's own loses nothing.
        let may_skip = self.shared.config.services.skips_gate(incoming.rights);
        let asker = self.session.gate_let_through(params).and_then(|details| details.principal.as_deref());
        // A foreign server has one name for all its people, and sees to it itself who of them approves.
        let is_many = incoming.principal == FOREIGN_SERVER && incoming.connection == FOREIGN_SERVER;
        if !may_skip && !is_many && asker == Some(incoming.principal.as_str()) {
            refuse!(PermissionDenied, "you requested this yourself, so another person has to approve it");
        }
        Ok(())
    }

    fn abort(&mut self, admitted: AdmittedCommand) {
        if self.agent.state != AgentState::Ready {
            return self.finish(admitted, Err(self.not_running().into()));
        }
        // Before the abort: an agent that waits for an answer would not get to hear of it.
        self.cancel_questions();
        self.session.abort_requested();
        self.write_request_to_agent(admitted, Some(AgentRequest::Abort));
    }

    async fn close(&mut self, admitted: AdmittedCommand) {
        let data = stopped(&admitted.command).as_ref().map(json_text).transpose();
        // Calls that wait for approval are answered before the session ends, or their askers would wait for ever.
        self.withdraw_gates().await;
        if self.session.status() != SessionStatus::Closed {
            self.stop_agent(AgentEnd::Closed { reason: "closed by a client".to_owned() }).await;
            self.forget_bash_circuit();
        }
        self.finish(admitted, data);
    }

    async fn restart(&mut self, admitted: AdmittedCommand) {
        self.stop_agent(AgentEnd::Stopped).await;
        self.await_start(admitted);
        self.start_agent();
    }

    /// Lets a command wait for the agent to be ready, which then is its answer.
    fn await_start(&mut self, admitted: AdmittedCommand) {
        let token = admitted.token();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::Running { token, work: AgentWork::Start });
    }

    async fn delete(&mut self, admitted: AdmittedCommand) {
        self.withdraw_gates().await;
        self.stop_agent(AgentEnd::Closed { reason: "deleted by a client".to_owned() }).await;
        self.forget_bash_circuit();
        let session_id = self.session.identity().session_id.clone();
        if let Err(error) = self.shared.store.delete_session(&session_id).await {
            // It lives on, closed: what it has said is stored and sent as always.
            let error =
                ErrorCode::StoreUnavailable.with(format!("The session could not be deleted: {error}"));
            return self.finish(admitted, Err(error.into()));
        }
        // Told but not stored: nothing of this session is kept.
        let last_words = std::mem::take(&mut self.out);
        self.send(last_words).await;
        self.shared.hub_delivery.forget(&session_id);
        // Gone from the store before it is confirmed; what still waits is refused without a trace.
        self.exists = false;
        self.finished = true;
        self.remove_private_directory();
        self.finish(admitted, Ok(None));
    }

    pub(super) fn answer_with<T: Serialize>(&mut self, admitted: AdmittedCommand, data: &T) {
        self.finish(admitted, json_text(data).map(Some));
    }
}

/// `data` of a response, serialised once.
pub(super) fn json_text<T: Serialize>(data: &T) -> AgentResult<Arc<str>> {
    serde_json::to_string(data)
        .map(Arc::from)
        .map_err(|error| ErrorCode::Internal.with(error.to_string()).into())
}

/// The beginning of what a command says, without its secrets, for a person who must recognise it.
pub(super) fn command_preview(command: &Command) -> String {
    const CHARACTERS_MAX: usize = 81;
    // Enough that a secret which begins within what is shown is seen whole.
    const BYTES_MAX: usize = 8 * 1024;
    let Some(message) = prompt_text(command) else { return String::new() };
    text::shorten(&redact(&message[..message.floor_char_boundary(BYTES_MAX)]), CHARACTERS_MAX)
}

/// The answer of a `run.stop` that has stopped an agent.
fn stopped(command: &Command) -> Option<serde_json::Value> {
    let Command::RunStop(params) = command else { return None };
    serde_json::to_value(RunStopData { signal: params.signal.unwrap_or_default() }).ok()
}

/// Whether a command ends something: without an agent there is nothing to end.
pub(super) fn is_abort(command: &Command) -> bool {
    command.spec().is_abort()
}

/// Whether a command takes the agent to another conversation.
fn is_move(command: &Command) -> bool {
    command.spec().is_move()
}

#[cfg(test)]
#[path = "commands/commands_tests.rs"]
mod tests;
