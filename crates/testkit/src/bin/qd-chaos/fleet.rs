//! The processes under test: one hub (with a runner of its own inside), one runner behind a proxy, real agents.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use qd_link::client::{FrameQueue, MuxClient};
use qd_testkit::llm::LlmServer;
use qd_testkit::process::with_marker;
use qd_testkit::qd::{Sandbox, end, start};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::Mutex;

use crate::proxy::Proxy;

/// The name of the runner behind the proxy; the other one is `local`.
pub(crate) const REMOTE: &str = "remote";

pub(crate) struct Fleet {
    pub(crate) hub_world: Sandbox,
    pub(crate) runner_world: Sandbox,
    pub(crate) proxy: Proxy,
    address: SocketAddr,
    token: String,
    hub: Mutex<Option<Child>>,
    runner: Mutex<Option<Child>>,
    _llm: LlmServer,
}

impl Fleet {
    pub(crate) async fn start(binary: &Path) -> Fleet {
        let llm = LlmServer::start().await.unwrap();
        let binary = binary.display().to_string();
        let (mut hub_world, mut runner_world) =
            (Sandbox::with_pi(&binary, &llm), Sandbox::with_pi(&binary, &llm));
        for sandbox in [&mut hub_world, &mut runner_world] {
            let runtime = sandbox.path("run");
            std::fs::create_dir_all(&runtime).unwrap();
            sandbox.set("XDG_RUNTIME_DIR", runtime);
        }
        // The hub keeps its address through every restart.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (child, ready) = spawn_hub(&hub_world, address).await;
        let proxy = Proxy::start(address).await;
        let token = ready["token"].as_str().unwrap().to_owned();
        let invite = hub_world.run(&["runner", "invite", "--json"]).await;
        let invite: Value = serde_json::from_slice(&invite.stdout).expect("an invitation");
        let url = format!("http://{}", proxy.address());
        let code = invite["code"].as_str().unwrap();
        let join = ["runner", "join", &url, "--code", code, "--name", REMOTE, "--no-start"];
        let joined = runner_world.run(&join).await;
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        let runner = spawn_runner(&runner_world).await;
        let (hub, runner) = (Mutex::new(Some(child)), Mutex::new(Some(runner)));
        Fleet { hub_world, runner_world, proxy, address, token, hub, runner, _llm: llm }
    }

    /// A connection, if the hub answers now.
    pub(crate) async fn connect(&self) -> Option<(MuxClient, FrameQueue)> {
        MuxClient::connect(&format!("http://{}", self.address), &self.token).await.ok()
    }

    /// Creates a session on one of the runners.
    pub(crate) async fn create(&self, session: &str, harness: &str, runner: &str) {
        let cwd = if runner == REMOTE { self.runner_world.work() } else { self.hub_world.work() };
        let create = json!({"cmd": "session.create", "session_id": session, "runner_id": runner,
            "wait": true, "config": {"harness": harness, "cwd": cwd}});
        let (client, _frames) = self.connect().await.expect("the hub runs");
        let answer = client.call_value(create).await.expect("an answer");
        assert!(answer.success, "{answer:?}");
    }

    pub(crate) async fn kill_hub(&self) {
        kill(&self.hub).await;
    }

    pub(crate) async fn kill_runner(&self) {
        kill(&self.runner).await;
    }

    /// Kills one agent process; false if there is none now.
    pub(crate) fn kill_agent(&self, random: u64) -> bool {
        let agents = self.agents();
        let Some(index) = random.checked_rem(agents.len() as u64) else { return false };
        qd_testkit::process::kill9(agents[index as usize]);
        true
    }

    pub(crate) async fn start_hub(&self) {
        let mut hub = self.hub.lock().await;
        if hub.is_none() {
            *hub = Some(spawn_hub(&self.hub_world, self.address).await.0);
        }
    }

    pub(crate) async fn start_runner(&self) {
        let mut runner = self.runner.lock().await;
        if runner.is_none() {
            *runner = Some(spawn_runner(&self.runner_world).await);
        }
    }

    /// Stops everything cleanly and says which processes are left over.
    pub(crate) async fn stop(&self) -> Vec<String> {
        let mut leftovers = Vec::new();
        for (name, child) in [("runner", &self.runner), ("hub", &self.hub)] {
            if let Some(mut child) = child.lock().await.take() {
                match end(&mut child).await {
                    Some(status) if status.success() => {}
                    ended => leftovers.push(format!("the {name} did not stop cleanly: {ended:?}")),
                }
            }
        }
        // The guards take their last breath after their runner.
        for _ in 0..100 {
            if self.agents().is_empty() {
                return leftovers;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        leftovers.extend(self.agents().iter().map(|pid| describe(*pid)));
        leftovers
    }

    /// All processes that work in the directories of this fleet, except hub and runner themselves.
    fn agents(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for sandbox in [&self.hub_world, &self.runner_world] {
            found.extend(with_marker(&sandbox.pi_dir().display().to_string()));
        }
        found
    }
}

fn describe(pid: i32) -> String {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("left over: {pid} {}", String::from_utf8_lossy(&command).replace('\0', " "))
}

async fn spawn_hub(sandbox: &Sandbox, address: SocketAddr) -> (Child, Value) {
    let (child, ready, _) = start(sandbox, &["up", "--ready-json", "--listen", &address.to_string()]).await;
    (child, ready)
}

async fn spawn_runner(sandbox: &Sandbox) -> Child {
    start(sandbox, &["runner", "start", "--ready-json"]).await.0
}

async fn kill(child: &Mutex<Option<Child>>) {
    if let Some(mut child) = child.lock().await.take() {
        child.kill().await.unwrap();
    }
}

/// The whole conversation of a session, page by page.
pub(crate) async fn messages(client: &MuxClient, session: &str) -> Option<Vec<Value>> {
    let mut messages: Vec<Value> = Vec::new();
    let mut before = None;
    loop {
        let page = json!({"cmd": "get_messages", "session_id": session, "limit": 200, "before": before});
        let page = serde_json::to_value(client.call_value(page).await.ok()?).ok()?;
        let mut older = page["data"]["messages"].as_array()?.clone();
        older.append(&mut messages);
        messages = older;
        before = page["data"]["before"].as_u64();
        if before.is_none() {
            return Some(messages);
        }
    }
}
