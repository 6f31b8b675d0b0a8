//! Foreign hosts at `/ws/host`: who is let in, and what becomes of what they send.

use qd_store::HostTrust;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant, sleep};
use tokio_tungstenite::tungstenite::Message;

use crate::access::people::call;
use crate::hosts::support::{HOST_TOKEN, Host, check_whole, output, restart, stored, trust, world_with_host};
use crate::support::{Client, TOKEN, World, assert_fields, soon};

async fn attach(client: &mut Client, run_id: &str, after: Option<u64>) -> Value {
    let rest = after.map_or(json!({}), |after| json!({ "after": after }));
    answered(client, run_id, "session.attach", rest).await
}

/// The names of a run's stored events.
async fn events(world: &World, run_id: &str) -> Vec<String> {
    stored(world, run_id).await.into_iter().map(|(_, event, _)| event).collect()
}

/// The answer to a command; events before it are dropped.
async fn response(client: &mut Client, id: &str) -> Value {
    frame(client, id, |frame| frame["event"] == "response" && frame["id"] == id).await
}

/// The next event of this name.
async fn event(client: &mut Client, name: &str) -> Value {
    frame(client, name, |frame| frame["event"] == name).await
}

/// The next such frame; others before it are dropped.
async fn frame(client: &mut Client, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    soon(what, client.until(is_it)).await
}

/// Sends a command and gives its answer; events before it are dropped.
async fn answered(client: &mut Client, run_id: &str, cmd: &str, rest: Value) -> Value {
    client.command(cmd, run_id, cmd, rest).await;
    response(client, cmd).await
}

#[tokio::test]
async fn hole_01_a_host_nobody_confirmed_is_not_let_in() {
    let (world, _runner) = World::start().await;
    for query in ["", "?host_id=h", "?host_token=t", "?host_id=&host_token=t"] {
        let (status, body) = Host::connect_with(&world, "h", query).await.err().unwrap();
        assert_eq!((status, body.contains("missing host_id/host_token query params")), (401, true), "{body}");
    }
    let (status, body) = Host::try_connect(&world, "h", HOST_TOKEN).await.err().unwrap();
    assert_eq!(status, 403);
    assert!(body.contains("host h waits to be confirmed: qd hosts confirm h"), "{body}");
    let row = world.store.host("h").await.unwrap().unwrap();
    assert_eq!((row.trust, row.token_hash.len()), (HostTrust::Pending, 32));
    // Who comes under a name that waits must be the one who waits.
    assert_eq!(Host::try_connect(&world, "h", "other").await.err().unwrap().0, 401);
    world.store.set_host_trust("h", HostTrust::Trusted).await.unwrap();
    Host::try_connect(&world, "h", HOST_TOKEN).await.unwrap().close().await;
    let (status, body) = Host::try_connect(&world, "h", "other").await.err().unwrap();
    assert_eq!((status, body.contains("invalid host_id/host_token")), (401, true), "{body}");
    world.store.set_host_trust("h", HostTrust::Revoked).await.unwrap();
    assert_eq!(Host::try_connect(&world, "h", HOST_TOKEN).await.err().unwrap().0, 401);
    // The names of runners are not free.
    let (status, body) = Host::try_connect(&world, "r1", HOST_TOKEN).await.err().unwrap();
    assert_eq!((status, body.contains("invalid host_id/host_token")), (401, true), "{body}");
    assert_eq!(Host::try_connect(&world, "a%20b", HOST_TOKEN).await.err().unwrap().0, 400);
    world.stop().await;
}

