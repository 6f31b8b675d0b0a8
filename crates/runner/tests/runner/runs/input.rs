//! What is typed into programs: once for ever, in order, within bounds, and without secrets in the records.

use crate::support::WAIT_MAX;
use crate::support::runner_fixture::RunnerFixture;
use crate::support::runs::{
    exited, input, output, records, running, running_script, script, stop, until_output, until_output_times,
};
use qd_store::{InputClaim, RunnerStore, StoreOptions};
use serde_json::{Value, json};

fn inputs(runner: &RunnerFixture) -> Vec<Value> {
    records(runner, "s").into_values().filter(|record| record["event"] == "run.input").collect()
}

#[tokio::test]
async fn an_input_is_written_once_for_ever() {
    let mut runner = running(&["cat"]).await;
    assert_eq!(input(&mut runner, "i1", "one\n").await, json!({"input_id": "i1", "duplicate": false}));
    assert_eq!(input(&mut runner, "i1", "one\n").await, json!({"input_id": "i1", "duplicate": true}));
    input(&mut runner, "i2", "two\n").await;
    until_output_times(&mut runner, "two\r\n", 2).await;
    assert_eq!(output(&runner, "s").matches("one").count(), 2, "the echo and the answer");
    runner.restart(0).await;
    exited(&mut runner, "s").await;
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    assert_eq!(input(&mut runner, "i1", "one\n").await, json!({"input_id": "i1", "duplicate": true}));
    input(&mut runner, "i3", "three\n").await;
    until_output(&mut runner, "three\r\nthree\r\n").await;
    assert_eq!(output(&runner, "s").matches("one").count(), 2, "also through a restart");
    let names: Vec<Value> = inputs(&runner).into_iter().map(|record| record["input_id"].clone()).collect();
    assert_eq!(names, ["i1", "i2", "i3"]);
    runner.stop().await;
}

/// A crash may come after the name of an input is stored and before the input is. Then nobody was told yes, and nobody
/// may be told later that it was written.
#[tokio::test]
async fn an_input_that_a_crash_cut_off_is_not_called_a_duplicate() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    runner.create("demo").await;
    runner.stop().await;
    let store = RunnerStore::open(&runner.database(), StoreOptions::default()).unwrap();
    assert_eq!(store.take_input("s", "i1").await.unwrap(), InputClaim::New);
    store.close().await;
    runner.restart(0).await;
    let command = json!({"cmd": "run.input", "session_id": "s", "input_id": "i1", "text": "hello"});
    let answer = runner.call(command.clone()).await;
    assert_eq!(
        (&answer["code"], &answer["indeterminate"]),
        (&json!("indeterminate"), &json!(true)),
        "{answer}"
    );
    assert_eq!(input(&mut runner, "i2", "hello\n").await, json!({"input_id": "i2", "duplicate": false}));
    runner.until_status("idle").await;
    assert_eq!(runner.user_messages(), ["hello"]);
    assert_eq!(runner.call(command).await["code"], "indeterminate");
    runner.stop().await;
}

/// What an agent has when its time is over it may still take, so its name is free only when the agent has refused it.
#[tokio::test]
async fn an_input_whose_time_is_over_is_not_written_again_while_the_agent_has_it() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let command = |input_id: &str, text: &str, key: &str| json!({"cmd": "run.input", "session_id": "s", "input_id": input_id, "text": text, "idempotency_key": key});
    let from = runner.lines.len();
    let id = runner.send(command("i1", "/ask\n", "k1")).await;
    let asked = runner.event(from, "agent.input_needed").await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k1"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
    assert_eq!(answer["code"], "timed_out", "{answer}");
    let answer = runner.call(command("i1", "/ask\n", "k2")).await;
    assert_eq!(answer["code"], "busy", "{answer}");
    let response = json!({"cmd": "input_response", "session_id": "s", "confirmed": true,
                          "request_id": asked["request"]["request_id"]});
    runner.ok(response).await;
    let mut number = 3;
    let answer = loop {
        let answer = runner.call(command("i1", "/ask\n", &format!("k{number}"))).await;
        if answer["code"] != "busy" {
            break answer;
        }
        number += 1;
    };
    assert_eq!(answer["data"], json!({"input_id": "i1", "duplicate": true}), "{answer}");
    // One that the agent never answers is not free either when the agent is gone: nobody can know.
    let from = runner.lines.len();
    let id = runner.send(command("i2", "mute\n", "mute")).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "mute"})).await;
    runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let answer = runner.call(command("i2", "mute\n", "again")).await;
    assert_eq!(answer["code"], "indeterminate", "{answer}");
    runner.stop().await;
}

