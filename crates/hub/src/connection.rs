//! One client's WebSocket: a single small future that reads commands, takes events from the rings it follows,
//! and writes whole frames whenever the socket takes them.
//!
//! The future is polled in turns of bounded work, so that one busy client cannot keep a thread from the others. What
//! the frames mean is the handler's business; here is only the life of a socket: room, pings, slowness, closing.

mod attachments;
pub(crate) mod frame;
mod handler;
mod mailbox;
mod mux;
mod send_queue;
mod socket;
mod table;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use qd_link::net::BoxedStream;
use tokio::time::{Duration, Instant, Sleep};
use tungstenite::Message;
use tungstenite::error::{CapacityError, Error as SocketError};
use tungstenite::protocol::frame::coding::CloseCode;

use crate::command::send_cancel;
use crate::hub::Hub;
pub(crate) use attachments::Attachment;
pub(crate) use handler::{ConnectionHandler, HandlerContext};
pub(crate) use mailbox::{
    AttachFrame, AttachedSession, ConnectionMail, Mailbox, MailboxBounds, StoreReadDone,
};
pub(crate) use mux::MuxHandler;
pub(crate) use send_queue::ClientSendQueue;
use socket::Socket;
pub(crate) use table::{ConnectionRefusal, ConnectionTable};

/// Messages read before others get a turn.
const READS_PER_TURN_MAX: usize = 64;
/// Calls to the kernel before others get a turn.
const WRITES_PER_TURN_MAX: usize = 8;
/// Rounds of reading, taking and writing in one turn.
const ROUNDS_PER_TURN_MAX: usize = 4;
/// A client that does not read its answers is not read either.
/// Its commands would only make more answers that wait.
const READ_PAUSE_BYTES: usize = 1 << 20;
/// How long a closing connection waits for its peer.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Connection<S: ConnectionHandler> {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    socket: Socket,
    send_queue: ClientSendQueue,
    handler: S,
    timer: Pin<Box<Sleep>>,
    last_heard: Instant,
    is_pinged: bool,
    /// The socket took nothing more the last time; when it does again, the peer is alive.
    is_write_blocked: bool,
    closing: Option<ClosingStage>,
}

/// What is left to do for a connection that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosingStage {
    /// Write what is queued.
    Flush,
    /// Read and forget until the peer closes too, so that it sees our last frames.
    Drain,
}

/// How a turn went.
enum TurnResult {
    Idle,
    Progress,
    Done,
}

impl<S: ConnectionHandler> Connection<S> {
    pub(crate) fn new(
        hub: Arc<Hub>,
        mailbox: Arc<Mailbox>,
        mut handler: S,
        stream: BoxedStream,
        read_ahead: Vec<u8>,
    ) -> Self {
        let mut send_queue = ClientSendQueue::default();
        handler.greet(&mut HandlerContext { hub: &hub, mailbox: &mailbox, send_queue: &mut send_queue });
        let limits = &hub.config.limits;
        Self {
            mailbox,
            socket: Socket::new(stream, read_ahead, S::message_bytes_max(&hub)),
            send_queue,
            handler,
            timer: Box::pin(tokio::time::sleep(limits.ping_after)),
            last_heard: Instant::now(),
            is_pinged: false,
            is_write_blocked: false,
            closing: None,
            hub,
        }
    }

