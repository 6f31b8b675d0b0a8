//! Links over streams that are small, slow, cut or hostile. Time is simulated where it matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex,
};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// Two streams joined by a cable that can be cut: then what is written vanishes, and nothing is heard of it, not even
/// that the other end is gone.
fn cable(is_cut: &Arc<AtomicBool>) -> (DuplexStream, DuplexStream) {
    let (left, left_far) = duplex(64 * 1024);
    let (right, right_far) = duplex(64 * 1024);
    let (left_read, left_write) = tokio::io::split(left_far);
    let (right_read, right_write) = tokio::io::split(right_far);
    tokio::spawn(pump(left_read, right_write, is_cut.clone()));
    tokio::spawn(pump(right_read, left_write, is_cut.clone()));
    (left, right)
}

async fn pump(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, is_cut: Arc<AtomicBool>) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !is_cut.load(Ordering::Relaxed) {
            to.write_all(&buffer[..count]).await.unwrap();
        }
    }
    std::future::pending::<()>().await;
}

async fn websocket<S>(stream: S, role: Role, options: &SocketOptions) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    WebSocketStream::from_raw_socket(stream, role, Some(options.websocket_config())).await
}

async fn joined(buffer_bytes: usize, options: &SocketOptions) -> (LinkEnd, LinkEnd) {
    let (left, right) = duplex(buffer_bytes);
    let left = over_websocket(websocket(left, Role::Client, options).await, options);
    let right = over_websocket(websocket(right, Role::Server, options).await, options);
    (left, right)
}

/// A link and, as its peer, a WebSocket that does what the test says.
async fn against(options: &SocketOptions) -> (LinkEnd, WebSocketStream<DuplexStream>) {
    let (left, right) = duplex(64 * 1024);
    let left = over_websocket(websocket(left, Role::Server, options).await, options);
    (left, websocket(right, Role::Client, options).await)
}

async fn ending(mut end: LinkEnd) -> String {
    while end.receiver.recv().await.is_some() {}
    end.receiver.close_reason()
}

