//! Reads a runner's lines. What needs no commit, and follows nothing that does, is published at once.
//!
//! The order of the stream is kept per session: as soon as one step of a session waits for a commit, all that follow
//! it queue behind, but for answers that need no store while that fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};
use qd_core::encoding::hash_from_hex;
use qd_link::clock::now_ms;
use qd_link::memory::{LinkReceiver, LinkSender};
use qd_store::RunnerNote;
use qd_wire::ErrorCode;
use qd_wire::link::{LinkLine, RunnerHeartbeat};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::answers::RunnerAnswer;
use super::block::{StreamStep, split};
use super::commit::{QueuedStep, SessionStep, StepContent};
use super::hello::{DELETION_ID, note_runner};
use super::refused_sessions::RefusedSessions;
use super::{LinkShared, RunnerIdentity, RunnerLink, line_of};
use crate::faces::RunnerUpdate;
use crate::hub::{COMMIT_UNIT_BYTES, COMMIT_UNITS_MAX, Hub};
use crate::runners::line_head::{self, LineHead};
use crate::runners::runner::Runner;
use crate::sessions::effects::apply_notes;
use crate::sessions::published::PublishedEvents;

/// A connection that says no hello for this long is not a runner.
const HELLO_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a connected runner is noted in the store as seen.
const NOTE_INTERVAL_MS: i64 = 60_000;
/// How long a link that is to end still waits for room among what is to be committed.
const ROOM_GRACE: Duration = Duration::from_secs(1);
/// How far a command is.
const PROGRESS: &str = "progress";

/// The reader of a link.
pub(super) struct LinkReader {
    pub(super) hub: Arc<Hub>,
    pub(super) identity: RunnerIdentity,
    pub(super) link: Arc<RunnerLink>,
    pub(super) sender: LinkSender,
    commits: mpsc::Sender<QueuedStep>,
    state: Arc<LinkShared>,
    pub(super) refusals: RefusedSessions,
    /// Known from its hello on.
    pub(super) runner: Option<Arc<Runner>>,
    /// What is noted of it now and then.
    note: Option<RunnerNote>,
}

/// There is nothing more to do on this link.
pub(super) struct LinkEnded;

impl LinkReader {
    pub(super) fn new(
        hub: Arc<Hub>,
        identity: RunnerIdentity,
        link: Arc<RunnerLink>,
        sender: LinkSender,
        commits: mpsc::Sender<QueuedStep>,
        state: Arc<LinkShared>,
    ) -> Self {
        let refusals = RefusedSessions::new(Arc::clone(&link), identity.clone());
        Self { hub, identity, link, sender, commits, state, refusals, runner: None, note: None }
    }

    /// Reads until the other end of the link goes, or it is to stop.
    pub(super) async fn run(mut self, mut receiver: LinkReceiver) {
        let hello_by = Instant::now() + HELLO_WAIT_MAX;
        let stop = self.link.stop.clone();
        loop {
            let block = tokio::select! {
                // A link that was revoked or replaced stops even while its runner keeps sending.
                biased;
                () = stop.cancelled() => break,
                block = self.next(&mut receiver, hello_by) => block,
            };
            let Some(block) = block else { break };
            if self.block(block).await.is_err() {
                break;
            }
        }
        // The other end learns of it now, even if the last commits take a while.
        drop(receiver);
        self.end();
    }

    /// The next block. A runner that is silent for too long is shown as unhealthy while we wait.
    async fn next(&self, receiver: &mut LinkReceiver, hello_by: Instant) -> Option<Bytes> {
        let Some(runner) = &self.runner else { return self.before_hello(receiver, hello_by).await };
        // Without a timer while blocks are waiting: a timer for each would cost more than reading it.
        if let Some(block) = receiver.try_recv() {
            return Some(block);
        }
        if let Ok(block) = timeout(self.hub.config.limits.runner_silence_max, receiver.recv()).await {
            return block;
        }
        if runner.set_healthy(&self.link, false) {
            tracing::warn!(runner = %runner.id, peer = %self.identity.peer, "the runner is silent");
            self.hub.announce_runner(runner);
        }
        let block = receiver.recv().await?;
        if runner.set_healthy(&self.link, true) {
            self.hub.announce_runner(runner);
        }
        Some(block)
    }