    /// Makes it end before anything is read.
    pub(crate) fn closed_with(mut self, code: u16, reason: &str) -> Self {
        self.close(Bytes::new(), code, reason);
        self
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> TurnResult {
        // A closing connection acts on nothing more: what the client says now cannot be answered any more.
        let mut has_progress = match self.closing {
            None => match self.read(cx) {
                Ok(has_progress) => has_progress,
                Err(()) => return TurnResult::Done,
            },
            Some(ClosingStage::Flush) => false,
            Some(ClosingStage::Drain) => match self.socket.poll_drain(cx) {
                Poll::Ready(_) => return TurnResult::Done,
                Poll::Pending => return TurnResult::Idle,
            },
        };
        // Only as much as the send queue has room for. The rest stays in the mailbox, where `held_bytes` still counts
        // it.
        let mail = self.mailbox.take(READ_PAUSE_BYTES.saturating_sub(self.send_queue.bytes()));
        if self.closing.is_none() {
            // Mail is taken first and written last: an answer never overtakes events that came before it.
            let (handler, mut context) = self.context();
            has_progress |= handler.take_events(&mut context);
            has_progress |= !mail.is_empty();
            for item in mail {
                self.on_mail(item);
            }
            let (handler, mut context) = self.context();
            handler.after_mail(&mut context);
        }
        let queued = self.send_queue.bytes();
        match self.write(cx) {
            Ok(written) => has_progress |= written,
            Err(_) => return TurnResult::Done,
        }
        // Taking something, not an empty queue, is what counts against the stall limit: a slow client may never be
        // done.
        self.mailbox.note_send_queue(self.send_queue.bytes(), self.send_queue.bytes() < queued);
        if self.closing.is_none() && self.mailbox.held_bytes() <= S::drained_bytes_max(&self.hub) {
            let queued = self.send_queue.bytes();
            let (handler, mut context) = self.context();
            handler.drained(&mut context);
            has_progress |= self.send_queue.bytes() != queued;
        }
        if self.closing == Some(ClosingStage::Flush) && self.send_queue.is_flushed() {
            self.closing = Some(ClosingStage::Drain);
            has_progress = true;
        }
        if has_progress { TurnResult::Progress } else { TurnResult::Idle }
    }

    /// Reads and acts on what has come. An error ends the connection at once.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, ()> {
        let mut has_progress = false;
        let mut is_waiting = false;
        for _ in 0..READS_PER_TURN_MAX {
            if self.closing.is_some() || self.mailbox.held_bytes() > READ_PAUSE_BYTES {
                // What wakes us next is room to write.
                is_waiting = true;
                break;
            }
            let message = self.socket.read(cx);
            if let Some(replies) = self.socket.take_replies() {
                self.send_queue.push(replies);
                has_progress = true;
            }
            match message {
                Ok(message) => self.on_message(message),
                Err(SocketError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    is_waiting = true;
                    break;
                }
                Err(error) => {
                    self.on_socket_error(error)?;
                }
            }
            has_progress = true;
        }
        if has_progress {
            self.last_heard = Instant::now();
            self.is_pinged = false;
        }
        // After the last allowed read the socket may have more, and nobody will wake us for that: it counts as
        // progress.
        Ok(has_progress || !is_waiting)
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Text(text) => self.on_text(&text),
            Message::Binary(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) if S::TAKES_BINARY => self.on_text(text),
                _ if S::TAKES_BINARY => {
                    let frames = self.handler.complaint("The message is not UTF-8");
                    self.send_queue.push(frames);
                }
                _ => {
                    let frames = self.handler.complaint("Binary frames are not understood; send JSON text");
                    self.send_queue.push(frames);
                }
            },
            // The library has answered them, or there is nothing to answer.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            Message::Close(close) => {
                // The library would answer at its next read, which does not come any more.
                let code = close.map_or(CloseCode::Normal, |close| close.code);
                let code = if code.is_allowed() { code } else { CloseCode::Protocol };
                self.close(Bytes::new(), code.into(), "");
            }
        }
    }

    fn on_text(&mut self, text: &str) {
        let (handler, mut context) = self.context();
        handler.on_text(&mut context, text);
    }

    fn on_mail(&mut self, mail: ConnectionMail) {
        match mail {
            ConnectionMail::Frames(frames) => self.send_queue.push(frames),
            // Nothing comes between them: all are pushed before anything else is.
            ConnectionMail::Pieces(pieces) => {
                pieces.into_iter().for_each(|piece| self.send_queue.push(piece))
            }
            ConnectionMail::Close { frames, code, reason } => self.close(frames, code, &reason),
            mail @ (ConnectionMail::Attached(_)
            | ConnectionMail::StoreReadDone(_)
            | ConnectionMail::Run(_)
            | ConnectionMail::Terminal(_)
            | ConnectionMail::ResyncFailed { .. }
            | ConnectionMail::ResyncNow { .. }) => {
                let (handler, mut context) = self.context();
                handler.on_mail(&mut context, mail);
            }
        }
    }

    /// The handler, and what it may touch.
    fn context(&mut self) -> (&mut S, HandlerContext<'_>) {
        let Self { hub, mailbox, send_queue, handler, .. } = self;
        (handler, HandlerContext { hub, mailbox, send_queue })
    }

    fn on_socket_error(&mut self, error: SocketError) -> Result<(), ()> {
        match error {
            SocketError::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
                let error = format!("The message is too big: {size} bytes, the most is {max_size}");
                let frames = self.handler.complaint(&error);
                self.close(frames, 1009, "message too big");
                Ok(())
            }
            // The peer is gone, so a close frame would reach nobody.
            SocketError::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => Err(()),
            SocketError::Protocol(error) => {
                self.close(Bytes::new(), 1002, &error.to_string());
                Ok(())
            }
            SocketError::Utf8(_) => {
                let frames = self.handler.complaint("The message is not UTF-8");
                self.close(frames, 1007, "not UTF-8");
                Ok(())
            }
            SocketError::ConnectionClosed
            | SocketError::AlreadyClosed
            | SocketError::Io(_)
            | SocketError::Tls(_)
            | SocketError::Capacity(_)
            | SocketError::WriteBufferFull(_)
            | SocketError::AttackAttempt
            | SocketError::Url(_)
            | SocketError::Http(_)
            | SocketError::HttpFormat(_) => Err(()),
        }
    }

    /// Queues last frames and a close.
    fn close(&mut self, frames: Bytes, code: u16, reason: &str) {
        self.send_queue.push(frames);
        self.send_queue.push(frame::close(code, reason));
        self.start_closing();
    }

    fn start_closing(&mut self) {
        self.closing = Some(ClosingStage::Flush);
        self.handler.on_closing();
        self.timer.as_mut().reset(Instant::now() + CLOSE_GRACE);
    }

    /// Writes as long as the socket takes it.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut has_progress = false;
        for _ in 0..WRITES_PER_TURN_MAX {
            if self.send_queue.is_flushed() {
                break;
            }
            match self.send_queue.poll_write_to(self.socket.stream(), cx) {
                Poll::Ready(result) => {
                    result?;
                    has_progress = true;
                    if std::mem::take(&mut self.is_write_blocked) {
                        self.last_heard = Instant::now();
                        self.is_pinged = false;
                    }
                }
                Poll::Pending => {
                    self.is_write_blocked = true;
                    return Ok(has_progress);
                }
            }
        }
        // Stopped by the bound and not by the socket, so no waker is registered: the next round has to go on.
        Ok(has_progress || !self.send_queue.is_flushed())
    }

    /// Pings a silent peer and gives up on a dead one. Ready when the connection is over.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.closing.is_some() {
                return Poll::Ready(());
            }
            let ping_after = self.hub.config.limits.ping_after;
            let silence = self.last_heard.elapsed();
            // The timer also fires for a client that has spoken since it was set, so the silence is measured again.
            if self.is_pinged && silence >= ping_after * 2 {
                tracing::debug!(connection = %self.mailbox.asker.connection_id, "the client is silent; dropped");
                return Poll::Ready(());
            }
            if silence >= ping_after && !self.is_pinged {
                self.is_pinged = true;
                self.send_queue.push(frame::PING);
                if self.write(cx).is_err() {
                    return Poll::Ready(());
                }
            }
            let limit = if self.is_pinged { ping_after * 2 } else { ping_after };
            self.timer.as_mut().reset(self.last_heard + limit);
        }
        Poll::Pending
    }
}

impl<S: ConnectionHandler> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = &mut *self;
        connection.mailbox.register(cx.waker());
        for _ in 0..ROUNDS_PER_TURN_MAX {
            match connection.turn(cx) {
                TurnResult::Done => return Poll::Ready(()),
                TurnResult::Idle => return connection.poll_timer(cx),
                TurnResult::Progress => {}
            }
        }
        // There is more to do, but the other tasks of this thread get their turn first.
        cx.waker().wake_by_ref();
        connection.poll_timer(cx)
    }
}

impl<S: ConnectionHandler> Drop for Connection<S> {
    fn drop(&mut self) {
        self.mailbox.close();
        // Nobody waits for what it had asked of the machines.
        if self.mailbox.has_commands() {
            for (number, link) in self.hub.pending.services_of(&self.mailbox) {
                send_cancel(number, &link, false);
            }
        }
        self.handler.on_end(&self.hub);
    }
}
