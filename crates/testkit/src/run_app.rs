//! A plain client of the run protocol's `/ws/app`, as an app written for the document would be.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::json_socket::{JsonSocket, deref_to_socket};

/// One connection.
pub struct RunApp {
    socket: JsonSocket,
}

deref_to_socket!(RunApp);

impl RunApp {
    /// Connects as the document says: with the token in the query.
    pub async fn connect(url: &str, token: &str) -> RunApp {
        RunApp { socket: JsonSocket::open(&format!("{url}/ws/app?token={token}"), &[]).await.unwrap() }
    }

    /// A new id of the kind clients make.
    pub fn new_id() -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        format!("00000000-0000-4000-8000-{:012x}", NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a message; `run_id` may be empty.
    pub async fn send(&mut self, kind: &str, run_id: &str, data: Value) {
        let mut envelope = json!({"type": kind, "ts": "2026-01-01T00:00:00Z", "data": data});
        if !run_id.is_empty() {
            envelope["run_id"] = json!(run_id);
        }
        self.send_text(&envelope.to_string()).await;
    }

    /// Sends an RPC and gives its whole response.
    pub async fn rpc(&mut self, kind: &str, run_id: &str, data: Value) -> Value {
        let from = self.count();
        let request_id = self.begin_rpc(kind, run_id, data).await;
        self.response(from, &request_id).await
    }

    /// Sends an RPC and gives its id.
    pub async fn begin_rpc(&mut self, kind: &str, run_id: &str, mut data: Value) -> String {
        let request_id = RunApp::new_id();
        data["request_id"] = json!(request_id);
        self.send(kind, run_id, data).await;
        request_id
    }

    /// The response to an RPC that was sent when `from` frames were there.
    pub async fn response(&mut self, from: usize, request_id: &str) -> Value {
        let is_it =
            |frame: &Value| frame["type"] == "rpc.response" && frame["data"]["request_id"] == request_id;
        self.since(from, &format!("the response to {request_id}"), is_it).await.1
    }

    /// Starts a run and gives its id.
    pub async fn start(&mut self, host_id: &str, cmd: &str, cwd: &str) -> String {
        let data = json!({"host_id": host_id, "tool": "test", "cmd": cmd, "cwd": cwd});
        let response = self.rpc("rpc.run.start", "", data).await;
        assert_eq!(response["data"]["ok"], true, "{response}");
        let run_id = response["data"]["result"]["run_id"].as_str().unwrap();
        assert_eq!(response["run_id"], run_id, "the envelope names the run too");
        run_id.to_owned()
    }

    /// The next event of this kind of the run.
    pub async fn event(&mut self, run_id: &str, kind: &str) -> Value {
        let what = format!("{kind} of {run_id}");
        self.wait_for(&what, |frame| frame["type"] == kind && frame["run_id"] == run_id).await
    }

    /// Everything the run has written so far, in order of arrival.
    pub fn output(&self, run_id: &str) -> String {
        let own =
            self.frames().iter().filter(|frame| frame["type"] == "run.output" && frame["run_id"] == run_id);
        own.filter_map(|frame| frame["data"]["text"].as_str()).collect()
    }

    /// Waits until the run has written this.
    pub async fn wait_output(&mut self, run_id: &str, text: &str) {
        let what = format!("output {text:?} of {run_id}, so far {:?}", self.output(run_id));
        let mut from = 0;
        while !self.output(run_id).contains(text) {
            let is_output = |frame: &Value| frame["type"] == "run.output" && frame["run_id"] == run_id;
            from = self.find(from, &what, is_output).await + 1;
        }
    }

    /// The records of a run as they came: kinds and numbers.
    pub fn seqs(&self, run_id: &str) -> Vec<(String, u64)> {
        let own = self.frames().iter().filter(|frame| frame["run_id"] == run_id && frame["seq"].is_u64());
        own.map(|frame| (frame["type"].as_str().unwrap().to_owned(), frame["seq"].as_u64().unwrap()))
            .collect()
    }
}
