//! Where everything the runner says goes out: to the hub as its link allows, to local clients at once.

mod flow;
mod locals;
mod said;
mod watched;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use qd_core::outbox::Round;
use qd_link::memory::LinkSender;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::session::SessionInput;
use flow::{Flow, Verdict};
pub(crate) use flow::{Step, Turn};
use locals::Locals;
pub(crate) use locals::{LocalPieces, LocalQueue, Piece, local_queue};
use said::Said;
use watched::Watched;

/// How long a session waits for room in the link: long enough for a busy hub to hold back a fast agent, short
/// enough that no agent waits for a network.
const ROOM_WAIT: Duration = Duration::from_millis(200);

/// How often it is looked whether the last answers are gone when the runner stops.
const LOOSE_POLL: Duration = Duration::from_millis(5);

/// The way out, shared by all sessions.
pub(crate) struct Outlet {
    state: Mutex<State>,
    /// The pump has work.
    wake: Notify,
    next_origin: AtomicU64,
    directory: Mutex<BTreeMap<String, mpsc::Sender<SessionInput>>>,
    /// Sessions that the hub watches in the form of a watching face.
    watched: Mutex<Watched>,
}

struct State {
    flow: Flow,
    link: Option<HubLink>,
    locals: Locals,
}

/// The link of now.
#[derive(Clone)]
pub(crate) struct HubLink {
    pub(crate) origin: u64,
    pub(crate) sender: LinkSender,
    /// Ends the link.
    pub(crate) cut: CancellationToken,
}

