//! Where the repository is, and which files are in it.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, output_of};

/// The root of the repository: the parent of this crate.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Files that are committed or about to be: what git tracks, and what it does not ignore.
pub(crate) fn files() -> Result<Vec<PathBuf>, Failure> {
    let listing = output_of("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files: Vec<PathBuf> =
        listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.sort();
    files.dedup();
    // A tracked file that was deleted but not yet committed is still listed.
    files.retain(|file| root().join(file).is_file());
    Ok(files)
}
