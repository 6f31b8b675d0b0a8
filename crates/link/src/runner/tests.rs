//! Hubs on real sockets that take one key and refuse the others.

use std::sync::Mutex;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;

use super::*;
use crate::net::DialFuture;
use crate::tls::tests::Identity;

/// A hub that echoes the lines of runner `r1` with the key `good`, and writes down which keys it was shown.
struct Hub {
    url: ServerUrl,
    shown: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    async fn start(identity: Option<&Identity>) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if identity.is_some() { "https" } else { "ws" };
        let url = ServerUrl::parse(&format!("{scheme}://{}", listener.local_addr().unwrap())).unwrap();
        let shown = Arc::<Mutex<Vec<String>>>::default();
        let (acceptor, seen) = (identity.map(Identity::acceptor), shown.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &acceptor {
                    Some(acceptor) => {
                        // A runner that does not trust us ends the handshake.
                        let Ok(stream) = acceptor.accept(stream).await else { continue };
                        serve(stream, &seen).await;
                    }
                    None => serve(stream, &seen).await,
                }
            }
        });
        Hub { url, shown }
    }

    fn dialer(&self, keys: &[&str]) -> RunnerDialer {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        RunnerDialer::new(self.url.clone(), "r1", Arc::new(move || keys.clone()))
    }
}

#[allow(clippy::result_large_err, reason = "the library's type")]
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shown: &Mutex<Vec<String>>) {
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let header =
            |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        shown.lock().unwrap().push(header("authorization").to_owned());
        let is_known = header("authorization") == "Bearer good" && header("x-qd-runner") == "r1";
        if request.uri().path() == "/ws/runner" && is_known {
            return Ok(response);
        }
        let mut refusal = ErrorResponse::new(Some(r#"{"error":"this key is not r1's"}"#.to_owned()));
        *refusal.status_mut() = StatusCode::UNAUTHORIZED;
        Err(refusal)
    };
    if let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, check).await {
        let mut end = over_websocket(socket, &SocketOptions::default());
        tokio::spawn(async move {
            while let Some(block) = end.receiver.recv().await {
                end.sender.send(block).await.unwrap();
            }
        });
    }
}

async fn echo(mut link: LinkEnd) {
    link.sender.send(Bytes::from_static(b"{}\n")).await.unwrap();
    assert_eq!(link.receiver.recv().await.as_deref(), Some(&b"{}\n"[..]));
}

/// The hub says no and goes, while the runner sends without a pause: the word must arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_word_of_a_hub_is_heard_in_the_noise() {
    for _ in 0..30 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = ServerUrl::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let hub = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
            let mut end = over_websocket(socket, &SocketOptions::default());
            assert!(end.receiver.recv().await.is_some());
            end.sender.send(Bytes::from_static(b"refused\n")).await.unwrap();
        });
        let dialer = RunnerDialer::new(url, "r1", Arc::new(|| vec!["good".to_owned()]));
        let LinkEnd { sender, mut receiver } = dialer.connect().await.unwrap();
        let noise = Bytes::from([vec![b'x'; 50_000], b"\n".to_vec()].concat());
        let noise = tokio::spawn(async move { while sender.send(noise.clone()).await.is_ok() {} });
        assert_eq!(receiver.recv().await.as_deref(), Some(&b"refused\n"[..]), "{}", receiver.close_reason());
        assert_eq!(receiver.recv().await, None);
        assert_eq!(receiver.close_reason(), "the other end closed the link");
        noise.await.unwrap();
        hub.await.unwrap();
    }
}

async fn failure(dialer: &RunnerDialer) -> ConnectFailure {
    dialer.connect().await.err().expect("there must be no link")
}

