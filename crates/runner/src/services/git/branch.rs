//! What is checked out in a directory, read from git's own files: no program is started for it.

use std::path::Path;

use super::repository::Repository;
use super::repository::references::{Reference, head_in};

/// The longest name that is told.
const BRANCH_CHARACTERS_MAX: usize = 256;

/// As much of a commit's id as people read.
const COMMIT_CHARACTERS: usize = 7;

/// The branch that is checked out where a directory is, or the beginning of the commit's id where that is none. `None`
/// outside of repositories, and for those that git would not be started on. A few short reads, so it is done where it
/// is asked.
pub(crate) fn of_directory(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let repository = Repository::find(&directory).ok().flatten()?;
    let name = match head_in(&repository.own.dir).ok().flatten()? {
        Reference::Symbolic(name) => {
            let name = String::from_utf8_lossy(&name).into_owned();
            name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned()
        }
        Reference::Object(id) => id.chars().take(COMMIT_CHARACTERS).collect(),
    };
    let name: String =
        name.chars().filter(|character| !character.is_control()).take(BRANCH_CHARACTERS_MAX).collect();
    (!name.is_empty()).then_some(name)
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
        let own = top.join(".git/worktrees/w");
        std::fs::write(own.join("HEAD"), "ref: refs/heads/qd/one\n").unwrap();
        std::fs::write(own.join("commondir"), "../..\n").unwrap();
        std::fs::write(worktree.join(".git"), "gitdir: ../app/.git/worktrees/w\n").unwrap();
        assert_eq!(of_directory(&worktree), None, "the repository does not know it");
        std::fs::write(own.join("gitdir"), worktree.join(".git").to_str().unwrap()).unwrap();
        assert_eq!(of_directory(&worktree).as_deref(), Some("qd/one"));
    }

    #[test]
    fn secrets_are_no_branches() {
        let place = tempfile::tempdir().unwrap();
        let (top, secret) = (place.path().join("app"), place.path().join("secret"));
        std::fs::create_dir_all(top.join(".git")).unwrap();
        std::fs::write(&secret, "ref: refs/heads/hunter2\n").unwrap();
        std::os::unix::fs::symlink(&secret, top.join(".git/HEAD")).unwrap();
        assert_eq!(of_directory(&top), None);
        std::fs::remove_file(top.join(".git/HEAD")).unwrap();
        std::fs::write(top.join(".git/HEAD"), "hunter2\n").unwrap();
        assert_eq!(of_directory(&top), None);
    }
}
