//! The ways in for clients of the pi-server face, and out at the end.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use qd_hub::{HubConfig, LoginCodes, OwnerToken, PiConnector, PiServerPorts, serve_with};
use qd_link::memory::{LinkEnd, pair};
use qd_store::{HubStore, StoreOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;

use crate::pi_server::support::{native, state};
use crate::support::{Runner, TOKEN, World, answer, assert_fields, created, delta, exchange, record, soon};

struct Ports {
    address: SocketAddr,
    own: SocketAddr,
    connector: PiConnector,
    runner: Runner,
    stop: CancellationToken,
    server: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

async fn start(configure: impl FnOnce(&mut HubConfig)) -> Ports {
    let directory = tempfile::tempdir().unwrap();
    let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, own) = (listener.local_addr().unwrap(), own_listener.local_addr().unwrap());
    let mut config = HubConfig::new(OwnerToken::new(TOKEN), LoginCodes::default());
    config.limits.shutdown_grace = Duration::from_secs(2);
    configure(&mut config);
    let (hub_end, link): (LinkEnd, LinkEnd) = pair();
    let local = Some(qd_hub::LocalRunner { runner_id: "r1".to_owned(), link: hub_end });
    let (connector, end) = PiConnector::new();
    let ports = PiServerPorts { listener: Some(own_listener), connector: Some(end) };
    let stop = CancellationToken::new();
    let server = tokio::spawn({
        let stop = stop.clone();
        async move {
            serve_with(config, listener, store.clone(), local, stop, ports).await.unwrap();
            store.close().await;
        }
    });
    let mut runner = Runner::over(link);
    runner.come().await;
    Ports { address, own, connector, runner, stop, server, _directory: directory }
}

impl Ports {
    async fn stop(self) {
        self.stop.cancel();
        soon("the end", self.server).await.unwrap();
    }
}

/// Connects, or gives the status of the refusal.
async fn dial(address: SocketAddr, path: &str, token: Option<&str>) -> Result<Client<TcpStream>, u16> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, _)) => Ok(Client { socket }),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

struct Client<S> {
    socket: WebSocketStream<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn send(&mut self, frame: &Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Message {
        loop {
            match soon("a message", self.socket.next()).await.unwrap().unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    /// The next frame that is such a one.
    async fn frame(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await;
            let frame = serde_json::from_str(message.to_text().unwrap()).unwrap();
            if is_wanted(&frame) {
                return frame;
            }
        }
    }

    async fn ready(mut self) -> Self {
        self.frame(|frame| frame["type"] == "server_ready").await;
        self
    }

    async fn response(&mut self, id: &str) -> Value {
        self.frame(|frame| frame["type"] == "response" && frame["id"] == id).await
    }

    async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Message::Close(Some(close)) = self.next().await {
                return (close.code.into(), close.reason.to_string());
            }
        }
    }
}

#[tokio::test]
async fn who_comes_has_to_prove_who_it_is_before_the_upgrade() {
    let ports = start(|_| {}).await;
    for address in [ports.address, ports.own] {
        assert_eq!(dial(address, "/ws/pi", None).await.err(), Some(401));
        assert_eq!(dial(address, "/ws/pi", Some("wrong")).await.err(), Some(401));
        dial(address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
        dial(address, &format!("/ws/pi?token={TOKEN}"), None).await.unwrap().ready().await;
    }
    dial(ports.own, "/anything/else", Some(TOKEN)).await.unwrap().ready().await;
    dial(ports.own, &format!("/anything/else?token={TOKEN}"), None).await.unwrap().ready().await;
    ports.stop().await;
}

#[tokio::test]
async fn who_speaks_no_websocket_is_told_how_to() {
    let ports = start(|_| {}).await;
    for (address, path) in [(ports.address, "/ws/pi"), (ports.own, "/")] {
        let get =
            |head: &str| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}\r\n");
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, head, body) = exchange(stream, &get(""), false).await;
        assert_eq!(status, 426);
        assert!(head.to_lowercase().contains("upgrade: websocket"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["code"], "invalid_request", "{body}");
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, ..) = exchange(stream, &get("Origin: http://evil.example\r\n"), false).await;
        assert_eq!(status, 403);
    }
    ports.stop().await;
}

