//! A WebSocket that carries JSON: sends, keeps every frame with the moment it came, waits with a deadline. It knows
//! nothing of what the frames mean.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]
#![allow(clippy::disallowed_methods, reason = "tests look at when a frame came")]

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// No answer of a scripted session takes this long, even on a loaded machine.
pub const WAIT_MAX: Duration = Duration::from_secs(40);

/// How long something may take that may well not come.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// One connection.
pub struct JsonSocket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    frames: Vec<Value>,
    /// When each of them came.
    times: Vec<Instant>,
    /// Where the next wait begins to look.
    cursor: usize,
    /// How the server closed the connection.
    pub closed: Option<(u16, String)>,
}

impl JsonSocket {
    /// Connects with headers of one's own to any path; the error is the server's answer.
    pub async fn open(url: &str, headers: &[(&'static str, &str)]) -> Result<JsonSocket, String> {
        let mut request = url.replacen("http://", "ws://", 1).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let connect = tokio::time::timeout(WAIT_MAX, tokio_tungstenite::connect_async(request));
        let (socket, _) =
            connect.await.expect("an answer to the handshake").map_err(|error| error.to_string())?;
        Ok(JsonSocket { socket, frames: Vec::new(), times: Vec::new(), cursor: 0, closed: None })
    }

    /// Every frame so far.
    pub fn frames(&self) -> &[Value] {
        &self.frames
    }

    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// Lets the next wait look at new frames only.
    pub fn skip(&mut self) {
        self.skip_to(self.frames.len());
    }

    /// Lets the next wait look at frames from this number on.
    pub fn skip_to(&mut self, number: usize) {
        self.cursor = number;
    }

    /// Forgets what has come, for tests that read very much.
    pub fn forget(&mut self) {
        self.frames.clear();
        self.times.clear();
        self.cursor = 0;
    }

    pub async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    pub async fn send_message(&mut self, message: Message) -> Result<(), String> {
        self.socket.send(message).await.map_err(|error| error.to_string())
    }

    /// The next frame; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(WAIT_MAX, self.socket.next());
            let Ok(message) = message.await else { panic!("the server went silent after\n{}", self.tail()) };
            match message {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).expect("every frame is JSON");
                    self.frames.push(frame.clone());
                    self.times.push(Instant::now());
                    return Some(frame);
                }
                Some(Ok(Message::Close(close))) => {
                    self.closed = close.map(|close| (close.code.into(), close.reason.to_string()));
                    return None;
                }
                Some(Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Reads whatever comes within a short while.
    pub async fn settle(&mut self) {
        while let Ok(Some(_)) = tokio::time::timeout(SETTLE_TIME, self.next()).await {}
    }

    /// The first frame after the last one waited for that satisfies the condition.
    pub async fn wait_for(&mut self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let at = self.find(self.cursor, what, condition).await;
        self.cursor = at + 1;
        self.frames[at].clone()
    }

    /// The first frame from number `from` on that satisfies the condition, and when it came.
    pub async fn since(
        &mut self,
        from: usize,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> (Instant, Value) {
        let at = self.find(from, what, condition).await;
        (self.times[at], self.frames[at].clone())
    }

    /// The same without the moment.
    pub async fn wait_since(&mut self, from: usize, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.since(from, what, condition).await.1
    }

    /// The number of that frame.
    pub async fn find(&mut self, from: usize, what: &str, condition: impl Fn(&Value) -> bool) -> usize {
        let found = tokio::time::timeout(WAIT_MAX, self.search(from, condition)).await;
        match found {
            Ok(Some(at)) => at,
            Ok(None) => panic!("the connection ended while waiting for {what}, after\n{}", self.tail()),
            Err(_) => panic!("waited {WAIT_MAX:?} in vain for {what}, after\n{}", self.tail()),
        }
    }

    async fn search(&mut self, from: usize, condition: impl Fn(&Value) -> bool) -> Option<usize> {
        let mut at = from;
        loop {
            while at < self.frames.len() {
                if condition(&self.frames[at]) {
                    return Some(at);
                }
                at += 1;
            }
            self.next().await?;
        }
    }

    /// The last frames, for the message of a failed test.
    pub fn tail(&self) -> String {
        let start = self.frames.len().saturating_sub(12);
        self.frames[start..].iter().map(short).collect::<Vec<_>>().join("\n")
    }
}

/// The beginning of a frame, for the message of a failed test.
pub fn short(frame: &Value) -> String {
    frame.to_string().chars().take(600).collect()
}

/// Lets a client of one protocol be used as the socket it has.
macro_rules! deref_to_socket {
    ($client:ident) => {
        impl std::ops::Deref for $client {
            type Target = JsonSocket;

            fn deref(&self) -> &JsonSocket {
                &self.socket
            }
        }

        impl std::ops::DerefMut for $client {
            fn deref_mut(&mut self) -> &mut JsonSocket {
                &mut self.socket
            }
        }
    };
}
pub(crate) use deref_to_socket;
