//! A running `qd up`, as a person would start it, in a sandbox of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use qd_link::mutex::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::llm::LlmServer;
use crate::mux::Mux;
use crate::pi;
use crate::pi_server::PiClient;
use crate::run_app::RunApp;

/// How long a start may take on a loaded machine.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a clean stop may take; this one is a promise to users.
const STOP_MAX: Duration = Duration::from_secs(10);
/// What is kept of a child's stderr.
const STDERR_BYTES_MAX: usize = 1 << 20;

/// Everything outside the process: directories and environment. Survives restarts, ends with the last `Qd`.
pub struct Sandbox {
    root: TempDir,
    binary: PathBuf,
    environment: Vec<(OsString, OsString)>,
    arguments: Vec<OsString>,
    listen: String,
}

/// A running server. Killed when dropped.
pub struct Qd {
    sandbox: Sandbox,
    child: Child,
    url: String,
    token: String,
    /// Where the pi-server face listens on a port of its own, if it does.
    pi_server_url: Option<String>,
    stderr: Arc<Mutex<String>>,
}

impl Sandbox {
    /// A clean home without any agent. `binary` is `env!("CARGO_BIN_EXE_qd")`.
    pub fn new(binary: &str) -> Sandbox {
        let root = TempDir::new().unwrap();
        let mut sandbox = Sandbox {
            root,
            binary: binary.into(),
            environment: Vec::new(),
            arguments: Vec::new(),
            listen: "127.0.0.1:0".to_owned(),
        };
        for directory in [
            sandbox.home(),
            sandbox.pi_dir(),
            sandbox.work(),
            sandbox.path("tmp"),
            sandbox.data_dir().join("cache"),
        ] {
            std::fs::create_dir_all(directory).unwrap();
        }
        // All tests share one cache of compiled scripts, which is worth 100 ms of every start of Node.
        std::fs::create_dir_all(pi::compile_cache()).unwrap();
        std::os::unix::fs::symlink(pi::compile_cache(), sandbox.data_dir().join("cache/node")).unwrap();
        sandbox.set("HOME", sandbox.home());
        sandbox.set("PI_CODING_AGENT_DIR", sandbox.pi_dir());
        sandbox.set("TMPDIR", sandbox.path("tmp"));
        sandbox.set("NODE_COMPILE_CACHE", pi::compile_cache());
        sandbox.set("PATH", std::env::var_os("PATH").unwrap());
        sandbox.set("QD_PI_COMMAND", sandbox.path("no-such-pi"));
        sandbox
    }

    /// The same with the real pi, whose models are all the scripted one.
    pub fn with_pi(binary: &str, llm: &LlmServer) -> Sandbox {
        let mut sandbox = Sandbox::new(binary);
        pi::pi_home(&sandbox.pi_dir(), llm).unwrap();
        sandbox.set("QD_PI_COMMAND", pi::pi_command().unwrap().join(" "));
        sandbox
    }

