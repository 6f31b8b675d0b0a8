//! The hub on streams that are no sockets, as a simulated network gives them.

use std::io;

use futures_util::{SinkExt, StreamExt};
use qd_hub::{HubConfig, Listen, LoginCodes, OwnerToken, serve};
use qd_link::net::BoxedStream;
use qd_store::{HubStore, StoreOptions};
use serde_json::json;
use tokio::io::{BufStream, DuplexStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
use tokio_util::sync::CancellationToken;

use crate::support::{TOKEN, soon};

/// Takes a few bytes at a time, so that frames are written and read in pieces.
const PIPE_BYTES: usize = 32;

struct Pipes(mpsc::Receiver<DuplexStream>);

impl Listen for Pipes {
    async fn accept(&mut self) -> io::Result<(BoxedStream, String)> {
        match self.0.recv().await {
            // Like TLS, it keeps back what it has taken until it is told to send it.
            Some(stream) => Ok((Box::new(BufStream::new(stream)), "pipe".to_owned())),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn any_stream_can_carry_a_client_and_no_runner_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
    let config = HubConfig::new(OwnerToken::new(TOKEN), LoginCodes::default());
    let (pipes, accepted) = mpsc::channel(1);
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(config, Pipes(accepted), store.clone(), None, shutdown.clone()));

    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    pipes.send(far).await.unwrap();
    let mut request = "ws://localhost/ws/mux".into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let (mut socket, _) = soon("an upgrade", tokio_tungstenite::client_async(request, near)).await.unwrap();
    let first = soon("the first frame", socket.next()).await.unwrap().unwrap().into_text().unwrap();
    assert!(first.contains("\"connected\""), "{first}");
    for number in 0..20 {
        let id = format!("{number}-{}", "x".repeat(500));
        let frame = json!({"channel":"agent","id":id,"cmd":"get_runners"}).to_string();
        soon("room to send", socket.send(Message::text(frame))).await.unwrap();
        let answer = soon("an answer", socket.next()).await.unwrap().unwrap().into_text().unwrap();
        assert!(answer.contains(&id) && answer.contains("\"runners\":[]"), "{answer}");
    }

    shutdown.cancel();
    let last = soon("the last frame", socket.next()).await.unwrap().unwrap().into_text().unwrap();
    assert!(last.contains("\"shutdown\""), "{last}");
    let close = soon("a close", socket.next()).await.unwrap().unwrap();
    assert!(close.is_close(), "{close:?}");
    drop(socket);
    soon("the end", server).await.unwrap().unwrap();
    store.close().await;
}
