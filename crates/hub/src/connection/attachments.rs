//! The sessions a connection follows, and the reads it does for them: one at a time, and only while the
//! client takes what it gets, so that a connection never holds more than one page.
//!
//! A generation number tells an attachment from earlier ones to the same session. Answers of reads and resyncs that
//! were begun for an earlier one are recognised by it and dropped.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Duration;

use super::mux::MuxHandler;
use super::{AttachFrame, AttachedSession, ConnectionMail, HandlerContext, Mailbox, StoreReadDone};
use crate::command::reply::ReplyTo;
use crate::command::{id_text, request_resync};
use crate::connection::frame;
use crate::hub::Hub;
use crate::sessions::reads::{AwayAttach, HubCommand, HubRead, SNAPSHOT_MESSAGES, attach_away, push_list};
use crate::sessions::ring::{Subscription, TakenEvents};
use crate::sessions::session::SessionEntry;

/// One page of replayed records.
/// Both bounds together keep a page small, whether its records are many or large.
const REPLAY_ROWS_MAX: usize = 1000;
const REPLAY_BYTES_MAX: usize = 256 << 10;
/// A resync that failed is tried again after this.
const RESYNC_RETRY: Duration = Duration::from_secs(2);

/// One session a connection follows.
pub(crate) struct Attachment {
    pub(crate) session: Arc<SessionEntry>,
    subscription: Subscription,
    /// Tells this attachment from earlier ones to the same session.
    generation: u64,
    mode: AttachmentMode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AttachmentMode {
    /// Stored records come first.
    Replaying,
    Live,
    /// Events were missed; the runner is asked where the session stands.
    Resyncing,
    /// The same, as soon as the client has taken what is queued for it.
    Lagged,
}

/// A read of the store for this connection.
pub(super) enum StoreRead {
    Read(HubCommand),
    Snapshot(Box<AttachedSession>),
    Replay {
        session: Arc<SessionEntry>,
        generation: u64,
        after: u64,
        until: u64,
    },
    /// What a client has missed of a session whose runner is away.
    AwayResync {
        session: Arc<SessionEntry>,
        generation: u64,
        after: u64,
    },
}

impl MuxHandler {
    /// Takes events of all sessions that have some, as far as there is room.
    pub(super) fn take_attached(&mut self, context: &mut HandlerContext<'_>) -> bool {
        let mut has_progress = false;
        let mut has_ended = false;
        for attachment in &mut self.attachments {
            // Not earlier: a client that cannot take what is queued would only fall behind again.
            if attachment.mode == AttachmentMode::Lagged && context.send_queue.is_empty() {
                self.jobs.extend(attachment.start_resync(context.hub, context.mailbox));
            }
            if attachment.mode != AttachmentMode::Live || !attachment.subscription.is_ready() {
                has_ended |= attachment.has_ended();
                continue;
            }
            if context.send_queue.is_full() {
                break;
            }
            let before = context.send_queue.bytes();
            // The ring no longer has what this client did not take. It gets the state instead of the events.
            if attachment.subscription.take(context.send_queue) == TakenEvents::Lagged {
                attachment.mode = AttachmentMode::Lagged;
                has_progress = true;
            }
            // Those who have taken the last of a deleted session leave in the next round.
            has_progress |= attachment.has_ended();
            has_progress |= context.send_queue.bytes() > before;
        }
        if has_ended {
            self.attachments.retain(|attachment| !attachment.has_ended());
        }
        if has_progress && self.attachments.len() > 1 {
            // The next round starts with another session, so that a loud one does not silence the others.
            self.attachments.rotate_left(1);
        }
        has_progress
    }

    pub(super) fn on_mail(&mut self, context: &mut HandlerContext<'_>, mail: ConnectionMail) {
        match mail {
            ConnectionMail::Run(command) => match command.read {
                HubRead::Detach => {
                    context.mailbox.end_command(false);
                    self.detach(context, &command.reply);
                }
                HubRead::Messages(_)
                | HubRead::Sessions
                | HubRead::Runners
                | HubRead::AwayAttach { .. }
                | HubRead::AwayState(_)
                | HubRead::Bury { .. }
                // Queued even when nothing runs: reads of one connection are answered in the order they were asked.
                | HubRead::Search { .. } => self.jobs.push_back(StoreRead::Read(*command)),
            },
            ConnectionMail::Attached(attached) => self.on_attached(context, attached),
            ConnectionMail::Terminal(opened) => self.terminals.watch(context, *opened),
            ConnectionMail::StoreReadDone(done) => {
                self.is_job_running = false;
                self.on_job_done(context, *done);
            }
            ConnectionMail::ResyncFailed { generation, is_session_gone } => {
                // Asking again would never succeed, and the client learns of the deletion by its own event.
                if is_session_gone {
                    self.attachments.retain(|attachment| attachment.generation != generation);
                } else {
                    self.retry_resync(context, generation);
                }
            }
            ConnectionMail::ResyncNow { generation } => {
                if let Some(attachment) = self.attachment(generation) {
                    attachment.mode = AttachmentMode::Lagged;
                }
            }
            // The connection has dealt with them.
            ConnectionMail::Frames(_) | ConnectionMail::Pieces(_) | ConnectionMail::Close { .. } => {}
        }
    }

