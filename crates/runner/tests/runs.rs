//! Programs in terminals: every byte, in order, and the end last.

mod run_support;
mod runner_support;

use std::time::Duration;

use run_support::{exited, input, output, records, run, run_as, script, stop, story, until_output};
use runner_support::{RunnerFixture, WAIT_MAX};
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
    let mut bench = RunnerFixture::start(|_| {}).await;
    for (session_id, size) in [("odd", 7), ("larger", 1021), ("single", 1)] {
        let cmd = format!("dd if={} bs={size} 2>/dev/null", path.display());
        run_as(&mut bench, session_id, json!({"cmd": cmd})).await;
        exited(&mut bench, session_id).await;
        assert!(output(&bench, session_id) == text, "{session_id}: the text is not the same");
    }
    bench.stop().await;
}

#[tokio::test]
async fn what_is_no_text_is_marked_and_the_rest_is_whole() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    script(&mut bench, r"printf 'a\377b\342\202'").await;
    exited(&mut bench, "s").await;
    assert_eq!(output(&bench, "s"), "a\u{fffd}b\u{fffd}");
    bench.stop().await;
}

#[tokio::test]
async fn a_flood_arrives_whole_and_in_order() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    run(&mut bench, &["seq", "1", "200000"]).await;
    let end = exited(&mut bench, "s").await;
    assert_eq!(end["exit_code"], 0);
    let expected: String = (1..=200_000).map(|number| format!("{number}\r\n")).collect();
    assert!(output(&bench, "s") == expected, "the output is not the same");
    let pieces = records(&bench, "s").values().filter(|record| record["event"] == "run.output").count();
    assert!(pieces < 400, "{pieces} records for 1.3 MB");
    bench.stop().await;
}

#[tokio::test]
async fn the_end_is_the_last_record_of_every_short_run() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    for number in 0..50 {
        let session_id = format!("s{number}");
        run_as(&mut bench, &session_id, json!({"argv": ["sh", "-c", "seq 1 50; exit 3"]})).await;
        let end = exited(&mut bench, &session_id).await;
        assert_eq!(end["exit_code"], 3);
        let state = bench.ok(json!({"cmd": "get_state", "session_id": session_id})).await;
        assert_eq!(
            (&state["status"], &state["seq"]),
            (&json!("closed"), &end["seq"]),
            "nothing follows the end"
        );
        let expected: String = (1..=50).map(|number| format!("{number}\r\n")).collect();
        assert_eq!(output(&bench, &session_id), expected);
        assert_eq!(
            story(&bench, &session_id),
            ["session.created", "run.started", "run.output", "run.exited"]
        );
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_run_tells_what_it_is() {
    let mut bench = RunnerFixture::start(|config| config.local_socket = None).await;
    let command = "env | grep -E '^(QD_|TERM=|FOO=|COLUMNS=)' | sort; tty; ps -o pid=,pgid=,sid= -p $$";
    let run = json!({"argv": ["sh", "-c", command], "tool": "codex", "cols": 100, "rows": 30, "env": {"FOO": "bar"}});
    run_as(&mut bench, "s", run).await;
    exited(&mut bench, "s").await;
    let text = output(&bench, "s");
    for wanted in
        ["FOO=bar", "QD_RUN_ID=s", "QD_SESSION_ID=s", "QD_TOOL=codex", "TERM=xterm-256color", "/dev/pts/"]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(!text.contains("QD_TOKEN") && !text.contains("COLUMNS"), "{text}");
    let records = records(&bench, "s");
    let started = &records[&2];
    assert_eq!(started["event"], "run.started");
    assert_eq!(
        (&started["tool"], &started["cols"], &started["rows"]),
        (&json!("codex"), &json!(100), &json!(30))
    );
    let pid = started["pid"].to_string();
    let ids = text.lines().last().unwrap();
    assert!(ids.split_whitespace().all(|id| id == pid), "it leads its own session and group: {ids} of {pid}");
    bench.stop().await;
}

#[tokio::test]
async fn a_program_may_leave_its_terminal_and_come_back() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    let text =
        "tty=$(tty); echo before; exec <&- >&- 2>&-; sleep 0.3; exec <$tty >$tty; read x; echo \"after $x\"";
    script(&mut bench, text).await;
    until_output(&mut bench, "before").await;
    input(&mut bench, "i1", "typed\n").await;
    assert_eq!(exited(&mut bench, "s").await["exit_code"], 0);
    assert!(output(&bench, "s").ends_with("after typed\r\n"), "{:?}", output(&bench, "s"));
    bench.stop().await;
}

