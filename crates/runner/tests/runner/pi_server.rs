//! What the pi-server face needs of a runner: native events, cancelled commands, breakers, question timeouts, names.

mod rules;

use std::time::Duration;

use crate::support::runner_fixture::{RunnerFixture, bash, on};
use crate::support::{assert_has, merged, real_pi, until};
use serde_json::{Value, json};

fn is_native(line: &Value) -> bool {
    line["event"] == "x-native"
}

#[tokio::test]
async fn native_events_come_while_the_hub_watches() {
    for harness in ["pi", "demo"] {
        let mut runner = RunnerFixture::start(|_| {}).await;
        // Said before the session is there: it holds all the same.
        runner.say(json!({"type": "session.watch", "session_id": "s", "on": true})).await;
        runner.create(harness).await;
        let from = runner.turn("hello").await;
        let natives: Vec<Value> =
            runner.lines[from..].iter().filter(|line| is_native(line)).cloned().collect();
        let types: Vec<&str> = natives.iter().map(|line| line["native"]["type"].as_str().unwrap()).collect();
        for expected in ["agent_start", "message_start", "message_end", "agent_end"] {
            assert!(types.contains(&expected), "{harness}: {expected} in {types:?}");
        }
        assert!(natives.iter().all(|line| line.get("seq").is_none()));
        runner.say(json!({"type": "session.watch", "session_id": "s", "on": false})).await;
        runner.state().await;
        let from = runner.turn("again").await;
        assert!(!runner.lines[from..].iter().any(is_native), "{harness}");
        // A restarted agent is watched as the session is.
        runner.say(json!({"type": "session.watch", "session_id": "s", "on": true})).await;
        runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
        let from = runner.turn("once more").await;
        assert!(runner.lines[from..].iter().any(is_native), "{harness}");
    }
}

#[tokio::test]
async fn questions_are_native_events_of_the_session_itself() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    runner.say(json!({"type": "session.watch", "session_id": "s", "on": true})).await;
    runner.create("pi").await;
    let from = runner.lines.len();
    runner.prompt("ask").await;
    let of_type = |kind: &'static str| move |line: &Value| is_native(line) && line["native"]["type"] == kind;
    let asked = runner.find(from, "the question", of_type("extension_ui_request")).await;
    assert_eq!(asked["native"]["method"], "confirm", "{asked}");
    let request_id = asked["native"]["requestId"].as_str().unwrap().to_owned();
    let answer =
        json!({"cmd": "input_response", "session_id": "s", "request_id": request_id, "confirmed": true});
    runner.ok(answer).await;
    let resolved = runner.find(from, "its end", of_type("extension_ui_resolved")).await;
    assert_eq!(resolved["native"]["outcome"], "answered");
    let asked: Vec<&Value> =
        runner.lines.iter().filter(|line| of_type("extension_ui_request")(line)).collect();
    assert_eq!(asked.len(), 1, "once, and not by the agent too: {asked:?}");
}

#[tokio::test]
async fn a_question_ends_with_the_time_for_it() {
    let mut runner = RunnerFixture::session_with("demo", |config| {
        config.question_timeout = Some(Duration::from_millis(100))
    })
    .await;
    let from = runner.lines.len();
    runner.prompt("/question").await;
    let asked = runner.event(from, "agent.input_needed").await;
    assert_eq!(asked["request"]["timeout"], 100);
    assert_eq!(runner.event(from, "agent.input_resolved").await["outcome"], "timed_out");
    let is_told = |line: &Value| {
        line["event"] == "stream.message_end" && line.to_string().contains("Nobody answered in time")
    };
    runner.find(from, "the agent's word on it", is_told).await;
}