    pub(super) fn detach(&mut self, context: &mut HandlerContext<'_>, reply: &ReplyTo) {
        self.attachments.retain(|attachment| Some(&attachment.session.id) != reply.session_id.as_ref());
        context.send_queue.push(reply.success(None));
    }

    fn on_attached(&mut self, context: &mut HandlerContext<'_>, attached: Box<AttachedSession>) {
        // The client may have detached, or attached anew, while the runner was asked.
        if attached.resync_of.is_some_and(|generation| self.attachment(generation).is_none()) {
            return;
        }
        match attached.frame {
            AttachFrame::Ready(ref frame) => {
                let frame = frame.clone();
                self.follow(context, *attached, frame);
            }
            AttachFrame::WithMessages { .. } => self.jobs.push_back(StoreRead::Snapshot(attached)),
        }
    }

    /// Sends the frame, then follows the session from the new place.
    fn follow(&mut self, context: &mut HandlerContext<'_>, attached: AttachedSession, frame: Bytes) {
        let AttachedSession { session, mut subscription, replay, resync_of, is_away, .. } = attached;
        if resync_of.is_none() {
            // Only now: an attach is in flight as long as it holds something.
            context.mailbox.end_command(true);
        }
        // The runner has come while the hub answered for it: it tells the rest.
        let is_outdated = is_away && !context.hub.is_away(&session.runner_id);
        context.send_queue.push(frame);
        // A new attach replaces the old one, so pages for the old one would come twice.
        self.jobs.retain(|job| !job.replays(&session));
        self.attachments.retain(|attachment| attachment.session.id != session.id);
        self.last_generation += 1;
        let generation = self.last_generation;
        let replay = replay.filter(|(after, until)| after < until);
        let mode = match replay {
            _ if is_outdated => {
                // What the client really has: the resync that follows asks for everything after it.
                subscription.seq = replay.map_or(subscription.seq, |(after, _)| after);
                AttachmentMode::Lagged
            }
            Some((after, until)) => {
                self.jobs.push_back(StoreRead::Replay {
                    session: Arc::clone(&session),
                    generation,
                    after,
                    until,
                });
                AttachmentMode::Replaying
            }
            None => AttachmentMode::Live,
        };
        self.attachments.push(Attachment { session, subscription, generation, mode });
    }

    fn on_job_done(&mut self, context: &mut HandlerContext<'_>, done: StoreReadDone) {
        match done {
            StoreReadDone::Frames(frames) => {
                context.mailbox.end_command(false);
                context.send_queue.push(frames);
            }
            StoreReadDone::ReadFailed { reply, error } => {
                context.mailbox.end_command(false);
                context.send_queue.push(reply.error(&error));
                if let Some(id) = reply.id {
                    self.finished.note(id_text(&id), Err(error));
                }
            }
            StoreReadDone::Attached(attached) => self.on_attached(context, attached),
            StoreReadDone::Replayed { generation, frames, next, until } => {
                let Some(attachment) = self.attachment(generation) else { return };
                let session = Arc::clone(&attachment.session);
                if next >= until {
                    attachment.mode = AttachmentMode::Live;
                }
                context.send_queue.push(frames);
                if next < until {
                    self.jobs.push_back(StoreRead::Replay { session, generation, after: next, until });
                }
            }
            StoreReadDone::Failed { generation, after } => {
                // The pages before this one were sent, so the next attempt starts after them.
                if let Some(attachment) = self.attachment(generation) {
                    attachment.subscription.seq = after;
                }
                self.retry_resync(context, generation);
            }
        }
    }

    /// Starts the next read when none runs and the client has room.
    pub(super) fn start_job(&mut self, context: &HandlerContext<'_>) {
        if self.is_job_running || context.send_queue.is_full() {
            return;
        }
        let Some(job) = self.jobs.pop_front() else { return };
        // One at a time: pages of several sessions at once would be held in memory for one client.
        self.is_job_running = true;
        let (hub, mailbox) = (Arc::clone(context.hub), Arc::clone(context.mailbox));
        context.hub.tasks.spawn(async move {
            let done = job.run(&hub, &mailbox).await;
            mailbox.put(ConnectionMail::StoreReadDone(Box::new(done)));
        });
    }

