//! Sessions across restarts of their runner: what waits, what is told, what the hub knows.

use crate::support::runner_fixture::RunnerFixture;
use crate::support::{assert_has, until};
use qd_store::{OutcomeRow, OutcomeStatus, RunnerBatch, RunnerStore, StoreOptions};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

fn idle(line: &Value) -> bool {
    line["event"] == "agent.idle" && line["reason"] == "stop"
}

/// A demo session that waits for a person, with two messages that wait for it.
async fn waiting(runner: &mut RunnerFixture) {
    runner.create("demo").await;
    runner.prompt("/question").await;
    runner.event(0, "agent.input_needed").await;
    for message in ["/text one", "/text two"] {
        runner.ok(json!({"cmd": "follow_up", "session_id": "s", "message": message})).await;
    }
    let both = json!(["/text one", "/text two"]);
    runner.find(0, "both wait", |line| line["queue"]["follow_up"] == both).await;
}

#[tokio::test]
async fn what_waits_starts_no_agent_and_runs_before_the_next_prompt() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    waiting(&mut runner).await;
    let mut from = 0;
    for _ in 0..2 {
        runner.restart(0).await;
        from = runner.lines.len();
        let state = runner.state().await;
        assert_eq!(
            (&state["status"], &state["queue"]["follow_up"][1]),
            (&json!("dormant"), &json!("/text two"))
        );
    }
    assert_eq!(runner.prompt("/text three").await["disposition"], "queued");
    runner.find(from, "the end", idle).await;
    assert_eq!(runner.user_messages(), ["/question", "/text one", "/text two", "/text three"]);
    assert_eq!(runner.state().await["queue"], json!({"steering": [], "follow_up": []}));
}

#[tokio::test]
async fn what_an_abort_left_over_is_run_by_a_prompt_and_not_by_a_look() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    waiting(&mut runner).await;
    runner.ok(json!({"cmd": "abort", "session_id": "s"})).await;
    runner.until_status("idle").await;
    let mut from = 0;
    for _ in 0..2 {
        runner.restart(0).await;
        from = runner.lines.len();
        // Reads and settings start the agent, which has nothing to do.
        runner.ok(json!({"cmd": "get_commands", "session_id": "s"})).await;
        runner.ok(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
        let state = runner.state().await;
        let both = json!(["/text one", "/text two"]);
        assert_eq!((&state["status"], &state["queue"]["follow_up"]), (&json!("idle"), &both));
    }
    assert_eq!(runner.prompt("/text three").await["disposition"], "queued");
    runner.find(from, "the end", idle).await;
    assert_eq!(runner.user_messages(), ["/question", "/text one", "/text two", "/text three"]);
}

#[tokio::test]
async fn a_runner_told_so_resumes_what_had_an_agent() {
    let mut runner = RunnerFixture::start(|config| config.resume_at_start = true).await;
    waiting(&mut runner).await;
    runner.restart(0).await;
    let from = runner.lines.len();
    runner.find(from, "the end", idle).await;
    assert_eq!(runner.user_messages(), ["/question", "/text one", "/text two"]);
    // It was idle at the stop, so it comes up again; a closed one does not.
    runner.restart(0).await;
    runner.until_status("idle").await;
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    runner.restart(0).await;
    assert_eq!(runner.state().await["status"], "closed");
}

async fn statuses(runner: &mut RunnerFixture, sessions: &[String]) -> Vec<String> {
    let mut statuses = Vec::new();
    for session_id in sessions {
        let state = runner.ok(json!({"cmd": "get_state", "session_id": session_id})).await;
        statuses.push(state["status"].as_str().unwrap().to_owned());
    }
    statuses
}

#[tokio::test]
async fn resumed_agents_take_turns_and_those_without_room_sleep_on() {
    let mut runner = RunnerFixture::start(|config| config.max_sessions = 100).await;
    // More than may start at once.
    let turns = 2 * std::thread::available_parallelism().unwrap().get();
    let sessions: Vec<String> = (0..turns + 3).map(|number| format!("s{number}")).collect();
    for session_id in &sessions {
        runner
            .ok(json!({"cmd": "session.create", "session_id": session_id, "config": {"harness": "demo"}}))
            .await;
    }
    runner.config.resume_at_start = true;
    runner.config.max_sessions = turns + 2;
    runner.restart(0).await;
    let all_had_turns =
        async || statuses(&mut runner, &sessions).await.iter().all(|status| status != "starting");
    until("every agent gets its turn", all_had_turns).await;
    let statuses = statuses(&mut runner, &sessions).await;
    assert_eq!(statuses.iter().filter(|status| *status == "idle").count(), turns + 2, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| *status == "dormant").count(), 1, "{statuses:?}");
}