/// Whoever comes first has the name, but is not who was meant.
#[tokio::test]
async fn hole_01_a_squatted_name_is_confirmed_only_with_the_token_that_was_shown() {
    let (world, _runner) = World::start().await;
    let fingerprint = |token: &str| {
        let hash = Sha256::digest(token.as_bytes());
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let api = async |method: &str, path: &str, body: &str| {
        let (status, _, answer) = call(&world, Some(TOKEN), method, path, body).await;
        (status, answer)
    };
    let confirm = async |token: &str| {
        let body = json!({ "fingerprint": fingerprint(token) }).to_string();
        api("POST", "/api/hosts/desk/confirm", &body).await
    };
    let (_, said) = Host::try_connect(&world, "desk", "squatter").await.err().unwrap();
    assert!(said.contains(&format!("qd hosts confirm desk {}", fingerprint("squatter"))), "{said}");
    let (_, shown) = api("GET", "/api/hosts", "").await;
    assert_eq!(shown["hosts"][0]["fingerprint"], fingerprint("squatter"), "{shown}");

    for body in ["", "{}", "{\"fingerprint\":\"\"}", "{\"fingerprint\":\"0\"}"] {
        let (status, answer) = api("POST", "/api/hosts/desk/confirm", body).await;
        assert!([400, 409].contains(&status), "{body}: {answer}");
    }
    let (status, answer) = confirm(HOST_TOKEN).await;
    assert_eq!((status, &answer["code"]), (409, &json!("conflict")), "{answer}");
    assert_eq!(Host::try_connect(&world, "desk", "squatter").await.err().unwrap().0, 403, "not let in");

    for _ in 0..2 {
        assert_eq!(api("DELETE", "/api/hosts/desk", "").await.0, 200);
    }
    assert_eq!(Host::try_connect(&world, "desk", HOST_TOKEN).await.err().unwrap().0, 403);
    assert_eq!(confirm("squatter").await.0, 409);
    assert_eq!(confirm(HOST_TOKEN).await.0, 200);
    Host::try_connect(&world, "desk", HOST_TOKEN).await.unwrap().close().await;
    assert_eq!(
        Host::try_connect(&world, "desk", "squatter").await.err().unwrap().0,
        401,
        "bound to the token"
    );
    world.stop().await;
}

#[tokio::test]
async fn hole_01_another_hosts_run_is_neither_spoofed_nor_taken_over() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.output("run-1", 2).await;
    host.acked("run-1", 2).await;
    trust(&world, "rogue").await;
    let mut rogue = Host::connect(&world, "rogue").await;
    for seq in [1, 2, 3] {
        rogue.event("run-1", seq, "run.started", json!({"tool": "evil", "cwd": "/", "command": "x"})).await;
    }
    assert_fields(&rogue.next("error").await, json!({"run_id": "run-1", "data.code": "wrong_runner"}));
    let mut client = world.client().await;
    client.command("i", "run-1", "run.input", json!({"input_id": "i1", "text": "my-sudo-password\n"})).await;
    assert_fields(&host.next("run.send_input").await, json!({"data.text": "my-sudo-password\n"}));
    let input = json!({"actor": "web", "input_id": "i1", "text_redacted": "x", "text_sha256": ""});
    host.event("run-1", 3, "run.input", input).await;
    assert_eq!(response(&mut client, "i").await["data"], json!({"input_id": "i1", "duplicate": false}));
    assert_eq!(events(&world, "run-1").await, ["run.started", "run.output", "run.input"]);
    assert!(rogue.acked.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_run_of_a_host_is_a_session_like_any_other() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.event("run-1", 2, "run.ready", json!({"runner_mode": "pty"})).await;
    host.event("run-1", 3, "run.output", json!({"stream": "stdout", "text": "你好 $ "})).await;
    host.acked("run-1", 3).await;
    let row = world.stored("run-1").await.unwrap();
    assert_eq!((&*row.harness, &*row.runner_id, &*row.cwd, row.last_seq), ("pty", "h", "/w", 3));
    let mut client = world.client().await;
    let attached = attach(&mut client, "run-1", None).await;
    let data = &attached["data"];
    assert_eq!((&data["resume"], &data["seq"]), (&json!("gap"), &json!(3)), "{attached}");
    assert_fields(data, json!({"state.status": "working", "state.run.tool": "bash"}));
    assert!(data["terminal"]["screen"].as_str().unwrap().contains("你好"), "{attached}");
    host.output("run-1", 4).await;
    let event = client.next().await;
    assert_fields(&event, json!({"event": "run.output", "seq": 4, "text": "line 4\r\n"}));
    let mut second = world.client().await;
    assert_eq!(attach(&mut second, "run-1", Some(2)).await["data"]["resume"], "ok");
    for seq in [3, 4] {
        assert_eq!(second.next().await["seq"], seq);
    }
    host.event("run-1", 5, "run.exited", json!({"exit_code": 3})).await;
    host.acked("run-1", 5).await;
    let state = answered(&mut client, "run-1", "get_state", json!({})).await;
    assert_eq!((&state["data"]["status"], &state["data"]["run"]["exit_code"]), (&json!("closed"), &json!(3)));
    let late = json!({"input_id": "late", "text": "x"});
    assert_eq!(answered(&mut client, "run-1", "run.input", late).await["code"], "run_ended");
    assert_eq!(answered(&mut client, "run-1", "fs.tree", json!({})).await["code"], "unsupported");
    world.stop().await;
}

#[tokio::test]
async fn hole_12_an_ack_is_the_committed_prefix_and_a_hole_is_waited_for() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    for seq in [2, 4, 6, 5] {
        host.output("run-1", seq).await;
    }
    host.acked("run-1", 2).await;
    host.output("run-1", 3).await;
    host.acked("run-1", 6).await;
    check_whole(&world, "run-1", 6).await;
    world.stop().await;
}

