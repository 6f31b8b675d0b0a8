//! The demo agent inside the runner: the pure script machine with a clock.
//! It needs no process, no model and no network, so it also serves first steps on a machine without an agent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use qd_core::agent::{AgentEvent, AgentRequest};
use qd_core::harness::demo::{self, DemoAgent};
use qd_core::session::{AgentFacts, ReadyAgent};
use qd_wire::data::{ModelInfo, ModelRef, ModelsData, QueueState, StatsData};
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{
    AgentDriver, AgentFailure, AgentFuture, AgentHandle, AgentProgress, AgentResult, BoxFuture,
    CommandEffect, Driver, DriverHandle, ExecuteResult, ExecutedCommand, Harness, HarnessCheck,
    HarnessSettings, SentRequest, StartRequest, session_name, to_value,
};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::process::CloseMode;

/// Requests that may wait for the demo; it answers at once, so few are enough.
const REQUESTS_MAX: usize = 256;

/// The demo in the table of harnesses.
pub struct Demo;

const FIRST_TRY: &str = "qd run --harness demo \"hello\"";

impl Harness for Demo {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn capabilities(&self) -> &'static [&'static str] {
        &["steer", "follow_up"]
    }

    fn start<'a>(
        &'a self,
        _runner: &'a RunnerConfig,
        _settings: &'a HarnessSettings,
        _request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>> {
        Box::pin(std::future::ready(Ok(Box::new(DemoDriver::default()) as Driver)))
    }

    fn doctor<'a>(&'a self, _settings: &'a HarnessSettings) -> BoxFuture<'a, Vec<HarnessCheck>> {
        let check = HarnessCheck { name: "demo", found: format!("built in; try: {FIRST_TRY}"), advice: None };
        Box::pin(std::future::ready(vec![check]))
    }

    fn first_try(&self) -> Option<&'static str> {
        Some(FIRST_TRY)
    }
}

struct DemoRequest {
    request: AgentRequest,
    reply: oneshot::Sender<AgentResult<Value>>,
}

/// The demo agent and its mailbox.
pub struct DemoDriver {
    agent: DemoAgent,
    requests: mpsc::Receiver<DemoRequest>,
    sender: mpsc::Sender<DemoRequest>,
    /// The script's next step, and the sleep until then.
    step: Option<(i64, Pin<Box<tokio::time::Sleep>>)>,
}

/// Asks the demo agent.
#[derive(Clone)]
pub struct DemoHandle(mpsc::Sender<DemoRequest>);

impl Default for DemoDriver {
    fn default() -> Self {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        DemoDriver { agent: DemoAgent::default(), requests, sender, step: None }
    }
}

impl AgentDriver for DemoDriver {
    /// A request, or the script's next step.
    fn poll_next(&mut self, context: &mut Context<'_>, events: &mut Vec<AgentEvent>) -> Poll<AgentProgress> {
        // Requests come first: an abort must not wait for the script's next step.
        match self.requests.poll_recv(context) {
            Poll::Ready(Some(DemoRequest { request, reply })) => {
                let result = self.take(request, events);
                // The asker may have given up; the request has taken effect all the same.
                let _ = reply.send(result.map_err(|error| AgentFailure { is_reply: true, ..error.into() }));
            }
            Poll::Ready(None) | Poll::Pending => ready!(self.poll_step(context)),
        }
        self.agent.advance(now_ms(), events);
        Poll::Ready(AgentProgress::Events)
    }

    fn handle(&self) -> DriverHandle {
        Arc::new(DemoHandle(self.sender.clone()))
    }

    fn close(self: Box<Self>, _how: CloseMode) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl DemoDriver {
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.agent.next_wake() else {
            self.step = None;
            return Poll::Pending;
        };
        // The same sleep is kept across polls; a new one for each would never end while requests keep coming.
        if self.step.as_ref().is_none_or(|step| step.0 != at) {
            let wait = Duration::from_millis(u64::try_from(at - now_ms()).unwrap_or(0));
            self.step = Some((at, Box::pin(tokio::time::sleep(wait))));
        }
        if let Some((_, sleep)) = &mut self.step {
            ready!(sleep.as_mut().poll(context));
        }
        self.step = None;
        Poll::Ready(())
    }

