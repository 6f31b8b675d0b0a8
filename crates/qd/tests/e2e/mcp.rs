//! `qd mcp` as an agent starts it: a real handshake on stdio, tools that work, and a person before those that change
//! something.

use std::process::Stdio;

use qd_testkit::mux::{Mux, WAIT_MAX};
use qd_testkit::qd::Sandbox;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::{answer, assert_fields, demo, failed, with};

/// An MCP client, as agents have one.
struct McpAgent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    next: u64,
}

impl McpAgent {
    async fn start(sandbox: &Sandbox, arguments: &[&str]) -> McpAgent {
        let mut command = sandbox.command(&["mcp"]);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut agent = McpAgent { stdin: child.stdin.take(), stdout, child, next: 0 };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
                            "clientInfo": { "name": "test", "version": "1" } });
        let welcome = agent.request("initialize", hello).await;
        assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18", "{welcome}");
        assert_eq!(welcome["result"]["serverInfo"]["name"], "quarterdeck");
        assert!(welcome["result"]["capabilities"]["tools"].is_object());
        agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        agent
    }

    async fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// The answer to a request. Every line of stdout must be a message of the protocol.
    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = tokio::time::timeout(WAIT_MAX, self.stdout.next_line()).await.expect("a line in time");
            let line = line.unwrap().expect("the server lives");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// The text of a tool's answer, and whether it is an error.
    async fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let id = self.begin(tool, arguments).await;
        text(&self.answer(id).await)
    }

    async fn end(mut self) {
        drop(self.stdin.take());
        let ended = tokio::time::timeout(WAIT_MAX, self.child.wait()).await.expect("it ends with its input");
        assert!(ended.unwrap().success());
    }
}

fn text(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let is_error = result["isError"] == true;
    assert_eq!(result["structuredContent"]["code"].is_string(), is_error, "a refusal has a code: {answer}");
    (text, is_error)
}

/// The question a person is asked.
async fn question(mux: &mut Mux) -> Value {
    mux.wait_event("agent.input_needed").await["request"].clone()
}

#[tokio::test]
async fn an_agent_reads_at_once_and_writes_after_a_person_said_yes() {
    let (qd, mut mux) = demo().await;
    let work = qd.sandbox().work();
    std::fs::write(work.join("a.txt"), "one\ntwo needles\n").unwrap();
    let session = mux.create(json!({ "harness": "demo", "cwd": work })).await;
    let mut agent = McpAgent::start(qd.sandbox(), &["--session", &session]).await;
    let tools = agent.request("tools/list", json!({})).await;
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fs_read", "fs_search", "fs_list", "git_status", "git_diff", "fs_write", "bash"]);
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));

    assert_eq!(agent.call("fs_read", json!({ "path": "a.txt" })).await, ("one\ntwo needles\n".into(), false));
    let (found, _) = agent.call("fs_search", json!({ "query": "needle" })).await;
    assert_eq!(found, "a.txt:2:5: two needles\n");
    let (listed, _) = agent.call("fs_list", json!({})).await;
    assert!(listed.contains("a.txt  16"), "{listed}");
    let (refused, is_error) = agent.call("fs_read", json!({ "path": "../../etc/passwd" })).await;
    assert_eq!((&*refused, is_error), ("path contains ..", true));
    // Nothing but the tool's own arguments: no other session, no other root, no way around the question.
    for extra in [json!({ "ask": false }), json!({ "session_id": "x" }), json!({ "root": "/" })] {
        let arguments = with(json!({ "path": "b.txt", "content": "x" }), extra);
        let (refused, is_error) = agent.call("fs_write", arguments).await;
        assert!(is_error && refused.contains("has no argument"), "{refused}");
    }

    // The token is the owner's, who would not be asked; the agent is.
    let id = agent.begin("fs_write", json!({ "path": "b.txt", "content": "written" })).await;
    let asked = question(&mut mux).await;
    assert_fields(&asked, json!({"metadata/op_tool": "rpc.fs.write", "metadata/actor": "agent"}));
    assert!(!work.join("b.txt").exists());
    mux.ok(answer(&session, &asked["request_id"], json!({"decision": "approve"}))).await;
    let (written, is_error) = text(&agent.answer(id).await);
    assert!(!is_error && written.starts_with("Wrote 7 bytes to b.txt"), "{written}");
    assert_eq!(std::fs::read_to_string(work.join("b.txt")).unwrap(), "written");
    agent.end().await;
}

#[tokio::test]
async fn a_call_that_the_agent_takes_back_asks_nobody_any_more() {
    let (qd, mut mux) = demo().await;
    let session = mux.create(json!({ "harness": "demo", "cwd": qd.sandbox().work() })).await;
    let mut agent = McpAgent::start(qd.sandbox(), &["--session", &session]).await;
    let id = agent.begin("bash", json!({ "command": "touch ran" })).await;
    let asked = question(&mut mux).await;
    assert_eq!(asked["metadata"]["op_args"]["command"], "touch ran");
    agent
        .say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
        .await;
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_eq!((&resolved["outcome"], &resolved["request_id"]), (&json!("withdrawn"), &asked["request_id"]));
    assert!(!qd.sandbox().work().join("ran").exists());
    // The next one is denied, and the agent reads why.
    let id = agent.begin("bash", json!({ "command": "touch ran" })).await;
    let is_next = |frame: &Value| {
        frame["event"] == "agent.input_needed" && frame["request"]["request_id"] != asked["request_id"]
    };
    let asked = mux.wait_for("the next question", is_next).await;
    let no = json!({"decision": "deny", "reason": "not today"});
    mux.ok(answer(&session, &asked["request"]["request_id"], no)).await;
    assert_eq!(text(&agent.answer(id).await), ("denied: not today".into(), true));
    agent.end().await;
}

#[tokio::test]
async fn it_needs_to_know_its_session() {
    let (qd, _mux) = demo().await;
    let output = qd.cli(&["mcp"]).await;
    assert!(failed(&output, 2).contains("QD_SESSION_ID"));
    assert!(output.stdout.is_empty());
}