#[tokio::test]
async fn hole_12_what_a_host_never_sends_is_said_to_be_missing() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.output("run-1", 4).await;
    // A run whose beginning is gone from the host's spool.
    host.output("run-2", 3).await;
    host.acked("run-1", 4).await;
    host.acked("run-2", 3).await;
    assert_eq!(events(&world, "run-1").await, ["run.started", "notify", "notify", "run.output"]);
    assert_eq!(events(&world, "run-2").await, ["session.created", "notify", "run.output"]);
    assert_eq!(world.stored("run-2").await.unwrap().harness, "pty");
    world.stop().await;
}

/// The original sends up to 500 of what is not acked again after every ack.
#[tokio::test]
async fn hole_10_a_host_that_resends_on_every_ack_makes_no_storm() {
    const LAST: u64 = 400;
    let (world, _runner, mut host) = world_with_host().await;
    let started = json!({"tool": "t", "cwd": "/w", "command": "c"});
    let mut spool = vec![(1, host.event_text("run-1", 1, "run.started", started))];
    spool.extend((2..=LAST).map(|seq| (seq, host.event_text("run-1", seq, "run.output", output(seq)))));
    // Several threads take numbers before they send.
    for pair in spool.chunks_mut(3) {
        pair.reverse();
    }
    let (mut sent, mut acks) = (0, 0);
    for (_, text) in &spool {
        host.send_text(text).await;
        sent += 1;
    }
    while !spool.is_empty() {
        let ack = host.next("run.ack").await["data"]["last_seq"].as_u64().unwrap();
        acks += 1;
        spool.retain(|(seq, _)| *seq > ack);
        for (_, text) in spool.iter().take(500) {
            host.send_text(text).await;
            sent += 1;
        }
    }
    assert!(acks < 40 && sent < 40 * LAST, "{acks} acks, {sent} messages");
    check_whole(&world, "run-1", LAST).await;
    // Who repeats what is committed is told, now and then.
    let before = Instant::now();
    for _ in 0..50 {
        host.output("run-1", 2).await;
    }
    host.next("run.ack").await;
    assert!(before.elapsed() >= Duration::from_millis(500));
    world.stop().await;
}

#[tokio::test]
async fn hole_15_a_second_connection_takes_over_and_the_end_of_the_first_changes_nothing() {
    let (world, _runner, mut old) = world_with_host().await;
    old.start("run-1").await;
    old.acked("run-1", 1).await;
    let mut new = Host::connect(&world, "h").await;
    let (code, reason) = old.closed().await;
    assert_eq!((code, reason.is_empty()), (1008, false));
    old.close().await;
    new.output("run-1", 2).await;
    new.acked("run-1", 2).await;
    let mut client = world.client().await;
    client.command("k", "run-1", "run.stdin", json!({"text": "q"})).await;
    assert_eq!(new.next("run.send_stdin").await["data"]["text"], "q");
    assert_eq!(response(&mut client, "k").await["success"], true);
    world.stop().await;
}

