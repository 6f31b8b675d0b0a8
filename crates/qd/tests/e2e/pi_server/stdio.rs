//! `qd pi-server` as a program starts it: the protocol on stdio and on a WebSocket, and nothing else on stdout. Also
//! the port of `qd up` for the same clients, and their tokens.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use qd_testkit::mux::{Mux, WAIT_MAX};
use qd_testkit::pi_server::PiClient;
use qd_testkit::process::{eventually, with_marker};
use qd_testkit::qd::Sandbox;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::{assert_fields, failed, ok, ok_json, pi_sandbox, sandbox};

/// A promise to users: a server that is told to stop has stopped after this.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Another: when stdin has ended, a stdout that nobody reads is given up after this.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// A running `qd pi-server`, with its streams.
struct PiServer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
    /// Every line of stdout, as it came.
    said: Vec<Value>,
    sandbox: Sandbox,
}

impl PiServer {
    /// Starts it and reads `server_ready`.
    async fn start(sandbox: Sandbox, arguments: &[&str]) -> PiServer {
        let mut server = PiServer::spawn(sandbox, arguments);
        let ready = server.line().await.expect("a first line");
        assert_fields(&ready, json!({"type": "server_ready", "data/protocolVersion": "1.0.0"}));
        server
    }

    fn spawn(sandbox: Sandbox, arguments: &[&str]) -> PiServer {
        let mut command = sandbox.command(&["pi-server"]);
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        PiServer {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            stderr: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
            said: Vec::new(),
            sandbox,
        }
    }

    /// The next line of stdout; every one must be a JSON object with a type.
    async fn line(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(WAIT_MAX, self.stdout.next_line()).await.expect("a line in time");
        let line = line.unwrap()?;
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line}"));
        assert!(value["type"].is_string(), "not a message: {line}");
        self.said.push(value.clone());
        Some(value)
    }

    async fn say(&mut self, line: &str) {
        self.say_bytes(format!("{line}\n").as_bytes()).await;
    }

    async fn say_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).await.unwrap();
        stdin.flush().await.unwrap();
    }

    async fn response(&mut self, id: &str) -> Value {
        self.until(|line| line["type"] == "response" && line["id"] == id).await
    }

    async fn call(&mut self, command: Value) -> Value {
        self.say(&command.to_string()).await;
        self.response(command["id"].as_str().unwrap()).await
    }

    /// The address of the WebSocket, from the line on stderr.
    async fn url(&mut self) -> String {
        loop {
            let line = self.stderr.next_line().await.unwrap().expect("the address is told");
            if let Some((_, rest)) = line.split_once("pi-server: ")
                && rest.starts_with("ws://")
            {
                assert!(line.contains("owner-token") || line.contains("no token needed"), "{line}");
                return rest.split_whitespace().next().unwrap().to_owned();
            }
        }
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.sandbox.data_dir().join("owner-token")).unwrap().trim().to_owned()
    }

    async fn websocket(&mut self) -> PiClient {
        let url = self.url().await;
        PiClient::connect(&format!("{url}/any/path"), &self.token()).await
    }

    fn signal(&self, signal: Signal) {
        crate::signal(i32::try_from(self.child.id().unwrap()).unwrap(), signal);
    }

    /// Reads on until a line is like this.
    async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.line().await.expect("it comes before the end");
            if is_it(&line) {
                return line;
            }
        }
    }

    /// Reads stdout to its end and waits for the exit.
    async fn end(&mut self) -> ExitStatus {
        let end = async {
            while self.line().await.is_some() {}
            self.child.wait().await.unwrap()
        };
        tokio::time::timeout(STOP_MAX + WAIT_MAX, end).await.expect("it ends")
    }
}

fn demo_create(session_id: &str) -> Value {
    json!({"id": format!("create-{session_id}"), "type": "create_session", "sessionId": session_id, "harness": "demo"})
}

#[tokio::test]
async fn stdout_carries_the_protocol_and_nothing_else() {
    let mut server = PiServer::start(sandbox(), &["--port", "auto", "--log-level", "debug"]).await;
    assert_eq!(server.said[0]["data"]["transports"], json!(["websocket", "stdio"]));
    assert_eq!(server.call(demo_create("s1")).await["success"], true);
    server.say_bytes(b"\r\n\n{\"id\":\"2\",\"type\":\"switch_session\",\"sessionId\":\"s1\"}\r\n").await;
    assert_eq!(server.response("2").await["success"], true);
    let prompt = json!({"id": "3", "type": "prompt", "sessionId": "s1", "message": "/tools"});
    assert_eq!(server.call(prompt).await["success"], true);
    server.until(|line| line["type"] == "event" && line["event"]["type"] == "agent_end").await;
    for (line, error) in [(&b"{nonsense\n"[..], "Invalid JSON"), (&b"\xff\xfe\n"[..], "Invalid JSON")] {
        server.say_bytes(line).await;
        let answer = server.until(|line| line["type"] == "response").await;
        assert_eq!((&answer["command"], &answer["error"]), (&json!("unknown"), &json!(error)));
    }
    let state = json!({"id": "4", "type": "get_state", "sessionId": "s1"});
    assert_eq!(server.call(state).await["success"], true);
    server.stdin = None;
    assert!(server.end().await.success());
}

