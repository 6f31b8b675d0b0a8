//! The binary as a person uses it: a real server, the demo agent, the real command line.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const QD: &str = env!("CARGO_BIN_EXE_qd");
/// Polls of a condition, and the pause between two.
const POLLS_MAX: usize = 500;
const POLL_PAUSE: Duration = Duration::from_millis(20);

struct Server {
    child: Child,
    ready: Value,
    /// Kept open: a server whose stdout is closed could not say more.
    stdout: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(data_dir: &Path, listen: &str) -> Server {
        let mut child = command(data_dir)
            .args(["up", "--ready-json", "--listen", listen])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a ready line: '{line}'"));
        Server { child, ready, stdout }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops it with SIGTERM; what else it said on stdout.
    fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone in most tests; a failed one must not leave it behind.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn command(data_dir: &Path) -> Command {
    let mut command = Command::new(QD);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QD_")) {
        command.env_remove(name);
    }
    command
        .env("QD_DATA_DIR", data_dir)
        .env_remove("XDG_RUNTIME_DIR")
        .env("XDG_CONFIG_HOME", data_dir.join("no-config"))
        .env("TERM", "dumb");
    command
}

fn qd(data_dir: &Path, arguments: &[&str]) -> Output {
    command(data_dir).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn succeed(data_dir: &Path, arguments: &[&str]) -> String {
    let output = qd(data_dir, arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "qd {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fail(data_dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = qd(data_dir, arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "qd {arguments:?}: {complaint}");
    complaint
}

fn sessions(data_dir: &Path) -> Vec<Value> {
    serde_json::from_str(&succeed(data_dir, &["ls", "--json"])).unwrap()
}

#[track_caller]
fn eventually<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS_MAX {
        if let Some(value) = condition() {
            return value;
        }
        std::thread::sleep(POLL_PAUSE);
    }
    panic!("the condition did not come true in time");
}

fn data_dir() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    (directory, path)
}

#[test]
fn a_newcomer_sees_a_living_session() {
    let (_keep, data_dir) = data_dir();
    let server = Server::start(&data_dir, "127.0.0.1:0");
    assert_eq!(server.ready["pid"], server.child.id());
    let answer = succeed(&data_dir, &["run", "--harness", "demo", "hello"]);
    assert!(answer.contains("demo agent"), "{answer}");
    let tools = succeed(&data_dir, &["run", "--harness", "demo", "/tools"]);
    assert!(tools.contains("▸ bash") && tools.contains(" ok "), "{tools}");
    let quiet = succeed(&data_dir, &["run", "-q", "--harness", "demo", "/tools"]);
    assert!(!quiet.contains('▸'), "{quiet}");
    let failed = fail(&data_dir, &["run", "--harness", "demo", "/error"], 1);
    assert!(failed.contains("error:") && failed.contains("hint: show the conversation"), "{failed}");
    let events = succeed(&data_dir, &["run", "--json", "--harness", "demo", "/text"]);
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["reason"]), (&"agent.idle".into(), &"stop".into()));
    let newest = succeed(&data_dir, &["logs"]);
    assert!(newest.starts_with("> /text\n"), "{newest}");
    assert!(succeed(&data_dir, &["search", "hello"]).contains("[hello]"));
    assert_eq!(sessions(&data_dir).len(), 5);
    assert_eq!(server.stop(), "", "stdout carries the ready line only");
    assert!(!data_dir.join("endpoint.json").exists());
}

