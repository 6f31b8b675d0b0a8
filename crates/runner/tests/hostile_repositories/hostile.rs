//! A repository that a case makes hostile, the secrets around it, and the look at it.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::runner_fixture::{RunnerFixture, in_session};

/// What must never be told: a text, and an id that git could take for a commit.
const SECRET: &str = "TOP-SECRET";
const SECRET_ID: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";

pub(crate) struct Hostile {
    /// The repository, with commits of some files that are changed since.
    pub(crate) top: PathBuf,
    /// Outside of all that the runner may show.
    outside: PathBuf,
    /// Where the session works.
    pub(crate) root: PathBuf,
    /// The repository must be shown all the same.
    pub(crate) is_shown: bool,
    /// A commit that can be named as base.
    pub(crate) base: String,
}

impl Hostile {
    fn new(folder: &Path) -> Hostile {
        let (top, outside) = (folder.join("ws/app"), folder.join("outside"));
        let hostile = Hostile { root: top.clone(), top, outside, is_shown: false, base: "HEAD".to_owned() };
        std::fs::create_dir_all(hostile.outside.join("private")).unwrap();
        hostile.write_to(&hostile.secret(), format!("{SECRET} of a file\n"));
        hostile.write_to(&hostile.secret_id(), format!("{SECRET_ID}\n"));
        hostile.write_to(&hostile.secret_config(), format!("[core]\n\tbigFileThreshold = {SECRET}\n"));
        let evil = format!("#!/bin/sh\ntouch '{}'\ncat\n", hostile.mark().display());
        hostile.write_to(&hostile.script(), evil);
        std::fs::set_permissions(hostile.script(), PermissionsExt::from_mode(0o755)).unwrap();
        init(&hostile.private());
        hostile.write_to(&hostile.private().join("TOP-SECRET.txt"), format!("{SECRET} of a repository\n"));
        commit(&hostile.private(), "TOP-SECRET subject");
        git(&hostile.private(), &["branch", "TOP-SECRET-branch"]);
        init(&hostile.top);
        for (name, text) in [("a.txt", "one\ntwo\n"), ("b.txt", "bee\n"), ("sub/c.txt", "sea\n")] {
            hostile.write(name, text);
        }
        commit(&hostile.top, "first");
        // Of the same size, so that git has to read it.
        hostile.write("a.txt", "ONE\ntwo\n");
        hostile.write("new.txt", "new\n");
        hostile
    }

    fn mark(&self) -> PathBuf {
        self.outside.join("ran")
    }

    pub(crate) fn outside(&self) -> &Path {
        &self.outside
    }

    /// A program that leaves a mark.
    pub(crate) fn script(&self) -> PathBuf {
        self.outside.join("evil.sh")
    }

    /// The same as a command.
    pub(crate) fn evil(&self) -> String {
        self.script().to_str().unwrap().to_owned()
    }

    pub(crate) fn secret(&self) -> PathBuf {
        self.outside.join("secret.txt")
    }

    pub(crate) fn secret_id(&self) -> PathBuf {
        self.outside.join("secret.id")
    }

    /// A configuration whose value git quotes when it complains.
    pub(crate) fn secret_config(&self) -> PathBuf {
        self.outside.join("secret.config")
    }

    /// A repository of somebody else.
    pub(crate) fn private(&self) -> PathBuf {
        self.outside.join("private")
    }

    pub(crate) fn private_commit(&self) -> String {
        git(&self.private(), &["rev-parse", "HEAD"])
    }

    /// The path of a file of git's.
    pub(crate) fn of_git(&self, name: &str) -> PathBuf {
        self.top.join(".git").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        self.write_to(&self.top.join(name), text);
    }

    pub(crate) fn write_to(&self, path: &Path, text: impl AsRef<[u8]>) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Adds lines to the configuration.
    pub(crate) fn config(&self, lines: impl AsRef<[u8]>) {
        append(&self.of_git("config"), lines.as_ref());
    }

    /// The attributes of all files.
    pub(crate) fn attributes(&self, lines: impl AsRef<[u8]>) {
        self.write(".gitattributes", lines);
    }

    /// A link in place of what is there.
    pub(crate) fn link(&self, name: &str, target: &Path) {
        self.remove(name);
        symlink(target, self.top.join(name)).unwrap();
    }

    /// A pipe in place of what is there; whoever opens it waits.
    pub(crate) fn pipe(&self, name: &str) {
        self.remove(name);
        let made = Command::new("mkfifo").arg(self.top.join(name)).status().unwrap();
        assert!(made.success());
    }