#[tokio::test]
async fn a_line_over_the_limit_is_refused_and_the_next_one_served() {
    let mut server = PiServer::start(sandbox(), &["--port", "0", "--pi-message-bytes-max", "1000"]).await;
    assert_eq!(server.said[0]["data"]["transports"], json!(["stdio"]));
    server.say(&"x".repeat(300_000)).await;
    let refused = server.line().await.unwrap();
    assert_eq!(refused["error"], "Message size 300000 exceeds limit 1000", "{refused}");
    assert_eq!(server.call(json!({"id": "1", "type": "list_sessions"})).await["success"], true);
}

#[tokio::test]
async fn the_refusal_of_a_long_line_has_its_id_and_never_comes_before_the_greeting() {
    let mut server = PiServer::spawn(sandbox(), &["--port", "0", "--pi-message-bytes-max", "1000"]);
    server.say_bytes(b"\xff\n").await;
    let long = json!({"type": "prompt", "sessionId": "s", "id": "long", "message": "x".repeat(100_000)});
    server.say(&format!("{{\"id\":\"long\",{}", &long.to_string()[1..])).await;
    assert_eq!(server.line().await.unwrap()["type"], "server_ready");
    assert_eq!(server.line().await.unwrap()["error"], "Invalid JSON");
    let refused = server.line().await.unwrap();
    assert_eq!(refused["id"], "long", "{refused}");
    assert!(refused["error"].as_str().unwrap().ends_with("exceeds limit 1000"), "{refused}");
}

#[tokio::test]
async fn a_parent_that_stops_reading_and_closes_stdin_does_not_keep_it() {
    let mut sandbox = sandbox();
    sandbox.set("QD_PI_RATE_PER_MINUTE", "0").set("QD_PI_GLOBAL_RATE_PER_MINUTE", "0");
    let mut server = PiServer::start(sandbox, &["--port", "0"]).await;
    // More than stdout and everything before it holds, until stdin takes nothing more either.
    let mut stdin = server.stdin.take().unwrap();
    let line = json!({"type": "get_metrics"}).to_string() + "\n";
    let full = Duration::from_secs(1);
    while let Ok(written) = tokio::time::timeout(full, stdin.write_all(line.as_bytes())).await {
        written.unwrap();
    }
    assert!(server.child.try_wait().unwrap().is_none(), "it waits as long as stdin is open");
    drop(stdin);
    let status = tokio::time::timeout(UNREAD_MAX + STOP_MAX, server.child.wait()).await;
    assert_eq!(status.expect("it ends by itself").unwrap().code(), Some(1));
    let mut complaint = String::new();
    while let Some(line) = server.stderr.next_line().await.unwrap() {
        complaint += &line;
    }
    assert!(complaint.contains("stdout was not read"), "{complaint}");
}

#[tokio::test]
async fn the_end_of_stdin_lets_answers_out_and_ends_cleanly() {
    let mut server = PiServer::start(sandbox(), &["--port", "0"]).await;
    server.call(demo_create("s1")).await;
    // The last line needs no end, and all of them are answered although nothing more can come.
    let lines: Vec<String> = (0..50)
        .map(|number| json!({"id": format!("n{number}"), "type": "get_state", "sessionId": "s1"}).to_string())
        .collect();
    server.say_bytes(lines.join("\n").as_bytes()).await;
    server.stdin = None;
    assert_eq!(server.end().await.code(), Some(0));
    let answered =
        server.said.iter().filter(|line| line["type"] == "response" && line["success"] == true).count();
    assert_eq!(answered, 51);
    assert_eq!(server.said.last().unwrap()["type"], "server_shutdown");
    // The whole thing as a shell would do it, with nothing at all to do.
    let idle = server.sandbox.run(&["pi-server", "--port", "0"]).await;
    assert!(ok(&idle).starts_with("{\"type\":\"server_ready\""));
}

