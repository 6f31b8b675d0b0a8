//! What the runner lets whom do: each command, at each kind of place, for each role and scope, against a table.

use std::path::{Path, PathBuf};

use qd_wire::command_table::{COMMANDS, CommandClass, CommandSpec, Permission, Service};
use qd_wire::people::{Permissions, Rights, Role};
use serde_json::{Value, json};

use crate::support::runner_fixture::RunnerFixture;
use crate::support::{assert_has, merged};

/// A kind of directory, and which of those lie in it a request gets into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where a session works.
    Session,
    /// Within `workspace_roots`, and of no session.
    Workspace,
    /// Neither.
    Outside,
}

impl Place {
    const ALL: [Place; 3] = [Place::Session, Place::Workspace, Place::Outside];

    fn directory(self, home: &Path) -> PathBuf {
        match self {
            Place::Session => home.join("session"),
            Place::Workspace => home.join("ws"),
            Place::Outside => home.join("private"),
        }
    }
}

/// A home with a session `s` in it, a run, a directory for work and one that is nobody's business.
async fn runner() -> RunnerFixture {
    let mut runner = RunnerFixture::start(|config| {
        let folder = config.default_cwd.clone().unwrap();
        for name in ["session", "ws", "private"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
            std::fs::write(folder.join(name).join("a.txt"), "secret").unwrap();
        }
        config.services.workspace_roots = vec![folder.join("ws")];
        config.max_sessions = 100;
    })
    .await;
    let cwd = runner.folder().join("session");
    let config = json!({ "harness": "demo", "cwd": cwd });
    runner.ok(json!({ "cmd": "session.create", "session_id": "s", "config": config })).await;
    let config = json!({ "harness": "pty", "cwd": cwd, "run": { "argv": ["sleep", "1000"] } });
    runner.ok(json!({ "cmd": "session.create", "session_id": "run", "config": config })).await;
    runner
}

/// Everybody there can be: each role whole, and with each scope alone.
fn everybody() -> Vec<Rights> {
    let mut all = vec![Rights::default()];
    for role in Role::ALL {
        all.push(Rights::of(role));
        all.extend(Permission::ALL.map(|scope| Rights::said(Some(role), Some(Permissions::of(&[scope])))));
        all.push(Rights::said(Some(role), Some(Permissions::of(&[Permission::View, Permission::Files]))));
    }
    all
}

fn words(rights: Rights) -> String {
    let words: Vec<&str> = rights.permissions.iter().map(Permission::as_str).collect();
    words.join(" ")
}

fn says(rights: Rights, command: Value) -> Value {
    merged(command, json!({ "user_role": rights.role.as_str(), "user_permissions": words(rights) }))
}

/// Parameters with which every command can be read.
fn parameters(spec: &CommandSpec) -> Value {
    json!({ "cmd": spec.name, "path": "a.txt", "from": "none", "to": "none", "query": "x", "content": "x", "data": "",
        "message": "x", "text": "x", "input_id": "i", "request_id": format!("r{}", rand()), "command": "true",
        "enabled": true, "level": "low", "provider": "p", "model": "m", "model_id": "m", "name": "n", "signal": "int",
        "cols": 80, "rows": 24, "target_id": "t", "entry_id": "e", "file": "f", "session_file": "f", "branch": "b",
        "upload_id": "u", "offset": 0, "last": true, "target": "t", "id_of": "t", "task": "t", "delegate_id": "d",
        "config": { "harness": "demo" }, "check_only": true, "ask": false })
}

/// A name for a call that no call has had.
fn rand() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether the runner refuses for want of a permission, which is the one code for it.
async fn is_denied(runner: &mut RunnerFixture, command: Value) -> bool {
    let from = runner.lines.len();
    let is_watch = command["cmd"] == "fs.watch";
    let id = runner.send(command.clone()).await;
    if is_watch {
        // It never ends by itself.
        runner.send(json!({ "cmd": "_cancel", "target": id, "user_role": "owner" })).await;
    }
    let answer = runner.find(from, "a response", |line| line["type"] == "response" && line["id"] == id).await;
    let is_denied = answer["code"] == "permission_denied";
    assert!(!is_denied || answer["success"] == false, "{answer}");
    assert!(!is_denied || answer["data"].is_null(), "{answer}");
    is_denied
}

