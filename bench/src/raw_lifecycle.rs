//! What the pi-server face is compared with: for every text frame three short ones to every client and a longer one
//! to its sender, written plainly with the same libraries. It reads nothing of what it gets but the id.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{SinkExt, StreamExt};
use memchr::memmem::find;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::error::Outcome;
use crate::process::announce;

/// Frames that may wait for one client.
const WAITING_MAX: usize = 16_384;
/// As long as what a session's state takes.
const DATA_BYTES: usize = 420;

type Clients = Arc<Mutex<Vec<mpsc::Sender<Utf8Bytes>>>>;

/// `raw-lifecycle`
pub(crate) async fn run() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    let clients = Clients::default();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, Arc::clone(&clients)));
    }
}

async fn serve(stream: TcpStream, clients: Clients) -> Outcome<()> {
    let (mut sink, mut source) = tokio_tungstenite::accept_async(stream).await?.split();
    let (sender, mut frames) = mpsc::channel::<Utf8Bytes>(WAITING_MAX);
    clients.lock().unwrap_or_else(PoisonError::into_inner).push(sender.clone());
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            if sink.feed(Message::Text(frame)).await.is_err() {
                return;
            }
            if frames.is_empty() && sink.flush().await.is_err() {
                return;
            }
        }
    });
    let data = "x".repeat(DATA_BYTES);
    while let Some(Ok(message)) = source.next().await {
        let Message::Text(text) = message else { continue };
        let id = id_of(text.as_bytes());
        let told: Vec<Utf8Bytes> = ["accepted", "started", "finished"]
            .iter()
            .map(|word| {
                format!(
                    r#"{{"type":"command_{word}","data":{{"commandId":"{id}","commandType":"get_state","sessionId":"s","dependsOn":[]}}}}"#
                )
                .into()
            })
            .collect();
        let others = clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in &others {
            for frame in &told {
                // One that is gone, or reads no more, takes nothing.
                let _ = client.try_send(frame.clone());
            }
        }
        let answer = format!(
            r#"{{"type":"response","id":"{id}","command":"get_state","success":true,"data":"{data}"}}"#
        );
        if sender.send(answer.into()).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn id_of(text: &[u8]) -> &str {
    let rest = find(text, b"\"id\":\"").map(|at| &text[at + 6..]).unwrap_or_default();
    let end = memchr::memchr(b'"', rest).unwrap_or(0);
    std::str::from_utf8(&rest[..end]).unwrap_or_default()
}