#[test]
fn questions_are_answered_from_another_terminal() {
    let (_keep, data_dir) = data_dir();
    let _server = Server::start(&data_dir, "127.0.0.1:0");
    let id = succeed(&data_dir, &["run", "--detach", "--harness", "demo", "/question"]);
    let id = id.trim();
    eventually(|| (sessions(&data_dir)[0]["pending_input_count"] == 1).then_some(()));
    let asked = fail(&data_dir, &["approve", id], 2);
    assert!(asked.contains("say which") && asked.contains("--value") && asked.contains("  2. "), "{asked}");
    let logs = succeed(&data_dir, &["logs", id]);
    assert!(logs.contains("  2. ") && logs.contains(&format!("qd approve {id} ")), "{logs}");
    let waiting = succeed(&data_dir, &["ls", "-w"]);
    assert!(waiting.contains("\n  ? "), "{waiting}");
    let approved = succeed(&data_dir, &["approve", &id[..id.len() - 2], "--value", "2"]);
    assert!(approved.starts_with("? ") && approved.contains("approved"), "{approved}");
    eventually(|| (sessions(&data_dir)[0]["state"] == "idle").then_some(()));
    assert!(fail(&data_dir, &["deny", id], 1).contains("no open question"));
    succeed(&data_dir, &["stop", id]);
    assert!(succeed(&data_dir, &["stop", id]).contains("already closed"));
    let closed = fail(&data_dir, &["send", id, "more"], 1);
    assert!(closed.contains(&format!("qd restart {id}")) && !closed.contains("session.restart"), "{closed}");
    succeed(&data_dir, &["restart", id]);
    succeed(&data_dir, &["send", id, "/text"]);
    eventually(|| (sessions(&data_dir)[0]["state"] == "idle").then_some(()));
    succeed(&data_dir, &["stop", id]);
    succeed(&data_dir, &["rm", id]);
    assert_eq!(sessions(&data_dir), Vec::<Value>::new());
    assert!(fail(&data_dir, &["logs"], 1).contains("no session yet"));
}

#[test]
fn a_working_agent_is_steered_and_aborted() {
    let (_keep, data_dir) = data_dir();
    let _server = Server::start(&data_dir, "127.0.0.1:0");
    let id = succeed(&data_dir, &["run", "-d", "--harness", "demo", "/long 100000"]);
    let id = id.trim();
    let busy = fail(&data_dir, &["send", id, "more"], 1);
    assert!(busy.contains("--steer") && busy.contains("--follow-up"), "{busy}");
    assert!(!busy.contains("streaming_behavior"), "{busy}");
    succeed(&data_dir, &["steer", id, "left"]);
    assert!(succeed(&data_dir, &["abort", id]).starts_with("aborted"));
    eventually(|| (sessions(&data_dir)[0]["state"] == "idle").then_some(()));
    assert!(succeed(&data_dir, &["abort", id]).contains("nothing to abort"));
}

/// `qd attach` with a pipe, and what it has said so far.
struct PipedAttach {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl PipedAttach {
    fn attach(data_dir: &Path, session: &str) -> PipedAttach {
        let mut child = command(data_dir)
            .args(["attach", session])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let readers = vec![collect(out, said.clone()), collect(err, said.clone())];
        PipedAttach { child, said, readers }
    }

    fn say(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        eventually(|| self.said.lock().unwrap().contains(text).then_some(()));
    }

    /// Ends the input; the exit code and everything said.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let code = self.child.wait().unwrap().code();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let said = self.said.lock().unwrap().clone();
        (code, said)
    }
}

impl Drop for PipedAttach {
    fn drop(&mut self) {
        // Already gone in most tests; a failed one must not leave it behind.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn collect(mut stream: impl Read + Send + 'static, said: Arc<Mutex<String>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    })
}

#[test]
fn a_pipe_answers_questions_and_learns_of_errors() {
    let (_keep, data_dir) = data_dir();
    let _server = Server::start(&data_dir, "127.0.0.1:0");
    let id = succeed(&data_dir, &["run", "-d", "--harness", "demo", "hello"]);
    let id = id.trim();
    eventually(|| (sessions(&data_dir)[0]["state"] == "idle").then_some(()));
    let mut piped = PipedAttach::attach(&data_dir, id);
    piped.say("/question");
    piped.wait_for("answer with: qd approve");
    piped.say("2");
    let (code, said) = piped.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("> 2"), "an answer is no prompt: {said}");
    let mut piped = PipedAttach::attach(&data_dir, id);
    piped.say("/error");
    let (code, said) = piped.end();
    assert_eq!(code, Some(1), "{said}");
    succeed(&data_dir, &["stop", id]);
    let mut piped = PipedAttach::attach(&data_dir, id);
    piped.say("hello again");
    let (code, said) = piped.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("qd restart {id}")), "{said}");
}

