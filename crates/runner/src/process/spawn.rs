//! Starts an agent under a guard.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use qd_link::mutex::Mutex;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::agent_process::AgentProcess;
use super::agent_stdin::AgentStdin;
use super::environment::Environment;
use super::guard_control::{GuardReports, GuardSupervisor};
use super::guard_table::{self, GuardEntry};
use super::guarded_process::GuardedProcess;
use super::process_stats::StatsReader;
use super::spawn_error::{ProgramLookup, SpawnError};
use super::stderr_tail::{STDERR_LINES_MAX, StderrTail};
use super::terminal::Terminal;
use crate::guard::cgroup::AgentCgroup;
use crate::guard::owner_key::KeyOwner;
use crate::guard::report::GuardReport;

/// How long a guard that failed may take to say why.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(200);

/// What to start, and where.
#[derive(Debug, Clone)]
pub struct SpawnSpec {
    /// The program, looked up in the agent's own PATH, and its arguments.
    pub program: Vec<OsString>,
    pub cwd: PathBuf,
    pub environment: Environment,
    pub guard: GuardCommand,
    pub config: ProcessConfig,
    pub privileges: Privileges,
    /// The session whose program it is; empty for none. At the runner's own socket it can act for that one only.
    pub session_id: String,
}

/// What the program may become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Privileges {
    /// Never more than the runner's user: programs that run as somebody else (`sudo`, `su`) do not get that. For agents.
    #[default]
    Fixed,
    /// What the user can become, as in any terminal. For what a person runs.
    OfTheUser,
}

/// How to run the guard; the options of `qd guard` are appended.
#[derive(Debug, Clone)]
pub struct GuardCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// Bounds and patience.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    pub stderr_lines_max: usize,
    /// For the guard to report that the agent runs.
    pub start_timeout: Duration,
    /// After the end of stdin, before SIGTERM.
    pub stdin_grace: Duration,
    /// After SIGTERM, before SIGKILL.
    pub term_grace: Duration,
    /// After SIGKILL, for the guard to report; longer than the guard itself waits.
    pub kill_wait_max: Duration,
    /// Use a cgroup per agent where that is allowed.
    pub use_cgroup: bool,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            stderr_lines_max: STDERR_LINES_MAX,
            start_timeout: Duration::from_secs(10),
            stdin_grace: Duration::from_secs(1),
            term_grace: Duration::from_secs(3),
            kill_wait_max: Duration::from_secs(8),
            use_cgroup: true,
        }
    }
}

impl GuardCommand {
    /// The guard inside the running program itself: `qd guard`.
    pub fn current() -> io::Result<Self> {
        // The link keeps working when an upgrade has replaced the file on disk.
        let link = Path::new("/proc/self/exe");
        let program = if link.exists() { link.to_owned() } else { std::env::current_exe()? };
        Ok(Self { program, args: vec!["guard".into()] })
    }
}

impl SpawnSpec {
    /// Starts the agent; returns once its exec has succeeded, or says why it did not.
    pub async fn start(self) -> Result<AgentProcess, SpawnError> {
        self.start_tapped(None).await
    }

    /// The same; all of stderr goes to `tap` too, and waits for whoever takes it.
    pub async fn start_tapped(self, tap: Option<mpsc::Sender<Bytes>>) -> Result<AgentProcess, SpawnError> {
        let mut started = self.start_guard_process(None)?;
        let guard = &mut started.guard;
        let (stdin, stdout, stderr) = match (guard.stdin.take(), guard.stdout.take(), guard.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => (stdin, stdout, stderr),
            _ => return Err(self.guard_failed("it has no pipes".to_owned())),
        };
        let tail = StderrTail::new(self.config.stderr_lines_max);
        let stderr_task = match tap {
            Some(tap) => tokio::spawn(tail.clone().read_and_tap(stderr, tap)),
            None => tokio::spawn(tail.clone().read_from(stderr)),
        };
        match self.pid_of(&mut started).await {
            Ok(pid) => Ok(AgentProcess {
                guarded: started.supervise(pid, Some(stderr_task)),
                stdin: AgentStdin::start(stdin),
                stdout: Some(stdout),
                stderr: tail,
                config: self.config,
            }),
            Err(StartFailure::Exec(error)) => Err(error),
            Err(StartFailure::Guard(error)) => {
                Err(self.guard_failed(with_last_words(error.to_string(), stderr_task, &tail).await))
            }
        }
    }

