//! The HTTP routes of the run document.

use std::time::Duration;

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::run::support::{gate, output};
use crate::support::{TOKEN, World, assert_fields, record};

async fn get(world: &World, path: &str) -> (u16, String, String) {
    world.http(path, &[("Authorization", &format!("Bearer {TOKEN}"))]).await
}

async fn list(world: &World, path: &str) -> Vec<Value> {
    let (status, _, body) = get(world, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

async fn post_input(world: &World, run_id: &str, body: &str) -> (u16, String) {
    let bearer = format!("Bearer {TOKEN}");
    let path = format!("/runs/{run_id}/input");
    let (status, _, body) = world.request_with("POST", &path, &[("Authorization", &bearer)], body).await;
    (status, body)
}

#[tokio::test]
async fn every_route_wants_a_token_and_health_does_not() {
    let (world, _runner) = World::with_run(Limits::default()).await;
    for path in [
        "/runs",
        "/sessions",
        "/sessions/recent",
        "/sessions/run-1",
        "/hosts",
        "/runs/run-1/messages",
        "/sessions/run-1/messages",
        "/server/logs/tail",
    ] {
        let (status, _, body) = world.http(path, &[]).await;
        assert_eq!((status, body.as_str()), (401, "missing bearer token"), "{path}");
        let (status, _, body) = world.http(path, &[("Authorization", "Bearer wrong")]).await;
        assert_eq!((status, body.as_str()), (401, "invalid token"), "{path}");
    }
    let (status, _, body) =
        world.request_with("POST", "/runs/run-1/input", &[], r#"{"input_id":"i","text":"x"}"#).await;
    assert_eq!((status, body.as_str()), (401, "missing bearer token"));
    let (status, _, body) = world.http("/health", &[]).await;
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &health["name"]), (200, &json!("quarterdeck")));
    assert!(health["version"].is_string());
    world.stop().await;
}

#[tokio::test]
async fn an_input_goes_to_the_runner_and_is_answered_with_nothing() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let body = r#"{"input_id":"i-1","text":"y\n"}"#;
    let asked = async { post_input(&world, "run-1", body).await };
    let answered = async {
        let command = runner.command().await;
        assert_fields(
            &command,
            json!({"cmd": "run.input", "session_id": "run-1", "input_id": "i-1",
            "text": "y\n", "actor": "web"}),
        );
        runner.answer(&command, r#"{"input_id":"i-1","duplicate":false}"#).await;
    };
    assert_eq!(tokio::join!(asked, answered).0, (204, String::new()));
    assert_eq!(post_input(&world, "nobody", body).await, (404, "unknown run_id".to_owned()));
    assert_eq!(post_input(&world, "run-1", r#"{"text":"x"}"#).await, (400, "missing input_id".to_owned()));
    assert_eq!(post_input(&world, "run-1", "nonsense").await.0, 400);
    let great = format!(r#"{{"input_id":"i","text":"{}"}}"#, "x".repeat(3 << 20));
    assert_eq!(post_input(&world, "run-1", &great).await.0, 413);
    let asked = async { post_input(&world, "run-1", body).await };
    let refused = async {
        runner.refuse_next("The run has exited").await;
    };
    assert_eq!(tokio::join!(asked, refused).0, (409, "The run has exited".to_owned()));
    drop(runner);
    assert_eq!(post_input(&world, "run-1", body).await, (502, "host offline".to_owned()));
    world.stop().await;
}

#[tokio::test]
async fn runs_are_listed_with_what_they_wait_for_and_how_they_ended() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    runner.say(&gate("run-1", 3, "q-1")).await;
    runner.start_run("run-2").await;
    runner.say(&record("run-2", 3, "run.exited", r#","exit_code":3"#)).await;
    runner.stored("run-2", 3).await;
    let check = |runs: Vec<Value>| {
        assert_eq!(runs.len(), 2);
        let find = |id: &str| runs.iter().find(|run| run["id"] == id).unwrap().clone();
        let (one, two) = (find("run-1"), find("run-2"));
        assert_fields(
            &one,
            json!({"host_id": "r1", "tool": "codex", "cwd": "/w",
            "status": "awaiting_approval", "pending_request_id": "q-1", "pending_reason": "permission",
            "pending_op_tool": "bash", "pending_op_args_summary": "ls", "exit_code": null,
            "started_at": "1970-01-01T00:00:00.001Z"}),
        );
        assert_eq!((&two["status"], &two["exit_code"]), (&json!("exited"), &json!(3)));
        assert!(two["ended_at"].is_string() && two["pending_request_id"].is_null());
    };
    check(list(&world, "/runs").await);
    check(list(&world, "/sessions").await);
    check(list(&world, "/sessions/recent?limit=50").await);
    assert_eq!(list(&world, "/sessions/recent?limit=1").await.len(), 1);
    let (status, _, body) = get(&world, "/sessions/run-1").await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["id"], "run-1");
    let (status, _, body) = get(&world, "/sessions/nobody").await;
    assert_eq!((status, body.as_str()), (404, "unknown session_id"));
    assert_eq!(get(&world, "/runs?limit=many").await.0, 400);
    let hosts = list(&world, "/hosts").await;
    assert_eq!((&hosts[0]["id"], &hosts[0]["online"]), (&json!("r1"), &json!(true)));
    // A hub that starts again knows it from its log.
    let directory = world.end().await;
    drop(runner);
    let (world, _runner) = World::start_silent(directory, Limits::default()).await;
    let runs = list(&world, "/runs").await;
    let find = |id: &str| runs.iter().find(|run| run["id"] == id).unwrap().clone();
    assert_eq!(
        (&find("run-1")["status"], &find("run-1")["tool"]),
        (&json!("awaiting_approval"), &json!("codex"))
    );
    assert_eq!((&find("run-2")["status"], &find("run-2")["exit_code"]), (&json!("exited"), &json!(3)));
    world.stop().await;
}

/// A question may be much older than what a program wrote since.
#[tokio::test]
async fn a_hub_that_starts_again_finds_old_questions() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let lines: Vec<String> = (3..100).map(|seq| output("run-1", seq, "before")).collect();
    runner.say(&lines.join("\n")).await;
    runner.say(&gate("run-1", 100, "q-1")).await;
    runner.say(&gate("run-1", 101, "q-2")).await;
    runner
        .say(&record("run-1", 102, "agent.input_resolved", r#","request_id":"q-1","outcome":"answered""#))
        .await;
    let lines: Vec<String> = (103..=600).map(|seq| output("run-1", seq, "after")).collect();
    runner.say(&lines.join("\n")).await;
    runner.stored("run-1", 600).await;
    let directory = world.end().await;
    drop(runner);
    let (world, _runner) = World::start_silent(directory, Limits::default()).await;
    let run = &list(&world, "/runs").await[0];
    assert_eq!((&run["status"], &run["pending_request_id"]), (&json!("awaiting_approval"), &json!("q-2")));
    world.stop().await;
}

#[tokio::test]
async fn an_input_that_nobody_answers_is_a_timeout() {
    let limits = Limits { command_timeout: Some(Duration::from_millis(200)), ..Limits::default() };
    let (world, _runner) = World::with_run(limits).await;
    assert_eq!(post_input(&world, "run-1", r#"{"input_id":"i","text":"x"}"#).await.0, 504);
    world.stop().await;
}

#[tokio::test]
async fn the_past_is_read_by_id_and_by_number_both_ways() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let last = 1000;
    let lines: Vec<String> = (3..=last).map(|seq| output("run-1", seq, &format!("line {seq}"))).collect();
    runner.say(&lines.join("\n")).await;
    runner.say(&record("run-1", last + 1, "run.exited", r#","exit_code":0"#)).await;
    runner.stored("run-1", last + 1).await;
    let newest = list(&world, "/runs/run-1/messages").await;
    assert_eq!(newest.len(), 200);
    assert_eq!((&newest[199]["kind"], &newest[199]["role"]), (&json!("run.exited"), &json!("system")));
    assert_eq!((&newest[0]["role"], &newest[0]["text"]), (&json!("assistant"), &json!("line 802")));
    // Backwards by id, as the original's clients do.
    let mut pages = vec![newest];
    loop {
        let before = pages.last().unwrap()[0]["id"].as_u64().unwrap();
        let page = list(&world, &format!("/sessions/run-1/messages?limit=300&before_id={before}")).await;
        if page.is_empty() {
            break;
        }
        pages.push(page);
    }
    let all: Vec<u64> = pages.iter().rev().flatten().filter_map(|message| message["seq"].as_u64()).collect();
    assert_eq!(all, (2..=last + 1).collect::<Vec<u64>>());
    // Forwards by number.
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let page = list(&world, &format!("/runs/run-1/messages?limit=500&since_seq={since}")).await;
        seen.extend(page.iter().filter_map(|message| message["seq"].as_u64()));
        match seen.last() {
            Some(last) if !page.is_empty() => since = *last,
            _ => break,
        }
    }
    assert_eq!(seen, all);
    let page = list(&world, "/runs/run-1/messages?before_seq=10&limit=3").await;
    assert_eq!(page.iter().map(|message| message["seq"].clone()).collect::<Vec<_>>(), [7, 8, 9]);
    let quiet = list(&world, "/runs/run-1/messages?include_output=false").await;
    assert_eq!(
        quiet.iter().map(|message| message["kind"].clone()).collect::<Vec<_>>(),
        ["run.started", "run.exited"]
    );
    let (_, head, _) = get(&world, "/runs/run-1/messages?since_seq=990&limit=5").await;
    assert!(head.contains("x-next-seq: 995"), "{head}");
    assert_eq!(get(&world, "/runs/run-1/messages?limit=x").await.0, 400);
    let (status, _, body) = get(&world, "/runs/nobody/messages").await;
    assert_eq!((status, body.as_str()), (404, "unknown run_id"));
    world.stop().await;
}

#[tokio::test]
async fn a_page_of_great_records_is_not_greater_than_it_may_be() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let text = "x".repeat(64 << 10);
    for seq in 3..203 {
        runner.output("run-1", seq, &text).await;
    }
    runner.stored("run-1", 202).await;
    let mut before = u64::MAX;
    let mut seen = Vec::new();
    loop {
        let path = if before == u64::MAX {
            "/runs/run-1/messages?limit=500".to_owned()
        } else {
            format!("/runs/run-1/messages?limit=500&before_seq={before}")
        };
        let (_, head, body) = get(&world, &path).await;
        assert!(body.len() < 10 << 20, "{}", body.len());
        let page: Vec<Value> = serde_json::from_str(&body).unwrap();
        let numbers = page.iter().filter_map(|message| message["seq"].as_u64());
        seen.splice(0..0, numbers);
        match head.lines().find_map(|line| line.strip_prefix("x-next-seq: ")).map(str::parse) {
            Some(Ok(next)) => before = next,
            _ => break,
        }
    }
    assert_eq!(seen, (2..203).collect::<Vec<u64>>());
    world.stop().await;
}

#[tokio::test]
async fn the_servers_log_is_read_from_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hub.log");
    std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let log_path = path.clone();
    let (world, _runner) =
        World::start_as(tempfile::tempdir().unwrap(), move |config| config.log_path = Some(log_path)).await;
    let (status, _, body) = get(&world, "/server/logs/tail?lines=2").await;
    let tail: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(tail, json!({"path":path.display().to_string(),"text":"two\nthree\n","truncated":false}));
    world.stop().await;
    let (world, _runner) = World::start().await;
    assert_eq!(get(&world, "/server/logs/tail").await.0, 404);
    world.stop().await;
}