/// Every command about a session: the permission of the table, and nothing else, decides.
#[tokio::test]
async fn every_command_asks_for_its_permission() {
    let mut runner = runner().await;
    for rights in everybody() {
        for spec in COMMANDS {
            // Of a session that is not there, so that nothing comes of it.
            let command = merged(parameters(spec), json!({ "session_id": "nobody" }));
            let expected = !rights.permissions.contains(spec.permission);
            let denied = is_denied(&mut runner, says(rights, command)).await;
            assert_eq!(denied, expected, "{rights:?} {}", spec.name);
        }
    }
    runner.stop().await;
}

/// Services without a session: the permission of the table, and where the directory is.
#[tokio::test]
async fn every_service_keeps_to_the_places_of_its_caller() {
    let mut runner = runner().await;
    let home = runner.folder();
    let services =
        COMMANDS.iter().filter(|spec| spec.service.is_some_and(|service| service != Service::Host));
    for (rights, spec) in
        everybody().into_iter().flat_map(|rights| services.clone().map(move |spec| (rights, spec)))
    {
        for place in Place::ALL {
            let may_be_there = match place {
                Place::Session => true,
                Place::Workspace => rights.permissions.contains(Permission::Files),
                Place::Outside => false,
            };
            let expected = !rights.permissions.contains(spec.permission) || !may_be_there;
            let mut command = merged(parameters(spec), json!({ "root": place.directory(&home) }));
            if spec.class == CommandClass::Change {
                // Nothing that is there.
                command["path"] = json!("none/none");
            }
            let denied = is_denied(&mut runner, says(rights, command)).await;
            assert_eq!(denied, expected, "{rights:?} {} {place:?}", spec.name);
        }
    }
    // Whether something is there is not told either.
    let missing = json!({ "cmd": "fs.stat", "root": home.join("private/none"), "path": "." });
    assert!(is_denied(&mut runner, says(Rights::of(Role::Viewer), missing.clone())).await);
    assert_eq!(runner.call(says(Rights::ALL, missing)).await["code"], "not_found");
    runner.stop().await;
}

/// A hub of an earlier version names the role alone, and one that names nobody gets nothing.
#[tokio::test]
async fn without_a_word_about_permissions_the_role_decides() {
    let mut runner = runner().await;
    let home = runner.folder();
    for (role, may) in [("viewer", false), ("operator", true), ("owner", true)] {
        let command =
            json!({ "cmd": "fs.read", "root": home.join("ws"), "path": "a.txt", "user_role": role });
        assert_eq!(is_denied(&mut runner, command).await, !may, "{role}");
    }
    for user in [json!({}), json!({ "user_permissions": "view operate files manage" })] {
        let command =
            merged(json!({ "type": "command", "id": "x", "cmd": "get_state", "session_id": "s" }), user);
        let from = runner.lines.len();
        runner.say(command).await;
        let answer = runner.find(from, "the answer", |line| line["id"] == "x").await;
        assert_has(&answer, json!({ "success": false, "code": "permission_denied" }));
    }
    // No scope gives more than the role, and a word that nobody knows gives nothing.
    let more = json!({ "cmd": "prompt", "session_id": "s", "message": "x", "user_role": "viewer",
        "user_permissions": "view operate fly" });
    assert!(is_denied(&mut runner, more).await);
    let other =
        json!({ "cmd": "get_state", "session_id": "s", "user_role": "owner", "user_permissions": "fly" });
    assert!(is_denied(&mut runner, other).await);
    runner.stop().await;
}

