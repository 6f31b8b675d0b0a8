//! The agent of a session: started when needed, listened to, stopped.

use std::collections::HashSet;

use qd_core::agent::{AgentEvent, AgentRequest, Answer};
use qd_core::harness::pi::has_stable_id;
use qd_core::session::{AgentUp, Gone};
use qd_wire::data::SessionCreatedData;

use super::actor::{AgentSlot, AgentState, SessionActor};
use super::admit::Admitted;
use super::{SessionInput, row};
use crate::clock::now_ms;
use crate::driver::pi::BRIDGE_FILE;
use crate::driver::{self, Driver, Progress};

impl SessionActor {
    /// Starts the agent unless it is there or on its way.
    pub(super) fn start_agent(&mut self) {
        if self.agent != AgentState::None {
            return;
        }
        self.agent = AgentState::Starting;
        self.generation += 1;
        self.session.starting(now_ms(), &mut self.out);
        let request = match AgentSlot::take(&self.shared) {
            Ok(slot) => {
                self.slot = Some(slot);
                row::start_request(&self.session, &self.config, self.bridge)
            }
            Err(error) => Err(error),
        };
        let (shared, sender, generation) = (self.shared.clone(), self.sender.clone(), self.generation);
        tokio::spawn(async move {
            let result = match request {
                Ok(request) => driver::start(&shared.config, request).await,
                Err(error) => Err(error),
            };
            let input = SessionInput::Started { generation, result: Box::new(result) };
            if let Err(unsent) = sender.send(input).await
                && let SessionInput::Started { result, .. } = unsent.0
                && let Ok(driver) = *result
            {
                // The session ended meanwhile; nobody else would stop this agent.
                driver.close().await;
            }
        });
    }

    pub(super) async fn agent_started(&mut self, generation: u32, result: Result<Driver, String>) {
        match result {
            Ok(driver) if generation != self.generation || self.agent != AgentState::Starting => {
                driver.close().await
            }
            Ok(driver) => {
                let handle = driver.handle();
                self.driver = Some(driver);
                let sender = self.sender.clone();
                tokio::spawn(async move {
                    let result = Box::new(handle.prepare().await);
                    if sender.send(SessionInput::Prepared { generation, result }).await.is_err() {
                        tracing::debug!("a session ended while its agent came up");
                    }
                });
            }
            Err(error) if generation == self.generation => self.agent_failed(error).await,
            Err(_) => {}
        }
    }

    pub(super) async fn agent_prepared(&mut self, generation: u32, result: Result<AgentUp, String>) {
        if generation != self.generation || self.agent != AgentState::Starting {
            return;
        }
        let mut up = match result {
            Ok(up) => up,
            Err(error) => {
                if let Some(driver) = self.driver.take() {
                    driver.close().await;
                }
                return self.try_without_bridge(error).await;
            }
        };
        let known = match self.shared.store.message_index(&self.session.identity().session_id).await {
            Ok(index) => index.into_iter().map(|(_, id)| id).collect::<HashSet<_>>(),
            Err(error) => return self.agent_failed(error.to_string()).await,
        };
        if self.exists {
            up.conversation.retain(has_stable_id);
        }
        let resumed = self.exists || !up.conversation.is_empty();
        self.exists = true;
        self.agent = AgentState::Ready;
        self.session.ready(now_ms(), resumed, up, &known, &mut self.out);
        if let Some(title) = self.config.title.clone().filter(|_| self.session.memory().title.is_none()) {
            self.session.title_changed(now_ms(), title, &mut self.out);
        }
        self.start_heartbeat();
        self.answer_create(Ok(())).await;
        for admitted in std::mem::take(&mut self.parked) {
            self.execute(admitted).await;
        }
    }

    /// Our own extension must never keep an agent from starting: once more without it.
    async fn try_without_bridge(&mut self, error: String) {
        if !self.bridge || !error.contains(BRIDGE_FILE) {
            return self.agent_failed(error).await;
        }
        self.bridge = false;
        self.agent = AgentState::None;
        self.slot = None;
        let message = format!("The bridge extension failed, so phases are less fine: {error}");
        tracing::warn!(message);
        self.start_agent();
    }

