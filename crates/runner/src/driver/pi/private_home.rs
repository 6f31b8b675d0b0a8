//! pi's private directory: starts from the user's own, shares the credentials, changes nothing of the user's.
//!
//! Sessions must not change each other's settings or the user's, and yet all of them must use the same login. So each
//! has a directory of its own in which `auth.json` is a link.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Shared by link: a token refreshed in one session is seen by all, and by plain pi.
const CREDENTIALS: &str = "auth.json";

/// Read by pi and never written by a session, so a link is enough.
const LINKED: &[&str] =
    &["prompts", "skills", "themes", "bin", "AGENTS.md", "CLAUDE.md", "SYSTEM.md", "APPEND_SYSTEM.md"];

/// The directories of one session's pi.
pub(super) struct PrivateHome {
    pub(super) agent_dir: PathBuf,
    pub(super) temp_dir: PathBuf,
}

/// Makes (or refreshes) the private directory below `session_dir`.
pub(super) fn prepare(session_dir: &Path, user_dir: &Path) -> io::Result<PrivateHome> {
    let home = PrivateHome { agent_dir: session_dir.join("agent"), temp_dir: session_dir.join("tmp") };
    private_dir(&home.agent_dir)?;
    private_dir(&home.temp_dir)?;
    private_dir(user_dir)?;
    // Models are the user's to add at any time; settings belong to the session once it has them.
    copy_if_present(&user_dir.join("models.json"), &home.agent_dir.join("models.json"))?;
    let settings = home.agent_dir.join("settings.json");
    if !settings.exists() {
        copy_if_present(&user_dir.join("settings.json"), &settings)?;
    }
    link(&user_dir.join(CREDENTIALS), &home.agent_dir.join(CREDENTIALS))?;
    for name in LINKED {
        let source = user_dir.join(name);
        if source.exists() {
            link(&source, &home.agent_dir.join(name))?;
        }
    }
    Ok(home)
}

/// Where plain pi keeps the session files of a working directory.
pub fn session_directory(user_dir: &Path, cwd: &Path) -> PathBuf {
    let cwd = cwd.to_string_lossy();
    let flat = cwd.strip_prefix('/').unwrap_or(&cwd).replace(['/', '\\', ':'], "-");
    user_dir.join("sessions").join(format!("--{flat}--"))
}

fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn copy_if_present(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    match symlink(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_files_are_where_plain_pi_looks_for_them() {
        let directory = session_directory(Path::new("/u/.pi/agent"), Path::new("/home/dev/my:proj"));
        assert_eq!(directory, Path::new("/u/.pi/agent/sessions/--home-dev-my-proj--"));
    }

    #[test]
    fn a_session_starts_from_the_users_files_and_leaves_them_alone() {
        let root = tempfile::tempdir().unwrap();
        let user = root.path().join("user");
        fs::create_dir(&user).unwrap();
        fs::write(user.join("models.json"), "models").unwrap();
        fs::write(user.join("settings.json"), "settings").unwrap();
        fs::write(user.join("auth.json"), "old").unwrap();
        let home = prepare(&root.path().join("s1"), &user).unwrap();
        fs::write(home.agent_dir.join("settings.json"), "changed").unwrap();
        fs::write(home.agent_dir.join("auth.json"), "refreshed").unwrap();
        prepare(&root.path().join("s1"), &user).unwrap();
        assert_eq!(fs::read_to_string(user.join("settings.json")).unwrap(), "settings");
        assert_eq!(fs::read_to_string(home.agent_dir.join("settings.json")).unwrap(), "changed");
        assert_eq!(fs::read_to_string(user.join("auth.json")).unwrap(), "refreshed");
        assert_eq!(fs::read_to_string(home.agent_dir.join("models.json")).unwrap(), "models");
    }
}
