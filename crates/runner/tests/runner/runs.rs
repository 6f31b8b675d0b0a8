//! Programs in terminals: every byte, in order, and the end last.

mod answers;
mod input;
mod server;

use std::time::Duration;

use crate::support::runner_fixture::RunnerFixture;
use crate::support::runs::{
    exited, input, output, records, run_as, running, running_script, script, stop, story, until_output,
};
use crate::support::{WAIT_MAX, assert_has};
use serde_json::{Value, json};

/// What a terminal makes of lines.
fn lines(text: &str) -> String {
    text.replace('\n', "\r\n")
}

#[tokio::test]
async fn hole_20_characters_are_never_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let text: String = "終端機裡的每一個字都完整😀".chars().cycle().take(40_000).collect();
    assert!(text.len() >= 120_000);
    std::fs::write(&path, &text).unwrap();
    let mut runner = RunnerFixture::start(|_| {}).await;
    for (session_id, size) in [("odd", 7), ("larger", 1021), ("single", 1)] {
        let cmd = format!("dd if={} bs={size} 2>/dev/null", path.display());
        run_as(&mut runner, session_id, json!({"cmd": cmd})).await;
        exited(&mut runner, session_id).await;
        assert!(output(&runner, session_id) == text, "{session_id}: the text is not the same");
    }
    runner.stop().await;
}

#[tokio::test]
async fn what_is_no_text_is_marked_and_the_rest_is_whole() {
    let mut runner = running_script(r"printf 'a\377b\342\202'").await;
    exited(&mut runner, "s").await;
    assert_eq!(output(&runner, "s"), "a\u{fffd}b\u{fffd}");
    runner.stop().await;
}

#[tokio::test]
async fn a_flood_arrives_whole_and_in_order() {
    let mut runner = running(&["seq", "1", "200000"]).await;
    let end = exited(&mut runner, "s").await;
    assert_eq!(end["exit_code"], 0);
    let expected: String = (1..=200_000).map(|number| format!("{number}\r\n")).collect();
    assert!(output(&runner, "s") == expected, "the output is not the same");
    let pieces = records(&runner, "s").values().filter(|record| record["event"] == "run.output").count();
    assert!(pieces < 400, "{pieces} records for 1.3 MB");
    runner.stop().await;
}

#[tokio::test]
async fn the_end_is_the_last_record_of_every_short_run() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    for number in 0..50 {
        let session_id = format!("s{number}");
        run_as(&mut runner, &session_id, json!({"argv": ["sh", "-c", "seq 1 50; exit 3"]})).await;
        let end = exited(&mut runner, &session_id).await;
        assert_eq!(end["exit_code"], 3);
        let state = runner.ok(json!({"cmd": "get_state", "session_id": session_id})).await;
        // Nothing follows the end.
        assert_has(&state, json!({ "status": "closed", "seq": end["seq"] }));
        let expected: String = (1..=50).map(|number| format!("{number}\r\n")).collect();
        assert_eq!(output(&runner, &session_id), expected);
        let names = story(&runner, &session_id);
        assert_eq!(names, ["session.created", "run.started", "run.output", "run.exited"]);
    }
    runner.stop().await;
}

#[tokio::test]
async fn a_run_tells_what_it_is() {
    let mut runner = RunnerFixture::start(|config| config.local_socket = None).await;
    let command = "env | grep -E '^(QD_|TERM=|FOO=|COLUMNS=)' | sort; tty; ps -o pid=,pgid=,sid= -p $$";
    let run = json!({"argv": ["sh", "-c", command], "tool": "codex", "cols": 100, "rows": 30, "env": {"FOO": "bar"}});
    run_as(&mut runner, "s", run).await;
    exited(&mut runner, "s").await;
    let text = output(&runner, "s");
    for wanted in
        ["FOO=bar", "QD_RUN_ID=s", "QD_SESSION_ID=s", "QD_TOOL=codex", "TERM=xterm-256color", "/dev/pts/"]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(!text.contains("QD_TOKEN") && !text.contains("COLUMNS"), "{text}");
    let records = records(&runner, "s");
    let started = &records[&2];
    assert_eq!(started["event"], "run.started");
    assert_has(started, json!({ "tool": "codex", "cols": 100, "rows": 30 }));
    let pid = started["pid"].to_string();
    let ids = text.lines().last().unwrap();
    assert!(ids.split_whitespace().all(|id| id == pid), "it leads its own session and group: {ids} of {pid}");
    runner.stop().await;
}

