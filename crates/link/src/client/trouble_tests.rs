//! A follower in trouble: its hub is away for long, dies at every point of a connection, or says what nobody can read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::tests::{attach_answer, frame};
use super::*;
use crate::net::{BoxedStream, Dial, DialFuture};

const OUTAGE: Duration = Duration::from_secs(600);

/// What becomes of one connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionFate {
    Refused,
    EndedBeforeHandshake,
    EndedWithinHandshake,
    EndedBeforeHello,
    ClosedBeforeHello,
    /// Attached and then ended.
    Served,
    /// Attached and kept.
    Kept,
}

/// A hub in memory; `fate` knows what becomes of the connection with this number.
struct Hub<F>(AtomicUsize, F);

impl<F: Fn(usize) -> ConnectionFate + Send + Sync + 'static> Dial for Hub<F> {
    fn dial(&self, _address: &str) -> DialFuture {
        let fate = (self.1)(self.0.fetch_add(1, Ordering::Relaxed));
        if let ConnectionFate::Refused = fate {
            return Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) });
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(far, fate));
        Box::pin(async move { Ok(Box::new(near) as BoxedStream) })
    }
}

async fn serve(mut stream: DuplexStream, fate: ConnectionFate) {
    match fate {
        ConnectionFate::Refused | ConnectionFate::EndedBeforeHandshake => {}
        ConnectionFate::EndedWithinHandshake => {
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 101 Swi").await.unwrap();
        }
        ConnectionFate::EndedBeforeHello => drop(tokio_tungstenite::accept_async(stream).await.unwrap()),
        ConnectionFate::ClosedBeforeHello => {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            socket.close(None).await.unwrap();
        }
        ConnectionFate::Served | ConnectionFate::Kept => {
            let mut socket = greeted(stream).await;
            answered(&mut socket).await;
            if let ConnectionFate::Kept = fate {
                while let Some(Ok(_)) = socket.next().await {}
            }
        }
    }
}

/// A connection on which the hub has said hello.
async fn greeted(stream: DuplexStream) -> WebSocketStream<DuplexStream> {
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let hello = json!({"channel":"system","type":"connected","protocol_version":"1.0.0","server_version":"t","connection_id":"c"});
    socket.send(Message::text(hello.to_string())).await.unwrap();
    socket
}

/// Answers the next attach and returns it.
async fn answered(socket: &mut WebSocketStream<DuplexStream>) -> Value {
    loop {
        let Some(Ok(message)) = socket.next().await else { panic!("the client left") };
        let Message::Text(text) = message else { continue };
        let command = serde_json::from_str(&text).unwrap();
        socket.send(attach_answer(&command, &[], 0)).await.unwrap();
        return command;
    }
}

async fn follow(dial: impl Dial + 'static) -> Attachment {
    let mut options = ConnectOptions::new("ws://hub", "t");
    options.dial = Arc::new(dial);
    let start = AttachStart::Attach { session_id: "s".into(), after: Some(0) };
    Attachment::open(options, start, Box::new(|| u64::MAX / 3)).await.unwrap()
}

