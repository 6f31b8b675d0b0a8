//! A server that says what the test tells it to, in pieces of any size.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::TcpListener;

use super::*;
use crate::net::{BoxedStream, DialFuture, TcpDial};
use crate::tls::tests::Identity;

/// A server that takes one request and says `answer` in pieces; what it was asked is kept.
struct Scripted {
    answer: Vec<u8>,
    piece_bytes: usize,
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Dial for Scripted {
    fn dial(&self, _address: &str) -> DialFuture {
        let (answer, piece_bytes, asked) = (self.answer.clone(), self.piece_bytes, self.asked.clone());
        let (near, mut far) = duplex(64 * 1024);
        tokio::spawn(async move {
            let mut request = vec![0; 8 * 1024];
            let count = far.read(&mut request).await.unwrap();
            asked.lock().unwrap().extend_from_slice(&request[..count]);
            for piece in answer.chunks(piece_bytes) {
                // A client that has heard enough goes away.
                if far.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        Box::pin(async move { Ok(Box::new(near) as BoxedStream) })
    }
}

fn hub() -> ServerUrl {
    ServerUrl::parse("http://hub:7433").unwrap()
}

async fn ask(answer: &[u8], piece_bytes: usize) -> Result<(u16, Vec<u8>), RestError> {
    let dial = Scripted { answer: answer.to_vec(), piece_bytes, asked: Arc::default() };
    call(&hub(), &Trust::System, &dial, Method::GET, "/api/runners", None, None).await
}

#[tokio::test]
async fn a_call_says_what_it_must() {
    let asked = Arc::<Mutex<Vec<u8>>>::default();
    let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}".to_vec();
    let dial = Scripted { answer, piece_bytes: 7, asked: asked.clone() };
    let (path, body) = ("/api/runners/join", br#"{"code":"x"}"#);
    let answered =
        call(&hub(), &Trust::System, &dial, Method::POST, path, Some("secret"), Some(body)).await.unwrap();
    assert_eq!(answered, (201, b"{}".to_vec()));
    let asked = String::from_utf8(asked.lock().unwrap().clone()).unwrap();
    assert_eq!(
        asked,
        "POST /api/runners/join HTTP/1.1\r\nhost: hub:7433\r\naccept: application/json\r\nconnection: close\r\n\
         authorization: Bearer secret\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"code\":\"x\"}"
    );
}

#[tokio::test]
async fn answers_of_every_kind_are_read() {
    let cases: [(&[u8], u16, &[u8]); 7] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            200,
            b"hello",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
            200,
            b"hello",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", 409, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
    ];
    for (answer, status, body) in cases {
        for piece_bytes in [1, 3, 1000] {
            let got = ask(answer, piece_bytes).await.unwrap();
            assert_eq!(got, (status, body.to_vec()), "{}", String::from_utf8_lossy(answer));
        }
    }
}

#[tokio::test]
async fn broken_and_hostile_answers_are_errors() {
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; ANSWER_BYTES_MAX + 1]].concat();
    let long_head = [b"HTTP/1.1 200 OK\r\nA: ".to_vec(), vec![b'x'; 1 << 20]].concat();
    // As many as fit into an answer: a reader that goes one step deeper for each of them runs out of stack.
    let interim = b"HTTP/1.1 100 C\r\n\r\n".repeat(ANSWER_BYTES_MAX / 18);
    let cases: [(&[u8], &str); 11] = [
        (&interim, "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "broke off"),
        (b"", "broke off"),
        (b"SSH-2.0-server\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size"),
        (&endless, "longer than"),
        (&long_head, "head is too long"),
    ];
    for (answer, expected) in cases {
        let error = ask(answer, 8 * 1024).await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("hub:7433"), "{expected}: {error}");
    }
}

#[tokio::test]
async fn what_would_split_the_request_is_not_sent() {
    let dial = Scripted { answer: Vec::new(), piece_bytes: 1, asked: Arc::default() };
    let cases =
        [("/a b", None), ("a", None), ("/a\r\nX: y", None), ("/a", Some("t\r\nX: y")), ("/a", Some("é"))];
    for (path, bearer) in cases {
        let error = call(&hub(), &Trust::System, &dial, Method::GET, path, bearer, None).await.unwrap_err();
        assert!(matches!(error, RestError::BadCall(_)), "{path}: {error}");
    }
    let socket = ServerUrl::parse("unix:/tmp/a").unwrap();
    let error = call(&socket, &Trust::System, &dial, Method::GET, "/", None, None).await.unwrap_err();
    assert!(matches!(error, RestError::BadCall(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_says_nothing_is_given_up() {
    struct Nowhere;
    impl Dial for Nowhere {
        fn dial(&self, _address: &str) -> DialFuture {
            Box::pin(std::future::pending())
        }
    }
    let error = call(&hub(), &Trust::System, &Nowhere, Method::GET, "/", None, None).await.unwrap_err();
    assert!(matches!(error, RestError::Unreachable { .. }), "{error}");

    #[derive(Default)]
    struct Silent(std::sync::Mutex<Vec<tokio::io::DuplexStream>>);
    impl Dial for Silent {
        fn dial(&self, _address: &str) -> DialFuture {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            self.0.lock().unwrap().push(theirs);
            Box::pin(async move { Ok(Box::new(ours) as crate::net::BoxedStream) })
        }
    }
    let silent = Silent::default();
    let error = call(&hub(), &Trust::System, &silent, Method::GET, "/", None, None).await.unwrap_err();
    assert!(matches!(error, RestError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn a_call_goes_over_tls_to_the_pinned_hub_only() {
    let identity = Identity::new("hub.home");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = ServerUrl::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let acceptor = identity.acceptor();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust us ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    let trust = Trust::Pinned(identity.fingerprint());
    let answer = call(&url, &trust, &TcpDial, Method::DELETE, "/x", None, None).await.unwrap();
    assert_eq!(answer, (200, b"{}".to_vec()));
    let wrong = Trust::Pinned(Identity::new("hub.home").fingerprint());
    let error = call(&url, &wrong, &TcpDial, Method::DELETE, "/x", None, None).await.unwrap_err();
    assert!(matches!(error, RestError::Untrusted { .. }), "{error}");
}

proptest! {
    #[test]
    fn no_answer_makes_the_reader_panic(answer in proptest::collection::vec(any::<u8>(), 0..300), chunked: bool) {
        let head: &[u8] = if chunked { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"HTTP/1." };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Whatever it says is fine, as long as it says it.
        let _said = runtime.block_on(ask(&[head, &answer].concat(), 1000));
    }
}