    async fn before_hello(&self, receiver: &mut LinkReceiver, hello_by: Instant) -> Option<Bytes> {
        // The runner of this process is trusted to say hello, however long its start takes.
        if self.identity.is_local {
            return receiver.recv().await;
        }
        timeout_at(hello_by, receiver.recv()).await.unwrap_or_else(|_| {
            let RunnerIdentity { runner_id, peer, .. } = &self.identity;
            tracing::warn!(runner = %runner_id, %peer, "a connection said no hello and is closed");
            None
        })
    }

    async fn block(&mut self, mut block: Bytes) -> Result<(), LinkEnded> {
        // What is committed of its sessions is known after the hello, which may share its block with events.
        while self.runner.is_none() && !block.is_empty() {
            let length = memchr::memchr(b'\n', &block).map_or(block.len(), |end| end + 1);
            let line = block.split_to(length);
            match std::str::from_utf8(&line).ok().and_then(|line| line_head::parse(line.trim_end(), "").ok())
            {
                Some(LineHead::Other(kind)) => {
                    self.runner_line(&kind, &String::from_utf8_lossy(&line)).await?
                }
                _ => tracing::warn!("a runner speaks before its hello; skipped"),
            }
        }
        let Some(runner) = &self.runner else { return Ok(()) };
        runner.note_seen();
        while !block.is_empty() {
            let split = split(&self.hub, &self.identity, &self.link.send_queue, &mut self.refusals, &block);
            for step in split.steps {
                self.step(step).await?;
            }
            if let Some(missing) = split.missing {
                tracing::warn!(runner = %self.identity.runner_id, session = %missing.session_id,
                    expected = missing.expected, found = missing.found,
                    "records are missing; the link ends, so that the runner sends again what is not committed");
                return Err(LinkEnded);
            }
            block.advance(split.taken.min(block.len()));
        }
        Ok(())
    }

    async fn step(&mut self, step: StreamStep) -> Result<(), LinkEnded> {
        match step {
            StreamStep::Session(step) => self.session_step(step).await,
            StreamStep::Answer { id, session_id, success, tail } => {
                if let Some(session_id) = id.strip_prefix(DELETION_ID) {
                    self.note_deleted_by_runner(session_id, success, &tail);
                    return Ok(());
                }
                let Some(pending) = self.hub.pending.remove_answered(&id, &self.link.send_queue) else {
                    tracing::debug!(id, "an answer nobody waits for");
                    return Ok(());
                };
                let mut answer = RunnerAnswer { pending, success, tail };
                answer.note(&self.hub, session_id.as_deref());
                let entry = session_id.and_then(|session_id| self.hub.session(&session_id));
                // An answer about no session, or about one of another runner, has no records of ours to wait for.
                let Some(entry) = entry.filter(|entry| entry.runner_id == self.identity.runner_id) else {
                    answer.deliver(&self.hub, None);
                    return Ok(());
                };
                let content = if answer.deletes() {
                    StepContent::Forget(Some(answer))
                } else {
                    StepContent::Answer(answer)
                };
                self.session_step(SessionStep { entry, content }).await
            }
            StreamStep::Runner { kind, line } => self.runner_line(&kind, &line).await,
        }
    }

