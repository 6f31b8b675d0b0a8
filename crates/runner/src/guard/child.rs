//! Starts the agent below the guard.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;

use super::arguments::GuardArguments;
use super::cgroup::AgentCgroup;
use super::owner_key::KEY_VARIABLE;

/// Spawns the program with the guard's own standard streams; returns after a successful exec.
#[allow(unsafe_code)]
pub(super) fn spawn(arguments: &GuardArguments, cgroup: Option<&AgentCgroup>) -> io::Result<Pid> {
    let (name, args) =
        arguments.program.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut command = Command::new(name);
    command.args(args);
    let has_terminal = arguments.has_terminal;
    if !has_terminal {
        command.process_group(0);
    }
    if let Some(key) = &arguments.key {
        command.env(KEY_VARIABLE, key);
    }
    let guard = rustix::process::getpid();
    let membership = cgroup.and_then(AgentCgroup::open_membership);
    // SAFETY: the closure runs between fork and exec. It makes only raw system calls (prctl,
    // getppid, write, setsid, ioctl) and neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            prepare(guard, membership.as_ref())?;
            if has_terminal { own_terminal() } else { Ok(()) }
        });
    }
    let child = command.spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the kernel gave an impossible process id"))
}

/// Runs in the forked child before exec.
fn prepare(guard: Pid, membership: Option<&File>) -> io::Result<()> {
    die_with(guard)?;
    if let Some(membership) = membership {
        // Not being allowed into the cgroup is no reason to fail: the subreaper works without it.
        let _ = rustix::io::write(membership, b"0\n");
    }
    Ok(())
}

/// Leads a session of its own with the terminal of its streams: its group is the one in front, and Ctrl-C, window
/// sizes and the terminal's end reach it.
fn own_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
}

#[cfg(target_os = "linux")]
fn die_with(guard: Pid) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A guard that died before the line above sends no signal any more.
    if getppid() != Some(guard) {
        return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn die_with(_guard: Pid) -> io::Result<()> {
    Ok(())
}

/// Lets go of what belongs to the agent: its pipes, so that their ends are seen when it closes
/// them, and its working directory, so that it can be unmounted.
pub(super) fn release_standard_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // A failure would only delay an end of file until the guard itself exits.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    // The same holds here: the old directory would stay busy for as long as the agent runs.
    let _ = rustix::process::chdir("/");
}
