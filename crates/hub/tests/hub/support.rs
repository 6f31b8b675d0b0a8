use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use qd_hub::{HubConfig, Limits, LocalRunner, LoginCodes, OwnerToken, serve};
use qd_link::memory::{LinkEnd, pair};
use qd_store::{HubSession, HubStore, StoreOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "owner-token-of-the-tests";
/// The headers of a request for a WebSocket.
pub(crate) const UPGRADE: [(&str, &str); 4] = [
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const WAIT_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(WAIT_MAX, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// A running hub with its store.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) store: HubStore,
    pub(crate) codes: LoginCodes,
    pub(crate) shutdown: CancellationToken,
    pub(crate) server: JoinHandle<()>,
    pub(crate) directory: tempfile::TempDir,
}

impl World {
    /// A hub, and its runner `r1` after the welcome.
    pub(crate) async fn start() -> (World, Runner) {
        Self::start_with(Limits::default()).await
    }

    pub(crate) async fn start_with(limits: Limits) -> (World, Runner) {
        Self::start_in(tempfile::tempdir().unwrap(), limits).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir, limits: Limits) -> (World, Runner) {
        let (world, mut runner) = Self::start_silent(directory, limits).await;
        runner.hello().await;
        assert_fields(&runner.line_of("runner.welcome").await, json!({"runner_id": "r1"}));
        (world, runner)
    }

    pub(crate) async fn start_silent(directory: tempfile::TempDir, limits: Limits) -> (World, Runner) {
        Self::start_as(directory, |config| {
            // Clients of the tests do not answer a close, since nobody reads them any more.
            config.limits = Limits { shutdown_grace: Duration::from_millis(300), ..limits };
        })
        .await
    }

    /// A hub as `configure` wants it, and its runner that has not said anything.
    pub(crate) async fn start_as(
        directory: tempfile::TempDir,
        configure: impl FnOnce(&mut HubConfig),
    ) -> (World, Runner) {
        let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let codes = LoginCodes::default();
        let mut config = HubConfig::new(OwnerToken::new(TOKEN), codes.clone());
        config.limits.shutdown_grace = Duration::from_millis(300);
        configure(&mut config);
        let (hub_end, link) = pair();
        let local = Some(LocalRunner { runner_id: "r1".to_owned(), link: hub_end });
        let shutdown = CancellationToken::new();
        let server = tokio::spawn({
            let (store, shutdown) = (store.clone(), shutdown.clone());
            async move { serve(config, listener, store, local, shutdown).await.unwrap() }
        });
        let world = World { address, store, codes, shutdown, server, directory };
        (world, Runner::over(link))
    }

    /// A session as the store has it.
    pub(crate) async fn stored(&self, session_id: &str) -> Option<HubSession> {
        let sessions = self.store.sessions().await.unwrap();
        sessions.into_iter().find(|session| session.session_id == session_id)
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_as(TOKEN).await
    }

    pub(crate) async fn client_as(&self, token: &str) -> Client {
        let mut client = self.try_client_as(token).await.unwrap();
        let connected = client.next().await;
        assert_eq!(connected["type"], "connected");
        client
    }

    /// A client that has not read its first frame.
    pub(crate) async fn silent_client(&self) -> Client {
        self.try_client_as(TOKEN).await.unwrap()
    }

    /// A client that has not read its first frame; `None` when it is not let in.
    pub(crate) async fn try_client_as(&self, token: &str) -> Option<Client> {
        self.try_client_at("/ws/mux", token).await
    }

    pub(crate) async fn try_client_at(&self, path: &str, token: &str) -> Option<Client> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (socket, _) =
            tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await.ok()?;
        Some(Client { socket })
    }

    pub(crate) async fn http(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        self.request("GET", path, headers).await
    }

    /// One request on a connection of its own; gives status, head and body.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String, String) {
        self.request_with(method, path, headers, "").await
    }

    pub(crate) async fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let request = self.request_text(method, path, headers, body);
        exchange(stream, &request, headers.iter().any(|(name, _)| *name == "Upgrade")).await
    }

    pub(crate) fn request_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request + "\r\n" + body
    }

    /// A call of the owner; gives status and answer.
    pub(crate) async fn api(&self, method: &str, path: &str) -> (u16, Value) {
        let bearer = format!("Bearer {TOKEN}");
        let (status, _, body) = self.request(method, path, &[("Authorization", &bearer)]).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        soon("the end", self.server).await.unwrap();
    }

    /// Stops the hub and closes its store; another one can be started with what it leaves.
    pub(crate) async fn end(self) -> tempfile::TempDir {
        self.shutdown.cancel();
        soon("the end", self.server).await.unwrap();
        self.store.close().await;
        self.directory
    }
}

