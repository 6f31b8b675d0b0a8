//! A client of `/ws/mux`: canonical commands, and the events of the sessions it follows.

use std::collections::VecDeque;

use bytes::Bytes;
use qd_wire::mux::{Channel, SystemEvent};
use qd_wire::{CodedError, PROTOCOL_VERSION};

use super::attachments::Job;
use super::{Attachment, Mail, Parts, Speaker};
use crate::channels::{Terminals, Watches, handle_files, handle_terminal};
use crate::command::finished_commands::Finished;
use crate::command::{self, Handled, Sender, reply};
use crate::hub::Hub;
use crate::sessions::presence::{self, Seat};

/// What such a connection knows beside its socket.
#[derive(Default)]
pub(crate) struct Mux {
    /// Its number among the hub's connections.
    number: u64,
    pub(super) attachments: Vec<Attachment>,
    pub(super) last_generation: u64,
    pub(super) jobs: VecDeque<Job>,
    pub(super) finished: Finished,
    pub(super) is_job_running: bool,
    watches: Watches,
    pub(super) terminals: Terminals,
    /// Who is first alternates, so that neither silences the other.
    are_terminals_first: bool,
    presence: Option<Seat>,
}

/// The channel a frame is for, if that is another than `agent`. Nearly all frames are for that one, and say so in
/// their first bytes.
fn channel_of(text: &str) -> Option<Channel> {
    #[derive(serde::Deserialize)]
    struct Head {
        channel: Channel,
    }
    if text.starts_with("{\"channel\":\"agent\"") {
        return None;
    }
    serde_json::from_str::<Head>(text).ok().map(|head| head.channel)
}

impl Mux {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }
}

impl Speaker for Mux {
    const TAKES_BINARY: bool = false;

    fn message_bytes_max(hub: &Hub) -> usize {
        hub.config.limits.message_bytes_max
    }

    fn greet(&mut self, parts: &mut Parts<'_>) {
        parts.outgoing.push(reply::system(SystemEvent::Connected {
            protocol_version: PROTOCOL_VERSION.to_owned(),
            server_version: parts.hub.config.server_version.clone(),
            connection_id: parts.mailbox.asker.connection_id.to_string(),
        }));
    }

    fn on_text(&mut self, parts: &mut Parts<'_>, text: &str) {
        match channel_of(text) {
            Some(Channel::Files) => {
                return handle_files(parts.hub, parts.mailbox, &self.watches, text);
            }
            Some(Channel::Terminal) => {
                return handle_terminal(parts.hub, parts.mailbox, &mut self.terminals, text);
            }
            Some(Channel::System) => return presence::handle(parts, &mut self.presence, text),
            _ => {}
        }
        let (attachments, finished) = (&self.attachments, &mut self.finished);
        let mut sender = Sender { hub: parts.hub, mailbox: parts.mailbox, attachments, finished };
        match command::handle(&mut sender, text) {
            Handled::Reply(frame) => parts.outgoing.push(frame),
            Handled::Sent => {}
            Handled::Read(read) => self.jobs.push_back(Job::Read(read)),
            Handled::Detach(reply) => self.detach(parts, &reply),
        }
    }

    fn complaint(&self, error: &str) -> Bytes {
        reply::system_error(None, &CodedError::invalid(error))
    }

    fn take_events(&mut self, parts: &mut Parts<'_>) -> bool {
        if self.terminals.is_empty() {
            return self.take_attached(parts);
        }
        self.are_terminals_first = !self.are_terminals_first;
        let mut has_progress = self.are_terminals_first && self.terminals.take(parts);
        has_progress |= self.take_attached(parts);
        has_progress |= !self.are_terminals_first && self.terminals.take(parts);
        has_progress
    }

    fn on_mail(&mut self, parts: &mut Parts<'_>, mail: Mail) {
        Mux::on_mail(self, parts, mail);
    }

    fn after_mail(&mut self, parts: &mut Parts<'_>) {
        self.start_job(parts);
    }

    fn on_end(&mut self, hub: &Hub) {
        self.watches.end(hub);
        hub.remove_connection(self.number);
    }

    fn on_closing(&mut self) {
        self.attachments = Vec::new();
        self.terminals = Terminals::default();
        self.jobs = VecDeque::new();
    }
}
