//! Child processes and what /proc says of them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Outcome, failed};

/// /proc counts processor time in these, on every Linux we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a child may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The first line of every server we start, `qd up --ready-json` included.
#[derive(Serialize, Deserialize)]
struct Ready {
    url: String,
    token: String,
}

/// Says where a server of ours listens.
pub(crate) fn announce(address: SocketAddr) -> Outcome<()> {
    let ready = Ready { url: format!("http://{address}"), token: "token".to_owned() };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&ready)?)?;
    out.flush()?;
    Ok(())
}

/// A server in a process of its own; ended when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    pub(crate) token: String,
    /// Everything it writes lives there.
    _owned: Option<tempfile::TempDir>,
}

impl Server {
    /// One of the servers of this program.
    pub(crate) fn own(arguments: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Self::start(command, None)
    }

    /// The hub with a scripted runner.
    pub(crate) fn hub_alone() -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("hub-alone").arg(directory.path());
        Self::start(command, Some(directory))
    }

    /// `qd up` with an empty data directory, a home of its own, and the fake pi.
    pub(crate) fn qd(program: &Path) -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let command = Self::qd_command(program, directory.path())?;
        Self::start(command, Some(directory))
    }

    /// The same on a directory that stays.
    pub(crate) fn qd_in(program: &Path, directory: &Path) -> Outcome<Self> {
        Self::start(Self::qd_command(program, directory)?, None)
    }

    fn qd_command(program: &Path, directory: &Path) -> Outcome<Command> {
        let mut command = Command::new(program);
        command.args(["up", "--ready-json", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(directory.join("data"));
        let fake_pi = format!("'{}' fake-pi", std::env::current_exe()?.display());
        command.env("QD_PI_COMMAND", fake_pi).env("HOME", directory).env_remove("PI_CODING_AGENT_DIR");
        Ok(command)
    }

    /// The same with more settings and without the rate limits of the pi-server face.
    pub(crate) fn qd_with(program: &Path, settings: &[(&str, &str)]) -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = Self::qd_command(program, directory.path())?;
        command.env("QD_PI_RATE_PER_MINUTE", "0").env("QD_PI_GLOBAL_RATE_PER_MINUTE", "0");
        command.envs(settings.iter().copied());
        Self::start(command, Some(directory))
    }

    fn start(mut command: Command, owned: Option<tempfile::TempDir>) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Ok(ready) = serde_json::from_str::<Ready>(&line) else {
            // It may have ended already.
            let _ = child.kill();
            return failed(format!("a server did not start; its first line was: {line}"));
        };
        let address = ready.url.trim_start_matches("http://").to_owned();
        Ok(Server { child, address, token: ready.token, _owned: owned })
    }

    /// Processor seconds used so far, in user and kernel.
    pub(crate) fn cpu_seconds(&self) -> Outcome<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in brackets may hold spaces; the fields are counted after it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        Ok((ticks(11) + ticks(12)) / TICKS_PER_SECOND)
    }

    /// What it holds now.
    pub(crate) fn memory(&self) -> Outcome<Memory> {
        Memory::of(self.child.id())
    }

    /// Private bytes of everything it has started, and how many processes that is.
    pub(crate) fn descendants(&self) -> Outcome<(u64, usize)> {
        let mut open = vec![self.child.id()];
        let (mut bytes, mut count) = (0, 0);
        while let Some(pid) = open.pop() {
            // A process may end while we look.
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                    bytes += Memory::of(child).map_or(0, |memory| memory.private_bytes);
                    count += 1;
                    open.push(child);
                }
            }
        }
        Ok((bytes, count))
    }
}

/// The memory of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Anonymous and dirty pages: what the machine has less because the process runs.
    pub(crate) private_bytes: u64,
    /// Clean pages of files, which is code. The kernel shares them and takes them back when it needs the room.
    pub(crate) code_bytes: u64,
}

impl Memory {
    fn of(pid: u32) -> Outcome<Memory> {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let bytes = |name: &str| -> Outcome<u64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let Some(line) = line else { return failed(format!("smaps_rollup has no {name}")) };
            Ok(line.trim_end_matches("kB").trim().parse::<u64>()? * 1024)
        };
        // A page that was written is in both counts, one that was only touched in the first alone.
        let private_bytes = bytes("Anonymous")?.max(bytes("Private_Dirty")?);
        Ok(Memory { private_bytes, code_bytes: bytes("Rss")?.saturating_sub(private_bytes) })
    }

    pub(crate) fn private_megabytes(self) -> f64 {
        self.private_bytes as f64 / 1e6
    }

    /// A note for the table.
    pub(crate) fn code_note(self) -> String {
        format!("and {:.1} MB of code mapped", self.code_bytes as f64 / 1e6)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM lets qd end its agents; the tool is everywhere a shell is.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let steps = STOP_TIMEOUT.as_millis() / 10;
        for _ in 0..steps {
            if asked.is_err() || matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Both fail only when it is gone, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
