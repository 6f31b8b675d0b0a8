//! A face that exists in tests only: the proof that a new one costs a module for its words, one for its view, one for
//! its transport, and the line in `faces.rs` that registers it. A real face has the first two in `wire` and `core/view`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use qd_link::mutex::Mutex;
use qd_wire::ErrorCode;
use qd_wire::command_table::CommandName;

use super::{Face, RunnerUpdate, SessionUpdate};
use crate::access::check_request::check_access;
use crate::command::Command;
use crate::command::ask::ask;
use crate::config::HubConfig;
use crate::connection::{ConnectionHandler, HandlerContext, Mailbox, frame};
use crate::hub::Hub;
use crate::server::Server;
use crate::server::router::{failed, refused};
use crate::server::upgrade::{NO_WEBSOCKET, accept_key, speak};
use crate::sessions::published::PublishedEvents;

/// What travels: the module that would be in `wire`.
mod wire {
    #[derive(serde::Serialize)]
    pub(super) struct Toy<'a> {
        pub(super) toy: &'a str,
        pub(super) about: &'a str,
    }
}

/// Records in the words of the face: the module that would be in `core/view`.
mod view {
    use qd_core::record::Record;

    use super::wire::Toy;

    pub(super) fn shown<'a>(record: &'a Record<'_>) -> Toy<'a> {
        Toy { toy: &record.event, about: &record.session_id }
    }
}

fn frame_of(toy: &wire::Toy<'_>) -> Bytes {
    frame::text(&serde_json::to_vec(toy).unwrap())
}

/// The transport.
pub(super) struct ToyFace {
    clients: Mutex<Vec<Arc<Mailbox>>>,
    told: AtomicUsize,
}

impl ToyFace {
    pub(super) fn new(_config: &HubConfig) -> Self {
        Self { clients: Mutex::default(), told: AtomicUsize::new(0) }
    }

    fn tell(&self, frames: &Bytes) {
        self.clients.lock().iter().for_each(|mailbox| mailbox.send(frames.clone()));
    }
}

impl Face for ToyFace {
    fn routes(&self) -> Router<Server> {
        Router::new().route("/ws/toy", any(upgrade))
    }

    fn is_used(&self) -> bool {
        !self.clients.lock().is_empty()
    }

    fn on_published(&self, _hub: &Arc<Hub>, published: PublishedEvents<'_>) {
        self.told.fetch_add(1, Ordering::Relaxed);
        published.records().for_each(|record| self.tell(&frame_of(&view::shown(&record))));
    }

    fn on_session_update(&self, _hub: &Arc<Hub>, session_id: &str, update: SessionUpdate) {
        self.tell(&frame_of(&wire::Toy { toy: &format!("{update:?}"), about: session_id }));
    }

    fn on_runner_update(&self, _hub: &Arc<Hub>, runner_id: &str, update: RunnerUpdate) {
        self.tell(&frame_of(&wire::Toy { toy: &format!("{update:?}"), about: runner_id }));
    }

    fn close_revoked(&self) {
        for mailbox in self.clients.lock().iter().filter(|mailbox| mailbox.asker.revoked.is_cancelled()) {
            mailbox.send_close(Bytes::new(), 1008, "revoked");
        }
    }

    fn close_connections(&self) {
        for mailbox in self.clients.lock().iter() {
            mailbox.send_close(Bytes::new(), 1001, "the hub stops");
        }
    }

    fn connection_count(&self) -> usize {
        self.clients.lock().len()
    }
}

async fn upgrade(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let principal = match check_access(&hub, request.uri(), request.headers()).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    let Some(accept) = accept_key(&request) else {
        return failed(ErrorCode::InvalidRequest, NO_WEBSOCKET);
    };
    let mailbox = Mailbox::new("toy".to_owned(), &principal, hub.config.limits.mail_bounds());
    hub.faces.toy.clients.lock().push(Arc::clone(&mailbox));
    let handler = ToyHandler(Arc::clone(&mailbox));
    speak(hub, request, accept, mailbox, handler)
}

/// Takes a session's name and answers whether its runner knows it.
struct ToyHandler(Arc<Mailbox>);

impl ConnectionHandler for ToyHandler {
    const TAKES_BINARY: bool = false;

    fn message_bytes_max(hub: &Hub) -> usize {
        hub.config.limits.message_bytes_max
    }

    fn greet(&mut self, context: &mut HandlerContext<'_>) {
        context.send_queue.push(frame_of(&wire::Toy { toy: "hello", about: "" }));
    }

    fn on_text(&mut self, context: &mut HandlerContext<'_>, text: &str) {
        let command = Command::new(CommandName::GetState).on(text);
        let mailbox = Arc::clone(context.mailbox);
        ask(context.hub, &context.mailbox.asker, command, move |_, answer| {
            let about = answer.success.to_string();
            mailbox.send(frame_of(&wire::Toy { toy: "answer", about: &about }));
        });
    }

    fn complaint(&self, error: &str) -> Bytes {
        frame_of(&wire::Toy { toy: "error", about: error })
    }

