//! Apps of the run document, and runs whose runner is a script.

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{Client, Runner, TOKEN, World, record};

impl World {
    /// A hub whose runner has the run `run-1`.
    pub(crate) async fn with_run(limits: Limits) -> (World, Runner) {
        let (world, mut runner) = World::start_with(limits).await;
        runner.start_run("run-1").await;
        (world, runner)
    }

    /// An app of the owner.
    pub(crate) async fn app(&self) -> Client {
        self.app_as(TOKEN).await
    }

    pub(crate) async fn app_as(&self, token: &str) -> Client {
        self.try_client_at(&format!("/ws/app?token={token}"), token).await.unwrap()
    }
}

impl Client {
    /// Sends a message of the document.
    pub(crate) async fn say(&mut self, kind: &str, run_id: Option<&str>, data: Value) {
        let mut message = json!({"type":kind,"ts":"2025-01-01T00:00:00Z","data":data});
        if let Some(run_id) = run_id {
            message["run_id"] = run_id.into();
        }
        self.send(&message).await;
    }

    /// The next message.
    pub(crate) async fn heard(&mut self) -> Value {
        serde_json::from_str(&self.next_text().await).unwrap()
    }

    /// Sends a message and gives the next one that comes.
    pub(crate) async fn say_and_hear(&mut self, kind: &str, run_id: Option<&str>, data: Value) -> Value {
        self.say(kind, run_id, data).await;
        self.heard().await
    }

    /// The next message of this type; those before it are dropped.
    pub(crate) async fn heard_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.heard().await;
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Waits until the hub has read everything that was sent, and gives what came before that.
    pub(crate) async fn heard_until_now(&mut self) -> Vec<Value> {
        self.say("run.fly", None, json!({})).await;
        let mut heard = Vec::new();
        loop {
            let message = self.heard().await;
            if message["type"] == "error" && message["data"]["about"] == "run.fly" {
                return heard;
            }
            heard.push(message);
        }
    }
}

impl Runner {
    /// A program in a terminal that has started; two records.
    pub(crate) async fn start_run(&mut self, run_id: &str) {
        let created = record(run_id, 1, "session.created", r#","resumed":false,"harness":"pty","cwd":"/w""#);
        let started = record(
            run_id,
            2,
            "run.started",
            r#","tool":"codex","cwd":"/w","command":"codex x","cols":80,"rows":24"#,
        );
        self.say(&format!("{created}\n{started}")).await;
        self.stored(run_id, 2).await;
    }

    /// Waits until a record is stored and told.
    pub(crate) async fn stored(&mut self, run_id: &str, seq: u64) {
        loop {
            let ack = self.line_of("ack").await;
            if ack["session_id"] == run_id && ack["seq"].as_u64() >= Some(seq) {
                return;
            }
        }
    }

    /// One line that the program wrote.
    pub(crate) async fn output(&self, run_id: &str, seq: u64, text: &str) {
        self.say(&output(run_id, seq, text)).await;
    }
}

pub(crate) fn output(run_id: &str, seq: u64, text: &str) -> String {
    record(run_id, seq, "run.output", &format!(r#","stream":"stdout","text":{}"#, json!(text)))
}

/// A question of a gate, as a record.
pub(crate) fn gate(run_id: &str, seq: u64, request_id: &str) -> String {
    let request = json!({"type":"permission","request_id":request_id,"title":"Run 'ls'?","metadata":{
        "source":"gate","reason":"permission","op_tool":"bash","op_args":{"cmd":"ls"},"op_args_summary":"ls",
        "approve_text":"","deny_text":""}});
    record(run_id, seq, "agent.input_needed", &format!(r#","request":{request}"#))
}

/// Type, run and number of a message.
pub(crate) fn place(message: &Value) -> (String, String, u64) {
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    (text("type"), text("run_id"), message["seq"].as_u64().unwrap_or(0))
}
