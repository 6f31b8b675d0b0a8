//! Nothing an agent starts survives it, its guard or its runner: real processes, real kills.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod guard_support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use guard_support::*;
use qd_runner::process::{CloseMode, ExitStatus};
use rustix::process::Signal;

/// Every promise holds with the cgroup, where there is one, and by the subreaper alone.
const MODES: [bool; 2] = [true, false];

#[tokio::test]
async fn exit_of_the_agent_takes_all_descendants_along() {
    for use_cgroup in MODES {
        let fixture = ProcessFixture::new(use_cgroup);
        let agent = fixture.script(&format!("{TREE} exit 3")).await;
        assert_eq!(in_time(agent.exited()).await, ExitStatus::Code(3));
        // No polling: when the exit is told, everything is gone already.
        assert_eq!(fixture.survivors(), [0; 0]);
        assert_eq!(fixture.pids().len(), TREE_SIZE);
    }
}

#[tokio::test]
async fn sigkill_of_the_agent_takes_all_descendants_along() {
    for use_cgroup in MODES {
        let fixture = ProcessFixture::new(use_cgroup);
        let agent = fixture.start_tree().await;
        signal(agent.pid(), Signal::KILL);
        assert_eq!(in_time(agent.exited()).await, ExitStatus::Signal(9));
        assert_eq!(fixture.survivors(), [0; 0]);
    }
}