/// Whichever comes first, the end of stdin or the conversation; so it is tried often.
#[test]
fn attaching_without_anything_to_say_shows_the_conversation() {
    let (_keep, data_dir) = data_dir();
    let _server = Server::start(&data_dir, "127.0.0.1:0");
    let id = succeed(&data_dir, &["run", "-d", "--harness", "demo", "/text"]);
    let id = id.trim();
    eventually(|| (sessions(&data_dir)[0]["state"] == "idle").then_some(()));
    for attempt in 0..40 {
        let shown = succeed(&data_dir, &["attach", id]);
        assert!(shown.starts_with("> /text\n"), "attempt {attempt}: '{shown}'");
    }
}

#[test]
fn an_outage_is_told_once_and_what_was_missed_is_shown() {
    let (_keep, data_dir) = data_dir();
    let server = Server::start(&data_dir, "127.0.0.1:0");
    let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let id = succeed(&data_dir, &["run", "-d", "--harness", "demo", "/long 1500000"]);
    let id = id.trim();
    let attached = PipedAttach::attach(&data_dir, id);
    attached.wait_for("> /long 1500000");
    server.signal(Signal::KILL);
    drop(server);
    attached.wait_for("connection lost");
    let _server = Server::start(&data_dir, &address);
    attached.wait_for("reconnected");
    let (code, said) = attached.end();
    assert_eq!(code, Some(1), "{}", said.len());
    let counts =
        ["> /long 1500000\n", "connection lost", "reconnected"].map(|text| said.matches(text).count());
    assert_eq!(counts, [1, 1, 1]);
    let after = said.rsplit("reconnected").next().unwrap();
    assert!(after.contains("error:") || after.contains("aborted"), "{after}");
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way() {
    let (_keep, data_dir) = data_dir();
    let server = Server::start(&data_dir, "127.0.0.1:0");
    let token = server.ready["token"].clone();
    succeed(&data_dir, &["run", "--harness", "demo", "/text"]);
    let before = succeed(&data_dir, &["logs", "--json"]);
    assert!(
        fail(&data_dir, &["up", "--listen", "127.0.0.1:0"], 1)
            .contains(&format!("pid {}", server.child.id()))
    );
    let taken = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let elsewhere = data_dir.join("other");
    assert!(fail(&elsewhere, &["up", "--listen", &taken], 1).contains("--listen"));
    let refused = fail(&data_dir, &["ls", "--json", "--token", "wrong"], 1);
    assert!(refused.contains("401") && refused.contains("\"refused\""), "{refused}");
    assert!(fail(&data_dir, &["ls", "--url", "garbage"], 2).contains("not a URL"));
    server.signal(Signal::KILL);
    drop(server);
    assert!(fail(&data_dir, &["ls"], 3).contains("qd up"));
    let server = Server::start(&data_dir, "127.0.0.1:0");
    assert_eq!(server.ready["token"], token);
    assert_eq!(succeed(&data_dir, &["logs", "--json"]), before);
    server.stop();
}

#[test]
fn wrong_usage_is_told_apart() {
    let (_keep, data_dir) = data_dir();
    fail(&data_dir, &["fly"], 2);
    assert!(fail(&data_dir, &["search", " "], 2).contains("empty"));
    fail(&data_dir, &["search", "-n", "0", "x"], 2);
    assert!(fail(&data_dir, &["search", "--role", "captain", "x"], 2).contains("assistant"));
    let plain = fail(&data_dir, &["up", "--listen", "0.0.0.0:0", "--tls", "off"], 2);
    assert!(plain.contains("--insecure-bind"), "{plain}");
    assert!(fail(&data_dir, &["ls", "--config", "/no/such.toml"], 2).contains("/no/such.toml"));
    let json = fail(&data_dir, &["ls", "--json"], 3);
    let error: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(error["error"]["kind"], "unreachable");
    assert!(succeed(&data_dir, &["completions", "bash"]).contains("_qd"));
    assert!(succeed(&data_dir, &["--help"]).contains("qd run --harness demo"));
}
