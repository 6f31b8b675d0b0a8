//! What a protocol does with a connection. The connection calls these from its one task, so a handler needs no lock,
//! and whatever takes longer it spawns and gets back as mail.

use std::sync::Arc;

use bytes::Bytes;

use super::{ClientSendQueue, ConnectionMail, Mailbox};
use crate::hub::Hub;

/// What is said on a connection: the socket, its times and its bounds are the same for all.
pub(crate) trait ConnectionHandler: Send + Unpin + 'static {
    /// Whether a binary message that is UTF-8 counts as text.
    const TAKES_BINARY: bool;

    /// The greatest message the socket takes; a greater one ends the connection.
    fn message_bytes_max(hub: &Hub) -> usize;

    /// The first frames, before anything is read.
    fn greet(&mut self, context: &mut HandlerContext<'_>);

    /// One message of the client.
    fn on_text(&mut self, context: &mut HandlerContext<'_>, text: &str);

    /// What the client is told about a message that cannot be taken.
    fn complaint(&self, error: &str) -> Bytes;

    /// Takes events as far as there is room. Says whether that changed anything.
    fn take_events(&mut self, _context: &mut HandlerContext<'_>) -> bool {
        false
    }

    /// Mail that is neither frames nor a close.
    fn on_mail(&mut self, _context: &mut HandlerContext<'_>, _mail: ConnectionMail) {}

    /// All mail of this turn is dealt with.
    fn after_mail(&mut self, _context: &mut HandlerContext<'_>) {}

    /// How much may wait for a client that has taken nearly everything.
    fn drained_bytes_max(_hub: &Hub) -> usize {
        0
    }

    /// The client has taken everything, or nearly so. Called in every turn that finds it so: whoever wants to be
    /// called wakes the mailbox.
    fn drained(&mut self, _context: &mut HandlerContext<'_>) {}

    /// Nothing is read any more, and only what is queued is written.
    fn on_closing(&mut self) {}

    /// The connection is over.
    fn on_end(&mut self, _hub: &Hub) {}
}

/// What a handler may touch of its connection.
pub(crate) struct HandlerContext<'a> {
    pub(crate) hub: &'a Arc<Hub>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    pub(crate) send_queue: &'a mut ClientSendQueue,
}
