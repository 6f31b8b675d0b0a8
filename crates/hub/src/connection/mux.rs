//! A client of `/ws/mux`: canonical commands, and the events of the sessions it follows.
//!
//! Frames are told apart by their channel: commands on `agent`, presence on `system`, files and terminals on their
//! own. Reads of the store are done one at a time, and only while the client has room for what they bring.

use std::collections::VecDeque;

use bytes::Bytes;
use qd_wire::mux::{Channel, SystemEvent};
use qd_wire::{CodedError, PROTOCOL_VERSION};

use super::attachments::StoreRead;
use super::{Attachment, ConnectionHandler, ConnectionMail, HandlerContext};
use crate::channels::{DirectoryWatches, WatchedTerminals, handle_files, handle_terminal};
use crate::command::finished_commands::FinishedCommands;
use crate::command::{self, FrameSender, HandledFrame, reply};
use crate::hub::Hub;
use crate::sessions::presence::{self, PresenceEntry};

/// What such a connection knows beside its socket.
#[derive(Default)]
pub(crate) struct MuxHandler {
    /// Its number among the hub's connections.
    number: u64,
    pub(super) attachments: Vec<Attachment>,
    /// Attachments are numbered so that the late answer for one does not change a newer one of the same session.
    pub(super) last_generation: u64,
    /// Reads of the store that wait. One runs at a time, so that a client that asks for much costs one page of memory.
    pub(super) jobs: VecDeque<StoreRead>,
    pub(super) finished: FinishedCommands,
    pub(super) is_job_running: bool,
    watches: DirectoryWatches,
    pub(super) terminals: WatchedTerminals,
    /// Who is first alternates, so that neither silences the other.
    are_terminals_first: bool,
    presence: Option<PresenceEntry>,
}

/// The channel a frame is for, if that is another than `agent`. Nearly all frames are for that one, and say so in
/// their first bytes.
fn channel_of(text: &str) -> Option<Channel> {
    #[derive(serde::Deserialize)]
    struct FrameChannel {
        channel: Channel,
    }
    if text.starts_with("{\"channel\":\"agent\"") {
        return None;
    }
    serde_json::from_str::<FrameChannel>(text).ok().map(|head| head.channel)
}

impl MuxHandler {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }
}

impl ConnectionHandler for MuxHandler {
    const TAKES_BINARY: bool = false;

    fn message_bytes_max(hub: &Hub) -> usize {
        hub.config.limits.message_bytes_max
    }

    fn greet(&mut self, context: &mut HandlerContext<'_>) {
        context.send_queue.push(reply::system(SystemEvent::Connected {
            protocol_version: PROTOCOL_VERSION.to_owned(),
            server_version: context.hub.config.server_version.clone(),
            connection_id: context.mailbox.asker.connection_id.to_string(),
        }));
    }

    fn on_text(&mut self, context: &mut HandlerContext<'_>, text: &str) {
        match channel_of(text) {
            Some(Channel::Files) => {
                return handle_files(context.hub, context.mailbox, &self.watches, text);
            }
            Some(Channel::Terminal) => {
                return handle_terminal(context.hub, context.mailbox, &mut self.terminals, text);
            }
            Some(Channel::System) => return presence::handle(context, &mut self.presence, text),
            // A frame that cannot be read goes this way too: `command::handle` says what is wrong with it.
            _ => {}
        }
        let (attachments, finished) = (&self.attachments, &mut self.finished);
        let mut sender = FrameSender { hub: context.hub, mailbox: context.mailbox, attachments, finished };
        match command::handle(&mut sender, text) {
            HandledFrame::Reply(frame) => context.send_queue.push(frame),
            HandledFrame::Sent => {}
            HandledFrame::Read(read) => self.jobs.push_back(StoreRead::Read(read)),
            HandledFrame::Detach(reply) => self.detach(context, &reply),
        }
    }

    fn complaint(&self, error: &str) -> Bytes {
        reply::system_error(None, &CodedError::invalid(error))
    }

    fn take_events(&mut self, context: &mut HandlerContext<'_>) -> bool {
        if self.terminals.is_empty() {
            return self.take_attached(context);
        }
        self.are_terminals_first = !self.are_terminals_first;
        let mut has_progress = self.are_terminals_first && self.terminals.take(context);
        has_progress |= self.take_attached(context);
        has_progress |= !self.are_terminals_first && self.terminals.take(context);
        has_progress
    }

    fn on_mail(&mut self, context: &mut HandlerContext<'_>, mail: ConnectionMail) {
        MuxHandler::on_mail(self, context, mail);
    }

    fn after_mail(&mut self, context: &mut HandlerContext<'_>) {
        self.start_job(context);
    }

    fn on_end(&mut self, hub: &Hub) {
        self.watches.end(hub);
        hub.remove_connection(self.number);
    }

    fn on_closing(&mut self) {
        // A closing connection may wait seconds for its peer, and subscribers that take nothing slow the session down
        // for others.
        self.attachments = Vec::new();
        self.terminals = WatchedTerminals::default();
        self.jobs = VecDeque::new();
    }
}