impl Outlet {
    pub(crate) fn new(runner_id: &str) -> Self {
        let state = State { flow: Flow::new(runner_id), link: None, locals: Locals::default() };
        Outlet {
            state: Mutex::new(state),
            wake: Notify::new(),
            next_origin: AtomicU64::new(1),
            directory: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// A number for a new connection, never given twice.
    pub(crate) fn new_origin(&self) -> u64 {
        self.next_origin.fetch_add(1, Ordering::Relaxed)
    }

    /// What a session said in one round, its records stored already. `block` holds the lines, `round` says where in
    /// it records and responses lie; its own `bytes` are not looked at.
    pub(crate) async fn publish(&self, session_id: &str, block: Bytes, round: &Round) {
        if block.is_empty() {
            return;
        }
        let said = Said {
            session_id,
            block: &block,
            records: &round.records,
            responses: &round.responses,
            natives: &round.natives,
        };
        let (link, block) = {
            let mut state = self.lock();
            state.locals.deliver(&said);
            let verdict = state.flow.publish(&said);
            // The end of a session releases answers that waited for their place.
            if state.flow.has_loose() {
                self.wake.notify_one();
            }
            match verdict {
                Verdict::Send { block, .. } => (state.link.clone(), block),
                Verdict::Wake => return self.woken(state),
                Verdict::Nothing => return,
            }
        };
        let Some(link) = link else { return };
        match tokio::time::timeout(ROOM_WAIT, link.sender.send(block)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::debug!(session_id, "the hub is gone; records wait in the spool"),
            Err(_) => {
                tracing::debug!(session_id, "the link to the hub is full; the session catches up later");
                let mut state = self.lock();
                state.flow.unsent(link.origin, &said);
                self.woken(state);
            }
        }
    }

    /// A line for one connection, bound to no place in a session's stream; never waits.
    pub(crate) fn tell(&self, origin: u64, line: Bytes) {
        let mut state = self.lock();
        if !state.locals.tell(origin, line.clone()) {
            state.flow.tell(origin, line);
            self.woken(state);
        }
    }

    /// A line that may be left out: false when the connection has enough to read, or is gone.
    pub(crate) fn tell_if_room(&self, origin: u64, line: Bytes) -> bool {
        let mut state = self.lock();
        if let Some(is_told) = state.locals.tell_if_room(origin, &line) {
            return is_told;
        }
        let is_told = state.flow.tell_if_room(origin, line);
        if is_told {
            self.woken(state);
        }
        is_told
    }

    /// Wakes the pump, and ends the link of a hub that takes no answers.
    fn woken(&self, state: MutexGuard<'_, State>) {
        if let Some(link) = state.link.as_ref().filter(|_| state.flow.is_overrun()) {
            tracing::warn!("the hub asks but takes no answers; the link is ended");
            link.cut.cancel();
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Begins to use a link whose welcome has come.
    pub(crate) fn link_up(&self, link: HubLink, hub_seqs: &BTreeMap<String, u64>) {
        let mut state = self.lock();
        state.flow.link_up(link.origin, hub_seqs);
        state.link = Some(link);
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn link_down(&self, origin: u64) {
        let mut state = self.lock();
        let is_current = state.link.as_ref().is_some_and(|link| link.origin == origin);
        if is_current {
            state.link = None;
            state.flow.link_down();
        }
        drop(state);
        if is_current {
            self.unwatch_all();
        }
        self.wake.notify_one();
    }

    /// The hub has committed records.
    pub(crate) fn ack(&self, origin: u64, session_id: &str, seq: u64) {
        if self.lock().flow.ack(origin, session_id, seq) {
            self.wake.notify_one();
        }
    }

    /// The hub takes nothing of this session. False when that was known.
    pub(crate) fn refuse(&self, origin: u64, session_id: &str) -> bool {
        let is_new = self.lock().flow.refuse(origin, session_id);
        self.wake.notify_one();
        is_new
    }

    /// What the pump of a link does next; `None` when the link is over.
    pub(crate) async fn next_step(&self, origin: u64) -> Option<Step> {
        loop {
            {
                let mut state = self.lock();
                if state.link.as_ref().is_none_or(|link| link.origin != origin) {
                    return None;
                }
                match state.flow.next() {
                    Step::Wait => {}
                    step => return Some(step),
                }
            }
            self.wake.notified().await;
        }
    }

    /// The link of this number has room again.
    pub(crate) fn has_room(&self, origin: u64) {
        self.lock().flow.has_room(origin);
    }

    pub(crate) fn have_read(&self, turn: &Turn, rows: Vec<(u64, Bytes)>) -> Option<Bytes> {
        self.lock().flow.have_read(turn, rows)
    }

    /// Waits until no answer waits for the hub any more.
    pub(crate) async fn without_loose(&self) {
        while self.lock().flow.has_loose() {
            tokio::time::sleep(LOOSE_POLL).await;
        }
    }

    /// The session is deleted; another one of its name begins anew.
    pub(crate) fn forget(&self, session_id: &str) {
        let mut state = self.lock();
        state.flow.forget(session_id);
        state.locals.forget(session_id);
        self.woken(state);
        self.watched().forget(session_id);
    }

    /// The hub wants a session's events in the form of a watching face too, or no more.
    pub(crate) fn watch(&self, session_id: &str, on: bool) {
        let number = self.watched().set(session_id, on);
        self.inform(session_id, SessionInput::Watch { number, on });
    }

    /// Tells a session that has just begun whether it is watched: the hub may have said so before it was there.
    pub(crate) fn tell_watched(&self, session_id: &str) {
        let number = self.watched().number_of(session_id);
        if let Some(number) = number {
            self.inform(session_id, SessionInput::Watch { number, on: true });
        }
    }

    /// Nobody watches without a link; the hub says it again on the next.
    fn unwatch_all(&self) {
        let (number, sessions) = self.watched().clear();
        for session_id in sessions {
            self.inform(&session_id, SessionInput::Watch { number, on: false });
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of last time, known before its actor speaks.
    pub(crate) fn restore(&self, session_id: &str, last_seq: u64) {
        self.lock().flow.restore(session_id, last_seq);
    }

    /// All sessions that have records, and the last of each.
    pub(crate) fn sessions(&self) -> Vec<(String, u64)> {
        self.lock().flow.sessions()
    }

    pub(crate) fn add_local(&self, origin: u64, queue: LocalQueue) {
        self.lock().locals.add(origin, queue);
    }

    pub(crate) fn remove_local(&self, origin: u64) {
        self.lock().locals.remove(origin);
    }

    pub(crate) fn detach_local(&self, origin: u64, session_id: &str) {
        self.lock().locals.detach(origin, session_id);
    }

    pub(crate) fn follower_count(&self, session_id: &str) -> usize {
        self.lock().locals.follower_count(session_id)
    }

    /// The mailboxes of all sessions.
    pub(crate) fn directory(&self) -> MutexGuard<'_, BTreeMap<String, mpsc::Sender<SessionInput>>> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts news into a session's mailbox, without waiting for room in it.
    pub(crate) fn inform(&self, session_id: &str, input: SessionInput) {
        let Some(sender) = self.directory().get(session_id).cloned() else { return };
        if let Err(mpsc::error::TrySendError::Full(input)) = sender.try_send(input) {
            tokio::spawn(async move {
                if sender.send(input).await.is_err() {
                    tracing::debug!("a session ended before news reached it");
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
