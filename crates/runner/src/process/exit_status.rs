//! How an agent ended.

use std::fmt;

use crate::guard::report::ExitReport;

/// How an agent ended, in words by `Display`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The guard died first, so nobody saw how; the agent was killed.
    Unknown,
}

impl ExitStatus {
    /// Whether it exited with code 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl From<&ExitReport> for ExitStatus {
    fn from(exit: &ExitReport) -> Self {
        match (exit.code, exit.signal) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(formatter, "Process exited with code {code}"),
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(formatter, "Process was killed by signal {signal} ({name})"),
                None => write!(formatter, "Process was killed by signal {signal}"),
            },
            Self::Unknown => formatter.write_str("Process was killed after its guard had died"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    use rustix::process::Signal;
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
    ];
    named.into_iter().find(|(known, _)| known.as_raw() == signal).map(|(_, name)| name)
}
