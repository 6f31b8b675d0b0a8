//! `qd attach` with a pipe: lines are prompts and answers, and errors are known by the exit code.

use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use qd_testkit::mux::WAIT_MAX;
use qd_testkit::process::eventually;
use qd_testkit::qd::{Qd, Sandbox};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::task::JoinSet;

use super::{detached, ok, until_first};
use crate::{demo_with_session, err, out, restarted, sandbox, session_rows};

/// `qd attach` with a pipe, and what it has said so far.
struct PipedAttach {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: JoinSet<()>,
}

impl PipedAttach {
    fn attach(sandbox: &Sandbox, session: &str) -> PipedAttach {
        let mut child = sandbox.command(&["attach", session]).stdin(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let mut readers = JoinSet::new();
        readers.spawn(collect(child.stdout.take().unwrap(), said.clone()));
        readers.spawn(collect(child.stderr.take().unwrap(), said.clone()));
        PipedAttach { child, said, readers }
    }

    async fn say(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn wait_for(&self, text: &str) {
        eventually(text, || self.said.lock().unwrap().contains(text)).await;
    }

    /// Ends the input; the exit code and everything said.
    async fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let code = self.child.wait().await.unwrap().code();
        self.readers.join_all().await;
        let said = self.said.lock().unwrap().clone();
        (code, said)
    }
}

async fn collect(mut stream: impl AsyncRead + Unpin, said: Arc<Mutex<String>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// Follows a session with this on stdin.
async fn attach_with_input(qd: &Qd, session: &str, input: &[u8]) -> Output {
    let mut command = qd.sandbox().command(&["attach", session]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).await.unwrap();
    drop(stdin);
    tokio::time::timeout(WAIT_MAX, child.wait_with_output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_pipe_attached_to_a_session_talks_to_it() {
    let (qd, mut mux, session) = demo_with_session().await;
    let output = attach_with_input(&qd, &session, b"/thinking\n").await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("I thought about it first"), "{}", out(&output));
    assert_eq!(mux.messages(&session).await.len(), 2);
}

#[tokio::test]
async fn run_works_after_the_server_was_killed_and_started_again() {
    let qd = sandbox().up().await;
    ok(&qd, &["run", "--harness", "demo", "/text"]).await;
    let (qd, mut mux) = restarted(qd).await;
    let session = session_rows(&mut mux).await[0]["session_id"].as_str().unwrap().to_owned();
    // The agent of an old session is started for the prompt; the whole answer must be waited for.
    let output = attach_with_input(&qd, &session, b"/thinking\n").await;
    assert!(out(&output).contains("above this answer."), "{}{}", out(&output), err(&output));
}

#[tokio::test]
async fn a_pipe_answers_questions_and_learns_of_errors() {
    let qd = sandbox().up().await;
    let id = detached(&qd, &["hello"]).await;
    until_first(&qd, "state", "idle").await;
    let mut piped = PipedAttach::attach(qd.sandbox(), &id);
    piped.say("/question").await;
    piped.wait_for("answer with: qd approve").await;
    piped.say("2").await;
    let (code, said) = piped.end().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("> 2"), "an answer is no prompt: {said}");
    let mut piped = PipedAttach::attach(qd.sandbox(), &id);
    piped.say("/error").await;
    let (code, said) = piped.end().await;
    assert_eq!(code, Some(1), "{said}");
    ok(&qd, &["stop", &id]).await;
    let mut piped = PipedAttach::attach(qd.sandbox(), &id);
    piped.say("hello again").await;
    let (code, said) = piped.end().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("qd restart {id}")), "{said}");
}

/// Whichever comes first, the end of stdin or the conversation; so it is tried often.
#[tokio::test]
async fn attaching_without_anything_to_say_shows_the_conversation() {
    let qd = sandbox().up().await;
    let id = detached(&qd, &["/text"]).await;
    until_first(&qd, "state", "idle").await;
    for attempt in 0..40 {
        let shown = ok(&qd, &["attach", &id]).await;
        assert!(shown.starts_with("> /text\n"), "attempt {attempt}: '{shown}'");
    }
}

#[tokio::test]
async fn an_outage_is_told_once_and_what_was_missed_is_shown() {
    let qd = sandbox().up().await;
    let id = detached(&qd, &["/long 1500000"]).await;
    let attached = PipedAttach::attach(qd.sandbox(), &id);
    attached.wait_for("> /long 1500000").await;
    let sandbox = qd.kill9_at_address().await;
    attached.wait_for("connection lost").await;
    let _qd = sandbox.up().await;
    attached.wait_for("reconnected").await;
    let (code, said) = attached.end().await;
    assert_eq!(code, Some(1), "{}", said.len());
    let counts =
        ["> /long 1500000\n", "connection lost", "reconnected"].map(|text| said.matches(text).count());
    assert_eq!(counts, [1, 1, 1]);
    let after = said.rsplit("reconnected").next().unwrap();
    assert!(after.contains("error:") || after.contains("aborted"), "{after}");
}