#[tokio::test]
async fn a_refused_input_may_come_again() {
    let mut runner = running_script("echo ready; exit").await;
    exited(&mut runner, "s").await;
    let command = json!({"cmd": "run.input", "session_id": "s", "input_id": "i1", "text": "x\n"});
    assert_eq!(runner.call(command.clone()).await["code"], "run_ended");
    for (input_id, text) in [("", "x"), ("i2", "")] {
        let command = json!({"cmd": "run.input", "session_id": "s", "input_id": input_id, "text": text});
        assert_eq!(runner.call(command).await["success"], false);
    }
    runner.stop().await;
}

#[tokio::test]
async fn hole_5_a_password_is_in_no_record() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    let secret = "hunter2-is-not-a-secret";
    script(&mut runner, "stty -echo; printf 'Password: '; read x; stty echo; echo; echo \"got $x\"; read y")
        .await;
    until_output(&mut runner, "Password: ").await;
    input(&mut runner, "i1", &format!("{secret}\n")).await;
    until_output(&mut runner, "got ").await;
    let typed = runner.event(0, "run.input").await;
    assert_eq!(typed["text_redacted"], "••••");
    assert_eq!(typed["text_sha256"].as_str().unwrap().len(), 64);
    // A token is known by its shape, with echo and all.
    let token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    input(&mut runner, "i2", &format!("export TOKEN={token}\n")).await;
    exited(&mut runner, "s").await;
    let said: Vec<String> = runner.lines.iter().map(Value::to_string).collect();
    for hidden in [secret, token] {
        assert!(!said.iter().any(|line| line.contains(hidden)), "{hidden} in {said:#?}");
    }
    assert!(output(&runner, "s").contains(&"*".repeat(secret.len())), "{}", output(&runner, "s"));
    runner.stop().await;
}

#[tokio::test]
async fn keys_are_recorded_by_lines() {
    let mut runner = running(&["cat"]).await;
    for text in ["he", "lx\u{7f}lo", "\r", "wor", "ld\r"] {
        let command = json!({"cmd": "run.stdin", "session_id": "s", "text": text, "actor": "cli"});
        runner.ok(command).await;
    }
    until_output_times(&mut runner, "world\r\n", 2).await;
    let typed: Vec<Value> =
        inputs(&runner).into_iter().map(|record| record["text_redacted"].clone()).collect();
    assert_eq!(typed, ["hello\n", "world\n"]);
    assert!(inputs(&runner).iter().all(|record| record["actor"] == "cli" && record["user_id"] == "anna"));
    runner.stop().await;
}

#[tokio::test]
async fn a_secret_among_keys_is_not_shown_by_its_echo() {
    let mut runner = running(&["head", "-n", "2"]).await;
    // Pasted at once, and with its beginning typed before.
    let (first, second) =
        ("ghp_aaaaaaaaaabbbbbbbbbbccccccccccdddddd", "ghp_0123456789abcdefghijklmnopqrstuvwxyz");
    for text in [format!("export A={first}\r"), "export B=ghp_01".to_owned(), format!("{}\r", &second[7..])] {
        runner.ok(json!({"cmd": "run.stdin", "session_id": "s", "text": text})).await;
    }
    exited(&mut runner, "s").await;
    assert!(output(&runner, "s").contains("export A=***"), "{}", output(&runner, "s"));
    let said: Vec<String> = runner.lines.iter().map(Value::to_string).collect();
    for hidden in ["aaaaaaaaaa", "23456789abcdef"] {
        assert!(!said.iter().any(|line| line.contains(hidden)), "{hidden} in {said:#?}");
    }
    runner.stop().await;
}

#[tokio::test]
async fn input_waits_for_a_program_that_does_not_read_within_a_bound() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    // Keys are not echoed and nothing is read: the terminal takes a little, the rest waits.
    script(&mut runner, "stty raw -echo; echo ready; sleep 1000").await;
    until_output(&mut runner, "ready").await;
    let piece = "x".repeat(100_000);
    let mut refused = None;
    for number in 0..20 {
        let input_id = format!("i{number}");
        let command = json!({"cmd": "run.input", "session_id": "s", "input_id": input_id, "text": piece});
        let answer = runner.call(command).await;
        if answer["success"] == false {
            refused = Some((number, answer));
            break;
        }
    }
    let (number, answer) = refused.expect("there is a bound");
    assert!(number >= 9, "a megabyte may wait: {number}");
    assert_eq!(answer["code"], "input_full", "{answer}");
    assert_eq!(runner.state().await["status"], "working", "everything else goes on");
    stop(&mut runner, "kill").await;
    assert_eq!(exited(&mut runner, "s").await["signal"], 9);
    runner.stop().await;
}