#[tokio::test]
async fn hole_17_open_approvals_survive_every_restart() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    let asked = json!({"request_id": "q1", "reason": "permission", "prompt": "bash?", "op_tool": "bash",
        "op_args": {"cmd": "rm -rf /tmp/very-long-name-of-a-directory-that-must-be-seen"}, "approve_text": "", "deny_text": ""});
    host.event("run-1", 2, "run.permission_requested", asked).await;
    host.acked("run-1", 2).await;
    host.close().await;
    let (world, _runner) = restart(world).await;
    let mut client = world.client().await;
    let approval = json!({"request_id": "q1", "decision": "approve"});
    assert_eq!(answered(&mut client, "run-1", "input_response", approval).await["code"], "runner_offline");
    let mut host = Host::connect(&world, "h").await;
    let pending = loop {
        let data = attach(&mut client, "run-1", None).await["data"].clone();
        if data["state"]["status"] == "working" {
            break data["pending_input"].clone();
        }
    };
    assert_eq!(pending[0]["request_id"], "q1");
    assert!(pending[0]["metadata"]["op_args"]["cmd"].as_str().unwrap().contains("must-be-seen"));
    let listed = answered(&mut client, "_system", "list_sessions", json!({})).await;
    assert_fields(&listed, json!({"data.sessions.0.pending_input_count": 1}));
    let made_up = json!({"request_id": "made-up", "decision": "approve_for_session"});
    assert_eq!(answered(&mut client, "run-1", "input_response", made_up).await["code"], "question_not_found");
    let mut app = world.app().await;
    let approval = json!({"request_id": "q1", "decision": "approve", "actor": "cli"});
    client.command("c", "run-1", "input_response", approval).await;
    let told = host.next("run.permission.approve").await;
    assert_eq!((&told["data"]["request_id"], &told["data"]["actor"]), (&json!("q1"), &json!("cli")));
    // Either may come first.
    let is_one = |frame: &Value| frame["event"] == "agent.input_resolved" || frame["id"] == "c";
    let first = frame(&mut client, "event or response", is_one).await;
    let second = frame(&mut client, "response or event", is_one).await;
    let (resolved, answer) = if first["id"] == "c" { (second, first) } else { (first, second) };
    assert_eq!((&resolved["request_id"], &resolved["decision"]), (&json!("q1"), &json!("approve")));
    assert_eq!(answer["success"], true, "{answer}");
    let (_, audit) = world.api("GET", "/api/audit?session=run-1&kind=permission").await;
    assert_eq!(audit["entries"][0]["request_id"], "q1", "it is stored before it is answered");
    // No record tells of it: apps get it without a number, and the audit has it.
    let decided = app.heard_of("run.permission_decided").await;
    assert_eq!((&decided["run_id"], decided.get("seq")), (&json!("run-1"), None));
    let expected = json!({"request_id": "q1", "decision": "approve", "actor": "cli", "by": "owner"});
    assert_eq!(decided["data"], expected);
    let row = &audit["entries"][0];
    assert_fields(
        row,
        json!({"principal": "owner", "actor": "cli", "ok": true, "request_id": "q1",
        "summary": "approve"}),
    );
    let (_, run) = world.api("GET", "/sessions/run-1").await;
    assert_eq!((&run["status"], &run["pending_request_id"]), (&json!("running"), &Value::Null));
    world.stop().await;
}

#[tokio::test]
async fn hole_22_malformed_messages_get_an_error_and_harm_nothing() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    for text in [
        "nonsense",
        "[]",
        "{}",
        r#"{"type":5}"#,
        r#"{"type":"run.output","run_id":"run-1","seq":-1,"data":{}}"#,
        r#"{"type":"run.output","run_id":"run-1","data":{"text":"no seq"}}"#,
        r#"{"type":"run.output","seq":2,"data":{"text":"no run"}}"#,
        r#"{"type":"run.output","run_id":"a/b","seq":1,"data":{"text":"bad run"}}"#,
        r#"{"type":"run.output","run_id":"run-1","seq":999999999999,"data":{"text":"far"}}"#,
        r#"{"type":"run.send_input","run_id":"run-1","seq":2,"data":{}}"#,
        r#"{"type":"rpc.response","data":{}}"#,
    ] {
        host.send_text(text).await;
        let error = host.next("error").await;
        assert!(error["data"]["error"].is_string() && error["data"]["code"].is_string(), "{text}: {error}");
    }
    host.send_message(Message::binary(b"\0\x01".to_vec())).await;
    // A number is used whatever the event says.
    host.event("run-1", 2, "run.output", json!({"text": 5})).await;
    assert_eq!(host.next("error").await["data"]["about"], "run.output");
    host.output("run-1", 3).await;
    host.acked("run-1", 3).await;
    assert_eq!(stored(&world, "run-1").await[1].1, "notify");
    world.stop().await;
}

