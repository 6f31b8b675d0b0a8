//! Requests to a running pi: built by us, answered by id.
//!
//! Requests are written in the order of the calls, and writing never waits for pi; only answers are waited for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use qd_core::agent::{AgentRequest, NativeMessage};
use qd_core::harness::pi;
use qd_core::session::{AgentFacts, QueueFate, ReadyAgent};
use qd_link::mutex::Mutex;
use qd_wire::data::QueueState;
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::Value;

use super::bridge::ExtensionBridge;
use super::error::ConversationError;
use super::file_claim::{ClaimError, FileClaim};
use super::session_files::CheckedFile;
use super::shell_commands::ReportedShellCommands;
use super::{conversation_moves, execute, launch, shell_commands};
use crate::driver::{
    AgentFailure, AgentFuture, AgentHandle, AgentResult, BoxFuture, CommandEffect, ExecutedCommand,
    PendingReply, PendingRequests, PromptDisposition, SentRequest,
};
use crate::process::{AgentStdin, StdinError};

/// How long pi may take from spawn to its first answer.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks a running pi; clones share its stdin.
#[derive(Clone)]
pub struct PiHandle {
    stdin: AgentStdin,
    waiting: PendingRequests,
    counter: Arc<AtomicU64>,
    place: Arc<PiConversation>,
    bridge: Arc<ExtensionBridge>,
    reported_shell_commands: Arc<ReportedShellCommands>,
}

/// Where the conversation lives.
pub(super) struct PiConversation {
    pub(super) session_id: String,
    pub(super) cwd: PathBuf,
    /// The session has told this conversation already: what would get another name now is not told again.
    pub(super) is_known: bool,
    /// The user's own pi directory.
    pub(super) user_dir: PathBuf,
    pub(super) sessions: PathBuf,
    /// pi's own.
    pub(super) temp_dir: PathBuf,
    pub(super) claim: Mutex<Option<FileClaim>>,
    /// The file a client named, until pi has opened it.
    pub(super) checked: Mutex<Option<CheckedFile>>,
}

impl PiHandle {
    pub(super) fn new(stdin: AgentStdin, waiting: PendingRequests, place: PiConversation) -> Self {
        PiHandle {
            stdin,
            waiting,
            counter: Arc::default(),
            place: Arc::new(place),
            bridge: Arc::default(),
            reported_shell_commands: Arc::default(),
        }
    }

    pub(super) fn place(&self) -> &PiConversation {
        &self.place
    }

    /// What our extension has told.
    pub(super) fn bridge(&self) -> &ExtensionBridge {
        &self.bridge
    }

    pub(super) fn reported_shell_commands(&self) -> &ReportedShellCommands {
        &self.reported_shell_commands
    }

    /// A name that nothing of this pi had before.
    pub(super) fn fresh_id(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.counter.fetch_add(1, Ordering::Relaxed))
    }

    /// Finds an existing session file and holds it for this session while pi moves there. The file pi is in now
    /// stays claimed until it has.
    pub(super) fn claim_existing(&self, named: &str) -> Result<(CheckedFile, FileClaim), ConversationError> {
        let checked = launch::find_session(named, &self.place.user_dir, &self.place.sessions)?;
        let claim = FileClaim::take(checked.path(), &self.place.session_id)?;
        Ok((checked, claim))
    }

    /// Ends a pi that has opened another file than the one that was checked.
    pub(super) fn give_up(&self, path: &Path) -> AgentFailure {
        self.stdin.close();
        AgentFailure::refused(ErrorCode::Conflict.with(format!(
            "{} was exchanged while pi opened it, so the agent was stopped; choose the file again",
            path.display()
        )))
    }

    /// Takes the file pi is in now.
    pub(super) fn claim_current(&self, file: Option<&str>) -> Result<(), ClaimError> {
        let Some(path) = file.map(Path::new) else { return Ok(()) };
        let mut current = self.place.claim.lock();
        if let Some(claim) = current.as_mut().filter(|claim| claim.is_for(path)) {
            claim.lock_when_written();
            return Ok(());
        }
        *current = Some(FileClaim::take(path, &self.place.session_id)?);
        Ok(())
    }

    /// Writes one request; the receiver gets pi's reply. In the order of the calls, which matters for prompts.
    pub(super) fn send(&self, request: &AgentRequest) -> AgentResult<PendingReply> {
        let id = self.fresh_id("q");
        let line = Bytes::from(pi::encode(&id, request));
        let pending = self.waiting.expect(id)?;
        self.stdin.try_send(line).map_err(unwritten)?;
        Ok(pending)
    }

    /// Sends one request and waits for pi's reply.
    pub async fn request(&self, request: AgentRequest) -> AgentResult<Value> {
        self.send(&request)?.reply().await
    }

    /// Sends something pi does not answer. It never waits: a pi that does not read must not stop its session.
    pub(super) fn write_without_reply(&self, request: &AgentRequest) -> Result<(), StdinError> {
        let line = pi::encode("", &self.bridge.translate(request));
        self.stdin.try_send(Bytes::from(line))
    }

    /// The first answer proves that pi is up; the entries are its conversation.
    async fn first_answer(&self) -> Result<ReadyAgent, CodedError> {
        let prepared = async {
            let state = self.request(AgentRequest::GetState).await?;
            let mut conversation = self.conversation().await?;
            if self.place.is_known {
                conversation.retain(pi::has_stable_id);
            }
            Ok(ReadyAgent { facts: facts_of(&state), conversation })
        };
        let up = match tokio::time::timeout(READY_TIMEOUT, prepared).await {
            Ok(prepared) => prepared.map_err(|failure: AgentFailure| CodedError::from(failure))?,
            Err(_) => {
                return Err(ErrorCode::AgentGone.with(format!(
                    "pi did not answer within {} s of its start. An extension that asks a question in session_start \
                     blocks pi for good; check the session's extensions.",
                    READY_TIMEOUT.as_secs()
                )));
            }
        };
        let checked = self.place.checked.lock().take();
        if let Some(checked) = checked.filter(|checked| !checked.is_still_there()) {
            return Err(self.give_up(checked.path()).into());
        }
        self.claim_current(up.facts.native_session_file.as_deref())?;
        Ok(up)
    }

    /// All messages on the way from the leaf to the root of pi's tree.
    pub async fn conversation(&self) -> AgentResult<Vec<NativeMessage>> {
        let entries = self.request(AgentRequest::GetEntries { since: None }).await?;
        let conversation = pi::conversation_from_reply(&entries)
            .map_err(|error| ErrorCode::AgentFailed.with(error.to_string()))?;
        Ok(conversation.messages)
    }

    pub async fn facts(&self) -> AgentResult<AgentFacts> {
        self.facts_and_waiting().await.map(|(facts, _)| facts)
    }

    /// The facts, and how many inputs are in pi's queue.
    pub(super) async fn facts_and_waiting(&self) -> AgentResult<(AgentFacts, u64)> {
        let state = self.request(AgentRequest::GetState).await?;
        let facts = facts_of(&state);
        if let Err(error) = self.claim_current(facts.native_session_file.as_deref()) {
            tracing::warn!(%error, "a session file could not be claimed");
        }
        Ok((facts, pi::state(&state).waiting))
    }
}