/// What is typed into a run is run, and so is a new one.
#[tokio::test]
async fn terminals_are_for_those_who_may_run_commands() {
    let mut runner = runner().await;
    let prompts = Permissions::of(&[Permission::View, Permission::Operate]);
    let prompts = Rights::said(Some(Role::Operator), Some(prompts));
    for (rights, may) in [(prompts, false), (Rights::of(Role::Operator), true)] {
        for harness in ["pty", "terminal"] {
            let config = json!({ "harness": harness, "run": { "argv": ["true"] } });
            let create = json!({ "cmd": "session.create", "session_id": harness, "config": config,
                "check_only": true });
            assert_eq!(is_denied(&mut runner, says(rights, create)).await, !may, "{harness} {rights:?}");
        }
        for cmd in ["run.stdin", "run.input", "prompt", "steer", "follow_up"] {
            let text =
                json!({ "cmd": cmd, "session_id": "run", "text": "x", "message": "x", "input_id": cmd });
            assert_eq!(is_denied(&mut runner, says(rights, text)).await, !may, "{cmd} {rights:?}");
        }
        let stop = json!({ "cmd": "run.resize", "session_id": "run", "cols": 80, "rows": 24 });
        assert!(!is_denied(&mut runner, says(rights, stop)).await);
    }
    runner.ok(json!({ "cmd": "run.stop", "session_id": "run", "signal": "kill" })).await;
    runner.stop().await;
}

/// Less than the whole of a role passes no gate and opens none.
#[tokio::test]
async fn a_narrow_owner_is_asked() {
    let mut runner = runner().await;
    let most = Permission::ALL.into_iter().filter(|permission| *permission != Permission::Approve);
    let most: Vec<Permission> = most.collect();
    let narrow = Rights::said(Some(Role::Owner), Some(Permissions::of(&most)));
    let write = json!({ "cmd": "fs.write", "session_id": "s", "path": "a.txt", "content": "1" });
    let from = runner.lines.len();
    runner.send(says(narrow, write.clone())).await;
    runner.event(from, "agent.input_needed").await;
    runner.ok(says(Rights::ALL, write)).await;
    let open = json!({ "cmd": "session.create", "session_id": "open", "check_only": true,
        "config": { "harness": "demo", "gate": "open" } });
    assert!(is_denied(&mut runner, says(narrow, open.clone())).await);
    assert!(is_denied(&mut runner, says(Rights::of(Role::Operator), open.clone())).await);
    runner.ok(says(Rights::ALL, open)).await;
    runner.stop().await;
}