    fn on_end(&mut self, hub: &Hub) {
        hub.faces.toy.clients.lock().retain(|mailbox| !Arc::ptr_eq(mailbox, &self.0));
    }
}

mod tests {
    use std::time::Duration;

    use futures_util::{SinkExt, StreamExt};
    use qd_link::memory::{LinkEnd, pair};
    use qd_store::{HubStore, StoreOptions};
    use serde_json::{Value, json};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;
    use tokio_tungstenite::WebSocketStream;
    use tokio_util::sync::CancellationToken;
    use tungstenite::Message;
    use tungstenite::client::IntoClientRequest;

    use super::*;
    use crate::hub::test_hub;
    use crate::sessions::published::frames_of;
    use crate::{LocalRunner, LoginCodes, OwnerToken, serve};

    const HELLO: &str = "{\"type\":\"runner.hello\",\"runner_id\":\"r\",\"hostname\":\"h\",\"harnesses\":[],\
        \"max_sessions\":1,\"version\":\"1\",\"os\":\"linux\"}";

    fn event(seq: u64, event: &str, fields: &str) -> String {
        format!(
            "{{\"type\":\"event\",\"session_id\":\"s\",\"runner_id\":\"r\",\"ts\":1,\"seq\":{seq},\"event\":\"{event}\"{fields}}}"
        )
    }

    async fn say(runner: &LinkEnd, line: &str) {
        runner.sender.send(Bytes::from(format!("{line}\n"))).await.unwrap();
    }

    /// The next frame that is not about a runner.
    async fn next(client: &mut WebSocketStream<TcpStream>) -> (String, String) {
        loop {
            let message = timeout(Duration::from_secs(20), client.next()).await.expect("in vain");
            let Message::Text(text) = message.unwrap().unwrap() else { panic!("no text") };
            let toy: Value = serde_json::from_str(&text).unwrap();
            let text = |name: &str| toy[name].as_str().unwrap_or_default().to_owned();
            if text("about") != "r" {
                return (text("toy"), text("about"));
            }
        }
    }

    #[tokio::test]
    async fn a_registered_face_has_its_route_its_speaker_and_is_told_of_records() {
        let directory = tempfile::tempdir().unwrap();
        let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (hub_end, mut runner) = pair();
        let local = Some(LocalRunner { runner_id: "r".to_owned(), link: hub_end });
        let stop = CancellationToken::new();
        let config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
        let server = tokio::spawn(serve(config, listener, store.clone(), local, stop.clone()));
        say(&runner, HELLO).await;
        runner.receiver.recv().await.unwrap();

        let mut request = format!("ws://{address}/ws/toy").into_client_request().unwrap();
        request.headers_mut().insert("authorization", "Bearer t".parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut client, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
        let pair = |toy: &str, about: &str| (toy.to_owned(), about.to_owned());
        assert_eq!(next(&mut client).await, pair("hello", ""));
        say(&runner, &event(1, "session.created", ",\"harness\":\"other\"")).await;
        assert_eq!(next(&mut client).await, pair("Created", "s"));
        assert_eq!(next(&mut client).await, pair("session.created", "\"s\""));
        say(&runner, &event(2, "agent.idle", ",\"reason\":\"stop\"")).await;
        assert_eq!(next(&mut client).await, pair("agent.idle", "\"s\""));

        client.send(Message::text("s")).await.unwrap();
        let command = loop {
            let block = runner.receiver.recv().await.unwrap();
            let lines = std::str::from_utf8(&block).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
            let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
            if let Some(command) = lines.iter().map(read).find(|line| line["cmd"] == "get_state") {
                break command;
            }
        };
        let answer = json!({"type":"response","id":command["id"],"session_id":"s","runner_id":"r","ts":1,
            "cmd":"get_state","success":true,"data":{}});
        say(&runner, &answer.to_string()).await;
        assert_eq!(next(&mut client).await, pair("answer", "true"));
        stop.cancel();
        drop((client, runner));
        timeout(Duration::from_secs(20), server).await.unwrap().unwrap().unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn records_cost_a_face_that_nobody_uses_nothing() {
        let (hub, _directory) = test_hub(|_| {});
        let entry = hub.session_or_new("s", &Arc::from("r"));
        let (frames, heads) = frames_of(&[event(1, "agent.idle", "")]);
        let told = || hub.faces.toy.told.load(Ordering::Relaxed);
        hub.faces.published(&hub, PublishedEvents::new(&entry, &frames, &heads, &[]));
        assert_eq!(told(), 0);
        hub.faces.toy.clients.lock().push(Mailbox::for_tests());
        // Deltas, which are neither records nor say anything of their session.
        hub.faces.published(&hub, PublishedEvents::new(&entry, &frames, &[], &[]));
        assert_eq!(told(), 0);
        hub.faces.published(&hub, PublishedEvents::new(&entry, &frames, &heads, &[]));
        assert_eq!(told(), 1);
    }
}
