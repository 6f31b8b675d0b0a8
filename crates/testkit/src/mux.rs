//! A plain client of `/ws/mux`: sends JSON, keeps every frame it gets, waits with a deadline. It knows nothing of
//! what the frames mean.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::time::Duration;

use qd_wire::ErrorCode;
use serde_json::{Value, json};

use crate::json_socket::{JsonSocket, deref_to_socket};
pub use crate::json_socket::{WAIT_MAX, short};

/// How long to wait for something that may well not come.
const TRY_TIME: Duration = Duration::from_millis(300);

/// One connection.
pub struct Mux {
    socket: JsonSocket,
    next_id: u64,
}

deref_to_socket!(Mux);

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
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let socket = JsonSocket::open(&format!("{address}/ws/mux?{query}"), headers).await?;
        Ok(Mux { socket, next_id: 0 })
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

    /// Sends a command and waits for its one response.
    pub async fn call(&mut self, command: Value) -> Value {
        let from = self.count();
        let id = self.send(command).await;
        self.response(from, &id).await
    }

    /// Waits for the response to a command that was sent when `from` frames were there.
    pub async fn response(&mut self, from: usize, id: &Value) -> Value {
        let is_response = |frame: &Value| frame["event"] == "response" && frame["id"] == *id;
        self.wait_since(from, &format!("the response to {id}"), is_response).await
    }

    /// The same, giving up after a short while.
    pub async fn try_response(&mut self, from: usize, id: &Value) -> Option<Value> {
        tokio::time::timeout(TRY_TIME, self.response(from, id)).await.ok()
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
        assert!(response["code"].is_string(), "a refusal has a code: {}", short(&response));
        response["error"].as_str().expect("a refusal says why").to_owned()
    }

    /// The same, for a command that must fail with this code.
    pub async fn refused_as(&mut self, code: ErrorCode, command: Value) -> String {
        let response = self.call(command.clone()).await;
        assert_eq!(response["success"], false, "{}\n→ {}", short(&command), short(&response));
        assert_eq!(response["code"], code.as_str(), "{}\n→ {}", short(&command), short(&response));
        response["error"].as_str().expect("a refusal says why").to_owned()
    }

    /// The next event of this name.
    pub async fn wait_event(&mut self, name: &str) -> Value {
        self.wait_for(name, |frame| frame["event"] == name).await
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
        let from = self.begin_prompt(session_id, message).await;
        self.until_idle(session_id, from).await
    }

    /// Sends a prompt that must be accepted; returns how many frames were there before.
    pub async fn begin_prompt(&mut self, session_id: &str, message: &str) -> usize {
        let from = self.count();
        self.ok(json!({"cmd": "prompt", "session_id": session_id, "message": message})).await;
        from
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
        self.skip_to(end + 1);
        let own = |frame: &&Value| {
            let is_event = frame["channel"] == "agent" && frame["event"] != "response";
            is_event && frame["session_id"] == session_id
        };
        self.frames()[from..=end].iter().filter(own).cloned().collect()
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
