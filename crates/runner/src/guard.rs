//! The guard: a small blocking process between the runner and one agent.
//!
//! It is the child subreaper of everything the agent starts, so no descendant can leave its sight
//! by `setsid` or a double fork. When the agent ends, or the runner's end of the control socket
//! closes (which SIGKILL of the runner does too), every descendant is killed and reaped.
//! No async, no threads and no tokio may live here: one guard runs per agent and must stay small.

mod arguments;
pub(crate) mod cgroup;
mod child;
pub(crate) mod owner_key;
mod process_tree;
pub(crate) mod report;
mod signals;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use arguments::GuardArguments;
use cgroup::AgentCgroup;
use process_tree::ChildReaper;
use report::GuardReport;
use signals::SignalReceiver;

/// The longest command line the runner may send; a longer one is a broken runner.
const COMMAND_BYTES_MAX: usize = 64;
/// Exit code of the guard when its own arguments are wrong.
const EXIT_USAGE: u8 = 2;
/// Exit code of the guard when the agent could not be started, as shells use it.
const EXIT_NOT_STARTED: u8 = 127;

/// Runs `qd guard`; `args` are the arguments after the word `guard`.
///
/// Call this first in `main`, before any thread or runtime exists.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Without a control socket there is nobody but stderr to tell; if that is closed, the exit code is left.
    let usage_error = |error: String| {
        let _ = writeln!(io::stderr(), "qd guard: {error}");
        ExitCode::from(EXIT_USAGE)
    };
    let arguments = match GuardArguments::parse(args) {
        Ok(arguments) => arguments,
        Err(error) => return usage_error(error.to_string()),
    };
    arguments.close_inherited();
    let mut control = match arguments.take_control() {
        Ok(control) => control,
        Err(error) => return usage_error(format!("the control fd is not usable: {error}")),
    };
    match protect(&arguments).and_then(|()| Guard::start(&arguments, &mut control)) {
        Ok(guard) => guard.run(control),
        Err(error) => {
            let report = GuardReport::Error { error: error.to_string(), errno: error.raw_os_error() };
            report.send(&mut control);
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

struct Guard {
    signals: SignalReceiver,
    reaper: ChildReaper,
    child: Pid,
    cgroup: Option<AgentCgroup>,
    command: Vec<u8>,
}

impl Guard {
    fn start(arguments: &GuardArguments, control: &mut UnixStream) -> io::Result<Self> {
        detach_from_terminal();
        let signals = SignalReceiver::install()?;
        process_tree::become_reaper()?;
        let cgroup = arguments.cgroup.as_deref().map(AgentCgroup::existing);
        let child = match child::spawn(arguments, cgroup.as_ref()) {
            Ok(child) => child,
            Err(error) => {
                if let Some(cgroup) = cgroup {
                    cgroup.remove();
                }
                return Err(error);
            }
        };
        let guard = Self { signals, reaper: ChildReaper::new(child), child, cgroup, command: Vec::new() };
        child::release_standard_streams();
        // A runner that is already gone shows as end of file in the first poll.
        GuardReport::Pid { pid: child.as_raw_nonzero().get() }.send(control);
        Ok(guard)
    }

    fn run(mut self, mut control: UnixStream) -> ExitCode {
        loop {
            if self.signals.terminate_requested() || self.reaper.reap().agent_ended() {
                break;
            }
            let mut ready = [PollFd::new(&control, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            let control_ready = !ready[0].revents().is_empty();
            self.signals.drain();
            if control_ready && self.read_orders(&mut control) == ControlVerdict::KillEverything {
                break;
            }
        }
        self.finish(control)
    }

    /// Reads what the runner sent and obeys it.
    fn read_orders(&mut self, control: &mut UnixStream) -> ControlVerdict {
        let mut buffer = [0_u8; COMMAND_BYTES_MAX];
        let length = match control.read(&mut buffer) {
            Ok(0) => return ControlVerdict::KillEverything,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return ControlVerdict::Continue,
            Err(_) => return ControlVerdict::KillEverything,
        };
        for &byte in &buffer[..length] {
            if byte != b'\n' {
                self.command.push(byte);
                if self.command.len() > COMMAND_BYTES_MAX {
                    return ControlVerdict::KillEverything;
                }
                continue;
            }
            let signal = match std::mem::take(&mut self.command).as_slice() {
                b"kill" => return ControlVerdict::KillEverything,
                b"term" => Signal::TERM,
                b"int" => Signal::INT,
                b"hup" => Signal::HUP,
                // A newer runner may know more commands; the end of file still kills.
                _ => continue,
            };
            if !self.reaper.has_agent_ended() {
                // The only likely failure is that the group is gone already, which is the wish.
                let _ = kill_process_group(self.child, signal);
            }
        }
        ControlVerdict::Continue
    }

    fn finish(mut self, mut control: UnixStream) -> ExitCode {
        let left = process_tree::kill_everything(&mut self.reaper, self.cgroup.as_ref(), &self.signals);
        let everything_gone = left.is_empty();
        if everything_gone && let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
        self.reaper.exit_report(left).send(&mut control);
        drop(control);
        if !everything_gone {
            // A process in uninterruptible sleep dies when the kernel lets it; nobody else would
            // reap or recognise it, so the guard stays for as long as it takes.
            process_tree::linger(&mut self.reaper, self.cgroup.as_ref(), &self.signals);
            if let Some(cgroup) = self.cgroup.take() {
                cgroup.remove();
            }
        }
        ExitCode::SUCCESS
    }
}

#[derive(PartialEq, Eq)]
enum ControlVerdict {
    Continue,
    KillEverything,
}

/// Closes the guard to what it watches over, and takes from it what it must not have. An agent that could stop its guard
/// in a debugger would get away from it.
#[cfg(target_os = "linux")]
fn protect(arguments: &GuardArguments) -> io::Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    if arguments.no_new_privileges {
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}

/// Elsewhere there is neither.
#[cfg(not(target_os = "linux"))]
fn protect(_arguments: &GuardArguments) -> io::Result<()> {
    Ok(())
}

/// Ctrl-C in the runner's terminal must reach the runner, not the guard, and no agent may prompt
/// on that terminal. The runner does this before exec; here it is repeated for other callers.
fn detach_from_terminal() {
    if rustix::process::getpgrp() != rustix::process::getpid() {
        // Only a group leader is refused, and the guard is none here.
        let _ = rustix::process::setsid();
    }
}
