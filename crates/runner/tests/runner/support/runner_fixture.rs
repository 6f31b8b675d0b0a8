//! A runner in this process with the test as its hub: lines in, lines out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use qd_core::health::HealthConfig;
use qd_link::memory::{LinkEnd, pair};
use qd_runner::driver::{HarnessSettings, Harnesses, TABLE};
use qd_runner::{Runner, RunnerConfig, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{HELPER, WAIT_MAX, guard_with_home, merged, until, usual_role};

pub(crate) struct RunnerFixture {
    folder: TempDir,
    pub(crate) config: RunnerConfig,
    runner: Option<(Runner, CancellationToken)>,
    link: LinkEnd,
    /// Every line the runner has sent.
    pub(crate) lines: Vec<Value>,
    next_id: u32,
}

/// Supervision at the pace of a test.
pub(crate) fn quick(restart_after: Option<u64>) -> HealthConfig {
    HealthConfig {
        sample: Duration::from_millis(50),
        heartbeat: Duration::from_millis(200),
        warn_after: Duration::from_millis(300),
        restart_after: restart_after.map(Duration::from_millis),
        probe_every: Duration::from_millis(100),
        // Generous, so that a busy machine is not taken for a hung agent.
        probe_timeout: Duration::from_millis(1500),
    }
}

impl RunnerFixture {
    pub(crate) async fn start(change: impl FnOnce(&mut RunnerConfig)) -> RunnerFixture {
        let folder = tempfile::tempdir().unwrap();
        let mut config = RunnerConfig {
            harnesses: Harnesses::new(TABLE, |harness| HarnessSettings {
                command: vec![HELPER.into(), harness.name().into()],
                user_dir: folder.path().join(harness.name()),
            }),
            hostname: "here".to_owned(),
            default_cwd: Some(folder.path().to_owned()),
            max_sessions: 10,
            ..RunnerConfig::new("r1", folder.path().join("data"), guard_with_home(folder.path()))
        };
        change(&mut config);
        let (runner, link) = run(folder.path(), &config, 0).await;
        RunnerFixture { folder, config, runner: Some(runner), link, lines: Vec::new(), next_id: 0 }
    }

    /// With a session `s` of this harness.
    pub(crate) async fn with_session(harness: &str) -> RunnerFixture {
        RunnerFixture::session_with(harness, |_| {}).await
    }

    /// The same with settings of one's own.
    pub(crate) async fn session_with(harness: &str, change: impl FnOnce(&mut RunnerConfig)) -> RunnerFixture {
        let mut runner = RunnerFixture::start(change).await;
        runner.create(harness).await;
        runner
    }

    /// A planned stop and a new start; the hub has records up to `hub_has`.
    pub(crate) async fn restart(&mut self, hub_has: u64) {
        self.stop().await;
        let (runner, link) = run(self.folder.path(), &self.config, hub_has).await;
        (self.runner, self.link) = (Some(runner), link);
    }

    /// Where the runner keeps everything.
    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("runner.db")
    }

    pub(crate) async fn stop(&mut self) {
        let Some((runner, shutdown)) = self.runner.take() else { return };
        shutdown.cancel();
        let drain = async { while self.link.receiver.recv().await.is_some() {} };
        let stopped = async { tokio::join!(runner.join(), drain) };
        tokio::time::timeout(WAIT_MAX, stopped).await.expect("the runner stops");
    }

    pub(crate) async fn send(&mut self, mut command: Value) -> String {
        self.next_id += 1;
        let id = format!("h{}", self.next_id);
        command["type"] = json!("command");
        command["id"] = json!(id);
        command["user_id"] = json!("anna");
        // A hub always says what the sender is.
        if command["user_role"].is_null() {
            command["user_role"] = json!(usual_role(command["cmd"].as_str().unwrap()));
        }
        self.link.sender.send(Bytes::from(format!("{command}\n"))).await.unwrap();
        id
    }

    /// A line of the hub that is no command.
    pub(crate) async fn say(&self, line: Value) {
        self.link.sender.send(Bytes::from(format!("{line}\n"))).await.unwrap();
    }

    pub(crate) async fn call(&mut self, command: Value) -> Value {
        let from = self.lines.len();
        let id = self.send(command).await;
        self.find(from, "a response", |line| line["type"] == "response" && line["id"] == id).await
    }

    pub(crate) async fn ok(&mut self, command: Value) -> Value {
        let answer = self.call(command.clone()).await;
        assert_eq!(answer["success"], true, "{command} → {answer}");
        answer["data"].clone()
    }

    pub(crate) async fn create(&mut self, harness: &str) {
        self.ok(json!({"cmd": "session.create", "session_id": "s", "config": {"harness": harness}})).await;
    }

    pub(crate) async fn prompt(&mut self, message: &str) -> Value {
        self.ok(json!({"cmd": "prompt", "session_id": "s", "message": message})).await
    }

    /// Prompts and waits for the end of the turn. Says which line was the first of it.
    pub(crate) async fn turn(&mut self, message: &str) -> usize {
        let from = self.lines.len();
        self.prompt(message).await;
        self.find(from, "the end", |line| line["event"] == "agent.idle" && line["reason"].is_string()).await;
        from
    }

    pub(crate) async fn state(&mut self) -> Value {
        self.ok(json!({"cmd": "get_state", "session_id": "s"})).await
    }

    pub(crate) async fn pid(&mut self) -> i32 {
        i32::try_from(self.state().await["process"]["pid"].as_i64().unwrap()).unwrap()
    }

    /// The first line from number `from` on that satisfies the condition.
    pub(crate) async fn find(
        &mut self,
        from: usize,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut at = from;
        let search = async {
            loop {
                while at < self.lines.len() {
                    if condition(&self.lines[at]) {
                        return self.lines[at].clone();
                    }
                    at += 1;
                }
                let block = self.link.receiver.recv().await.expect("the runner lives");
                for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    self.lines.push(serde_json::from_slice(line).unwrap());
                }
            }
        };
        match tokio::time::timeout(WAIT_MAX, search).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain for {what}; the last lines: {:#?}", tail(&self.lines)),
        }
    }

    /// The response to a command that was sent before.
    pub(crate) async fn response(&mut self, id: &str) -> Value {
        self.find(0, "the response", |line| line["type"] == "response" && line["id"] == id).await
    }

    /// Where sessions work that name no directory.
    pub(crate) fn folder(&self) -> PathBuf {
        self.config.default_cwd.clone().unwrap()
    }

    pub(crate) async fn event(&mut self, from: usize, name: &str) -> Value {
        self.find(from, name, |line| line["event"] == name).await
    }

    /// The texts of all warnings from line `from` on.
    pub(crate) fn warnings(&self, from: usize) -> Vec<String> {
        let warnings = self.lines[from..].iter().filter(|line| line["event"] == "notify");
        warnings.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// The messages from line `from` on that no agent has shown to have read.
    pub(crate) fn interrupted(&self, from: usize) -> Vec<String> {
        let marked = self.lines[from..].iter().filter(|line| line["message"]["interrupted"] == true);
        marked.map(|line| line["message"]["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
    }

    /// What supervision showed from line `from` on.
    pub(crate) fn health(&self, from: usize) -> Vec<Value> {
        let texts = self.lines[from..].iter().filter(|line| line["key"] == "qd.health");
        texts.map(|line| line["text"].clone()).collect()
    }

    /// What people said, in the order of the records. A hub that acks nothing gets them again after a restart.
    pub(crate) fn user_messages(&self) -> Vec<String> {
        let ends = self
            .lines
            .iter()
            .filter(|line| line["event"] == "stream.message_end" && line["message"]["role"] == "user");
        let by_number: BTreeMap<u64, String> = ends
            .map(|line| {
                let text = line["message"]["parts"][0]["text"].as_str().unwrap();
                (line["seq"].as_u64().unwrap(), text.to_owned())
            })
            .collect();
        by_number.into_values().collect()
    }

    /// Waits for the record of a message a person sent.
    pub(crate) async fn until_user_message(&mut self, text: &str) {
        let is_it = |line: &Value| {
            line["event"] == "stream.message_end"
                && line["message"]["role"] == "user"
                && line["message"]["parts"][0]["text"] == text
        };
        self.find(0, text, is_it).await;
    }

    /// Asks until the session stands so.
    pub(crate) async fn until_status(&mut self, status: &str) {
        until(status, async || self.state().await["status"] == status).await;
    }
}

/// A service call in the session `s`.
pub(crate) fn in_session(cmd: &str, role: &str, parameters: Value) -> Value {
    merged(json!({ "cmd": cmd, "session_id": "s", "user_role": role }), parameters)
}

/// A shell command of a person, under a key of its own.
pub(crate) fn bash(command: &str, key: &str) -> Value {
    on("bash", json!({ "command": command, "idempotency_key": key }))
}

/// A command for the session `s`.
pub(crate) fn on(cmd: &str, parameters: Value) -> Value {
    merged(json!({ "cmd": cmd, "session_id": "s" }), parameters)
}

fn tail(lines: &[Value]) -> Vec<String> {
    let start = lines.len().saturating_sub(12);
    lines[start..].iter().map(|line| line.to_string().chars().take(300).collect()).collect()
}

async fn run(folder: &Path, config: &RunnerConfig, hub_has: u64) -> ((Runner, CancellationToken), LinkEnd) {
    let store = RunnerStore::open(&folder.join("runner.db"), StoreOptions::default()).unwrap();
    let (ours, mut hub) = pair();
    let shutdown = CancellationToken::new();
    let start = Runner::start(config.clone(), store, Uplink::Memory(ours), shutdown.clone());
    let greet = async {
        let hello = hub.receiver.recv().await.unwrap();
        let hello: Value = serde_json::from_slice(hello.trim_ascii()).unwrap();
        assert_eq!(hello["type"], "runner.hello");
        let mut welcome = json!({"type": "runner.welcome", "runner_id": "r1"});
        if hub_has > 0 {
            welcome["sessions"] = json!([{"session_id": "s", "last_seq": hub_has}]);
        }
        hub.sender.send(Bytes::from(format!("{welcome}\n"))).await.unwrap();
    };
    let (runner, ()) = tokio::join!(start, greet);
    ((runner.unwrap(), shutdown), hub)
}