#[tokio::test]
async fn a_session_that_failed_is_not_resumed() {
    let mut runner = RunnerFixture::start(|config| config.resume_at_start = true).await;
    left_behind(&mut runner, &["later"]).await;
    runner.restart(0).await;
    let state = runner.state().await;
    assert_eq!((&state["status"], &state["queue"]["follow_up"][0]), (&json!("dormant"), &json!("later")));
}

#[tokio::test]
async fn a_session_that_cannot_be_deleted_lives_on_without_a_hole() {
    let mut runner = RunnerFixture::with_session("demo").await;
    runner.stop().await;
    let delete = "CREATE TRIGGER keep BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'stuck'); END";
    rusqlite::Connection::open(runner.database()).unwrap().execute_batch(delete).unwrap();
    runner.restart(0).await;
    let answer = runner.call(json!({"cmd": "session.delete", "session_id": "s"})).await;
    assert_eq!(answer["code"], "store_unavailable", "{answer}");
    assert_eq!(runner.state().await["status"], "closed");
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let last = runner.state().await["seq"].as_u64().unwrap();
    let from = runner.lines.len();
    // Everything again from the spool: what was said around the failure is in it.
    runner.restart(0).await;
    runner.find(from, "the last record", |line| line["type"] == "event" && line["seq"] == last).await;
    let records = runner.lines[from..].iter().filter(|line| line["event"] != "session.resync");
    let seqs: Vec<u64> = records.filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_what_was_cut_off_only_an_abort_needs_no_words() {
    let mut runner = RunnerFixture::with_session("demo").await;
    runner.stop().await;
    let store = RunnerStore::open(&runner.database(), StoreOptions::default()).unwrap();
    let row = |cmd: &str| OutcomeRow {
        principal: "anna".into(),
        id: cmd.into(),
        session_id: "s".into(),
        idempotency_key: Some(cmd.into()),
        fingerprint: vec![0; 32].into(),
        cmd: cmd.into(),
        response_json: Some(r#"{"begun":""}"#.into()),
        created_at: qd_link::clock::now_ms(),
        status: OutcomeStatus::InFlight,
    };
    let outcomes = vec![row("abort"), row("compact"), row("abort_retry")];
    let batch = RunnerBatch { session_id: "s".into(), outcomes, ..RunnerBatch::default() };
    store.commit(batch).await.unwrap();
    store.close().await;
    let from = runner.lines.len();
    runner.restart(0).await;
    runner.find(from, "the warning", |line| line["event"] == "notify").await;
    runner.state().await;
    let warnings = runner.warnings(from);
    assert!(warnings.len() == 1 && warnings[0].starts_with("'compact' was cut off"), "{warnings:?}");
}

/// A session whose agent was killed while these waited for it.
async fn left_behind(runner: &mut RunnerFixture, messages: &[&str]) {
    runner.create("pi").await;
    runner.prompt("work").await;
    for message in messages {
        runner.ok(json!({"cmd": "follow_up", "session_id": "s", "message": message})).await;
    }
    kill_agent(runner).await;
    assert_eq!(runner.state().await["queue"]["follow_up"], json!(messages));
}

async fn kill_agent(runner: &mut RunnerFixture) {
    let (pid, from) = (runner.pid().await, runner.lines.len());
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    runner.event(from, "agent.error").await;
}

#[tokio::test]
async fn an_input_that_was_on_its_way_when_the_agent_died_is_marked_and_not_run_again() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    left_behind(&mut runner, &["mute", "second"]).await;
    let from = runner.lines.len();
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let second = json!(["second"]);
    runner.find(from, "it is on its way", |line| line["queue"]["follow_up"] == second).await;
    kill_agent(&mut runner).await;
    assert_eq!((runner.interrupted(from), runner.warnings(from).len()), (vec!["mute".to_owned()], 1));
    let from = runner.lines.len();
    runner.prompt("third").await;
    // The message that waited is a turn of its own, and may end before the prompt is read.
    runner.find(from, "the prompt", |line| line["message"]["parts"][0]["text"] == "third").await;
    runner.find(from, "the end", idle).await;
    assert_eq!(runner.user_messages(), ["work", "mute", "second", "third"]);
    assert_eq!(runner.warnings(from), [""; 0]);
}

#[tokio::test]
async fn a_yes_with_the_last_breath_leaves_the_prompt_marked_whichever_is_heard_first() {
    let mut runner = RunnerFixture::with_session("pi").await;
    for _ in 0..3 {
        let from = runner.lines.len();
        assert_eq!(runner.prompt("die").await["disposition"], "started");
        runner.event(from, "agent.error").await;
        runner.event(from, "notify").await;
        runner.state().await;
        assert_eq!((runner.interrupted(from), runner.warnings(from).len()), (vec!["die".to_owned()], 1));
    }
}

#[tokio::test]
async fn an_input_the_agent_refuses_waits_on_and_blocks_nobody() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    left_behind(&mut runner, &["refuse", "second"]).await;
    let from = runner.lines.len();
    runner.prompt("now").await;
    runner.find(from, "the end", idle).await;
    let warnings = runner.warnings(from);
    assert!(warnings[0].contains("No model") && warnings[0].ends_with("refuse"), "{warnings:?}");
    assert_eq!(runner.user_messages(), ["work", "now"]);
    assert_eq!(runner.state().await["queue"]["follow_up"], json!(["refuse", "second"]));
    let from = runner.lines.len();
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    assert_eq!(runner.interrupted(from), ["refuse", "second"]);
    assert_eq!(runner.state().await["queue"]["follow_up"], json!([]));
}