    /// Sets a variable of the server's environment; the last one counts.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Sandbox {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Adds an argument to `qd up`.
    pub fn argument(&mut self, argument: impl AsRef<OsStr>) -> &mut Sandbox {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Where `qd up` listens; any free port where nothing is said.
    pub fn listen(&mut self, address: &str) -> &mut Sandbox {
        address.clone_into(&mut self.listen);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The user's own agent directory.
    pub fn pi_dir(&self) -> PathBuf {
        self.path("pi")
    }

    /// Where sessions work.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    /// `qd` with this sandbox's environment and data directory, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("QD_DATA_DIR", self.data_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs `qd` to its end.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let run = self.command(arguments).output();
        let output = tokio::time::timeout(START_MAX, run).await;
        output.unwrap_or_else(|_| panic!("`qd {}` does not end", arguments.join(" "))).unwrap()
    }

    /// Starts the server and waits until it says that it is ready.
    pub async fn up(self) -> Qd {
        let up = ["up", "--ready-json", "--listen", &self.listen];
        let (child, ready, stderr) = start(&self, &up).await;
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        let pi_server_url = ready["pi_server_url"].as_str().map(str::to_owned);
        Qd { url: text("url"), token: text("token"), pi_server_url, sandbox: self, child, stderr }
    }
}

impl Qd {
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("the server runs")).unwrap()
    }

    /// What the server has written to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().clone()
    }

    /// A new connection; its first frame has been read.
    pub async fn connect(&self) -> Mux {
        Mux::connect(&self.url, &self.token).await
    }

    /// One HTTP request with the owner's token.
    pub async fn http(&self, method: &str, path: &str, body: Option<&Value>) -> crate::http::Answer {
        self.http_as(Some(&self.token), method, path, body).await
    }

    /// The same with another token, or none.
    pub async fn http_as(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> crate::http::Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            bearer.as_deref().map(|bearer| ("Authorization", bearer)).into_iter().collect();
        let body = body.map(Value::to_string).unwrap_or_default();
        crate::http::request(&self.url, method, path, &headers, body.as_bytes()).await
    }

    /// The name of the runner inside this server.
    pub async fn runner_id(&self) -> String {
        let data = self.connect().await.ok(serde_json::json!({"cmd": "get_runners"})).await;
        data["runners"][0]["runner_id"].as_str().unwrap().to_owned()
    }

    /// An app of the run protocol.
    pub async fn run_app(&self) -> RunApp {
        RunApp::connect(&self.url, &self.token).await
    }

    /// A client of the pi-server face, on its own port where it has one.
    pub async fn pi_client(&self) -> PiClient {
        self.pi_client_as(&self.token).await
    }

    /// The same with another token.
    pub async fn pi_client_as(&self, token: &str) -> PiClient {
        let url = self.pi_server_url.clone().unwrap_or_else(|| format!("{}/ws/pi", self.url));
        PiClient::connect(&url, token).await
    }

    pub fn pi_server_url(&self) -> Option<&str> {
        self.pi_server_url.as_deref()
    }

    /// Runs `qd` as a client of this server.
    pub async fn cli(&self, arguments: &[&str]) -> Output {
        self.sandbox.run(arguments).await
    }

    /// SIGKILL, as the kernel does it when memory is short.
    pub async fn kill9(mut self) -> Sandbox {
        self.child.kill().await.unwrap();
        self.sandbox
    }

    /// SIGKILL to the server and to everything it started, at once: no agent has the time to write what it was told.
    pub async fn kill9_with_agents(mut self) -> Sandbox {
        let below = descendants(self.pid());
        self.child.start_kill().unwrap();
        for pid in below.into_iter().filter_map(Pid::from_raw) {
            // One that has ended meanwhile is as good as killed.
            let _ = kill_process(pid, Signal::KILL);
        }
        self.child.wait().await.unwrap();
        self.sandbox
    }

    /// SIGKILL; the next start is at the same address, where runners and clients look for it.
    pub async fn kill9_at_address(self) -> Sandbox {
        let (_, address) = self.url.split_once("://").unwrap();
        let address = address.to_owned();
        let mut sandbox = self.kill9().await;
        sandbox.listen(&address);
        sandbox
    }

    /// SIGKILL, then a new start on the same data.
    pub async fn restart(self) -> Qd {
        self.kill9().await.up().await
    }

    /// SIGTERM: the server must end by itself, in time and with success.
    pub async fn terminate(mut self) -> Sandbox {
        let status = end(&mut self.child).await;
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", self.stderr());
        self.sandbox
    }

    /// Whether the server still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

/// Starts a server command and reads its ready line.
pub async fn start(sandbox: &Sandbox, arguments: &[&str]) -> (Child, Value, Arc<Mutex<String>>) {
    let mut child = sandbox.command(arguments).args(&sandbox.arguments).spawn().unwrap();
    let stderr = Arc::new(Mutex::new(String::new()));
    tokio::spawn(collect(child.stderr.take().unwrap(), stderr.clone()));
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let read = tokio::time::timeout(START_MAX, stdout.read_line(&mut line)).await;
    let ready = read.ok().and_then(|_| serde_json::from_str(&line).ok());
    let Some(ready) = ready else {
        // Its last words may still be on their way.
        let status = tokio::time::timeout(Duration::from_secs(5), child.wait()).await;
        panic!("qd {} did not become ready ({status:?}): {line}\n{}", arguments[0], stderr.lock());
    };
    (child, ready, stderr)
}

/// SIGTERM to a child; how it ended, `None` when it did not end in time.
pub async fn end(child: &mut Child) -> Option<ExitStatus> {
    let pid = i32::try_from(child.id().expect("it runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    tokio::time::timeout(STOP_MAX, child.wait()).await.ok().map(Result::unwrap)
}

async fn collect(mut source: impl tokio::io::AsyncRead + Unpin, text: Arc<Mutex<String>>) {
    let mut buffer = [0u8; 4096];
    while let Ok(count) = source.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let mut text = text.lock();
        if text.len() < STDERR_BYTES_MAX {
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}

/// Reads every file below a directory, as path and content; for tests that nothing there has changed.
pub fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let content = std::fs::read(&path).unwrap_or_default();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}

/// Every process that this one has started, and those that they have.
fn descendants(pid: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process may end while we look.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // Behind the name, which may contain anything: state, then parent.
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        parents.extend(parent.map(|parent| (child, parent)));
    }
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|known| known.1 == parent).map(|known| known.0));
        at += 1;
    }
    found.split_off(1)
}
