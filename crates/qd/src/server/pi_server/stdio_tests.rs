use super::*;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const LIMIT: usize = 200;
const TIMEOUTS: StdinEndTimeouts =
    StdinEndTimeouts { answers: Duration::from_secs(30), unread: Duration::from_secs(10) };
const READY: &str = r#"{"type":"server_ready"}"#;

/// A bridge with its ends: the program that started us, and the face.
struct Bridge {
    client: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    face: WebSocketStream<DuplexStream>,
    over: oneshot::Receiver<InputOver>,
    ending: JoinHandle<BridgeEnd>,
    /// Whoever writes stdin has gone.
    hung_up: Arc<Notify>,
}

impl Bridge {
    async fn start() -> Bridge {
        let (client, process) = tokio::io::duplex(1024);
        let (face, stream) = tokio::io::duplex(1024);
        let (input, output) = tokio::io::split(process);
        let (over_sender, over) = oneshot::channel();
        let hung_up = Arc::new(Notify::new());
        let hang_up = {
            let hung_up = Arc::clone(&hung_up);
            move || Arc::clone(&hung_up).notified_owned()
        };
        let input = BufReader::new(input);
        let ending = tokio::spawn(bridge(input, output, stream, LIMIT, TIMEOUTS, hang_up, over_sender));
        let (reading, writing) = tokio::io::split(client);
        let face = WebSocketStream::from_raw_socket(face, Role::Server, None).await;
        Bridge { client: writing, lines: BufReader::new(reading).lines(), face, over, ending, hung_up }
    }

    /// The same, greeted by the face.
    async fn greeted() -> Bridge {
        let mut bridge = Bridge::start().await;
        bridge.answer(READY).await;
        assert_eq!(bridge.line().await["type"], "server_ready");
        bridge
    }

    async fn say(&mut self, text: &[u8]) {
        self.client.write_all(text).await.unwrap();
    }

    /// What the face hears next.
    async fn heard(&mut self) -> String {
        loop {
            match self.face.next().await.unwrap().unwrap() {
                Message::Text(text) => return text.to_string(),
                other => assert!(!other.is_binary(), "{other:?}"),
            }
        }
    }

    async fn answer(&mut self, value: &str) {
        self.face.send(Message::text(value.to_owned())).await.unwrap();
    }

