//! Programs in PATH, and our own stand-ins for them (`qd shims install`), which are never the program that is meant.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What our own stand-ins for agents' programs have in their first lines.
pub const SHIM_MARKER: &str = "quarterdeck-shim";

/// A stand-in says what it is within its first bytes.
const SHIM_BYTES_MAX: u64 = 2048;

/// The first program of this name that is not one of our own stand-ins.
pub fn find_program(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let paths = folders.into_iter().map(|folder| folder.join(name));
    paths.filter(|path| is_program(path)).find(|path| !is_shim(path))
}

/// Whether a file is one of our own stand-ins.
pub fn is_shim(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut beginning = Vec::new();
    let read = file.take(SHIM_BYTES_MAX).read_to_end(&mut beginning);
    read.is_ok() && memchr::memmem::find(&beginning, SHIM_MARKER.as_bytes()).is_some()
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
