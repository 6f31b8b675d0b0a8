//! A real pi in RPC mode, with what a test needs to talk to it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use qd_testkit::llm::LlmServer;
use qd_testkit::pi::{compile_cache, pi_command, pi_home};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// No event of a scripted run takes this long, even on a loaded machine.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Agent {
    dir: TempDir,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Agent {
    /// Starts a model and a pi that talks to it.
    pub(crate) async fn with_model(arguments: &[&str]) -> (LlmServer, Self) {
        let llm = LlmServer::start().await.unwrap();
        let pi = Agent::start(&llm, arguments);
        (llm, pi)
    }

    /// Starts pi in a fresh home and workspace.
    pub(crate) fn start(llm: &LlmServer, arguments: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        pi_home(&dir.path().join("home"), llm).unwrap();
        let command = pi_command().unwrap();
        Self::spawn(dir, &command, arguments)
    }

    /// Starts any program that speaks pi's protocol.
    pub(crate) fn spawn(dir: TempDir, command: &[String], arguments: &[&str]) -> Self {
        let at = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(["--mode", "rpc", "--no-extensions", "--session-dir"])
            .arg(at("sessions"))
            .args(arguments)
            .current_dir(at("work"))
            // A clean environment: no provider keys of whoever runs the tests, nothing of their own pi.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", dir.path())
            .env("NODE_COMPILE_CACHE", compile_cache())
            .env("PI_CODING_AGENT_DIR", at("home"))
            .env("TMPDIR", at("tmp"))
            .env("PI_OFFLINE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { dir, child, stdin, stdout }
    }

    /// The directory pi works in.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) async fn send(&mut self, command: Value) {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    /// The bytes of the next line; none at the end.
    pub(crate) async fn next_line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        let read = tokio::time::timeout(EVENT_WAIT_MAX, self.stdout.read_until(b'\n', &mut line));
        let count = read.await.expect("pi went silent").unwrap();
        (count > 0).then_some(line)
    }

    /// Reads up to and including the first line that satisfies the condition.
    pub(crate) async fn read_until(&mut self, condition: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let Some(line) = self.next_line().await else {
                panic!("pi ended early: {}\nafter {events:#?}", self.stderr().await);
            };
            let event: Value = serde_json::from_slice(&line).unwrap();
            let found = condition(&event);
            events.push(event);
            if found {
                return events;
            }
        }
    }

    /// Sends a prompt and reads until pi has settled.
    pub(crate) async fn prompt(&mut self, message: &str) -> Vec<Value> {
        self.send(json!({"type": "prompt", "message": message})).await;
        self.read_until(|event| event["type"] == "agent_settled").await
    }

    /// Sends a command and returns its response.
    pub(crate) async fn ask(&mut self, mut command: Value) -> Value {
        command["id"] = json!("ask");
        self.send(command).await;
        self.read_until(|event| event["id"] == "ask").await.pop().unwrap()
    }

    pub(crate) async fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut text).await.unwrap();
        }
        text
    }

    /// Waits for pi to exit by itself.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(EVENT_WAIT_MAX, self.child.wait())
            .await
            .expect("pi did not exit")
            .unwrap()
            .code()
    }
}

/// The types of the events, in order, without what repeats in any number.
pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|kind| *kind != "message_update")
        .collect()
}

/// The deltas of one kind (`text_delta`, `thinking_delta`, …).
pub(crate) fn deltas<'a>(events: &'a [Value], kind: &str) -> Vec<&'a str> {
    let inner = events.iter().map(|event| &event["assistantMessageEvent"]);
    inner.filter(|inner| inner["type"] == kind).filter_map(|inner| inner["delta"].as_str()).collect()
}

/// All events of one type.
pub(crate) fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// The finished messages of the assistant, as stop reason and text.
pub(crate) fn answers(events: &[Value]) -> Vec<(String, String)> {
    let messages =
        events.iter().filter(|event| event["type"] == "message_end").map(|event| &event["message"]);
    let assistant = messages.filter(|message| message["role"] == "assistant");
    assistant
        .map(|message| {
            let texts =
                message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str());
            (message["stopReason"].as_str().unwrap().to_owned(), texts.collect())
        })
        .collect()
}