    /// The agent could not be started.
    async fn agent_failed(&mut self, error: String) {
        self.agent = AgentState::None;
        self.slot = None;
        self.generation += 1;
        if self.exists {
            self.session.gone(now_ms(), Gone::Died { error: error.clone() }, &mut self.out);
        }
        let parked = std::mem::take(&mut self.parked);
        self.answer_create(Err(error.clone())).await;
        for admitted in parked {
            self.finish(admitted, Err(error.clone())).await;
        }
        // A session that never came up leaves nothing behind but the answer.
        self.finished = !self.exists;
        if self.finished {
            self.forget_directory();
        }
    }

    async fn answer_create(&mut self, result: Result<(), String>) {
        let Some(admitted) = self.creating.take().and_then(|token| self.running.remove(&token)) else {
            return;
        };
        let result = result.and_then(|()| {
            let data = SessionCreatedData {
                session_id: self.session.identity().session_id.clone(),
                attach: self.session.attach(None),
            };
            serde_json::to_value(&data).map(Some).map_err(|error| error.to_string())
        });
        self.finish(admitted, result).await;
    }

    /// Takes what the agent did.
    pub(super) async fn agent_progress(&mut self, progress: Progress, events: &mut Vec<AgentEvent>) {
        let now = now_ms();
        let mut settled = false;
        for event in events.drain(..) {
            settled |= matches!(event, AgentEvent::TurnSettled { .. });
            self.session.agent_event(now, event, &mut self.out);
        }
        if self.aborts > 0 {
            self.cancel_questions().await;
        }
        if settled {
            self.refresh_facts();
        }
        if let Progress::Gone { error } = progress {
            self.driver = None;
            self.next_heartbeat = 0;
            // While it is coming up, the failed preparation tells the whole story.
            if self.agent == AgentState::Ready {
                self.agent = AgentState::None;
                self.slot = None;
                self.generation += 1;
                self.session.gone(now, Gone::Died { error }, &mut self.out);
            }
        }
    }

    /// An agent that waits for an answer cannot be aborted: every open question is cancelled first.
    pub(super) async fn cancel_questions(&mut self) {
        let ids = self.session.open_question_ids();
        if ids.is_empty() {
            return;
        }
        self.session.withdraw_questions(now_ms(), &mut self.out);
        let Some(handle) = self.handle() else { return };
        for request_id in ids {
            let answer = AgentRequest::Answer { request_id, answer: Answer::Cancelled };
            if let Err(error) = handle.tell(answer).await {
                tracing::warn!(%error, "a question could not be cancelled");
            }
        }
    }

    /// Some changes have no event (model, name, file); a finished turn is a good moment to look.
    fn refresh_facts(&self) {
        let Some(handle) = self.handle() else { return };
        let (sender, generation) = (self.sender.clone(), self.generation);
        tokio::spawn(async move {
            // An agent that is gone by now has reported that itself.
            if let Ok(facts) = handle.facts().await {
                let facts = Box::new(facts);
                if sender.send(SessionInput::Facts { generation, facts }).await.is_err() {
                    tracing::debug!("a session ended while its agent was asked");
                }
            }
        });
    }

    /// Ends the agent and tells everybody.
    pub(super) async fn stop_agent(&mut self, gone: Gone) {
        self.generation += 1;
        self.agent = AgentState::None;
        self.slot = None;
        self.next_heartbeat = 0;
        if let Some(driver) = self.driver.take() {
            driver.close().await;
        }
        if self.exists {
            self.session.gone(now_ms(), gone, &mut self.out);
        } else {
            // Nobody but the creator knows of it yet.
            self.answer_create(Err("The session was closed before its agent was ready".to_owned())).await;
            self.forget_directory();
            self.finished = true;
        }
        let parked = std::mem::take(&mut self.parked);
        for admitted in parked {
            self.finish(admitted, Err("The session was closed before its agent was ready".to_owned())).await;
        }
    }

    pub(super) fn park(&mut self, admitted: Admitted) {
        self.parked.push(admitted);
        self.start_agent();
    }

    /// Removes the agent's private directory.
    pub(super) fn forget_directory(&self) {
        let directory = self.shared.config.session_dir(&self.session.identity().session_id);
        if let Err(error) = std::fs::remove_dir_all(&directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(directory = %directory.display(), %error, "a private directory could not be removed");
        }
    }
}
