//! What is checked out in a directory, read from git's own files: no program is started for it.

use std::io::Read;
use std::path::{Path, PathBuf};

/// As much as these files can sensibly hold.
const FILE_BYTES_MAX: u64 = 4096;

/// The longest name that is told.
const BRANCH_CHARACTERS_MAX: usize = 256;

/// As much of a commit's id as people read.
const COMMIT_CHARACTERS: usize = 7;

/// The branch that is checked out where a directory is, or the beginning of the commit's id where that is none. `None`
/// outside of repositories. A few short reads, so it is done where it is asked.
pub(crate) fn of_directory(directory: &Path) -> Option<String> {
    let head = directory.ancestors().find_map(git_directory)?.join("HEAD");
    let text = read(&head)?;
    let name = match text.strip_prefix("ref:") {
        Some(reference) => {
            let reference = reference.trim();
            reference.strip_prefix("refs/heads/").unwrap_or(reference).to_owned()
        }
        None => text.trim().chars().take(COMMIT_CHARACTERS).collect(),
    };
    let name: String =
        name.chars().filter(|character| !character.is_control()).take(BRANCH_CHARACTERS_MAX).collect();
    (!name.is_empty()).then_some(name)
}

/// Git's own directory of a repository or worktree whose files begin here.
fn git_directory(top: &Path) -> Option<PathBuf> {
    let path = top.join(".git");
    let found = std::fs::metadata(&path).ok()?;
    if found.is_dir() {
        return path.join("HEAD").is_file().then_some(path);
    }
    // A worktree or a submodule has a file that says where.
    let text = read(&path)?;
    let named = text.strip_prefix("gitdir:")?.trim();
    Some(top.join(named))
}

fn read(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok().filter(|_| path.is_file())?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_commits_and_worktrees_are_read() {
        let place = tempfile::tempdir().unwrap();
        let (top, below) = (place.path().join("app"), place.path().join("app/src/deep"));
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(of_directory(&below), None);
        std::fs::create_dir_all(top.join(".git/worktrees/w")).unwrap();
        assert_eq!(of_directory(&top), None, "no repository yet");
        std::fs::write(top.join(".git/HEAD"), "ref: refs/heads/feature/x\n").unwrap();
        assert_eq!(of_directory(&below).as_deref(), Some("feature/x"));
        std::fs::write(top.join(".git/HEAD"), "0123456789abcdef0123456789abcdef01234567\n").unwrap();
        assert_eq!(of_directory(&top).as_deref(), Some("0123456"));

        let worktree = place.path().join("w");
        std::fs::create_dir_all(&worktree).unwrap();
        std::fs::write(top.join(".git/worktrees/w/HEAD"), "ref: refs/heads/qd/one\n").unwrap();
        std::fs::write(worktree.join(".git"), "gitdir: ../app/.git/worktrees/w\n").unwrap();
        assert_eq!(of_directory(&worktree).as_deref(), Some("qd/one"));
    }
}
