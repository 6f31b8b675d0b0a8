//! Pushes: people are told on their phones and browsers when an agent needs them, is done or has failed, unless they
//! look already.
//!
//! What happens in sessions is seen here as it is published, and becomes jobs for one task, which waits a little, looks
//! who wants to know and does not look, and sends. Nobody waits for it: what does not fit its queue is dropped and
//! logged. Messages are for the push services of browsers, which cannot read them (`seal`).

mod answer;
mod api;
mod deliver;
mod endpoint;
mod key;
mod notification_text;
mod public_address;
mod questions;
mod seal;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use qd_core::projection::ProjectionChange;
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_wire::data::SessionStatus;
use qd_wire::push::PushTopic;
use qd_wire::{CodedError, InputRequest, StopReason};
use tokio::sync::mpsc;

use super::{Face, FaceFuture};
use crate::config::HubConfig;
use crate::hub::Hub;
use crate::server::Server;
use crate::sessions::effects::SessionNote;
use crate::sessions::published::PublishedEvents;
use crate::sessions::session::SessionEntry;
use answer::{AnswerResult, answer};
use deliver::{DeliveryJob, DeliveryLanes, deliver_pushes, send_test};
use endpoint::PushEndpoint;
pub use key::{PushKey, PushKeyError};
use questions::OpenQuestions;
use seal::{AUTH_BYTES, MessageRecipient, POINT_BYTES};

/// Jobs that wait for the task that does them.
const JOBS_MAX: usize = 1024;
const CONTACT_DEFAULT: &str = "mailto:admin@localhost";
const DONE_AFTER_DEFAULT: Duration = Duration::from_secs(30);
/// Whoever sits at the screen answers within this, and no phone rings.
const QUESTION_DELAY_DEFAULT: Duration = Duration::from_secs(2);
/// Who looks away for a moment is not told at once of what they have seen.
const LEFT_GRACE_DEFAULT: Duration = Duration::from_secs(15);
const RETRY_FIRST_DEFAULT: Duration = Duration::from_secs(2);

/// How pushes are sent.
#[derive(Debug, Clone)]
pub struct PushConfig {
    /// Without a key there are no pushes.
    pub key: Option<PushKey>,
    /// Where a push service can complain about us: `mailto:…` or `https://…`.
    pub contact: String,
    /// The end of a turn that was shorter is no news.
    pub done_after: Duration,
    /// Also send to push services on this machine, over plain HTTP. For tests.
    pub allow_loopback: bool,
    /// How long something has to last before people are told.
    pub delay: Duration,
    /// How long somebody who looked has to look away before they are told.
    pub left_grace: Duration,
    /// The pause before a message is sent again; later ones are longer.
    pub retry_first: Duration,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            key: None,
            contact: CONTACT_DEFAULT.to_owned(),
            done_after: DONE_AFTER_DEFAULT,
            allow_loopback: false,
            delay: QUESTION_DELAY_DEFAULT,
            left_grace: LEFT_GRACE_DEFAULT,
            retry_first: RETRY_FIRST_DEFAULT,
        }
    }
}

/// What the hub knows for pushes.
pub(crate) struct PushFace {
    config: PushConfig,
    questions: OpenQuestions,
    /// Ends of turns that people are yet to be told of.
    ends: Mutex<HashMap<Arc<str>, SessionEnd>>,
    jobs: mpsc::Sender<DeliveryJob>,
    /// Until the task that does them takes it.
    receiver: Mutex<Option<mpsc::Receiver<DeliveryJob>>>,
    lanes: DeliveryLanes,
    /// Whether somebody may want to know; while nobody does, nothing is looked into.
    has_subscribers: AtomicBool,
    /// How often somebody has begun to want to. Who counts them in the store may have looked before the last did.
    subscribed: Mutex<u64>,
}

/// How a turn, a program or a session has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionEnd {
    topic: PushTopic,
    /// What went wrong, or with which code a program ended.
    said: Option<String>,
}

