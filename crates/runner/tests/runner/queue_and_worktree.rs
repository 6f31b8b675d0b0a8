//! What waits for an agent is changed; a session works in a worktree made for it, and says what is checked out.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::runner_fixture::RunnerFixture;
use serde_json::{Value, json};

fn command(cmd: &str, message: &str) -> Value {
    json!({"cmd": cmd, "session_id": "s", "message": message})
}

fn queue_set(steering: &[&str], follow_up: &[&str]) -> Value {
    json!({"cmd": "queue.set", "session_id": "s", "steering": steering, "follow_up": follow_up})
}

fn queue(steering: &[&str], follow_up: &[&str]) -> Value {
    json!({"steering": steering, "follow_up": follow_up})
}

/// Prompts in the order they became messages.
fn prompts(runner: &RunnerFixture) -> Vec<String> {
    let ends = runner.lines.iter().filter(|line| line["event"] == "stream.message_end");
    let users = ends.filter(|line| line["message"]["role"] == "user");
    users.map(|line| line["message"]["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_queue_of_a_working_agent_is_changed() {
    let mut runner = RunnerFixture::with_session("demo").await;
    let from = runner.lines.len();
    runner.ok(command("prompt", "/tools")).await;
    for text in ["/text one", "/text two", "/text three"] {
        let mut later = command("follow_up", text);
        later["client_id"] = json!(format!("c-{text}"));
        runner.ok(later).await;
    }
    let data = runner.ok(queue_set(&["/text three"], &["/text TWO"])).await;
    assert_eq!(data, queue(&["/text three"], &["/text TWO"]), "as it is then");
    let is_last = |line: &Value| {
        line["event"] == "stream.message_end" && line["message"]["parts"][0]["text"] == "/text TWO"
    };
    runner.find(from, "the last one is read", is_last).await;
    assert_eq!(prompts(&runner), ["/tools", "/text three", "/text TWO"]);
    let three = runner.lines.iter().find(|line| {
        line["event"] == "stream.message_end" && line["message"]["parts"][0]["text"] == "/text three"
    });
    assert_eq!(three.unwrap()["message"]["client_id"], "c-/text three", "what came with it");
}

#[tokio::test]
async fn the_queue_without_an_agent_is_changed_and_odd_ones_are_refused() {
    let mut runner = RunnerFixture::with_session("demo").await;
    runner.ok(command("prompt", "/question")).await;
    runner.ok(command("follow_up", "/text one")).await;
    runner.ok(command("follow_up", "/text two")).await;
    runner.restart(0).await;
    assert_eq!(runner.state().await["queue"], queue(&[], &["/text one", "/text two"]));
    let data = runner.ok(queue_set(&[], &["/text two", "/text three"])).await;
    assert_eq!(data, queue(&[], &["/text two", "/text three"]));
    runner.restart(0).await;
    assert_eq!(runner.state().await["queue"], data, "it is stored");

    let refused = runner.call(queue_set(&["  "], &[])).await;
    assert_eq!(refused["code"], "invalid_request", "{refused}");
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    let refused = runner.call(queue_set(&[], &[])).await;
    assert_eq!(refused["code"], "session_closed", "{refused}");
}

/// A repository with one commit on `main`, in a directory of its own.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Repository(tempfile::tempdir().unwrap());
        let repository_path = repository.0.path().canonicalize().unwrap().join("app");
        std::fs::create_dir_all(repository_path.join("src")).unwrap();
        std::fs::write(repository.path().join("src/a.txt"), "a").unwrap();
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.git(&["add", "."]);
        repository.git(&["-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", "one"]);
        repository
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap().join("app")
    }

    fn git(&self, arguments: &[&str]) -> String {
        std::fs::create_dir_all(self.path()).unwrap();
        let done = Command::new("git").args(arguments).current_dir(self.path()).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Everything beside the repository, and its branches.
    fn traces(&self) -> (Vec<PathBuf>, String) {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        (entries.map(|entry| entry.unwrap().path()).collect(), self.git(&["branch", "--all"]))
    }
}

fn create(cwd: &Path, worktree: Value) -> Value {
    let config = json!({"harness": "demo", "cwd": cwd, "worktree": worktree});
    json!({"cmd": "session.create", "session_id": "s", "config": config})
}

#[tokio::test]
async fn a_session_works_in_a_worktree_of_its_own() {
    let repository = Repository::new();
    let mut runner = RunnerFixture::start(|_| {}).await;
    let mut check = create(&repository.path(), json!({}));
    check["check_only"] = json!(true);
    let before = repository.traces();
    runner.ok(check).await;
    assert_eq!(repository.traces(), before, "only looked");

    let created = runner.ok(create(&repository.path().join("src"), json!({"branch": "fix/hull"}))).await;
    let worktree = repository.path().with_file_name("app.worktrees").join("fix-hull");
    let state = &created["state"];
    assert_eq!(state["cwd"], json!(worktree.join("src")), "the same place in the worktree");
    assert_eq!(state["branch"], "fix/hull");
    assert_eq!(state["worktree"], json!({"repository": repository.path().join("src"), "branch": "fix/hull"}));
    assert_eq!(std::fs::read_to_string(worktree.join("src/a.txt")).unwrap(), "a");
    runner.restart(0).await;
    let state = runner.state().await;
    assert_eq!(state["cwd"], json!(worktree.join("src")));
    assert_eq!(state["worktree"]["branch"], "fix/hull");

    // Another one without a name of its own, and one on the branch that is taken.
    let mut other = create(&repository.path(), json!({"base": "main"}));
    other["session_id"] = json!("second");
    assert_eq!(runner.ok(other).await["state"]["branch"], "qd/second");
    let mut third = create(&repository.path(), json!({"branch": "fix/hull"}));
    third["session_id"] = json!("third");
    let refused = runner.call(third).await;
    assert_eq!(refused["code"], "conflict", "{refused}");
}

#[tokio::test]
async fn a_prompt_that_comes_at_once_waits_for_the_worktree() {
    let repository = Repository::new();
    let mut runner = RunnerFixture::start(|_| {}).await;
    let from = runner.lines.len();
    runner.send(create(&repository.path(), json!({}))).await;
    runner.send(command("prompt", "/text hello")).await;
    let created = runner.find(from, "it is there", |line| line["event"] == "session.created").await;
    let worktree = repository.path().with_file_name("app.worktrees").join("qd-s");
    assert_eq!(created["cwd"], json!(worktree));
    runner.find(from, "the answer", |line| line["event"] == "stream.done").await;
}

#[tokio::test]
async fn a_worktree_that_cannot_be_leaves_nothing_behind() {
    let repository = Repository::new();
    let mut runner = RunnerFixture::start(|config| config.max_sessions = 0).await;
    let before = repository.traces();
    for (cwd, worktree, code, error) in [
        (PathBuf::from("/"), json!({}), "invalid_request", "is not in a git repository"),
        (repository.path(), json!({"branch": "a..b"}), "invalid_request", "is not the name of a branch"),
        (
            repository.path(),
            json!({"branch": "-x"}),
            "invalid_request",
            "is not the name of a commit or branch",
        ),
        (repository.path(), json!({"base": "nowhere"}), "invalid_request", "a commit or branch here"),
        (repository.path(), json!({"branch": "main", "base": "HEAD"}), "already_exists", "is there already"),
        // The worktree can be made and the agent cannot be started.
        (repository.path(), json!({}), "limit_reached", "Session limit reached"),
    ] {
        let refused = runner.call(create(&cwd, worktree)).await;
        let (is_done, found) = (&refused["success"], &refused["code"]);
        assert_eq!((is_done, found), (&json!(false), &json!(code)), "{error}: {refused}");
        assert!(refused["error"].as_str().unwrap().contains(error), "{error}: {refused}");
        assert_eq!(repository.traces(), before, "{error}");
    }
}

#[tokio::test]
async fn what_is_checked_out_is_told_when_it_changes() {
    let repository = Repository::new();
    let mut runner = RunnerFixture::start(|_| {}).await;
    let config = json!({"harness": "demo", "cwd": repository.path()});
    let created = runner.ok(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
    assert_eq!(created["state"]["branch"], "main");
    let from = runner.lines.len();
    repository.git(&["checkout", "--quiet", "-b", "other"]);
    runner.ok(command("prompt", "/text hello")).await;
    let told = runner.find(from, "another branch", |line| line["event"] == "session.branch_changed").await;
    assert_eq!(told["branch"], "other");
    assert_eq!(runner.state().await["branch"], "other");
    let from = runner.lines.len();
    runner.ok(command("prompt", "/text again")).await;
    runner.find(from, "idle", |line| line["event"] == "agent.idle").await;
    let again = runner.lines[from..].iter().any(|line| line["event"] == "session.branch_changed");
    assert!(!again, "it is told once");
}
