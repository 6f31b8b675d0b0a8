//! The way from the tools to the runner: one connection, made again when it was lost.
//!
//! An agent uses these tools, so nothing that it sends may decide whom it acts for: the session is fixed when the
//! program starts, and the actor is always `agent`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qd_link::client::{FrameQueue, MuxClient};
use qd_wire::{CodedError, CommandResponse, ErrorCode};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::arguments::McpArguments;
use crate::client::connection::{self, Connection};
use crate::commands::services::client::SESSION_VARIABLE;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::Settings;

/// How long a call that was taken back may take to end.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// Where calls go, and for which session.
pub(super) struct ToolBackend {
    settings: Settings,
    output: Output,
    target: Map<String, Value>,
    connection: tokio::sync::Mutex<LiveConnection>,
    next: AtomicU64,
}

/// Answers that are waited for, by the id of the command; `None` when the connection is over.
type AnswerSenders = Option<HashMap<String, oneshot::Sender<CommandResponse>>>;
type WaitingCalls = Arc<Mutex<AnswerSenders>>;

#[derive(Clone)]
struct LiveConnection {
    client: MuxClient,
    waiting: WaitingCalls,
}

impl ToolBackend {
    pub(super) async fn open(
        settings: &Settings,
        output: &Output,
        arguments: &McpArguments,
    ) -> Result<ToolBackend> {
        let connection = connection::connect(settings, output).await?;
        let target = match &arguments.root {
            Some(root) => {
                let runner = arguments.runner.iter().map(|runner| ("runner_id".to_owned(), json!(runner)));
                [("root".to_owned(), json!(root))].into_iter().chain(runner).collect()
            }
            None => {
                let named = arguments.session.clone().or_else(|| std::env::var(SESSION_VARIABLE).ok());
                // A guess could give an agent the files of another.
                let Some(named) = named.filter(|named| !named.is_empty()) else {
                    return Err(CliError::usage("cannot tell which session the agent belongs to").hint(format!(
                        "programs in a session have {SESSION_VARIABLE}; else name one with --session ID, or a \
                         directory with --root DIR"
                    )));
                };
                let session_id = connection.resolve_session(Some(&named)).await?;
                Map::from_iter([("session_id".to_owned(), json!(session_id))])
            }
        };
        let connection = tokio::sync::Mutex::new(LiveConnection::start(connection));
        Ok(ToolBackend {
            settings: settings.clone(),
            output: output.clone(),
            target,
            connection,
            next: AtomicU64::new(1),
        })
    }

    /// Calls a service and waits for its answer as long as it takes: a person may have to decide first.
    pub(super) async fn call(
        &self,
        cmd: &str,
        parameters: Map<String, Value>,
        cancelled: &CancellationToken,
    ) -> Result<Value, CodedError> {
        let connection = self.live_connection().await?;
        let id = format!("mcp{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut command = parameters;
        // Written after the agent's arguments, so that they cannot name another session or another actor.
        command.extend(self.target.clone());
        for (name, value) in [("channel", "agent"), ("cmd", cmd), ("id", &*id), ("actor", "agent")] {
            command.insert(name.to_owned(), json!(value));
        }
        // Whatever role the token has: an agent's change is asked about.
        command.insert("ask".to_owned(), json!(true));
        let mut answer = connection.expect_answer(&id).ok_or_else(lost_connection)?;
        // Forgets the answer also when the client has gone and this is dropped.
        let _forgetting = ExpectedAnswer { connection: &connection, id: &id };
        connection
            .client
            .send_text(Value::Object(command).to_string())
            .await
            .map_err(|error| ErrorCode::LinkLost.with(error.to_string()))?;
        let answered = tokio::select! {
            answered = &mut answer => answered,
            () = cancelled.cancelled() => {
                let cancel = json!({ "channel": "agent", "cmd": "cancel", "target": id });
                let sent = connection.client.send_text(cancel.to_string()).await;
                sent.map_err(|error| ErrorCode::LinkLost.with(error.to_string()))?;
                match tokio::time::timeout(CANCEL_WAIT, answer).await {
                    Ok(answered) => answered,
                    Err(_) => return Err(ErrorCode::Cancelled.with("cancelled")),
                }
            }
        };
        let response = answered.map_err(|_| lost_connection())?;
        if response.success {
            return Ok(response.data.unwrap_or_default());
        }
        let no_words = || ErrorCode::Failed.with("The call failed without saying why");
        Err(response.failed().filter(|_| response.error.is_some()).unwrap_or_else(no_words))
    }

    /// The connection, made again if it was lost.
    async fn live_connection(&self) -> Result<LiveConnection, CodedError> {
        let mut connection = self.connection.lock().await;
        if connection.is_over() {
            let connected = connection::connect(&self.settings, &self.output).await;
            let connected = connected.map_err(|error| ErrorCode::LinkLost.with(error.message))?;
            *connection = LiveConnection::start(connected);
        }
        Ok(connection.clone())
    }
}

fn lost_connection() -> CodedError {
    ErrorCode::Indeterminate.with(
        "The connection was lost before the answer came. A question to a person may still be open; if it is approved, \
         the call is done.",
    )
}

impl LiveConnection {
    fn start(Connection { client, frames, .. }: Connection) -> LiveConnection {
        let waiting: WaitingCalls = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(hand_out_answers(frames, Arc::clone(&waiting)));
        LiveConnection { client, waiting }
    }

    fn is_over(&self) -> bool {
        lock_calls(&self.waiting).is_none()
    }

    fn expect_answer(&self, id: &str) -> Option<oneshot::Receiver<CommandResponse>> {
        let (sender, receiver) = oneshot::channel();
        lock_calls(&self.waiting).as_mut()?.insert(id.to_owned(), sender);
        Some(receiver)
    }
}

/// Removes the expectation when the call ends, however it ends.
struct ExpectedAnswer<'a> {
    connection: &'a LiveConnection,
    id: &'a str,
}

impl Drop for ExpectedAnswer<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock_calls(&self.connection.waiting).as_mut() {
            waiting.remove(self.id);
        }
    }
}

/// Hands out the answers until the connection ends.
async fn hand_out_answers(mut frames: FrameQueue, waiting: WaitingCalls) {
    while let Some(frame) = frames.next().await {
        let Ok(response) = frame.response() else { continue };
        let id = response.id.as_ref().and_then(Value::as_str).unwrap_or_default();
        let sender = lock_calls(&waiting).as_mut().and_then(|waiting| waiting.remove(id));
        if let Some(sender) = sender {
            // Whoever asked may have given up.
            let _ = sender.send(response);
        }
    }
    // Drops the senders too, so every call that waits learns that its answer will not come.
    *lock_calls(&waiting) = None;
}

fn lock_calls(waiting: &WaitingCalls) -> MutexGuard<'_, AnswerSenders> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