#[tokio::test]
async fn a_program_may_leave_its_terminal_and_come_back() {
    let mut runner = running_script(
        "tty=$(tty); echo before; exec <&- >&- 2>&-; sleep 0.3; exec <$tty >$tty; read x; echo \"after $x\"",
    )
    .await;
    until_output(&mut runner, "before").await;
    input(&mut runner, "i1", "typed\n").await;
    assert_eq!(exited(&mut runner, "s").await["exit_code"], 0);
    assert!(output(&runner, "s").ends_with("after typed\r\n"), "{:?}", output(&runner, "s"));
    runner.stop().await;
}

#[tokio::test]
async fn ends_by_signal_and_by_code_are_told_apart() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    run_as(&mut runner, "killed", json!({"cmd": "kill -9 $$"})).await;
    let end = exited(&mut runner, "killed").await;
    assert_eq!((&end["exit_code"], &end["signal"]), (&json!(-1), &json!(9)));
    run_as(&mut runner, "seven", json!({"cmd": "exit 7"})).await;
    let end = exited(&mut runner, "seven").await;
    assert_eq!((&end["exit_code"], &end["signal"], &end["error"]), (&json!(7), &Value::Null, &Value::Null));
    runner.stop().await;
}

#[tokio::test]
async fn what_cannot_be_started_is_said() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (config, error) in [
        (
            json!({"harness": "pty", "run": {"argv": ["no-such-program"]}}),
            "binary not found in PATH: no-such-program",
        ),
        (json!({"harness": "pty", "run": {"argv": ["/no/such"]}}), "binary not found: /no/such"),
        (json!({"harness": "pty", "cwd": "/no/such"}), "run cwd does not exist: /no/such"),
        (json!({"harness": "pty", "cwd": path}), "run cwd is not a directory: "),
        (json!({"harness": "pty", "run": {"cols": 1}}), "cols: Must be between 2 and 500"),
    ] {
        let answer = runner.call(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
        assert_eq!(answer["success"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
    }
    let answer = runner.call(json!({"cmd": "run.stop", "session_id": "s"})).await;
    assert_eq!(answer["code"], "session_not_found", "nothing is left of them: {answer}");
    runner.stop().await;
}

#[tokio::test]
async fn hole_19_a_program_that_ignores_the_request_to_end_is_killed_with_its_children() {
    let mut runner = RunnerFixture::start(|config| config.runs.kill_after = Duration::from_millis(300)).await;
    let text =
        "trap '' TERM HUP; sleep 1000 & setsid sleep 1000 & echo pids $! ready; while :; do sleep 0.1; done";
    script(&mut runner, text).await;
    until_output(&mut runner, "ready").await;
    let child: i32 = output(&runner, "s").split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(stop(&mut runner, "term").await, json!({"signal": "term"}));
    let end = exited(&mut runner, "s").await;
    assert_eq!(end["signal"], 9);
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "its children died with it");
    let answer = runner.call(json!({"cmd": "run.stop", "session_id": "s"})).await;
    assert_eq!(answer["code"], "run_ended", "{answer}");
    runner.stop().await;
}

#[tokio::test]
async fn an_interrupt_only_interrupts() {
    let mut runner = RunnerFixture::start(|config| config.runs.kill_after = Duration::from_millis(10)).await;
    script(&mut runner, "trap 'echo caught' INT; echo ready; while :; do sleep 0.02; done").await;
    until_output(&mut runner, "ready").await;
    stop(&mut runner, "int").await;
    until_output(&mut runner, "caught").await;
    runner.ok(json!({"cmd": "abort", "session_id": "s"})).await;
    until_output(&mut runner, "caught\r\ncaught").await;
    stop(&mut runner, "kill").await;
    assert_eq!(exited(&mut runner, "s").await["signal"], 9);
    runner.stop().await;
}

#[tokio::test]
async fn a_size_reaches_the_program() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    let text = "trap 'stty size' WINCH; stty size; while :; do sleep 0.02; done";
    run_as(&mut runner, "s", json!({"argv": ["sh", "-c", text], "cols": 100, "rows": 30})).await;
    until_output(&mut runner, "30 100").await;
    runner.ok(json!({"cmd": "run.resize", "session_id": "s", "cols": 120, "rows": 40})).await;
    until_output(&mut runner, "40 120").await;
    let resized = runner.event(0, "run.resized").await;
    assert_eq!((&resized["cols"], &resized["rows"]), (&json!(120), &json!(40)));
    let screen = runner.ok(json!({"cmd": "run.screen", "session_id": "s"})).await;
    assert_eq!((&screen["cols"], &screen["rows"]), (&json!(120), &json!(40)));
    for (cols, rows) in [(1, 40), (501, 40), (80, 0), (80, 201)] {
        let command = json!({"cmd": "run.resize", "session_id": "s", "cols": cols, "rows": rows});
        assert_eq!(runner.call(command).await["success"], false);
    }
    runner.stop().await;
}

