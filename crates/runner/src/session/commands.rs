//! What each command does.

use qd_core::agent::{AgentRequest, Image, WhenBusy};
use qd_core::ledger::Token;
use qd_core::session::{ExpectedPrompt, Gone};
use qd_wire::Command;
use qd_wire::command::{ImageAttachment, InputResponseParams, StreamingBehavior};
use qd_wire::data::SessionStatus;
use serde::Serialize;
use serde_json::Value;

use super::SessionInput;
use super::actor::{AgentState, SessionActor};
use super::admit::Admitted;
use crate::clock::now_ms;
use crate::driver::{Effect, Executed};

/// A prompt for the agent, whatever command it came by.
struct Input {
    message: String,
    images: Option<Vec<ImageAttachment>>,
    client_id: Option<String>,
    when_busy: Option<WhenBusy>,
}

impl SessionActor {
    /// Carries out a command whose turn it is.
    pub(super) async fn execute(&mut self, admitted: Admitted) {
        match &admitted.command {
            Command::SessionCreate(_) => self.create(admitted).await,
            Command::SessionAttach(params) => {
                let attach = self.session.attach(params.after);
                self.answer_with(admitted, &attach).await;
            }
            Command::GetState(_) => {
                let mut state = self.session.state();
                state.process = self.driver.as_ref().and_then(crate::driver::Driver::stats);
                self.answer_with(admitted, &state).await;
            }
            Command::InputResponse(params) => {
                let params = params.clone();
                self.input_response(admitted, &params).await;
            }
            Command::SessionClose(_) => self.close(admitted).await,
            Command::SessionDelete(_) => self.delete(admitted).await,
            Command::SessionRestart(_) => self.restart(admitted).await,
            Command::Abort(_) => self.abort(admitted).await,
            Command::Delegate(_) | Command::DelegateCancel(_) => {
                let error = "Delegation is not available on this runner yet".to_owned();
                self.finish(admitted, Err(error)).await;
            }
            Command::SessionDetach(_)
            | Command::GetMessages(_)
            | Command::ListSessions(_)
            | Command::GetRunners(_)
            | Command::Search(_) => {
                let error =
                    format!("'{}' is answered by the hub, not by a runner", admitted.command.spec().name);
                self.finish(admitted, Err(error)).await;
            }
            _ => self.ask_agent(admitted).await,
        }
    }

    /// Commands that need a living agent; it is started for them where that makes sense.
    async fn ask_agent(&mut self, admitted: Admitted) {
        match (self.agent, self.session.status()) {
            (AgentState::Ready, _) => {}
            (AgentState::None, SessionStatus::Closed) => {
                let error = format!(
                    "Session '{}' is closed; session.restart opens it again",
                    self.session.identity().session_id
                );
                return self.finish(admitted, Err(error)).await;
            }
            (AgentState::None, _) if matches!(admitted.command, Command::AbortRetry(_)) => {
                return self.finish(admitted, Err(self.not_running())).await;
            }
            _ => return self.park(admitted),
        }
        match input_of(&admitted.command) {
            Some(input) => self.prompt(admitted, input).await,
            None => self.run_on_agent(admitted, None),
        }
    }

    fn not_running(&self) -> String {
        let why = self.session.error().unwrap_or("it is not started");
        format!(
            "Session '{}' has no running agent ({why}); a prompt or session.restart starts it",
            self.session.identity().session_id
        )
    }

    async fn prompt(&mut self, admitted: Admitted, input: Input) {
        if self.session.is_working() && input.when_busy.is_none() {
            let error = "The agent is working. Set streaming_behavior to \"steer\" (read before its next step) or \
                         \"follow_up\" (read when it is done), or abort first.";
            return self.finish(admitted, Err(error.to_owned())).await;
        }
        let images = input.images.unwrap_or_default().into_iter();
        let request = AgentRequest::Prompt {
            message: input.message.clone(),
            images: images.map(|image| Image { data: image.data, media_type: image.media_type }).collect(),
            when_busy: input.when_busy,
        };
        self.session.expect_prompt(ExpectedPrompt {
            text: input.message,
            client_id: input.client_id,
            user_id: Some(admitted.incoming.principal.clone()).filter(|user| !user.is_empty()),
        });
        self.run_on_agent(admitted, Some(request));
    }

    /// Lets the agent work on it; the result comes back as an input.
    fn run_on_agent(&mut self, admitted: Admitted, request: Option<AgentRequest>) {
        let Some(handle) = self.handle() else { return self.park(admitted) };
        let (token, sender, command) = (admitted.token(), self.sender.clone(), admitted.command.clone());
        let busy = self.session.is_working();
        self.running.insert(token, admitted);
        tokio::spawn(async move {
            let result = match request {
                Some(prompt @ AgentRequest::Prompt { .. }) => handle.prompt(prompt, busy).await,
                Some(request) => handle.request(request).await.map(|_| Executed::default()),
                None => handle.execute(&command).await,
            };
            if sender.send(SessionInput::Executed { token, result: Box::new(result) }).await.is_err() {
                tracing::debug!(token, "a session ended while its agent worked for it");
            }
        });
    }

