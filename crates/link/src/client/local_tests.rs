//! A scripted runner on a unix socket, met through the usual client.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use qd_wire::Command;
use qd_wire::command::NoParams;
use qd_wire::mux::SystemEvent;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use super::*;
use crate::client::{CallError, ClientRequest, FrameKind, MuxClient};

/// A path of its own for each test, removed with it.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> SocketPath {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        SocketPath(std::env::temp_dir().join(format!("qd-link-{}-{number}.sock", std::process::id())))
    }

    fn url(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // It may never have been made.
        let _absent = std::fs::remove_file(&self.0);
    }
}

/// Answers each command with what it was asked, after an event and a line that is not for clients.
async fn echo_commands(listener: UnixListener, commands: usize) {
    let (stream, _) = listener.accept().await.unwrap();
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    for _ in 0..commands {
        let line = lines.next_line().await.unwrap().unwrap();
        let command: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(command["type"], "command", "{line}");
        assert_eq!(command.get("channel"), None, "{line}");
        let answer = format!(
            "{{\"type\":\"ack\",\"session_id\":\"s\",\"seq\":1}}\n\
             {{\"type\":\"event\",\"session_id\":\"s\",\"runner_id\":\"r\",\"ts\":1,\"event\":\"notify\",\"level\":\"info\",\"message\":\"m\"}}\n\
             {{\"type\":\"response\",\"id\":{},\"session_id\":\"s\",\"runner_id\":\"r\",\"ts\":2,\"cmd\":{},\"success\":true,\"data\":{command}}}\n",
            command["id"], command["cmd"]
        );
        writing.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn commands_events_and_answers_pass_a_runners_socket() {
    let path = SocketPath::new();
    let runner = tokio::spawn(echo_commands(UnixListener::bind(&path.0).unwrap(), 3));
    let (client, mut frames) = MuxClient::connect(&path.url(), "").await.unwrap();
    assert_eq!(client.server().connection_id, "local");
    let request = ClientRequest::session("s", Command::ListSessions(NoParams {}));
    let answer = client.call(&request).await.unwrap();
    assert!(answer.success);
    assert_eq!(answer.data.unwrap()["session_id"], "s");
    // Fields before `channel` and line breaks make no difference.
    let answer = client.call_value(json!({"cmd":"abort","a":1,"session_id":"s"})).await.unwrap();
    assert_eq!(answer.cmd, "abort");
    client.send_text("{\n\"channel\":\"agent\",\n\"id\":\"77\",\"cmd\":\"x\"}".to_owned()).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(frame) = frames.next().await {
        kinds.push(frame.kind());
    }
    let event = FrameKind::Event;
    assert_eq!(kinds, [event, event, event, FrameKind::Response(Some(77))]);
    assert_eq!(frames.close_reason(), "the other end closed the link");
    let refused = client.call(&request).await;
    assert!(matches!(refused, Err(CallError::Closed(_))), "{refused:?}");
    runner.await.unwrap();
}

#[tokio::test]
async fn nobody_behind_the_socket_is_temporary() {
    let path = SocketPath::new();
    let error = MuxClient::connect(&path.url(), "").await.err().unwrap();
    assert!(error.is_temporary() && error.to_string().contains(&path.0.display().to_string()), "{error}");
}

#[test]
fn frames_become_commands_or_are_refused_with_their_id() {
    assert_eq!(
        line_of(r#"{"channel":"agent","id":"1","cmd":"abort"}"#).unwrap(),
        "{\"type\":\"command\",\"id\":\"1\",\"cmd\":\"abort\"}\n"
    );
    let refused = Frame::new(line_of(r#"{"channel":"files","id":"4"}"#).unwrap_err());
    match refused.system().unwrap() {
        SystemEvent::Error { id, error, .. } => {
            assert_eq!(id, Some("4".into()));
            assert!(error.contains("hub"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    for nonsense in ["", "[]", "{\"channel\":\"agent\"", "7"] {
        assert_eq!(Frame::new(line_of(nonsense).unwrap_err()).kind(), FrameKind::System, "{nonsense}");
    }
}

#[test]
fn lines_become_frames_in_any_spelling() {
    let usual =
        frame_of(r#"{"type":"event","session_id":"s","runner_id":"r","ts":1,"event":"notify"}"#).unwrap();
    assert_eq!(
        usual.as_str(),
        r#"{"channel":"agent","session_id":"s","runner_id":"r","ts":1,"event":"notify"}"#
    );
    let odd = Frame::new(frame_of(r#"{ "session_id":"s", "type": "event", "event":"agent.idle" }"#).unwrap());
    let event = odd.event().unwrap();
    assert_eq!(
        (odd.kind(), event.session_id.as_str(), event.runner_id.as_str()),
        (FrameKind::Event, "s", "local")
    );
    assert!(event.ts > 0);
    let answer = r#"{"id":"5","type":"response","cmd":"abort","success":false,"error":"no"}"#;
    let answer = Frame::new(frame_of(answer).unwrap());
    assert_eq!(answer.kind(), FrameKind::Response(Some(5)));
    assert_eq!(answer.response().unwrap().error.as_deref(), Some("no"));
    let error = Frame::new(frame_of(r#"{"type":"error","error":"too long"}"#).unwrap());
    assert_eq!(error.kind(), FrameKind::System);
    assert_eq!(
        error.system().unwrap(),
        SystemEvent::Error { id: None, error: "too long".into(), code: None }
    );
    for other in [r#"{"type":"runner.heartbeat"}"#, r#"{"type":7}"#, "nonsense", "{}"] {
        assert_eq!(frame_of(other), None, "{other}");
    }
}