    /// Starts the program in a terminal of its own, whose inner side it gets as all three of its streams.
    pub async fn start_in(self, terminal: &Terminal) -> Result<GuardedProcess, SpawnError> {
        let inner = terminal.inner().map_err(|source| self.guard_failed(source.to_string()))?;
        let mut started = self.start_guard_process(Some(inner))?;
        match self.pid_of(&mut started).await {
            Ok(pid) => Ok(started.supervise(pid, None)),
            Err(StartFailure::Exec(error)) => Err(error),
            Err(StartFailure::Guard(error)) => Err(self.guard_failed(error.to_string())),
        }
    }

    /// Starts the guard. Dropping what comes back drops the control socket, on which the guard ends everything.
    fn start_guard_process(&self, terminal: Option<OwnedFd>) -> Result<StartedGuard, SpawnError> {
        let name = self.program.first().ok_or(SpawnError::ProgramMissing)?;
        check_working_directory(&self.cwd)?;
        let environment = self.environment.variables();
        let key = KeyOwner::current().map(|owner| owner.new_key());
        let cgroup = key.as_deref().filter(|_| self.config.use_cgroup).and_then(AgentCgroup::create);
        let start = || self.start_guard(&environment, key.as_deref(), cgroup.as_ref(), terminal);
        let pid_of = |(guard, _): &(Child, UnixStream)| i32::try_from(guard.id()?).ok();
        match guard_table::start(&self.session_id, start, pid_of) {
            Ok(((guard, control), entry)) => {
                let (read_half, control) = control.into_split();
                let path_variable = environment.get(OsStr::new("PATH")).cloned();
                Ok(StartedGuard {
                    guard,
                    entry,
                    reports: GuardReports::new(read_half),
                    control,
                    key,
                    cgroup,
                    path_variable,
                })
            }
            Err(source) => {
                discard(cgroup);
                Err(SpawnError::from_guard(name, self.guard.program.clone(), source))
            }
        }
    }

    /// The program's process id, once it runs.
    async fn pid_of(&self, started: &mut StartedGuard) -> Result<i32, StartFailure> {
        match self.first_report(&mut started.reports).await {
            Ok(GuardReport::Pid { pid }) => Ok(pid),
            Ok(GuardReport::Error { error, errno }) => {
                discard(started.cgroup.take());
                let place = ProgramLookup { cwd: &self.cwd, path_variable: started.path_variable.as_deref() };
                let name = self.program.first().map_or(OsStr::new(""), OsString::as_os_str);
                Err(StartFailure::Exec(SpawnError::from_exec(name, errno, error, &place)))
            }
            Ok(GuardReport::Exit { .. }) => Err(StartFailure::Guard(GuardError::ExitFirst)),
            Err(error) => {
                discard(started.cgroup.take());
                Err(StartFailure::Guard(error))
            }
        }
    }

