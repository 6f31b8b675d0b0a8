//! Where commands are admitted and announced. Everything here is done with the pending commands locked, so that every client
//! sees one order; what takes time is handed back as a list of things to do.
//!
//! A step collects its frames and sends them once, because a command has several phases and every phase goes to every
//! client. Nothing here waits or asks the store: that would hold up all commands of all clients.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use qd_core::view::pi_server::admission::{
    Admission, AdmissionEffect, AdmissionLimits, PiServerOutcome, PiServerSubmission, SERVER_SCOPE,
    SubmissionToken,
};
use qd_core::view::pi_server::rate;
use qd_core::view::pi_server::request::PiServerRequest;
use qd_store::SubmissionRow;
use qd_wire::pi_server::Command;

use crate::faces::pi_server::clients::client::PiClient;
use crate::faces::pi_server::clients::followers::NewFollower;
use crate::faces::pi_server::commands::journal::{self, BEHIND_DATA_BYTES_MAX, CommandJournal, JournalEntry};
use crate::faces::pi_server::commands::lifecycle::{self, CommandHeading, CommandPhase};
use crate::faces::pi_server::commands::send_order::{CommandLane, SendOrder};
use crate::faces::pi_server::config::PiServerConfig;

/// Bytes for the frames of one step: two phases of one command, as a rule.
const BATCH_BYTES: usize = 512;

pub(crate) struct PiPendingCommands {
    pub(crate) admission: Admission,
    journal: Arc<CommandJournal>,
    live: HashMap<SubmissionToken, PiPendingCommand>,
    order: SendOrder,
    clients: Vec<Arc<PiClient>>,
    last_token: SubmissionToken,
    /// Sessions that clients know to be there.
    told: HashSet<Arc<str>>,
    /// Sessions that commands of this face are creating or deleting; what others say of them meanwhile is not news.
    under_way: HashMap<Arc<str>, usize>,
    /// When the timer will look next.
    pub(crate) alarm_at: Option<i64>,
    /// What clients are told when the hub stops, once it does.
    goodbye: Option<Bytes>,
    /// Frames of this step that were not sent yet, and how many.
    batch: BytesMut,
    batched: u64,
    /// The session these frames are about.
    batch_session: Option<Arc<str>>,
}

/// A command that has no answer yet.
struct PiPendingCommand {
    job: CommandJob,
    /// The name of the row it is stored in.
    uid: Arc<str>,
    heading: CommandHeading,
    accepted_at: i64,
    /// Nothing is kept of it: the access of its principal was taken back.
    is_revoked: bool,
    /// Whether it is creating or deleting its session.
    is_under_way: bool,
    after: AfterResponse,
}

/// What is needed to do a command.
#[derive(Clone)]
pub(crate) struct CommandJob {
    pub(crate) token: SubmissionToken,
    /// The name under which the runner does it at most once.
    pub(crate) uid: Arc<str>,
    /// Whether a restart left it in doubt, so that the runner may have done it.
    pub(crate) is_taken_up_again: bool,
    pub(crate) request: Arc<PiServerRequest>,
    /// The session it is about, a freshly minted one included.
    pub(crate) session_id: Option<Arc<str>>,
    pub(crate) client: Arc<PiClient>,
    /// Of the message it came in.
    pub(crate) bytes: usize,
}

impl CommandJob {
    /// The session it is about; empty for a command that has none.
    pub(crate) fn session(&self) -> &str {
        self.session_id.as_deref().unwrap_or_default()
    }
}

/// What follows the response of a command that succeeded.
#[derive(Default)]
pub(crate) enum AfterResponse {
    #[default]
    Nothing,
    /// Tell everybody of a new session.
    Created(Bytes),
    /// Tell everybody that a session is gone.
    Deleted,
    /// The client follows the session from here on.
    Follow(Box<NewFollower>),
}

/// What is to be done when the pending commands are not locked any more.
pub(crate) enum DeferredStep {
    /// Store what came of a command that changed nothing, when there is time.
    StoreBehind(Box<SubmissionRow>),
    Execute(CommandJob),
    Cancel(CommandJob),
    /// A client asked again for what it had: it may have lost its place since.
    FollowAgain(CommandJob),
    /// Nobody follows the session any more.
    EndSession(Arc<str>),
    /// A session of which something may have been missed.
    AnnounceIfChanged(Arc<str>),
    /// Rows whose outcomes left the bounds.
    Forget(Vec<Arc<str>>),
    /// The timer has to look earlier than it thinks.
    Alarm,
    /// The hub stops, and no command is left.
    Idle,
}

