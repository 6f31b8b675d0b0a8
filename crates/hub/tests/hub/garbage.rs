use futures_util::{SinkExt, StreamExt};
use qd_hub::Limits;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::support::{Client, World, assert_fields, soon, world_with_session};

async fn is_alive(client: &mut Client) {
    client.send(&json!({"channel":"agent","id":"alive","cmd":"get_runners"})).await;
    assert_fields(&client.next().await, json!({"id": "alive", "success": true}));
}

#[tokio::test]
async fn frames_that_are_no_command_get_an_error_and_the_connection_lives() {
    let (world, _runner) = World::start().await;
    let mut client = world.client().await;
    let deep = format!(
        "{{\"channel\":\"agent\",\"id\":\"d\",\"cmd\":\"prompt\",\"x\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for (frame, code) in [
        ("", "invalid_request"),
        ("nonsense", "invalid_request"),
        ("[1,2]", "invalid_request"),
        ("{\"channel\":", "invalid_request"),
        ("{\"channel\":\"agent\",\"cmd\":\"prompt\"} x", "invalid_request"),
        (&deep, "invalid_request"),
        ("{\"channel\":\"moon\",\"cmd\":\"x\"}", "unknown_command"),
        ("{\"channel\":\"system\",\"cmd\":\"x\"}", "invalid_request"),
        ("{\"channel\":\"trx\",\"cmd\":\"x\"}", "unsupported"),
        ("{\"channel\":\"agent\",\"cmd\":7}", "invalid_request"),
        ("{\"channel\":\"agent\",\"cmd\":\"prompt\",\"session_id\":{}}", "invalid_request"),
        (
            "{\"channel\":\"agent\",\"cmd\":\"prompt\",\"session_id\":\"a\",\"session_id\":\"b\"}",
            "invalid_request",
        ),
    ] {
        client.send_text(frame).await;
        let answer = client.next().await;
        assert_eq!((&answer["channel"], &answer["type"]), (&json!("system"), &json!("error")));
        assert_eq!(answer["code"], code, "{frame:.80}: {answer}");
    }
    for channel in ["files", "terminal"] {
        client.send_text(&format!("{{\"channel\":\"{channel}\",\"id\":\"f\",\"type\":\"x\"}}")).await;
        assert_fields(&client.next().await, json!({"channel": channel, "type": "error", "id": "f"}));
    }
    client.send_text("{\"channel\":\"agent\",\"id\":\"me\",\"cmd\":7}").await;
    assert_eq!(client.next().await["id"], "me");
    client.socket.send(Message::binary(vec![0, 159, 146, 150])).await.unwrap();
    assert_eq!(client.next().await["code"], "invalid_request");
    client.socket.send(Message::Ping("x".into())).await.unwrap();
    is_alive(&mut client).await;
    world.stop().await;
}

#[tokio::test]
async fn conditions_that_no_runner_could_read_are_answered_at_once() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    for (fields, name) in [
        ("\"idempotency_key\":5", "idempotency_key"),
        ("\"idempotency_key\":\"a\",\"idempotency_key\":\"b\"", "idempotency_key"),
        ("\"if_session_version\":\"x\"", "if_session_version"),
        ("\"if_session_version\":-1", "if_session_version"),
        ("\"if_session_version\":1.5", "if_session_version"),
        ("\"if_session_version\":1,\"if_session_version\":1", "if_session_version"),
    ] {
        let head = r#""channel":"agent","id":"x","session_id":"s","cmd":"prompt","message":"m""#;
        client.send_text(&format!("{{{head},{fields}}}")).await;
        let answer = client.next().await;
        assert_fields(
            &answer,
            json!({"event": "response", "id": "x", "cmd": "prompt", "success": false,
            "code": "invalid_request"}),
        );
        assert!(answer["error"].as_str().unwrap().contains(name), "it says which: {answer}");
    }
    client.command("y", "s", "prompt", json!({"idempotency_key":null,"if_session_version":null})).await;
    assert_eq!(runner.command().await["client_command_id"], "y", "and nothing before it");
    world.stop().await;
}

#[tokio::test]
async fn long_names_and_queries_are_refused() {
    let (world, _runner) = World::start().await;
    let mut client = world.client().await;
    for name in ["cmd", "session_id", "runner_id"] {
        let mut frame = json!({"channel":"agent","id":"x","cmd":"get_state"});
        frame[name] = "y".repeat(257).into();
        let answer = client.ask(&frame).await;
        assert_eq!(answer["code"], "invalid_request");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(name) && error.len() < 200, "it says which, and does not repeat it: {error}");
    }
    client.send(&json!({"channel":"agent","id":"x","cmd":"search","query":"q".repeat(5000)})).await;
    assert_eq!(client.next().await["code"], "too_large");
    world.stop().await;
}

#[tokio::test]
async fn a_close_is_answered_with_a_close() {
    let (world, _runner) = World::start().await;
    for (code, answer) in [(Some(CloseCode::Normal), 1000), (Some(CloseCode::Away), 1001), (None, 1000)] {
        let mut client = world.client().await;
        let frame = code.map(|code| CloseFrame { code, reason: "bye".into() });
        client.socket.send(Message::Close(frame)).await.unwrap();
        assert_eq!(client.closed().await, answer);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_frame_of_100_mb_is_refused_in_words() {
    let (world, _runner) = World::start().await;
    let client = world.client().await;
    let (mut sink, stream) = client.socket.split();
    let sending = tokio::spawn(async move {
        // The hub hangs up before all of it is sent.
        sink.send(Message::text("x".repeat(100 << 20))).await
    });
    let mut stream = stream;
    let error = soon("an error", stream.next()).await.unwrap().unwrap().into_text().unwrap();
    assert!(error.contains("too big"), "{error}");
    let Some(Ok(Message::Close(Some(close)))) = soon("a close", stream.next()).await else {
        panic!("no close")
    };
    assert_eq!(u16::from(close.code), 1009);
    sending.abort();
    is_alive(&mut world.client().await).await;
    world.stop().await;
}

#[tokio::test]
async fn broken_websocket_frames_end_only_their_own_connection() {
    let (world, _runner) = World::start().await;
    let mut other = world.client().await;
    let mut client = world.client().await;
    let bad = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    client.socket.send(Message::Frame(bad)).await.unwrap();
    assert_eq!(client.closed().await, 1007);
    let mut client = world.client().await;
    let stray = Frame::message(vec![b'x'], OpCode::Data(Data::Continue), true);
    client.socket.send(Message::Frame(stray)).await.unwrap();
    assert_eq!(client.closed().await, 1002);
    is_alive(&mut other).await;
    world.stop().await;
}

#[tokio::test]
async fn odd_lines_of_the_runner_are_skipped() {
    let (world, mut runner) = World::start().await;
    runner.say("nonsense\n\n{}\n{\"type\":\"event\"}\n{\"type\":\"weird\"}\n[1]").await;
    runner
        .link
        .sender
        .send(bytes::Bytes::from_static(b"\xff\xfe\n{\"type\":\"runner.heartbeat\"}\n"))
        .await
        .unwrap();
    runner.say(&crate::support::created("s")).await;
    assert_eq!(runner.line_of("ack").await["seq"], 1);
    world.stop().await;
}
