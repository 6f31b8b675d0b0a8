//! Delivers what sessions say: to the hub as its link allows, to local clients at once.
//!
//! The scheduler decides, without I/O, what goes to the hub next; here is what waits, sends and wakes. There is one
//! lock around it, held for no longer than a decision: nothing is awaited under it.

mod local_clients;
mod scheduler;
mod session_output;
mod watched_sessions;

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use qd_core::event_writer::EventBatch;
use qd_link::memory::LinkSender;
use qd_link::mutex::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::session::SessionInput;
use local_clients::LocalClients;
pub(crate) use local_clients::{LocalMessage, LocalQueue, LocalQueueReceiver, local_queue};
pub(crate) use scheduler::{CatchUpTurn, DeliveryStep};
use scheduler::{DeliveryScheduler, PublishVerdict};
use session_output::SessionOutput;
use watched_sessions::WatchedSessions;

/// How long a session waits for room in the link: long enough for a busy hub to hold back a fast agent, short
/// enough that no agent waits for a network.
const ROOM_WAIT: Duration = Duration::from_millis(200);

/// How often it is looked whether the last answers are gone when the runner stops.
const ANSWER_POLL: Duration = Duration::from_millis(5);

/// Delivery of records, events and answers, shared by all sessions.
pub(crate) struct HubDelivery {
    state: Mutex<DeliveryState>,
    /// The sender has work.
    wake: Notify,
    next_origin: AtomicU64,
    pub(crate) mailboxes: Mutex<BTreeMap<String, mpsc::Sender<SessionInput>>>,
    /// Sessions that the hub watches in the form of a watching face.
    watched: Mutex<WatchedSessions>,
}

struct DeliveryState {
    scheduler: DeliveryScheduler,
    link: Option<HubLink>,
    local_clients: LocalClients,
}

/// The link of now.
#[derive(Clone)]
pub(crate) struct HubLink {
    pub(crate) origin: u64,
    pub(crate) sender: LinkSender,
    /// Ends the link.
    pub(crate) cut: CancellationToken,
}