#[tokio::test]
async fn both_ends_send_much_at_once_and_all_arrives() {
    const BLOCK_BYTES: usize = 100_000;
    const BLOCKS: usize = 64 * 1024 * 1024 / BLOCK_BYTES + 1;
    let options = SocketOptions::default();
    let (left, right) = joined(1024, &options).await;
    let exchange = |end: LinkEnd, own: u8, other: u8| async move {
        let LinkEnd { sender, mut receiver } = end;
        let sending = tokio::spawn(async move {
            let mut block = vec![own; BLOCK_BYTES];
            block[BLOCK_BYTES - 1] = b'\n';
            let block = Bytes::from(block);
            for _ in 0..BLOCKS {
                sender.send(block.clone()).await.unwrap();
            }
            sender
        });
        for _ in 0..BLOCKS {
            let block = receiver.recv().await.expect("the link must not end");
            assert_eq!((block.len(), block[0], block[BLOCK_BYTES / 2]), (BLOCK_BYTES, other, other));
        }
        (sending.await.unwrap(), receiver)
    };
    let exchange = async { tokio::join!(exchange(left, b'l', b'r'), exchange(right, b'r', b'l')) };
    let ((left_sender, _left), (_right_sender, mut right)) =
        tokio::time::timeout(Duration::from_secs(60), exchange).await.expect("nothing may stand still");
    drop(left_sender);
    assert_eq!(right.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_cut_cable_is_noticed_on_both_sides() {
    let options = SocketOptions::default();
    let is_cut = Arc::new(AtomicBool::new(false));
    let (left, right) = cable(&is_cut);
    let left = over_websocket(websocket(left, Role::Client, &options).await, &options);
    let mut right = over_websocket(websocket(right, Role::Server, &options).await, &options);
    // Idle for an hour: pings keep it alive.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    left.sender.send(Bytes::from_static(b"{}\n")).await.unwrap();
    assert_eq!(right.receiver.recv().await.as_deref(), Some(&b"{}\n"[..]));
    is_cut.store(true, Ordering::Relaxed);
    let cut_at = Instant::now();
    let notices = async |end: LinkEnd| {
        let sender = end.sender.clone();
        let reason = ending(end).await;
        sender.closed().await;
        (reason, cut_at.elapsed())
    };
    let (left, right) = tokio::join!(notices(left), notices(right));
    for (reason, after) in [left, right] {
        assert_eq!(reason, "nothing was heard from the other end for 20 s");
        assert!(after <= Duration::from_secs(30), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_for_room_does_not_kill_a_live_peer() {
    let options = SocketOptions::default();
    let (mut left, right) = joined(16 * 1024, &options).await;
    // More than the queue takes, less than queue and stream take together: the peer's writes do not wait.
    for _ in 0..crate::memory::BLOCKS_MAX + 3 {
        right.sender.send(Bytes::from_static(b"{}\n")).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    for _ in 0..crate::memory::BLOCKS_MAX + 3 {
        assert!(left.receiver.recv().await.is_some(), "{}", left.receiver.close_reason());
    }
    left.sender.send(Bytes::from_static(b"back\n")).await.unwrap();
    let mut right = right;
    assert_eq!(right.receiver.recv().await.as_deref(), Some(&b"back\n"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_is_noticed() {
    let options = SocketOptions::default();
    let (mut left, peer) = against(&options).await;
    // The peer goes on to send, and never reads.
    let (mut writing, _unread) = peer.split();
    let started = Instant::now();
    let blast = async {
        let block = Bytes::from([b"x".repeat(9_999), b"\n".to_vec()].concat());
        while left.sender.send(block.clone()).await.is_ok() {}
        started.elapsed()
    };
    let chatter = async {
        while writing.send(Message::text("{}")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let receiver = &mut left.receiver;
    let listen = async { while receiver.recv().await.is_some() {} };
    let after = tokio::select! {
        (after, ()) = async { tokio::join!(blast, listen) } => after,
        () = chatter => panic!("the link ends first"),
    };
    assert!(after >= Duration::from_secs(20) && after <= Duration::from_secs(30), "{after:?}");
    assert_eq!(left.receiver.close_reason(), "the other end accepted no data for 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_long_message_on_a_slow_line_is_no_silence() {
    // With little room the writer waits for each piece; with much room all is written at once and pings stand far
    // behind it, so that only the bytes themselves show that the peer lives.
    for buffer_bytes in [8 * 1024, 4 * 1024 * 1024] {
        send_slowly(buffer_bytes).await;
    }
}

async fn send_slowly(buffer_bytes: usize) {
    let options = SocketOptions::default();
    let (left, left_far) = duplex(buffer_bytes);
    let (right_far, right) = duplex(8 * 1024);
    let left = over_websocket(websocket(left, Role::Client, &options).await, &options);
    let mut right = over_websocket(websocket(right, Role::Server, &options).await, &options);
    let (mut left_read, mut left_write) = tokio::io::split(left_far);
    let (mut right_read, mut right_write) = tokio::io::split(right_far);
    // 8 KiB each second: the message takes over two minutes.
    tokio::spawn(async move {
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(count @ 1..) = left_read.read(&mut buffer).await {
            tokio::time::sleep(Duration::from_secs(1)).await;
            right_write.write_all(&buffer[..count]).await.unwrap();
        }
    });
    tokio::spawn(async move { tokio::io::copy(&mut right_read, &mut left_write).await });
    let mut block = "é".repeat(512 * 1024).into_bytes();
    block.push(b'\n');
    let started = Instant::now();
    left.sender.send(Bytes::from(block.clone())).await.unwrap();
    let received = right.receiver.recv().await;
    assert!(received.is_some(), "{}", right.receiver.close_reason());
    assert_eq!(received.unwrap(), block);
    assert!(started.elapsed() > Duration::from_secs(60), "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_was_sent_arrives_before_the_goodbye() {
    let options = SocketOptions::default();
    let (left, mut right) = joined(1024, &options).await;
    for number in 0..50 {
        left.sender.send(Bytes::from(format!("{{\"n\":{number}}}\n"))).await.unwrap();
    }
    drop(left);
    for number in 0..50 {
        let block = right.receiver.recv().await.expect("nothing is lost");
        assert_eq!(block, format!("{{\"n\":{number}}}\n"));
    }
    assert_eq!(right.receiver.recv().await, None);
    assert_eq!(right.receiver.close_reason(), "the other end closed the link");
    right.sender.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_nobody_reads_ends_though_senders_are_kept() {
    let options = SocketOptions::default();
    let (left, right) = joined(1024, &options).await;
    let LinkEnd { sender, receiver } = left;
    drop(receiver);
    sender.send(Bytes::from_static(b"last\n")).await.unwrap();
    let mut right = right;
    assert_eq!(right.receiver.recv().await.as_deref(), Some(&b"last\n"[..]));
    tokio::time::timeout(Duration::from_secs(5), sender.closed()).await.expect("the link ends");
    assert_eq!(ending(right).await, "the other end closed the link");
}

#[tokio::test]
async fn a_missing_line_end_is_added_and_an_empty_message_is_none() {
    let options = SocketOptions::default();
    let (mut left, mut peer) = against(&options).await;
    for text in ["{\"a\":1}", "", "{}\n{}\n"] {
        peer.send(Message::text(text)).await.unwrap();
    }
    assert_eq!(left.receiver.recv().await.as_deref(), Some(&b"{\"a\":1}\n"[..]));
    assert_eq!(left.receiver.recv().await.as_deref(), Some(&b"{}\n{}\n"[..]));
}

#[tokio::test]
async fn a_block_that_is_not_utf8_does_not_end_the_link() {
    let (left, mut right) = joined(1024, &SocketOptions::default()).await;
    left.sender.send(Bytes::from_static(b"{\"a\":\"\xff\"}\n")).await.unwrap();
    assert_eq!(right.receiver.recv().await.as_deref(), Some("{\"a\":\"\u{fffd}\"}\n".as_bytes()));
}

#[tokio::test]
async fn blocks_are_packed_only_when_both_agreed_and_only_long_ones() {
    let options = SocketOptions::default();
    let (left, mut peer) = against(&options).await;
    let long = Bytes::from([b"x".repeat(2_000), b"\n".to_vec()].concat());
    left.sender.send(long.clone()).await.unwrap();
    assert!(peer.next().await.unwrap().unwrap().is_text());
    left.sender.set_compression(true);
    left.sender.send(Bytes::from_static(b"short\n")).await.unwrap();
    assert!(peer.next().await.unwrap().unwrap().is_text());
    left.sender.send(long.clone()).await.unwrap();
    let packed = peer.next().await.unwrap().unwrap();
    assert!(packed.is_binary() && packed.len() < 200, "{} bytes", packed.len());
    assert_eq!(packing::unpack(&packed.into_data(), 10_000).unwrap(), long);
}

#[tokio::test]
async fn hostile_messages_end_the_link_with_a_reason() {
    let options = SocketOptions { message_bytes_max: 10_000, ..SocketOptions::default() };
    let bomb = packing::pack(&[b'x'; 10_001]).unwrap();
    let cases = [
        (Message::Binary(bomb), "packed block of more than 10000 bytes"),
        (Message::binary(vec![1, 0xff, 0xff]), "cannot be unpacked"),
        (Message::binary(vec![9]), "unknown packing (9)"),
        (Message::binary(Vec::new()), "empty binary message"),
        (Message::text("x".repeat(10_001)), "too much at once"),
    ];
    for (message, expected) in cases {
        let (left, mut peer) = against(&options).await;
        peer.send(message).await.unwrap();
        let sender = left.sender.clone();
        let reason = ending(left).await;
        assert!(reason.contains(expected), "{reason}");
        sender.closed().await;
        // The peer is told, so that its log says why.
        match peer.next().await.unwrap().unwrap() {
            Message::Close(Some(close)) => assert!(reason.starts_with(close.reason.as_str())),
            other => panic!("{other:?} instead of a goodbye"),
        }
    }
}

#[tokio::test]
async fn a_block_too_long_to_send_ends_the_link_with_a_reason() {
    let options = SocketOptions { message_bytes_max: 10_000, ..SocketOptions::default() };
    let (left, right) = joined(1024, &options).await;
    left.sender.send(Bytes::from(vec![b'\n'; 10_001])).await.unwrap();
    let (left, right) = tokio::join!(ending(left), ending(right));
    assert!(left.contains("a block of 10001 bytes cannot be sent"), "{left}");
    assert!(right.contains("a block of 10001 bytes cannot be sent"), "{right}");
}

#[tokio::test]
async fn a_peer_that_breaks_off_is_told_from_one_that_says_goodbye() {
    let options = SocketOptions::default();
    let (left, peer) = against(&options).await;
    drop(peer);
    assert_eq!(ending(left).await, "the connection broke off");
    let (left, mut peer) = against(&options).await;
    peer.close(None).await.unwrap();
    assert_eq!(ending(left).await, "the other end closed the link");
}

#[tokio::test]
async fn waiting_blocks_are_bounded_in_bytes() {
    let options = SocketOptions::default();
    let (mut left, right) = joined(1024, &options).await;
    let block = Bytes::from([b"x".repeat(1024 * 1024), b"\n".to_vec()].concat());
    let sender = right.sender.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..20 {
            sender.send(block.clone()).await.unwrap();
        }
    });
    sending.await.unwrap();
    // 64 blocks would fit the queue; 4 MiB take 3 of them.
    let deadline = Instant::now() + Duration::from_secs(20);
    while left.receiver.waiting() < 3 {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(left.receiver.waiting(), 3);
    for _ in 0..20 {
        assert_eq!(left.receiver.recv().await.map(|block| block.len()), Some(1024 * 1024 + 1));
    }
    drop(right);
}

fn lines_options() -> SocketOptions {
    SocketOptions { message_bytes_max: 10_000, ..SocketOptions::default() }
}

#[tokio::test]
async fn lines_arrive_in_whole_and_the_last_needs_no_end() {
    let (left, mut peer) = duplex(64);
    let mut left = over_lines(left, &lines_options());
    peer.write_all(b"{\"a\":").await.unwrap();
    peer.write_all(b"1}\n{}\n{\"b\"").await.unwrap();
    let mut got = left.receiver.recv().await.unwrap().to_vec();
    peer.write_all(b":2}\n{\"c\":3}").await.unwrap();
    left.sender.send(Bytes::from_static(b"{\"d\":4}\n")).await.unwrap();
    let mut answer = [0; 8];
    peer.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"{\"d\":4}\n");
    drop(peer);
    while let Some(block) = left.receiver.recv().await {
        assert!(block.ends_with(b"\n"));
        got.extend_from_slice(&block);
    }
    assert_eq!(String::from_utf8(got).unwrap(), "{\"a\":1}\n{}\n{\"b\":2}\n{\"c\":3}\n");
    assert_eq!(left.receiver.close_reason(), "the other end closed the link");
}

#[tokio::test]
async fn an_endless_line_ends_the_link() {
    let (left, mut peer) = duplex(1024);
    let left = over_lines(left, &lines_options());
    let writing = tokio::spawn(async move { while peer.write_all(&[b'x'; 512]).await.is_ok() {} });
    assert_eq!(ending(left).await, "the other end sent a line of more than 10000 bytes");
    writing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_local_client_that_stops_reading_is_let_go() {
    let (left, _peer) = duplex(1024);
    let left = over_lines(left, &lines_options());
    // Idle lines need no pings.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!left.sender.is_closed());
    left.sender.send(Bytes::from(vec![b'\n'; 9_000])).await.unwrap();
    assert_eq!(ending(left).await, "the other end accepted no data for 20 s");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is sent arrives, byte for byte and in order, in any packing and through any stream.
    #[test]
    fn blocks_survive_the_way(
        blocks in proptest::collection::vec(("[a-zé\"\\\\\n]{0,40}", 1_usize..4_000, any::<bool>()), 1..30),
        buffer_bytes in 1_usize..5_000,
        is_websocket: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let options = SocketOptions::default();
            let (left, mut right) = if is_websocket {
                joined(buffer_bytes, &options).await
            } else {
                let (left, right) = duplex(buffer_bytes);
                (over_lines(left, &options), over_lines(right, &options))
            };
            let blocks: Vec<(Bytes, bool)> = blocks
                .into_iter()
                .map(|(text, times, is_packed)| (Bytes::from(text.repeat(times) + "\n"), is_packed))
                .collect();
            let expected = blocks.iter().map(|(block, _)| block.as_ref()).collect::<Vec<_>>().concat();
            tokio::spawn(async move {
                for (block, is_packed) in blocks {
                    left.sender.set_compression(is_packed);
                    left.sender.send(block).await.unwrap();
                }
            });
            let mut got = Vec::new();
            while let Some(block) = right.receiver.recv().await {
                assert!(block.ends_with(b"\n"));
                got.extend_from_slice(&block);
            }
            assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
        });
    }
}