#[tokio::test]
async fn ends_by_signal_and_by_code_are_told_apart() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    run_as(&mut bench, "killed", json!({"cmd": "kill -9 $$"})).await;
    let end = exited(&mut bench, "killed").await;
    assert_eq!((&end["exit_code"], &end["signal"]), (&json!(-1), &json!(9)));
    run_as(&mut bench, "seven", json!({"cmd": "exit 7"})).await;
    let end = exited(&mut bench, "seven").await;
    assert_eq!((&end["exit_code"], &end["signal"], &end["error"]), (&json!(7), &Value::Null, &Value::Null));
    bench.stop().await;
}

#[tokio::test]
async fn what_cannot_be_started_is_said() {
    let mut bench = RunnerFixture::start(|_| {}).await;
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
        let answer = bench.call(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
        assert_eq!(answer["success"], false, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
    }
    let answer = bench.call(json!({"cmd": "run.stop", "session_id": "s"})).await;
    assert!(answer["error"].as_str().unwrap().contains("not found"), "nothing is left of them: {answer}");
    bench.stop().await;
}

#[tokio::test]
async fn hole_19_a_program_that_ignores_the_request_to_end_is_killed_with_its_children() {
    let mut bench = RunnerFixture::start(|config| config.runs.kill_after = Duration::from_millis(300)).await;
    let text =
        "trap '' TERM HUP; sleep 1000 & setsid sleep 1000 & echo pids $! ready; while :; do sleep 0.1; done";
    script(&mut bench, text).await;
    until_output(&mut bench, "ready").await;
    let child: i32 = output(&bench, "s").split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(stop(&mut bench, "term").await, json!({"signal": "term"}));
    let end = exited(&mut bench, "s").await;
    assert_eq!(end["signal"], 9);
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "its children died with it");
    let answer = bench.call(json!({"cmd": "run.stop", "session_id": "s"})).await;
    assert!(answer["error"].as_str().unwrap().contains("has ended"), "{answer}");
    bench.stop().await;
}

#[tokio::test]
async fn an_interrupt_only_interrupts() {
    let mut bench = RunnerFixture::start(|config| config.runs.kill_after = Duration::from_millis(10)).await;
    script(&mut bench, "trap 'echo caught' INT; echo ready; while :; do sleep 0.02; done").await;
    until_output(&mut bench, "ready").await;
    stop(&mut bench, "int").await;
    until_output(&mut bench, "caught").await;
    bench.ok(json!({"cmd": "abort", "session_id": "s"})).await;
    until_output(&mut bench, "caught\r\ncaught").await;
    stop(&mut bench, "kill").await;
    assert_eq!(exited(&mut bench, "s").await["signal"], 9);
    bench.stop().await;
}

#[tokio::test]
async fn a_size_reaches_the_program() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    let text = "stty size; trap 'stty size' WINCH; while :; do sleep 0.02; done";
    run_as(&mut bench, "s", json!({"argv": ["sh", "-c", text], "cols": 100, "rows": 30})).await;
    until_output(&mut bench, "30 100").await;
    bench.ok(json!({"cmd": "run.resize", "session_id": "s", "cols": 120, "rows": 40})).await;
    until_output(&mut bench, "40 120").await;
    let resized = bench.event(0, "run.resized").await;
    assert_eq!((&resized["cols"], &resized["rows"]), (&json!(120), &json!(40)));
    let screen = bench.ok(json!({"cmd": "run.screen", "session_id": "s"})).await;
    assert_eq!((&screen["cols"], &screen["rows"]), (&json!(120), &json!(40)));
    for (cols, rows) in [(1, 40), (501, 40), (80, 0), (80, 201)] {
        let command = json!({"cmd": "run.resize", "session_id": "s", "cols": cols, "rows": rows});
        assert_eq!(bench.call(command).await["success"], false);
    }
    bench.stop().await;
}

#[tokio::test]
async fn who_comes_sees_the_screen_and_who_comes_back_the_rest() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    script(&mut bench, r"seq 1 100; printf '\033[1mbold\033[0m prompt> '; read x; seq 1 5; read x").await;
    until_output(&mut bench, "prompt> ").await;
    let attach = bench.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert_eq!(attach["resume"], "gap");
    let terminal = &attach["terminal"];
    assert_eq!(terminal["seq"], attach["seq"]);
    let screen = terminal["screen"].as_str().unwrap();
    assert!(screen.contains("bold") && screen.contains("prompt>") && screen.contains("100"), "{screen:?}");
    assert!(terminal["scrollback"].as_str().unwrap().contains("50"), "{terminal}");
    let seq = attach["seq"].as_u64().unwrap();
    let attach = bench.ok(json!({"cmd": "session.attach", "session_id": "s", "after": seq})).await;
    assert_eq!((&attach["resume"], &attach["terminal"]), (&json!("ok"), &Value::Null));
    assert_eq!(attach["state"]["run"]["tool"], "sh");
    stop(&mut bench, "kill").await;
    exited(&mut bench, "s").await;
    let attach = bench.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert!(attach["terminal"]["screen"].as_str().unwrap().contains("prompt>"), "the last screen stays");
    bench.restart(0).await;
    let attach = bench.ok(json!({"cmd": "session.attach", "session_id": "s"})).await;
    assert!(attach["terminal"]["screen"].as_str().unwrap().contains("prompt>"), "also through a restart");
    bench.stop().await;
}

