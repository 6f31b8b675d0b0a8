//! The two tasks of a connection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error as WebSocketError, Message};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::Frame;
use super::queue::SharedFrames;
use crate::net::BoxedStream;
use crate::socket::stall_timeout::StallTimeout;

/// Ping intervals without a sign of life, or without a byte taken, after which the server counts as gone.
/// More than one, since a single lost or late answer proves nothing.
const SILENT_INTERVALS_MAX: u32 = 3;

pub(super) struct ConnectionTasks {
    reader: AbortHandle,
    queue: Arc<SharedFrames>,
}

impl ConnectionTasks {
    pub(super) fn new(reader: AbortHandle, queue: Arc<SharedFrames>) -> ConnectionTasks {
        ConnectionTasks { reader, queue }
    }

    /// Stops reading. The writer ends by itself when its queue is dropped, after saying goodbye.
    pub(super) fn stop(&self) {
        self.reader.abort();
        self.queue.close("the client was dropped");
    }
}

pub(super) fn spawn(
    socket: WebSocketStream<BoxedStream>,
    outgoing: mpsc::Receiver<Message>,
    queue: Arc<SharedFrames>,
    ping_interval: Duration,
) -> ConnectionTasks {
    let (sink, stream) = socket.split();
    let silence_max = ping_interval.saturating_mul(SILENT_INTERVALS_MAX);
    let ended = CancellationToken::new();
    let reader = FrameReader { stream, queue: queue.clone(), stall_timeout: StallTimeout::new(silence_max) };
    let reader = tokio::spawn(reader.run(ended.clone().drop_guard())).abort_handle();
    let writer = FrameWriter {
        sink,
        queue: queue.clone(),
        stall_timeout: StallTimeout::new(silence_max),
        ping_interval,
    };
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = writer.run(outgoing) => {}
            // Nobody will hear the answers.
            () = ended.cancelled() => {}
        }
    });
    ConnectionTasks { reader, queue }
}

struct FrameReader {
    stream: SplitStream<WebSocketStream<BoxedStream>>,
    queue: Arc<SharedFrames>,
    stall_timeout: StallTimeout,
}

impl FrameReader {
    /// Reads until the connection ends; the guard tells the writer.
    async fn run(mut self, _ended: DropGuard) {
        let reason = loop {
            // While the reader waits for room the clock stands still: that does not prove the server dead.
            let Some(message) = self.stall_timeout.while_alive(self.stream.next()).await else {
                break "the server does not answer pings".to_owned();
            };
            let Some(message) = message else { break "the server closed the connection".to_owned() };
            match message {
                Ok(Message::Text(text)) => match self.queue.accept(Frame::new(text)) {
                    Ok(true) => {}
                    Ok(false) => self.queue.wait_for_room().await,
                    Err(reason) => break reason,
                },
                Ok(Message::Close(close)) => {
                    // The library answers the goodbye when it is asked for more.
                    let _answered = self.stream.next().now_or_never();
                    break match close {
                        Some(close) if !close.reason.is_empty() => {
                            format!("the server closed the connection: {}", close.reason)
                        }
                        Some(_) | None => "the server closed the connection".to_owned(),
                    };
                }
                // The protocol has no binary frames; pings are answered by the library.
                Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed) => {
                    break "the server closed the connection".to_owned();
                }
                // Without a goodbye, as when its process is killed; how TLS words that helps nobody.
                Err(WebSocketError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    break "the server went away".to_owned();
                }
                Err(error) => break error.to_string(),
            }
        };
        self.queue.close(&reason);
    }
}

struct FrameWriter {
    sink: SplitSink<WebSocketStream<BoxedStream>, Message>,
    queue: Arc<SharedFrames>,
    stall_timeout: StallTimeout,
    ping_interval: Duration,
}

impl FrameWriter {
    async fn run(mut self, mut outgoing: mpsc::Receiver<Message>) {
        let mut ticks = tokio::time::interval(self.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            let written = tokio::select! {
                // In this order always, so that a simulated world runs the same way each time.
                biased;
                _ = ticks.tick() => self.write(Message::Ping(Bytes::new()), None).await,
                message = outgoing.recv() => match message {
                    Some(message) => self.write(message, Some(&mut outgoing)).await,
                    None => break,
                },
            };
            if let Err(reason) = written {
                return self.queue.close(&reason);
            }
        }
        // The connection is being dropped; a server that is gone already needs no goodbye.
        let _goodbye = self.stall_timeout.within_limit(self.sink.close()).await;
    }

    /// Writes a message and all that wait behind it with one flush.
    async fn write(
        &mut self,
        first: Message,
        mut behind: Option<&mut mpsc::Receiver<Message>>,
    ) -> Result<(), String> {
        let mut next = Some(first);
        while let Some(message) = next {
            let fed = self.stall_timeout.within_limit(self.sink.feed(message)).await;
            judge(fed)?;
            next = behind.as_mut().and_then(|behind| behind.try_recv().ok());
        }
        judge(self.stall_timeout.within_limit(self.sink.flush()).await)
    }
}

fn judge(written: Option<Result<(), WebSocketError>>) -> Result<(), String> {
    match written {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err("the server accepts no more data".to_owned()),
    }
}