#[tokio::test]
async fn a_number_the_hub_has_is_not_given_again_even_after_another_restart() {
    let mut runner = RunnerFixture::with_session("demo").await;
    runner.restart(1000).await;
    assert_eq!(runner.state().await["seq"], 1000);
    runner.restart(0).await;
    assert_eq!(runner.state().await["seq"], 1000, "the counter is stored without any record");
    let from = runner.lines.len();
    runner.prompt("/text").await;
    let first =
        runner.find(from, "a record", |line| line["seq"].is_u64() && line["event"] != "session.resync").await;
    assert_eq!(first["seq"], 1001, "{first}");
}

#[tokio::test]
async fn a_full_spool_refuses_new_work_and_nothing_else() {
    let mut runner = RunnerFixture::with_session("demo").await;
    let keyed = json!({"cmd": "prompt", "session_id": "s", "message": "/text", "idempotency_key": "k"});
    runner.ok(keyed.clone()).await;
    runner.find(0, "the end", idle).await;
    // Nothing has been acked, so one byte is too little.
    runner.config.spool_bytes_max = 1;
    runner.restart(0).await;
    for cmd in ["prompt", "steer", "follow_up"] {
        let answer = runner.call(json!({"cmd": cmd, "session_id": "s", "message": "/text"})).await;
        assert_eq!(answer["code"], "storage_full", "{answer}");
    }
    let create = json!({"cmd": "session.create", "session_id": "t", "config": {"harness": "demo"}});
    assert_eq!(runner.call(create).await["code"], "storage_full");
    let again = runner.call(keyed).await;
    assert_eq!((&again["success"], &again["replayed"]), (&json!(true), &json!(true)), "{again}");
    runner.ok(json!({"cmd": "set_session_name", "session_id": "s", "name": "still here"})).await;
    assert_eq!(runner.state().await["title"], "still here");
}

/// Two principals may use one key, before and after the runner was away.
#[tokio::test]
async fn a_key_is_its_principals_own() {
    let mut runner = RunnerFixture::with_session("demo").await;
    let named = |name: &str| json!({"cmd": "set_session_name", "session_id": "s", "name": name, "idempotency_key": "k"});
    let line = |id: &str, user: &str, name: &str| {
        let mut line = named(name);
        line["type"] = json!("command");
        line["id"] = json!(id);
        line["user_id"] = json!(user);
        line["user_role"] = json!("operator");
        line
    };
    runner.ok(named("anna's")).await;
    for (id, is_replayed) in [("b1", None), ("b2", Some(true))] {
        runner.say(line(id, "ben", "ben's")).await;
        let answer = runner.find(0, id, |line| line["type"] == "response" && line["id"] == id).await;
        assert_has(&answer, json!({ "success": true, "replayed": is_replayed }));
    }
    assert_eq!(runner.state().await["title"], "ben's");
    runner.restart(0).await;
    for (id, user, name) in [("c1", "anna", "anna's"), ("c2", "ben", "ben's")] {
        runner.say(line(id, user, name)).await;
        let answer = runner.find(0, id, |line| line["type"] == "response" && line["id"] == id).await;
        assert_eq!(answer["replayed"], true, "{answer}");
    }
    assert_eq!(runner.state().await["title"], "ben's", "nothing was done again");
}