#[tokio::test]
async fn a_command_that_waits_can_be_cancelled_and_replays_as_timed_out() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let version = runner.state().await["session_version"].clone();
    let from = runner.lines.len();
    let compact = runner.send(json!({"cmd": "compact", "session_id": "s", "idempotency_key": "k1"})).await;
    let rename = json!({"cmd": "set_session_name", "session_id": "s", "name": "n", "idempotency_key": "k2"});
    let renamed = runner.send(rename.clone()).await;
    // A key of somebody else, or of nobody, is no reason to end anything.
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k3"})).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "elsewhere", "key": "k1"})).await;
    assert!(!runner.lines[from..].iter().any(|line| line["id"] == renamed.as_str()));
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k2"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == renamed.as_str()).await;
    assert_eq!(answer["code"], "timed_out", "{answer}");
    assert_eq!(answer["error"], "Command 'set_session_name' timed out");
    assert_eq!((&answer["timed_out"], &answer["success"]), (&json!(true), &json!(false)));
    // The agent has the other one: it is told to stop, and what it says then changes nothing.
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k1"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == compact.as_str()).await;
    assert_has(&answer, json!({ "error": "Command 'compact' timed out", "timed_out": true }));
    assert_eq!(runner.state().await["session_version"], version);
    assert_eq!(runner.state().await["title"], Value::Null);
    for _ in 0..2 {
        let again = runner.call(rename.clone()).await;
        assert_eq!((&again["timed_out"], &again["replayed"]), (&json!(true), &json!(true)), "{again}");
        runner.restart(0).await;
    }
    runner.ok(on("set_session_name", json!({"name": "n", "idempotency_key": "k4"}))).await;
}

#[tokio::test]
async fn shell_commands_that_run_out_of_time_open_the_breaker() {
    let mut runner = RunnerFixture::with_session("pi").await;
    assert_eq!(runner.ok(bash("ls", "first")).await["output"], "done");
    for number in 0..10 {
        let (from, key) = (runner.lines.len(), format!("k{number}"));
        let id = runner.send(bash("hang", &key)).await;
        runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": key})).await;
        let answer = runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
        assert_eq!(answer["timed_out"], true, "{answer}");
    }
    let refused = runner.call(bash("ls", "last")).await;
    let error = refused["error"].as_str().unwrap();
    assert!(error.starts_with("Bash circuit breaker open for session s: "), "{error}");
    let health = runner.ok(json!({"cmd": "runner.health"})).await;
    assert_eq!(health["bash"]["open_sessions"], 1, "{health}");
    assert_eq!(health["bash"]["total_timeouts"], 10);
    assert_eq!(health["agents"], 1);
}

#[tokio::test]
async fn a_provider_that_fails_is_left_alone() {
    let mut runner =
        RunnerFixture::session_with("pi", |config| config.breakers.provider.recovery_ms = 300).await;
    runner.turn("hello").await;
    for _ in 0..5 {
        runner.turn("fail").await;
    }
    for cmd in ["prompt", "steer", "follow_up"] {
        let refused = runner.call(json!({"cmd": cmd, "session_id": "s", "message": "hello"})).await;
        assert_eq!(refused["code"], "provider_paused", "{cmd}");
        assert_eq!(refused["error"], "Circuit breaker open for acme (recovery in 1s)", "{cmd}");
    }
    let breaker = runner.ok(json!({"cmd": "runner.health"})).await["breakers"][0].clone();
    assert_eq!((&breaker["provider"], &breaker["total_failures"]), (&json!("acme"), &json!(5)));
    assert_eq!((&breaker["total_rejected"], &breaker["total_successes"]), (&json!(3), &json!(1)));
    // It is tried again later, and two good answers end it.
    let is_half_open =
        async || runner.ok(json!({"cmd": "runner.health"})).await["breakers"][0]["state"] == "half_open";
    until("the breaker is half open", is_half_open).await;
    for _ in 0..2 {
        runner.turn("hello").await;
    }
    let breaker = runner.ok(json!({"cmd": "runner.health"})).await["breakers"][0].clone();
    assert_eq!((&breaker["state"], &breaker["half_open_calls"]), (&json!("closed"), &json!(0)), "{breaker}");
}

