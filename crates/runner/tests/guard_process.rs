//! The runner's handle on an agent: streams, exit, closing, errors.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod guard_support;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use guard_support::*;
use qd_runner::process::line_reader::{LINE_BYTES_MAX, LineReader};
use qd_runner::process::{
    AgentProcess, CloseMode, ExitStatus, GuardCommand, Privileges, SpawnError, StdinError,
};
use tokio::time::Instant;

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    for (script, expected, words) in [
        ("exit 0", ExitStatus::Code(0), "Process exited with code 0"),
        ("exit 42", ExitStatus::Code(42), "Process exited with code 42"),
        ("kill -KILL $$", ExitStatus::Signal(9), "Process was killed by signal 9 (SIGKILL)"),
        ("kill -INT $$", ExitStatus::Signal(2), "Process was killed by signal 2 (SIGINT)"),
        ("kill -PIPE $$", ExitStatus::Signal(13), "Process was killed by signal 13 (SIGPIPE)"),
    ] {
        let agent = ProcessFixture::new(true).script(script).await;
        let status = in_time(agent.exited()).await;
        assert_eq!((status, status.to_string().as_str()), (expected, words));
        assert_eq!(agent.exit_status(), Some(expected));
        assert!(!agent.stats().alive);
    }
}

#[tokio::test]
async fn lines_go_in_and_come_out() {
    let fixture = ProcessFixture::new(true);
    let mut agent = fixture.script("exec cat").await;
    let mut reader = LineReader::new(agent.take_stdout().unwrap(), LINE_BYTES_MAX);
    let huge = "x".repeat(3_000_000);
    let sent: Vec<String> = ["{}".into(), "a\u{2028}b".into(), huge, "end".into()].into();
    for line in &sent {
        agent.stdin().send(Bytes::from(format!("{line}\n"))).await.unwrap();
    }
    agent.stdin().close();
    assert_eq!(agent.stdin().try_send(Bytes::from_static(b"late\n")), Err(StdinError::Closed));
    let mut received = Vec::new();
    while in_time(reader.fill()).await.unwrap() {
        while let Some(line) = reader.next_line() {
            received.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
        }
    }
    assert!(sent == received, "{} lines of {}", received.len(), sent.len());
    assert_eq!(in_time(agent.exited()).await, ExitStatus::Code(0));
}

#[tokio::test]
async fn an_agent_that_does_not_read_fills_the_queue_and_blocks_nobody() {
    let fixture = ProcessFixture::new(true);
    let agent = fixture.script("exec sleep 60").await;
    let message = Bytes::from(vec![b'x'; 1024 * 1024]);
    let mut taken = 0;
    let refused = loop {
        match agent.stdin().try_send(message.clone()) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000);
    };
    assert_eq!(refused, StdinError::Full);
    let stdin = agent.stdin().clone();
    let waiting = tokio::spawn(async move { stdin.send(message).await });
    assert_eq!(in_time(agent.close(CloseMode::Now)).await, ExitStatus::Signal(9));
    // Whoever waited for room is let go, whichever way it ended.
    let _ = in_time(waiting).await.unwrap();
}

#[tokio::test]
async fn closing_is_as_gentle_as_the_agent_allows() {
    let obstinate = "trap '' TERM; echo 1 > \"$PIDS\"; while :; do sleep 0.02; done";
    let polite = "trap 'exit 7' TERM; echo 1 > \"$PIDS\"; while :; do sleep 0.02; done";
    let reads = "echo 1 > \"$PIDS\"; cat > /dev/null; exit 6";
    let both = STDIN_GRACE + TERM_GRACE;
    for (script, how, expected, at_least, below) in [
        (reads, CloseMode::Graceful, ExitStatus::Code(6), Duration::ZERO, STDIN_GRACE),
        (polite, CloseMode::Graceful, ExitStatus::Code(7), STDIN_GRACE, WAIT_MAX),
        (obstinate, CloseMode::Graceful, ExitStatus::Signal(9), both, WAIT_MAX),
        (obstinate, CloseMode::Now, ExitStatus::Signal(9), Duration::ZERO, STDIN_GRACE),
    ] {
        let fixture = ProcessFixture::new(true);
        let agent = fixture.script(script).await;
        eventually("the script runs", || fixture.pids().len() == 1).await;
        let start = Instant::now();
        assert_eq!(in_time(agent.close(how)).await, expected, "{script}");
        let took = start.elapsed();
        assert!(took >= at_least && took < below, "{script}: {took:?}");
    }
}

