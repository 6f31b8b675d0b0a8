//! A runner with the demo agent, and a hub that keeps what it gets and corrects nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use qd_link::memory::{LinkEnd, LinkReceiver, LinkSender, pair};
use qd_link::runner::{ConnectFailure, ConnectFuture, HubConnector};
use qd_runner::driver::{HarnessSettings, Harnesses, TABLE};
use qd_runner::process::GuardCommand;
use qd_runner::{Runner, RunnerConfig, ServiceConfig, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{WAIT_MAX, merged, usual_role};

pub(crate) fn config(directory: &Path) -> RunnerConfig {
    let guard = GuardCommand { program: PathBuf::from("/bin/false"), args: Vec::new() };
    let services = ServiceConfig { workspace_roots: vec![directory.to_owned()], ..ServiceConfig::default() };
    RunnerConfig {
        services,
        harnesses: Harnesses::new(TABLE, |harness| HarnessSettings {
            command: vec![harness.name().into()],
            user_dir: directory.join(harness.name()),
        }),
        default_cwd: Some(directory.to_owned()),
        local_socket: Some(directory.join("r.sock")),
        ..RunnerConfig::new("r1", directory.to_owned(), guard)
    }
}

/// A runner, its disk and the way to stop it.
pub(crate) struct TestRunner {
    pub(crate) runner: Runner,
    pub(crate) store: RunnerStore,
    pub(crate) stop: CancellationToken,
    pub(crate) config: RunnerConfig,
    /// Of a runner that lives in a directory of its own.
    directory: Option<TempDir>,
}

impl TestRunner {
    pub(crate) async fn start(config: RunnerConfig, uplink: Uplink) -> TestRunner {
        let store = RunnerStore::open(&config.data_dir.join("runner.db"), StoreOptions::default()).unwrap();
        TestRunner::start_with(config, store, uplink).await
    }

    pub(crate) async fn start_with(config: RunnerConfig, store: RunnerStore, uplink: Uplink) -> TestRunner {
        let stop = CancellationToken::new();
        let runner = Runner::start(config.clone(), store.clone(), uplink, stop.clone()).await.unwrap();
        TestRunner { runner, store, stop, config, directory: None }
    }

    /// In a directory of its own.
    async fn start_apart(change: impl FnOnce(&mut RunnerConfig), uplink: Uplink) -> TestRunner {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        change(&mut config);
        TestRunner { directory: Some(directory), ..TestRunner::start(config, uplink).await }
    }

    pub(crate) async fn without_hub(change: impl FnOnce(&mut RunnerConfig)) -> TestRunner {
        TestRunner::start_apart(change, Uplink::None).await
    }

    /// With a hub that has nothing of it yet.
    pub(crate) async fn with_hub(
        change: impl FnOnce(&mut RunnerConfig),
    ) -> (TestRunner, FakeHubAddress, HubEnd) {
        let address = FakeHubAddress::unreachable();
        address.open();
        let runner = TestRunner::start_apart(change, address.uplink()).await;
        let hub = address.accept(&BTreeMap::new()).await;
        (runner, address, hub)
    }

    /// Stops it and starts it again on the same disk.
    pub(crate) async fn restart(mut self, uplink: Uplink) -> TestRunner {
        let (config, directory) = (self.config.clone(), self.directory.take());
        self.end().await;
        TestRunner { directory, ..TestRunner::start(config, uplink).await }
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(WAIT_MAX, self.runner.join()).await.unwrap();
    }

    /// A client at its own socket.
    pub(crate) async fn client(&self) -> LocalClient {
        LocalClient::connect(self.config.local_socket.as_ref().unwrap()).await
    }

    /// The last record of the session `s1`.
    pub(crate) async fn last_seq(&self) -> u64 {
        self.store.session("s1").await.unwrap().unwrap().next_seq - 1
    }
}

/// Where the runner finds its hub, when there is one.
#[derive(Clone)]
pub(crate) struct FakeHubAddress {
    is_open: Arc<AtomicBool>,
    callers: mpsc::Sender<LinkEnd>,
    links: Arc<tokio::sync::Mutex<mpsc::Receiver<LinkEnd>>>,
    pub(crate) attempts: Arc<AtomicUsize>,
}

impl FakeHubAddress {
    /// An address at which nobody answers yet.
    pub(crate) fn unreachable() -> FakeHubAddress {
        let (callers, links) = mpsc::channel(8);
        let links = Arc::new(tokio::sync::Mutex::new(links));
        FakeHubAddress { is_open: Arc::default(), callers, links, attempts: Arc::default() }
    }

    /// From now on there is a hub.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    pub(crate) fn uplink(&self) -> Uplink {
        Uplink::Dial(Arc::new(self.clone()))
    }

    /// Takes the next link and welcomes the runner with what the hub has.
    pub(crate) async fn accept(&self, committed: &BTreeMap<String, u64>) -> HubEnd {
        let mut links = self.links.lock().await;
        let link = tokio::time::timeout(WAIT_MAX, links.recv()).await.unwrap().unwrap();
        HubEnd::welcome(link, committed).await
    }
}