/// Sends a request and gives status, head and body of the answer. An accepted upgrade stays open: its head is enough.
pub(crate) async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
    is_upgrade: bool,
) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    if is_upgrade {
        let mut buffer = [0; 4096];
        let length = soon("an answer", stream.read(&mut buffer)).await.unwrap();
        answer.extend_from_slice(&buffer[..length]);
    } else {
        soon("an answer", stream.read_to_end(&mut answer)).await.unwrap();
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer[9..12].parse().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// The other end of the link.
pub(crate) struct Runner {
    pub(crate) link: LinkEnd,
    lines: VecDeque<Value>,
}

impl Runner {
    pub(crate) fn over(link: LinkEnd) -> Runner {
        Runner { link, lines: VecDeque::new() }
    }

    pub(crate) async fn hello(&mut self) {
        self.hello_as("r1").await;
    }

    pub(crate) async fn hello_as(&mut self, runner_id: &str) {
        self.hello_with(runner_id, json!([])).await;
    }

    /// Says hello with these sessions.
    pub(crate) async fn hello_with(&mut self, runner_id: &str, sessions: Value) {
        let hello = json!({"type":"runner.hello","runner_id":runner_id,"hostname":"h","harnesses":["demo"],
            "max_sessions":4,"version":"1","os":"linux","sessions":sessions});
        self.say(&hello.to_string()).await;
    }

    /// Says hello and is welcomed.
    pub(crate) async fn come(&mut self) -> Value {
        self.come_as("r1").await
    }

    pub(crate) async fn come_as(&mut self, runner_id: &str) -> Value {
        self.hello_as(runner_id).await;
        self.line_of("runner.welcome").await
    }

    /// A new session, whose first record is stored.
    pub(crate) async fn create(&mut self, session: &str) {
        self.say(&created(session)).await;
        while self.line_of("ack").await["session_id"] != session {}
    }

    /// Sends one line, or several.
    pub(crate) async fn say(&self, lines: &str) {
        soon("room on the link", self.link.sender.send(Bytes::from(format!("{lines}\n")))).await.unwrap();
    }

    pub(crate) async fn record(&self, session: &str, seq: u64, event: &str, rest: &str) {
        self.say(&record(session, seq, event, rest)).await;
    }

    /// The next line of the hub that is no ack.
    pub(crate) async fn command(&mut self) -> Value {
        self.line_of("command").await
    }

    /// The next line of this type; others before it are dropped.
    pub(crate) async fn line_of(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line(kind).await;
            if line["type"] == kind {
                return line;
            }
        }
    }

    /// The types of the lines up to the first of this type.
    pub(crate) async fn kinds_until(&mut self, kind: &str) -> Vec<String> {
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|last| last != kind) {
            kinds.push(self.line(kind).await["type"].as_str().unwrap().to_owned());
        }
        kinds
    }

    async fn line(&mut self, what: &str) -> Value {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return line;
            }
            let block = soon(what, self.link.receiver.recv()).await.expect("the link is closed");
            let text = std::str::from_utf8(&block).unwrap();
            assert!(text.ends_with('\n'), "blocks are whole lines");
            self.lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }

    /// Answers a command with success.
    pub(crate) async fn answer(&self, command: &Value, data: &str) {
        self.say(&answer(command, data)).await;
    }

    /// The same with the version of the session.
    pub(crate) async fn answer_at(&self, command: &Value, data: &str, version: u64) {
        let line = answer(command, data);
        let line = line.strip_suffix('}').unwrap();
        self.say(&format!("{line},\"session_version\":{version}}}")).await;
    }

    /// Answers a command with an error, as a runner that knows no codes does.
    pub(crate) async fn refuse(&self, command: &Value, error: &str) {
        let refusal = format!("\"success\":false,\"error\":{}", json!(error));
        self.say(&answer(command, "null").replace("\"success\":true,\"data\":null", &refusal)).await;
    }

    pub(crate) async fn refuse_as(&self, command: &Value, error: &str, code: &str) {
        let refusal = format!("\"success\":false,\"error\":{},\"code\":\"{code}\"", json!(error));
        self.say(&answer(command, "null").replace("\"success\":true,\"data\":null", &refusal)).await;
    }

    /// Answers the next command, and gives it.
    pub(crate) async fn answer_next(&mut self, data: &str) -> Value {
        let command = self.command().await;
        self.answer(&command, data).await;
        command
    }

    pub(crate) async fn answer_next_at(&mut self, data: &str, version: u64) -> Value {
        let command = self.command().await;
        self.answer_at(&command, data, version).await;
        command
    }

    pub(crate) async fn refuse_next(&mut self, error: &str) -> Value {
        let command = self.command().await;
        self.refuse(&command, error).await;
        command
    }

    /// Waits for an attach command and answers it.
    pub(crate) async fn attach(&mut self, seq: u64, resume: &str) {
        assert_eq!(self.answer_next(&attach_data(seq, resume)).await["cmd"], "session.attach");
    }
}

