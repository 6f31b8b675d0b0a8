//! Real repositories, real git.

use std::path::{Path, PathBuf};

use qd_wire::service::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// A repository with one commit of `a.txt`, `b.txt` and `sub/c.txt`.
struct Repository {
    folder: TempDir,
}

impl Repository {
    fn new() -> Repository {
        let repository = Repository { folder: tempfile::tempdir().unwrap() };
        repository.git(&["init", "-q", "-b", "main"]);
        repository.git(&["config", "user.email", "ann@example.org"]);
        repository.git(&["config", "user.name", "Ann"]);
        for (name, text) in [("a.txt", "one\ntwo\n"), ("b.txt", "bee\n"), ("sub/c.txt", "sea\n")] {
            repository.write(name, text);
        }
        repository.git(&["add", "."]);
        repository.git(&["commit", "-q", "-m", "first"]);
        repository
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git(&self, arguments: &[&str]) {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn ask(&self, command: Value) -> ServiceResult<Value> {
        ask_in(&self.path(), command).await
    }

    /// The answer to a command that must succeed.
    async fn data<T: DeserializeOwned>(&self, cmd: &str, mut command: Value) -> T {
        command["cmd"] = json!(cmd);
        serde_json::from_value(self.ask(command).await.unwrap()).unwrap()
    }

    async fn diff(&self, params: Value) -> GitDiffData {
        self.data("git.diff", params).await
    }
}

/// A diff shows these texts, and not those.
#[track_caller]
fn assert_diff(diff: &GitDiffData, shown: &[&str], hidden: &[&str]) {
    let has = |text: &&str| diff.stdout.contains(text);
    assert!(shown.iter().all(has) && !hidden.iter().any(has), "{}", diff.stdout);
}

async fn ask_in(root: &Path, command: Value) -> ServiceResult<Value> {
    let name = command["cmd"].as_str().unwrap();
    let command = Command::parse(name, &command.to_string()).unwrap();
    let directory = GitDirectory { root, workspace_roots: &[], own_data: OwnData::default() };
    let done = work(&command, &directory, &Cancellation::default()).await?;
    Ok(serde_json::from_str(&done.data).unwrap())
}

#[tokio::test]
async fn status_tells_every_kind_of_change() {
    let repository = Repository::new();
    repository.write("a.txt", "one\nTWO\n");
    repository.git(&["add", "a.txt"]);
    repository.write("a.txt", "one\nTWO\nthree\n");
    std::fs::remove_file(repository.path().join("b.txt")).unwrap();
    repository.git(&["mv", "sub/c.txt", "sub/ünicode name.txt"]);
    repository.write("new\nline.txt", "");
    let data: GitStatusData = repository.data("git.status", json!({})).await;
    assert_eq!(data.branch.as_deref(), Some("main"));
    assert_eq!(data.head.as_ref().map(String::len), Some(40));
    let letters = |path: &str| {
        let file =
            data.files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path}: {data:?}"));
        (file.staged.clone() + &file.unstaged, file.from.clone())
    };
    assert_eq!(letters("a.txt"), ("MM".to_owned(), None));
    assert_eq!(letters("b.txt"), (".D".to_owned(), None));
    assert_eq!(letters("sub/ünicode name.txt"), ("R.".to_owned(), Some("sub/c.txt".to_owned())));
    assert_eq!(letters("new\nline.txt"), (".?".to_owned(), None));
    assert!(data.stdout.starts_with("## main\n") && data.stdout.contains("MM a.txt\n"), "{}", data.stdout);
    // In a directory of the repository only that is told of, with paths from there.
    let data = ask_in(&repository.path().join("sub"), json!({ "cmd": "git.status" })).await.unwrap();
    let data: GitStatusData = serde_json::from_value(data).unwrap();
    let paths: Vec<&str> = data.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["ünicode name.txt"]);
}

#[tokio::test]
async fn status_of_a_conflict_and_of_no_repository() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "-b", "other"]);
    repository.write("a.txt", "other\n");
    repository.git(&["commit", "-q", "-am", "other"]);
    repository.git(&["checkout", "-q", "main"]);
    repository.write("a.txt", "main\n");
    repository.git(&["commit", "-q", "-am", "main"]);
    let mut merge = std::process::Command::new("git");
    let merged = merge.args(["merge", "-q", "other"]).current_dir(repository.path()).output().unwrap();
    assert!(!merged.status.success());
    let data = repository.ask(json!({ "cmd": "git.status" })).await.unwrap();
    assert_eq!(data["files"][0]["conflicted"], true);
    let empty = tempfile::tempdir().unwrap();
    let error = ask_in(empty.path(), json!({ "cmd": "git.status" })).await.unwrap_err().to_string();
    assert!(error.contains("not a git repository"), "{error}");
}