/// The next attach, and how often the connection was lost before it.
async fn next_attached(attachment: &mut Attachment) -> usize {
    let mut losses = 0;
    loop {
        match attachment.next().await.unwrap() {
            AttachmentUpdate::Attached(_) => return losses,
            AttachmentUpdate::Disconnected { retry_in, .. } => {
                assert!(retry_in <= REATTACH_PAUSE_MAX, "{retry_in:?}");
                losses += 1;
            }
            AttachmentUpdate::Event { .. } | AttachmentUpdate::System(_) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_within_two_seconds_after_ten_minutes_without_its_hub() {
    let started = Instant::now();
    let fate = move |connection| match connection {
        0 => ConnectionFate::Served,
        _ if started.elapsed() < OUTAGE => ConnectionFate::Refused,
        _ => ConnectionFate::Kept,
    };
    let mut attachment = follow(Hub(AtomicUsize::new(0), fate)).await;
    assert_eq!(next_attached(&mut attachment).await, 0);
    let losses = next_attached(&mut attachment).await;
    assert!(losses > 100, "{losses}");
    assert!(started.elapsed() <= OUTAGE + Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hub_killed_at_any_point_of_a_connection_is_waited_for() {
    const FATES: [ConnectionFate; 8] = [
        ConnectionFate::Served,
        ConnectionFate::EndedBeforeHandshake,
        ConnectionFate::EndedWithinHandshake,
        ConnectionFate::EndedBeforeHello,
        ConnectionFate::ClosedBeforeHello,
        ConnectionFate::Refused,
        ConnectionFate::Served,
        ConnectionFate::Kept,
    ];
    let mut attachment = follow(Hub(AtomicUsize::new(0), |connection| FATES[connection])).await;
    let losses = [
        next_attached(&mut attachment).await,
        next_attached(&mut attachment).await,
        next_attached(&mut attachment).await,
    ];
    assert_eq!(losses, [0, 6, 1]);
}

/// A hub with one connection that says `answers[n]` after the attach number `n`, and keeps which cursors it was asked.
struct ScriptedHub {
    answers: Vec<Vec<Message>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Dial for ScriptedHub {
    fn dial(&self, _address: &str) -> DialFuture {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (answers, asked) = (self.answers.clone(), self.asked.clone());
        tokio::spawn(async move {
            let mut socket = greeted(far).await;
            for frames in answers {
                let command = answered(&mut socket).await;
                asked.lock().unwrap().push(command["after"].clone());
                for frame in frames {
                    socket.send(frame).await.unwrap();
                }
            }
            while let Some(Ok(_)) = socket.next().await {}
        });
        Box::pin(async move { Ok(Box::new(near) as BoxedStream) })
    }
}

fn record(seq: u64) -> Message {
    frame(&json!({"event":"notify","level":"info","message":"x","seq":seq}))
}

/// A record whose envelope lacks what it needs.
fn unreadable(seq: u64) -> Message {
    Message::text(format!(r#"{{"channel":"agent","session_id":"s","event":"notify","seq":{seq}}}"#))
}

/// A record with a body deeper than the parser goes.
fn too_deep(seq: u64) -> Message {
    let (open, close) = ("[".repeat(200), "]".repeat(200));
    Message::text(format!(
        r#"{{"channel":"agent","session_id":"s","runner_id":"local","ts":1,"event":"x-deep","a":{open}{close},"seq":{seq}}}"#
    ))
}

/// The numbers of the records that come up to `last`, the cursors asked for, and how many frames were left out.
async fn heard(answers: Vec<Vec<Message>>, last: u64) -> (Vec<u64>, Vec<Value>, u64) {
    let asked = Arc::<Mutex<Vec<Value>>>::default();
    let mut attachment = follow(ScriptedHub { answers, asked: asked.clone() }).await;
    let mut seqs = Vec::new();
    while seqs.last() != Some(&last) {
        let update = tokio::time::timeout(Duration::from_secs(10), attachment.next()).await;
        match update.expect("the record does not come").unwrap() {
            AttachmentUpdate::Event { event, .. } => seqs.extend(event.seq),
            AttachmentUpdate::Attached(_) | AttachmentUpdate::System(_) => {}
            AttachmentUpdate::Disconnected { reason, .. } => panic!("{reason}"),
        }
    }
    let asked = asked.lock().unwrap().clone();
    (seqs, asked, attachment.unreadable_frames())
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_left_out_and_the_session_goes_on() {
    let frames = vec![
        record(1),
        unreadable(2),
        too_deep(3),
        // A live event and one of another session do not move the cursor.
        Message::text(r#"{"channel":"agent","session_id":"s","event":"stream.text_delta"}"#),
        Message::text(r#"{"channel":"agent","session_id":"other","seq":9,"event":"notify"}"#),
        record(4),
    ];
    assert_eq!(heard(vec![frames], 4).await, (vec![1, 4], vec![json!(0)], 3));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_record_behind_a_hole_does_not_hide_the_hole() {
    let first = vec![record(1), unreadable(3)];
    let second = vec![record(2), unreadable(3), record(4)];
    assert_eq!(heard(vec![first, second], 4).await, (vec![1, 2, 4], vec![json!(0), json!(1)], 2));
}

#[tokio::test(start_paused = true)]
async fn a_hole_with_unreadable_frames_in_it_is_asked_for_once() {
    let hole = vec![
        Message::text(r#"{"channel":"agent","session_id":"s","event":"notify","seq":"two"}"#),
        Message::text(r#"{"channel":"agent","#),
        record(4),
    ];
    let first = [vec![record(1)], hole.clone()].concat();
    assert_eq!(heard(vec![first, hole], 4).await, (vec![1, 4], vec![json!(0), json!(1)], 4));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_resync_is_replaced_by_an_attach_and_moves_no_cursor() {
    let bad_envelope =
        Message::text(r#"{"channel":"agent","session_id":"s","event":"session.resync","seq":2}"#);
    let bad_body = frame(&json!({"event":"session.resync","seq":2,"state":7}));
    for resync in [bad_envelope, bad_body] {
        let (first, second) = (vec![record(1), resync], vec![record(2), record(3)]);
        assert_eq!(heard(vec![first, second], 3).await, (vec![1, 2, 3], vec![json!(0), json!(1)], 1));
    }
}
