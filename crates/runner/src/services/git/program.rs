//! How git is started: without a shell, without what a repository could make it run, its output read as it comes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use qd_wire::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::GitDirectory;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};

/// What git says at once where the answer is no page of something longer; a list of a million files fits.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// What is kept of git's complaints.
const COMPLAINT_BYTES_MAX: usize = 8 * 1024;

/// Read at once.
const READ_BYTES: usize = 64 * 1024;

/// Configuration that could make git run something, or look elsewhere than at this machine.
const SAFE: [&str; 8] = [
    "core.quotepath=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "log.showSignature=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=dirty",
];

/// Variables that would turn git to another repository, or make it run something.
const UNSET: [&str; 16] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_TRACE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_SSH_COMMAND",
];

/// What a filter is without its commands, and a way to show differences.
const FILTER: [(&str, &str); 4] = [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
const DIFF: [(&str, &str); 2] = [("command", ""), ("textconv", "")];

/// Git in a directory.
pub(super) struct Git {
    root: PathBuf,
    cancel: Cancellation,
    /// Settings against filters and the like, which are commands. As variables, because a name may have any letters.
    harmless: Vec<(String, &'static str)>,
    /// What it does not look at, from the root.
    excluded: Option<String>,
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

fn failure(complaint: &str, code: i32) -> ServiceError {
    if complaint.is_empty() {
        return ServiceError::coded(ErrorCode::Failed, format!("git exited with code {code}"));
    }
    ServiceError::coded(ErrorCode::Failed, complaint.to_owned())
}

impl Git {
    pub(super) async fn open(directory: &GitDirectory<'_>, cancel: &Cancellation) -> ServiceResult<Git> {
        let excluded =
            directory.own_data.below(directory.root).map(|path| path.to_string_lossy().into_owned());
        let root = directory.root.to_owned();
        let mut git = Git { root, cancel: cancel.clone(), harmless: Vec::new(), excluded };
        // Of every scope: a worktree has a configuration of its own, and any may include others.
        let names = ["config", "--includes", "--name-only", "-z", "--get-regexp", "^(filter|diff)\\..+\\."];
        let output = git.output(&names, &[]).await?;
        // Without any there is an error without words; a directory that is no repository says so below.
        for name in output.stdout.split(|byte| *byte == 0) {
            let Ok(name) = std::str::from_utf8(name) else {
                refuse!(Failed, "the name of a filter in git's configuration is not UTF-8");
            };
            let Some((driver, _)) = name.rsplit_once('.') else { continue };
            let parts = if driver.starts_with("filter.") { &FILTER[..] } else { &DIFF[..] };
            for (part, value) in parts {
                let setting = (format!("{driver}.{part}"), *value);
                if !git.harmless.contains(&setting) {
                    git.harmless.push(setting);
                }
            }
        }
        Ok(git)
    }

    /// The path for git, by its letters, without what it does not look at.
    pub(super) fn pathspecs(&self, path: &str) -> Vec<String> {
        let excluded = self.excluded.iter().map(|excluded| format!(":(exclude,literal){excluded}"));
        std::iter::once(format!(":(literal){path}")).chain(excluded).collect()
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Runs git to its end; all it says is kept.
    pub(super) async fn output(
        &self,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> ServiceResult<GitOutput> {
        let mut stdout = Vec::new();
        let mut is_too_much = false;
        let (code, complaint) = self
            .stream(arguments, environment, |piece| {
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
        environment: &[(&str, &Path)],
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> ServiceResult<(i32, String)> {
        let mut child = self.start(arguments, environment)?;
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

    fn start(&self, arguments: &[&str], environment: &[(&str, &Path)]) -> ServiceResult<Child> {
        let mut command = Command::new("git");
        command.arg("--no-pager");
        for setting in SAFE {
            command.args(["-c", setting]);
        }
        command.args(arguments).current_dir(&self.root);
        for name in UNSET {
            command.env_remove(name);
        }
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("LC_ALL", "C.UTF-8")
            .env("GIT_CONFIG_COUNT", self.harmless.len().to_string());
        for (number, (name, value)) in self.harmless.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), name);
            command.env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        for (name, value) in environment {
            command.env(name, value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound if self.root.is_dir() => ServiceError::coded(
                ErrorCode::Unsupported,
                "missing dependency: git is not installed on this runner",
            ),
            std::io::ErrorKind::NotFound => ServiceError::from(error),
            _ => ServiceError::coded(ErrorCode::Failed, format!("git cannot be started: {error}")),
        })
    }
}