impl HubConnector for FakeHubAddress {
    fn connect(&self) -> ConnectFuture {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let address = self.clone();
        Box::pin(async move {
            let failure = ConnectFailure { reason: "nobody is there".into(), is_refusal: false, code: None };
            if !address.is_open.load(Ordering::SeqCst) {
                return Err(failure);
            }
            let (hub_end, runner_end) = pair();
            address.callers.send(hub_end).await.map_err(|_| failure)?;
            Ok(runner_end)
        })
    }
}

/// The hub's side of one link.
pub(crate) struct HubEnd {
    pub(crate) sender: LinkSender,
    pub(crate) receiver: LinkReceiver,
    waiting: Vec<Value>,
    /// The last record of each session that was read.
    pub(crate) read: BTreeMap<String, u64>,
    pub(crate) hello: Value,
    pub(crate) events: Vec<Value>,
}

impl HubEnd {
    /// Welcomes the runner at the other end of a link with what the hub has.
    pub(crate) async fn welcome(link: LinkEnd, committed: &BTreeMap<String, u64>) -> HubEnd {
        let LinkEnd { sender, receiver } = link;
        let read = committed.clone();
        let mut hub =
            HubEnd { sender, receiver, waiting: Vec::new(), read, hello: Value::Null, events: Vec::new() };
        hub.hello = hub.next().await.unwrap();
        assert_eq!(hub.hello["type"], "runner.hello");
        let sessions: Vec<Value> = committed
            .iter()
            .map(|(session_id, seq)| json!({ "session_id": session_id, "last_seq": seq }))
            .collect();
        hub.say(json!({ "type": "runner.welcome", "runner_id": "r1", "sessions": sessions })).await;
        hub
    }

    pub(crate) async fn say(&self, line: Value) {
        assert!(self.sender.send(Bytes::from(format!("{line}\n"))).await.is_ok(), "the runner is gone");
    }

    pub(crate) async fn ack(&self, session_id: &str) {
        let seq = self.read.get(session_id).copied().unwrap_or(0);
        self.say(json!({ "type": "ack", "session_id": session_id, "seq": seq })).await;
    }

    pub(crate) async fn command(&self, id: &str, session_id: &str, cmd: &str, parameters: Value) {
        let role = usual_role(cmd);
        let line = json!({ "type": "command", "id": id, "session_id": session_id, "user_id": "u", "user_role": role,
            "cmd": cmd });
        self.say(merged(line, parameters)).await;
    }

