//! Requests to a running pi: built by us, answered by id.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use qd_core::agent::AgentRequest;
use qd_core::harness::pi;
use qd_core::session::{AgentFacts, AgentUp};
use serde_json::Value;
use tokio::sync::oneshot;

use super::files::Claim;
use super::{Waiting, launch, lock};
use crate::driver::Disposition;
use crate::process::AgentStdin;

/// How long pi may take from spawn to its first answer.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Questions that wait for pi at once; more are refused.
const WAITING_MAX: usize = 1024;

/// Asks a running pi; clones share its stdin.
#[derive(Clone)]
pub struct PiHandle {
    stdin: AgentStdin,
    waiting: Waiting,
    counter: Arc<AtomicU64>,
    place: Arc<Place>,
}

/// Where the conversation lives.
pub(super) struct Place {
    pub(super) session_id: String,
    pub(super) cwd: PathBuf,
    pub(super) sessions: PathBuf,
    pub(super) claim: Mutex<Option<Claim>>,
}

impl PiHandle {
    pub(super) fn new(stdin: AgentStdin, waiting: Waiting, place: Place) -> Self {
        PiHandle { stdin, waiting, counter: Arc::default(), place: Arc::new(place) }
    }

    /// Finds an existing session file and takes it for this session.
    pub(super) fn claim_existing(&self, named: &str) -> Result<PathBuf, String> {
        let path = launch::find_session(named, &self.place.cwd, &self.place.sessions)?;
        let mut current = self.place.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if !current.as_ref().is_some_and(|claim| claim.is_for(&path)) {
            *current = Some(Claim::take(&path, &self.place.session_id)?);
        }
        Ok(path)
    }

    /// Takes the file pi is in now. Only pi itself makes new ones, so nobody else can have it.
    pub(super) fn claim_current(&self, file: Option<&str>) {
        let Some(path) = file.map(Path::new) else { return };
        let mut current = self.place.claim.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|claim| claim.is_for(path)) {
            return;
        }
        match Claim::take(path, &self.place.session_id) {
            Ok(claim) => *current = Some(claim),
            Err(error) => tracing::warn!(%error, "a session file could not be claimed"),
        }
    }

    /// Sends one request and waits for pi's reply.
    pub async fn request(&self, request: AgentRequest) -> Result<Value, String> {
        let id = format!("q{}", self.counter.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= WAITING_MAX {
                return Err(format!("The agent has {WAITING_MAX} unanswered requests; wait or abort"));
            }
            waiting.insert(id.clone(), sender);
        }
        let guard = Forget { waiting: &self.waiting, id: &id };
        self.stdin.send(Bytes::from(pi::encode(&id, &request))).await.map_err(|error| error.to_string())?;
        let result = receiver.await.map_err(|_| "The agent is gone".to_owned())?;
        drop(guard);
        result
    }

    /// Sends a prompt. Older versions do not say what became of it: a slash command that left pi idle was handled.
    pub async fn prompt(&self, prompt: AgentRequest, busy: bool) -> Result<Disposition, String> {
        let is_command = matches!(&prompt, AgentRequest::Prompt { message, .. } if message.starts_with('/'));
        let reply = self.request(prompt).await?;
        match reply.get("disposition").and_then(Value::as_str) {
            Some("handled") => Ok(Disposition::Handled),
            Some("queued") => Ok(Disposition::Queued),
            Some(_) => Ok(Disposition::Started),
            None if is_command && !busy => {
                let state = pi::state(&self.request(AgentRequest::GetState).await?);
                Ok(if state.is_streaming { Disposition::Started } else { Disposition::Handled })
            }
            None => Ok(Disposition::accepted(busy)),
        }
    }

    /// Sends something pi does not answer.
    pub async fn tell(&self, request: AgentRequest) -> Result<(), String> {
        self.stdin.send(Bytes::from(pi::encode("", &request))).await.map_err(|error| error.to_string())
    }

    /// The first answer proves that pi is up; the entries are its conversation.
    pub async fn prepare(&self) -> Result<AgentUp, String> {
        let state = tokio::time::timeout(READY_TIMEOUT, self.request(AgentRequest::GetState));
        let Ok(state) = state.await else {
            return Err(format!(
                "pi did not answer within {} s of its start. An extension that asks a question in session_start \
                 blocks pi for good; check the session's extensions.",
                READY_TIMEOUT.as_secs()
            ));
        };
        let facts = facts_of(&state?);
        self.claim_current(facts.native_session_file.as_deref());
        let conversation = self.conversation().await?;
        Ok(AgentUp { facts, conversation })
    }

    /// All messages on the way from the leaf to the root of pi's tree.
    pub async fn conversation(&self) -> Result<Vec<qd_core::agent::NativeMessage>, String> {
        let entries = self.request(AgentRequest::GetEntries { since: None }).await?;
        let conversation = pi::conversation_from_reply(&entries).map_err(|error| error.to_string())?;
        Ok(conversation.messages)
    }

    pub async fn facts(&self) -> Result<AgentFacts, String> {
        Ok(facts_of(&self.request(AgentRequest::GetState).await?))
    }
}

/// Takes the request out of the list however the wait ends.
struct Forget<'a> {
    waiting: &'a Waiting,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.waiting).remove(self.id);
    }
}

fn facts_of(reply: &Value) -> AgentFacts {
    let state = pi::state(reply);
    AgentFacts {
        model: state.model,
        thinking_level: state.thinking_level,
        title: state.session_name,
        native_session_id: state.session_id,
        native_session_file: state.session_file,
        auto_compaction: state.auto_compaction,
    }
}
