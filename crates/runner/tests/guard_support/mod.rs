//! Real process trees for the guard's tests, and ways to see whether they are gone.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test support")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use qd_runner::process::{AgentProcess, Environment, GuardCommand, Privileges, ProcessConfig, SpawnSpec};
use rustix::process::{Pid, Signal};

pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_qd-guard-test");
/// Far more than anything here takes, on any machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

pub(crate) const STDIN_GRACE: Duration = Duration::from_millis(600);
pub(crate) const TERM_GRACE: Duration = Duration::from_millis(500);

/// Starts the five ways of getting away: a child, a session leader, a double fork into a new
/// session with a child of its own, and a process that has lost its environment.
/// Goes on when all of them run.
pub(crate) const TREE: &str = r#"
    export LEAF='echo $$ >> "$PIDS"; exec sleep 60'
    sh -c "$LEAF" &
    setsid sh -c "$LEAF" &
    (setsid sh -c 'sh -c "$LEAF" & sh -c "$LEAF" & exit' &)
    (setsid env -i PATH="$PATH" PIDS="$PIDS" sh -c "$LEAF" &)
    while [ "$(wc -l < "$PIDS")" -lt 5 ]; do sleep 0.01; done
"#;
pub(crate) const TREE_SIZE: usize = 5;

/// A place for one agent: a file to which its processes write their ids, and a mark on them all.
pub(crate) struct ProcessFixture {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) tag: String,
    pub(crate) use_cgroup: bool,
}

impl ProcessFixture {
    pub(crate) fn new(use_cgroup: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let fixture = Self {
            folder: tempfile::tempdir().unwrap(),
            tag: format!("{}-{number}", std::process::id()),
            use_cgroup,
        };
        fs::write(fixture.pid_file(), "").unwrap();
        fixture
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.folder.path().join("pids")
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.pid_file()).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    pub(crate) fn spawn_with(&self, program: Vec<OsString>) -> SpawnSpec {
        let set = vec![
            ("PIDS".into(), self.pid_file().into_os_string()),
            ("QD_TEST_TAG".into(), self.tag.clone().into()),
        ];
        SpawnSpec {
            program,
            cwd: self.folder.path().to_owned(),
            environment: Environment { set, ..Environment::default() },
            guard: GuardCommand { program: HELPER.into(), args: vec!["guard".into()] },
            config: ProcessConfig {
                stdin_grace: STDIN_GRACE,
                term_grace: TERM_GRACE,
                use_cgroup: self.use_cgroup,
                ..ProcessConfig::default()
            },
            privileges: Privileges::Fixed,
            session_id: String::new(),
        }
    }

    /// Starts a shell script as the agent.
    pub(crate) async fn script(&self, text: &str) -> AgentProcess {
        self.spawn_with(vec!["sh".into(), "-c".into(), text.into()]).start().await.unwrap()
    }

    /// An agent with the whole tree of `TREE` below it.
    pub(crate) async fn start_tree(&self) -> AgentProcess {
        let agent = self.script(&format!("{TREE} exec sleep 60")).await;
        self.tree_runs().await;
        agent
    }

    /// Waits until the whole tree of `TREE` has told its ids.
    pub(crate) async fn tree_runs(&self) {
        eventually("the tree runs", || self.pids().len() == TREE_SIZE).await;
        assert!(self.pids().into_iter().all(lives), "{:?}", self.pids());
    }

    /// The processes of the fixture that live now, by what they wrote and by their environment.
    pub(crate) fn survivors(&self) -> Vec<i32> {
        let mark = format!("QD_TEST_TAG={}", self.tag).into_bytes();
        // What a process is comes first: a guard that ends meanwhile has neither a command line nor an environment.
        let marked = all_pids().into_iter().filter(|pid| {
            let is_marked = || {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == mark)
            };
            !is_guard_of_any(*pid) && is_marked()
        });
        let mut survivors: Vec<i32> =
            self.pids().into_iter().chain(marked).filter(|pid| lives(*pid)).collect();
        survivors.sort_unstable();
        survivors.dedup();
        survivors
    }
}

pub(crate) fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn is_guard_of_any(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"guard".as_slice()))
}

/// The fields of /proc/{pid}/stat after the name: state, parent, …
pub(crate) fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

pub(crate) fn lives(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// By the mask of ignored signals; SIGTERM is number 15.
pub(crate) fn ignores_sigterm(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 14) != 0
}

pub(crate) fn parent_of(pid: i32) -> i32 {
    stat(pid).unwrap()[1].parse().unwrap()
}

/// Children of a process by state.
pub(crate) fn children_of(parent: i32) -> HashMap<i32, String> {
    let children = all_pids().into_iter().filter_map(|pid| {
        let fields = stat(pid)?;
        (fields[1] == parent.to_string()).then(|| (pid, fields[0].clone()))
    });
    children.collect()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Polls a condition until it holds; the deadline is a failure.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_MAX, polling).await.is_ok(), "never: {what}");
}

pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, future).await.expect("the deadline")
}

pub(crate) fn open_fds(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut fds: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    fds.sort();
    fds
}

/// Where cgroup v2 is mounted.
pub(crate) fn cgroup_mount() -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    mount.split(' ').nth(4).map(str::to_owned)
}

/// Whether this machine lets us have cgroups, tried out.
pub(crate) fn cgroups_allowed() -> bool {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let (Some(mount), Some(own)) = (cgroup_mount(), own) else { return false };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let probe = PathBuf::from(format!("{mount}{own}/qd-test-{}-{number}", std::process::id()));
    let allowed = fs::create_dir(&probe).is_ok()
        && probe.join("cgroup.kill").exists()
        && fs::OpenOptions::new().write(true).open(probe.join("cgroup.procs")).is_ok();
    if probe.exists() {
        fs::remove_dir(&probe).unwrap();
    }
    allowed
}
