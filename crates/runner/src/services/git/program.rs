//! How git is started: without a shell, in a git directory of ours and with an environment of ours, its output read as
//! it comes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use qd_wire::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::GitDirectory;
use super::private_dir::PrivateGit;
use super::repository::config::{RepositoryConfig, add_value, can_be_written};
use super::repository::objects::{self, AllowedPlaces};
use super::repository::{Repository, not_read};
use super::sandbox::{self, GitPlaces};
use crate::services::call::{Cancellation, ServiceError, ServiceResult};

/// What git says at once where the answer is no page of something longer; a list of a million files fits.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// What is kept of git's complaints.
const COMPLAINT_BYTES_MAX: usize = 8 * 1024;

/// Read at once.
const READ_BYTES: usize = 64 * 1024;

/// A second door behind the private configuration, which has none of this either.
const SAFE: [&str; 15] = [
    "core.quotepath=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "core.pager=cat",
    "log.showSignature=false",
    // Names are told as they are; the file of other names is not opened.
    "log.mailmap=false",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
    // Or git would run itself in submodules, with their configuration.
    "diff.ignoreSubmodules=dirty",
    "diff.submodule=short",
    "status.submoduleSummary=false",
    // One reader goes through the index in its order, as our check did.
    "index.threads=1",
    "advice.addEmbeddedRepo=false",
];

/// Variables that git gets from the runner: where programs and the settings of its user are.
const PASSED_ON: [&str; 6] = ["HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "DEVELOPER_DIR"];

/// Those that say where the user's own settings are, for reading them alone.
const SETTINGS_VARIABLES: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// The user's own settings that git gets: what is ignored everywhere, and how lines end.
const USER_SETTINGS: &str = r"^(core\.(excludesfile|autocrlf|eol)|safe\.directory)$";

/// The user's own patterns, in the directory for configuration.
const USER_FILES: [&str; 3] = ["git", "git/ignore", "git/attributes"];

/// Git in a directory.
pub(super) struct Git {
    root: PathBuf,
    cancel: Cancellation,
    pub(super) repository: Repository,
    pub(super) config: RepositoryConfig,
    pub(super) private: PrivateGit,
    /// What it does not look at, from the root.
    excluded: Option<String>,
    /// Where it may read and write, if the kernel can hold it there.
    places: GitPlaces,
}

/// Where git works besides the usual.
#[derive(Default)]
pub(super) struct GitContext<'a> {
    /// Another git directory, worktree and index.
    pub(super) git_dir: Option<&'a Path>,
    pub(super) worktree: Option<&'a Path>,
    pub(super) index: Option<&'a Path>,
    /// Where it writes besides its own git directory.
    pub(super) writes_in: Vec<PathBuf>,
}

/// What one start of git came to.
pub(super) struct GitOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) code: i32,
    pub(super) complaint: String,
}

impl GitOutput {
    /// An error unless git succeeded.
    pub(super) fn check(self) -> ServiceResult<Vec<u8>> {
        if self.code == 0 {
            return Ok(self.stdout);
        }
        Err(failure(&self.complaint, self.code))
    }
}

/// What git says of a failure is not passed on: it quotes lines of files that it did not understand, and those could
/// be anybody's.
pub(super) fn failure(complaint: &str, code: i32) -> ServiceError {
    tracing::debug!(complaint, code, "git failed");
    let has = |text: &str| complaint.contains(text);
    let reason = if has("No space left") || has("Disk quota") {
        "the disk is full"
    } else if has("Permission denied") {
        "a file or directory may not be opened or written"
    } else if has("promisor") || has("unable to read") || has("bad object") || has("missing") {
        "objects are missing; in a partial or interrupted clone run `git fetch` first"
    } else {
        "run the same in a terminal to see why"
    };
    ServiceError::coded(ErrorCode::Failed, format!("git failed (exit code {code}): {reason}"))
}

/// Says that a directory is in no repository.
pub(super) fn no_repository(root: &Path) -> ServiceError {
    let root = root.display();
    ServiceError::coded(
        ErrorCode::Failed,
        format!("not a git repository: '{root}' and the directories above it"),
    )
}