    #[allow(unsafe_code)]
    fn start_guard(
        &self,
        environment: &BTreeMap<OsString, OsString>,
        key: Option<&str>,
        cgroup: Option<&AgentCgroup>,
        terminal: Option<OwnedFd>,
    ) -> io::Result<(Child, UnixStream)> {
        use std::os::fd::AsRawFd;
        // Both ends are close-on-exec: if any other child held ours, its end would never be seen.
        let (own_end, guard_end) = StdUnixStream::pair()?;
        own_end.set_nonblocking(true)?;
        let mut command = Command::new(&self.guard.program);
        command.args(&self.guard.args).arg("--control-fd").arg(guard_end.as_raw_fd().to_string());
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup.path());
        }
        if let Some(key) = key {
            command.arg("--key").arg(key);
        }
        if terminal.is_some() {
            command.arg("--terminal");
        }
        if self.privileges == Privileges::Fixed {
            command.arg("--no-new-privileges");
        }
        command.arg("--").args(&self.program);
        command.env_clear().envs(environment).current_dir(&self.cwd);
        match terminal {
            Some(inner) => {
                command.stdin(inner.try_clone()?).stdout(inner.try_clone()?).stderr(inner);
            }
            None => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            }
        }
        // SAFETY: the closure runs between fork and exec. It makes only raw system calls (setsid,
        // fcntl) on an fd it owns, and neither allocates nor locks.
        unsafe {
            command.pre_exec(move || {
                // A session of its own: no Ctrl-C of the runner's terminal, and no prompts on it.
                rustix::process::setsid()?;
                Ok(rustix::io::fcntl_setfd(&guard_end, rustix::io::FdFlags::empty())?)
            });
        }
        // The command owns the guard's end and is dropped here, so only the guard has it then. The same holds for
        // the inner side of a terminal: as long as we had it open, its end would never be seen.
        Ok((command.spawn()?, UnixStream::from_std(own_end)?))
    }

    /// What the guard says first, or why it says nothing.
    async fn first_report(&self, reports: &mut GuardReports) -> Result<GuardReport, GuardError> {
        match tokio::time::timeout(self.config.start_timeout, reports.next()).await {
            Ok(Ok(Some(report))) => Ok(report),
            Ok(Ok(None)) => Err(GuardError::Ended),
            Ok(Err(error)) => Err(GuardError::Unreadable(error)),
            Err(_) => Err(GuardError::TooLate),
        }
    }

    fn guard_failed(&self, reason: String) -> SpawnError {
        SpawnError::GuardFailed { guard: self.guard.program.clone(), reason }
    }
}

/// A guard that has been started and not reported yet.
struct StartedGuard {
    guard: Child,
    entry: Option<GuardEntry>,
    reports: GuardReports,
    control: OwnedWriteHalf,
    key: Option<String>,
    cgroup: Option<AgentCgroup>,
    path_variable: Option<OsString>,
}

/// Why there is no process.
enum StartFailure {
    Exec(SpawnError),
    Guard(GuardError),
}

/// Why the guard did not say that the program runs.
#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error("it ended without a report")]
    Ended,
    #[error("it reported an exit first")]
    ExitFirst,
    #[error("it did not report in time")]
    TooLate,
    #[error("{0}")]
    Unreadable(io::Error),
}

impl StartedGuard {
    /// The program runs: from here on its end is waited for.
    fn supervise(self, pid: i32, stderr: Option<JoinHandle<()>>) -> GuardedProcess {
        let StartedGuard { guard, entry, reports, control, key, cgroup, path_variable: _ } = self;
        let (exit_sender, exit) = watch::channel(None);
        let supervisor = GuardSupervisor { guard, entry, reports, stderr, exit: exit_sender, key, cgroup };
        tokio::spawn(supervisor.run());
        GuardedProcess { pid, stats: Mutex::new(StatsReader::new(pid)), exit, control }
    }
}

/// A cgroup that is still busy has a guard, which removes it.
fn discard(cgroup: Option<AgentCgroup>) {
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
}

/// Adds what a failed guard wrote to its stderr.
async fn with_last_words(reason: String, stderr_task: JoinHandle<()>, tail: &StderrTail) -> String {
    // At the limit the words so far will do.
    let _ = tokio::time::timeout(LAST_WORDS_WAIT, stderr_task).await;
    let lines = tail.lines();
    if lines.is_empty() { reason } else { format!("{reason}: {}", lines.join("\n")) }
}

/// Checked beforehand because exec reports a missing directory and a missing program alike.
fn check_working_directory(path: &Path) -> Result<(), SpawnError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(SpawnError::WorkingDirectoryUnusable {
            path: path.to_owned(),
            source: io::Error::from(io::ErrorKind::NotADirectory),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SpawnError::WorkingDirectoryNotFound { path: path.to_owned() })
        }
        Err(source) => Err(SpawnError::WorkingDirectoryUnusable { path: path.to_owned(), source }),
    }
}