impl HubDelivery {
    pub(crate) fn new(runner_id: &str) -> Self {
        let state = DeliveryState {
            scheduler: DeliveryScheduler::new(runner_id),
            link: None,
            local_clients: LocalClients::default(),
        };
        HubDelivery {
            state: Mutex::new(state),
            wake: Notify::new(),
            next_origin: AtomicU64::new(1),
            mailboxes: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// A number for a new connection, never given twice.
    pub(crate) fn new_origin(&self) -> u64 {
        self.next_origin.fetch_add(1, Ordering::Relaxed)
    }

    /// What a session said in one round, its records stored already. `block` holds the lines, `round` says where in
    /// it records and responses lie; its own `bytes` are not looked at.
    pub(crate) async fn publish(&self, session_id: &str, block: Bytes, round: &EventBatch) {
        if block.is_empty() {
            return;
        }
        let output = SessionOutput::new(session_id, &block, round);
        let (link, block) = {
            let mut state = self.state.lock();
            // Local clients never wait for the hub.
            state.local_clients.deliver(&output);
            let verdict = state.scheduler.publish(&output);
            // The end of a session releases answers that waited for their place.
            if state.scheduler.has_queued_answers() {
                self.wake.notify_one();
            }
            match verdict {
                PublishVerdict::Send { block, .. } => (state.link.clone(), block),
                PublishVerdict::Wake => return self.wake_sender(state),
                PublishVerdict::Nothing => return,
            }
        };
        let Some(link) = link else { return };
        match tokio::time::timeout(ROOM_WAIT, link.sender.send(block)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::debug!(session_id, "the hub is gone; records wait in the spool"),
            Err(_) => {
                tracing::debug!(session_id, "the link to the hub is full; the session catches up later");
                let mut state = self.state.lock();
                state.scheduler.unsent(link.origin, &output);
                self.wake_sender(state);
            }
        }
    }

    /// A line for one connection, bound to no place in a session's stream; never waits.
    pub(crate) fn send_line(&self, origin: u64, line: Bytes) {
        let mut state = self.state.lock();
        if !state.local_clients.send_line(origin, line.clone()) {
            state.scheduler.send_line(origin, line);
            self.wake_sender(state);
        }
    }

    /// A line that may be left out: false when the connection has enough to read, or is gone.
    pub(crate) fn send_line_if_room(&self, origin: u64, line: Bytes) -> bool {
        let mut state = self.state.lock();
        if let Some(is_told) = state.local_clients.send_line_if_room(origin, &line) {
            return is_told;
        }
        let is_told = state.scheduler.send_line_if_room(origin, line);
        if is_told {
            self.wake_sender(state);
        }
        is_told
    }

    /// Wakes the sender, and ends the link of a hub that takes no answers.
    fn wake_sender(&self, state: MutexGuard<'_, DeliveryState>) {
        if let Some(link) = state.link.as_ref().filter(|_| state.scheduler.is_overrun()) {
            tracing::warn!("the hub asks but takes no answers; the link is ended");
            link.cut.cancel();
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Begins to use a link whose welcome has come.
    pub(crate) fn link_up(&self, link: HubLink, hub_seqs: &BTreeMap<String, u64>) {
        let mut state = self.state.lock();
        state.scheduler.link_up(link.origin, hub_seqs);
        state.link = Some(link);
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn link_down(&self, origin: u64) {
        let mut state = self.state.lock();
        let is_current = state.link.as_ref().is_some_and(|link| link.origin == origin);
        if is_current {
            state.link = None;
            state.scheduler.link_down();
        }
        drop(state);
        if is_current {
            self.end_all_watches();
        }
        self.wake.notify_one();
    }

    /// The hub has committed records.
    pub(crate) fn ack(&self, origin: u64, session_id: &str, seq: u64) {
        if self.state.lock().scheduler.ack(origin, session_id, seq) {
            self.wake.notify_one();
        }
    }

    /// The hub takes nothing of this session. False when that was known.
    pub(crate) fn refuse(&self, origin: u64, session_id: &str) -> bool {
        let is_new = self.state.lock().scheduler.refuse(origin, session_id);
        self.wake.notify_one();
        is_new
    }

    /// What the sender of a link does next; `None` when the link is over.
    pub(crate) async fn next_step(&self, origin: u64) -> Option<DeliveryStep> {
        loop {
            {
                let mut state = self.state.lock();
                if state.link.as_ref().is_none_or(|link| link.origin != origin) {
                    return None;
                }
                match state.scheduler.next() {
                    DeliveryStep::Wait => {}
                    step => return Some(step),
                }
            }
            self.wake.notified().await;
        }
    }

    /// The link of this number has room again.
    pub(crate) fn has_room(&self, origin: u64) {
        self.state.lock().scheduler.has_room(origin);
    }

    pub(crate) fn records_read(&self, turn: &CatchUpTurn, rows: Vec<(u64, Bytes)>) -> Option<Bytes> {
        self.state.lock().scheduler.records_read(turn, rows)
    }

    /// Waits until no answer waits for the hub any more.
    pub(crate) async fn wait_until_answers_sent(&self) {
        while self.state.lock().scheduler.has_queued_answers() {
            tokio::time::sleep(ANSWER_POLL).await;
        }
    }

    /// The session is deleted; another one of its name begins anew.
    pub(crate) fn forget(&self, session_id: &str) {
        let mut state = self.state.lock();
        state.scheduler.forget(session_id);
        state.local_clients.forget(session_id);
        self.wake_sender(state);
        self.watched.lock().forget(session_id);
    }

    /// The hub wants a session's events in the form of a watching face too, or no more.
    pub(crate) fn watch(&self, session_id: &str, on: bool) {
        let number = self.watched.lock().set(session_id, on);
        self.post_to_session(session_id, SessionInput::Watch { number, on });
    }

    /// Tells a session that has just begun whether it is watched: the hub may have said so before it was there.
    pub(crate) fn post_watch_state(&self, session_id: &str) {
        let number = self.watched.lock().number_of(session_id);
        if let Some(number) = number {
            self.post_to_session(session_id, SessionInput::Watch { number, on: true });
        }
    }

    /// Nobody watches without a link; the hub says it again on the next.
    fn end_all_watches(&self) {
        let (number, sessions) = self.watched.lock().clear();
        for session_id in sessions {
            self.post_to_session(&session_id, SessionInput::Watch { number, on: false });
        }
    }

    /// A session of last time, known before its actor speaks.
    pub(crate) fn restore(&self, session_id: &str, last_seq: u64) {
        self.state.lock().scheduler.restore(session_id, last_seq);
    }

    /// All sessions that have records, and the last of each.
    pub(crate) fn sessions(&self) -> Vec<(String, u64)> {
        self.state.lock().scheduler.sessions()
    }

    pub(crate) fn add_local(&self, origin: u64, queue: LocalQueue) {
        self.state.lock().local_clients.add(origin, queue);
    }

    pub(crate) fn remove_local(&self, origin: u64) {
        self.state.lock().local_clients.remove(origin);
    }

    pub(crate) fn detach_local(&self, origin: u64, session_id: &str) {
        self.state.lock().local_clients.detach(origin, session_id);
    }

    pub(crate) fn follower_count(&self, session_id: &str) -> usize {
        self.state.lock().local_clients.follower_count(session_id)
    }

    /// Puts news into a session's mailbox, without waiting for room in it.
    pub(crate) fn post_to_session(&self, session_id: &str, input: SessionInput) {
        let Some(sender) = self.mailboxes.lock().get(session_id).cloned() else { return };
        if let Err(mpsc::error::TrySendError::Full(input)) = sender.try_send(input) {
            tokio::spawn(async move {
                if sender.send(input).await.is_err() {
                    tracing::debug!("a session ended before news reached it");
                }
            });
        }
    }
}