impl AgentHandle for PiHandle {
    fn harness(&self) -> &'static str {
        "pi"
    }

    fn send_request(&self, request: AgentRequest) -> AgentResult<SentRequest> {
        self.send(&request).map(|receiver| SentRequest::new(receiver.reply()))
    }

    fn send_without_reply(&self, request: AgentRequest) -> AgentResult<()> {
        self.write_without_reply(&request).map_err(unwritten)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<ReadyAgent, CodedError>> {
        Box::pin(self.first_answer())
    }

    fn execute<'a>(&'a self, command: &'a Command, native: bool) -> AgentFuture<'a, ExecutedCommand> {
        Box::pin(execute::execute(self, command, native))
    }

    /// Older versions do not say: a slash command that left pi idle was handled.
    fn disposition<'a>(
        &'a self,
        reply: &'a Value,
        is_command: bool,
        busy: bool,
    ) -> BoxFuture<'a, PromptDisposition> {
        Box::pin(async move {
            match reply.get("disposition").and_then(Value::as_str) {
                Some("handled") => PromptDisposition::Handled,
                Some("queued") => PromptDisposition::Queued,
                Some(_) => PromptDisposition::Started,
                None if is_command && !busy => match self.request(AgentRequest::GetState).await {
                    Ok(state) if !pi::state(&state).is_streaming => PromptDisposition::Handled,
                    // A pi that died meanwhile reports that itself; the prompt was accepted.
                    Ok(_) | Err(_) => PromptDisposition::Started,
                },
                None => PromptDisposition::accepted(busy),
            }
        })
    }

    fn unannounced_changes<'a>(&'a self, known: Option<&'a str>) -> AgentFuture<'a, Vec<CommandEffect>> {
        Box::pin(async move {
            let facts = self.facts().await?;
            let has_moved = self.bridge.take_moved();
            if known.is_some() && facts.native_session_id.as_deref() != known {
                return conversation_moves::read_conversation(self, None).await;
            }
            if has_moved {
                return conversation_moves::read_conversation(self, Some(QueueFate::Kept)).await;
            }
            let mut effects = shell_commands::news(self).await?;
            effects.push(CommandEffect::Facts(facts));
            Ok(effects)
        })
    }

    fn reclaim_queue(&self) -> AgentResult<AgentFuture<'static, QueueState>> {
        let asked = self.send(&AgentRequest::ClearQueue)?;
        Ok(Box::pin(async {
            asked.reply().await.map(|reply| pi::cleared_queue(&reply)).map_err(not_given_back)
        }))
    }
}

/// pi cannot be written to.
fn unwritten(error: StdinError) -> AgentFailure {
    let code = match error {
        StdinError::Full => ErrorCode::InputFull,
        StdinError::Closed => ErrorCode::AgentGone,
    };
    code.with(error.to_string()).into()
}

/// The oldest versions do not know how.
fn not_given_back(failure: AgentFailure) -> AgentFailure {
    if failure.is_reply && failure.code == ErrorCode::Unsupported {
        let error = format!(
            "This version of pi cannot give back what is in its queue, so it stays as it is; {QUEUE_VERSION} or newer \
             can (npm install -g @earendil-works/pi-coding-agent)"
        );
        return AgentFailure { error, ..failure };
    }
    failure
}

/// The first pi that can give back its queue.
const QUEUE_VERSION: &str = "0.84.4";

fn facts_of(reply: &Value) -> AgentFacts {
    let state = pi::state(reply);
    let is_native_file_written = state.session_file.as_deref().is_some_and(|file| Path::new(file).is_file());
    AgentFacts {
        is_native_file_written,
        model: state.model,
        thinking_level: state.thinking_level,
        title: state.session_name,
        native_session_id: state.session_id,
        native_session_file: state.session_file,
        auto_compaction: state.auto_compaction,
        native_model: reply.get("model").filter(|model| model.is_object()).cloned(),
    }
}
