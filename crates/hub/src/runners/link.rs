//! The hub's end of a runner's link: one task reads lines, one commits records and publishes in order, one
//! writes commands and acks.
//!
//! The three never wait for each other in a circle: the writer's queue always takes acks, the reader waits for room in
//! the commit queue, the committer for the store, and both for slow clients within the stall timeout.

mod answers;
mod block;
mod commit;
mod hello;
mod reader;
mod refused_sessions;
mod send_queue;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use qd_link::memory::LinkEnd;
use qd_wire::CodedError;
use qd_wire::link::LinkLine;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::runners::stall_timeout::StallTimeout;
pub(crate) use answers::resync_text;
use commit::Committer;
pub(crate) use hello::order_deletions;
use reader::LinkReader;
pub(crate) use send_queue::{RunnerSendQueue, SendQueueError};

/// Pieces of the stream that may wait for the store; a full queue makes the runner wait.
const COMMITS_MAX: usize = 64;

/// Who is at the other end, as its key or its place in our own process has proved.
#[derive(Debug, Clone)]
pub(crate) struct RunnerIdentity {
    pub(crate) runner_id: Arc<str>,
    /// It lives in the hub's own process.
    pub(crate) is_local: bool,
    /// Where it comes from, for the log.
    pub(crate) peer: String,
}

/// One connection of a runner, as the rest of the hub sees it.
pub(crate) struct RunnerLink {
    pub(crate) send_queue: Arc<RunnerSendQueue>,
    stop: CancellationToken,
    settled: CancellationToken,
}

impl RunnerLink {
    fn new(stop: &CancellationToken) -> Self {
        Self { send_queue: Arc::default(), stop: stop.child_token(), settled: CancellationToken::new() }
    }

    /// Ends the link and tells the runner why.
    pub(crate) fn refuse(&self, reason: CodedError) {
        let line = LinkLine::Refused { reason: reason.message, code: Some(reason.code) };
        if let Err(error) = self.send_queue.push(&line_of(&line)) {
            tracing::debug!(%error, "a runner cannot be told why its link ends");
        }
        self.stop.cancel();
    }

    /// Ends the link; its runner comes again.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    /// Waits until what the link has read is committed or given up: nothing of it happens any more.
    async fn settled(&self) {
        self.settled.cancelled().await;
    }
}

/// A line for a runner, with its end.
pub(crate) fn line_of(line: &LinkLine) -> Vec<u8> {
    match serde_json::to_vec(line) {
        Ok(mut text) => {
            text.push(b'\n');
            text
        }
        Err(error) => {
            tracing::error!(%error, "a line for a runner cannot be written");
            Vec::new()
        }
    }
}

/// What the tasks of one link share.
#[derive(Default)]
struct LinkShared {
    /// The store fails: answers that need no store go past the queue.
    is_failing: AtomicBool,
    stall_timeout: StallTimeout,
}

/// Serves one link until its other end goes or `stop` says so; what was read is committed before this returns, or
/// given up if the store fails then.
pub(crate) async fn run(hub: Arc<Hub>, identity: RunnerIdentity, link: LinkEnd, stop: CancellationToken) {
    let (commits, queue) = mpsc::channel(COMMITS_MAX);
    let state = Arc::new(LinkShared::default());
    let this = Arc::new(RunnerLink::new(&stop));
    // Whatever happens here, nobody waits for this link for ever.
    let settled = this.settled.clone().drop_guard();
    let send_queue = Arc::clone(&this.send_queue);
    let committer = Committer::new(
        Arc::clone(&hub),
        Arc::clone(&send_queue),
        queue,
        Arc::clone(&state),
        this.stop.clone(),
    );
    let committer = tokio::spawn(committer.run());
    let writer = tokio::spawn(send_queue::write(Arc::clone(&send_queue), link.sender.clone()));
    LinkReader::new(hub, identity, this, link.sender, commits, state).run(link.receiver).await;
    if committer.await.is_err() {
        tracing::error!("the committing task of a runner link failed");
    }
    drop(settled);
    send_queue.finish();
    if writer.await.is_err() {
        tracing::error!("the writing task of a runner link failed");
    }
}

#[cfg(test)]
mod tests;