    /// What needs no commit, and follows nothing that does, is done at once; the rest is queued.
    async fn session_step(&mut self, step: SessionStep) -> Result<(), LinkEnded> {
        let SessionStep { entry, content } = step;
        let is_settled = entry.is_settled();
        let is_failing = self.state.is_failing.load(Ordering::Acquire);
        match content {
            StepContent::Frames { frames, records, mut notes, .. } if is_settled && records.is_empty() => {
                entry.ring.make_room(frames.len(), &self.state.stall_timeout).await;
                if notes.is_empty() {
                    entry.ring.publish(frames, None);
                } else {
                    entry.ring.publish(frames.clone(), None);
                    apply_notes(&self.hub, &entry, &mut notes);
                    let published = PublishedEvents::new(&entry, &frames, &[], &notes);
                    self.hub.faces.published(&self.hub, published);
                }
                Ok(())
            }
            StepContent::Natives(events) if is_settled => {
                self.hub.faces.native_events(&self.hub, &entry, &events);
                Ok(())
            }
            StepContent::Ack(seq) if is_settled => {
                self.link.send_queue.ack(&entry.id, seq);
                Ok(())
            }
            // While the store fails, answers that do not depend on it still get through: people can at least abort an
            // agent.
            StepContent::Answer(answer) if is_settled || is_failing && !answer.needs_store() => {
                answer.deliver(&self.hub, Some(&entry));
                Ok(())
            }
            content @ (StepContent::Frames { .. }
            | StepContent::Natives(_)
            | StepContent::Ack(_)
            | StepContent::Answer(_)
            | StepContent::Forget(_)
            | StepContent::Dropped) => self.commit(SessionStep { entry, content }).await,
        }
    }

    /// Queues a step for its commit, as soon as there is room for its bytes.
    async fn commit(&mut self, step: SessionStep) -> Result<(), LinkEnded> {
        let entry = &step.entry;
        match &step.content {
            // The session ends here and now, so that what follows under its name is read as a new one.
            StepContent::Forget(_) => {
                self.refusals.forget(&entry.id);
                self.hub.forget_session(entry);
            }
            #[cfg(feature = "planted-bugs")]
            StepContent::Frames { records, .. }
                if self.hub.config.planted_bug == Some(crate::PlantedBug::AckBeforeCommit) =>
            {
                records.iter().for_each(|record| self.link.send_queue.ack(&entry.id, record.seq));
            }
            StepContent::Frames { .. }
            | StepContent::Natives(_)
            | StepContent::Ack(_)
            | StepContent::Answer(_)
            | StepContent::Dropped => {}
        }
        // Counted before it is queued: from here on, later events of the session must queue behind it and not overtake
        // it.
        entry.begin_commit();
        let Some(room) = self.room_for(step.bytes()).await else {
            step.give_up(&self.hub);
            return Err(LinkEnded);
        };
        self.commits.send(QueuedStep { step, room }).await.map_err(|refused| {
            refused.0.step.give_up(&self.hub);
            LinkEnded
        })
    }