#[tokio::test]
async fn sigkill_of_the_runner_kills_everything() {
    // An ignored signal stays ignored in everything that is started from there on.
    let stubborn = format!("trap '' TERM INT HUP; {TREE}");
    for (role, tree) in [
        ("runner", TREE),
        ("runner-without-cgroup", TREE),
        ("runner", stubborn.as_str()),
        ("runner-without-cgroup", stubborn.as_str()),
    ] {
        let fixture = ProcessFixture::new(role == "runner");
        let mut runner = Command::new(HELPER)
            .args([role, "sh", "-c", &format!("{tree} exec sleep 60")])
            .env("PIDS", fixture.pid_file())
            .env("QD_TEST_TAG", &fixture.tag)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(runner.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let agent: i32 = line.trim().parse().unwrap();
        let guard = parent_of(agent);
        fixture.tree_runs().await;
        let is_stubborn = fixture.pids().into_iter().all(ignores_sigterm);
        assert_eq!(is_stubborn, tree != TREE, "{:?}", fixture.pids());
        runner.kill().unwrap();
        runner.wait().unwrap();
        eventually("all gone", || fixture.survivors().is_empty() && !lives(agent) && !lives(guard)).await;
    }
}

/// A stopped process neither ends by itself nor hears SIGTERM.
#[tokio::test]
async fn a_stopped_agent_is_ended_all_the_same() {
    for use_cgroup in MODES {
        let fixture = ProcessFixture::new(use_cgroup);
        let agent = fixture.start_tree().await;
        signal(agent.pid(), Signal::STOP);
        assert_eq!(in_time(agent.close(CloseMode::Graceful)).await, ExitStatus::Signal(9));
        assert_eq!(fixture.survivors(), [0; 0]);
    }
}

#[tokio::test]
async fn sigkill_of_the_guard_kills_the_agent_and_the_runner_sweeps_up() {
    for use_cgroup in MODES {
        let fixture = ProcessFixture::new(use_cgroup);
        let agent = fixture.start_tree().await;
        signal(parent_of(agent.pid()), Signal::KILL);
        assert_eq!(in_time(agent.exited()).await, ExitStatus::Unknown);
        eventually("the agent is gone", || !lives(agent.pid())).await;
        // Without a cgroup the sweep goes by the environment, which one of the tree has dropped.
        let out_of_reach = if use_cgroup && cgroups_allowed() { 0 } else { 1 };
        eventually("the rest is gone", || fixture.survivors().len() == out_of_reach).await;
        for pid in fixture.survivors() {
            signal(pid, Signal::KILL);
        }
    }
}

#[tokio::test]
async fn sigterm_to_the_guard_kills_everything() {
    for request in [Signal::TERM, Signal::INT, Signal::HUP] {
        let fixture = ProcessFixture::new(false);
        let agent = fixture.start_tree().await;
        signal(parent_of(agent.pid()), request);
        assert_eq!(in_time(agent.exited()).await, ExitStatus::Signal(9));
        assert_eq!(fixture.survivors(), [0; 0]);
    }
}

#[tokio::test]
async fn dropping_the_handle_kills_everything() {
    for use_cgroup in MODES {
        let fixture = ProcessFixture::new(use_cgroup);
        let agent = fixture.start_tree().await;
        let exited = agent.exited();
        drop(agent);
        assert_eq!(in_time(exited).await, ExitStatus::Signal(9));
        assert_eq!(fixture.survivors(), [0; 0]);
    }
}

/// Processes that fork and exit faster than anyone can read /proc, in a session of their own, and
/// ones that multiply.
#[tokio::test]
async fn processes_that_keep_forking_are_caught() {
    let hopper = "setsid sh -c 'hop() { hop & }; hop' & setsid sh -c 'hop() { hop & }; hop' & ";
    let bomb = "setsid sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
                (while :; do setsid sleep 0.05 & wait; done) & done; wait' & ";
    for use_cgroup in MODES {
        for forker in [hopper, bomb] {
            let fixture = ProcessFixture::new(use_cgroup);
            let agent = fixture.script(&format!("{forker} sleep 0.2; exit 5")).await;
            assert_eq!(in_time(agent.exited()).await, ExitStatus::Code(5));
            assert_eq!(fixture.survivors(), [0; 0]);
        }
    }
}

#[tokio::test]
async fn orphans_are_reaped_while_the_agent_runs() {
    let fixture = ProcessFixture::new(false);
    let agent = fixture
        .script("for i in 1 2 3 4 5; do (setsid true &); done; echo $$ > \"$PIDS\"; exec sleep 60")
        .await;
    eventually("the script is done", || fixture.pids().len() == 1).await;
    let guard = parent_of(agent.pid());
    eventually("the agent is the guard's only child", || children_of(guard).into_keys().eq([agent.pid()]))
        .await;
}

#[tokio::test]
async fn the_agent_gets_its_three_streams_and_nothing_else() {
    let fixture = ProcessFixture::new(true);
    let _other = fixture.script("exec sleep 60").await;
    let agent = fixture.script("exec sleep 60").await;
    let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    eventually("exec is done", || name(agent.pid()) == "sleep\n").await;
    // The dynamic linker has files open for a moment.
    eventually("only the three streams are open", || open_fds(agent.pid()) == ["0", "1", "2"]).await;
    // Ctrl-C in the runner's terminal reaches neither: the guard has a session, the agent a group.
    let guard = parent_of(agent.pid());
    assert_eq!(stat(guard).unwrap()[3], guard.to_string(), "session of the guard");
    assert_eq!(stat(agent.pid()).unwrap()[2], agent.pid().to_string(), "group of the agent");
}

#[tokio::test]
async fn the_guard_is_small() {
    let fixture = ProcessFixture::new(true);
    let agent = fixture.script("exec sleep 60").await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", parent_of(agent.pid()))).unwrap();
    let value = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(value("Threads:"), 1);
    assert!(value("RssAnon:") < 1024, "{} kB", value("RssAnon:"));
}

#[tokio::test]
async fn a_guard_leaves_neither_itself_nor_a_cgroup_behind() {
    let fixture = ProcessFixture::new(true);
    let agent = fixture.script("cat /proc/self/cgroup >&2; read line").await;
    let guard = parent_of(agent.pid());
    agent.stdin().close();
    in_time(agent.exited()).await;
    let lines = agent.stderr().lines();
    let own = lines.iter().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let in_cgroup = own.contains("/qd-agent-");
    assert_eq!(in_cgroup, cgroups_allowed(), "{own}");
    if in_cgroup {
        let folder = format!("{}{own}", cgroup_mount().unwrap());
        assert!(!std::path::Path::new(&folder).exists(), "{folder}");
    }
    eventually("the guard is gone and reaped", || stat(guard).is_none()).await;
}