    /// The next line; `None` when the runner has ended the link. Records must come in order and once.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let block =
                tokio::time::timeout(WAIT_MAX, self.receiver.recv()).await.expect("the runner is silent")?;
            let text = std::str::from_utf8(&block).unwrap();
            assert!(text.ends_with('\n'), "half a line");
            self.waiting = text.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        let line = self.waiting.pop().unwrap();
        if line["type"] == "event"
            && line["event"] != "session.resync"
            && let Some(seq) = line["seq"].as_u64()
        {
            let session_id = line["session_id"].as_str().unwrap().to_owned();
            let read = self.read.entry(session_id).or_default();
            assert_eq!(seq, *read + 1, "{line}");
            *read = seq;
        }
        Some(line)
    }

    /// Reads until a line is what the test looks for; keeps the events before it.
    pub(crate) async fn find(&mut self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        let finding = async {
            loop {
                let line = self.next().await.unwrap_or_else(|| panic!("the link ended before {what}"));
                if is_it(&line) {
                    return line;
                }
                self.events.push(line);
            }
        };
        tokio::time::timeout(WAIT_MAX, finding).await.unwrap_or_else(|_| panic!("never came: {what}"))
    }

    pub(crate) async fn response(&mut self, id: &str) -> Value {
        self.find(id, |line| line["type"] == "response" && line["id"] == id).await
    }

    /// Reads until the session has this many records here.
    pub(crate) async fn read_until(&mut self, session_id: &str, seq: u64) {
        while self.read.get(session_id).copied().unwrap_or(0) < seq {
            self.next().await.expect("the link ended before the last record");
        }
    }

    /// Prompts the session `s1` and reads to the end of the turn.
    pub(crate) async fn turn(&mut self, message: &str) {
        self.command("p", "s1", "prompt", json!({ "message": message })).await;
        self.find("the end of the turn", |line| line["event"] == "agent.idle" && line["reason"] == "stop")
            .await;
    }

    pub(crate) async fn create(&mut self, session_id: &str) {
        self.command("create", session_id, "session.create", json!({ "config": { "harness": "demo" } }))
            .await;
        let response = self.response("create").await;
        assert_eq!(response["success"], true, "{response}");
    }
}

/// A client at the runner's own socket.
pub(crate) struct LocalClient {
    read: tokio::io::Lines<tokio::io::BufReader<tokio::net::unix::OwnedReadHalf>>,
    write: tokio::net::unix::OwnedWriteHalf,
    pub(crate) events: Vec<Value>,
    next_id: u64,
}

impl LocalClient {
    pub(crate) async fn connect(path: &Path) -> LocalClient {
        use tokio::io::AsyncBufReadExt as _;
        let (read, write) = tokio::net::UnixStream::connect(path).await.unwrap().into_split();
        let read = tokio::io::BufReader::new(read).lines();
        LocalClient { read, write, events: Vec::new(), next_id: 0 }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        use tokio::io::AsyncWriteExt as _;
        self.write.write_all(line.as_bytes()).await.unwrap();
        self.write.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(WAIT_MAX, self.read.next_line()).await.expect("the runner is silent");
        // A client that is cut off may see half a line at the end.
        line.ok().flatten().and_then(|line| serde_json::from_str(&line).ok())
    }

    pub(crate) async fn find(&mut self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let line = self.next().await.unwrap_or_else(|| panic!("the connection ended before {what}"));
            if is_it(&line) {
                return line;
            }
            self.events.push(line);
        }
    }

    /// Sends a command and waits for its answer; events before it are kept.
    pub(crate) async fn call(&mut self, session_id: &str, cmd: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = format!("c{}", self.next_id);
        let line = json!({ "type": "command", "id": id, "session_id": session_id, "cmd": cmd });
        self.send(&merged(line, parameters).to_string()).await;
        self.find(cmd, |line| line["type"] == "response" && line["id"] == *id).await
    }

    pub(crate) async fn create(&mut self, session_id: &str) {
        let config = json!({ "config": { "harness": "demo" } });
        let response = self.call(session_id, "session.create", config).await;
        assert_eq!(response["success"], true, "{response}");
    }

    /// Prompts and waits until the agent has worked and is idle again.
    pub(crate) async fn prompt(&mut self, session_id: &str, message: &str) {
        self.events.clear();
        let response = self.call(session_id, "prompt", json!({ "message": message })).await;
        assert_eq!(response["success"], true, "{response}");
        for event in ["agent.working", "agent.idle"] {
            let is_it = |line: &Value| line["event"] == event && line["session_id"] == session_id;
            match self.events.iter().position(is_it) {
                Some(place) => drop(self.events.drain(..=place)),
                None => {
                    self.events.clear();
                    self.find(event, is_it).await;
                }
            }
        }
    }
}
