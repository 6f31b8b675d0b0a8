//! Why an agent could not be started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use qd_wire::{CodedError, ErrorCode};
use rustix::io::Errno;

/// Why an agent could not be started, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("no program given; name the agent's program in the harness configuration")]
    ProgramMissing,
    #[error("{} was not found; install it, or give its full path in the harness configuration", .program.display())]
    ProgramNotFound { program: OsString },
    #[error("{} exists, but the interpreter in its first line does not; install that", .program.display())]
    InterpreterNotFound { program: OsString },
    #[error("{} is not an executable program; check its permissions (`chmod +x`) and its architecture", .program.display())]
    NotExecutable { program: OsString },
    #[error("the arguments and environment for {} are larger than the system allows; make them shorter", .program.display())]
    ArgumentsTooLong { program: OsString },
    #[error("the working directory {} does not exist; create it or choose another", .path.display())]
    WorkingDirectoryNotFound { path: PathBuf },
    #[error("the working directory {} is not usable: {source}; choose another", .path.display())]
    WorkingDirectoryUnusable { path: PathBuf, source: io::Error },
    #[error("{} could not be started: {message}", .program.display())]
    NotStarted { program: OsString, message: String },
    #[error("the guard {} could not be started: {source}; check the installation of qd", .guard.display())]
    GuardNotStarted { guard: PathBuf, source: io::Error },
    #[error("the guard {} ended or failed before it started the agent ({reason}); check the installation of qd", .guard.display())]
    GuardFailed { guard: PathBuf, reason: String },
}

impl From<SpawnError> for CodedError {
    fn from(error: SpawnError) -> Self {
        ErrorCode::AgentGone.with(error.to_string())
    }
}

impl SpawnError {
    /// The guard is given the agent's arguments, so it meets their size limit first.
    pub(super) fn from_guard(program: &OsStr, guard: PathBuf, source: io::Error) -> Self {
        if Errno::from_io_error(&source) == Some(Errno::TOOBIG) {
            return Self::ArgumentsTooLong { program: program.to_owned() };
        }
        Self::GuardNotStarted { guard, source }
    }

    /// Makes a typed error of what the guard reported about exec.
    pub(super) fn from_exec(
        program: &OsStr,
        errno: Option<i32>,
        message: String,
        place: &ProgramLookup<'_>,
    ) -> Self {
        let name = program.to_owned();
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) if place.exists(program) => Self::InterpreterNotFound { program: name },
            Some(Errno::NOENT) => Self::ProgramNotFound { program: name },
            Some(Errno::ACCESS | Errno::NOEXEC | Errno::ISDIR) => Self::NotExecutable { program: name },
            Some(Errno::TOOBIG) => Self::ArgumentsTooLong { program: name },
            _ => Self::NotStarted { program: name, message },
        }
    }
}

/// Where a program name is looked up.
pub(super) struct ProgramLookup<'a> {
    pub(super) cwd: &'a Path,
    pub(super) path_variable: Option<&'a OsStr>,
}

impl ProgramLookup<'_> {
    fn exists(&self, program: &OsStr) -> bool {
        let program = Path::new(program);
        if program.components().count() > 1 || program.is_absolute() {
            return self.cwd.join(program).exists();
        }
        let Some(path_variable) = self.path_variable else { return false };
        std::env::split_paths(path_variable).any(|folder| self.cwd.join(folder).join(program).exists())
    }
}
