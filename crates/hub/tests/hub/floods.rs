//! Many connections that do nothing with their slots: they keep nobody out who has something to do.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use qd_hub::{Limits, tls};
use qd_testkit::process::raise_file_limit;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use crate::support::{TOKEN, World, soon};

/// As many as the order names.
const HOSTILE: usize = 2000;
/// Small, so that a response that nobody reads soon blocks its writer.
const RECEIVE_BUFFER_BYTES: u32 = 4096;
/// Far more than all buffers between two sockets hold.
const UNREAD_REQUESTS: usize = 100;
/// Far longer than an answer takes when both cores are busy, far shorter than any timeout here.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A connection that has sent something and reads nothing.
async fn hostile(address: SocketAddr, sent: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).unwrap();
    let mut stream = soon("a connection", socket.connect(address)).await.unwrap();
    // Whoever was evicted meanwhile cannot write any more.
    let _evicted = timeout(Duration::from_millis(50), stream.write_all(sent)).await;
    stream
}

/// One after the other, each of another kind.
async fn flood(address: SocketAddr, kinds: &[Vec<u8>]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    while all.len() < HOSTILE {
        all.extend(join_all(kinds.iter().map(|sent| hostile(address, sent))).await);
    }
    all
}

fn request(address: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_idle_or_half_reading_sockets_keep_nobody_out() {
    raise_file_limit();
    let (world, _runner) = World::start().await;
    let address = world.address;
    let unread = request(address, "/api/openapi.json").repeat(UNREAD_REQUESTS).into_bytes();
    let half = request(address, "/api/me").into_bytes();
    let half = half[..half.len() - 2].to_vec();
    let body = format!("POST /auth/login HTTP/1.1\r\nHost: {address}\r\nContent-Length: 900\r\n\r\n{{");
    let kinds = [unread.clone(), Vec::new(), half, unread, body.into_bytes(), b"\x16\x03\x01".to_vec()];
    let hostile = flood(address, &kinds).await;

    for _ in 0..10 {
        let start = Instant::now();
        let client = world.client().await;
        let (status, _) = world.api("GET", "/api/me").await;
        assert_eq!(status, 200);
        assert!(start.elapsed() < CONNECT_MAX, "{:?}", start.elapsed());
        drop(client);
    }
    drop(hostile);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_tls_handshakes_keep_nobody_out() {
    raise_file_limit();
    let directory = tempfile::tempdir().unwrap();
    let certificate = tls::self_signed(&directory.path().join("tls"), &[]).unwrap();
    let (world, _runner) = World::start_as(directory, |config| config.tls = Some(certificate.clone())).await;
    let _hostile =
        flood(world.address, &[b"\x16".to_vec(), b"\x16\x03\x01\x02\x00".to_vec(), Vec::new()]).await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let trust = qd_link::tls::Trust::Pinned(certificate.fingerprint());
    let client = qd_link::tls::client(Box::new(stream), "127.0.0.1", &trust);
    assert!(soon("a handshake", client).await.is_ok());
    world.stop().await;
}

/// Authenticated or not, whoever reads nothing of an answer is disconnected.
#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let limits = Limits { write_stall_max: Duration::from_millis(300), ..Limits::default() };
    let (world, _runner) = World::start_with(limits).await;
    let request =
        world.request_text("GET", "/api/openapi.json", &[("Authorization", &format!("Bearer {TOKEN}"))], "");
    let unread = request.replace("Connection: close\r\n", "").repeat(UNREAD_REQUESTS);
    let mut stream = hostile(world.address, unread.as_bytes()).await;
    // Requests that the hub has not read make it reset the connection, which a writer notices.
    let disconnected = async { while stream.write_all(unread.as_bytes()).await.is_ok() {} };
    soon("the end of the connection", disconnected).await;
    world.stop().await;
}
