//! A session followed through any number of reconnects.
//!
//! The cursor makes each record reach the caller once: what the server sends again is left out, a hole is asked for,
//! and a message that was being written is caught up with from its snapshot. Only a hub of another version can make
//! an event unreadable; then it is skipped, because waiting for it would never end.

use std::collections::VecDeque;
use std::time::Duration;

use qd_wire::command::{SessionAttachParams, SessionConfig, SessionCreateParams};
use qd_wire::command_table::{CommandClass, class_of};
use qd_wire::data::{AttachData, Partial, SessionCreatedData};
use qd_wire::mux::SystemEvent;
use qd_wire::{Command, Event, EventEnvelope, EventPayload};
use tokio::time::Instant;

use crate::backoff::Backoff;

use super::connect::{ConnectError, ConnectOptions};
use super::cursor::{CursorVerdict, SessionCursor};
use super::frame::{Frame, FrameKind};
use super::queue::FrameQueue;
use super::request::ClientRequest;
use super::{CallError, MuxClient};

/// How often a re-attach may be refused before we believe it: a hub that just restarted may wait for its runner.
const REATTACH_REFUSALS_MAX: u32 = 5;
/// The longest pause between two attempts to attach again: a session goes on within 2 s of its hub's return.
const REATTACH_PAUSE_MAX: Duration = Duration::from_millis(1500);

/// The event that stands for an attach; its `seq` is a cursor and no record's number.
const RESYNC: &str = "session.resync";

/// Which session to follow.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one is made for each session that is followed")]
pub enum AttachStart {
    /// An existing one; `after` is the last record the caller has.
    Attach { session_id: String, after: Option<u64> },
    /// A new one.
    Create { session_id: Option<String>, config: SessionConfig, idempotency_key: Option<String> },
}

/// What the follower of a session learns.
#[derive(Debug)]
pub enum AttachmentUpdate {
    /// Attached, again attached, or resynced. Of a snapshot the messages not yet seen are in it.
    Attached(Box<AttachData>),
    /// An event, each record and each message exactly once. `frame` is its text where it was passed on as it came.
    Event {
        event: Box<EventEnvelope>,
        frame: Option<Frame>,
    },
    System(SystemEvent),
    /// The connection is lost; the next `next` waits and connects again.
    Disconnected {
        reason: String,
        retry_in: Duration,
    },
}

/// Why a session can no longer be followed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A followed session; owns its connection.
pub struct Attachment {
    options: ConnectOptions,
    session_id: String,
    cursor: SessionCursor,
    connection: Option<FrameQueue>,
    /// The posted attach whose answer has not come; events before it belong to an older subscription.
    awaited: Option<u64>,
    /// The message being generated, to be caught up with once the replay reached this record.
    deferred: Option<(u64, Partial, EventEnvelope)>,
    unreadable: UnreadableFrames,
    ready: VecDeque<AttachmentUpdate>,
    backoff: Backoff,
    refusals: u32,
    retry_at: Option<Instant>,
    random: Box<dyn FnMut() -> u64 + Send>,
}

/// What is known about the event frames that could not be read.
#[derive(Default)]
struct UnreadableFrames {
    frames: u64,
    /// One came since the last hole was asked for that did not even say which record it is.
    has_unnumbered: bool,
    /// The record after which a hole was asked for last.
    hole_after: Option<u64>,
}

