//! A scripted hub on a real socket: it breaks the connection after a given number of frames and loses live
//! events meanwhile; the follower must still end with everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::*;

/// Three messages of four deltas each, with a record between.
fn script() -> Vec<Value> {
    let mut events = Vec::new();
    let mut seq = 0;
    for message in 0..3 {
        let id = format!("m{message}");
        events.push(json!({"event":"stream.message_start","message_id":id,"role":"assistant"}));
        for (index, word) in ["alpha ", "bêta ", "gamma ", "delta"].iter().enumerate() {
            let offset: usize =
                ["alpha ", "bêta ", "gamma "][..index].iter().map(|word| word.chars().count()).sum();
            events.push(json!({"event":"stream.text_delta","message_id":id,"content_index":0,"delta":word,"offset":offset}));
        }
        seq += 1;
        let parts = json!([{"type":"text","id":"p0","text":"alpha bêta gamma delta"}]);
        events.push(json!({"event":"stream.message_end","seq":seq,
            "message":{"id":id,"idx":message,"role":"assistant","parts":parts,"created_at":1}}));
        seq += 1;
        events.push(json!({"event":"notify","level":"info","message":id,"seq":seq}));
    }
    seq += 1;
    events.push(json!({"event":"agent.idle","reason":"stop","seq":seq}));
    events
}

pub(super) fn frame(event: &Value) -> Message {
    let mut event = event.clone();
    for (key, value) in [
        ("channel", json!("agent")),
        ("session_id", json!("s")),
        ("runner_id", json!("local")),
        ("ts", json!(1)),
    ] {
        event[key] = value;
    }
    Message::text(event.to_string())
}

fn state(seq: u64) -> Value {
    json!({"session_id":"s","runner_id":"local","harness":"demo","status":"working","session_version":1,
        "seq":seq,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[]})
}