#[tokio::test]
async fn both_transports_hear_of_the_end() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = PiServer::start(sandbox(), &["--port", "auto"]).await;
        let mut client = server.websocket().await;
        server.call(demo_create("s1")).await;
        client.wait_for("the session", |frame| frame["type"] == "session_created").await;
        let prompt = json!({"id": "p", "type": "prompt", "sessionId": "s1", "message": "/long 100000"});
        assert_eq!(server.call(prompt).await["success"], true);
        server.signal(signal);
        let ends = async {
            let shutdown = client.wait_for("the end", |frame| frame["type"] == "server_shutdown").await;
            assert_eq!(shutdown["data"]["reason"], "graceful_shutdown");
            while client.next().await.is_some() {}
            server.end().await
        };
        let status = tokio::time::timeout(STOP_MAX, ends).await.expect("it stops in time");
        assert_eq!(status.code(), Some(0));
        assert_eq!(client.closed.as_ref().map(|(code, _)| *code), Some(1001), "{:?}", client.closed);
        let last = server.said.iter().filter(|line| line["type"] == "server_shutdown").count();
        assert_eq!(last, 1, "stdio hears of it too, once");
        let place = server.sandbox.data_dir().display().to_string();
        eventually("no process is left", || with_marker(&place).is_empty()).await;
    }
}

#[tokio::test]
async fn no_agent_outlives_it() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (sandbox, _llm) = pi_sandbox().await;
        let place = sandbox.data_dir().display().to_string();
        let mut server = PiServer::start(sandbox, &["--port", "0"]).await;
        let created = server.call(json!({"id": "c", "type": "create_session", "sessionId": "s1"})).await;
        assert_eq!(created["success"], true, "{created}");
        // Without a directory it works where the server was started.
        let work = std::fs::canonicalize(server.sandbox.work()).unwrap();
        assert_eq!(created["data"]["sessionInfo"]["cwd"], json!(work), "{created}");
        let bash = json!({"id": "b", "type": "bash", "sessionId": "s1", "command": "sleep 600"});
        server.say(&bash.to_string()).await;
        eventually("the agent runs", || !with_marker(&place).is_empty()).await;
        server.signal(signal);
        let status = tokio::time::timeout(STOP_MAX, server.end()).await.expect("it stops in time");
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
        eventually("no process is left", || with_marker(&place).is_empty()).await;
    }
}

#[tokio::test]
async fn sessions_and_outcomes_are_there_after_a_restart() {
    let mut server = PiServer::start(sandbox(), &["--port", "0"]).await;
    let created = server.call(demo_create("s1")).await;
    server.stdin = None;
    assert!(server.end().await.success());
    let mut server = PiServer::start(server.sandbox, &["--port", "0"]).await;
    let again = server.call(demo_create("s1")).await;
    assert_eq!((&again["replayed"], &again["data"]), (&json!(true), &created["data"]), "{again}");
    let listed = server.call(json!({"id": "l", "type": "list_sessions"})).await;
    assert_eq!(listed["data"]["sessions"][0]["sessionId"], "s1", "{listed}");
}