#[tokio::test]
async fn the_last_stderr_lines_are_there_when_the_exit_is_told() {
    let fixture = ProcessFixture::new(true);
    // Several megabytes before them: the reader must never make the agent wait for anybody.
    let script = r#"head -c 5000000 /dev/zero >&2; echo >&2
        i=0; while [ $i -lt 60 ]; do echo "line $i" >&2; i=$((i+1)); done
        printf 'bad \377 byte\n' >&2; head -c 9000 /dev/zero | tr '\0' y >&2; printf '\nlast without end' >&2; exit 1"#;
    let agent = fixture.script(script).await;
    assert_eq!(in_time(agent.exited()).await, ExitStatus::Code(1));
    let lines = agent.stderr().lines();
    let mut expected: Vec<String> = (13..60).map(|number| format!("line {number}")).collect();
    expected.extend(["bad \u{fffd} byte".into(), "y".repeat(4096), "last without end".into()]);
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let fixture = ProcessFixture::new(true);
    let folder = fixture.folder.path();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string()
    };
    let plain = file("plain", "text", 0o644);
    let no_interpreter = file("script", "#!/nonexistent/node\n", 0o755);
    let long = OsString::from("x".repeat(3_000_000));
    for (program, expected) in [
        (vec![], "no program given"),
        (vec!["qd-no-such-agent".into()], "qd-no-such-agent was not found; install it"),
        (vec!["/nonexistent/pi".into()], "/nonexistent/pi was not found; install it"),
        (vec![plain.clone()], "is not an executable program"),
        (vec![folder.as_os_str().to_owned()], "is not an executable program"),
        (vec![no_interpreter], "the interpreter in its first line does not"),
        (vec!["true".into(), long], "are larger than the system allows"),
    ] {
        let error = in_time(fixture.spawn_with(program).start()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }

    let mut spawn = fixture.spawn_with(vec!["true".into()]);
    spawn.cwd = folder.join("missing");
    let error = spawn.clone().start().await.unwrap_err();
    assert!(matches!(error, SpawnError::WorkingDirectoryNotFound { .. }), "{error}");
    spawn.cwd = plain.into();
    let error = spawn.clone().start().await.unwrap_err();
    assert!(matches!(error, SpawnError::WorkingDirectoryUnusable { .. }), "{error}");
    spawn.cwd = folder.to_owned();
    for (guard, expected) in [("/nonexistent/qd", "could not be started"), ("true", "ended without a report")]
    {
        spawn.guard = GuardCommand { program: guard.into(), args: vec![] };
        let error = in_time(spawn.clone().start()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn stats_tell_what_the_agent_uses() {
    let fixture = ProcessFixture::new(true);
    let agent = fixture.script("while :; do :; done").await;
    eventually("it has used the processor", || agent.stats().cpu_ticks > 2).await;
    let stats = agent.stats();
    assert!(stats.alive && stats.rss_bytes > 100_000, "{stats:?}");
    agent.kill();
    assert_eq!(in_time(agent.exited()).await, ExitStatus::Signal(9));
    assert!(!agent.stats().alive);
}

#[tokio::test]
async fn the_environment_is_what_was_asked_for() {
    let fixture = ProcessFixture::new(true);
    let mut spawn = fixture.spawn_with(vec!["/usr/bin/env".into()]);
    spawn.environment.inherit = qd_runner::process::InheritedVariables::Only(vec!["PATH".into()]);
    let mut agent = spawn.start().await.unwrap();
    let name = |line: String| line.split_once('=').unwrap().0.to_owned();
    let mut names: Vec<String> = lines(&mut agent).await.into_iter().map(name).collect();
    names.sort();
    assert_eq!(names, ["PATH", "PIDS", "QD_GUARD_KEY", "QD_TEST_TAG"]);
}

/// An agent cannot become another user; what a person runs can what the person can.
#[tokio::test]
async fn agents_gain_no_privileges() {
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let of_the_user = own.lines().find(|line| line.starts_with("NoNewPrivs:")).unwrap().to_owned();
    for (privileges, expected) in
        [(Privileges::Fixed, "NoNewPrivs:\t1".to_owned()), (Privileges::OfTheUser, of_the_user)]
    {
        let fixture = ProcessFixture::new(true);
        // Of the agent itself, and of what it starts.
        let script = "grep NoNewPrivs: /proc/$$/status; setsid sh -c 'grep NoNewPrivs: /proc/$$/status'";
        let mut spawn = fixture.spawn_with(vec!["sh".into(), "-c".into(), script.into()]);
        spawn.privileges = privileges;
        let mut agent = spawn.start().await.unwrap();
        assert_eq!(lines(&mut agent).await, [expected.clone(), expected]);
    }
}

/// Who stops the guard in a debugger, or changes its memory, has got away from it.
#[tokio::test]
async fn a_guard_is_closed_to_its_agent() {
    let fixture = ProcessFixture::new(true);
    let script = "grep NoNewPrivs: /proc/$PPID/status; cat /proc/$PPID/environ | wc -c; stat -c %u /proc/$PPID/environ";
    let mut agent = fixture.script(script).await;
    let told = lines(&mut agent).await;
    // The files of a process that is closed belong to root, whoever runs it.
    assert_eq!((told[0].as_str(), told[2].as_str()), ("NoNewPrivs:\t1", "0"), "{told:?}");
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || told[1] == "0", "{told:?}");
}

async fn lines(agent: &mut AgentProcess) -> Vec<String> {
    let mut reader = LineReader::new(agent.take_stdout().unwrap(), LINE_BYTES_MAX);
    let mut lines = Vec::new();
    while in_time(reader.fill()).await.unwrap() {
        while let Some(line) = reader.next_line() {
            lines.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
        }
    }
    lines
}