impl Git {
    /// Finds and checks the repository of a directory, and makes the git directory that git is to work with.
    pub(super) async fn open(directory: &GitDirectory<'_>, cancel: &Cancellation) -> ServiceResult<Git> {
        let (root, own_data) = (directory.root.to_owned(), directory.own_data.clone());
        let (workspace_roots, cancel) = (directory.workspace_roots.to_vec(), cancel.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let directory = GitDirectory { root: &root, workspace_roots: &workspace_roots, own_data };
            Git::open_blocking(&directory, cancel)
        });
        opened.await?
    }

    fn open_blocking(directory: &GitDirectory<'_>, cancel: Cancellation) -> ServiceResult<Git> {
        let root = directory.root.canonicalize()?;
        let excluded = directory.own_data.below(&root).map(|path| path.to_string_lossy().into_owned());
        let repository = Repository::find(&root)?.ok_or_else(|| no_repository(&root))?;
        repository.check_own_data(&directory.own_data)?;
        let user = UserSettings::read();
        if !repository.is_of_this_user()? && !user.trusts(&repository.top) {
            return Err(not_read(
                "it belongs to another user of this machine. If you trust it, run \
                 `git config --global --add safe.directory DIRECTORY` on the runner",
            ));
        }
        repository.check_top_files()?;
        let mut directories = vec![root.clone(), repository.top.clone(), repository.common.path.clone()];
        directories.extend(directory.workspace_roots.iter().filter_map(|path| path.canonicalize().ok()));
        let allowed = AllowedPlaces { directories, own_data: &directory.own_data };
        let mut read = objects::check(&repository.common, &allowed)?;
        let config = repository.config()?;
        let private = PrivateGit::of(&repository, &config, &user.text)?;
        read.extend([&repository.top, &repository.common.path, &repository.own.path].map(Clone::clone));
        read.extend(user.files);
        let places = GitPlaces { read, write: vec![private.path().to_owned()] };
        sandbox::prepare();
        Ok(Git { root, cancel, repository, config, private, excluded, places })
    }

    /// The path for git, by its letters, without what it does not look at.
    pub(super) fn pathspecs(&self, path: &str) -> Vec<String> {
        let excluded = self.excluded.iter().map(|excluded| format!(":(exclude,literal){excluded}"));
        std::iter::once(format!(":(literal){path}")).chain(excluded).collect()
    }

    pub(super) fn cancel(&self) -> &Cancellation {
        &self.cancel
    }

    /// Runs git on the repository's own references, which it changes.
    pub(super) async fn change_references(&self, arguments: &[&str]) -> ServiceResult<GitOutput> {
        if self.config.is_reftable {
            refuse!(
                Unsupported,
                "Quarterdeck does not change repositories with reftable yet; use a terminal"
            );
        }
        let private = self.private.for_references(&self.repository)?;
        let writes_in = vec![private.path().to_owned(), self.repository.common.path.clone()];
        let context = GitContext { git_dir: Some(private.path()), writes_in, ..GitContext::default() };
        self.output(arguments, &context).await
    }

    /// Runs git to its end; all it says is kept.
    pub(super) async fn output(
        &self,
        arguments: &[&str],
        context: &GitContext<'_>,
    ) -> ServiceResult<GitOutput> {
        let mut stdout = Vec::new();
        let mut is_too_much = false;
        let (code, complaint) = self
            .stream(arguments, context, |piece| {
                is_too_much |= stdout.len() + piece.len() > OUTPUT_BYTES_MAX;
                if !is_too_much {
                    stdout.extend_from_slice(piece);
                }
                !is_too_much
            })
            .await?;
        if is_too_much {
            return Err(ServiceError::coded(
                ErrorCode::TooLarge,
                format!("git says more than {} MiB; name a path to ask about less", OUTPUT_BYTES_MAX >> 20),
            ));
        }
        Ok(GitOutput { stdout, code, complaint })
    }

    /// Runs git and gives its output piece by piece to `take`, until that says that it has enough.
    pub(super) async fn stream(
        &self,
        arguments: &[&str],
        context: &GitContext<'_>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> ServiceResult<(i32, String)> {
        let mut child = self.start(arguments, context)?;
        let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            refuse!(Internal, "git has no output; this is a fault of the runner");
        };
        let output = async {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let count = stdout.read(&mut buffer).await.unwrap_or(0);
                if count == 0 || !take(&buffer[..count]) {
                    break;
                }
            }
            // Not read on, git ends by itself.
            drop(stdout);
        };
        let complaint = async {
            let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
            while let Ok(count) = stderr.read(&mut buffer).await
                && count > 0
            {
                let room = COMPLAINT_BYTES_MAX.saturating_sub(kept.len()).min(count);
                kept.extend_from_slice(&buffer[..room]);
            }
            String::from_utf8_lossy(&kept).trim().to_owned()
        };
        let all = async {
            let ((), complaint) = tokio::join!(output, complaint);
            (child.wait().await, complaint)
        };
        let (status, complaint) = tokio::select! {
            ended = all => ended,
            // The child is killed when it is dropped.
            () = self.cancel.cancelled() => return Err(ServiceError::Cancelled),
        };
        let status =
            status.map_err(|error| ServiceError::coded(ErrorCode::Failed, format!("git: {error}")))?;
        Ok((status.code().unwrap_or(-1), complaint))
    }

    fn start(&self, arguments: &[&str], context: &GitContext<'_>) -> ServiceResult<Child> {
        let worktree = context.worktree.unwrap_or(&self.repository.top);
        let directory = context.worktree.unwrap_or(&self.root);
        let mut command = program();
        for setting in SAFE {
            command.args(["-c", setting]);
        }
        command
            .args(arguments)
            .current_dir(directory)
            .env("GIT_DIR", context.git_dir.unwrap_or(self.private.path()))
            .env("GIT_WORK_TREE", worktree)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            // Set and empty: no way to another machine, and no program for one.
            .env("GIT_ALLOW_PROTOCOL", "");
        if let Some(index) = context.index {
            command.env("GIT_INDEX_FILE", index);
        }
        let GitPlaces { read, mut write } = self.places.clone();
        write.extend_from_slice(&context.writes_in);
        sandbox::confine(&mut command, &GitPlaces { read, write });
        let mut command = Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound if directory.is_dir() => ServiceError::coded(
                ErrorCode::Unsupported,
                "missing dependency: git is not installed on this runner",
            ),
            std::io::ErrorKind::NotFound => ServiceError::from(error),
            _ => ServiceError::coded(ErrorCode::Failed, format!("git cannot be started: {error}")),
        })
    }
}