#[tokio::test]
async fn a_taken_port_is_a_clear_error_and_stdout_stays_empty() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut sandbox = sandbox();
    let by_flag = sandbox.run(&["pi-server", "--port", &port]).await;
    sandbox.set("PI_SERVER_PORT", &port);
    let by_variable = sandbox.run(&["pi-server"]).await;
    let of_up = sandbox.run(&["up", "--listen", "127.0.0.1:0", "--pi-server-port", &port]).await;
    for (output, hint) in [(by_flag, "PI_SERVER_PORT"), (by_variable, "--port"), (of_up, "--pi-server-port")]
    {
        let complaint = failed(&output, 1);
        assert!(complaint.contains(&format!("127.0.0.1:{port}")) && complaint.contains(hint), "{complaint}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn a_server_open_to_everybody_is_refused_where_it_would_be() {
    let sandbox = sandbox();
    for (arguments, says) in [
        (
            &["up", "--listen", "0.0.0.0:0", "--pi-server-port", "0", "--insecure-no-auth"][..],
            "other machines",
        ),
        (&["up", "--listen", "127.0.0.1:0", "--insecure-no-auth"], "--pi-server-port"),
        (&["pi-server", "--port", "0", "--insecure-no-auth"], "stdio needs no token"),
        (&["pi-server", "--port", "any"], "neither a port"),
    ] {
        let output = sandbox.run(arguments).await;
        let complaint = failed(&output, 2);
        assert!(complaint.contains(says) && output.stdout.is_empty(), "{arguments:?}: {complaint}");
    }
}

#[tokio::test]
async fn without_a_token_nobody_gets_in_unless_it_is_said_loudly() {
    let mut server = PiServer::start(sandbox(), &["--port", "auto"]).await;
    let url = server.url().await;
    assert!(PiClient::open(&url, &[]).await.err().unwrap().contains("401"));
    let query = format!("{url}/?token={}", server.token());
    assert!(PiClient::open(&query, &[]).await.is_ok());
    server.stdin = None;
    server.end().await;
    let mut server = PiServer::start(server.sandbox, &["--port", "auto", "--insecure-no-auth"]).await;
    let url = server.url().await;
    let mut warning = server.stderr.next_line().await.unwrap().unwrap();
    while !warning.contains("WARNING") {
        warning = server.stderr.next_line().await.unwrap().unwrap();
    }
    assert!(warning.contains("without a token"), "{warning}");
    let mut client = PiClient::open(&url, &[]).await.unwrap();
    assert_eq!(client.next().await.unwrap()["type"], "server_ready");
    let page = PiClient::open(&url, &[("origin", "http://evil.example")]).await;
    assert!(page.err().unwrap().contains("403"), "no page gets in, whatever is said");
}

#[tokio::test]
async fn the_command_line_sees_what_stdio_does() {
    let mut server = PiServer::start(sandbox(), &["--port", "0"]).await;
    server.call(demo_create("s1")).await;
    let listed = ok_json(&server.sandbox.run(&["ls", "--json"]).await);
    assert_eq!(listed[0]["session_id"], "s1", "{listed}");
    let second = server.sandbox.run(&["pi-server", "--port", "0"]).await;
    assert!(failed(&second, 1).contains("already uses the data directory"));
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it() {
    let mut server = PiServer::start(sandbox(), &["--port", "0"]).await;
    let (_, gone) = (server.stdout, server.child.stdout.take());
    assert!(gone.is_none());
    let stdin = server.stdin.as_mut().unwrap();
    stdin.write_all(b"{\"id\":\"1\",\"type\":\"list_sessions\"}\n").await.unwrap();
    let status =
        tokio::time::timeout(STOP_MAX, server.child.wait()).await.expect("it ends by itself").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn up_serves_the_protocol_on_a_port_of_its_own_and_beside_the_others() {
    let mut sandbox = sandbox();
    sandbox.argument("--pi-server-port").argument("0");
    let mut child = sandbox
        .command(&["up", "--ready-json", "--listen", "127.0.0.1:0", "--pi-server-port", "0"])
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).await.unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let (url, token) = (ready["url"].as_str().unwrap(), ready["token"].as_str().unwrap());
    let own = ready["pi_server_url"].as_str().unwrap();
    assert!(own.starts_with("ws://127.0.0.1:"), "{own}");
    let mut by_port = PiClient::connect(own, token).await;
    let mut by_path = PiClient::connect(&format!("{url}/ws/pi"), token).await;
    by_port.ok(demo_create("s1")).await;
    assert_eq!(by_path.ok(json!({"type": "list_sessions"})).await["data"]["sessions"][0]["sessionId"], "s1");
    let mut mux = Mux::connect(url, token).await;
    assert_eq!(mux.state("s1").await["harness"], "demo");
    assert!(PiClient::open(&format!("{url}/elsewhere"), &[]).await.is_err());
    child.kill().await.unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "", "one line, and no more");
}

#[tokio::test]
async fn tokens_are_made_shown_and_taken_back() {
    let mut sandbox = sandbox();
    sandbox.set("QD_PI_SERVER_PORT", "0");
    let qd = sandbox.up().await;
    let token = ok(&qd.cli(&["token", "add", "editor"]).await).trim().to_owned();
    let is_token = token.len() >= 32 && !token.contains(char::is_whitespace);
    assert!(is_token, "only the token is on stdout: {token}");
    assert_eq!(ok_json(&qd.cli(&["token", "add", "ci", "--json"]).await)["name"], "ci");
    let taken = qd.cli(&["token", "add", "editor"]).await;
    assert!(failed(&taken, 1).contains("of this name"));
    failed(&qd.cli(&["token", "add", "no way"]).await, 1);
    let mut client = PiClient::connect(&format!("{}/ws/pi", qd.url()), &token).await;
    client.ok(json!({"type": "list_sessions"})).await;
    let listed = ok(&qd.cli(&["token", "ls"]).await);
    assert!(listed.contains("editor") && listed.contains("ci") && !listed.contains(&token), "{listed}");
    let listed = ok_json(&qd.cli(&["token", "list", "--json"]).await);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    assert!(ok(&qd.cli(&["token", "revoke", "editor"]).await).contains("revoked editor"));
    while client.next().await.is_some() {}
    let revoked = PiClient::open(&format!("{}/ws/pi?token={token}", qd.url()), &[]).await;
    assert!(revoked.err().unwrap().contains("401"));
    assert!(failed(&qd.cli(&["token", "revoke", "editor"]).await, 1).contains("no token called"));
    assert!(failed(&qd.cli(&["token", "revoke", "../runners"]).await, 2).contains("qd token list"));
}
