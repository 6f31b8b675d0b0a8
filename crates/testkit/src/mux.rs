//! A plain client of `/ws/mux`: sends JSON, keeps every frame it gets, waits with a deadline. It knows nothing of
//! what the frames mean.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// No answer of a scripted session takes this long, even on a loaded machine.
pub const WAIT_MAX: Duration = Duration::from_secs(40);

/// How long to wait for something that may well not come.
const PATIENCE: Duration = Duration::from_millis(300);

/// One connection.
pub struct Mux {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    frames: Vec<Value>,
    /// Where the next wait begins to look.
    cursor: usize,
    next_id: u64,
}

impl Mux {
    /// Connects with the token as bearer and reads the first frame.
    pub async fn connect(url: &str, token: &str) -> Mux {
        let mut mux = Mux::open(url, &[("authorization", &format!("Bearer {token}"))]).await.unwrap();
        let first = mux.next().await.expect("a first frame");
        assert_eq!((&first["channel"], &first["type"]), (&json!("system"), &json!("connected")), "{first}");
        mux
    }

    /// Connects with headers of one's own; the error is the server's answer.
    pub async fn open(url: &str, headers: &[(&'static str, &str)]) -> Result<Mux, String> {
        let address = url.replacen("http://", "ws://", 1);
        let (address, query) = address.split_once('?').unwrap_or((&address, ""));
        let mut request = format!("{address}/ws/mux?{query}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let connect = tokio::time::timeout(WAIT_MAX, tokio_tungstenite::connect_async(request));
        let (socket, _) =
            connect.await.expect("an answer to the handshake").map_err(|error| error.to_string())?;
        Ok(Mux { socket, frames: Vec::new(), cursor: 0, next_id: 0 })
    }

    /// Every frame so far.
    pub fn frames(&self) -> &[Value] {
        &self.frames
    }

    /// Lets the next wait look at new frames only.
    pub fn skip(&mut self) {
        self.cursor = self.frames.len();
    }

    pub async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends any kind of message; an error means that the server has closed the connection.
    pub async fn send_message(&mut self, message: Message) -> Result<(), String> {
        self.socket.send(message).await.map_err(|error| error.to_string())
    }

    /// Sends a command on `agent`; without an `id` it gets one. Returns the id.
    pub async fn send(&mut self, mut command: Value) -> Value {
        let object = command.as_object_mut().unwrap();
        object.entry("channel").or_insert_with(|| json!("agent"));
        self.next_id += 1;
        let id = object.entry("id").or_insert_with(|| json!(format!("t{}", self.next_id))).clone();
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
                    self.frames.push(frame.clone());
                    return Some(frame);
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Sends a command and waits for its one response.
    pub async fn call(&mut self, command: Value) -> Value {
        let from = self.frames.len();
        let id = self.send(command).await;
        self.response(from, &id).await
    }

    /// Waits for the response to a command that was sent when `from` frames were there.
    pub async fn response(&mut self, from: usize, id: &Value) -> Value {
        let is_response = |frame: &Value| frame["event"] == "response" && frame["id"] == *id;
        let at = self.find(from, &format!("the response to {id}"), is_response).await;
        self.frames[at].clone()
    }

    /// The same, giving up after a short while.
    pub async fn try_response(&mut self, from: usize, id: &Value) -> Option<Value> {
        tokio::time::timeout(PATIENCE, self.response(from, id)).await.ok()
    }

    /// The same, for a command that must succeed: its data.
    pub async fn ok(&mut self, command: Value) -> Value {
        let response = self.call(command.clone()).await;
        assert_eq!(response["success"], true, "{}\n→ {}", short(&command), short(&response));
        response["data"].clone()
    }

    /// The same, for a command that must fail: its error.
    pub async fn refused(&mut self, command: Value) -> String {
        let response = self.call(command.clone()).await;
        assert_eq!(response["success"], false, "{}\n→ {}", short(&command), short(&response));
        response["error"].as_str().expect("a refusal says why").to_owned()
    }

    /// The first frame after the last one waited for that satisfies the condition.
    pub async fn wait_for(&mut self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let at = self.find(self.cursor, what, condition).await;
        self.cursor = at + 1;
        self.frames[at].clone()
    }

    /// The next event of this name.
    pub async fn wait_event(&mut self, name: &str) -> Value {
        self.wait_for(name, |frame| frame["event"] == name).await
    }

    /// The first frame from number `from` on that satisfies the condition, seen before or not.
    pub async fn wait_since(&mut self, from: usize, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let at = self.find(from, what, condition).await;
        self.frames[at].clone()
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
                if condition(&self.frames[at]) {
                    return Some(at);
                }
                at += 1;
            }
            self.next().await?;
        }
    }

    /// Creates a session with this configuration and returns its id. The next wait begins after it.
    pub async fn create(&mut self, config: Value) -> String {
        let data = self.ok(json!({"cmd": "session.create", "config": config})).await;
        self.skip();
        data["session_id"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt, waits for the end of the turn, and returns the session's events up to `agent.idle`.
    pub async fn prompt(&mut self, session_id: &str, message: &str) -> Vec<Value> {
        self.skip();
        let from = self.frames.len();
        self.ok(json!({"cmd": "prompt", "session_id": session_id, "message": message})).await;
        self.until_idle(session_id, from).await
    }

    /// Attaches to a session known from before, then the same.
    pub async fn attach_and_prompt(&mut self, session_id: &str, message: &str) -> Vec<Value> {
        self.ok(json!({"cmd": "session.attach", "session_id": session_id})).await;
        self.prompt(session_id, message).await
    }

    /// The session's events from frame `from` to the next end of a turn: an `agent.idle` that says how it ended. (One
    /// without a reason says that the agent has come up.)
    pub async fn until_idle(&mut self, session_id: &str, from: usize) -> Vec<Value> {
        let is_end = |frame: &Value| {
            frame["event"] == "agent.idle" && frame["reason"].is_string() && frame["session_id"] == session_id
        };
        let end = self.find(from, "the end of the turn", is_end).await;
        self.cursor = end + 1;
        let own = |frame: &&Value| {
            let is_event = frame["channel"] == "agent" && frame["event"] != "response";
            is_event && frame["session_id"] == session_id
        };
        self.frames[from..=end].iter().filter(own).cloned().collect()
    }

    /// The whole conversation, as the hub has it.
    pub async fn messages(&mut self, session_id: &str) -> Vec<Value> {
        let data = self.ok(json!({"cmd": "get_messages", "session_id": session_id})).await;
        data["messages"].as_array().unwrap().clone()
    }

    pub async fn state(&mut self, session_id: &str) -> Value {
        self.ok(json!({"cmd": "get_state", "session_id": session_id})).await
    }

    /// Waits until a runner of this name is there.
    pub async fn wait_online(&mut self, runner_id: &str) {
        let online = async {
            loop {
                let data = self.ok(json!({"cmd": "get_runners"})).await;
                let mut runners = data["runners"].as_array().unwrap().iter();
                if runners.any(|runner| runner["runner_id"] == runner_id && runner["status"] == "online") {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(WAIT_MAX, online).await.is_ok(), "{runner_id} never came");
    }

    /// The last frames, for the message of a failed test.
    fn tail(&self) -> String {
        let start = self.frames.len().saturating_sub(12);
        self.frames[start..].iter().map(short).collect::<Vec<_>>().join("\n")
    }
}

/// The beginning of a frame, for the message of a failed test.
pub fn short(frame: &Value) -> String {
    frame.to_string().chars().take(600).collect()
}

/// The names of events, in order, without those that come in any number (deltas, progress, phases, heartbeats).
pub fn names(events: &[Value]) -> Vec<&str> {
    let many = |name: &&str| {
        !name.ends_with("_delta")
            && !["tool.progress", "agent.working", "session.heartbeat", "status"].contains(name)
    };
    events.iter().filter_map(|event| event["event"].as_str()).filter(many).collect()
}

/// All events of one name.
pub fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// The phases in order, each as `phase` or `phase:detail`.
pub fn phases(events: &[Value]) -> Vec<String> {
    let phase = |event: &&Value| {
        let detail = event["detail"].as_str().map(|detail| format!(":{detail}")).unwrap_or_default();
        format!("{}{detail}", event["phase"].as_str().unwrap())
    };
    of(events, "agent.working").iter().map(phase).collect()
}

/// The text of a message: its text parts, joined.
pub fn text_of(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    parts.filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect()
}

/// A conversation as role and text.
pub fn transcript(messages: &[Value]) -> Vec<(String, String)> {
    let line = |message: &Value| (message["role"].as_str().unwrap().to_owned(), text_of(message));
    messages.iter().map(line).collect()
}