#[tokio::test]
async fn hole_23_heartbeats_leave_no_trace_but_a_time() {
    let (world, _runner, mut host) = world_with_host().await;
    for _ in 0..20 {
        host.send_text(r#"{"type":"host.heartbeat","ts":"2025-01-01T00:00:00Z","data":{}}"#).await;
    }
    host.start("run-1").await;
    host.acked("run-1", 1).await;
    let sessions = world.store.sessions().await.unwrap();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert!(world.store.host("h").await.unwrap().unwrap().last_seen_at.is_some());
    world.stop().await;
}

#[tokio::test]
async fn calls_go_to_the_host_and_answers_to_the_asker_alone() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.acked("run-1", 1).await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    one.command("r", "run-1", "fs.read", json!({"path": "README.md", "request_id": "same"})).await;
    let first = host.next("rpc.fs.read").await;
    two.command("r", "run-1", "fs.read", json!({"path": "other", "request_id": "same"})).await;
    let second = host.next("rpc.fs.read").await;
    assert_eq!((&first["data"]["request_id"], &first["data"]["path"]), (&json!("same"), &json!("README.md")));
    assert_ne!(second["data"]["request_id"], "same");
    host.answer(&second, Err("path escapes run cwd")).await;
    host.answer(&first, Ok(json!({"path": "README.md", "content": "hi", "truncated": false}))).await;
    host.answer(&first, Ok(json!({"path": "README.md", "content": "again", "truncated": false}))).await;
    assert_eq!(response(&mut one, "r").await["data"]["content"], "hi");
    // The document's hosts know no codes; their words are passed on.
    let refused = response(&mut two, "r").await;
    assert_eq!((&refused["error"], &refused["code"]), (&json!("path escapes run cwd"), &json!("failed")));
    // A new run on a host that is named.
    let config = json!({"harness": "pty", "cwd": "/w", "run": {"tool": "codex", "cmd": "codex --full"}});
    one.send(
        &json!({"channel": "agent", "id": "c", "cmd": "session.create", "runner_id": "h", "config": config}),
    )
    .await;
    let start = tokio::select! {
        start = host.next("rpc.run.start") => start,
        refused = response(&mut one, "c") => panic!("{refused}"),
    };
    assert_eq!((&start["data"]["cmd"], &start["data"]["host_id"]), (&json!("codex --full"), &json!("h")));
    host.answer(&start, Ok(json!({"run_id": "run-9"}))).await;
    assert_fields(&response(&mut one, "c").await, json!({"success": true, "session_id": "run-9"}));
    // Sent again, it starts nothing again.
    one.send(&json!({"channel": "agent", "id": "c2", "cmd": "session.create", "runner_id": "h", "idempotency_key": "k", "config": config})).await;
    let start = host.next("rpc.run.start").await;
    host.answer(&start, Ok(json!({"run_id": "run-10"}))).await;
    assert_eq!(response(&mut one, "c2").await["session_id"], "run-10");
    one.send(&json!({"channel": "agent", "id": "c3", "cmd": "session.create", "runner_id": "h", "idempotency_key": "k", "config": config})).await;
    assert_eq!(response(&mut one, "c3").await["session_id"], "run-10");
    host.start("run-9").await;
    assert_eq!(event(&mut one, "run.started").await["session_id"], "run-9");
    world.stop().await;
}