    /// The agent is done with a command.
    pub(super) async fn executed(&mut self, token: Token, result: Result<Executed, String>) {
        let Some(admitted) = self.running.remove(&token) else { return };
        if matches!(admitted.command, Command::Abort(_)) {
            self.aborts = self.aborts.saturating_sub(1);
        }
        let result = result.map(|executed| {
            for effect in executed.effects {
                self.apply(effect);
            }
            executed.data
        });
        self.finish(admitted, result).await;
    }

    fn apply(&mut self, effect: Effect) {
        let now = now_ms();
        match effect {
            Effect::Facts(facts) => self.session.learn(now, facts, &mut self.out),
            Effect::AutoCompaction(enabled) => self.session.set_auto_compaction(enabled),
            Effect::AutoRetry(enabled) => self.session.set_auto_retry(enabled),
            Effect::Title(title) => self.session.title_changed(now, title, &mut self.out),
            Effect::Conversation { native_session_id, native_session_file, messages } => self
                .session
                .replace_conversation(now, native_session_id, native_session_file, messages, &mut self.out),
        }
    }

    async fn create(&mut self, admitted: Admitted) {
        if self.exists || self.creating.is_some() {
            let error = format!(
                "Session '{}' already exists; session.attach joins it",
                self.session.identity().session_id
            );
            return self.finish(admitted, Err(error)).await;
        }
        self.creating = Some(admitted.token());
        self.running.insert(admitted.token(), admitted);
        self.start_agent();
    }

    async fn input_response(&mut self, admitted: Admitted, params: &InputResponseParams) {
        let user = admitted.incoming.principal.clone();
        let answer = match self.session.answer(now_ms(), params, Some(&user), &mut self.out) {
            Ok(answer) => answer,
            Err(error) => return self.finish(admitted, Err(error.to_string())).await,
        };
        let Some(handle) = self.handle() else {
            return self.finish(admitted, Err(self.not_running())).await;
        };
        let request = AgentRequest::Answer { request_id: params.request_id.clone(), answer };
        let result = handle_tell(&handle, request).await;
        self.finish(admitted, result).await;
    }

    async fn abort(&mut self, admitted: Admitted) {
        if self.agent != AgentState::Ready {
            return self.finish(admitted, Err(self.not_running())).await;
        }
        self.aborts += 1;
        self.cancel_questions().await;
        self.session.abort_requested();
        self.run_on_agent(admitted, Some(AgentRequest::Abort));
    }

    async fn close(&mut self, admitted: Admitted) {
        if self.session.status() == SessionStatus::Closed {
            return self.finish(admitted, Ok(None)).await;
        }
        self.stop_agent(Gone::Closed { reason: "closed by a client".to_owned() }).await;
        self.finish(admitted, Ok(None)).await;
    }

    async fn restart(&mut self, admitted: Admitted) {
        self.stop_agent(Gone::Stopped).await;
        // Runs again when the agent is ready, which then is the answer.
        let token = admitted.token();
        self.running.insert(token, admitted);
        self.creating = Some(token);
        self.start_agent();
    }

    async fn delete(&mut self, admitted: Admitted) {
        self.stop_agent(Gone::Closed { reason: "deleted by a client".to_owned() }).await;
        self.finished = true;
        self.finish(admitted, Ok(None)).await;
        self.publish().await;
        let session_id = self.session.identity().session_id.clone();
        if let Err(error) = self.shared.store.delete_session(&session_id).await {
            tracing::error!(%error, session_id, "a deleted session is still in the store");
        }
        self.forget_directory();
        // What still waits is refused without a trace: the session is gone from the store.
        self.exists = false;
    }

    async fn answer_with<T: Serialize>(&mut self, admitted: Admitted, data: &T) {
        let result = serde_json::to_value(data).map(Some).map_err(|error| error.to_string());
        self.finish(admitted, result).await;
    }
}

async fn handle_tell(
    handle: &crate::driver::DriverHandle,
    request: AgentRequest,
) -> Result<Option<Value>, String> {
    handle.tell(request).await.map(|()| None)
}

/// The prompt in a command, if it is one. Steering an idle agent starts it, so all three are prompts.
fn input_of(command: &Command) -> Option<Input> {
    let (message, images, client_id, when_busy) = match command {
        Command::Prompt(params) => {
            let when_busy = params.streaming_behavior.map(|behavior| match behavior {
                StreamingBehavior::Steer => WhenBusy::Steer,
                StreamingBehavior::FollowUp => WhenBusy::FollowUp,
            });
            (&params.message, &params.images, &params.client_id, when_busy)
        }
        Command::Steer(params) => (&params.message, &params.images, &params.client_id, Some(WhenBusy::Steer)),
        Command::FollowUp(params) => {
            (&params.message, &params.images, &params.client_id, Some(WhenBusy::FollowUp))
        }
        _ => return None,
    };
    Some(Input { message: message.clone(), images: images.clone(), client_id: client_id.clone(), when_busy })
}
