//! The arguments of `qd guard`, parsed by hand so that the guard needs no parser library.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// `--control-fd N [--cgroup PATH] [--key KEY] [--terminal] [--no-new-privileges] -- PROGRAM ARGS…`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuardArguments {
    control_fd: RawFd,
    pub(super) cgroup: Option<PathBuf>,
    /// Marks the agent's environment.
    pub(super) key: Option<OsString>,
    /// The standard streams are a terminal that is to be the program's own.
    pub(super) has_terminal: bool,
    /// Nothing below the guard gets rights that it does not have.
    pub(super) no_new_privileges: bool,
    pub(super) program: Vec<OsString>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArgumentError {
    #[error("`--control-fd N` is missing; this command is started by the runner, not by hand")]
    ControlFdMissing,
    #[error("`--control-fd` needs a number above 2, got {0:?}")]
    ControlFdInvalid(OsString),
    #[error("`--cgroup` needs a path")]
    CgroupPathMissing,
    #[error("`--key` needs a value")]
    KeyMissing,
    #[error("unknown argument {0:?}; put the program after `--`")]
    Unknown(OsString),
    #[error("no program given after `--`")]
    ProgramMissing,
}

impl GuardArguments {
    pub(super) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, ArgumentError> {
        let mut control_fd = None;
        let mut cgroup = None;
        let mut key = None;
        let mut has_terminal = false;
        let mut no_new_privileges = false;
        while let Some(argument) = args.next() {
            match argument.to_str() {
                Some("--control-fd") => {
                    let value = args.next().ok_or(ArgumentError::ControlFdMissing)?;
                    let number = value.to_str().and_then(|text| text.parse::<RawFd>().ok());
                    match number.filter(|number| *number > 2) {
                        Some(number) => control_fd = Some(number),
                        None => return Err(ArgumentError::ControlFdInvalid(value)),
                    }
                }
                Some("--cgroup") => {
                    cgroup = Some(PathBuf::from(args.next().ok_or(ArgumentError::CgroupPathMissing)?));
                }
                Some("--key") => key = Some(args.next().ok_or(ArgumentError::KeyMissing)?),
                Some("--terminal") => has_terminal = true,
                Some("--no-new-privileges") => no_new_privileges = true,
                Some("--") => break,
                _ => return Err(ArgumentError::Unknown(argument)),
            }
        }
        let program: Vec<OsString> = args.collect();
        if program.is_empty() {
            return Err(ArgumentError::ProgramMissing);
        }
        let control_fd = control_fd.ok_or(ArgumentError::ControlFdMissing)?;
        Ok(Self { control_fd, cgroup, key, has_terminal, no_new_privileges, program })
    }

    /// Takes the control socket and hides it from every program started later.
    #[allow(unsafe_code)]
    pub(super) fn take_control(&self) -> io::Result<UnixStream> {
        // SAFETY: `borrow_raw` needs an fd that stays open for the call. It is only used to ask the
        // kernel whether the number is open at all, and nothing closes it meanwhile: one thread.
        let probe = unsafe { BorrowedFd::borrow_raw(self.control_fd) };
        rustix::io::fcntl_setfd(probe, rustix::io::FdFlags::CLOEXEC)?;
        // SAFETY: the fd is open (just checked), was handed to this process for this use only, and
        // `main` calls this once, so nobody else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(self.control_fd) };
        Ok(UnixStream::from(owned))
    }

    /// Closes what the runner's own parent had left open: it is nobody's business here, and must
    /// not reach the agent.
    #[allow(unsafe_code)]
    pub(super) fn close_inherited(&self) {
        let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
        let numbers: Vec<RawFd> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for number in numbers.into_iter().filter(|number| *number > 2 && *number != self.control_fd) {
            // SAFETY: `main` calls this before it opens anything, so no value in this process owns
            // any of these, and nothing opens or closes one meanwhile: one thread.
            unsafe {
                let is_open = rustix::io::fcntl_getfd(BorrowedFd::borrow_raw(number)).is_ok();
                // The fd of the listing itself is among the numbers, and is gone by now.
                if is_open {
                    rustix::io::close(number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<GuardArguments, ArgumentError> {
        GuardArguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments() {
        let good = parse("--control-fd 7 --cgroup /c --key k -- sh -c x").unwrap();
        assert_eq!(good.control_fd, 7);
        assert_eq!(good.cgroup, Some(PathBuf::from("/c")));
        assert_eq!(good.key, Some("k".into()));
        assert!(!good.has_terminal && !good.no_new_privileges);
        assert!(parse("--control-fd 7 --no-new-privileges -- sh").unwrap().no_new_privileges);
        assert!(parse("--control-fd 7 --terminal -- sh").unwrap().has_terminal);
        assert_eq!(good.program, ["sh", "-c", "x"]);

        for (line, expected) in [
            ("-- sh", ArgumentError::ControlFdMissing),
            ("--control-fd", ArgumentError::ControlFdMissing),
            ("--control-fd 1 -- sh", ArgumentError::ControlFdInvalid("1".into())),
            ("--control-fd x -- sh", ArgumentError::ControlFdInvalid("x".into())),
            ("--control-fd 3 --cgroup", ArgumentError::CgroupPathMissing),
            ("--control-fd 3 --key", ArgumentError::KeyMissing),
            ("--control-fd 3 sh", ArgumentError::Unknown("sh".into())),
            ("--control-fd 3 --", ArgumentError::ProgramMissing),
        ] {
            assert_eq!(parse(line), Err(expected), "{line}");
        }
    }
}