    fn attachment(&mut self, generation: u64) -> Option<&mut Attachment> {
        self.attachments.iter_mut().find(|attachment| attachment.generation == generation)
    }

    fn retry_resync(&mut self, context: &HandlerContext<'_>, generation: u64) {
        let Some(attachment) = self.attachment(generation) else { return };
        // Not `Lagged`, which would start the next attempt at once instead of after the pause.
        attachment.mode = AttachmentMode::Resyncing;
        // Weak, so that a connection that ends meanwhile is not kept in memory by its own timer.
        let mailbox = Arc::downgrade(context.mailbox);
        tokio::spawn(async move {
            tokio::time::sleep(RESYNC_RETRY).await;
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.put(ConnectionMail::ResyncNow { generation });
            }
        });
    }
}

impl Attachment {
    /// The session is deleted and everything of it was taken.
    fn has_ended(&self) -> bool {
        self.mode == AttachmentMode::Live && self.session.is_over() && !self.subscription.is_ready()
    }

    /// Asks the runner where the session stands; if it is away, the hub has to read that itself.
    fn start_resync(&mut self, hub: &Arc<Hub>, mailbox: &Arc<Mailbox>) -> Option<StoreRead> {
        self.mode = AttachmentMode::Resyncing;
        let (after, generation) = (self.subscription.seq, self.generation);
        let is_session_gone = self.session.is_over();
        if !is_session_gone && request_resync(hub, mailbox, &self.session, after, generation) {
            return None;
        }
        if !is_session_gone && hub.is_away(&self.session.runner_id) {
            return Some(StoreRead::AwayResync { session: Arc::clone(&self.session), generation, after });
        }
        mailbox.put(ConnectionMail::ResyncFailed { generation, is_session_gone });
        None
    }
}

impl StoreRead {
    fn replays(&self, session: &SessionEntry) -> bool {
        matches!(self, StoreRead::Replay { session: replayed, .. } if replayed.id == session.id)
    }

    async fn run(self, hub: &Arc<Hub>, mailbox: &Arc<Mailbox>) -> StoreReadDone {
        match self {
            StoreRead::Read(HubCommand { reply, read: HubRead::AwayAttach { session, after } }) => {
                StoreReadDone::Attached(
                    attach_away(mailbox, session, AwayAttach::Asked { reply: &reply, after }).await,
                )
            }
            StoreRead::Read(command) => match command.run(hub).await {
                Ok(frames) => StoreReadDone::Frames(frames),
                Err((reply, error)) => StoreReadDone::ReadFailed { reply, error },
            },
            StoreRead::AwayResync { session, generation, after } => StoreReadDone::Attached(
                attach_away(mailbox, session, AwayAttach::Resync { after, generation }).await,
            ),
            StoreRead::Snapshot(attached) => StoreReadDone::Attached(snapshot(hub, attached).await),
            StoreRead::Replay { session, generation, after, until } => {
                match replay(hub, &session.id, after, until).await {
                    Some((frames, next)) => StoreReadDone::Replayed { generation, frames, next, until },
                    None => StoreReadDone::Failed { generation, after },
                }
            }
        }
    }
}

async fn snapshot(hub: &Hub, mut attached: Box<AttachedSession>) -> Box<AttachedSession> {
    let AttachFrame::WithMessages { before, after } = attached.frame else { return attached };
    let page = hub.store.messages_page(&attached.session.id, None, SNAPSHOT_MESSAGES).await;
    let mut pieces: Vec<&[u8]> = vec![&before];
    match &page {
        Ok(page) => {
            pieces.push(b",\"messages\":");
            push_list(&mut pieces, &page.messages);
        }
        // Without the field the client knows that it has to ask again with get_messages.
        Err(error) => tracing::error!(session = %attached.session.id, %error, "no snapshot"),
    }
    pieces.push(&after);
    attached.frame = AttachFrame::Ready(frame::text_of(&pieces));
    attached
}

/// The next page of records as frames, and how far it goes. `None` when the store cannot give it.
async fn replay(hub: &Hub, session_id: &str, after: u64, until: u64) -> Option<(Bytes, u64)> {
    let rows = match hub.store.records_after(session_id, after, REPLAY_ROWS_MAX, REPLAY_BYTES_MAX).await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(session = session_id, %error, "records cannot be replayed");
            return None;
        }
    };
    let mut frames = BytesMut::with_capacity(rows.iter().map(|(_, body)| body.len() + 4).sum());
    let mut next = until;
    for (seq, body) in rows {
        if seq > until {
            return Some((frames.freeze(), until));
        }
        frame::put_text_header(&mut frames, body.len());
        frames.put_slice(&body);
        next = seq;
    }
    // An empty page means that the rest is not there (the session was deleted): the replay is over.
    let next = if frames.is_empty() { until } else { next };
    Some((frames.freeze(), next))
}