#[tokio::test]
async fn input_that_waited_arrives_whole_and_in_order() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    let cwd = runner.config.default_cwd.clone().unwrap();
    let text =
        "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.02; done; head -c 300000 > got; echo done";
    script(&mut runner, text).await;
    until_output(&mut runner, "ready").await;
    let numbers: String = (0..60_000).map(|number| format!("{number} ")).collect();
    let text = &numbers[..300_000];
    for number in 0..5 {
        input(&mut runner, &format!("i{number}"), &text[number * 60_000..(number + 1) * 60_000]).await;
    }
    std::fs::write(cwd.join("go"), "").unwrap();
    exited(&mut runner, "s").await;
    assert!(std::fs::read_to_string(cwd.join("got")).unwrap() == text, "it is not the same");
    runner.stop().await;
}

#[tokio::test]
async fn a_line_that_the_terminal_would_cut_is_refused() {
    let mut runner = running(&["cat"]).await;
    let text = format!("{}\n", "x".repeat(5000));
    let command = json!({"cmd": "run.input", "session_id": "s", "input_id": "i1", "text": text});
    let answer = runner.call(command).await;
    assert!(answer["error"].as_str().unwrap().contains("4095"), "{answer}");
    input(&mut runner, "i1", "short\n").await;
    until_output(&mut runner, "short\r\nshort\r\n").await;
    runner.stop().await;
}

#[tokio::test]
async fn a_prompt_is_typed_with_enter() {
    let mut runner = running(&["cat"]).await;
    runner.prompt("hello").await;
    until_output(&mut runner, "hello\r\nhello\r\n").await;
    let state = runner.state().await;
    assert_eq!((&state["run"]["tool"], &state["harness"]), (&json!("cat"), &json!("pty")));
    let answer = runner.call(json!({"cmd": "compact", "session_id": "s"})).await;
    assert_eq!(answer["code"], "unsupported", "{answer}");
    runner.stop().await;
}

#[tokio::test]
async fn a_question_on_the_screen_is_asked_answered_and_withdrawn() {
    let mut runner = running_script(
        "for i in 1 2; do printf 'Do you want to continue? [y/N] '; read x; echo \"said $x\"; done",
    )
    .await;
    let asked = runner.event(0, "agent.input_needed").await;
    let request_id = asked["request"]["request_id"].clone();
    let awaiting = runner.event(0, "run.awaiting_input").await;
    assert_eq!(awaiting["request_id"], request_id);
    let answer =
        json!({"cmd": "input_response", "session_id": "s", "request_id": request_id, "confirmed": true});
    runner.ok(answer).await;
    until_output(&mut runner, "said y").await;
    assert_eq!(inputs(&runner)[0]["input_id"], request_id);
    let resolved = runner.event(0, "agent.input_resolved").await;
    assert_eq!(resolved["outcome"], "answered");
    let from = runner.lines.len();
    let is_second =
        |line: &Value| line["event"] == "agent.input_needed" && line["request"]["request_id"] != request_id;
    let second = runner.find(0, "the second question", is_second).await;
    // Whoever types goes before.
    runner.ok(json!({"cmd": "run.stdin", "session_id": "s", "text": "n\r"})).await;
    let second = second["request"]["request_id"].clone();
    let is_end = |line: &Value| line["event"] == "agent.input_resolved" && line["request_id"] == second;
    assert_eq!(runner.find(from, "its end", is_end).await["outcome"], "withdrawn");
    until_output(&mut runner, "said n").await;
    exited(&mut runner, "s").await;
    runner.stop().await;
}

#[tokio::test]
async fn agents_take_inputs_as_prompts_and_once() {
    let mut runner = RunnerFixture::with_session("demo").await;
    assert_eq!(input(&mut runner, "i1", "hello\n").await, json!({"input_id": "i1", "duplicate": false}));
    let settled = async {
        while runner.user_messages().is_empty() {
            let from = runner.lines.len();
            runner.event(from, "stream.message_end").await;
        }
    };
    tokio::time::timeout(WAIT_MAX, settled).await.expect("it is a message");
    assert_eq!(runner.user_messages(), ["hello"]);
    runner.until_status("idle").await;
    assert_eq!(input(&mut runner, "i1", "hello\n").await, json!({"input_id": "i1", "duplicate": true}));
    runner.restart(0).await;
    assert_eq!(input(&mut runner, "i1", "hello\n").await, json!({"input_id": "i1", "duplicate": true}));
    assert_eq!(input(&mut runner, "i2", "more\n").await, json!({"input_id": "i2", "duplicate": false}));
    runner.until_status("idle").await;
    assert_eq!(runner.user_messages(), ["hello", "more"]);
    let answer = runner.call(json!({"cmd": "run.resize", "session_id": "s", "cols": 80, "rows": 24})).await;
    assert_eq!(answer["code"], "unsupported", "{answer}");
    assert_eq!(stop(&mut runner, "term").await, json!({"signal": "term"}));
    assert_eq!(runner.state().await["status"], "closed");
    runner.stop().await;
}
