//! Finds session files below directories. Links are not followed: what they lead to is elsewhere.
//!
//! Directories of users can hold anything, so depth and number are bounded, and what cannot be read is passed over.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Levels below a session directory; pi uses one.
const DEPTH_MAX: usize = 4;

/// Directories looked into in one listing.
const DIRECTORIES_MAX: usize = 10_000;

/// Files told in one listing.
const FILES_MAX: usize = 20_000;

/// A file that may be a session's.
pub(super) struct FoundSessionFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Nanoseconds since 1970.
    pub(super) modified: i128,
}

impl FoundSessionFile {
    /// Unix milliseconds.
    pub(super) fn modified_ms(&self) -> i64 {
        i64::try_from(self.modified / 1_000_000).unwrap_or(0)
    }
}

/// Where the sessions of a project may be kept beside it.
pub(super) fn project_sessions(project: &Path) -> PathBuf {
    project.join(".pi").join("sessions")
}

/// Whether a file is called like a session file.
pub(super) fn has_session_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json")
}

/// Session files below these directories, each once.
pub(super) fn session_files(directories: &[PathBuf]) -> Vec<FoundSessionFile> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    let mut todo: Vec<(PathBuf, usize)> = directories.iter().rev().map(|path| (path.clone(), 0)).collect();
    while let Some((directory, depth)) = todo.pop() {
        // One that is missing or not ours to read has nothing to tell.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let Ok(metadata) = fs::metadata(&directory) else { continue };
        if seen.len() >= DIRECTORIES_MAX || !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        for entry in entries.flatten() {
            // The entry's own, not that of what a link leads to.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            if metadata.is_dir() && depth < DEPTH_MAX {
                todo.push((path, depth + 1));
            } else if metadata.is_file() && has_session_name(&path) && files.len() < FILES_MAX {
                let modified =
                    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
                files.push(FoundSessionFile { path, bytes: metadata.len(), modified });
            }
        }
    }
    files
}
