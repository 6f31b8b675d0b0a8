//! Blocks on a WebSocket: a text message is one or more lines, a binary message a packed block.
//!
//! Whatever goes wrong becomes a sentence: the reason of a link's end is shown to people and logged. A peer that
//! breaks a rule ends the link, and is told why with the close frame.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message, Utf8Bytes};

use super::SocketOptions;
use super::packing;
use super::tasks::{BlockSink, BlockSource, CloseMessage, WriteError};
use crate::socket::stall_timeout::StallTimeout;

/// Longer messages are written in frames of this size: each must get through within the stall timeout, so a long
/// message on a slow line is not taken for a stuck one, and pings go between.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// A close frame holds at most 125 bytes, two of them the code.
const CLOSE_REASON_BYTES_MAX: usize = 123;

pub(super) fn halves<S>(
    socket: WebSocketStream<S>,
    options: &SocketOptions,
) -> (WebSocketSource<S>, WebSocketSink<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, stream) = socket.split();
    let source = WebSocketSource {
        stream,
        stall_timeout: StallTimeout::new(options.silence_max),
        message_bytes_max: options.message_bytes_max,
        takes_packed: options.takes_packed,
    };
    let sink = WebSocketSink {
        sink,
        stall_timeout: StallTimeout::new(options.silence_max),
        pinged_at: Instant::now(),
        ping_interval: options.ping_interval,
        message_bytes_max: options.message_bytes_max,
        compress_from: options.compress_from,
    };
    (source, sink)
}

pub(super) struct WebSocketSource<S> {
    stream: SplitStream<WebSocketStream<S>>,
    stall_timeout: StallTimeout,
    message_bytes_max: usize,
    takes_packed: bool,
}

impl<S> BlockSource for WebSocketSource<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn next(&mut self) -> Result<Bytes, String> {
        loop {
            // Time counts only here: while a block waits for room in the queue, nothing is known of the peer.
            let Some(message) = self.stall_timeout.while_alive(self.stream.next()).await else {
                let silence = self.stall_timeout.limit().as_secs_f32();
                return Err(format!("nothing was heard from the other end for {silence} s"));
            };
            let Some(message) = message else { return Err("the other end closed the link".to_owned()) };
            match message.map_err(|error| explain(&error))? {
                Message::Text(text) if text.len() > self.message_bytes_max => {
                    let bytes_max = self.message_bytes_max;
                    return Err(format!("the other end sent a message of more than {bytes_max} bytes"));
                }
                Message::Text(text) if !text.is_empty() => return Ok(with_line_end(Bytes::from(text))),
                // An older or a foreign peer may send one; on this link nobody has agreed on what it would mean.
                Message::Binary(_) if !self.takes_packed => {
                    tracing::debug!("a binary message of the other end says nothing here");
                }
                Message::Binary(packed) => {
                    let block = packing::unpack(&packed, self.message_bytes_max)?;
                    if !block.is_empty() {
                        return Ok(with_line_end(block));
                    }
                }
                Message::Close(close) => {
                    // The library answers the goodbye when it is asked for more.
                    let _answered = self.stream.next().now_or_never();
                    return Err(goodbye(close.as_ref()));
                }
                // Pings are answered by the library.
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

/// A peer may send one line without its end; readers of a link count on whole lines.
fn with_line_end(block: Bytes) -> Bytes {
    if block.ends_with(b"\n") {
        return block;
    }
    let mut ended = BytesMut::with_capacity(block.len() + 1);
    ended.extend_from_slice(&block);
    ended.extend_from_slice(b"\n");
    ended.freeze()
}

fn goodbye(close: Option<&CloseFrame>) -> String {
    match close {
        Some(close) if !close.reason.is_empty() => format!("the other end closed the link: {}", close.reason),
        Some(_) | None => "the other end closed the link".to_owned(),
    }
}

/// The reason ends up in logs and in front of people, so it names what happened and not the library's state.
fn explain(error: &WebSocketError) -> String {
    match error {
        WebSocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            "the connection broke off".to_owned()
        }
        WebSocketError::Io(error) => format!("the connection broke off: {error}"),
        WebSocketError::Capacity(error) => format!("the other end sent too much at once: {error}"),
        other => format!("the other end does not keep to the protocol: {other}"),
    }
}

pub(super) struct WebSocketSink<S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    stall_timeout: StallTimeout,
    /// The task pings only between blocks; while a long block is written, `feed_message` keeps to the interval by this.
    pinged_at: Instant,
    ping_interval: Duration,
    message_bytes_max: usize,
    compress_from: usize,
}

impl<S> BlockSink for WebSocketSink<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn feed(&mut self, block: Bytes, may_pack: bool) -> Result<(), WriteError> {
        // The peer would refuse it and close, and after each reconnect it would be sent again: better to fail here,
        // loudly.
        if block.len() > self.message_bytes_max {
            let (bytes, bytes_max) = (block.len(), self.message_bytes_max);
            let reason = format!("a block of {bytes} bytes cannot be sent; at most {bytes_max}");
            tracing::error!(bytes, bytes_max, "a block is too long for the link");
            return Err(WriteError::Fatal(reason));
        }
        if may_pack
            && block.len() >= self.compress_from
            && let Some(packed) = packing::pack(&block)
        {
            return self.feed_message(Data::Binary, packed).await;
        }
        self.feed_message(Data::Text, as_text(block)).await
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = self.stall_timeout.within_limit(self.sink.flush()).await;
        self.judge(flushed)
    }

