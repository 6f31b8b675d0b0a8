//! Reads a runner's lines. What needs no commit, and follows nothing that does, is published at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};
use qd_link::memory::LinkReceiver;
use qd_wire::data::{RunnerStatus, SessionStatus};
use qd_wire::link::{LinkLine, RunnerHello, RunnerWelcome, WelcomeSession};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::answers::Answer;
use super::block::{Step, split};
use super::commit::Commit;
use super::{LinkState, Outbox};
use crate::effects::apply_notes;
use crate::head::{self, Line};
use crate::registry::{Hub, Runner, SessionEntry};

/// The reader of a link.
pub(super) struct Ingest {
    hub: Arc<Hub>,
    outbox: Arc<Outbox>,
    commits: mpsc::Sender<Commit>,
    link: Arc<LinkState>,
    /// Known after its hello.
    runner: Option<Arc<Runner>>,
}

/// The committing task is gone: there is nothing more to do.
struct Stopped;

impl Ingest {
    pub(super) fn new(
        hub: Arc<Hub>,
        outbox: Arc<Outbox>,
        commits: mpsc::Sender<Commit>,
        link: Arc<LinkState>,
    ) -> Self {
        Self { hub, outbox, commits, link, runner: None }
    }

    /// Reads until the other end of the link goes, or `stop`.
    pub(super) async fn run(mut self, mut link: LinkReceiver, stop: CancellationToken) {
        loop {
            let block = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                block = self.next(&mut link) => block,
            };
            let Some(block) = block else { break };
            if self.block(block).await.is_err() {
                break;
            }
        }
        self.end();
    }

    /// The next block. A runner that is silent for too long is shown as unhealthy while we wait.
    async fn next(&self, link: &mut LinkReceiver) -> Option<Bytes> {
        let Some(runner) = &self.runner else { return link.recv().await };
        if let Some(block) = link.try_recv() {
            return Some(block);
        }
        match timeout(self.hub.config.limits.runner_silence_max, link.recv()).await {
            Ok(block) => block,
            Err(_) => {
                tracing::warn!(runner = %runner.id, "the runner is silent");
                self.hub.set_runner_status(runner, RunnerStatus::Unhealthy);
                let block = link.recv().await;
                self.hub.set_runner_status(runner, RunnerStatus::Online);
                block
            }
        }
    }

    async fn block(&mut self, mut block: Bytes) -> Result<(), Stopped> {
        // Whose events they are is known after the hello, which may share its block with them.
        while self.runner.is_none() && !block.is_empty() {
            let length = memchr::memchr(b'\n', &block).map_or(block.len(), |end| end + 1);
            let line = block.split_to(length);
            match std::str::from_utf8(&line).ok().and_then(|line| head::parse(line.trim_end(), "").ok()) {
                Some(Line::Other(kind)) => self.runner_line(&kind, &String::from_utf8_lossy(&line)),
                _ => tracing::warn!("a runner speaks before its hello; skipped"),
            }
        }
        let Some(runner) = &self.runner else { return Ok(()) };
        let runner_id = Arc::clone(&runner.id);
        while !block.is_empty() {
            let (steps, taken) = split(&self.hub, &runner_id, &block);
            for step in steps {
                self.step(step).await?;
            }
            block.advance(taken.min(block.len()));
        }
        Ok(())
    }

    async fn step(&mut self, step: Step) -> Result<(), Stopped> {
        match step {
            Step::Frames { entry, frames, records, notes } => {
                if records.is_empty() && entry.uncommitted.load(Ordering::Acquire) == 0 {
                    entry.ring.make_room(frames.len(), &self.link.patience).await;
                    entry.ring.publish(frames, None);
                    apply_notes(&self.hub, &entry, &notes);
                    return Ok(());
                }
                entry.uncommitted.fetch_add(1, Ordering::AcqRel);
                self.commit(Commit::Frames { entry, frames, records, notes }).await
            }
            Step::Ack { entry, seq } => {
                if entry.uncommitted.load(Ordering::Acquire) == 0 {
                    self.outbox.ack(&entry.id, seq);
                    return Ok(());
                }
                entry.uncommitted.fetch_add(1, Ordering::AcqRel);
                self.commit(Commit::Ack { entry, seq }).await
            }
            Step::Answer { id, session_id, success, tail } => {
                let Some(pending) = self.hub.pending.remove_by_id(&id) else {
                    tracing::debug!(id, "an answer nobody waits for");
                    return Ok(());
                };
                let answer = Answer { pending, success, tail };
                let entry = session_id.and_then(|session_id| self.hub.session(&session_id));
                self.answer(answer, entry).await
            }
            Step::Forget { entry } => self.forget(entry, None).await,
            Step::Runner { kind, line } => {
                self.runner_line(&kind, &line);
                Ok(())
            }
        }
    }

    async fn answer(&self, answer: Answer, entry: Option<Arc<SessionEntry>>) -> Result<(), Stopped> {
        let Some(entry) = entry else {
            answer.deliver(&self.hub, None);
            return Ok(());
        };
        if answer.deletes() {
            return self.forget(entry, Some(answer)).await;
        }
        let may_pass = self.link.is_failing.load(Ordering::Acquire) && !answer.needs_store();
        if may_pass || entry.uncommitted.load(Ordering::Acquire) == 0 {
            answer.deliver(&self.hub, Some(&entry));
            return Ok(());
        }
        entry.uncommitted.fetch_add(1, Ordering::AcqRel);
        self.commit(Commit::Answer { entry, answer }).await
    }

    /// Ends a session here and now, so that what follows under its name is read as a new one.
    async fn forget(&self, entry: Arc<SessionEntry>, answer: Option<Answer>) -> Result<(), Stopped> {
        self.hub.forget_session(&entry);
        entry.uncommitted.fetch_add(1, Ordering::AcqRel);
        self.commit(Commit::Forget { entry, answer }).await
    }

    async fn commit(&self, commit: Commit) -> Result<(), Stopped> {
        self.commits.send(commit).await.map_err(|_| Stopped)
    }

    fn runner_line(&mut self, kind: &str, line: &str) {
        match kind {
            "runner.hello" => match serde_json::from_str(line) {
                Ok(LinkLine::Hello(hello)) => self.hello(hello),
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "the runner's hello cannot be read"),
            },
            // That it came is all it says to us.
            "runner.heartbeat" => {}
            _ => tracing::debug!(kind, "a line of the runner that this version does not know"),
        }
    }

    fn hello(&mut self, hello: RunnerHello) {
        let runner = Arc::new(Runner::new(hello, Arc::clone(&self.outbox)));
        // A session the runner does not name is one it has lost: its history stays, and it can be deleted.
        for entry in self.hub.sessions_of(&runner.id) {
            entry.is_orphan.store(true, Ordering::Relaxed);
            if entry.status() != SessionStatus::Closed {
                entry.set_status(SessionStatus::Dormant);
            }
        }
        for session in &runner.hello.sessions {
            let entry = self.hub.session_or_new(&session.session_id, &runner.id);
            entry.is_orphan.store(false, Ordering::Relaxed);
            if let Some(state) = &session.state {
                entry.set_status(state.status);
                entry.set_pending_inputs(state.pending_input.len());
            } else if entry.status() == SessionStatus::Starting {
                entry.set_status(SessionStatus::Dormant);
            }
        }
        let sessions = self.hub.sessions_of(&runner.id).into_iter().map(|entry| WelcomeSession {
            session_id: entry.id.to_string(),
            last_seq: entry.last_seq.load(Ordering::Relaxed),
        });
        let welcome = RunnerWelcome { runner_id: runner.id.to_string(), sessions: sessions.collect() };
        match serde_json::to_vec(&LinkLine::Welcome(welcome)) {
            Ok(mut line) => {
                line.push(b'\n');
                if let Err(error) = self.outbox.push(&line) {
                    tracing::warn!(runner = %runner.id, %error, "the runner cannot be welcomed");
                }
            }
            Err(error) => tracing::error!(%error, "a welcome cannot be written"),
        }
        tracing::info!(runner = %runner.id, "a runner has come");
        self.hub.add_runner(Arc::clone(&runner));
        self.runner = Some(runner);
    }

    /// The link is over: nobody waits for this runner any more.
    fn end(self) {
        self.outbox.close();
        let Some(runner) = self.runner else { return };
        self.hub.set_runner_status(&runner, RunnerStatus::Offline);
        for pending in self.hub.pending.remove_of_link(&self.outbox) {
            let error = format!("Runner {} went away before it answered", runner.id);
            pending.fail(&error, true);
        }
    }
}
