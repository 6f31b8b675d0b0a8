//! What git, and people who search, want left out: `.gitignore`, `.ignore` and git's own list of a repository. Only those
//! beneath the root count, opened by handle like everything else.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::services::root::{open_dir_in, open_file_in};

/// Bytes of a list that are read; people write them by hand.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The lists of the directories from the root down to where the walk is.
#[derive(Default)]
pub(super) struct IgnoreLists {
    /// The directory from the root, and what it says; only those that say something.
    lists: Vec<(PathBuf, Gitignore)>,
}

impl IgnoreLists {
    /// How many there are, to come back to with [`IgnoreLists::leave`].
    pub(super) fn len(&self) -> usize {
        self.lists.len()
    }

    /// Adds what a directory says.
    pub(super) fn enter(&mut self, path: &Path, dir: &Dir) {
        let exclude = open_dir_in(dir, OsStr::new(".git"))
            .and_then(|git| open_dir_in(&git, OsStr::new("info")))
            .ok()
            .and_then(|info| read(&info, "exclude"));
        // The later ones win: what is written for searching over what is written for git.
        for text in [exclude, read(dir, ".gitignore"), read(dir, ".ignore")].into_iter().flatten() {
            let mut builder = GitignoreBuilder::new("");
            for line in text.lines() {
                // A line that makes no sense is no rule, as for git.
                let _ = builder.add_line(None, line);
            }
            if let Ok(list) = builder.build()
                && !list.is_empty()
            {
                self.lists.push((path.to_owned(), list));
            }
        }
    }

    pub(super) fn leave(&mut self, before: usize) {
        self.lists.truncate(before);
    }

    /// Whether the nearest list that says something about the path says to leave it out.
    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        for (directory, list) in self.lists.iter().rev() {
            let Ok(below) = path.strip_prefix(directory) else { continue };
            let found = list.matched(below, is_dir);
            if !found.is_none() {
                return found.is_ignore();
            }
        }
        false
    }
}

/// The text of a list, if there is one; a pipe or a link is none.
fn read(dir: &Dir, name: &str) -> Option<String> {
    let file = open_file_in(dir, OsStr::new(name)).ok()?;
    let mut bytes = Vec::new();
    file.take(LIST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