impl PushFace {
    pub(super) fn new(config: &HubConfig) -> Self {
        let (jobs, receiver) = mpsc::channel(JOBS_MAX);
        Self {
            config: config.faces.push.clone(),
            questions: OpenQuestions::default(),
            ends: Mutex::default(),
            jobs,
            receiver: Mutex::new(Some(receiver)),
            lanes: DeliveryLanes::default(),
            // Until the store was asked.
            has_subscribers: AtomicBool::new(true),
            subscribed: Mutex::default(),
        }
    }
}

impl Face for PushFace {
    fn routes(&self) -> Router<Server> {
        api::routes()
    }

    #[cfg(test)]
    fn described_routes(&self) -> &'static [(&'static str, &'static str)] {
        api::REST
    }

    fn run_background<'a>(&'a self, hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(deliver_pushes(hub))
    }

    fn is_used(&self) -> bool {
        self.config.key.is_some()
    }

    fn on_published(&self, _hub: &Arc<Hub>, published: PublishedEvents<'_>) {
        if !self.has_subscribers() {
            return;
        }
        for note in published.notes.iter().filter(|note| !note.is_past()) {
            self.note(&published.entry.id, note);
        }
    }

    /// Questions may have come and gone, and turns ended, while the runner was away.
    fn on_described(
        &self,
        _hub: &Arc<Hub>,
        entry: &SessionEntry,
        status: SessionStatus,
        pending: &[InputRequest],
        ended_turn: Option<i64>,
    ) {
        if !self.is_used() {
            return;
        }
        for request_id in self.questions.ids_of(&entry.id) {
            if !pending.iter().any(|request| request.request_id() == &*request_id) {
                self.resolved(&entry.id, &request_id);
            }
        }
        if self.has_subscribers() {
            pending.iter().for_each(|request| self.asked(&entry.id, Arc::new(request.clone())));
        }
        let end = |topic| SessionEnd { topic, said: None };
        match (status, ended_turn) {
            (SessionStatus::Failed, Some(_)) => self.ended(&entry.id, end(PushTopic::Failed)),
            (SessionStatus::Idle, began) => self.turn_ended(&entry.id, began, end(PushTopic::Done)),
            (
                SessionStatus::Starting
                | SessionStatus::Working
                | SessionStatus::Dormant
                | SessionStatus::Failed
                | SessionStatus::Closed
                | SessionStatus::Offline,
                _,
            ) => {}
        }
    }

    /// With the session go its questions.
    fn forget(&self, session_id: &Arc<str>) {
        for request_id in self.questions.ids_of(session_id) {
            self.resolved(session_id, &request_id);
        }
    }
}

impl PushFace {
    /// Somebody wants to know from now on.
    fn note_subscriber(&self) {
        let mut subscribed = self.subscribed.lock();
        *subscribed += 1;
        self.has_subscribers.store(true, Ordering::Relaxed);
    }

    /// The store had no subscribers when this many had subscribed.
    fn note_no_subscribers(&self, subscribed: u64) {
        let now = self.subscribed.lock();
        if *now == subscribed {
            self.has_subscribers.store(false, Ordering::Relaxed);
        }
    }

    fn has_subscribers(&self) -> bool {
        self.has_subscribers.load(Ordering::Relaxed)
    }