/// Git with nothing of the runner's environment but what it needs.
pub(super) fn program() -> std::process::Command {
    let mut command = std::process::Command::new("git");
    command.arg("--no-pager").env_clear();
    // A relative directory would be looked for in the repository.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absolute = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    if let Ok(path) = std::env::join_paths(absolute) {
        command.env("PATH", path);
    }
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
    command
}

/// What the runner's user has set for all repositories.
#[derive(Default)]
struct UserSettings {
    /// For git's configuration.
    text: Vec<u8>,
    trusted: Vec<PathBuf>,
    /// The user's own files that git opens.
    files: Vec<PathBuf>,
}

impl UserSettings {
    /// Asks git, outside of every repository. Without any there are none.
    fn read() -> UserSettings {
        let mut command = program();
        command.args(["config", "--includes", "--type=path", "-z", "--get-regexp", USER_SETTINGS]);
        for name in SETTINGS_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // No repository lies there, so that only the settings of the user and the machine are read.
        command.env("GIT_DIR", "/dev/null").current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        let mut settings = UserSettings::parse(&output);
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
        settings.files.extend(config.iter().flat_map(|config| USER_FILES.map(|name| config.join(name))));
        settings
    }

    fn parse(output: &[u8]) -> UserSettings {
        let mut settings = UserSettings { text: b"[core]\n".to_vec(), ..UserSettings::default() };
        for entry in output.split(|byte| *byte == 0) {
            let Some(at) = memchr::memchr(b'\n', entry) else { continue };
            let (name, value) = (&entry[..at], &entry[at + 1..]);
            match name.strip_prefix(b"core.").and_then(|key| std::str::from_utf8(key).ok()) {
                Some(key) if can_be_written(value) => {
                    add_value(key, value, &mut settings.text);
                    if key == "excludesfile" {
                        settings.files.push(PathBuf::from(OsStr::from_bytes(value)));
                    }
                }
                Some(_) => {}
                None if value.is_empty() => settings.trusted.clear(),
                None => settings.trusted.push(PathBuf::from(OsStr::from_bytes(value))),
            }
        }
        settings
    }

    /// Whether the user trusts a repository of somebody else.
    fn trusts(&self, top: &Path) -> bool {
        self.trusted.iter().any(|trusted| {
            let below =
                trusted.file_name().is_none_or(|name| name == "*").then(|| trusted.parent()).flatten();
            trusted == Path::new("*")
                || trusted == top
                || below
                    .is_some_and(|parent| parent.is_absolute() && top != parent && top.starts_with(parent))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_user_are_told_apart() {
        let settings = UserSettings::parse(
            b"core.excludesfile\n/home/a \"b\"/ignore\0core.autocrlf\ninput\0safe.directory\n/x\0safe.directory\n/y/*\0",
        );
        let text = "[core]\n\texcludesfile = \"/home/a \\\"b\\\"/ignore\"\n\tautocrlf = \"input\"\n";
        assert_eq!(String::from_utf8(settings.text.clone()).unwrap(), text);
        for (top, is_trusted) in [("/x", true), ("/x/y", false), ("/y/z", true), ("/y", false), ("/z", false)]
        {
            assert_eq!(settings.trusts(Path::new(top)), is_trusted, "{top}");
        }
        assert!(UserSettings::parse(b"safe.directory\n*\0").trusts(Path::new("/z")));
        assert!(!UserSettings::parse(b"safe.directory\n*\0safe.directory\n\0").trusts(Path::new("/z")));
    }
}