impl PiPendingCommands {
    pub(crate) fn new(config: &PiServerConfig, journal: Arc<CommandJournal>) -> Self {
        let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let limits = AdmissionLimits {
            outcomes_max: config.outcomes_max,
            outcome_bytes_max: config.outcome_bytes_max,
            in_flight_max: config.in_flight_max,
            in_flight_per_principal_max: config.in_flight_per_principal_max,
            key_ttl_ms: i64::try_from(millis(config.key_life)).unwrap_or(i64::MAX),
            dependency_wait_ms: millis(config.dependency_wait),
            rate: rate::RateLimits {
                per_minute: config.rate_per_minute,
                global_per_minute: config.global_rate_per_minute,
                ui_per_minute: config.ui_rate_per_minute,
            },
        };
        Self {
            admission: Admission::new(limits),
            journal,
            live: HashMap::new(),
            order: SendOrder::default(),
            clients: Vec::new(),
            last_token: 0,
            told: HashSet::new(),
            under_way: HashMap::new(),
            alarm_at: None,
            goodbye: None,
            batch: BytesMut::new(),
            batched: 0,
            batch_session: None,
        }
    }

    /// The next number of a submission.
    pub(crate) fn next_token(&mut self) -> SubmissionToken {
        self.last_token += 1;
        self.last_token
    }

    /// One that comes when the hub stops is told so.
    pub(crate) fn add_client(&mut self, client: Arc<PiClient>) {
        if let Some(goodbye) = &self.goodbye {
            client.put(goodbye.clone());
        }
        self.clients.push(client);
    }

