//! A host that somebody else wrote for the run document: a plain WebSocket client, with the habits of the original.

use std::collections::BTreeMap;

use futures_util::{SinkExt, StreamExt};
use qd_hub::Limits;
use qd_store::{HostRow, HostTrust};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message, client::IntoClientRequest};

use crate::support::{Runner, World, soon};

pub(crate) const HOST_TOKEN: &str = "host+token/of the tests";

/// The owner has let the host in.
pub(crate) async fn trust(world: &World, host_id: &str) {
    let host = HostRow {
        host_id: host_id.to_owned(),
        token_hash: Sha256::digest(HOST_TOKEN.as_bytes()).to_vec(),
        trust: HostTrust::Trusted,
        first_seen_at: 1,
        last_seen_at: None,
        address: None,
    };
    world.store.put_host(host).await.unwrap();
}

pub(crate) async fn restart(world: World) -> (World, Runner) {
    let directory = world.end().await;
    World::start_in(directory, Limits::default()).await
}

/// A hub that trusts the host `h`, and `h` itself.
pub(crate) async fn world_with_host() -> (World, Runner, Host) {
    let (world, runner) = World::start().await;
    trust(&world, "h").await;
    let host = Host::connect(&world, "h").await;
    (world, runner, host)
}

/// One connection of a host.
pub(crate) struct Host {
    pub(crate) host_id: String,
    socket: WebSocketStream<TcpStream>,
    /// The last ack of each run.
    pub(crate) acked: BTreeMap<String, u64>,
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

impl Host {
    pub(crate) async fn connect(world: &World, host_id: &str) -> Host {
        Host::try_connect(world, host_id, HOST_TOKEN).await.unwrap()
    }

    /// The status and the body of a refusal.
    pub(crate) async fn try_connect(
        world: &World,
        host_id: &str,
        token: &str,
    ) -> Result<Host, (u16, String)> {
        let query = format!("?host_id={host_id}&host_token={}", encoded(token));
        Host::connect_with(world, host_id, &query).await
    }

    pub(crate) async fn connect_with(
        world: &World,
        host_id: &str,
        query: &str,
    ) -> Result<Host, (u16, String)> {
        let stream = TcpStream::connect(world.address).await.unwrap();
        Host::connect_over(stream, world, host_id, query).await
    }

    /// With a system that keeps little for it while it does not read.
    pub(crate) async fn connect_narrow(world: &World, host_id: &str) -> Host {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let stream = socket.connect(world.address).await.unwrap();
        let query = format!("?host_id={host_id}&host_token={}", encoded(HOST_TOKEN));
        Host::connect_over(stream, world, host_id, &query).await.unwrap()
    }

    async fn connect_over(
        stream: TcpStream,
        world: &World,
        host_id: &str,
        query: &str,
    ) -> Result<Host, (u16, String)> {
        let request = format!("ws://{}/ws/host{query}", world.address).into_client_request().unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Host { host_id: host_id.to_owned(), socket, acked: BTreeMap::new() }),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err((response.status().as_u16(), String::from_utf8_lossy(body).into_owned()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        soon("room to send", self.socket.send(Message::text(text))).await.unwrap();
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        soon("room to send", self.socket.send(message)).await.unwrap();
    }

    /// False when the connection is over.
    pub(crate) async fn try_send(&mut self, text: &str) -> bool {
        self.socket.send(Message::text(text)).await.is_ok()
    }

    pub(crate) async fn event(&mut self, run_id: &str, seq: u64, kind: &str, data: Value) {
        let text = self.event_text(run_id, seq, kind, data);
        self.send_text(&text).await;
    }

    pub(crate) fn event_text(&self, run_id: &str, seq: u64, kind: &str, data: Value) -> String {
        json!({"type": kind, "ts": "2025-01-01T00:00:00.123456789Z", "host_id": self.host_id, "run_id": run_id,
            "seq": seq, "data": data})
        .to_string()
    }

    pub(crate) async fn start(&mut self, run_id: &str) {
        self.event(run_id, 1, "run.started", json!({"tool": "bash", "cwd": "/w", "command": "bash -i"}))
            .await;
    }

    pub(crate) async fn output(&mut self, run_id: &str, seq: u64) {
        self.event(run_id, seq, "run.output", output(seq)).await;
    }

    /// The next message; `None` when the hub has closed the connection.
    pub(crate) async fn try_next(&mut self) -> Option<Value> {
        loop {
            match soon("a message", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).unwrap();
                    if message["type"] == "run.ack" {
                        let data = &message["data"];
                        assert_eq!(message["run_id"], data["run_id"]);
                        let run_id = data["run_id"].as_str().unwrap().to_owned();
                        self.acked.insert(run_id, data["last_seq"].as_u64().unwrap());
                    }
                    return Some(message);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(_)) | Some(Err(_)) | None => return None,
            }
        }
    }