#[tokio::test]
async fn a_host_that_never_answers_costs_its_asker_a_time_limit() {
    let limits = qd_hub::Limits { command_timeout: Some(Duration::from_millis(300)), ..Default::default() };
    let (world, _runner) = World::start_with(limits).await;
    trust(&world, "h").await;
    let mut host = Host::connect(&world, "h").await;
    host.start("run-1").await;
    host.acked("run-1", 1).await;
    let mut client = world.client().await;
    client.command("r", "run-1", "git.status", json!({})).await;
    client.command("i", "run-1", "run.input", json!({"input_id": "i", "text": "x"})).await;
    // Their times are over together, in any order.
    for _ in 0..2 {
        let over = frame(&mut client, "the limit", |frame| frame["event"] == "response").await;
        assert_eq!(over["success"], false, "{over}");
    }
    // The same input again: the host decides whether it was written.
    client.command("j", "run-1", "run.input", json!({"input_id": "i", "text": "x"})).await;
    host.next("run.send_input").await;
    host.next("run.send_input").await;
    host.event("run-1", 2, "run.input", json!({"input_id": "i"})).await;
    assert_eq!(response(&mut client, "j").await["data"]["duplicate"], false);
    let again = answered(&mut client, "run-1", "run.input", json!({"input_id": "i", "text": "x"})).await;
    assert_eq!(again["data"]["duplicate"], true);
    world.stop().await;
}

#[tokio::test]
async fn inputs_that_a_host_never_confirms_end_with_their_time_or_their_run() {
    let limits = qd_hub::Limits { command_timeout: Some(Duration::from_secs(4)), ..Default::default() };
    let (world, _runner) = World::start_with(limits).await;
    trust(&world, "h").await;
    let mut host = Host::connect(&world, "h").await;
    host.start("run-1").await;
    host.start("run-2").await;
    host.acked("run-2", 1).await;
    let mut client = world.client().await;
    client.command("i", "run-1", "run.input", json!({"input_id": "i", "text": "x"})).await;
    host.next("run.send_input").await;
    host.event("run-1", 2, "run.exited", json!({"exit_code": 0})).await;
    assert_fields(&response(&mut client, "i").await, json!({"code": "run_ended"}));
    let body = r#"{"input_id":"j","text":"x"}"#;
    let (status, _, body) = call(&world, Some(TOKEN), "POST", "/runs/run-2/input", body).await;
    assert_eq!(status, 504, "{body}");
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_run_stays_deleted_whatever_its_host_still_sends() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.output("run-1", 2).await;
    host.acked("run-1", 2).await;
    let mut client = world.client().await;
    client.command("d", "run-1", "session.delete", json!({})).await;
    assert_eq!(host.next("run.stop").await["data"]["signal"], "kill");
    assert_eq!(response(&mut client, "d").await["success"], true);
    host.output("run-1", 3).await;
    host.acked("run-1", 3).await;
    host.close().await;
    let (world, _runner) = restart(world).await;
    let mut host = Host::connect(&world, "h").await;
    host.output("run-1", 4).await;
    host.acked("run-1", 4).await;
    assert!(world.stored("run-1").await.is_none());
    world.stop().await;
}

/// Both ends send much and read late: neither waits for the other for ever.
#[tokio::test]
async fn hole_10_a_host_that_does_not_read_does_not_stop_its_own_events() {
    const LAST: u64 = 3000;
    let (world, _runner) = World::start().await;
    trust(&world, "h").await;
    let mut host = Host::connect_narrow(&world, "h").await;
    host.start("run-1").await;
    host.acked("run-1", 1).await;
    // More than all buffers between the two hold, so that writing to the host stands still.
    let mut client = world.client().await;
    let text = "x".repeat(100_000);
    for number in 0..240 {
        let told = answered(&mut client, "run-1", "run.stdin", json!({ "text": text })).await;
        assert_eq!(told["success"], true, "{number}");
    }
    for seq in 2..=LAST {
        host.event("run-1", seq, "run.output", output(seq)).await;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.stored("run-1").await.is_none_or(|row| row.last_seq < LAST) {
        assert!(Instant::now() < deadline, "in vain: all events are stored");
        sleep(Duration::from_millis(20)).await;
    }
    check_whole(&world, "run-1", LAST).await;
    soon("the ack", host.acked("run-1", LAST)).await;
    world.stop().await;
}

#[tokio::test]
async fn a_host_that_is_revoked_is_cut_off_at_once() {
    let (world, _runner, mut host) = world_with_host().await;
    host.start("run-1").await;
    host.acked("run-1", 1).await;
    let (status, body) = world.api("DELETE", "/api/hosts/h").await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(host.closed().await, (1008, "this host was revoked".to_owned()));
    assert_eq!(Host::try_connect(&world, "h", HOST_TOKEN).await.err().unwrap().0, 401);
    assert_eq!(stored(&world, "run-1").await.len(), 1);
    world.stop().await;
}