#[tokio::test]
async fn keys_are_tried_in_their_order_until_one_is_taken() {
    let hub = Hub::start(None).await;
    echo(hub.dialer(&["good"]).connect().await.unwrap()).await;
    echo(hub.dialer(&["old", "good"]).connect().await.unwrap()).await;
    assert_eq!(*hub.shown.lock().unwrap(), ["Bearer good", "Bearer old", "Bearer good"]);
    let failed = failure(&hub.dialer(&["old", "older"])).await;
    assert!(failed.is_refusal);
    assert!(failed.reason.ends_with("(HTTP 401): this key is not r1's"), "{failed}");
    let failed = failure(&hub.dialer(&[])).await;
    assert!(failed.is_refusal && failed.reason.contains("qd runner join"), "{failed}");
    let failed = failure(&hub.dialer(&["hush\n"])).await;
    assert!(failed.is_refusal && !failed.reason.contains("hush"), "no secret in the reason: {failed}");
}

#[tokio::test]
async fn keys_are_asked_for_at_each_attempt() {
    let hub = Hub::start(None).await;
    let keys = Arc::new(Mutex::new(vec!["old".to_owned()]));
    let kept = keys.clone();
    let dialer = RunnerDialer::new(hub.url.clone(), "r1", Arc::new(move || kept.lock().unwrap().clone()));
    assert!(failure(&dialer).await.is_refusal);
    keys.lock().unwrap().push("good".to_owned());
    echo(dialer.connect().await.unwrap()).await;
}

#[tokio::test]
async fn nothing_unencrypted_leaves_the_machine_unless_allowed() {
    struct Never;
    impl Dial for Never {
        fn dial(&self, address: &str) -> DialFuture {
            let error = std::io::Error::other(format!("dialled {address}"));
            Box::pin(async move { Err(error) })
        }
    }
    let url = ServerUrl::parse("ws://hub.example:7433").unwrap();
    let mut dialer = RunnerDialer::new(url, "r1", Arc::new(|| vec!["good".to_owned()]));
    dialer.dial = Arc::new(Never);
    let failed = failure(&dialer).await;
    assert!(failed.is_refusal && failed.reason.contains("unencrypted"), "{failed}");
    dialer.allow_plain = true;
    let failed = failure(&dialer).await;
    assert!(!failed.is_refusal && failed.reason.contains("dialled hub.example:7433"), "{failed}");
}

#[tokio::test]
async fn the_pinned_hub_is_reached_over_tls_and_no_other() {
    let identity = Identity::new("hub.home");
    let hub = Hub::start(Some(&identity)).await;
    let mut dialer = hub.dialer(&["good"]);
    dialer.trust = Trust::Pinned(identity.fingerprint());
    echo(dialer.connect().await.unwrap()).await;
    let other = Identity::new("hub.home");
    dialer.trust = Trust::Pinned(other.fingerprint());
    let failed = failure(&dialer).await;
    assert!(failed.is_refusal && failed.reason.contains(&identity.fingerprint().to_string()), "{failed}");
    dialer.trust = Trust::System;
    assert!(failure(&dialer).await.is_refusal);
    assert_eq!(hub.shown.lock().unwrap().len(), 1, "the key is shown to the trusted hub only");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_away_or_says_nothing_is_no_refusal() {
    struct Silent;
    impl Dial for Silent {
        fn dial(&self, _address: &str) -> DialFuture {
            let (near, far) = tokio::io::duplex(1024);
            Box::pin(async move {
                // Taken and never read, so that the handshake waits.
                std::mem::forget(far);
                Ok(Box::new(near) as crate::net::BoxedStream)
            })
        }
    }
    let url = ServerUrl::parse("ws://127.0.0.1:9").unwrap();
    let mut dialer = RunnerDialer::new(url, "r1", Arc::new(|| vec!["good".to_owned()]));
    dialer.dial = Arc::new(Silent);
    let started = tokio::time::Instant::now();
    let failed = failure(&dialer).await;
    assert!(!failed.is_refusal && failed.reason.contains("did not answer"), "{failed}");
    assert_eq!(started.elapsed(), CONNECT_TIMEOUT);
}