    /// The hub stops: everybody is told, and no command is taken any more.
    pub(crate) fn announce_shutdown(&mut self, frames: &Bytes) {
        if self.goodbye.is_none() {
            self.goodbye = Some(frames.clone());
            self.clients.iter().for_each(|client| client.put(frames.clone()));
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.goodbye.is_some()
    }

    pub(crate) fn remove_client(&mut self, client: &Arc<PiClient>) {
        self.clients.retain(|other| !Arc::ptr_eq(other, client));
    }

    pub(crate) fn clients(&self) -> &[Arc<PiClient>] {
        &self.clients
    }

    /// Whether every command has its answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The names of all rows that belong to commands under way.
    pub(crate) fn live_uids(&self) -> HashSet<Arc<str>> {
        self.live.values().map(|live| Arc::clone(&live.uid)).collect()
    }

    /// Admits a command.
    pub(crate) fn submit(
        &mut self,
        now: i64,
        submission: PiServerSubmission,
        job: CommandJob,
        heading: CommandHeading,
    ) -> Vec<DeferredStep> {
        let live = PiPendingCommand {
            uid: Arc::clone(&job.uid),
            heading,
            accepted_at: now,
            is_revoked: false,
            is_under_way: false,
            after: AfterResponse::Nothing,
            job,
        };
        self.live.insert(submission.token, live);
        self.step(now, |admission, effects| admission.submit(now, submission, effects))
    }

    /// The access of a principal was taken back: what it has not begun is refused, and nothing is kept of the rest.
    /// What is there of it in the journal goes with an entry that the caller puts there before the pending commands are open.
    pub(crate) fn revoke(&mut self, now: i64, principal: &str) -> Vec<DeferredStep> {
        let mut identities = HashSet::new();
        for live in self.live.values_mut() {
            let client = &live.job.client;
            // Whoever has the name by now keeps what is its own.
            if **client.principal() == *principal && client.is_revoked() {
                identities.insert(Arc::clone(client.identity()));
                live.is_revoked = true;
            }
        }
        self.step(now, |admission, effects| {
            identities.iter().for_each(|identity| admission.principal_revoked(now, identity, effects));
        })
    }

    /// A command whose row was on its way was sent, or will not be: gives what waited for it, as long as there is
    /// something.
    pub(crate) fn release(&mut self, lane: &CommandLane, token: SubmissionToken) -> Option<Vec<CommandJob>> {
        loop {
            let mut jobs = self.order.release(lane, token)?;
            // Those that have run out of time have their answers.
            jobs.retain(|job| self.live.contains_key(&job.token));
            if !jobs.is_empty() {
                return Some(jobs);
            }
        }
    }

    /// A command is done. What follows its response is told when it is announced, and not when it is replayed.
    pub(crate) fn finish(
        &mut self,
        now: i64,
        token: SubmissionToken,
        outcome: PiServerOutcome,
        after: AfterResponse,
    ) -> Vec<DeferredStep> {
        if let Some(live) = self.live.get_mut(&token) {
            live.after = after;
        }
        self.step(now, |admission, effects| admission.finish(now, token, outcome, effects))
    }

    /// Lets the machine do one thing, and does what it wants done at once.
    pub(crate) fn step(
        &mut self,
        now: i64,
        act: impl FnOnce(&mut Admission, &mut Vec<AdmissionEffect>),
    ) -> Vec<DeferredStep> {
        let mut effects = Vec::with_capacity(4);
        act(&mut self.admission, &mut effects);
        let mut todo = Vec::new();
        for effect in effects {
            self.carry_out(now, effect, &mut todo);
        }
        self.flush();
        if self.is_stopping() && self.is_idle() {
            todo.push(DeferredStep::Idle);
        }
        let evicted = self.admission.evicted();
        if !evicted.is_empty() {
            todo.push(DeferredStep::Forget(evicted));
        }
        let deadline = self.admission.next_deadline();
        if deadline.is_some_and(|deadline| self.alarm_at.is_none_or(|alarm| deadline < alarm)) {
            self.alarm_at = deadline;
            todo.push(DeferredStep::Alarm);
        }
        todo
    }

    fn carry_out(&mut self, now: i64, effect: AdmissionEffect, todo: &mut Vec<DeferredStep>) {
        match effect {
            AdmissionEffect::Accepted(token) => self.announce_phase(token, CommandPhase::Accepted),
            AdmissionEffect::Started(token) => self.announce_phase(token, CommandPhase::Started),
            AdmissionEffect::Journal(token) => {
                let Some(live) = self.live.get(&token) else { return };
                let lane = self.order.reserve(&live.job);
                self.journal.push(JournalEntry::Begin { token, row: live.row(), lane });
            }
            AdmissionEffect::Execute { token, uid, session_id } => {
                let Some(live) = self.live.get_mut(&token) else { return };
                live.job.is_taken_up_again = live.job.uid != uid;
                live.job.uid = Arc::clone(&uid);
                live.uid = uid;
                if session_id.is_some() {
                    live.job.session_id = session_id;
                }
                todo.extend(self.order.admit(live.job.clone()).map(DeferredStep::Execute));
            }
            AdmissionEffect::Cancel { token, uid } => {
                let job = self.live.get(&token).map(|live| CommandJob { uid, ..live.job.clone() });
                todo.extend(job.map(DeferredStep::Cancel));
            }
            AdmissionEffect::Store { token, uid, outcome, wait } => {
                let Some(live) = self.live.get_mut(&token) else { return };
                live.uid = uid;
                let row = || journal::finished_row(live.row(), &outcome, now);
                if wait {
                    let row = (!live.is_revoked).then(row);
                    return self.journal.push(JournalEntry::End { token, row });
                }
                let is_small = outcome.data.as_ref().is_none_or(|data| data.len() <= BEHIND_DATA_BYTES_MAX);
                // A row that would not be taken need not be made.
                if is_small && !live.is_revoked && self.journal.has_room() {
                    todo.push(DeferredStep::StoreBehind(Box::new(row())));
                }
            }
            AdmissionEffect::Announce { token, outcome, replayed } => {
                self.announce(token, &outcome, replayed, todo)
            }
        }
    }

    fn announce(
        &mut self,
        token: SubmissionToken,
        outcome: &PiServerOutcome,
        replayed: bool,
        todo: &mut Vec<DeferredStep>,
    ) {
        self.announce_phase(token, CommandPhase::Finished { outcome, replayed });
        // The response comes after what everybody gets.
        self.flush();
        let Some(live) = self.live.remove(&token) else { return };
        let PiPendingCommand { job, after, is_under_way, .. } = live;
        let id = job.request.envelope.id.as_deref();
        job.client.put_frame(lifecycle::response(id, job.request.spec.name, outcome, replayed));
        job.client.end(job.bytes);
        if replayed {
            if outcome.success && matches!(job.request.command, Command::SwitchSession(_)) {
                todo.push(DeferredStep::FollowAgain(job));
            }
            return;
        }
        if let Some(session_id) = job.session_id.as_ref().filter(|_| is_under_way) {
            self.end_session_change(session_id, todo);
        }
        match after {
            AfterResponse::Created(frames) if outcome.success => {
                self.announce_created(job.session(), &frames)
            }
            AfterResponse::Deleted if outcome.success => {
                self.announce_deleted(job.session());
                todo.extend(job.session_id.map(DeferredStep::EndSession));
            }
            AfterResponse::Follow(follower) if outcome.success => follower.follow(&job.client),
            AfterResponse::Nothing
            | AfterResponse::Created(_)
            | AfterResponse::Deleted
            | AfterResponse::Follow(_) => {}
        }
    }

    /// Appends a frame of a command to this step's, or sends it at once if not everybody gets the same.
    fn announce_phase(&mut self, token: SubmissionToken, phase: CommandPhase<'_>) {
        let Some(session_id) = self.live.get(&token).map(|live| live.job.session_id.clone()) else { return };
        if self.batch_session != session_id {
            self.flush();
            self.batch_session = session_id;
        }
        let Some(live) = self.live.get(&token) else { return };
        if !live.heading.has_key() {
            self.batch.reserve(BATCH_BYTES);
            live.heading.push_frame(&mut self.batch, phase, false);
            self.batched += 1;
            return;
        }
        let (mut own, mut others) =
            (BytesMut::with_capacity(BATCH_BYTES), BytesMut::with_capacity(BATCH_BYTES));
        live.heading.push_frame(&mut own, phase, true);
        live.heading.push_frame(&mut others, phase, false);
        let principal = Arc::clone(live.job.client.principal());
        let (own, others) = (own.freeze(), others.freeze());
        self.flush();
        for client in self.clients.iter().filter(|client| self.may_see_batch(client)) {
            let is_own = *client.principal() == principal;
            client.send_events(if is_own { &own } else { &others }, 1);
        }
    }

    /// Sends this step's frames to everybody who may see their session.
    fn flush(&mut self) {
        let count = std::mem::take(&mut self.batched);
        if count == 0 {
            return;
        }
        let frames = self.batch.split().freeze();
        let clients = self.clients.iter().filter(|client| self.may_see_batch(client));
        clients.for_each(|client| client.send_events(&frames, count));
    }

    fn may_see_batch(&self, client: &PiClient) -> bool {
        self.batch_session.as_deref().is_none_or(|session_id| may_see(client.principal(), session_id))
    }

    /// A command is about to create or delete its session.
    pub(crate) fn begin_session_change(&mut self, token: SubmissionToken) {
        let Some(live) = self.live.get_mut(&token) else { return };
        let Some(session_id) = live.job.session_id.clone() else { return };
        live.is_under_way = true;
        *self.under_way.entry(session_id).or_default() += 1;
    }

    /// Sessions that are being created or deleted.
    pub(crate) fn under_way(&self) -> Vec<Arc<str>> {
        self.under_way.keys().cloned().collect()
    }

    /// What others did to the session meanwhile was no news then, and may be now: it is looked for after what this
    /// command itself has to tell.
    fn end_session_change(&mut self, session_id: &Arc<str>, todo: &mut Vec<DeferredStep>) {
        let Some(count) = self.under_way.get_mut(session_id) else { return };
        *count -= 1;
        if *count == 0 {
            self.under_way.remove(session_id);
            todo.push(DeferredStep::AnnounceIfChanged(Arc::clone(session_id)));
        }
    }

    /// Clients know of these sessions without being told.
    pub(crate) fn note_known_sessions(&mut self, sessions: impl IntoIterator<Item = Arc<str>>) {
        self.told.extend(sessions);
    }

    /// Whether clients have yet to be told that the session is there, or is gone.
    pub(crate) fn needs_announcement(&self, session_id: &str, is_there: bool) -> bool {
        !self.under_way.contains_key(session_id) && self.told.contains(session_id) != is_there
    }

    pub(crate) fn announce_created(&mut self, session_id: &str, frames: &Bytes) {
        self.told.insert(Arc::from(session_id));
        self.send_to_viewers(session_id, frames);
    }

    pub(crate) fn announce_deleted(&mut self, session_id: &str) {
        self.told.remove(session_id);
        self.send_to_viewers(session_id, &lifecycle::session_deleted(session_id));
    }

    fn send_to_viewers(&mut self, session_id: &str, frames: &Bytes) {
        let clients = self.clients.iter().filter(|client| may_see(client.principal(), session_id));
        clients.for_each(|client| client.send_events(frames, 1));
    }
}

/// Whether a principal may know of a session. Everybody who may come in may see everything; when sessions have
/// owners, they are asked here.
pub(crate) fn may_see(_principal: &str, _session_id: &str) -> bool {
    true
}

impl PiPendingCommand {
    fn row(&self) -> SubmissionRow {
        let CommandJob { request, session_id, client, .. } = &self.job;
        SubmissionRow {
            uid: Arc::clone(&self.uid),
            principal: Arc::clone(client.principal()),
            command_id: request.envelope.id.clone(),
            scope: request.session_id.clone().unwrap_or_else(|| SERVER_SCOPE.to_owned()),
            idempotency_key: request.envelope.idempotency_key.clone(),
            session_id: session_id.as_deref().map(str::to_owned),
            command: request.spec.name.to_owned(),
            fingerprint: request.fingerprint,
            accepted_at: self.accepted_at,
            finished_at: None,
            success: None,
            outcome_json: None,
            data_json: None,
        }
    }
}
