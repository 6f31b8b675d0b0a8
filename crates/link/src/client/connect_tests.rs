//! Connecting to servers that are right, wrong, or somebody else.

use std::sync::Mutex;

use futures_util::SinkExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::client::MuxClient;
use crate::net::DialFuture;
use crate::tls::tests::Identity;

const CONNECTED: &str = r#"{"channel":"system","type":"connected","protocol_version":"1.0.0","server_version":"t","connection_id":"c9"}"#;

async fn hub(identity: &Identity) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = identity.acceptor();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us ends the handshake.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                socket.send(Message::text(CONNECTED)).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    // A client that went away needs no echo.
                    let _gone = socket.send(message).await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_hub_is_reached_over_tls_when_its_certificate_counts() {
    let identity = Identity::new("hub.home");
    let mut options = ConnectOptions::new(&hub(&identity).await, "token");
    options.trust = Trust::Pinned(identity.fingerprint());
    let (client, mut frames) = MuxClient::connect_with(&options).await.unwrap();
    assert_eq!(client.server().connection_id, "c9");
    client.send_text("echo".to_owned()).await.unwrap();
    assert_eq!(frames.next().await.unwrap().text(), "echo");
    let other = Identity::new("hub.home");
    for trust in [Trust::System, Trust::Pinned(other.fingerprint())] {
        options.trust = trust;
        let error = MuxClient::connect_with(&options).await.err().unwrap();
        assert!(matches!(error, ConnectError::Untrusted { .. }) && !error.is_temporary(), "{error}");
    }
}

#[tokio::test]
async fn the_network_is_the_one_that_was_given() {
    struct Recorded(Mutex<Vec<String>>);
    impl Dial for Recorded {
        fn dial(&self, address: &str) -> DialFuture {
            self.0.lock().unwrap().push(address.to_owned());
            Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
        }
    }
    let network = Arc::new(Recorded(Mutex::default()));
    let mut options = ConnectOptions::new("ws://hub:1", "token");
    options.dial = network.clone();
    let error = MuxClient::connect_with(&options).await.err().unwrap();
    assert!(matches!(error, ConnectError::Unreachable { .. }) && error.is_temporary(), "{error}");
    assert_eq!(*network.0.lock().unwrap(), ["hub:1"]);
    options.url = "ftp://hub".to_owned();
    let error = MuxClient::connect_with(&options).await.err().unwrap();
    assert!(matches!(error, ConnectError::BadUrl { .. }), "{error}");
}

/// A server in memory that does to each connection what the test wants, from the first byte on.
struct Scripted<F>(F);

impl<F, T> Dial for Scripted<F>
where
    F: Fn(tokio::io::DuplexStream) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    fn dial(&self, _address: &str) -> DialFuture {
        let (near, far) = tokio::io::duplex(16 * 1024);
        tokio::spawn((self.0)(far));
        Box::pin(async move { Ok(Box::new(near) as BoxedStream) })
    }
}

async fn refused_by<F, T>(serve: F) -> ConnectError
where
    F: Fn(tokio::io::DuplexStream) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let mut options = ConnectOptions::new("ws://hub", "token");
    options.dial = Arc::new(Scripted(serve));
    MuxClient::connect_with(&options).await.err().unwrap()
}

/// Reads the request and answers with these bytes, then ends the connection.
async fn answer(mut stream: tokio::io::DuplexStream, answer: &[u8]) {
    let mut request = [0; 4096];
    assert!(stream.read(&mut request).await.unwrap() > 0);
    stream.write_all(answer).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_ends_the_connection_before_its_first_frame_is_tried_again() {
    let ends = [
        refused_by(async |stream| drop(stream)).await,
        refused_by(|stream| answer(stream, b"")).await,
        refused_by(|stream| answer(stream, b"HTTP/1.1 101 Switching Pro")).await,
        refused_by(async |stream| drop(tokio_tungstenite::accept_async(stream).await.unwrap())).await,
        refused_by(async |stream| {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            socket.close(None).await.unwrap();
        })
        .await,
        refused_by(async |stream| {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            // The head of a frame of 126 bytes and nothing of them.
            socket.get_mut().write_all(&[0x81, 0x7d]).await.unwrap();
        })
        .await,
        refused_by(|stream| answer(stream, b"HTTP/1.1 503 Busy\r\n\r\n")).await,
    ];
    for (index, error) in ends.iter().enumerate() {
        assert!(matches!(error, ConnectError::Unreachable { .. }), "case {index}: {error}");
        assert!(error.is_temporary(), "case {index}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_speaks_something_else_is_no_hub() {
    let strangers = [
        refused_by(|stream| answer(stream, b"HTTP/1.1 404 Not Found\r\n\r\n")).await,
        refused_by(|stream| answer(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await,
        refused_by(|stream| answer(stream, b"SSH-2.0-server\r\n")).await,
        refused_by(async |stream| {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            socket.send(Message::text("welcome to the chat")).await.unwrap();
        })
        .await,
        refused_by(async |stream| {
            let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            // A frame with a reserved opcode.
            socket.get_mut().write_all(&[0x8f, 0x00]).await.unwrap();
        })
        .await,
    ];
    for (index, error) in strangers.iter().enumerate() {
        assert!(matches!(error, ConnectError::NotQuarterdeck { .. }), "case {index}: {error}");
        assert!(!error.is_temporary(), "case {index}");
    }
}

/// A hub in memory that says hello and then what the test wants.
struct InMemory<F>(F);

impl<F, T> Dial for InMemory<F>
where
    F: Fn(WebSocketStream<tokio::io::DuplexStream>) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send,
{
    fn dial(&self, _address: &str) -> DialFuture {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let serve = self.0.clone();
        tokio::spawn(async move {
            let mut socket = tokio_tungstenite::accept_async(far).await.unwrap();
            socket.send(Message::text(CONNECTED)).await.unwrap();
            serve(socket).await;
        });
        Box::pin(async move { Ok(Box::new(near) as BoxedStream) })
    }
}

async fn meet<F, T>(serve: F) -> (MuxClient, crate::client::FrameQueue)
where
    F: Fn(WebSocketStream<tokio::io::DuplexStream>) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send,
{
    let mut options = ConnectOptions::new("ws://hub", "token");
    options.dial = Arc::new(InMemory(serve));
    MuxClient::connect_with(&options).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_given_up_and_one_that_answers_pings_is_not() {
    let (client, mut frames) = meet(async |socket| {
        let _held = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let started = tokio::time::Instant::now();
    assert!(frames.next().await.is_none());
    assert_eq!(frames.close_reason(), "the server does not answer pings");
    assert_eq!(started.elapsed(), Duration::from_secs(60));
    assert!(client.send_text("late".to_owned()).await.is_err());
    let (_client, mut frames) = meet(async |mut socket| while let Some(Ok(_)) = socket.next().await {}).await;
    let hour = tokio::time::timeout(Duration::from_secs(3600), frames.next()).await;
    assert!(hour.is_err(), "{}", frames.close_reason());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_and_does_not_listen_is_given_up() {
    let (client, mut frames) = meet(async |socket| {
        let (mut sink, _unread) = socket.split();
        // The client ends it.
        while sink.send(Message::text("{}")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let noise = tokio::spawn(async move { while client.send_text("x".repeat(1024)).await.is_ok() {} });
    let started = tokio::time::Instant::now();
    while frames.next().await.is_some() {}
    assert_eq!(frames.close_reason(), "the server accepts no more data");
    assert!(started.elapsed() <= Duration::from_secs(80), "{:?}", started.elapsed());
    noise.await.unwrap();
}
