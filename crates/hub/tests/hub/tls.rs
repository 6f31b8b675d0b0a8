//! The hub behind TLS: clients that know its fingerprint get in, plain ones are told what to do.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use qd_hub::{HubTls, tls};
use qd_link::net::{BoxedStream, Dial, TcpDial};
use qd_link::runner::{HubConnector, RunnerDialer};
use qd_link::tls::{Fingerprint, Trust, client};
use qd_link::url::ServerUrl;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

use crate::support::{Runner, TOKEN, World, assert_fields, exchange, soon};

async fn start_with_runner() -> (World, Runner, HubTls) {
    let directory = tempfile::tempdir().unwrap();
    let hub_tls = tls::self_signed(&directory.path().join("tls"), &["deck.example".to_owned()]).unwrap();
    let (world, runner) = World::start_as(directory, |config| config.tls = Some(hub_tls.clone())).await;
    (world, runner, hub_tls)
}

/// Most of these tests need no local runner; the hub goes on without it.
async fn start() -> (World, HubTls) {
    let (world, _, hub_tls) = start_with_runner().await;
    (world, hub_tls)
}

impl World {
    async fn secure(&self, trust: &Trust) -> Result<BoxedStream, String> {
        let stream = TcpDial.dial(&self.address.to_string()).await.unwrap();
        soon("a handshake", client(stream, "127.0.0.1", trust)).await.map_err(|error| error.to_string())
    }

    async fn secure_api(&self, trust: &Trust, method: &str, path: &str, body: &str) -> (u16, String, Value) {
        let bearer = format!("Bearer {TOKEN}");
        let request = self.request_text(method, path, &[("Authorization", &bearer)], body);
        let stream = self.secure(trust).await.unwrap();
        let (status, head, body) = exchange(stream, &request, false).await;
        (status, head, serde_json::from_str(&body).unwrap_or_default())
    }
}

#[tokio::test]
async fn the_right_fingerprint_gets_in_and_a_wrong_one_is_told_so() {
    let (world, hub_tls) = start().await;
    let right = Trust::Pinned(hub_tls.fingerprint());
    assert_eq!(world.secure_api(&right, "GET", "/healthz", "").await.0, 200);
    let wrong = Trust::Pinned(Fingerprint::of(b"another certificate"));
    let error = world.secure(&wrong).await.err().unwrap();
    assert!(error.contains("another certificate"), "{error}");

    let (status, head, _) =
        world.secure_api(&right, "GET", &format!("/login?code={}", world.codes.issue().unwrap()), "").await;
    assert!(status == 303 && head.contains("; Secure"), "{head}");
    world.stop().await;
}

#[tokio::test]
async fn an_invite_carries_the_fingerprint_and_the_runner_that_trusts_it_gets_a_link() {
    let (world, hub_tls) = start().await;
    let trust = Trust::Pinned(hub_tls.fingerprint());
    let (_, _, invite) = world.secure_api(&trust, "POST", "/api/runners/invites", "").await;
    let code = invite["code"].as_str().unwrap();
    let fingerprint = hub_tls.fingerprint().to_string();
    assert!(code.ends_with(&format!(".{fingerprint}")), "{invite}");
    assert_fields(&invite, json!({"fingerprint": fingerprint, "url": format!("https://{}", world.address)}));
    let key_hash: String = Sha256::digest(b"k").iter().map(|byte| format!("{byte:02x}")).collect();
    let body =
        json!({"code":code,"runner_id":"far","key_hash":key_hash,"hostname":"h","os":"o","version":"1"});
    let (status, _, joined) = world.secure_api(&trust, "POST", "/api/runners/join", &body.to_string()).await;
    assert_eq!(status, 200, "{joined}");

    let url = ServerUrl::parse(&format!("https://{}", world.address)).unwrap();
    let mut dialer = RunnerDialer::new(url, "far", Arc::new(|| vec!["k".to_owned()]));
    dialer.trust = Trust::Pinned(Fingerprint::of(b"another certificate"));
    let failure = soon("a refusal", dialer.connect()).await.err().unwrap();
    assert!(failure.is_refusal && failure.reason.contains("another certificate"), "{failure}");
    dialer.trust = trust;
    let mut far = Runner::over(soon("a link", dialer.connect()).await.unwrap());
    assert_eq!(far.come_as("far").await["runner_id"], "far");
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_all_that_waits_for_it_through_tls() {
    const ANSWERS: usize = 32;
    let (world, mut runner, hub_tls) = start_with_runner().await;
    runner.hello().await;
    runner.create("s").await;
    let stream = world.secure(&Trust::Pinned(hub_tls.fingerprint())).await.unwrap();
    let mut request = format!("wss://{}/ws/mux", world.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    for number in 0..ANSWERS {
        let frame = json!({"channel":"agent","id":number.to_string(),"session_id":"s","cmd":"get_state"});
        socket.send(Message::text(frame.to_string())).await.unwrap();
    }
    // More than the kernel takes: some of it waits in the hub, and some inside TLS.
    let data = json!({ "text": "x".repeat(1 << 20) }).to_string();
    for _ in 0..ANSWERS {
        runner.answer_next(&data).await;
    }
    for number in 0..ANSWERS {
        let frame: Value = loop {
            let frame = soon("an answer", socket.next()).await.unwrap().unwrap().into_text().unwrap();
            if frame.contains("\"response\"") {
                break serde_json::from_str(&frame).unwrap();
            }
        };
        assert_eq!(frame["id"], number.to_string());
        assert_eq!(frame["data"]["text"].as_str().unwrap().len(), 1 << 20);
    }
    socket.send(Message::Close(None)).await.unwrap();
    let close = soon("a close", socket.next()).await.unwrap().unwrap();
    assert!(close.is_close(), "{close:?}");
    world.stop().await;
}

#[tokio::test]
async fn plain_http_on_the_tls_port_is_told_to_use_https() {
    let (world, hub_tls) = start().await;
    let (status, _, body) = world.http("/healthz", &[]).await;
    assert_eq!(status, 400);
    assert!(body.contains("https://"), "{body}");
    let mut noise = TcpStream::connect(world.address).await.unwrap();
    noise.write_all(b"\x00\x01nonsense").await.unwrap();
    let mut answer = Vec::new();
    // It may end with a reset, since what we sent was not read.
    let _ended = soon("the end", noise.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());
    let right = Trust::Pinned(hub_tls.fingerprint());
    assert_eq!(world.secure_api(&right, "GET", "/healthz", "").await.0, 200);
    world.stop().await;
}

#[tokio::test]
async fn one_who_does_not_shake_hands_holds_nobody_up() {
    let (world, hub_tls) = start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    let right = Trust::Pinned(hub_tls.fingerprint());
    assert_eq!(world.secure_api(&right, "GET", "/healthz", "").await.0, 200);
    world.shutdown.cancel();
    let end = tokio::time::timeout(std::time::Duration::from_secs(3), world.server).await;
    assert!(end.is_ok(), "the hub waits for those who say nothing");
}
