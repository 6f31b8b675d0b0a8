//! A plain client of the pi-server face. It knows nothing of what the frames mean; the client to copy is in
//! `clients/typescript`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use serde_json::{Value, json};

use crate::json_socket::{JsonSocket, deref_to_socket, short};

/// One connection.
pub struct PiClient {
    socket: JsonSocket,
    next_id: u64,
    prefix: String,
}

deref_to_socket!(PiClient);

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
        let socket = JsonSocket::open(url, headers).await?;
        // Clients of one test must not have the same ids by chance: that is a case of its own.
        let prefix = format!("t{number}-");
        Ok(PiClient { socket, next_id: 0, prefix })
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

    /// Sends a command and waits for its response.
    pub async fn call(&mut self, command: Value) -> Value {
        let from = self.count();
        let id = self.send(command).await;
        self.response(from, &id).await
    }

    /// Waits for the response to a command that was sent when `from` frames were there.
    pub async fn response(&mut self, from: usize, id: &Value) -> Value {
        let is_response = |frame: &Value| frame["type"] == "response" && frame["id"] == *id;
        self.wait_since(from, &format!("the response to {id}"), is_response).await
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
        assert!(response["code"].is_string(), "a refusal has a code: {}", short(&response));
        response["error"].as_str().expect("a refusal says why").to_owned()
    }

    /// Returns when everything has come that was sent to this connection so far: the answer to a command that changes
    /// nothing comes after it.
    pub async fn caught_up(&mut self) {
        self.ok(json!({"type": "list_sessions"})).await;
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
        let from = self.count();
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
        self.frames()[from..=at]
            .iter()
            .filter(|frame| own(frame))
            .map(|frame| frame["event"].clone())
            .collect()
    }

    /// The next event of this kind of any followed session.
    pub async fn wait_event(&mut self, kind: &str) -> Value {
        self.wait_for(kind, |frame| frame["type"] == "event" && frame["event"]["type"] == kind).await["event"]
            .clone()
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
        self.frames().iter().filter_map(word).collect()
    }
}

/// The kinds of events, in order, without those that come in any number.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    let many = ["message_update", "tool_execution_update"];
    events.iter().filter_map(|event| event["type"].as_str()).filter(|kind| !many.contains(kind)).collect()
}
