//! A runner and its guard killed in the same moment: the next runner sweeps up.
//!
//! In a file of its own, because a sweep would help the other tests to pass.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod guard_support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use guard_support::*;
use rustix::process::Signal;

#[tokio::test]
async fn the_next_runner_ends_what_a_dead_one_left() {
    let mut living_runner =
        Command::new(HELPER).args(["runner", "sleep", "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let living_agent = first_pid(&mut living_runner);

    // The test process plays the next runner, so the abandoned one must be another process.
    let fixture = ProcessFixture::new(false);
    let escape = r#"setsid sh -c 'echo $$ >> "$PIDS"; exec sleep 60' & exec sleep 60"#;
    let mut runner = Command::new(HELPER)
        .args(["runner-without-cgroup", "sh", "-c", escape])
        .env("PIDS", fixture.pid_file())
        .env("QD_TEST_TAG", &fixture.tag)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let agent = first_pid(&mut runner);
    eventually("the escapee runs", || fixture.pids().len() == 1).await;
    // Stopped first, so that the runner cannot notice that its guard dies.
    signal(i32::try_from(runner.id()).unwrap(), Signal::STOP);
    signal(parent_of(agent), Signal::KILL);
    runner.kill().unwrap();
    runner.wait().unwrap();
    eventually("the agent died with its guard", || !lives(agent)).await;
    let escapee = fixture.pids()[0];
    assert!(lives(escapee), "nobody was there to kill it");

    // There may be more: the machine is not ours alone.
    assert!(qd_runner::process::sweep_abandoned() >= 1);
    eventually("the escapee is gone", || !lives(escapee)).await;
    assert!(lives(living_agent), "the agent of a living runner is left alone");
    living_runner.kill().unwrap();
    living_runner.wait().unwrap();
    eventually("the other agent is gone", || !lives(living_agent)).await;
}

fn first_pid(runner: &mut std::process::Child) -> i32 {
    let mut line = String::new();
    BufReader::new(runner.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}
