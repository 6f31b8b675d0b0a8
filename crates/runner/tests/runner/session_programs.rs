//! Programs of a session at the runner's own socket: they act for their session, and never as a person.

use serde_json::{Value, json};

use crate::support::runner_fixture::RunnerFixture;
use crate::support::runs::{exited, kill_and_stop, output, run_as, script, until_output};
use crate::support::{HELPER, until};

async fn runner() -> RunnerFixture {
    RunnerFixture::start(|config| {
        let folder = config.default_cwd.clone().unwrap();
        config.local_socket = Some(folder.join("r.sock"));
    })
    .await
}

async fn names_of_sessions(runner: &mut RunnerFixture) -> Vec<String> {
    let sessions = runner.ok(json!({ "cmd": "runner.sessions" })).await["sessions"].clone();
    let name = |session: &Value| session["session_id"].as_str().unwrap().to_owned();
    sessions.as_array().unwrap().iter().map(name).collect()
}

/// It holds all connections, connects once more, and ends; a child that never connected speaks when nobody can tell any
/// more who did.
#[tokio::test]
async fn a_program_that_has_ended_is_not_taken_for_a_person() {
    let mut runner = runner().await;
    script(&mut runner, &format!("{HELPER} socket-attack \"$QD_SOCKET\"; exec cat")).await;
    until_output(&mut runner, "the attack is over").await;
    let told = output(&runner, "s");
    assert!(!told.contains("\"success\":true"), "{told}");
    assert_eq!(names_of_sessions(&mut runner).await, ["s"]);
    kill_and_stop(&mut runner).await;
}

#[tokio::test]
async fn a_program_reaches_its_own_session_only() {
    let mut runner = runner().await;
    run_as(&mut runner, "other", json!({ "argv": ["cat"] })).await;
    let refused = [
        json!({ "cmd": "fs.read", "session_id": "other", "path": "requests" }),
        json!({ "cmd": "host.bash", "session_id": "other", "command": "touch ran" }),
        json!({ "cmd": "get_state", "session_id": "other" }),
        json!({ "cmd": "get_messages", "session_id": "other" }),
        json!({ "cmd": "session.attach", "session_id": "other" }),
        json!({ "cmd": "run.screen", "session_id": "other" }),
        json!({ "cmd": "run.stdin", "session_id": "other", "data": "eA==" }),
        json!({ "cmd": "runner.sessions" }),
        json!({ "cmd": "fs.read", "root": runner.folder(), "path": "requests" }),
    ];
    let allowed = [
        json!({ "cmd": "fs.read", "path": "requests" }),
        json!({ "cmd": "get_state", "session_id": "s" }),
        json!({ "cmd": "list_sessions" }),
        json!({ "cmd": "get_runners" }),
    ];
    let line = |(number, request): (usize, &Value)| {
        let mut request = request.clone();
        request["id"] = json!(number.to_string());
        format!("{request}\n")
    };
    let requests: String = refused.iter().chain(&allowed).enumerate().map(line).collect();
    std::fs::write(runner.folder().join("requests"), requests).unwrap();
    script(&mut runner, &format!("{HELPER} socket-ask \"$QD_SOCKET\" < requests > answers")).await;
    exited(&mut runner, "s").await;
    let text = std::fs::read_to_string(runner.folder().join("answers")).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = |number: usize| {
        let id = json!(number.to_string());
        answers.iter().find(|answer| answer["id"] == id).unwrap()
    };
    for (number, request) in refused.iter().enumerate() {
        let code = &answer(number)["code"];
        assert!(code == "permission_denied" || code == "invalid_request", "{request}: {}", answer(number));
    }
    for (number, request) in (refused.len()..).zip(&allowed) {
        assert_eq!(answer(number)["success"], true, "{request}: {}", answer(number));
        assert!(!answer(number).to_string().contains("other\""), "{request}: {}", answer(number));
    }
    assert!(!runner.folder().join("ran").exists());
    runner.stop().await;
}

/// The owner of the runner is not asked before a shell command; a program that the owner has started is.
#[tokio::test]
async fn what_a_program_wants_is_asked_about_and_recorded_as_the_agents() {
    let mut runner = runner().await;
    let wish = json!({ "id": "b", "cmd": "host.bash", "command": "touch ran", "ask": false, "actor": "web" });
    std::fs::write(runner.folder().join("requests"), format!("{wish}\n")).unwrap();
    script(&mut runner, &format!("{HELPER} socket-ask \"$QD_SOCKET\" < requests")).await;
    let asked = runner.event(0, "agent.input_needed").await["request"].clone();
    assert_eq!(asked["metadata"]["principal"], "agent:s", "{asked}");
    assert_eq!(asked["metadata"]["actor"], "agent", "{asked}");
    let recorded = runner.event(0, "tool.call").await;
    assert_eq!(
        (&recorded["actor"], &recorded["user_id"]),
        (&json!("agent"), &json!("agent:s")),
        "{recorded}"
    );
    let decision = json!({ "cmd": "input_response", "session_id": "s", "request_id": asked["request_id"],
                           "decision": "deny", "user_role": "owner" });
    runner.ok(decision).await;
    until_output(&mut runner, "\"code\":\"denied\"").await;
    assert!(!runner.folder().join("ran").exists());
    runner.stop().await;
}

/// It kills its guard, wears no mark of ours and leads a session of its own: it is still not taken for a person, and ended.
#[tokio::test]
async fn a_program_that_has_killed_its_guard_is_nobodys_and_does_not_stay() {
    let mut runner = runner().await;
    let create = json!({ "id": "a", "cmd": "session.create", "session_id": "stolen", "config": { "harness": "demo" } });
    std::fs::write(runner.folder().join("requests"), format!("{create}\n")).unwrap();
    let escaped = format!(
        "echo $$ > pid.new; mv pid.new pid; kill -9 $1; while read -r _ _ state _ < /proc/$1/stat && [ $state != Z ]; do :; done; \
         {HELPER} socket-ask \"$2\" < requests > answers; exec sleep 1000"
    );
    std::fs::write(runner.folder().join("escaped"), escaped).unwrap();
    script(&mut runner, "setsid env -i PATH=\"$PATH\" sh escaped $PPID \"$QD_SOCKET\" & exec cat").await;
    exited(&mut runner, "s").await;
    let pid_file = runner.folder().join("pid");
    let pid = async || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    until("the escaped program has begun", async || pid().await.is_some()).await;
    let process = format!("/proc/{}", pid().await.unwrap());
    until("it is gone, also from the list of processes", async || !std::path::Path::new(&process).exists())
        .await;
    assert_eq!(names_of_sessions(&mut runner).await, ["s"]);
    runner.stop().await;
}
