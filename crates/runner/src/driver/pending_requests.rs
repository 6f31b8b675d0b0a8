//! Requests that wait for an agent's answer, by the id we gave them. For drivers of agents that answer by id.
//!
//! A request is expected before it is written, because the answer may come before the writing call returns. Whatever
//! happens to the agent, every request that waits gets exactly one answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use qd_core::harness::AgentRefusal;
use qd_link::mutex::Mutex;
use qd_wire::ErrorCode;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{AgentFailure, AgentResult};

/// Questions that wait for an agent at once; more are refused.
const WAITING_MAX: usize = 1024;

const GONE: &str = "The agent is gone; a prompt or session.restart starts it again";

type ReplySender = oneshot::Sender<AgentResult<Value>>;

/// What an agent was asked and has not answered; clones share it.
#[derive(Clone)]
pub struct PendingRequests(Arc<Mutex<RequestTable>>);

enum RequestTable {
    /// By the id we gave them.
    Open(BTreeMap<String, ReplySender>),
    /// The agent is gone, for this reason: none waits in vain.
    Gone(String),
}

impl Default for PendingRequests {
    fn default() -> Self {
        PendingRequests(Arc::new(Mutex::new(RequestTable::Open(BTreeMap::new()))))
    }
}

impl PendingRequests {
    /// Makes room for an answer, before the request is written.
    pub fn expect(&self, id: String) -> AgentResult<PendingReply> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.0.lock();
        let waiting = match &mut *state {
            RequestTable::Open(waiting) => waiting,
            RequestTable::Gone(reason) => {
                return Err(AgentFailure::refused(ErrorCode::AgentGone.with(reason.clone())));
            }
        };
        if waiting.len() >= WAITING_MAX {
            refuse!(Busy, "The agent has {WAITING_MAX} unanswered requests; wait or abort");
        }
        waiting.insert(id.clone(), sender);
        drop(state);
        Ok(PendingReply { receiver, requests: self.clone(), id })
    }

    /// The agent has answered. An answer that nobody waits for is dropped: the asker gave up, which is its right.
    pub fn answer(&self, id: &str, result: Result<Value, AgentRefusal>) {
        if let Some(waiting) = self.forget(id) {
            let _ = waiting.send(result.map_err(AgentFailure::from));
        }
    }

    /// Whoever still waits for an answer gets this one; nobody waits after that.
    pub fn fail_all(&self, error: &str) {
        let before = std::mem::replace(&mut *self.0.lock(), RequestTable::Gone(error.to_owned()));
        if let RequestTable::Open(waiting) = before {
            for (_, waiting) in waiting {
                // The asker may have given up.
                let _ = waiting.send(Err(AgentFailure::lost(error)));
            }
        }
    }

    fn forget(&self, id: &str) -> Option<ReplySender> {
        match &mut *self.0.lock() {
            RequestTable::Open(waiting) => waiting.remove(id),
            RequestTable::Gone(_) => None,
        }
    }
}

/// A request on its way; forgotten however the wait for it ends.
pub struct PendingReply {
    receiver: oneshot::Receiver<AgentResult<Value>>,
    requests: PendingRequests,
    id: String,
}

impl PendingReply {
    pub async fn reply(mut self) -> AgentResult<Value> {
        match (&mut self.receiver).await {
            Ok(result) => result,
            Err(_) => Err(AgentFailure::lost(GONE)),
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        // Nobody waits for it any more; usually it is answered and gone already.
        drop(self.requests.forget(&self.id));
    }
}