/// Everybody but an owner works within `workspace_roots`, or where a session works already.
#[tokio::test]
async fn only_an_owner_chooses_any_directory_for_a_session() {
    let mut runner = runner().await;
    let home = runner.folder().canonicalize().unwrap();
    std::os::unix::fs::symlink(home.join("private"), home.join("ws/out")).unwrap();
    std::fs::create_dir(home.join("ws/deep")).unwrap();
    std::fs::create_dir(home.join("session/deep")).unwrap();
    let operate = Permissions::of(&[Permission::View, Permission::Operate]);
    let operate = Rights::said(Some(Role::Operator), Some(operate));
    let narrow = Rights::said(Some(Role::Owner), Some(Role::Operator.permissions()));
    let cases = [
        (Some("ws"), true),
        (Some("ws/deep"), true),
        (Some("session"), true),
        // What lies beneath the directory of a session is not where it works.
        (Some("session/deep"), false),
        (Some("private"), false),
        (Some("ws/out"), false),
        (Some("ws/../private"), false),
        (Some(""), false),
        // The usual directory is none of those, so it is the first of them.
        (None, true),
    ];
    let mut number = 0;
    for rights in [operate, narrow, Rights::of(Role::Operator), Rights::ALL] {
        for (cwd, may) in cases {
            let may = may || rights == Rights::ALL;
            for harness in ["demo", "pty"] {
                if harness == "pty" && !rights.permissions.contains(Permission::Shell) {
                    continue;
                }
                number += 1;
                let mut config = json!({ "harness": harness, "run": { "argv": ["true"] } });
                if let Some(cwd) = cwd {
                    config["cwd"] = json!(home.join(cwd));
                }
                let session_id = format!("n{number}");
                let create = json!({ "cmd": "session.create", "session_id": session_id, "config": config });
                let check = merged(create.clone(), json!({ "check_only": true }));
                assert_eq!(is_denied(&mut runner, says(rights, check)).await, !may, "{rights:?} {cwd:?}");
                let answer = runner.call(says(rights, create)).await;
                assert_eq!(answer["code"] == "permission_denied", !may, "{rights:?} {cwd:?} {answer}");
                assert_eq!(answer["success"], may, "{rights:?} {cwd:?} {answer}");
                if !may {
                    continue;
                }
                let state = json!({ "cmd": "get_state", "session_id": session_id });
                let works_in = runner.ok(state).await["cwd"].clone();
                let usual = if rights == Rights::ALL { "" } else { "ws" };
                let expected = home.join(cwd.unwrap_or(usual)).canonicalize().unwrap();
                let works_in = Path::new(works_in.as_str().unwrap()).canonicalize().unwrap();
                assert_eq!(works_in, expected, "{rights:?} {cwd:?}");
                // Or its directory would be one of a session from now on.
                runner.ok(json!({ "cmd": "session.delete", "session_id": session_id })).await;
            }
        }
    }
    runner.stop().await;
}

/// Sends a call that a person is asked about: its id, and that of the question.
async fn gated(runner: &mut RunnerFixture, command: Value) -> (String, Value) {
    let from = runner.lines.len();
    let id = runner.send(command).await;
    (id, runner.event(from, "agent.input_needed").await["request"]["request_id"].clone())
}

async fn answer(runner: &mut RunnerFixture, request_id: &Value, decision: &str) {
    let command = json!({ "cmd": "input_response", "session_id": "s", "request_id": request_id,
        "decision": decision, "user_role": "owner" });
    runner.ok(command).await;
}

/// Allowed for the session is what was asked for, to who asked, the way they came; and who wants a person to be asked
/// gets one.
#[tokio::test]
async fn an_allowance_for_the_session_is_for_who_asked() {
    let mut runner = runner().await;
    let write = |more: Value| {
        let write = json!({ "cmd": "fs.write", "session_id": "s", "path": "w", "content": "1" });
        merged(write, merged(json!({ "user_role": "operator" }), more))
    };
    let (id, asked) = gated(&mut runner, write(json!({ "actor": "web" }))).await;
    answer(&mut runner, &asked, "approve_for_session").await;
    assert_eq!(runner.response(&id).await["success"], true);
    for restarted in [false, true] {
        if restarted {
            runner.restart(0).await;
        }
        runner.ok(write(json!({ "actor": "web" }))).await;
        runner.ok(write(json!({ "actor": "web", "ask": true, "ask_unless_allowed": true }))).await;
        for other in [json!({ "actor": "cli" }), json!({}), json!({ "actor": "web", "ask": true })] {
            let (id, asked) = gated(&mut runner, write(other)).await;
            answer(&mut runner, &asked, "deny").await;
            assert_eq!(runner.response(&id).await["code"], "denied");
        }
        // Somebody else with the same role, by the same way.
        let from = runner.lines.len();
        let id = format!("ben-{restarted}");
        let by_ben = json!({ "type": "command", "id": id, "user_id": "ben" });
        runner.say(merged(write(json!({ "actor": "web" })), by_ben)).await;
        let asked = runner.event(from, "agent.input_needed").await["request"]["request_id"].clone();
        answer(&mut runner, &asked, "deny").await;
        assert_eq!(runner.response(&id).await["code"], "denied");
    }
    runner.stop().await;
}