/// What `session.attach` says when the script stands at `position`.
pub(super) fn attach_answer(command: &Value, script: &[Value], position: usize) -> Message {
    let seq = script[..position].iter().filter_map(|event| event["seq"].as_u64()).max().unwrap_or(0);
    let mut partial = Value::Null;
    for event in &script[..position] {
        match event["event"].as_str() {
            Some("stream.message_start") => {
                partial =
                    json!({"message":{"message_id":event["message_id"],"role":"assistant","blocks":[]}});
            }
            Some("stream.text_delta") => {
                let before = partial["message"]["blocks"][0]["text"].as_str().unwrap_or_default().to_owned();
                let text = before + event["delta"].as_str().unwrap();
                let offset = text.chars().count();
                partial["message"]["blocks"] =
                    json!([{"content_index":0,"kind":"text","text":text,"offset":offset}]);
            }
            Some("stream.message_end") => partial = Value::Null,
            Some(_) | None => {}
        }
    }
    let mut data = json!({"resume":"ok","seq":seq,"state":state(seq),"pending_input":[]});
    if !partial.is_null() {
        data["partial"] = partial;
    }
    if command["after"].is_null() {
        // The snapshot is read later than the cursor, so it may hold a message more.
        let newer = (position + 1).min(script.len());
        let ended = script[..newer].iter().filter(|event| event["event"] == "stream.message_end");
        data["messages"] = ended.map(|event| event["message"].clone()).collect();
    }
    frame(&json!({"event":"response","id":command["id"],"cmd":"session.attach","success":true,"data":data}))
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let hello = json!({"channel":"system","type":"connected","protocol_version":"1.0.0","server_version":"t","connection_id":"c"});
    socket.send(Message::text(hello.to_string())).await.unwrap();
    socket
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Serves connections one after the other; each but the last lives for `frames_per_connection` frames.
async fn serve(
    listener: TcpListener,
    mut position: usize,
    frames_per_connection: usize,
    connections: Arc<AtomicUsize>,
) {
    let script = script();
    loop {
        let mut socket = accept(&listener).await;
        connections.fetch_add(1, Ordering::Relaxed);
        if serve_one(&mut socket, &script, &mut position, frames_per_connection).await.is_none() {
            continue;
        }
        // All is said; wait for the client to leave.
        while let Some(Ok(_)) = socket.next().await {}
        return;
    }
}

async fn serve_one(
    socket: &mut WebSocketStream<TcpStream>,
    script: &[Value],
    position: &mut usize,
    frames_max: usize,
) -> Option<()> {
    let Some(Ok(Message::Text(text))) = socket.next().await else { return None };
    let command: Value = serde_json::from_str(&text).unwrap();
    let after = command["after"].as_u64().unwrap_or(u64::MAX);
    let mut outgoing = vec![attach_answer(&command, script, *position)];
    let known = |event: &&Value| event["seq"].as_u64().is_some_and(|seq| seq > after);
    outgoing.extend(script[..*position].iter().filter(known).map(frame));
    let mut sent = 0;
    for message in outgoing {
        socket.send(message).await.ok()?;
        sent += 1;
        if sent >= frames_max && *position < script.len() {
            // The world goes on while the client is away.
            *position += 1;
            return None;
        }
    }
    while *position < script.len() {
        socket.send(frame(&script[*position])).await.ok()?;
        *position += 1;
        sent += 1;
        if sent >= frames_max && *position < script.len() {
            *position += 1;
            return None;
        }
    }
    Some(())
}

#[tokio::test]
async fn a_disconnect_after_any_frame_loses_and_repeats_nothing() {
    for frames_per_connection in 1..=script().len() + 2 {
        let (listener, url) = listen().await;
        let connections = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(serve(listener, 0, frames_per_connection, connections.clone()));
        let start = AttachStart::Attach { session_id: "s".into(), after: Some(0) };
        let options = ConnectOptions::new(&url, "t");
        let mut attachment = Attachment::open(options, start, Box::new(|| 0)).await.unwrap();
        attachment.backoff = Backoff::new(Duration::from_millis(1));
        let (mut seqs, mut texts) = (Vec::new(), std::collections::BTreeMap::<String, String>::new());
        loop {
            let update = attachment.next().await.unwrap();
            let AttachmentUpdate::Event { event, .. } = update else { continue };
            seqs.extend(event.seq);
            match event.payload {
                EventPayload::Known(Event::TextDelta { message_id, delta, .. }) => {
                    texts.entry(message_id).or_default().push_str(&delta);
                }
                EventPayload::Known(Event::AgentIdle { .. }) => break,
                _ => {}
            }
        }
        assert_eq!(seqs, (1..=7).collect::<Vec<u64>>(), "{frames_per_connection} frames per connection");
        for text in texts.values() {
            assert!("alpha bêta gamma delta".starts_with(text.as_str()), "{text}");
        }
        if frames_per_connection > script().len() {
            assert_eq!(texts.values().collect::<Vec<_>>(), ["alpha bêta gamma delta"; 3]);
            assert_eq!(connections.load(Ordering::Relaxed), 1);
        }
        drop(attachment);
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_reconnect_after_an_attach_without_cursor_shows_no_message_twice() {
    let script_length = script().len();
    // Before everything, before and behind the end of a message, within one, and behind everything but the last.
    for position in [0, 5, 6, 9, script_length - 1] {
        for frames_per_connection in 1..=script_length - position + 2 {
            let (listener, url) = listen().await;
            let server = tokio::spawn(serve(listener, position, frames_per_connection, Arc::default()));
            let start = AttachStart::Attach { session_id: "s".into(), after: None };
            let mut attachment =
                Attachment::open(ConnectOptions::new(&url, "t"), start, Box::new(|| 0)).await.unwrap();
            attachment.backoff = Backoff::new(Duration::from_millis(1));
            let mut seen = Vec::new();
            loop {
                match attachment.next().await.unwrap() {
                    AttachmentUpdate::Attached(attach) => {
                        seen.extend(attach.messages.unwrap_or_default().into_iter().map(|message| message.id))
                    }
                    AttachmentUpdate::Event { event, .. } => match event.payload {
                        EventPayload::Known(Event::MessageEnd { message }) => seen.push(message.id),
                        EventPayload::Known(Event::AgentIdle { .. }) => break,
                        _ => {}
                    },
                    AttachmentUpdate::System(_) | AttachmentUpdate::Disconnected { .. } => {}
                }
            }
            assert_eq!(seen, ["m0", "m1", "m2"], "from {position}, {frames_per_connection} frames");
            assert_eq!(attachment.last_seq(), Some(7));
            drop(attachment);
            server.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_resync_gives_the_missed_records_before_the_message_being_generated() {
    let message = |id: &str, idx: u64, seq: u64| {
        json!({"event":"stream.message_end","seq":seq,
            "message":{"id":id,"idx":idx,"role":"assistant","parts":[],"created_at":1}})
    };
    let delta = |id: &str, text: &str, offset: u64| json!({"event":"stream.text_delta","message_id":id,"content_index":0,"delta":text,"offset":offset});
    let partial = json!({"message":{"message_id":"m1","role":"assistant","blocks":[
        {"content_index":0,"kind":"text","text":"be","offset":2}]}});
    let frames = [
        json!({"event":"stream.message_start","message_id":"m0","role":"assistant"}),
        delta("m0", "al", 0),
        json!({"event":"session.resync","resume":"gap","seq":0,"state":state(2),"pending_input":[],"partial":partial}),
        message("m0", 0, 1),
        json!({"event":"notify","level":"info","message":"x","seq":2}),
        delta("m1", "ta", 2),
        message("m1", 1, 3),
        json!({"event":"agent.idle","reason":"stop","seq":4}),
    ];
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut socket = accept(&listener).await;
        let Some(Ok(Message::Text(text))) = socket.next().await else { panic!("no command") };
        let command = serde_json::from_str(&text).unwrap();
        socket.send(attach_answer(&command, &[], 0)).await.unwrap();
        for event in &frames {
            socket.send(frame(event)).await.unwrap();
        }
        while let Some(Ok(_)) = socket.next().await {}
    });
    let start = AttachStart::Attach { session_id: "s".into(), after: Some(0) };
    let mut attachment =
        Attachment::open(ConnectOptions::new(&url, "t"), start, Box::new(|| 0)).await.unwrap();
    let mut seen = Vec::new();
    while attachment.last_seq() != Some(4) || !attachment.ready.is_empty() {
        seen.push(match attachment.next().await.unwrap() {
            AttachmentUpdate::Attached(attach) => format!("attached at {}", attach.seq),
            AttachmentUpdate::Event { event, .. } => match (event.seq, event.payload) {
                (Some(seq), _) => format!("record {seq}"),
                (None, EventPayload::Known(Event::MessageStart { message_id, .. })) => message_id,
                (None, EventPayload::Known(Event::TextDelta { delta, .. })) => delta,
                (None, other) => format!("{other:?}"),
            },
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "attached at 0",
        "m0",
        "al",
        "attached at 0",
        "record 1",
        "record 2",
        "m1",
        "be",
        "ta",
        "record 3",
        "record 4",
    ];
    assert_eq!(seen, expected);
    drop(attachment);
    server.await.unwrap();
}

#[tokio::test]
async fn a_refused_token_and_a_missing_server_are_told_apart() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let body = "the token is not known here";
        let answer = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..length]).to_lowercase()
    });
    let error = MuxClient::connect(&url, "secret").await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "the server refused the connection (HTTP 401): the token is not known here"
    );
    assert!(server.await.unwrap().contains("authorization: bearer secret"));
    let error = MuxClient::connect(&url, "secret").await.err().unwrap();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_behind_more_frames_than_fit_is_still_found() {
    let (listener, url) = listen().await;
    let frames = crate::client::FRAMES_MAX * 2;
    let server = tokio::spawn(async move {
        let mut socket = accept(&listener).await;
        let Some(Ok(Message::Text(text))) = socket.next().await else { panic!("no command") };
        let command: Value = serde_json::from_str(&text).unwrap();
        for _ in 0..frames {
            socket.feed(frame(&json!({"event":"agent.working","phase":"thinking"}))).await.unwrap();
        }
        let answer = json!({"event":"response","id":command["id"],"cmd":command["cmd"],"success":true});
        socket.send(frame(&answer)).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
    });
    let (client, mut queue) = MuxClient::connect(&url, "t").await.unwrap();
    let response = client.call_value(json!({"cmd":"abort","session_id":"s"})).await.unwrap();
    assert!(response.success);
    for _ in 0..frames {
        assert_eq!(queue.next().await.unwrap().kind(), FrameKind::Event);
    }
    assert_eq!(queue.try_next(), None);
    drop((client, queue));
    server.await.unwrap();
}
