//! A plain client of the pi-server face: sends JSON, keeps every frame, waits with a deadline. It knows nothing of
//! what the frames mean; the client to copy is in `clients/typescript`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]
#![allow(clippy::disallowed_methods, reason = "tests look at when a frame came")]

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::mux::{WAIT_MAX, short};

/// How long to wait for something that should not come.
const PATIENCE: Duration = Duration::from_millis(300);

/// One connection.
pub struct PiClient {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    frames: Vec<(Instant, Value)>,
    /// Where the next wait begins to look.
    cursor: usize,
    next_id: u64,
    prefix: String,
    /// How the server closed the connection.
    pub closed: Option<(u16, String)>,
}

impl PiClient {
    /// Connects with the token as bearer and reads `server_ready`.
    pub async fn connect(url: &str, token: &str) -> PiClient {
        let mut client = PiClient::open(url, &[("authorization", &format!("Bearer {token}"))]).await.unwrap();
        let first = client.next().await.expect("a first frame");
        assert_eq!(first["type"], "server_ready", "{first}");
        assert_eq!(first["data"]["protocolVersion"], "1.0.0", "{first}");
        client
    }

    /// Connects with headers of one's own to any path; the error is the server's answer.
    pub async fn open(url: &str, headers: &[(&'static str, &str)]) -> Result<PiClient, String> {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut request = url.replacen("http://", "ws://", 1).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let connect = tokio::time::timeout(WAIT_MAX, tokio_tungstenite::connect_async(request));
        let (socket, _) =
            connect.await.expect("an answer to the handshake").map_err(|error| error.to_string())?;
        // Clients of one test must not have the same ids by chance: that is a case of its own.
        let prefix = format!("t{number}-");
        Ok(PiClient { socket, frames: Vec::new(), cursor: 0, next_id: 0, prefix, closed: None })
    }

    /// Every frame so far.
    pub fn frames(&self) -> Vec<Value> {
        self.frames.iter().map(|(_, frame)| frame.clone()).collect()
    }

    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// Lets the next wait look at new frames only.
    pub fn skip(&mut self) {
        self.cursor = self.frames.len();
    }

    pub async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    pub async fn send_message(&mut self, message: Message) -> Result<(), String> {
        self.socket.send(message).await.map_err(|error| error.to_string())
    }

    /// Sends a command; without an `id` it gets one. Returns the id.
    pub async fn send(&mut self, mut command: Value) -> Value {
        let object = command.as_object_mut().unwrap();
        self.next_id += 1;
        let id = format!("{}{}", self.prefix, self.next_id);
        let id = object.entry("id").or_insert_with(|| json!(id)).clone();
        self.send_text(&command.to_string()).await;
        id
    }

    /// The next frame; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(WAIT_MAX, self.socket.next());
            let Ok(message) = message.await else { panic!("the server went silent after\n{}", self.tail()) };
            match message {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).expect("every frame is JSON");
                    self.frames.push((Instant::now(), frame.clone()));
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
        while let Ok(Some(_)) = tokio::time::timeout(PATIENCE, self.next()).await {}
    }

    /// Sends a command and waits for its response.
    pub async fn call(&mut self, command: Value) -> Value {
        let from = self.frames.len();
        let id = self.send(command).await;
        self.response(from, &id).await
    }

    /// Waits for the response to a command that was sent when `from` frames were there.
    pub async fn response(&mut self, from: usize, id: &Value) -> Value {
        let is_response = |frame: &Value| frame["type"] == "response" && frame["id"] == *id;
        let at = self.find(from, &format!("the response to {id}"), is_response).await;
        self.frames[at].1.clone()
    }

    /// The same, for a command that must succeed: the whole response.
    pub async fn ok(&mut self, command: Value) -> Value {
        let response = self.call(command.clone()).await;
        assert_eq!(response["success"], true, "{}\n→ {}", short(&command), short(&response));
        response
    }

    /// The same, for a command that must fail: its error.
    pub async fn refused(&mut self, command: Value) -> String {
        let response = self.call(command.clone()).await;
        assert_eq!(response["success"], false, "{}\n→ {}", short(&command), short(&response));
        response["error"].as_str().expect("a refusal says why").to_owned()
    }

    /// Creates a session (with these fields) and follows it. Returns its id.
    pub async fn create(&mut self, fields: Value) -> String {
        let mut command = json!({"type": "create_session"});
        command.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let created = self.ok(command).await;
        let session_id = created["data"]["sessionId"].as_str().unwrap().to_owned();
        self.ok(json!({"type": "switch_session", "sessionId": session_id})).await;
        self.skip();
        session_id
    }

    /// Prompts a followed session and waits until the agent has settled.
    pub async fn turn(&mut self, session_id: &str, message: &str) -> Vec<Value> {
        let from = self.frames.len();
        self.ok(json!({"type": "prompt", "sessionId": session_id, "message": message})).await;
        self.settled(from, session_id).await
    }

    /// The events of a session from frame `from` up to `agent_settled`.
    pub async fn settled(&mut self, from: usize, session_id: &str) -> Vec<Value> {
        let is_end = |frame: &Value| {
            frame["type"] == "event"
                && frame["sessionId"] == session_id
                && frame["event"]["type"] == "agent_settled"
        };
        let at = self.find(from, "agent_settled", is_end).await;
        let own = |frame: &Value| frame["type"] == "event" && frame["sessionId"] == session_id;
        self.frames[from..=at]
            .iter()
            .filter(|(_, frame)| own(frame))
            .map(|(_, frame)| frame["event"].clone())
            .collect()
    }

    /// The first frame after the last one waited for that satisfies the condition.
    pub async fn wait_for(&mut self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let at = self.find(self.cursor, what, condition).await;
        self.cursor = at + 1;
        self.frames[at].1.clone()
    }

    /// The next event of this kind of any followed session.
    pub async fn wait_event(&mut self, kind: &str) -> Value {
        self.wait_for(kind, |frame| frame["type"] == "event" && frame["event"]["type"] == kind).await["event"]
            .clone()
    }

    /// The first frame from number `from` on that satisfies the condition, and when it came.
    pub async fn since(
        &mut self,
        from: usize,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> (Instant, Value) {
        let at = self.find(from, what, condition).await;
        self.frames[at].clone()
    }

    /// Everything said about one command, in order: lifecycle as `accepted`, `started`, `finished`, `replayed`, and
    /// `response`.
    pub fn said_of(&self, id: &Value) -> Vec<String> {
        let word = |frame: &Value| {
            let kind = frame["type"].as_str().unwrap_or_default();
            match kind {
                "response" if frame["id"] == *id => Some("response".to_owned()),
                "command_finished"
                    if frame["data"]["commandId"] == *id && frame["data"]["replayed"] == true =>
                {
                    Some("replayed".to_owned())
                }
                "command_accepted" | "command_started" | "command_finished"
                    if frame["data"]["commandId"] == *id =>
                {
                    kind.strip_prefix("command_").map(str::to_owned)
                }
                _ => None,
            }
        };
        self.frames.iter().filter_map(|(_, frame)| word(frame)).collect()
    }

    async fn find(&mut self, from: usize, what: &str, condition: impl Fn(&Value) -> bool) -> usize {
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
                if condition(&self.frames[at].1) {
                    return Some(at);
                }
                at += 1;
            }
            self.next().await?;
        }
    }

    /// The last frames, for the message of a failed test.
    fn tail(&self) -> String {
        let start = self.frames.len().saturating_sub(12);
        self.frames[start..].iter().map(|(_, frame)| short(frame)).collect::<Vec<_>>().join("\n")
    }
}

/// The kinds of events, in order, without those that come in any number.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    let many = ["message_update", "tool_execution_update"];
    events.iter().filter_map(|event| event["type"].as_str()).filter(|kind| !many.contains(kind)).collect()
}
