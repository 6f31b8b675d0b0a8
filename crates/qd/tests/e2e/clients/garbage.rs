//! Rubbish from clients: a clear error each, no crash, and nobody else notices.

use qd_testkit::mux::Mux;
use qd_testkit::process::peak_resident_bytes;
use qd_testkit::seeded_random::SeededRandom;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::{demo, demo_session, demo_with_session, on, prompt, say, with};

/// Sends a frame and returns the error on the `system` channel.
async fn system_error(mux: &mut Mux, frame: &str) -> String {
    mux.skip();
    mux.send_text(frame).await;
    let answer =
        mux.wait_for("an error", |frame| frame["channel"] == "system" && frame["type"] == "error").await;
    answer["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_no_command_gets_an_error_and_the_connection_lives_on() {
    let (_qd, mut mux) = demo().await;
    let deep = format!("{{\"channel\":\"agent\",\"cmd\":\"x\",\"a\":{}", "[".repeat(100_000));
    for (frame, expected) in [
        ("", "not a JSON object"),
        ("\u{0}", "not a JSON object"),
        ("hello", "not a JSON object"),
        ("[1,2,3]", "not a JSON object"),
        ("{\"channel\":\"agent\"", "not valid JSON"),
        ("{\"channel\":\"agent\"} trailing", "not valid JSON"),
        ("{}", "no channel"),
        ("{\"channel\":\"agent\"}", "no cmd"),
        ("{\"channel\":7,\"cmd\":\"prompt\"}", "'channel' must be a string"),
        ("{\"channel\":\"agent\",\"cmd\":{}}", "'cmd' must be a string"),
        ("{\"channel\":\"agent\",\"cmd\":\"prompt\",\"session_id\":[]}", "'session_id' must be a string"),
        ("{\"channel\":\"moon\",\"cmd\":\"prompt\"}", "Unknown channel 'moon'"),
        ("{\"channel\":\"trx\",\"cmd\":\"open\"}", "not served"),
        ("{\"channel\":\"system\",\"cmd\":\"prompt\"}", "takes no commands"),
        (deep.as_str(), "nested too deeply"),
    ] {
        let error = system_error(&mut mux, frame).await;
        assert!(error.contains(expected), "{}: {error}", frame.chars().take(60).collect::<String>());
    }
    // An id that can be read is echoed, whatever else is wrong.
    mux.skip();
    mux.send_text("{\"channel\":\"moon\",\"id\":{\"any\":[1]}}").await;
    let answer = mux.wait_for("an error", |frame| frame["type"] == "error").await;
    assert_eq!(answer["id"], json!({"any": [1]}));
    mux.ok(json!({"cmd": "get_runners"})).await;
}

#[tokio::test]
async fn wrong_commands_get_one_response_with_their_id() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let cases = [
        (json!({"cmd": "fly"}), "Unknown command 'fly'"),
        (json!({"cmd": "prompt"}), "session_id"),
        (json!({"cmd": "prompt", "session_id": "nobody", "message": "x"}), "nobody not found"),
        (json!({"cmd": "prompt", "session_id": session}), "message"),
        (json!({"cmd": "prompt", "session_id": session, "message": 7}), "Invalid 'prompt'"),
        (with(prompt(&session, "x"), json!({"streaming_behavior": "later"})), "later"),
        (with(prompt(&session, "x"), json!({"images": "no"})), "Invalid 'prompt'"),
        (with(prompt(&session, "x"), json!({"runner_id": "mars"})), "mars"),
        (json!({"cmd": "session.attach", "session_id": session, "after": -1}), "session.attach"),
        (json!({"cmd": "session.attach", "session_id": session, "after": "x"}), "session.attach"),
        (json!({"cmd": "get_messages", "session_id": session, "limit": "many"}), "get_messages"),
        (json!({"cmd": "set_thinking_level", "session_id": session, "level": {}}), "set_thinking_level"),
        (json!({"cmd": "session.create", "config": "demo"}), "session.create"),
        (json!({"cmd": "session.create"}), "config"),
        (json!({"cmd": "search"}), "query"),
        (with(say("delegate", &session, "x"), json!({"target_session_id": "x", "mode": "sync"})), ""),
        (json!({"cmd": "get_state", "session_id": session, "idempotency_key": ""}), "idempotency_key"),
        (with(on(&session, "get_state"), json!({"idempotency_key": "k".repeat(300)})), "idempotency_key"),
    ];
    for (mut command, expected) in cases {
        command["id"] = json!(format!("case-{expected}"));
        let answer = mux.call(command.clone()).await;
        assert_eq!((&answer["success"], &answer["cmd"]), (&json!(false), &command["cmd"]));
        assert!(answer["error"].as_str().unwrap().contains(expected), "{command} → {answer}");
    }
    // Ids of any kind come back as they went.
    for id in [json!(7), json!("ä\n\"'"), json!([1, {"a": null}]), json!({"x": 1.5})] {
        let answer = mux.call(json!({"id": id, "cmd": "get_state", "session_id": session})).await;
        assert_eq!((&answer["id"], &answer["success"]), (&id, &json!(true)));
    }
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn random_bytes_do_not_hurt_the_server() {
    let (mut qd, mut mux) = demo().await;
    let session = demo_session(&mut mux).await;
    let mut noise = SeededRandom::new(0x5eed, "noise");
    let address = qd.url().strip_prefix("http://").unwrap().to_owned();
    for round in 0..40 {
        // As HTTP, as WebSocket frames after a handshake, as text and as binary messages.
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let count = 1 + (noise.next() % 4000) as usize;
        // The server may close while we still write.
        let _cut = stream.write_all(&noise.bytes(count)).await;
        let _cut = stream.shutdown().await;
        let mut rest = Vec::new();
        let _cut = stream.read_to_end(&mut rest).await;
        let mut other = qd.connect().await;
        let text = String::from_utf8_lossy(&noise.bytes(count)).into_owned();
        other.send_message(Message::text(text)).await.unwrap();
        other.send_message(Message::binary(noise.bytes(count))).await.unwrap();
        other.wait_for("an error", |frame| frame["type"] == "error").await;
        other.wait_for("another", |frame| frame["type"] == "error").await;
        if round % 4 == 0 {
            other.ok(json!({"cmd": "get_runners"})).await;
        }
    }
    assert!(qd.is_alive());
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn broken_websocket_frames_end_only_their_own_connection() {
    let (mut qd, mut mux) = demo().await;
    let address = qd.url().strip_prefix("http://").unwrap().to_owned();
    let long_ping = [&[0x89, 0xfe, 0xff, 0xff, 0, 0, 0, 0][..], &[0; 0xffff]].concat();
    let frames: [(&str, &[u8]); 6] = [
        ("reserved bits and opcodes", &[0xff; 64]),
        ("no mask", &[0x81, 0x05, b'h', b'e', b'l', b'l', b'o']),
        ("a ping that is too long", &long_ping),
        ("the rest of a message that never began", &[0x80, 0x80, 0, 0, 0, 0]),
        (
            "a length beyond all bounds",
            &[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4],
        ),
        ("no UTF-8", &[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]),
    ];
    for (name, frame) in frames {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let handshake = format!(
            "GET /ws/mux?token={} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            qd.token()
        );
        stream.write_all(handshake.as_bytes()).await.unwrap();
        stream.write_all(frame).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(qd_testkit::mux::WAIT_MAX, stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "the connection must end: {name}");
        assert!(answer.starts_with(b"HTTP/1.1 101"));
    }
    assert!(qd.is_alive());
    mux.ok(json!({"cmd": "get_runners"})).await;
}

#[tokio::test]
async fn a_huge_frame_is_refused_with_a_reason_and_costs_no_memory() {
    let (qd, mut mux, session) = demo_with_session().await;
    let mut huge = qd.connect().await;
    let frame = with(prompt(&session, &"x".repeat(100 << 20)), json!({"channel": "agent"}));
    // The server may close in the middle of it.
    let _cut = huge.send_message(Message::text(frame.to_string())).await;
    while huge.next().await.is_some() {}
    let said = huge
        .frames()
        .iter()
        .any(|frame| frame["type"] == "error" && frame["error"].as_str().unwrap().contains("too big"));
    assert!(said, "{:?}", huge.frames());
    let peak = peak_resident_bytes(qd.pid()) / 1024;
    assert!(peak < 120 * 1024, "{peak} kB at the peak");
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
    assert_eq!(mux.messages(&session).await.len(), 2);
}

#[tokio::test]
async fn a_large_prompt_is_no_rubbish() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let message = format!("/text {}", "ä".repeat(4 << 20));
    mux.prompt(&session, &message).await;
    let messages = mux.messages(&session).await;
    assert_eq!(messages[0]["parts"][0]["text"], Value::String(message));
}

#[tokio::test]
async fn a_flood_of_commands_is_answered_one_by_one() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    let mut ids = Vec::new();
    for _ in 0..2000 {
        ids.push(mux.send(json!({"cmd": "get_state", "session_id": session})).await);
    }
    let (mut answered, mut refused) = (0, 0);
    for id in &ids {
        let answer = mux.response(from, id).await;
        match answer["success"] == true {
            true => answered += 1,
            false => {
                let error = answer["error"].as_str().unwrap();
                assert!(error.contains("Too many") || error.contains("busy"), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(answered + refused, 2000);
    assert!(answered >= 256, "{answered} answered");
    let responses = mux.frames()[from..].iter().filter(|frame| frame["event"] == "response").count();
    assert_eq!(responses, 2000, "exactly one answer each");
}
