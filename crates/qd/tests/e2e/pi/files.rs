//! Real pi: conversations in files, shared with plain pi.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, text_of, transcript};
use qd_testkit::pi::pi_command;
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{pi, pi_session, pi_with_session, restarted, said_by};

/// Runs plain pi on the user's own directory, without us.
async fn plain_pi(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let command = pi_command().unwrap();
    let output = Command::new(&command[0])
        .args(&command[1..])
        .args(arguments)
        .current_dir(sandbox.work())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", sandbox.home())
        .env("PI_CODING_AGENT_DIR", sandbox.pi_dir())
        .env("PI_OFFLINE", "1")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn session_files(sandbox: &Sandbox) -> Vec<PathBuf> {
    let files = qd_testkit::qd::files_below(&sandbox.pi_dir().join("sessions"));
    let paths = files.into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

/// What people and model said, without the rest.
async fn dialogue(mux: &mut Mux, session: &str) -> Vec<(String, String)> {
    let mut all = transcript(&mux.messages(session).await);
    all.retain(|(role, _)| role == "user" || role == "assistant");
    all
}

fn said(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

async fn native_file(mux: &mut Mux, session: &str) -> PathBuf {
    mux.state(session).await["native_session_file"].as_str().unwrap().into()
}

/// The command that creates a session of pi on a stored conversation.
fn create(qd: &Qd, continued: Value) -> Value {
    let config = json!({"harness": "pi", "cwd": qd.sandbox().work(), "continue_session": continued});
    json!({"cmd": "session.create", "config": config})
}

fn last_context(llm: &LlmServer) -> Vec<String> {
    llm.requests().last().unwrap().messages().into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_session_of_plain_pi_goes_on_here_and_comes_back() {
    let (qd, mut mux, llm) = pi().await;
    plain_pi(qd.sandbox(), &["-p", "words for plain pi"]).await;
    let file = session_files(qd.sandbox()).pop().expect("plain pi wrote a session");
    let session = pi_session(&qd, &mut mux, json!({"continue_session": file})).await;
    let hello = "Hello from the scripted model. This is a plain answer.";
    let expected = said(&[("user", "words for plain pi"), ("assistant", hello)]);
    assert_eq!(dialogue(&mut mux, &session).await, expected);
    assert_eq!(native_file(&mut mux, &session).await, file);
    mux.prompt(&session, "@@text text=\"from qd\"").await;
    assert!(last_context(&llm).iter().any(|text| text == "words for plain pi"), "the old context is there");
    mux.ok(json!({"cmd": "session.close", "session_id": session})).await;

    let path = file.to_str().unwrap();
    let printed = plain_pi(qd.sandbox(), &["-p", "--session", path, "plain words again"]).await;
    assert!(printed.contains(hello), "{printed}");
    assert!(last_context(&llm).iter().any(|text| text == "from qd"), "plain pi knows what was said here");
    assert_eq!(session_files(qd.sandbox()), std::slice::from_ref(&file));

    mux.ok(json!({"cmd": "session.restart", "session_id": session})).await;
    assert_eq!(said_by(&mut mux, "assistant", &session).await, [hello, "from qd", hello]);
}

#[tokio::test]
async fn a_session_is_continued_by_its_id_and_a_missing_one_refused() {
    let (qd, mut mux, _llm) = pi().await;
    let first = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&first, "@@text text=one").await;
    let id = mux.state(&first).await["native_session_id"].as_str().unwrap().to_owned();
    let file = native_file(&mut mux, &first).await;
    let create = |named: &str| create(&qd, json!(named));
    for named in [id.as_str(), file.to_str().unwrap()] {
        let error = mux.refused(create(named)).await;
        assert!(error.contains(&format!("open in session '{first}'")), "one process per file: {error}");
    }
    for (named, expected) in [
        ("/no/such/file.jsonl", "must be under an allowed session directory"),
        ("deadbeef", "no pi session 'deadbeef'"),
    ] {
        let error = mux.refused(create(named)).await;
        assert!(error.contains(expected), "{error}");
    }
    mux.ok(json!({"cmd": "session.close", "session_id": first})).await;
    let data = mux.ok(create(&id)).await;
    assert_eq!(text_of(data["messages"].as_array().unwrap().last().unwrap()), "one");
    let error = mux.refused(json!({"cmd": "session.restart", "session_id": first})).await;
    assert!(error.contains("is open in session"), "{error}");
}

#[tokio::test]
async fn a_fork_goes_back_to_an_earlier_prompt() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    mux.prompt(&session, "@@text text=two").await;
    let before = native_file(&mut mux, &session).await;
    let old = mux.messages(&session).await;
    let points = mux.ok(json!({"cmd": "get_fork_points", "session_id": session})).await;
    let points = points["fork_points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert!(points[1]["preview"].as_str().unwrap().contains("text=two"));
    mux.skip();
    let data = mux.ok(json!({"cmd": "fork", "session_id": session, "entry_id": points[1]["entry_id"]})).await;
    assert_eq!(data["text"], "@@text text=two", "the prompt comes back to be changed");
    let moved = mux.wait_event("session.native_changed").await;
    assert_ne!(moved["native_session_file"], json!(before));
    let listed = mux.wait_event("messages").await["messages"].as_array().unwrap().clone();
    assert_eq!(
        dialogue(&mut mux, &session).await,
        said(&[("user", "@@text text=one"), ("assistant", "one")])
    );
    assert_eq!(mux.messages(&session).await, listed);
    // Messages that both have keep their ids.
    let ids =
        |messages: &[Value]| -> Vec<Value> { messages.iter().map(|message| message["id"].clone()).collect() };
    assert!(ids(&old).starts_with(&ids(&listed)));
    mux.prompt(&session, "@@text text=\"other two\"").await;
    assert!(!last_context(&llm).iter().any(|text| text == "two"));
    assert_eq!(said_by(&mut mux, "assistant", &session).await, ["one", "other two"]);
    let now = native_file(&mut mux, &session).await;
    assert!(before.is_file() && now.is_file() && now != before);
    let error = mux.refused(json!({"cmd": "fork", "session_id": session, "entry_id": "ffffffff"})).await;
    assert!(!error.is_empty());
    after_restart(qd, &session, &["one", "other two"]).await;
}

/// The conversation the agent is in survives, not the one it was started with.
async fn after_restart(qd: Qd, session: &str, answers: &[&str]) {
    let (_qd, mut mux) = restarted(qd).await;
    mux.attach_and_prompt(session, "@@text text=last").await;
    assert_eq!(said_by(&mut mux, "assistant", session).await, [answers, &["last"]].concat());
}

#[tokio::test]
async fn a_new_conversation_begins_and_an_old_one_is_switched_to() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    let first = native_file(&mut mux, &session).await;
    mux.skip();
    mux.ok(json!({"cmd": "session.new", "session_id": session})).await;
    let listed = mux.wait_event("messages").await["messages"].as_array().unwrap().clone();
    assert!(listed.iter().all(|message| message["role"] != "user"), "{listed:?}");
    assert!(dialogue(&mut mux, &session).await.is_empty());
    mux.prompt(&session, "@@text text=new").await;
    assert!(!last_context(&llm).iter().any(|text| text == "one"));
    let second = native_file(&mut mux, &session).await;
    assert_ne!(first, second);

    let switch = |path: &Path| json!({"cmd": "session.switch", "session_id": session, "session_path": path});
    let error = mux.refused(switch(Path::new("/no/such/file.jsonl"))).await;
    assert!(error.contains("must be under an allowed session directory"), "{error}");
    assert_eq!(native_file(&mut mux, &session).await, second, "nothing was switched");
    mux.skip();
    mux.ok(switch(&first)).await;
    mux.wait_event("session.native_changed").await;
    assert_eq!(
        dialogue(&mut mux, &session).await,
        said(&[("user", "@@text text=one"), ("assistant", "one")])
    );
    mux.prompt(&session, "@@text text=more").await;
    assert!(last_context(&llm).iter().any(|text| text == "one"));
    // The file that was left is free for others.
    let other = pi_session(&qd, &mut mux, json!({"continue_session": second})).await;
    assert_eq!(dialogue(&mut mux, &other).await, said(&[("user", "@@text text=new"), ("assistant", "new")]));
    let error = mux.refused(switch(&second)).await;
    assert!(error.contains(&format!("open in session '{other}'")), "{error}");
    after_restart(qd, &session, &["one", "more"]).await;
}

#[tokio::test]
async fn two_servers_do_not_run_pi_on_one_file() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    let file = native_file(&mut mux, &session).await;
    // Two servers of one user.
    let mut other = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm);
    other.set("PI_CODING_AGENT_DIR", qd.sandbox().pi_dir());
    let other = other.up().await;
    let mut stranger = other.connect().await;
    let create = create(&qd, json!(file));
    let error = stranger.refused(create.clone()).await;
    assert!(error.contains("another qd"), "{error}");
    mux.ok(json!({"cmd": "session.close", "session_id": session})).await;
    stranger.ok(create).await;
}