#[tokio::test]
async fn without_tokens_everybody_may_come_to_the_own_port_and_to_it_alone() {
    let ports = start(|config| config.faces.pi_server.insecure_no_auth = true).await;
    dial(ports.own, "/", None).await.unwrap().ready().await;
    assert_eq!(dial(ports.address, "/ws/pi", None).await.err(), Some(401));
    // Who sends a token is who has it.
    assert_eq!(dial(ports.own, "/", Some("wrong")).await.err(), Some(401));
    assert_eq!(dial(ports.own, "/?token=wrong", None).await.err(), Some(401));
    dial(ports.own, "/", Some(TOKEN)).await.unwrap().ready().await;
    let stream = TcpStream::connect(ports.own).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(stream, request, false).await.0, 403, "a page cannot use a name made to point here");
    ports.stop().await;
}

#[tokio::test]
async fn one_too_many_is_told_so_on_its_connection() {
    let ports = start(|config| config.faces.pi_server.connections_max = 1).await;
    let first = dial(ports.address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
    let mut second = dial(ports.own, "/", Some(TOKEN)).await.unwrap();
    let close = second.closed().await;
    assert_eq!(close, (1013, "Connection limit reached (1 connections)".to_owned()));
    drop(first);
    // Its place is free as soon as the hub has noticed.
    let mut tries = 0;
    loop {
        let mut again = dial(ports.address, "/ws/pi", Some(TOKEN)).await.unwrap();
        match again.next().await {
            Message::Close(_) => tries += 1,
            _ => break,
        }
        assert!(tries < 1000, "the place is never free");
    }
    ports.stop().await;
}

#[tokio::test]
async fn binary_messages_that_are_text_count_as_text() {
    let ports = start(|_| {}).await;
    let mut client = dial(ports.address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
    let text = json!({"type":"get_command_history","id":"a"}).to_string();
    client.socket.send(Message::binary(text.into_bytes())).await.unwrap();
    assert_eq!(client.response("a").await["success"], true);
    client.socket.send(Message::binary(vec![0xff, 0xfe])).await.unwrap();
    let refused = client.frame(|frame| frame["type"] == "response").await;
    assert_eq!((&refused["success"], &refused["command"]), (&json!(false), &json!("unknown")));
    ports.stop().await;
}

#[tokio::test]
async fn a_stream_of_the_process_is_served_without_a_handshake() {
    let ports = start(|_| {}).await;
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    ports.connector.serve(Box::new(theirs), None).await.unwrap();
    let socket = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    let mut client = Client { socket }.ready().await;
    client.send(&json!({"type":"get_command_history","id":"a"})).await;
    assert_eq!(client.response("a").await["success"], true);
    ports.stop().await;
}

#[tokio::test]
async fn at_the_end_work_is_finished_new_work_refused_and_the_close_says_why() {
    let mut ports = start(|_| {}).await;
    ports.runner.create("s").await;
    let mut client = dial(ports.address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
    let prompt = json!({"type":"prompt","id":"a","sessionId":"s","message":"hi"});
    client.send(&prompt).await;
    let command = ports.runner.command().await;
    assert_eq!((&command["cmd"], &command["user_id"]), (&json!("prompt"), &json!("owner")));
    let goodbye = tokio::spawn({
        let connector = ports.connector.clone();
        async move { connector.shut_down().await }
    });
    client.frame(|frame| frame["type"] == "server_shutdown").await;
    assert_eq!(dial(ports.address, "/ws/pi", Some(TOKEN)).await.err(), Some(503));
    client.send(&json!({"type":"get_command_history","id":"b"})).await;
    let refused = client.response("b").await;
    assert_fields(&refused, json!({"error": "Server is shutting down", "code": "shutting_down"}));
    assert!(!goodbye.is_finished(), "a command is under way");
    ports.runner.answer(&command, "{}").await;
    assert_eq!(client.response("a").await["success"], true);
    soon("the end of the work", goodbye).await.unwrap().unwrap();
    ports.stop.cancel();
    assert_eq!(client.closed().await, (1001, "Server shutting down".to_owned()));
    ports.stop().await;
}

#[tokio::test]
async fn native_events_go_to_who_follows_on_this_face_and_to_nobody_else() {
    let mut ports = start(|_| {}).await;
    ports.runner.create("s").await;
    let mut mux = dial(ports.address, "/ws/mux", Some(TOKEN)).await.unwrap();
    let attach = json!({"channel":"agent","id":"m","session_id":"s","cmd":"session.attach"});
    mux.send(&attach).await;
    ports.runner.attach(1, "ok").await;
    mux.frame(|frame| frame["id"] == "m").await;

    let mut client = dial(ports.address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
    let switch = json!({"type":"switch_session","id":"a","sessionId":"s"});
    client.send(&switch).await;
    assert_fields(&ports.runner.line_of("session.watch").await, json!({"session_id": "s", "on": true}));
    let command = ports.runner.command().await;
    assert_eq!(command["cmd"], "get_state");
    // All in one block: a record that has to be stored first, and events before and after the answer.
    let lines = [
        native("s", &json!({"type":"before"})),
        record("s", 2, "agent.idle", ""),
        answer(&command, &state("s", 0).to_string()),
        native("s", &json!({"type":"turn_start","n":1})),
        record("s", 3, "agent.idle", ""),
        delta("s", 7),
        native("s", &json!({"type":"turn_end","n":2})),
    ];
    ports.runner.say(&lines.join("\n")).await;
    let is_about_it = |frame: &Value| frame["type"] == "response" || frame["type"] == "event";
    assert_eq!(client.frame(is_about_it).await["id"], "a", "what came before the answer is not shown");
    for event in [json!({"type":"turn_start","n":1}), json!({"type":"turn_end","n":2})] {
        let expected = json!({"type":"event","sessionId":"s","event":event});
        assert_eq!(client.frame(is_about_it).await, expected);
    }
    for event in ["agent.idle", "agent.idle", "stream.text_delta"] {
        let frame = mux.frame(|frame| frame["channel"] == "agent").await;
        assert_eq!(frame["event"], event, "canonical clients see no native event");
    }
    ports.stop().await;
}

#[tokio::test]
async fn a_runner_that_comes_again_is_told_again_what_to_watch_and_tells_what_was_closed_meanwhile() {
    let (world, _local) = World::start().await;
    let (mut far, _) = world.come("far", &[]).await;
    far.say(&[created("f"), created("g")].join("\n")).await;
    far.line_of("ack").await;
    let mut client = dial(world.address, "/ws/pi", Some(TOKEN)).await.unwrap().ready().await;
    let switch = json!({"type":"switch_session","id":"a","sessionId":"f"});
    client.send(&switch).await;
    assert_eq!(far.line_of("session.watch").await["session_id"], "f");
    far.answer_next(&state("f", 0).to_string()).await;
    assert_eq!(client.response("a").await["success"], true);

    let mut again = world.dialed("far").await;
    let mut closed = state("g", 0);
    closed["status"] = json!("closed");
    let sessions = json!([{"session_id":"f","last_seq":1},{"session_id":"g","last_seq":1,"state":closed}]);
    again.hello_with("far", sessions).await;
    again.line_of("runner.welcome").await;
    assert_fields(&again.line_of("session.watch").await, json!({"session_id": "f", "on": true}));
    let gone = client.frame(|frame| frame["type"] == "session_deleted").await;
    assert!(gone.to_string().contains("\"g\""), "{gone}");
    world.stop().await;
}

#[tokio::test]
async fn a_follower_that_fell_behind_catches_up_before_it_has_read_everything() {
    let mut ports = start(|config| config.faces.pi_server.backlog_bytes_max = 64 << 10).await;
    ports.runner.create("s").await;
    let (ours, theirs) = tokio::io::duplex(256);
    ports.connector.serve(Box::new(theirs), None).await.unwrap();
    let socket = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    let mut client = Client { socket }.ready().await;
    let switch = json!({"type":"switch_session","id":"a","sessionId":"s"});
    client.send(&switch).await;
    ports.runner.answer_next(&state("s", 0).to_string()).await;
    assert_eq!(client.response("a").await["success"], true);
    // Far more than may wait for it, so that some are dropped.
    let padding = "x".repeat(4 << 10);
    for number in 0..40 {
        ports.runner.say(&native("s", &json!({"type":"noise","number":number,"padding":padding}))).await;
    }
    // The store is asked after all of them: they are dealt with.
    ports.runner.say(&record("s", 2, "agent.idle", "")).await;
    ports.runner.line_of("ack").await;
    // Some of what waits for it is read, and some is left.
    for number in 0..14 {
        let event = client.frame(|frame| frame["type"] == "event").await;
        assert_eq!(event["event"]["number"], number);
    }
    let command = ports.runner.command().await;
    assert_eq!(command["cmd"], "session.attach", "it is to be told how the session stands");
    ports.stop().await;
}