#[tokio::test]
async fn a_closed_run_ends_and_a_restarted_one_runs_again() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    script(&mut bench, "echo begun; exec cat").await;
    until_output(&mut bench, "begun").await;
    bench.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    let end = exited(&mut bench, "s").await;
    assert!(end["signal"] == 1 || end["signal"] == 15, "{end}");
    let from = bench.lines.len();
    bench.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    bench.event(from, "run.started").await;
    bench.event(from, "run.output").await;
    input(&mut bench, "i1", "again\n").await;
    until_output(&mut bench, "again\r\nagain").await;
    bench.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    let names = story(&bench, "s");
    assert_eq!(names.iter().filter(|name| *name == "run.started").count(), 3, "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "session.created").count(), 1, "{names:?}");
    bench.ok(json!({"cmd": "session.delete", "session_id": "s"})).await;
    let answer = bench.call(json!({"cmd": "get_state", "session_id": "s"})).await;
    assert!(answer["error"].as_str().unwrap().contains("not found"), "{answer}");
    bench.stop().await;
}

#[tokio::test]
async fn hole_18_a_run_whose_runner_was_killed_is_told_to_have_ended() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    script(&mut bench, "echo begun; exec sleep 1000").await;
    until_output(&mut bench, "begun").await;
    // The database as a kill would leave it.
    let saved = bench.database().with_extension("saved");
    rusqlite::Connection::open(bench.database())
        .unwrap()
        .execute("VACUUM INTO ?1", [saved.to_str().unwrap()])
        .unwrap();
    bench.stop().await;
    for end in ["db-wal", "db-shm"] {
        let _ = std::fs::remove_file(bench.database().with_extension(end));
    }
    std::fs::rename(&saved, bench.database()).unwrap();
    bench.lines.clear();
    bench.restart(0).await;
    let end = exited(&mut bench, "s").await;
    assert_eq!(end["exit_code"], -1);
    assert!(end["error"].as_str().unwrap().contains("The runner stopped"), "{end}");
    assert_eq!(bench.state().await["status"], "closed");
    let answer = bench.call(json!({"cmd": "prompt", "session_id": "s", "message": "x"})).await;
    assert!(answer["error"].as_str().unwrap().contains("has ended"), "a prompt starts nothing: {answer}");
    bench.stop().await;
}

/// Nobody takes what a program says: it is held back, and neither memory nor disk fills.
#[tokio::test]
async fn a_program_waits_for_a_hub_that_takes_nothing() {
    const SPOOL: u64 = 4 << 20;
    let mut bench = RunnerFixture::start(|config| config.spool_bytes_max = SPOOL).await;
    // The answer is all that is read.
    script(&mut bench, "i=0; while :; do seq 1 1000; i=$((i+1)); echo $i > count; done").await;
    let count = bench.config.default_cwd.clone().unwrap().join("count");
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
    stop(&mut bench, "kill").await;
    bench.stop().await;
}

#[tokio::test]
async fn a_terminal_that_nobody_uses_ends_and_leaves_nothing() {
    let mut bench = RunnerFixture::start(|config| {
        config.runs.terminal_idle = Some(Duration::from_millis(400));
        config.runs.terminal_keep = Duration::from_millis(50);
        config.runs.kill_after = Duration::from_millis(300);
    })
    .await;
    let config = json!({"harness": "terminal", "run": {"argv": ["cat"]}});
    bench.ok(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
    input(&mut bench, "i1", "hello\n").await;
    until_output(&mut bench, "hello\r\nhello").await;
    exited(&mut bench, "s").await;
    let gone = async {
        loop {
            let answer = bench.call(json!({"cmd": "get_state", "session_id": "s"})).await;
            if answer["success"] == false {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(WAIT_MAX, gone).await.expect("it goes");
    assert!(answer["error"].as_str().unwrap().contains("not found"), "{answer}");
    bench.stop().await;
}

#[tokio::test]
async fn a_terminal_is_the_shell_of_the_person() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.ok(json!({"cmd": "session.create", "session_id": "s", "config": {"harness": "terminal"}})).await;
    input(&mut bench, "i1", "echo $((40+2)); exit 5\n").await;
    let end = exited(&mut bench, "s").await;
    assert_eq!(end["exit_code"], 5);
    assert!(output(&bench, "s").contains(&lines("42\n")), "{}", output(&bench, "s"));
    bench.stop().await;
}