/// Hole 21: what is staged, unstaged, untracked and deleted can be shown, also file by file.
#[tokio::test]
async fn hole_21_diff_shows_staged_unstaged_untracked_and_deleted() {
    let repository = Repository::new();
    repository.write("a.txt", "one\nstaged\n");
    repository.git(&["add", "a.txt"]);
    repository.write("a.txt", "one\nunstaged\n");
    std::fs::remove_file(repository.path().join("b.txt")).unwrap();
    repository.write("fresh.txt", "fresh\n");
    let unstaged = repository.diff(json!({})).await;
    assert_diff(&unstaged, &["+unstaged", "-staged"], &[]);
    assert!(unstaged.stdout.contains("deleted file mode") && !unstaged.stdout.contains("fresh"));
    assert!(!unstaged.truncated && unstaged.total_bytes == unstaged.stdout.len() as u64);
    let staged = repository.diff(json!({ "staged": true })).await;
    assert_diff(&staged, &["+staged"], &["b.txt"]);
    let deleted = repository.diff(json!({ "path": "b.txt" })).await;
    assert!(deleted.stdout.contains("-bee"), "{}", deleted.stdout);
    assert_eq!(
        deleted.files,
        [GitDiffFile { path: "b.txt".into(), from: None, added: Some(0), removed: Some(1) }]
    );
    let untracked = repository.diff(json!({ "untracked": true })).await;
    assert_diff(&untracked, &["+fresh", "+unstaged"], &[]);
    let one = repository.diff(json!({ "untracked": true, "path": "fresh.txt" })).await;
    assert_diff(&one, &["+fresh"], &["unstaged"]);
    // The real index has not learned of the file.
    let status = repository.ask(json!({ "cmd": "git.status" })).await.unwrap();
    let fresh = |file: &&Value| file["path"] == "fresh.txt";
    assert_eq!(status["files"].as_array().unwrap().iter().find(fresh).unwrap()["unstaged"], "?");
    let base = repository.diff(json!({ "base": "HEAD" })).await;
    assert_diff(&base, &["-two", "+unstaged"], &[]);
}

#[tokio::test]
async fn pages_of_a_diff_are_the_whole_diff() {
    let repository = Repository::new();
    let text: String = (0..3000).map(|number| format!("línea 語 {number}\n")).collect();
    repository.write("a.txt", &text);
    repository.write("b.txt", &"x語".repeat(5000));
    let whole = repository.diff(json!({})).await;
    assert!(!whole.truncated && whole.stdout.len() as u64 == whole.total_bytes);
    let (mut pages, mut offset) = (String::new(), Some(0));
    while let Some(at) = offset {
        let page = repository.diff(json!({ "offset": at, "limit": 4096 })).await;
        assert_eq!(page.truncated, page.next_offset.is_some());
        assert!(page.stdout.len() <= 4096 && page.files.len() == 2);
        pages.push_str(&page.stdout);
        offset = page.next_offset;
    }
    assert_eq!(pages, whole.stdout);
}

#[tokio::test]
async fn names_that_look_like_something_else_are_only_names() {
    let repository = Repository::new();
    for (name, text) in [("--output=x", "dash\n"), (":(exclude)a.txt", "magic\n"), ("*", "star\n")] {
        repository.write(name, text);
    }
    repository.git(&["add", "--", "."]);
    for (name, text) in [("--output=x", "dash\n"), (":(exclude)a.txt", "magic\n"), ("*", "star\n")] {
        let diff = repository.diff(json!({ "staged": true, "path": name })).await;
        assert_eq!(diff.files.len(), 1, "{name}: {diff:?}");
        assert!(diff.stdout.contains(text), "{name}");
    }
    assert!(!repository.path().join("x").exists());
    for (path, expected) in [
        ("/etc/passwd", ServiceError::NotRelative),
        ("../x", ServiceError::ParentInPath),
        ("a/../../x", ServiceError::ParentInPath),
        ("a\0b", ServiceError::InvalidPath),
        ("", ServiceError::Missing("path")),
    ] {
        let error = repository.ask(json!({ "cmd": "git.diff", "path": path })).await.unwrap_err();
        assert_eq!(error, expected, "{path}");
    }
    for base in ["--output=/tmp/x", "nowhere", ""] {
        let error = repository.ask(json!({ "cmd": "git.diff", "base": base })).await.unwrap_err().to_string();
        assert!(error.contains("is not the name of a commit"), "{error}");
    }
}