impl Attachment {
    /// Connects and attaches; the first update is `Attached`. `random` spreads the reconnects of many clients.
    pub async fn open(
        options: ConnectOptions,
        start: AttachStart,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Attachment, AttachError> {
        let (client, frames) = MuxClient::connect_with(&options).await?;
        Self::open_on(options, client, frames, start, random).await
    }

    /// As [`Attachment::open`] on a connection that exists already and that nobody else reads.
    pub async fn open_on(
        options: ConnectOptions,
        client: MuxClient,
        mut frames: FrameQueue,
        start: AttachStart,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Attachment, AttachError> {
        let (session_id, after, request) = match start {
            AttachStart::Attach { session_id, after } => {
                let request = attach_request(&session_id, after);
                (Some(session_id), after, request)
            }
            AttachStart::Create { session_id, config, idempotency_key } => {
                let command = Command::SessionCreate(SessionCreateParams { config, check_only: None });
                let mut request = match &session_id {
                    Some(session_id) => ClientRequest::session(session_id, command),
                    None => ClientRequest::anywhere(command),
                };
                if let Some(key) = idempotency_key {
                    request = request.idempotency_key(key);
                }
                (session_id, None, request)
            }
        };
        let awaited = client.post(&request).await?;
        drop(client);
        // Events before the answer belong to no subscription of ours.
        let answer = loop {
            let Some(frame) = frames.next().await else {
                return Err(AttachError::Call(CallError::Closed(frames.close_reason())));
            };
            if frame.kind() == FrameKind::Response(Some(awaited)) {
                break frame;
            }
        };
        let (attach, created) = read_answer(&answer)?;
        // The answer to a create covers every record so far; they are not sent again.
        let after = if created.is_some() { Some(attach.seq) } else { after };
        let session_id = created.or(session_id).unwrap_or_else(|| attach.state.session_id.clone());
        let mut attachment = Attachment {
            options,
            session_id,
            cursor: SessionCursor::after(after),
            connection: Some(frames),
            awaited: None,
            deferred: None,
            unreadable: UnreadableFrames::default(),
            ready: VecDeque::new(),
            // Whoever was attached once stays: the hub may be away for as long as its machine is.
            backoff: Backoff::new(REATTACH_PAUSE_MAX),
            refusals: 0,
            retry_at: None,
            random,
        };
        attachment.take_attach(attach);
        Ok(attachment)
    }

    /// The session's id.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The last record seen.
    pub fn last_seq(&self) -> Option<u64> {
        self.cursor.last_seq()
    }

    /// Event frames left out because they cannot be read; a hub of our own version sends none.
    pub fn unreadable_frames(&self) -> u64 {
        self.unreadable.frames
    }

    /// The connection of the moment, for commands; `None` while it is lost.
    pub fn client(&self) -> Option<&MuxClient> {
        self.connection.as_ref().map(FrameQueue::client)
    }

    /// The next update. Safe to drop and call again.
    pub async fn next(&mut self) -> Result<AttachmentUpdate, AttachError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(update);
            }
            let Some(frames) = &mut self.connection else {
                self.reconnect().await?;
                continue;
            };
            match frames.next().await {
                Some(frame) => self.take_frame(frame).await?,
                None => {
                    let reason = frames.close_reason();
                    self.lose(reason);
                }
            }
        }
    }

    async fn take_frame(&mut self, frame: Frame) -> Result<(), AttachError> {
        match frame.kind() {
            FrameKind::Response(Some(id)) if Some(id) == self.awaited => {
                self.awaited = None;
                match read_answer(&frame) {
                    Ok((attach, _)) => self.take_attach(attach),
                    Err(error) => self.take_refusal(error)?,
                }
            }
            // An answer nobody waits for any more.
            FrameKind::Response(_) => {}
            FrameKind::System => {
                if let Ok(event) = frame.system() {
                    self.ready.push_back(AttachmentUpdate::System(event));
                }
            }
            FrameKind::Event if self.awaited.is_none() => self.take_event(frame).await,
            FrameKind::Event | FrameKind::Unknown => {}
        }
        Ok(())
    }

    async fn take_event(&mut self, frame: Frame) {
        let mut event = match frame.event() {
            Ok(event) => event,
            Err(error) => return self.leave_out(&frame, &error.to_string()).await,
        };
        if event.session_id != self.session_id {
            return;
        }
        match event.payload {
            EventPayload::Known(Event::SessionResync { attach }) => return self.take_attach(*attach),
            EventPayload::Other(ref other) if other.event == RESYNC => {
                return self.leave_out(&frame, "its body has a shape we do not know").await;
            }
            EventPayload::Known(_) | EventPayload::Other(_) => {}
        }
        self.give_up_unreadable_before(event.seq);
        match self.cursor.admit(&mut event) {
            CursorVerdict::New => {
                self.ready.push_back(AttachmentUpdate::Event { event: Box::new(event), frame: Some(frame) })
            }
            CursorVerdict::Trimmed => {
                self.ready.push_back(AttachmentUpdate::Event { event: Box::new(event), frame: None })
            }
            CursorVerdict::Known => {}
            CursorVerdict::Hole { .. } => self.ask_for_missing().await,
        }
        self.catch_up_when_due();
    }

    /// Goes on without an event that cannot be read: it is the same at each replay, so waiting for it would be for ever.
    async fn leave_out(&mut self, frame: &Frame, reason: &str) {
        let head = frame.head();
        let is_numbered = head.is_ok();
        let head = head.unwrap_or_default();
        if head.session_id.as_deref().is_some_and(|session_id| session_id != self.session_id) {
            return;
        }
        self.unreadable.frames += 1;
        tracing::warn!(
            session_id = self.session_id,
            seq = head.seq,
            event = ?head.event,
            ?reason,
            "an event cannot be read and is left out; is the server of another version?"
        );
        if head.event.as_deref() == Some(RESYNC) {
            // What it would have said, the answer to an attach says.
            return self.ask_for_missing().await;
        }
        self.unreadable.has_unnumbered |= !is_numbered;
        self.give_up_unreadable_before(head.seq);
        if let Some(seq) = head.seq
            && let CursorVerdict::Hole { .. } = self.cursor.admit_number(seq)
        {
            self.ask_for_missing().await;
        }
        self.catch_up_when_due();
    }

    /// A hole that was asked for already and that came back with an unreadable frame in it will not be filled.
    fn give_up_unreadable_before(&mut self, seq: Option<u64>) {
        let was_asked = self.unreadable.hole_after.is_some_and(|after| Some(after) == self.cursor.last_seq());
        if let Some(seq) = seq
            && was_asked
            && self.unreadable.has_unnumbered
        {
            self.cursor.give_up_before(seq);
        }
    }

    async fn ask_for_missing(&mut self) {
        let after = self.cursor.last_seq();
        self.unreadable.hole_after = after;
        self.unreadable.has_unnumbered = false;
        // A closed connection shows itself at the next frame.
        if let Some(frames) = &self.connection
            && let Ok(id) = frames.client().post(&attach_request(&self.session_id, after)).await
        {
            self.awaited = Some(id);
        }
    }

    fn take_attach(&mut self, mut attach: AttachData) {
        // Only an attach counts as success. A server that accepts connections and refuses attaches would be asked
        // without pause.
        self.backoff.reset();
        self.refusals = 0;
        let due = self.cursor.take_attach(&mut attach);
        let head = EventEnvelope {
            session_id: self.session_id.clone(),
            runner_id: attach.state.runner_id.clone(),
            ts: 0,
            seq: None,
            payload: EventPayload::Known(Event::AgentIdle { reason: None, message_version: None }),
        };
        self.deferred = attach.partial.clone().map(|partial| (due, partial, head));
        self.ready.push_back(AttachmentUpdate::Attached(Box::new(attach)));
        self.catch_up_when_due();
    }

    fn catch_up_when_due(&mut self) {
        let reached = self.cursor.last_seq().unwrap_or(u64::MAX);
        let Some((_, partial, head)) = self.deferred.take_if(|(due, ..)| *due <= reached) else { return };
        for event in self.cursor.catch_up(&head, &partial) {
            self.ready.push_back(AttachmentUpdate::Event { event: Box::new(event), frame: None });
        }
    }

    fn take_refusal(&mut self, error: CallError) -> Result<(), AttachError> {
        self.refusals += 1;
        if self.refusals > REATTACH_REFUSALS_MAX {
            return Err(AttachError::Call(error));
        }
        self.lose(error.to_string());
        Ok(())
    }

    fn lose(&mut self, reason: String) {
        self.connection = None;
        self.awaited = None;
        let random = (self.random)();
        let retry_in = self.backoff.next_delay(random);
        self.retry_at = Some(Instant::now() + retry_in);
        self.ready.push_back(AttachmentUpdate::Disconnected { reason, retry_in });
    }

    async fn reconnect(&mut self) -> Result<(), AttachError> {
        if let Some(retry_at) = self.retry_at {
            tokio::time::sleep_until(retry_at).await;
        }
        let (client, frames) = match MuxClient::connect_with(&self.options).await {
            Ok(connected) => connected,
            Err(error) if error.is_temporary() => {
                self.lose(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(AttachError::Connect(error)),
        };
        match client.post(&attach_request(&self.session_id, self.cursor.last_seq())).await {
            Ok(id) => {
                self.awaited = Some(id);
                self.connection = Some(frames);
            }
            Err(error) => self.lose(error.to_string()),
        }
        Ok(())
    }
}

fn attach_request(session_id: &str, after: Option<u64>) -> ClientRequest {
    ClientRequest::session(session_id, Command::SessionAttach(SessionAttachParams { after }))
}

/// The attach data of an answer, and the session's id where it was created.
fn read_answer(frame: &Frame) -> Result<(AttachData, Option<String>), CallError> {
    let response = frame.response().map_err(CallError::Decode)?;
    if !response.success {
        return Err(CallError::Refused(Box::new(response)));
    }
    let data = response.data.unwrap_or_default();
    if class_of(&response.cmd) == CommandClass::Create {
        let created: SessionCreatedData = serde_json::from_value(data).map_err(CallError::Decode)?;
        return Ok((created.attach, Some(created.session_id)));
    }
    serde_json::from_value(data).map(|attach| (attach, None)).map_err(CallError::Decode)
}

#[cfg(test)]
#[path = "attachment_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "trouble_tests.rs"]
mod trouble_tests;