    fn note(&self, session_id: &Arc<str>, note: &SessionNote) {
        let end = |topic, said| SessionEnd { topic, said };
        match &note.change {
            ProjectionChange::Asked(question) => {
                if let Some(request) = &question.request {
                    self.asked(session_id, Arc::clone(request));
                }
            }
            ProjectionChange::Answered(answered) => self.resolved(session_id, &answered.request_id),
            ProjectionChange::Acted { request_id } => self.resolved(session_id, request_id),
            ProjectionChange::Idle { reason: Some(StopReason::Aborted) } => {}
            ProjectionChange::Idle { reason: Some(StopReason::Error) } => {
                self.ended(session_id, end(PushTopic::Failed, None));
            }
            ProjectionChange::Idle { .. } => {
                self.turn_ended(session_id, note.ended_turn, end(PushTopic::Done, None))
            }
            ProjectionChange::Failed { error } => {
                self.forget(session_id);
                self.ended(session_id, end(PushTopic::Failed, Some(error.clone())));
            }
            ProjectionChange::Exited { exit_code } => {
                let said = exit_code.map(|code| format!("Ended with code {code}"));
                self.turn_ended(session_id, note.ended_turn, end(PushTopic::Done, said));
            }
            ProjectionChange::Closed => self.forget(session_id),
            ProjectionChange::Created { .. }
            | ProjectionChange::Started { .. }
            | ProjectionChange::Working(_)
            | ProjectionChange::Titled(_)
            | ProjectionChange::ModelChanged { .. }
            | ProjectionChange::BranchChanged(_)
            | ProjectionChange::Said { .. }
            | ProjectionChange::Described(_) => {}
        }
    }

    fn asked(&self, session_id: &Arc<str>, request: Arc<InputRequest>) {
        if let Some(key) = self.questions.open(session_id, request, now_ms()) {
            self.queue(DeliveryJob::Question(key));
        }
    }

    fn resolved(&self, session_id: &Arc<str>, request_id: &str) {
        if let Some((key, question)) = self.questions.close(session_id, request_id)
            && !question.told.is_empty()
        {
            self.queue(DeliveryJob::Resolved { key, told: question.told });
        }
    }

    /// A turn has ended by itself, which is news if it was a long one.
    fn turn_ended(&self, session_id: &Arc<str>, began: Option<i64>, end: SessionEnd) {
        let Some(began) = began else { return };
        let took = u64::try_from(now_ms().saturating_sub(began)).unwrap_or(0);
        if self.has_subscribers() && Duration::from_millis(took) >= self.config.done_after {
            self.ended(session_id, end);
        }
    }

    /// People are to be told of an end, of the worst one where several come together.
    fn ended(&self, session_id: &Arc<str>, end: SessionEnd) {
        let is_first = match self.ends.lock().entry(Arc::clone(session_id)) {
            Entry::Vacant(vacant) => {
                vacant.insert(end);
                true
            }
            Entry::Occupied(mut occupied) => {
                let known = occupied.get();
                let is_worse = end.topic == PushTopic::Failed && known.topic != PushTopic::Failed;
                let says_more = end.topic == known.topic && known.said.is_none();
                if is_worse || says_more {
                    occupied.insert(end);
                }
                false
            }
        };
        if is_first && !self.queue(DeliveryJob::End(Arc::clone(session_id))) {
            self.ends.lock().remove(session_id);
        }
    }

    fn take_end(&self, session_id: &str) -> Option<SessionEnd> {
        self.ends.lock().remove(session_id)
    }

    /// False if there is no room, which is logged.
    fn queue(&self, job: DeliveryJob) -> bool {
        let queued = self.jobs.try_send(job);
        if queued.is_err() {
            tracing::warn!("too many pushes wait; one is dropped");
        }
        queued.is_ok()
    }
}

/// Checks what a browser says of itself; what is good is given as it is stored.
pub(crate) fn check_subscription(
    config: &PushConfig,
    endpoint: &str,
    p256dh: &[u8],
    auth: &[u8],
) -> Result<(), CodedError> {
    PushEndpoint::parse(endpoint, config.allow_loopback)
        .map_err(|error| CodedError::invalid(error.to_string()))?;
    if p256dh.len() != POINT_BYTES || auth.len() != AUTH_BYTES {
        let error = format!("'keys' must be {POINT_BYTES} and {AUTH_BYTES} bytes, as base64url");
        return Err(CodedError::invalid(error));
    }
    match seal::seal(MessageRecipient { p256dh, auth }, b"") {
        Some(_) => Ok(()),
        None => Err(CodedError::invalid("'keys.p256dh' is no public key of the curve P-256")),
    }
}

#[cfg(test)]
#[path = "push/tests.rs"]
mod tests;