    async fn line(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn lines_become_frames_and_frames_lines() {
    let mut bridge = Bridge::greeted().await;
    bridge.say(b"{\"a\":1}\r\n\n{\"b\":").await;
    assert_eq!(bridge.heard().await, "{\"a\":1}");
    bridge.say("\"é\"}\n".as_bytes()).await;
    assert_eq!(bridge.heard().await, "{\"b\":\"é\"}");
}

#[tokio::test]
async fn what_is_no_message_is_answered_here_and_the_rest_goes_on() {
    let mut bridge = Bridge::start().await;
    bridge.say(&[b'x'; LIMIT + 1]).await;
    bridge.say(b"\n\xff\n{}\n").await;
    assert_eq!(bridge.heard().await, "{}", "all of it was read");
    let refused = |code: &str, error: &str| json!({"type":"response","command":"unknown","success":false,"error":error,"code":code});
    bridge.answer(READY).await;
    assert_eq!(bridge.line().await["type"], "server_ready", "nothing comes before it");
    let mut too_large = refused("too_large", "Message size 201 exceeds limit 200");
    too_large["limit"] = LIMIT.into();
    assert_eq!(bridge.line().await, too_large);
    assert_eq!(bridge.line().await, refused("invalid_request", "Invalid JSON"));
    bridge.say(format!("{{\"id\":\"long\",\"x\":\"{}\"}}\n", "x".repeat(LIMIT)).as_bytes()).await;
    assert_eq!(bridge.line().await["id"], "long");
}

#[tokio::test]
async fn the_end_of_stdin_waits_for_the_answers_due() {
    let mut bridge = Bridge::start().await;
    bridge.say(b"{\"id\":\"1\"}\n{\"id\":\"2\"}").await;
    bridge.client.shutdown().await.unwrap();
    bridge.heard().await;
    bridge.heard().await;
    bridge.answer(r#"{"type":"command_finished"}"#).await;
    bridge.answer(r#"{"type":"response","id":"1"}"#).await;
    assert_eq!(bridge.line().await["type"], "command_finished");
    assert_eq!(bridge.line().await["id"], "1");
    assert!(bridge.over.try_recv().is_err());
    bridge.answer(r#"{"type":"response","id":"2"}"#).await;
    assert_eq!(bridge.line().await["id"], "2");
    assert_eq!((&mut bridge.over).await, Ok(InputOver { unanswered: 0 }));
    bridge.answer(r#"{"type":"server_shutdown"}"#).await;
    assert_eq!(bridge.line().await["type"], "server_shutdown", "it hears the face to its end");
    bridge.face.close(None).await.unwrap();
    assert_eq!(bridge.ending.await.unwrap(), BridgeEnd::Face);
}

#[tokio::test]
async fn an_empty_stdin_still_sees_the_greeting() {
    let mut bridge = Bridge::start().await;
    bridge.client.shutdown().await.unwrap();
    bridge.answer(READY).await;
    assert_eq!(bridge.line().await["type"], "server_ready");
    assert_eq!(bridge.over.await, Ok(InputOver { unanswered: 0 }));
}

#[tokio::test(start_paused = true)]
async fn answers_that_never_come_do_not_keep_it() {
    let mut bridge = Bridge::greeted().await;
    bridge.say(b"{}\n").await;
    bridge.client.shutdown().await.unwrap();
    bridge.heard().await;
    let begin = Instant::now();
    assert_eq!(bridge.over.await, Ok(InputOver { unanswered: 1 }));
    assert!(begin.elapsed() >= TIMEOUTS.answers);
}

/// Fills stdout with more than its reader takes; returns when the bridge takes nothing more.
async fn fill(face: &mut WebSocketStream<DuplexStream>) {
    let full = async {
        loop {
            face.send(Message::text("x".repeat(500))).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(1), full).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stdout_that_nobody_reads_does_not_keep_it_after_the_end_of_stdin() {
    let mut bridge = Bridge::greeted().await;
    bridge.say(b"{}\n").await;
    bridge.heard().await;
    fill(&mut bridge.face).await;
    // As long as stdin is open somebody may come back and read.
    tokio::time::sleep(TIMEOUTS.answers * 10).await;
    assert!(!bridge.ending.is_finished());
    bridge.client.shutdown().await.unwrap();
    let begin = Instant::now();
    assert_eq!(bridge.ending.await.unwrap(), BridgeEnd::Unread);
    assert!(begin.elapsed() <= TIMEOUTS.unread + Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_same_when_the_face_takes_no_more_commands() {
    let mut bridge = Bridge::greeted().await;
    fill(&mut bridge.face).await;
    // Nobody reads them at the other end, so that the end of stdin is not reached.
    let lines = async {
        loop {
            bridge.client.write_all(b"{}\n").await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(1), lines).await.unwrap_err();
    assert!(!bridge.ending.is_finished());
    let begin = Instant::now();
    bridge.hung_up.notify_one();
    assert_eq!(bridge.ending.await.unwrap(), BridgeEnd::Unread);
    assert!(begin.elapsed() <= TIMEOUTS.unread + Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_late_gets_everything() {
    let mut bridge = Bridge::greeted().await;
    bridge.say(b"{}\n").await;
    bridge.client.shutdown().await.unwrap();
    bridge.heard().await;
    let (face, lines) = (&mut bridge.face, &mut bridge.lines);
    let send = async {
        for _ in 0..50 {
            face.send(Message::text("x".repeat(500))).await.unwrap();
        }
        face.send(Message::text(r#"{"type":"response","id":"1"}"#)).await.unwrap();
    };
    let read = async {
        tokio::time::sleep(TIMEOUTS.unread / 2).await;
        for _ in 0..50 {
            assert_eq!(lines.next_line().await.unwrap().unwrap().len(), 500);
        }
        assert!(lines.next_line().await.unwrap().unwrap().contains("response"));
    };
    tokio::join!(send, read);
    assert_eq!(bridge.over.await, Ok(InputOver { unanswered: 0 }));
}

#[tokio::test]
async fn last_words_of_the_face_are_written() {
    let mut bridge = Bridge::start().await;
    bridge.answer(r#"{"type":"server_shutdown"}"#).await;
    bridge.face.close(None).await.unwrap();
    assert_eq!(bridge.line().await["type"], "server_shutdown");
    assert_eq!(bridge.ending.await.unwrap(), BridgeEnd::Face);
}

#[tokio::test]
async fn a_reader_that_is_gone_ends_it() {
    let Bridge { client, lines, mut face, ending, .. } = Bridge::start().await;
    drop((client, lines));
    face.send(Message::text("{\"type\":\"event\"}")).await.unwrap();
    assert_eq!(ending.await.unwrap(), BridgeEnd::Output);
}

#[tokio::test]
async fn many_frames_stay_in_order() {
    let mut bridge = Bridge::start().await;
    let (face, lines) = (&mut bridge.face, &mut bridge.lines);
    let send = async {
        for number in 0..2000 {
            face.send(Message::text(format!("{{\"n\":{number}}}"))).await.unwrap();
        }
    };
    let read = async {
        for number in 0..2000 {
            assert_eq!(lines.next_line().await.unwrap().unwrap(), format!("{{\"n\":{number}}}"));
        }
    };
    tokio::join!(send, read);
}
