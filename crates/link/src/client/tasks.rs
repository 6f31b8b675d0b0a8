//! The two tasks of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error as WebSocketError, Message};

use super::frame::Frame;
use super::queue::Queue;

/// Ping intervals without a sign of life after which the server counts as gone.
const SILENT_INTERVALS_MAX: u32 = 3;

pub(super) struct Tasks {
    reader: AbortHandle,
    queue: Arc<Queue>,
}

impl Tasks {
    /// Stops reading. The writer ends by itself when its queue is dropped, after saying goodbye.
    pub(super) fn stop(&self) {
        self.reader.abort();
        self.queue.close("the client was dropped");
    }
}

pub(super) fn spawn(
    socket: WebSocketStream<TcpStream>,
    outgoing: mpsc::Receiver<Message>,
    queue: Arc<Queue>,
    ping_interval: Duration,
) -> Tasks {
    let (sink, stream) = socket.split();
    let received = Arc::new(AtomicU64::new(0));
    let reader = tokio::spawn(read(stream, queue.clone(), received.clone())).abort_handle();
    let writer = Writer { sink, queue: queue.clone(), received, ping_interval };
    tokio::spawn(writer.run(outgoing, reader.clone()));
    Tasks { reader, queue }
}

async fn read(
    mut stream: SplitStream<WebSocketStream<TcpStream>>,
    queue: Arc<Queue>,
    received: Arc<AtomicU64>,
) {
    let reason = loop {
        let Some(message) = stream.next().await else { break "the server closed the connection".to_owned() };
        received.fetch_add(1, Ordering::Relaxed);
        match message {
            Ok(Message::Text(text)) => match queue.accept(Frame::new(text)) {
                Ok(true) => {}
                Ok(false) => queue.wait_for_room().await,
                Err(reason) => break reason,
            },
            Ok(Message::Close(Some(close))) if !close.reason.is_empty() => {
                break format!("the server closed the connection: {}", close.reason);
            }
            Ok(Message::Close(_)) => break "the server closed the connection".to_owned(),
            // The protocol has no binary frames; pings are answered by the library.
            Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed) => {
                break "the server closed the connection".to_owned();
            }
            Err(error) => break error.to_string(),
        }
    };
    queue.close(&reason);
}

struct Writer {
    sink: SplitSink<WebSocketStream<TcpStream>, Message>,
    queue: Arc<Queue>,
    received: Arc<AtomicU64>,
    ping_interval: Duration,
}

impl Writer {
    async fn run(mut self, mut outgoing: mpsc::Receiver<Message>, reader: AbortHandle) {
        let mut ticks = tokio::time::interval(self.ping_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let (mut seen, mut silent_intervals) = (0, 0);
        loop {
            let written = tokio::select! {
                message = outgoing.recv() => match message {
                    Some(message) => self.write_waiting(message, &mut outgoing).await,
                    None => break,
                },
                _ = ticks.tick() => {
                    let now_seen = self.received.load(Ordering::Relaxed);
                    // A reader that waits for room does not prove the server dead.
                    silent_intervals =
                        if now_seen == seen && self.queue.has_room() { silent_intervals + 1 } else { 0 };
                    seen = now_seen;
                    if silent_intervals >= SILENT_INTERVALS_MAX {
                        self.queue.close("the server does not answer pings");
                        reader.abort();
                        return;
                    }
                    self.sink.send(Message::Ping(Bytes::new())).await
                }
            };
            if let Err(error) = written {
                self.queue.close(&error.to_string());
                return;
            }
        }
        // The connection is being dropped; a server that is gone already needs no goodbye.
        let _goodbye = self.sink.close().await;
    }

    /// Writes a message and all that wait behind it with one flush.
    async fn write_waiting(
        &mut self,
        first: Message,
        outgoing: &mut mpsc::Receiver<Message>,
    ) -> Result<(), WebSocketError> {
        self.sink.feed(first).await?;
        while let Ok(next) = outgoing.try_recv() {
            self.sink.feed(next).await?;
        }
        self.sink.flush().await
    }
}