/// What a repository's own configuration names is never run.
#[tokio::test]
async fn a_hostile_repository_runs_nothing() {
    let repository = Repository::new();
    let mark = repository.path().join("ran");
    let script = repository.path().join("evil.sh");
    std::fs::write(&script, format!("#!/bin/sh\ntouch '{}'\ncat\n", mark.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let evil = script.to_str().unwrap();
    for name in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "gpg.program",
    ] {
        repository.git(&["config", name, evil]);
    }
    repository.git(&["config", "log.showSignature", "true"]);
    for hook in ["post-checkout", "post-index-change", "fsmonitor-watchman"] {
        std::fs::copy(&script, repository.path().join(".git/hooks").join(hook)).unwrap();
    }
    repository.write(".gitattributes", "*.txt diff=evil filter=evil\n");
    repository.write("a.txt", "changed\n");
    for command in [
        json!({ "cmd": "git.status" }),
        json!({ "cmd": "git.diff" }),
        json!({ "cmd": "git.diff", "staged": true }),
        json!({ "cmd": "git.diff", "untracked": true }),
        json!({ "cmd": "git.log" }),
        json!({ "cmd": "git.worktrees" }),
        json!({ "cmd": "git.worktree_add", "path": "wt" }),
        json!({ "cmd": "git.worktree_remove", "path": "wt", "force": true }),
    ] {
        repository.ask(command.clone()).await.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(!mark.exists(), "{command} ran something");
    }
}

#[tokio::test]
async fn log_has_pages_and_paths() {
    let repository = Repository::new();
    for number in 0..5 {
        repository.write("b.txt", &format!("{number}\n"));
        repository.git(&["commit", "-q", "-am", &format!("b {number}")]);
    }
    let log = async |params: Value| repository.data::<GitLogData>("git.log", params).await;
    let all = log(json!({})).await;
    assert_eq!((all.commits.len(), all.truncated), (6, false));
    assert_eq!((&*all.commits[0].subject, &*all.commits[0].email), ("b 4", "ann@example.org"));
    assert_eq!(all.commits[0].parents, [all.commits[1].id.clone()]);
    let page = log(json!({ "limit": 4 })).await;
    assert_eq!((page.commits.len(), page.next_offset), (4, Some(4)));
    let rest = log(json!({ "offset": 4 })).await;
    assert_eq!([page.commits, rest.commits].concat(), all.commits);
    let of_a = log(json!({ "path": "a.txt" })).await;
    assert_eq!(of_a.commits.len(), 1);
    let fresh = tempfile::tempdir().unwrap();
    std::process::Command::new("git").args(["init", "-q"]).current_dir(fresh.path()).status().unwrap();
    let none = ask_in(fresh.path(), json!({ "cmd": "git.log" })).await.unwrap();
    assert_eq!(none["commits"], json!([]));
}

#[tokio::test]
async fn worktrees_stay_where_they_may_be() {
    let repository = Repository::new();
    let add = json!({ "path": "wt/one", "branch": "one", "create_branch": true });
    let data: GitWorktreesData = repository.data("git.worktree_add", add).await;
    assert_eq!(data.worktrees.len(), 2);
    assert!(data.worktrees[0].is_main && data.worktrees[1].branch.as_deref() == Some("one"));
    assert!(repository.path().join("wt/one/a.txt").is_file());
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), repository.path().join("out")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("nothing"), repository.path().join("dangling")).unwrap();
    let absolute = outside.path().join("wt");
    for path in ["out/wt", "dangling", "../wt", absolute.to_str().unwrap(), "--detach/../../x"] {
        let error = repository.ask(json!({ "cmd": "git.worktree_add", "path": path })).await;
        assert!(error.is_err(), "{path}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let error = repository.ask(json!({ "cmd": "git.worktree_remove", "path": "." })).await.unwrap_err();
    assert!(error.to_string().contains("own directory"), "{error}");
    let data = repository.ask(json!({ "cmd": "git.worktree_remove", "path": "wt/one" })).await.unwrap();
    assert_eq!(data["worktrees"].as_array().unwrap().len(), 1);
}

/// A worktree has a configuration of its own, and the name of a filter may have any letters.
#[tokio::test]
async fn filters_of_every_scope_are_left_alone() {
    let repository = Repository::new();
    let mark = repository.path().join(".git/ran");
    let evil = format!("touch '{}'; cat", mark.display());
    repository.git(&["config", "extensions.worktreeConfig", "true"]);
    repository.git(&["config", "--worktree", "filter.evil.clean", &evil]);
    repository.git(&["config", "--worktree", "filter.evil.required", "true"]);
    repository.git(&["config", "--worktree", "filter.a=b.clean", &evil]);
    repository.git(&["config", "--worktree", "diff.evil.textconv", &evil]);
    repository.write(".gitattributes", "a.txt filter=evil diff=evil\nb.txt filter=a=b\n");
    // Of the same size, so that git must read them.
    repository.write("a.txt", "ONE\ntwo\n");
    repository.write("b.txt", "BEE\n");
    for command in [
        json!({ "cmd": "git.status" }),
        json!({ "cmd": "git.diff" }),
        json!({ "cmd": "git.diff", "untracked": true }),
        json!({ "cmd": "git.worktree_add", "path": "wt" }),
    ] {
        let said = repository.ask(command.clone()).await.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(!mark.exists(), "{command} ran something");
        if command["cmd"] == "git.status" {
            assert!(said.to_string().contains("b.txt"), "{said}");
        }
    }
}

/// The runner's own data in a repository is neither told nor worked in.
#[tokio::test]
async fn own_data_in_a_repository_is_left_out() {
    let repository = Repository::new();
    repository.write("data/owner.token", "TOP-SECRET");
    repository.write("data/wt/x", "");
    repository.write("new.txt", "new\n");
    let root = repository.path();
    let own_data =
        crate::services::root::own_data::OwnDirectory::default().locate(&root.join("data")).unwrap();
    let directory = GitDirectory { root: &root, workspace_roots: &[], own_data };
    for (command, expected) in [
        (json!({ "cmd": "git.status" }), Some("new.txt")),
        (json!({ "cmd": "git.diff", "untracked": true }), Some("+new")),
        (json!({ "cmd": "git.diff", "untracked": true, "path": "data" }), None),
        (json!({ "cmd": "git.diff", "untracked": true, "path": "data/owner.token" }), None),
    ] {
        let parsed = Command::parse(command["cmd"].as_str().unwrap(), &command.to_string()).unwrap();
        let said = match work(&parsed, &directory, &Cancellation::default()).await {
            Ok(done) => done.data.to_string(),
            Err(error) if expected.is_none() => error.to_string(),
            Err(error) => panic!("{command}: {error}"),
        };
        assert!(!said.contains("TOP-SECRET") && (expected.is_none() || !said.contains("token")), "{said}");
        assert!(expected.is_none_or(|expected| said.contains(expected)), "{command}: {said}");
    }
    for path in ["data/new", "data", "data/wt/new"] {
        let add = json!({ "cmd": "git.worktree_add", "path": path });
        let add = Command::parse("git.worktree_add", &add.to_string()).unwrap();
        let refused = work(&add, &directory, &Cancellation::default()).await.unwrap_err();
        assert_eq!(refused, ServiceError::OwnData, "{path}");
    }
}

/// What git can do with a repository beside the usual does not keep it from being looked at.
#[tokio::test]
async fn repositories_of_all_kinds_are_looked_at() {
    let kinds: &[(&str, &str, &str)] = &[
        ("packed", ".", "git gc -q"),
        ("index of version 4", ".", "git update-index --index-version 4"),
        ("split index", ".", "git update-index --split-index"),
        ("sparse", ".", "git sparse-checkout set --cone --sparse-index sub"),
        ("linked worktree", "linked", "git worktree add -q linked"),
        ("below a linked worktree", "linked/sub", "git worktree add -q linked"),
        (
            "bare with worktrees",
            "all/main",
            "git clone -q --bare . all/.bare && echo 'gitdir: ./.bare' > all/.git && \
          cd all && git worktree add -q main main",
        ),
        (
            "shallow",
            "clone",
            "git commit -q --allow-empty -m second && git clone -q --depth 1 \"file://$PWD\" clone",
        ),
        (
            "submodule",
            "inner",
            "git clone -q --bare . .git/up && git -c protocol.file.allow=always submodule --quiet \
          add \"file://$PWD/.git/up\" inner && git commit -q -m inner",
        ),
        (
            "with a submodule",
            ".",
            "git clone -q --bare . .git/up && git -c protocol.file.allow=always submodule \
          --quiet add \"file://$PWD/.git/up\" inner && git commit -q -m inner",
        ),
        (
            "sha256",
            "new",
            "git init -q -b main --object-format=sha256 new && cp a.txt new && cd new && git add . && \
          git -c user.name=a -c user.email=b commit -q -m first",
        ),
        (
            "reftable",
            "new",
            "git init -q -b main --ref-format=reftable new 2>/dev/null || git init -q -b main new; \
          cp a.txt new && cd new && git add . && git -c user.name=a -c user.email=b commit -q -m first",
        ),
    ];
    for (kind, root, make) in kinds {
        let repository = Repository::new();
        let made =
            std::process::Command::new("sh").args(["-ec", make]).current_dir(repository.path()).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{kind}: {}", String::from_utf8_lossy(&made.stderr));
        let root = repository.path().join(root).canonicalize().unwrap();
        let file = ["a.txt", "c.txt"].into_iter().find(|file| root.join(file).exists()).unwrap();
        std::fs::write(root.join(file), "changed\n").unwrap();
        let ask = async |command: Value| {
            ask_in(&root, command.clone()).await.unwrap_or_else(|error| panic!("{kind}: {command}: {error}"))
        };
        let status = ask(json!({ "cmd": "git.status" })).await;
        let changed = status["files"].as_array().unwrap().iter().find(|found| found["path"] == file);
        assert_eq!(changed.map(|changed| &changed["unstaged"]), Some(&json!("M")), "{kind}: {status}");
        for diff in
            [json!({ "cmd": "git.diff" }), json!({ "cmd": "git.diff", "base": "HEAD", "untracked": true })]
        {
            let diff = ask(diff).await;
            assert!(diff["stdout"].as_str().unwrap().contains("+changed"), "{kind}: {diff}");
        }
        let log = ask(json!({ "cmd": "git.log" })).await;
        assert!(log["commits"][0]["subject"].is_string(), "{kind}: {log}");
        let worktrees = ask(json!({ "cmd": "git.worktrees" })).await;
        assert_eq!(worktrees["worktrees"][0]["is_main"], true, "{kind}: {worktrees}");
    }
}

/// A branch is compared with its upstream, though git is not told where that comes from.
#[tokio::test]
async fn the_upstream_of_a_branch_is_told() {
    let repository = Repository::new();
    repository.git(&["clone", "-q", ".", "clone"]);
    let clone = repository.path().join("clone");
    repository.git(&[
        "-C",
        "clone",
        "-c",
        "user.name=a",
        "-c",
        "user.email=b",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "more",
    ]);
    let status = ask_in(&clone, json!({ "cmd": "git.status" })).await.unwrap();
    assert_eq!(
        (&status["upstream"], &status["ahead"], &status["behind"]),
        (&json!("origin/main"), &json!(1), &json!(0))
    );
}

/// What somebody has not committed is not removed with a worktree, and a lock is respected.
#[tokio::test]
async fn worktrees_in_use_stay() {
    let repository = Repository::new();
    let add = json!({ "path": "wt", "branch": "one", "create_branch": true });
    repository.data::<GitWorktreesData>("git.worktree_add", add).await;
    repository.write("wt/new.txt", "new\n");
    let remove = async |force: bool| {
        repository.ask(json!({ "cmd": "git.worktree_remove", "path": "wt", "force": force })).await
    };
    let error = remove(false).await.unwrap_err().to_string();
    assert!(error.contains("modified or untracked files"), "{error}");
    repository.git(&["worktree", "lock", "wt"]);
    let error = remove(true).await.unwrap_err().to_string();
    assert!(error.contains("is locked") && repository.path().join("wt/new.txt").exists(), "{error}");
    repository.git(&["worktree", "unlock", "wt"]);
    remove(true).await.unwrap();
    assert!(!repository.path().join("wt").exists() && !repository.path().join(".git/worktrees").exists());
    let again = json!({ "path": "wt", "branch": "one" });
    let again: GitWorktreesData = repository.data("git.worktree_add", again).await;
    assert_eq!(again.worktrees[1].branch.as_deref(), Some("one"));
    repository.git(&["-C", "wt", "status", "--porcelain"]);
}

/// A change that only the time of the index gives away: of the same size, in the same second.
#[tokio::test]
async fn a_change_in_the_second_of_the_index_is_seen() {
    let repository = Repository::new();
    let at = |name: &str| std::fs::File::options().write(true).open(repository.path().join(name)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    repository.git(&["config", "core.trustctime", "false"]);
    at("a.txt").set_modified(time).unwrap();
    repository.git(&["update-index", "--refresh"]);
    std::fs::write(repository.path().join("a.txt"), "ONE\ntwo\n").unwrap();
    at("a.txt").set_modified(time).unwrap();
    at(".git/index").set_modified(time).unwrap();
    assert_diff(&repository.diff(json!({})).await, &["+ONE"], &[]);
}