/// Checks fields of a frame, each named by its path such as `data.state.status`; a failure shows the whole frame.
#[track_caller]
pub(crate) fn assert_fields(frame: &Value, expected: Value) {
    for (path, expected) in expected.as_object().unwrap() {
        let found = path.split('.').fold(frame, |found, name| match name.parse::<usize>() {
            Ok(index) if found.is_array() => &found[index],
            _ => &found[name],
        });
        assert_eq!(found, expected, "'{path}' of {frame}");
    }
}

pub(crate) fn record(session: &str, seq: u64, event: &str, rest: &str) -> String {
    format!(
        r#"{{"type":"event","session_id":"{session}","runner_id":"r1","ts":1,"seq":{seq},"event":"{event}"{rest}}}"#
    )
}

pub(crate) fn delta(session: &str, number: usize) -> String {
    format!(
        r#"{{"type":"event","session_id":"{session}","runner_id":"r1","ts":1,"event":"stream.text_delta","message_id":"m","delta":"{number}","content_index":0}}"#
    )
}

pub(crate) fn message_end(session: &str, seq: u64, idx: u64) -> String {
    let message = format!(
        r#"{{"id":"m{idx}","idx":{idx},"role":"user","parts":[{{"type":"text","id":"p","text":"word{idx} hello"}}],"created_at":{seq}}}"#
    );
    record(session, seq, "stream.message_end", &format!(r#","message":{message}"#))
}

pub(crate) fn created(session: &str) -> String {
    record(session, 1, "session.created", r#","resumed":false,"harness":"demo","cwd":"/w""#)
}

pub(crate) fn answer(command: &Value, data: &str) -> String {
    let session = command.get("session_id").cloned().unwrap_or(json!("_system"));
    format!(
        r#"{{"type":"response","id":{},"session_id":{session},"runner_id":"r1","ts":2,"cmd":{},"success":true,"data":{data}}}"#,
        command["id"], command["cmd"]
    )
}

pub(crate) fn attach_data(seq: u64, resume: &str) -> String {
    format!(r#"{{"resume":"{resume}","seq":{seq},"state":{{"status":"idle"}},"pending_input":[]}}"#)
}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

impl Client {
    pub(crate) async fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        soon("room to send", self.socket.send(Message::text(text))).await.unwrap();
    }

    /// The next frame, whatever it is.
    pub(crate) async fn next_text(&mut self) -> String {
        loop {
            match soon("a frame", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return text.as_str().to_owned(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("no frame: {other:?}"),
            }
        }
    }

    /// The next frame that is no hint for lists.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            let frame: Value = serde_json::from_str(&self.next_text().await).unwrap();
            if frame["type"] != "session.changed" && frame["type"] != "runner.changed" {
                return frame;
            }
        }
    }

    /// The next such frame; others before it are dropped.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.next().await;
            if is_it(&frame) {
                return frame;
            }
        }
    }

    pub(crate) async fn command(&mut self, id: &str, session: &str, cmd: &str, rest: Value) {
        let mut frame = json!({"channel":"agent","id":id,"session_id":session,"cmd":cmd});
        frame.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        self.send(&frame).await;
    }

    /// Sends a command and gives the next frame, which is its answer unless events come before it.
    pub(crate) async fn call(&mut self, id: &str, session: &str, cmd: &str, rest: Value) -> Value {
        self.command(id, session, cmd, rest).await;
        self.next().await
    }

    /// The same for a frame of any kind.
    pub(crate) async fn ask(&mut self, frame: &Value) -> Value {
        self.send(frame).await;
        self.next().await
    }

    /// The close frame that must come next.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match soon("a close", self.socket.next()).await {
                Some(Ok(Message::Close(Some(close)))) => return close.code.into(),
                Some(Ok(Message::Text(_) | Message::Ping(_))) => {}
                other => panic!("no close: {other:?}"),
            }
        }
    }
}

/// A hub with the session `s` in it, whose first record is stored.
pub(crate) async fn world_with_session(limits: Limits) -> (World, Runner) {
    let (world, mut runner) = World::start_with(limits).await;
    runner.say(&created("s")).await;
    assert_fields(&runner.line_of("ack").await, json!({"session_id": "s", "seq": 1}));
    (world, runner)
}

/// The same, and a client that follows the session.
pub(crate) async fn followed_session() -> (World, Runner, Client) {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.attach(&mut runner, "s", Some(1), 1).await;
    (world, runner, client)
}