    fn take(&mut self, request: AgentRequest, events: &mut Vec<AgentEvent>) -> Result<Value, CodedError> {
        let now = now_ms();
        match request {
            AgentRequest::Prompt { message, when_busy, images: _ } => {
                self.agent.prompt(now, message, when_busy, events)?;
            }
            AgentRequest::Abort => self.agent.abort(events),
            AgentRequest::ClearQueue => {
                return to_value(&self.agent.clear_queue(events));
            }
            AgentRequest::Answer { request_id, answer } => self.agent.answer(now, &request_id, &answer),
            AgentRequest::GetState => {}
            AgentRequest::GetStats => {
                return to_value(&self.stats());
            }
            AgentRequest::GetLastAssistantText => return Ok(json!({ "text": self.agent.last_answer() })),
            other => refuse!(Unsupported, "The demo agent cannot do this: {other:?}"),
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

impl AgentHandle for DemoHandle {
    fn harness(&self) -> &'static str {
        "The demo agent"
    }

    fn send_request(&self, request: AgentRequest) -> AgentResult<SentRequest> {
        let (reply, answer) = oneshot::channel();
        match self.0.try_send(DemoRequest { request, reply }) {
            Ok(()) => Ok(SentRequest::new(async {
                answer.await.unwrap_or_else(|_| {
                    Err(AgentFailure::lost("The demo agent has stopped; session.restart starts it again"))
                })
            })),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(ErrorCode::Busy.with("The demo agent is busy").into())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(ErrorCode::AgentGone
                .with("The demo agent has stopped; session.restart starts it again")
                .into()),
        }
    }

    fn send_without_reply(&self, request: AgentRequest) -> AgentResult<()> {
        self.send_request(request).map(drop)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<ReadyAgent, CodedError>> {
        Box::pin(std::future::ready(Ok(ReadyAgent { facts: facts(), conversation: Vec::new() })))
    }

    fn execute<'a>(&'a self, command: &'a Command, _native: bool) -> AgentFuture<'a, ExecutedCommand> {
        Box::pin(self.run(command))
    }

    fn reclaim_queue(&self) -> AgentResult<AgentFuture<'static, QueueState>> {
        let begun = self.send_request(AgentRequest::ClearQueue)?;
        Ok(Box::pin(async {
            let queue = begun.reply().await?;
            serde_json::from_value(queue).map_err(|error| ErrorCode::Internal.with(error.to_string()).into())
        }))
    }
}

impl DemoHandle {
    /// Runs a command of a client.
    async fn run(&self, command: &Command) -> ExecuteResult {
        let data = match command {
            Command::GetCommands(_) => to_value(&demo::commands())?,
            Command::GetModels(_) => to_value(&models())?,
            Command::GetStats(_) => self.send_request(AgentRequest::GetStats)?.reply().await?,
            Command::GetForkPoints(_) => json!({ "fork_points": [] }),
            Command::AbortRetry(_) | Command::AbortCompaction(_) | Command::AbortBash(_) => {
                return Ok(ExecutedCommand::default());
            }
            Command::GetSkills(_) => json!({ "skills": [] }),
            Command::GetTools(_) => json!({ "tools": [] }),
            Command::ListSessionFiles(_) => json!({ "files": [] }),
            // The session has the messages; the demo has no form of its own for them.
            Command::GetNativeMessages(_) | Command::GetContextUsage(_) => Value::Null,
            Command::GetLastAssistantText(_) => {
                self.send_request(AgentRequest::GetLastAssistantText)?.reply().await?
            }
            Command::GetTree(_) => json!({ "current_leaf_id": null, "nodes": [] }),
            Command::SetSessionName(params) => {
                return Ok(ExecutedCommand::with_effect(CommandEffect::Title(session_name(&params.name)?)));
            }
            other => return Err(refused(other)),
        };
        Ok(ExecutedCommand::with_data(data))
    }
}

/// What the demo agent does not have, by name.
fn refused(command: &Command) -> AgentFailure {
    let missing = match command {
        Command::Bash(_) => "shell",
        Command::ExportHtml(_) => "pages to export",
        Command::NavigateTree(_) => "session tree",
        other => {
            return super::unsupported("The demo agent", other);
        }
    };
    ErrorCode::Unsupported.with(format!("The demo agent has no {missing}")).into()
}

/// What the demo agent says of itself.
fn facts() -> AgentFacts {
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
