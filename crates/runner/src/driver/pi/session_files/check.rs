//! The session files a client may name. Opened by handle below an allowed directory, so that neither `..` nor a link
//! leads elsewhere. pi then opens by path, and afterwards the path is compared with the handle. That shows a file
//! that was exchanged for good; one that was put back in time is not noticed, because nobody can ask pi what it read.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use qd_core::harness::pi::session_header;
use qd_wire::CodedError;
use rustix::fs::OFlags;

use super::{find, read};

/// Why a session file must not be opened; the words are those of the pi-server document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionFileError {
    #[error("sessionPath contains potentially dangerous path components")]
    Dangerous,
    #[error("sessionPath must be an absolute path")]
    Relative,
    #[error("sessionPath must point to a .jsonl or .json session file")]
    WrongName,
    #[error(
        "sessionPath must be under an allowed session directory \
         (e.g. ~/.pi/agent/sessions/ or a project's .pi/sessions/)"
    )]
    Elsewhere,
    #[error("sessionPath must point to an existing session file")]
    Missing,
}

impl From<SessionFileError> for CodedError {
    fn from(error: SessionFileError) -> Self {
        CodedError::invalid(error.to_string())
    }
}

/// A session file that is open.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    path: PathBuf,
    cwd: String,
    /// Keeps the file's number from being given to another file.
    file: File,
}

impl CheckedFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the conversation took place.
    pub(crate) fn cwd(&self) -> &str {
        &self.cwd
    }

    /// All of it, if it is no longer than `bytes_max`.
    pub(crate) fn read_all(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = &self.file;
        // Its head was read when it was checked.
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    /// Whether the path leads to the file that was checked, and not by a link, at this moment; not what it led to
    /// when pi opened it.
    pub(crate) fn is_still_there(&self) -> bool {
        let same = |now: &Metadata, then: &Metadata| now.dev() == then.dev() && now.ino() == then.ino();
        match (std::fs::symlink_metadata(&self.path), std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(entry), Ok(now), Ok(then)) => same(&entry, &then) && same(&now, &then),
            _ => false,
        }
    }
}

/// Opens the session file at `path` if it lies below `<user_dir>/sessions` or some `.pi/sessions`.
pub(crate) fn check_below(user_dir: &Path, path: &str) -> Result<CheckedFile, SessionFileError> {
    let named = Path::new(path);
    let climbs = named.components().any(|component| component == Component::ParentDir);
    if climbs || path.contains('\0') || path.starts_with('~') {
        return Err(SessionFileError::Dangerous);
    }
    if !named.is_absolute() {
        return Err(SessionFileError::Relative);
    }
    if !find::has_session_name(named) {
        return Err(SessionFileError::WrongName);
    }
    let (root, below) = open_root(user_dir, named).ok_or(SessionFileError::Elsewhere)?.map_err(refusal)?;
    let file = open(&root, &below).map_err(refusal)?;
    let line = read::first_line(&file).map_err(refusal)?;
    let header = line.and_then(|line| session_header(&line)).ok_or(SessionFileError::Missing)?;
    Ok(CheckedFile { path: named.to_owned(), cwd: header.cwd, file })
}

/// The allowed directory the path is below, open, and the rest of the path.
fn open_root(user_dir: &Path, path: &Path) -> Option<io::Result<(Dir, PathBuf)>> {
    let own = user_dir.join("sessions");
    let real = own.canonicalize().unwrap_or_else(|_| own.clone());
    for root in [own, real] {
        if let Ok(below) = path.strip_prefix(&root)
            && below.components().next().is_some()
        {
            let opened = Dir::open_ambient_dir(&root, ambient_authority());
            return Some(opened.map(|root| (root, below.to_owned())));
        }
    }
    let (project, below) = split_at_project(path)?;
    // The project's directory is the person's own; from there on nothing may lead out.
    let opened = Dir::open_ambient_dir(&project, ambient_authority())
        .and_then(|project| project.open_dir(find::project_sessions(Path::new(""))));
    Some(opened.map(|root| (root, below)))
}

/// `/work/app/.pi/sessions/a/b.jsonl` as `/work/app` and `a/b.jsonl`.
fn split_at_project(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let components: Vec<Component<'_>> = path.components().collect();
    let at = components
        .windows(2)
        .position(|pair| matches!(pair, [pi, sessions] if pi.as_os_str() == ".pi" && sessions.as_os_str() == "sessions"))?;
    let below: PathBuf = components.get(at + 2..)?.iter().collect();
    let project = components.get(..at)?.iter().collect();
    (!below.as_os_str().is_empty()).then_some((project, below))
}

/// Opens a regular file that is no link.
fn open(root: &Dir, below: &Path) -> io::Result<File> {
    if !root.symlink_metadata(below)?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut options = OpenOptions::new();
    // Between the look and the opening it may have become a pipe or a link.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    options.read(true).custom_flags(flags.cast_signed());
    let file = root.open_with(below, &options)?.into_std();
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(file)
}

/// What is not there is missing; what a link leads out to is elsewhere, whatever it is.
fn refusal(error: io::Error) -> SessionFileError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => SessionFileError::Elsewhere,
        _ => SessionFileError::Missing,
    }
}