    async fn ping(&mut self) -> Result<(), WriteError> {
        self.feed_one(Message::Ping(Bytes::new())).await?;
        self.pinged_at = Instant::now();
        self.flush().await
    }

    async fn close(&mut self, goodbye: CloseMessage<'_>) -> Result<(), WriteError> {
        let told = match goodbye {
            CloseMessage::Plain => None,
            CloseMessage::Over(reason) => Some((CloseCode::Normal, reason)),
            CloseMessage::Refused(reason) => Some((CloseCode::Policy, reason)),
        };
        let close = told.map(|(code, reason)| CloseFrame {
            code,
            reason: Utf8Bytes::from(&reason[..reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX)]),
        });
        self.feed_one(Message::Close(close)).await?;
        self.flush().await
    }
}

impl<S> WebSocketSink<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn feed_message(&mut self, kind: Data, payload: Bytes) -> Result<(), WriteError> {
        let mut rest = payload;
        let mut kind = kind;
        loop {
            let part = rest.split_to(rest.len().min(FRAME_BYTES_MAX));
            let is_final = rest.is_empty();
            self.feed_one(Message::Frame(Frame::message(part, OpCode::Data(kind), is_final))).await?;
            if is_final {
                return Ok(());
            }
            // Control frames may stand between the frames of a message, so a long one does not hold up the sign of
            // life.
            kind = Data::Continue;
            if self.pinged_at.elapsed() >= self.ping_interval {
                self.feed_one(Message::Ping(Bytes::new())).await?;
                self.pinged_at = Instant::now();
            }
        }
    }

    /// Every write has its own limit: the peer must take something now and then, not everything in time.
    async fn feed_one(&mut self, message: Message) -> Result<(), WriteError> {
        let fed = self.stall_timeout.within_limit(self.sink.feed(message)).await;
        self.judge(fed)
    }

    fn judge(&self, written: Option<Result<(), WebSocketError>>) -> Result<(), WriteError> {
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(WriteError::Broken(explain(&error))),
            None => {
                let seconds = self.stall_timeout.limit().as_secs_f32();
                Err(WriteError::Fatal(format!("the other end accepted no data for {seconds} s")))
            }
        }
    }
}

/// A text message must be UTF-8, or the peer ends the link; a block that is not would come back for ever.
fn as_text(block: Bytes) -> Bytes {
    if std::str::from_utf8(&block).is_ok() {
        return block;
    }
    tracing::warn!(bytes = block.len(), "a block is not UTF-8; its broken characters are replaced");
    Bytes::from(String::from_utf8_lossy(&block).into_owned())
}