#[tokio::test]
async fn an_agent_with_nothing_to_do_is_stopped_and_comes_back() {
    for harness in ["pi", "demo"] {
        let mut runner = RunnerFixture::session_with(harness, |config| {
            config.agent_idle_stop = Some(Duration::from_millis(150));
            config.resume_at_start = true;
        })
        .await;
        let from = runner.lines.len();
        let told = runner.event(from, "session.resync").await;
        assert_eq!(told["state"]["status"], "dormant", "{harness}");
        assert_eq!(runner.ok(json!({"cmd": "runner.health"})).await["agents"], 0);
        let from = runner.turn("hello").await;
        assert!(!runner.lines[from..].iter().any(|line| line["event"] == "agent.error"), "{harness}");
        runner.until_status("dormant").await;
        assert_eq!(runner.user_messages().last().map(String::as_str), Some("hello"));
        // The next start does not take it for one that was in use.
        runner.restart(0).await;
        assert_eq!(runner.state().await["status"], "dormant", "{harness}");
    }
}

#[tokio::test]
async fn an_agent_that_works_or_waits_for_a_person_is_not_stopped() {
    let mut runner = RunnerFixture::session_with("demo", |config| {
        config.agent_idle_stop = Some(Duration::from_millis(50))
    })
    .await;
    let from = runner.lines.len();
    runner.prompt("/question").await;
    let asked = runner.event(from, "agent.input_needed").await;
    let from = runner.lines.len();
    // Ten times as long as an idle agent lives, measured in answers.
    let later = tokio::time::Instant::now() + Duration::from_millis(500);
    while tokio::time::Instant::now() < later {
        assert_eq!(runner.state().await["pending_input"].as_array().map(Vec::len), Some(1));
    }
    assert!(!runner.lines[from..].iter().any(|line| line["event"] == "session.resync"));
    let request_id = &asked["request"]["request_id"];
    let option = &asked["request"]["options"][0];
    runner.ok(on("input_response", json!({"request_id": request_id, "value": option}))).await;
    runner.until_status("dormant").await;
}

