//! Our runner as a host of a server that others wrote for the run document: a plain WebSocket server with the habits
//! of the original.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::hub_link::{TestRunner, config};
use crate::support::{WAIT_MAX, assert_has, guard_with_home, until};
use futures_util::{SinkExt, StreamExt};
use qd_link::host::HostDialer;
use qd_link::url::ServerUrl;
use qd_runner::{RunServer, RunnerConfig, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

/// The server: what it has stored, and the connection of the host.
struct FakeRunServer {
    listener: TcpListener,
    socket: Option<WebSocketStream<TcpStream>>,
    /// What has a number, by run and number; the second value counts how often it came.
    stored: BTreeMap<(String, u64), (Value, usize)>,
    /// Whether stored events are acked.
    acks: bool,
    next_id: u64,
}

impl FakeRunServer {
    async fn start() -> FakeRunServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        FakeRunServer { listener, socket: None, stored: BTreeMap::new(), acks: true, next_id: 0 }
    }

    fn uplink(&self, store: &RunnerStore) -> Uplink {
        let url = format!("http://{}", self.listener.local_addr().unwrap());
        let dialer = HostDialer::new(ServerUrl::parse(&url).unwrap(), "r1", "the host's token&");
        Uplink::Dial(Arc::new(RunServer::new(dialer, store.clone())))
    }

    /// Waits for the host's next connection.
    async fn accept(&mut self) {
        self.socket = None;
        let (stream, _) = tokio::time::timeout(WAIT_MAX, self.listener.accept()).await.unwrap().unwrap();
        #[allow(clippy::result_large_err, reason = "the library's own type")]
        let check = |request: &Request, response: Response| {
            let query = "host_id=r1&host_token=the%20host%27s%20token%26";
            assert_eq!((request.uri().path(), request.uri().query()), ("/ws/host", Some(query)));
            assert!(request.headers().get("authorization").is_none());
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, check).await.unwrap();
        self.socket = Some(socket);
    }

    async fn send(&mut self, message: &Value) {
        self.socket.as_mut().unwrap().send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message; events are stored and acked by their own number, as the original does.
    async fn next(&mut self) -> Value {
        loop {
            let socket = self.socket.as_mut().unwrap();
            let message = tokio::time::timeout(WAIT_MAX, socket.next()).await.expect("the host is silent");
            let Message::Text(text) = message.expect("a message").expect("no error") else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            assert!(message["type"].is_string() && message["ts"].is_string() && !message["data"].is_null());
            let (Some(run_id), Some(seq)) = (message["run_id"].as_str(), message["seq"].as_u64()) else {
                return message;
            };
            assert_eq!(message["host_id"], "r1");
            let place = self.stored.entry((run_id.to_owned(), seq)).or_insert((message.clone(), 0));
            place.1 += 1;
            assert_eq!(place.0, message, "a number is used once");
            if self.acks {
                let data = json!({"run_id": run_id, "last_seq": seq});
                let ack =
                    json!({"type": "run.ack", "ts": "2025-01-01T00:00:00Z", "run_id": run_id, "data": data});
                self.send(&ack).await;
            }
            return message;
        }
    }

    async fn find(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let message = self.next().await;
                if is_it(&message) {
                    return message;
                }
            }
        };
        tokio::time::timeout(WAIT_MAX, waiting).await.unwrap_or_else(|_| panic!("in vain: {what}"))
    }

    async fn event(&mut self, kind: &str) -> Value {
        self.find(kind, |message| message["type"] == kind).await
    }

    /// Asks and waits for the answer.
    async fn call(&mut self, kind: &str, run_id: Option<&str>, data: Value) -> Value {
        let request_id = self.ask(kind, run_id, data).await;
        self.answer(&request_id).await
    }

    async fn ask(&mut self, kind: &str, run_id: Option<&str>, mut data: Value) -> String {
        self.next_id += 1;
        let request_id = format!("00000000-0000-4000-8000-{:012}", self.next_id);
        data["request_id"] = json!(request_id);
        self.send(&json!({"type": kind, "ts": "2025-01-01T00:00:00Z", "host_id": "r1", "run_id": run_id, "data": data})).await;
        request_id
    }

    async fn answer(&mut self, request_id: &str) -> Value {
        let is_it = |message: &Value| {
            message["type"] == "rpc.response" && message["data"]["request_id"] == *request_id
        };
        self.find("an answer", is_it).await
    }

    /// Starts a run of a shell script; gives its name.
    async fn run(&mut self, cmd: &str) -> String {
        let started =
            self.call("rpc.run.start", None, json!({"host_id": "r1", "tool": "sh", "cmd": cmd})).await;
        assert_eq!(started["data"]["ok"], true, "{started}");
        assert_eq!(started["run_id"], started["data"]["result"]["run_id"]);
        started["run_id"].as_str().unwrap().to_owned()
    }

    /// The types of a run's events by their numbers, which have no holes.
    fn story(&self, run_id: &str) -> Vec<String> {
        let own = self.stored.iter().filter(|((run, _), _)| run == run_id);
        own.enumerate()
            .map(|(place, ((_, seq), (message, _)))| {
                assert_eq!(*seq, place as u64 + 1, "a hole in the numbers");
                message["type"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    fn text(&self, run_id: &str) -> String {
        let own = self.stored.iter().filter(|((run, _), _)| run == run_id);
        let texts = own.filter(|(_, (message, _))| message["type"] == "run.output");
        texts.map(|(_, (message, _))| message["data"]["text"].as_str().unwrap()).collect()
    }
}

async fn start(directory: &std::path::Path, server: &FakeRunServer) -> TestRunner {
    // Apart from where the runs work: no service shows the runner's own data.
    let data_dir = directory.join("data");
    std::fs::create_dir_all(&data_dir).unwrap();
    let store = RunnerStore::open(&data_dir.join("runner.db"), StoreOptions::default()).unwrap();
    let config = RunnerConfig { guard: guard_with_home(directory), data_dir, ..config(directory) };
    let uplink = server.uplink(&store);
    TestRunner::start_with(config, store, uplink).await
}

/// A server and a runner that has connected to it.
async fn connected() -> (tempfile::TempDir, FakeRunServer, TestRunner) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = FakeRunServer::start().await;
    let runner = start(directory.path(), &server).await;
    server.accept().await;
    (directory, server, runner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_server_starts_types_into_and_stops_runs() {
    let (_directory, mut server, runner) = connected().await;
    server.event("host.heartbeat").await;
    let run_id = server.run("echo ready; read line; echo \"got $line\"; sleep 600").await;
    while !server.text(&run_id).contains("ready") {
        server.event("run.output").await;
    }
    let input = json!({"input_id": "i1", "text": "hello\n", "actor": "web"});
    for _ in 0..3 {
        server.send(&json!({"type": "run.send_input", "ts": "x", "run_id": run_id, "data": input})).await;
    }
    assert_eq!(server.event("run.input").await["data"]["input_id"], "i1");
    while !server.text(&run_id).contains("got hello") {
        server.event("run.output").await;
    }
    let listed = server.call("rpc.runs.list", Some(&run_id), json!({})).await;
    assert_eq!(listed["data"]["result"]["runs"][0]["run_id"], *run_id, "{listed}");
    let stopped = server.call("rpc.run.stop", Some(&run_id), json!({"signal": "kill"})).await;
    assert_eq!(stopped["data"]["result"]["signal"], "kill", "{stopped}");
    server.event("run.exited").await;
    let story = server.story(&run_id);
    assert_eq!(story.last().unwrap(), "run.exited", "{story:?}");
    assert_eq!(story.iter().filter(|kind| *kind == "run.input").count(), 1);
    assert_eq!(server.text(&run_id).matches("got hello").count(), 1);
    until("acked records leave the spool", || async { runner.store.spool_bytes() == 0 }).await;
    // It is no owner of this machine.
    let elsewhere = json!({"host_id": "r1", "tool": "sh", "cmd": "true", "cwd": "/"});
    let elsewhere = server.call("rpc.run.start", None, elsewhere).await;
    assert_eq!(elsewhere["data"]["ok"], false, "{elsewhere}");
    assert!(elsewhere["data"]["error"].as_str().unwrap().contains("workspace_roots"), "{elsewhere}");
    let unknown = server.call("rpc.fs.read", Some("gone"), json!({"path": "x"})).await;
    assert_has(&unknown["data"], json!({ "ok": false, "error": "unknown run_id" }));
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_server_reads_files_and_is_asked_before_it_writes() {
    let (directory, mut server, runner) = connected().await;
    std::fs::write(directory.path().join("a.txt"), "content").unwrap();
    let run_id = server.run("sleep 600").await;
    let read = server.call("rpc.fs.read", Some(&run_id), json!({"path": "a.txt"})).await;
    assert_eq!(read["data"]["result"]["content"], "content", "{read}");
    let info = server.call("rpc.host.info", None, json!({"host_id": "r1"})).await;
    assert_eq!(info["data"]["result"]["host_id"], "r1", "{info}");
    let other = server.call("rpc.host.info", None, json!({"host_id": "other"})).await;
    assert_eq!(other["data"]["error"], "unknown host_id");
    let write = server.ask("rpc.fs.write", Some(&run_id), json!({"path": "b.txt", "content": "new"})).await;
    let asked = server.event("run.permission_requested").await;
    assert_eq!(asked["data"]["op_tool"], "rpc.fs.write");
    assert_eq!(asked["data"]["op_args"]["path"], "b.txt");
    assert!(!directory.path().join("b.txt").exists());
    let decision = json!({"request_id": asked["data"]["request_id"], "actor": "web"});
    let approval = json!({"type": "run.permission.approve", "ts": "x", "run_id": run_id, "data": decision});
    server.send(&approval).await;
    assert_eq!(server.answer(&write).await["data"]["ok"], true);
    assert_eq!(std::fs::read_to_string(directory.path().join("b.txt")).unwrap(), "new");
    runner.end().await;
}

/// The connection is cut after each message of a short run: nothing is lost, and nothing has two meanings.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_at_each_message_loses_nothing() {
    let (_directory, mut server, runner) = connected().await;
    let run_id = server.run("for n in 1 2 3 4 5; do echo line $n; sleep 0.05; done").await;
    for cut in 0.. {
        // Every second time the acks of what came are lost.
        server.acks = cut % 2 == 0;
        let message = server.find("an event", |message| message["seq"].is_u64()).await;
        if message["type"] == "run.exited" && server.acks {
            break;
        }
        server.accept().await;
    }
    let text = server.text(&run_id);
    assert_eq!(text, "line 1\r\nline 2\r\nline 3\r\nline 4\r\nline 5\r\n");
    assert_eq!(server.story(&run_id).last().unwrap(), "run.exited");
    until("acked records leave the spool", || async { runner.store.spool_bytes() == 0 }).await;
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_while_the_server_is_away_and_is_delivered_once_after() {
    let (_directory, mut server, runner) = connected().await;
    let run_id = server.run("seq 1 20000; sleep 0.2; seq 20001 40000").await;
    server.event("run.output").await;
    server.socket = None;
    let has_ended = || async {
        let tail = runner.store.tail(&run_id, 1).await.unwrap();
        tail.iter().any(|(_, line)| String::from_utf8_lossy(line).contains("run.exited"))
    };
    until("the run ends without anybody watching", has_ended).await;
    server.accept().await;
    server.event("run.exited").await;
    let expected: String = (1..=40_000).map(|number| format!("{number}\r\n")).collect();
    assert!(server.text(&run_id) == expected, "the output is not the same");
    let story = server.story(&run_id);
    assert_eq!(story.last().unwrap(), "run.exited");
    // What was acked before the cut does not come again; what was on its way then may.
    let repeated = server.stored.values().filter(|(_, count)| *count > 1).count();
    assert!(repeated < story.len(), "{repeated} of {}", story.len());
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hole_10_acks_make_nothing_come_again_and_a_runner_that_restarts_goes_on_after_the_last() {
    let (directory, mut server, runner) = connected().await;
    let run_id = server.run("seq 1 5000").await;
    server.event("run.exited").await;
    // Acks beyond what was sent, in the wrong order, and again.
    let last = server.stored.keys().last().unwrap().1;
    for seq in [last + 1000, 1, last, last] {
        let data = json!({"run_id": run_id, "last_seq": seq});
        server.send(&json!({"type": "run.ack", "ts": "x", "data": data})).await;
    }
    until("acked records leave the spool", || async { runner.store.spool_bytes() == 0 }).await;
    assert!(server.stored.values().all(|(_, count)| *count == 1), "an event came twice");
    runner.end().await;
    let runner = start(directory.path(), &server).await;
    server.accept().await;
    let second = server.run("echo again").await;
    server.event("run.exited").await;
    assert!(server.text(&second).contains("again"));
    assert!(server.stored.values().all(|(_, count)| *count == 1), "an event came twice");
    runner.end().await;
}