    pub(crate) fn remove(&self, name: &str) {
        let path = self.top.join(name);
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(path).unwrap();
        } else if path.symlink_metadata().is_ok() {
            std::fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.top, arguments)
    }

    /// A further repository in this one, with a commit.
    pub(crate) fn nested(&self, name: &str) -> PathBuf {
        let path = self.top.join(name);
        init(&path);
        self.write_to(&path.join("inner.txt"), "inner\n");
        commit(&path, "inner");
        path
    }

    /// The same as a submodule that is committed.
    pub(crate) fn submodule(&self, name: &str) -> PathBuf {
        let path = self.nested(name);
        self.write(
            ".gitmodules",
            format!("[submodule \"{name}\"]\n\tpath = {name}\n\turl = ./{name}\n\tignore = none\n"),
        );
        self.git(&["-c", "advice.addEmbeddedRepo=false", "add", ".gitmodules", name]);
        self.git(&["commit", "-q", "-m", "submodule"]);
        path
    }
}

/// Adds lines to a file.
pub(crate) fn append(path: &Path, lines: &[u8]) {
    let before = std::fs::read(path).unwrap_or_default();
    std::fs::write(path, [&before[..], b"\n", lines, b"\n"].concat()).unwrap();
}

fn init(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    git(path, &["init", "-q", "-b", "main"]);
    git(path, &["config", "user.name", "Mallory"]);
    git(path, &["config", "user.email", "mallory@example.org"]);
}

fn commit(path: &Path, subject: &str) {
    git(path, &["add", "."]);
    git(path, &["commit", "-q", "-m", subject]);
}

/// Runs git for the attacker.
pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Makes a hostile repository, and looks at it in all ways there are.
pub(crate) async fn look_at(name: &str, make: impl FnOnce(&mut Hostile)) {
    let mut runner = RunnerFixture::start(|config| {
        let folder = config.default_cwd.clone().unwrap();
        config.services.workspace_roots = vec![folder.join("ws")];
    })
    .await;
    let mut hostile = Hostile::new(&runner.folder().canonicalize().unwrap());
    make(&mut hostile);
    // What the attacker's own git has run does not count.
    let _ = std::fs::remove_file(hostile.mark());
    let before = listing(&hostile.outside);
    let config = json!({ "harness": "demo", "cwd": hostile.root });
    runner.ok(json!({ "cmd": "session.create", "session_id": "s", "config": config })).await;
    for (cmd, role, parameters) in [
        ("git.status", "viewer", json!({})),
        ("git.diff", "viewer", json!({})),
        ("git.diff", "viewer", json!({ "staged": true })),
        ("git.diff", "viewer", json!({ "untracked": true })),
        ("git.diff", "viewer", json!({ "base": hostile.base })),
        ("git.log", "viewer", json!({})),
        ("git.worktrees", "viewer", json!({})),
        ("git.worktree_add", "owner", json!({ "path": "added", "branch": "added", "create_branch": true })),
        ("git.worktree_remove", "owner", json!({ "path": "added", "force": true })),
    ] {
        let answer = runner.call(in_session(cmd, role, parameters.clone())).await;
        let is_coded = answer["success"] == true || answer["code"].is_string();
        assert!(is_coded && answer["code"] != "internal", "{name}: {cmd} {parameters}: {answer}");
        assert!(!hostile.is_shown || answer["success"] == true, "{name}: {cmd} {parameters}: {answer}");
        check(name, &format!("{cmd} {parameters}"), &hostile, &answer);
    }
    let config = json!({ "harness": "demo", "cwd": hostile.root, "worktree": {} });
    let created = runner.call(json!({ "cmd": "session.create", "session_id": "w", "config": config })).await;
    assert!(!hostile.is_shown || created["success"] == true, "{name}: a session's worktree: {created}");
    check(name, "a session's worktree", &hostile, &created);
    check(name, "all that was said", &hostile, &json!(runner.lines));
    assert_eq!(listing(&hostile.outside), before, "{name}: something was written outside");
}

#[track_caller]
fn check(name: &str, what: &str, hostile: &Hostile, said: &Value) {
    assert!(!hostile.mark().exists(), "{name}: {what} started a program");
    let said = said.to_string();
    let commit = hostile.private_commit();
    for secret in [SECRET, SECRET_ID, &commit] {
        assert!(!said.contains(secret) || said.contains("\"base\":"), "{name}: {what} told {secret}: {said}");
    }
}

/// Everything in a directory, with sizes.
fn listing(directory: &Path) -> String {
    let mut lines = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            lines.push((path.as_os_str().as_bytes().to_vec(), metadata.is_file().then_some(metadata.len())));
            if metadata.is_dir() {
                todo.push(path);
            }
        }
    }
    lines.sort();
    lines.iter().fold(String::new(), |mut text, (path, length)| {
        let _ = writeln!(text, "{} {length:?}", String::from_utf8_lossy(path));
        text
    })
}