#[tokio::test]
async fn names_and_directories_are_checked_with_the_words_of_the_document() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    let create = |session_id: &str, cwd: Value| json!({"cmd": "session.create", "session_id": session_id, "config": {"harness": "pi", "cwd": cwd}});
    let long = "x".repeat(257);
    let words = "Session ID must contain only alphanumeric characters, underscores, dashes, and dots";
    for (session_id, error) in [(long.as_str(), "Session ID too long (max 256 characters)"), ("a/b", words)] {
        let refused = runner.call(create(session_id, Value::Null)).await;
        assert_eq!((&refused["code"], &refused["error"]), (&json!("invalid_request"), &json!(error)));
    }
    let file = runner.database();
    let far = format!("/{}", "x".repeat(4096));
    let below_a_file = format!("{}/x", file.display());
    let nowhere =
        |cwd: &str| format!("There is no directory {cwd} on this machine; create it, or choose another");
    // The services of a session there would read the memory and the keys of other processes.
    let kernel = "path is in proc, sys, dev or another file system of the kernel, which services do not open; \
                  use a directory of ordinary files";
    for (cwd, code, error) in [
        ("", "invalid_request", "CWD must be a non-empty string"),
        (far.as_str(), "invalid_request", "CWD too long (max 4096 characters)"),
        ("~/x", "invalid_request", "CWD contains potentially dangerous path components"),
        ("/a\0b", "invalid_request", "CWD contains potentially dangerous path components"),
        ("a", "invalid_request", "CWD must be an absolute path"),
        ("/no/such/place", "not_found", nowhere("/no/such/place").as_str()),
        (file.to_str().unwrap(), "invalid_request", "CWD must point to an existing directory"),
        (below_a_file.as_str(), "not_found", nowhere(&below_a_file).as_str()),
        ("/proc", "permission_denied", kernel),
        ("/proc/self/../sys", "permission_denied", kernel),
        ("/sys/kernel", "permission_denied", kernel),
        ("/dev", "permission_denied", kernel),
    ] {
        let refused = runner.call(create("s", json!(cwd))).await;
        assert_eq!((&refused["code"], &refused["error"]), (&json!(code), &json!(error)), "{cwd}");
    }
    // Names that are no names for files work too, and leave nothing outside their place.
    let names = ["..", ".", "-x", "_y", &"z".repeat(256)];
    for session_id in names {
        runner.ok(create(session_id, Value::Null)).await;
    }
    let agents: Vec<String> = std::fs::read_dir(runner.config.data_dir.join("agents"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(agents.len(), names.len(), "{agents:?}");
    assert!(agents.iter().all(|name| name.starts_with("qd-id-")), "{agents:?}");
    let sessions = runner.ok(json!({"cmd": "runner.sessions"})).await["sessions"].clone();
    let listed: Vec<&str> =
        sessions.as_array().unwrap().iter().map(|state| state["session_id"].as_str().unwrap()).collect();
    assert_eq!(listed.len(), names.len(), "{listed:?}");
    let state = &sessions[0];
    assert!(state["created_at"].as_i64().unwrap() > 0);
    assert_eq!(state["native_model"]["name"], "M 1", "{state}");
    assert!(runner.ok(json!({"cmd": "runner.stored_sessions"})).await["sessions"].is_array());
}

#[tokio::test]
async fn a_command_is_found_wherever_it_waits() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let version = runner.state().await["session_version"].clone();
    let keyed = |cmd: &str, key: &str, more: Value| on(cmd, merged(json!({ "idempotency_key": key }), more));
    // In the prompt queue behind a prompt without an answer, held for a command that runs, and with the agent itself.
    let from = runner.lines.len();
    let hello = json!({"message": "mute", "client_command_id": "c1"});
    let running = runner.send(keyed("steer", "running", hello)).await;
    let queued = runner.send(keyed("steer", "queued", json!({"message": "next"}))).await;
    let more = json!({"client_command_id": "c2", "depends_on": ["c1"], "name": "n"});
    let held = runner.send(keyed("set_session_name", "held", more)).await;
    for (key, id) in [("held", held), ("queued", queued), ("running", running)] {
        runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": key})).await;
        let answer = runner.find(from, key, |line| line["id"] == id.as_str()).await;
        assert_eq!((&answer["timed_out"], &answer["session_version"]), (&json!(true), &version), "{answer}");
    }
    assert_eq!(runner.state().await["session_version"], version);
    // While the agent starts, commands wait for it too.
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    let restarted = runner.send(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let from = runner.lines.len();
    let parked = runner.send(keyed("steer", "parked", json!({"message": "hello"}))).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "parked"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == parked.as_str()).await;
    assert_eq!(answer["code"], "timed_out", "{answer}");
    assert_eq!(answer["error"], "Command 'steer' timed out");
    runner.find(from, "the start", |line| line["id"] == restarted.as_str()).await;
    assert_eq!(runner.user_messages(), [""; 0], "nothing of all that was said");
}

#[tokio::test]
async fn the_real_pi_is_stopped_when_idle_and_its_shell_commands_can_be_cancelled() {
    let mut runner = RunnerFixture::session_with("pi", |config| {
        config.harnesses.settings_mut("pi").unwrap().command = real_pi();
        config.agent_idle_stop = Some(Duration::from_millis(300));
    })
    .await;
    let native_id = runner.state().await["native_session_id"].clone();
    runner.until_status("dormant").await;
    // It comes back for whoever needs it, as the same conversation.
    let (from, version) = (runner.lines.len(), runner.state().await["session_version"].clone());
    let id = runner.send(bash("echo begun > begun; sleep 1000", "k1")).await;
    let begun = runner.config.default_cwd.clone().unwrap().join("begun");
    until("the shell command runs", async || begun.is_file()).await;
    // Much longer than an idle agent lives: one that runs a command is not idle.
    let later = tokio::time::Instant::now() + Duration::from_millis(600);
    while tokio::time::Instant::now() < later {
        assert_ne!(runner.state().await["status"], "dormant");
    }
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k1"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
    assert_eq!(answer["code"], "timed_out", "{answer}");
    assert_eq!(answer["error"], "Command 'bash' timed out");
    // The end of the shell command is heard, and changes nothing but that the agent is idle.
    runner.until_status("dormant").await;
    let state = runner.state().await;
    assert_eq!((&state["session_version"], &state["native_session_id"]), (&version, &native_id));
    assert!(!runner.lines[from..].iter().any(|line| line["event"] == "agent.error"));
}