#[tokio::test]
async fn who_comes_sees_the_screen_and_who_comes_back_the_rest() {
    let mut runner =
        running_script(r"seq 1 100; printf '\033[1mbold\033[0m prompt> '; read x; seq 1 5; read x").await;
    until_output(&mut runner, "prompt> ").await;
    let attach = runner.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert_eq!(attach["resume"], "gap");
    let terminal = &attach["terminal"];
    assert_eq!(terminal["seq"], attach["seq"]);
    let screen = terminal["screen"].as_str().unwrap();
    assert!(screen.contains("bold") && screen.contains("prompt>") && screen.contains("100"), "{screen:?}");
    assert!(terminal["scrollback"].as_str().unwrap().contains("50"), "{terminal}");
    let seq = attach["seq"].as_u64().unwrap();
    let attach = runner.ok(json!({"cmd": "session.attach", "session_id": "s", "after": seq})).await;
    assert_eq!((&attach["resume"], &attach["terminal"]), (&json!("ok"), &Value::Null));
    assert_eq!(attach["state"]["run"]["tool"], "sh");
    stop(&mut runner, "kill").await;
    exited(&mut runner, "s").await;
    let attach = runner.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert!(attach["terminal"]["screen"].as_str().unwrap().contains("prompt>"), "the last screen stays");
    runner.restart(0).await;
    let attach = runner.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert!(attach["terminal"]["screen"].as_str().unwrap().contains("prompt>"), "also through a restart");
    runner.stop().await;
}