    /// `None` when the link is to end and there is still no room, since the store fails for other links.
    async fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // A step larger than all the room waits for all of it; asking for more would wait for ever.
        let units = (bytes / COMMIT_UNIT_BYTES + 1).min(COMMIT_UNITS_MAX);
        let room = Arc::clone(&self.hub.commit_room);
        // Nobody closes it, and who holds some of it is in a queue that is worked off: this cannot wait for itself.
        let room = room.acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        tokio::select! {
            // What was read while there is room is still committed, even when the link is to end.
            biased;
            room = room => room.ok(),
            () = async { self.link.stop.cancelled().await; sleep(ROOM_GRACE).await } => None,
        }
    }

    async fn runner_line(&mut self, kind: &str, line: &str) -> Result<(), LinkEnded> {
        if kind == PROGRESS {
            self.progress(line);
            return Ok(());
        }
        // An unknown line is a newer runner's, and skipping it is safe; a known one that cannot be read is an error.
        let known = ["runner.hello", "runner.heartbeat", "runner.rekey"];
        if !known.contains(&kind) {
            tracing::debug!(kind, "a line of the runner that this version does not know");
            return Ok(());
        }
        match serde_json::from_str(line) {
            Ok(LinkLine::Hello(hello)) => {
                self.hello(hello.clone()).await?;
                self.note = Some(self.noted(&hello));
            }
            Ok(LinkLine::Heartbeat(heartbeat)) => self.heartbeat(heartbeat),
            Ok(LinkLine::Rekey { key_hash }) => self.rekey(&key_hash),
            Ok(_) => {}
            Err(error) => tracing::error!(kind, %error, "a line of the runner cannot be read"),
        }
        Ok(())
    }

    /// For whoever asked; the data is passed on as it is.
    fn progress(&self, line: &str) {
        #[derive(serde::Deserialize)]
        struct Progress<'a> {
            #[serde(borrow)]
            id: std::borrow::Cow<'a, str>,
            #[serde(borrow)]
            data: &'a serde_json::value::RawValue,
        }
        match serde_json::from_str::<Progress<'_>>(line) {
            Ok(Progress { id, data }) => {
                self.hub.pending.progress(&self.hub, &id, &self.link.send_queue, data);
            }
            Err(error) => tracing::error!(%error, "the progress of a command cannot be read"),
        }
    }

    fn heartbeat(&mut self, heartbeat: RunnerHeartbeat) {
        let Some(runner) = &self.runner else { return };
        runner.note_heartbeat(heartbeat);
        let now = now_ms();
        // Heartbeats are frequent and the stored time is for people; it need not be exact.
        let Some(note) = self.note.as_mut().filter(|note| now - note.seen_at >= NOTE_INTERVAL_MS) else {
            return;
        };
        note.seen_at = now;
        let (hub, note) = (Arc::clone(&self.hub), note.clone());
        self.hub.tasks.spawn(async move { note_runner(&hub, note).await });
    }

    /// The runner has made itself a new key: it counts once it is stored.
    fn rekey(&self, key_hash: &str) {
        let RunnerIdentity { runner_id, peer, .. } = &self.identity;
        let Some(hash) = hash_from_hex(key_hash) else {
            tracing::warn!(runner = %runner_id, %peer, "the hash of a new key cannot be read");
            return;
        };
        let (hub, runner_id) = (Arc::clone(&self.hub), Arc::clone(runner_id));
        let (link, key_hash) = (Arc::clone(&self.link), key_hash.to_owned());
        self.hub.tasks.spawn(async move {
            match hub.store.set_next_key(&runner_id, &hash).await {
                Ok(true) => {
                    tracing::info!(runner = %runner_id, "a runner has a new key");
                    if let Err(error) = link.send_queue.push(&line_of(&LinkLine::Rekeyed { key_hash })) {
                        tracing::debug!(runner = %runner_id, %error, "a runner cannot be told that its key counts");
                    }
                }
                Ok(false) => tracing::warn!(runner = %runner_id, "a runner without a key of its own wants another"),
                Err(error) => tracing::warn!(runner = %runner_id, %error, "a new key cannot be stored"),
            }
        });
    }

    /// The link is over: nobody waits for this runner any more.
    fn end(self) {
        // First no line is taken any more, then those that were are answered for: none is forgotten.
        self.link.send_queue.close();
        let Some(runner) = self.runner else { return };
        // A newer link of the same runner may be serving already; then nobody is told that the runner is gone.
        if runner.leave(&self.link) {
            tracing::info!(runner = %runner.id, peer = %self.identity.peer, "a runner has gone");
            self.hub.announce_runner(&runner);
            self.hub.faces.runner_update(&self.hub, &runner.id, RunnerUpdate::Gone);
        }
        for pending in self.hub.pending.remove_of_link(&self.link.send_queue) {
            let error =
                ErrorCode::LinkLost.with(format!("Runner {} disconnected before it answered", runner.id));
            pending.fail(&self.hub, &error, true);
        }
    }
}