    /// The next message of this type.
    pub(crate) async fn next(&mut self, kind: &str) -> Value {
        let waiting = async {
            loop {
                let message =
                    self.try_next().await.unwrap_or_else(|| panic!("closed while waiting for {kind}"));
                if message["type"] == kind {
                    return message;
                }
            }
        };
        // Pings come all the time, so each message alone says nothing.
        soon(kind, waiting).await
    }

    /// Waits until a run is acked up to here.
    pub(crate) async fn acked(&mut self, run_id: &str, seq: u64) {
        while self.acked.get(run_id).is_none_or(|acked| *acked < seq) {
            self.next("run.ack").await;
        }
        assert_eq!(self.acked[run_id], seq);
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Result<Value, &str>) {
        let mut data = json!({"request_id": request["data"]["request_id"], "rpc_type": request["type"], "ok": result.is_ok()});
        match result {
            Ok(result) => data["result"] = result,
            Err(error) => data["error"] = json!(error),
        }
        let text = json!({"type": "rpc.response", "ts": "2025-01-01T00:00:00Z", "run_id": request["run_id"], "data": data});
        self.send_text(&text.to_string()).await;
    }

    /// The code and the reason with which the hub closes the connection.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match soon("a close", self.socket.next()).await {
                Some(Ok(Message::Close(Some(close)))) => {
                    return (close.code.into(), close.reason.to_string());
                }
                Some(Ok(Message::Text(_) | Message::Ping(_))) => {}
                other => panic!("no close: {other:?}"),
            }
        }
    }

    pub(crate) async fn close(mut self) {
        // The hub may have gone first.
        let _ = self.socket.close(None).await;
    }
}

pub(crate) fn output(seq: u64) -> Value {
    json!({"stream": "stdout", "text": format!("line {seq}\r\n")})
}

/// The records of a run as the hub has stored them: number, event, text.
pub(crate) async fn stored(world: &World, run_id: &str) -> Vec<(u64, String, String)> {
    let records = world.store.records_after(run_id, 0, 100_000, 64 << 20).await.unwrap();
    let of_body = |(seq, body): (u64, bytes::Bytes)| {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["seq"], seq);
        let text = body["text"].as_str().unwrap_or_default().to_owned();
        (seq, body["event"].as_str().unwrap().to_owned(), text)
    };
    records.into_iter().map(of_body).collect()
}

/// Checks that a run has its start, and each line of output once and in order, up to `last`.
pub(crate) async fn check_whole(world: &World, run_id: &str, last: u64) {
    let records = stored(world, run_id).await;
    assert_eq!(records.len() as u64, last, "{records:?}");
    for (place, (seq, event, text)) in records.iter().enumerate() {
        assert_eq!(*seq, place as u64 + 1);
        match seq {
            1 => assert_eq!(event, "run.started"),
            _ if *seq == last && event == "run.exited" => {}
            _ => assert_eq!((event.as_str(), text.as_str()), ("run.output", &*format!("line {seq}\r\n"))),
        }
    }
}