#[tokio::test]
async fn a_closed_run_ends_and_a_restarted_one_runs_again() {
    let mut runner = running_script("echo begun; exec cat").await;
    until_output(&mut runner, "begun").await;
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    let end = exited(&mut runner, "s").await;
    assert!(end["signal"] == 1 || end["signal"] == 15, "{end}");
    let from = runner.lines.len();
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    runner.event(from, "run.started").await;
    runner.event(from, "run.output").await;
    input(&mut runner, "i1", "again\n").await;
    until_output(&mut runner, "again\r\nagain").await;
    runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let names = story(&runner, "s");
    assert_eq!(names.iter().filter(|name| *name == "run.started").count(), 3, "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "session.created").count(), 1, "{names:?}");
    runner.ok(json!({"cmd": "session.delete", "session_id": "s"})).await;
    let answer = runner.call(json!({"cmd": "get_state", "session_id": "s"})).await;
    assert_eq!(answer["code"], "session_not_found", "{answer}");
    runner.stop().await;
}

#[tokio::test]
async fn hole_18_a_run_whose_runner_was_killed_is_told_to_have_ended() {
    let mut runner = running_script("echo begun; exec sleep 1000").await;
    until_output(&mut runner, "begun").await;
    // The database as a kill would leave it.
    let saved = runner.database().with_extension("saved");
    rusqlite::Connection::open(runner.database())
        .unwrap()
        .execute("VACUUM INTO ?1", [saved.to_str().unwrap()])
        .unwrap();
    runner.stop().await;
    for end in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(runner.database().with_extension(end));
    }
    std::fs::rename(&saved, runner.database()).unwrap();
    runner.lines.clear();
    runner.restart(0).await;
    let end = exited(&mut runner, "s").await;
    assert_eq!(end["exit_code"], -1);
    assert!(end["error"].as_str().unwrap().contains("The runner stopped"), "{end}");
    assert_eq!(runner.state().await["status"], "closed");
    let answer = runner.call(json!({"cmd": "prompt", "session_id": "s", "message": "x"})).await;
    assert_eq!(answer["code"], "run_ended", "a prompt starts nothing: {answer}");
    runner.stop().await;
}

/// Nobody takes what a program says: it is held back, and neither memory nor disk fills.
#[tokio::test]
async fn a_program_waits_for_a_hub_that_takes_nothing() {
    const SPOOL: u64 = 4 << 20;
    let mut runner = RunnerFixture::start(|config| config.spool_bytes_max = SPOOL).await;
    // The answer is all that is read.
    script(&mut runner, "i=0; while :; do seq 1 1000; i=$((i+1)); echo $i > count; done").await;
    let count = runner.config.default_cwd.clone().unwrap().join("count");
    let read = || std::fs::read_to_string(&count).unwrap_or_default();
    let held = async {
        let mut before = String::from("none");
        loop {
            tokio::time::sleep(Duration::from_millis(400)).await;
            let now = read();
            if !now.is_empty() && now == before {
                return;
            }
            before = now;
        }
    };
    tokio::time::timeout(WAIT_MAX * 2, held).await.expect("the program is held back");
    let written: u64 = read().trim().parse::<u64>().unwrap() * 4_893;
    assert!(written > SPOOL / 2, "it ran for a while: {written}");
    assert!(written < SPOOL * 2, "and not much longer than there was room: {written}");
    stop(&mut runner, "kill").await;
    runner.stop().await;
}

#[tokio::test]
async fn a_terminal_that_nobody_uses_ends_and_leaves_nothing() {
    let mut runner = RunnerFixture::start(|config| {
        config.runs.terminal_idle = Some(Duration::from_millis(400));
        config.runs.terminal_keep = Duration::from_millis(50);
        config.runs.kill_after = Duration::from_millis(300);
    })
    .await;
    let config = json!({"harness": "terminal", "run": {"argv": ["cat"]}});
    runner.ok(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
    input(&mut runner, "i1", "hello\n").await;
    until_output(&mut runner, "hello\r\nhello").await;
    exited(&mut runner, "s").await;
    let gone = async {
        loop {
            let answer = runner.call(json!({"cmd": "get_state", "session_id": "s"})).await;
            if answer["success"] == false {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(WAIT_MAX, gone).await.expect("it goes");
    assert_eq!(answer["code"], "session_not_found", "{answer}");
    runner.stop().await;
}

#[tokio::test]
async fn a_terminal_is_the_shell_of_the_person() {
    let mut runner = RunnerFixture::start(|_| {}).await;
    runner.ok(json!({"cmd": "session.create", "session_id": "s", "config": {"harness": "terminal"}})).await;
    input(&mut runner, "i1", "echo $((40+2)); exit 5\n").await;
    let end = exited(&mut runner, "s").await;
    assert_eq!(end["exit_code"], 5);
    assert!(output(&runner, "s").contains(&lines("42\n")), "{}", output(&runner, "s"));
    runner.stop().await;
}
