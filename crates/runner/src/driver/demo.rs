//! The demo agent inside the runner: the pure script machine with a clock.

use std::time::Duration;

use qd_core::agent::{AgentEvent, AgentRequest};
use qd_core::harness::demo::{self, DemoAgent};
use qd_core::session::AgentFacts;
use qd_wire::Command;
use qd_wire::data::{ModelInfo, ModelRef, ModelsData, QueueState, StatsData};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{AgentFailure, Effect, Executed, Progress, to_value};
use crate::clock::now_ms;

/// Requests that may wait for the demo; it answers at once, so few are enough.
const REQUESTS_MAX: usize = 256;

struct DemoRequest {
    request: AgentRequest,
    reply: oneshot::Sender<Result<Value, AgentFailure>>,
}

/// The demo agent and its mailbox.
pub struct DemoDriver {
    agent: DemoAgent,
    requests: mpsc::Receiver<DemoRequest>,
    sender: mpsc::Sender<DemoRequest>,
}

/// Asks the demo agent.
#[derive(Clone)]
pub struct DemoHandle(mpsc::Sender<DemoRequest>);

impl Default for DemoDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl DemoDriver {
    pub fn new() -> Self {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        DemoDriver { agent: DemoAgent::default(), requests, sender }
    }

    pub fn handle(&self) -> DemoHandle {
        DemoHandle(self.sender.clone())
    }

    /// Waits for a request or for the script's next step.
    pub async fn next(&mut self, events: &mut Vec<AgentEvent>) -> Progress {
        let request = match self.agent.next_wake() {
            None => self.requests.recv().await,
            Some(at) => {
                let wait = Duration::from_millis(u64::try_from(at - now_ms()).unwrap_or(0));
                tokio::select! {
                    biased;
                    request = self.requests.recv() => request,
                    () = tokio::time::sleep(wait) => None,
                }
            }
        };
        if let Some(DemoRequest { request, reply }) = request {
            let result = self.take(request, events);
            // The asker may have given up; the request has taken effect all the same.
            let _ = reply.send(result.map_err(AgentFailure::replied));
        }
        self.agent.advance(now_ms(), events);
        Progress::Events
    }

    fn take(&mut self, request: AgentRequest, events: &mut Vec<AgentEvent>) -> Result<Value, String> {
        let now = now_ms();
        match request {
            AgentRequest::Prompt { message, when_busy, images: _ } => {
                self.agent.prompt(now, message, when_busy, events)?;
            }
            AgentRequest::Abort => self.agent.abort(events),
            AgentRequest::ClearQueue => {
                let QueueState { steering, follow_up } = self.agent.clear_queue(events);
                return Ok(json!({ "steering": steering, "followUp": follow_up }));
            }
            AgentRequest::Answer { request_id, answer } => self.agent.answer(now, &request_id, &answer),
            AgentRequest::GetState => {}
            AgentRequest::GetStats => return to_value(&self.stats()),
            AgentRequest::GetLastAssistantText => return Ok(json!({ "text": self.agent.last_answer() })),
            other => return Err(format!("The demo agent cannot do this: {other:?}")),
        }
        Ok(Value::Null)
    }

    fn stats(&self) -> StatsData {
        let stats = self.agent.stats;
        StatsData {
            user_messages: stats.prompts,
            assistant_messages: stats.answers,
            tool_calls: stats.tool_calls,
            tool_results: stats.tool_calls,
            total_messages: stats.prompts + stats.answers + stats.tool_calls,
            ..StatsData::default()
        }
    }
}

/// An answer on its way.
pub struct DemoReceiver(oneshot::Receiver<Result<Value, AgentFailure>>);

impl DemoReceiver {
    pub async fn reply(self) -> Result<Value, AgentFailure> {
        self.0.await.unwrap_or_else(|_| Err(AgentFailure::lost("The demo agent is gone")))
    }
}

impl DemoHandle {
    pub fn begin(&self, request: AgentRequest) -> Result<DemoReceiver, AgentFailure> {
        let (reply, answer) = oneshot::channel();
        match self.0.try_send(DemoRequest { request, reply }) {
            Ok(()) => Ok(DemoReceiver(answer)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(AgentFailure::refused("The demo agent is busy")),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(AgentFailure::refused("The demo agent is gone")),
        }
    }

    /// Runs a command of a client.
    pub(super) async fn execute(&self, command: &Command) -> Result<Executed, AgentFailure> {
        let data = match command {
            Command::GetCommands(_) => to_value(&demo::commands())?,
            Command::GetModels(_) => to_value(&models())?,
            Command::GetStats(_) => self.begin(AgentRequest::GetStats)?.reply().await?,
            Command::GetForkPoints(_) => json!({ "fork_points": [] }),
            Command::AbortRetry(_) | Command::AbortCompaction(_) | Command::AbortBash(_) => {
                return Ok(Executed::default());
            }
            Command::GetSkills(_) => json!({ "skills": [] }),
            Command::GetTools(_) => json!({ "tools": [] }),
            Command::ListSessionFiles(_) => json!({ "files": [] }),
            // The session has the messages; the demo has no form of its own for them.
            Command::GetNativeMessages(_) | Command::GetContextUsage(_) => Value::Null,
            Command::GetLastAssistantText(_) => {
                self.begin(AgentRequest::GetLastAssistantText)?.reply().await?
            }
            Command::GetTree(_) => json!({ "current_leaf_id": null, "nodes": [] }),
            Command::SetSessionName(params) => {
                return Ok(Executed::with_effect(Effect::Title(super::session_name(&params.name)?)));
            }
            other => return Err(refused(other)),
        };
        Ok(Executed::with_data(data))
    }
}

/// What the demo agent does not have, by name.
fn refused(command: &Command) -> AgentFailure {
    let missing = match command {
        Command::Bash(_) => "shell",
        Command::ExportHtml(_) => "pages to export",
        Command::NavigateTree(_) => "session tree",
        other => {
            return AgentFailure::refused(format!("The demo agent does not support '{}'", other.spec().name));
        }
    };
    AgentFailure::refused(format!("The demo agent has no {missing}"))
}

/// What the demo agent says of itself.
pub fn facts() -> AgentFacts {
    AgentFacts {
        model: Some(ModelRef { provider: "demo".to_owned(), model_id: "demo-1".to_owned() }),
        ..AgentFacts::default()
    }
}

fn models() -> ModelsData {
    let model = ModelInfo {
        provider: "demo".to_owned(),
        model_id: "demo-1".to_owned(),
        name: Some("Demo".to_owned()),
        reasoning: None,
        context_window: None,
        max_tokens: None,
        thinking_levels: None,
    };
    ModelsData { models: vec![model] }
}
