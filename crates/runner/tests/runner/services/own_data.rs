//! What services keep to themselves and who decides: the runner's own data, uploads that wait, commands that linger.

use std::time::Duration;

use crate::support::WAIT_MAX;
use crate::support::runner_fixture::{RunnerFixture, in_session};
use serde_json::{Value, json};

async fn runner() -> RunnerFixture {
    let mut runner = RunnerFixture::start(|config| {
        let folder = config.default_cwd.clone().unwrap();
        std::fs::create_dir_all(folder.join("ws/deep")).unwrap();
        std::fs::create_dir_all(folder.join("session")).unwrap();
        std::fs::create_dir_all(&config.data_dir).unwrap();
        std::fs::write(config.data_dir.join("owner.token"), "TOP-SECRET").unwrap();
        config.services.workspace_roots = vec![folder];
        config.max_sessions = 40;
    })
    .await;
    let cwd = runner.folder().join("session");
    let config = json!({ "harness": "demo", "cwd": cwd });
    runner.ok(json!({ "cmd": "session.create", "session_id": "s", "config": config })).await;
    runner
}

fn in_root(cmd: &str, role: &str, root: &std::path::Path, path: &str) -> Value {
    json!({ "cmd": cmd, "root": root, "path": path, "user_role": role })
}

async fn answer(runner: &mut RunnerFixture, role: &str, request_id: &Value, decision: &str) -> Value {
    let command = json!({ "request_id": request_id, "decision": decision });
    runner.call(in_session("input_response", role, command)).await
}

#[tokio::test]
async fn nobody_reads_the_runners_own_data() {
    let mut runner = runner().await;
    let home = runner.folder();
    std::os::unix::fs::symlink("../data", home.join("session/out")).unwrap();
    for role in ["viewer", "operator", "owner"] {
        let refused = runner.call(in_session("fs.read", role, json!({ "path": "out/owner.token" }))).await;
        assert_eq!(refused["success"], false, "{refused}");
    }
    for (root, path) in [("", "data/owner.token"), ("data", "owner.token")] {
        let refused = runner.call(in_root("fs.read", "owner", &home.join(root), path)).await;
        assert_eq!(refused["code"], "permission_denied", "{root} {path}");
    }
    let refused = runner.call(in_root("git.status", "owner", &home.join("data"), ".")).await;
    assert_eq!(refused["code"], "permission_denied");
    let search = json!({ "cmd": "fs.search", "root": home, "query": "TOP-SECRET", "user_role": "owner" });
    assert_eq!(runner.ok(search).await["matches"], json!([]));
    assert!(!serde_json::to_string(&runner.lines).unwrap().contains("\"TOP-SECRET\""));
}

#[tokio::test]
async fn a_viewer_sees_only_where_sessions_work() {
    let mut runner = runner().await;
    let home = runner.folder();
    for root in [home.clone(), home.join("ws")] {
        let refused = runner.call(in_root("fs.list", "viewer", &root, ".")).await;
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("name a session_id, or ask an operator"), "{error}");
        runner.ok(in_root("fs.list", "operator", &root, ".")).await;
    }
    runner.ok(in_root("fs.list", "viewer", &home.join("session"), ".")).await;
    runner.ok(in_session("fs.list", "viewer", json!({}))).await;
}

#[tokio::test]
async fn an_upload_is_shown_whole_and_waits_unchanged() {
    let mut runner = runner().await;
    // "hello " and "world".
    let piece = |offset: u64, data: &str, last: bool| json!({ "upload_id": "u", "path": "f.txt", "offset": offset, "data": data, "last": last });
    runner.ok(in_session("fs.upload", "operator", piece(0, "aGVsbG8g", false))).await;
    let from = runner.lines.len();
    let id = runner.send(in_session("fs.upload", "operator", piece(6, "d29ybGQ=", true))).await;
    let asked = runner.event(from, "agent.input_needed").await["request"].clone();
    let sha256 = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";
    let told =
        json!({ "upload_id": "u", "path": "f.txt", "bytes": 11, "sha256": sha256, "preview": "hello world" });
    assert_eq!(asked["metadata"]["op_args"], told);
    let more = runner.call(in_session("fs.upload", "operator", piece(11, "IQ==", false))).await;
    assert_eq!(more["code"], "conflict", "{more}");
    let abort = json!({ "upload_id": "u", "path": "f.txt", "offset": 0, "data": "", "abort": true });
    assert_eq!(runner.call(in_session("fs.upload", "operator", abort.clone())).await["success"], false);
    // Who asked does not decide, unless nobody needed to be asked.
    let own = answer(&mut runner, "operator", &asked["request_id"], "approve").await;
    assert_eq!(own["code"], "permission_denied");
    assert_eq!(answer(&mut runner, "owner", &asked["request_id"], "approve").await["success"], true);
    assert_eq!(runner.response(&id).await["data"]["written"]["hash"], sha256);
    assert_eq!(std::fs::read_to_string(runner.folder().join("session/f.txt")).unwrap(), "hello world");
    runner.ok(in_session("fs.upload", "operator", abort)).await;
}

/// Whoever has to be asked for does not fill the disk with what nobody was asked about yet.
#[tokio::test]
async fn an_upload_is_bounded_and_gated_from_its_first_piece() {
    let mut runner = runner().await;
    let piece = |offset: u64, data: &str| json!({ "upload_id": "u", "path": "f.bin", "offset": offset, "data": data });
    let home = runner.folder();
    let params = |data: &str| {
        let mut params = in_root("fs.upload", "operator", &home, "f.bin");
        params.as_object_mut().unwrap().extend(piece(0, data).as_object().unwrap().clone());
        params
    };
    let refused = runner.call(params("eA==")).await;
    assert!(refused["error"].as_str().unwrap().contains("nobody to ask"), "{refused}");
    assert!(
        !std::fs::read_dir(&home)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().ends_with(".tmp") })
    );

    let megabytes = 16_u64 << 20;
    let data = "A".repeat((megabytes / 3 * 4) as usize);
    let length = megabytes / 3 * 3;
    for number in 0..4 {
        runner.ok(in_session("fs.upload", "operator", piece(number * length, &data))).await;
    }
    let more = runner.call(in_session("fs.upload", "operator", piece(4 * length, &data))).await;
    assert_eq!(more["code"], "too_large", "{more}");
    runner.ok(in_session("fs.upload", "owner", piece(0, "eA=="))).await;
}

/// Somebody else has the other end of the command's output and keeps it.
#[tokio::test]
async fn a_held_pipe_does_not_hold_the_call() {
    let mut runner = runner().await;
    let home = runner.folder().join("session");
    let command = "echo began; echo $$ > pid; until [ -e go ]; do sleep 0.05; done";
    let id = runner.send(in_session("host.bash", "owner", json!({ "command": command }))).await;
    let held = async {
        loop {
            let pid = std::fs::read_to_string(home.join("pid")).unwrap_or_default();
            let path = format!("/proc/{}/fd/1", pid.trim());
            if !pid.trim().is_empty()
                && let Ok(file) = std::fs::OpenOptions::new().write(true).open(path)
            {
                return file;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(WAIT_MAX, held).await.expect("the command runs");
    std::fs::write(home.join("go"), "").unwrap();
    let data = runner.response(&id).await["data"].clone();
    assert_eq!((&data["exit_code"], &data["stdout"]), (&json!(0), &json!("began\n")));
    drop(held);
}

#[tokio::test]
async fn an_approved_call_for_which_there_is_no_room_is_recorded_as_failed() {
    let mut runner = runner().await;
    let params = json!({ "command": "touch ran", "request_id": "late" });
    let from = runner.lines.len();
    runner.send(in_session("host.bash", "operator", params)).await;
    runner.event(from, "agent.input_needed").await;
    runner.restart(0).await;
    // Calls that wait for a person are under way too, in as many sessions as that takes.
    let from = runner.lines.len();
    let mut asked = 0;
    for session in 0..17 {
        let config = json!({ "harness": "demo", "cwd": runner.folder().join("session") });
        let name = format!("s{session}");
        runner.ok(json!({ "cmd": "session.create", "session_id": name, "config": config })).await;
        for _ in 0..64 {
            asked += 1;
            runner
                .send(json!({ "cmd": "fs.delete", "session_id": name, "path": "x", "user_role": "operator" }))
                .await;
        }
    }
    assert!(asked > 1024);
    // A session with too many calls that wait is busy too; the words tell them apart.
    let is_full = |line: &Value| {
        line["code"] == "busy" && line["error"].as_str().is_some_and(|it| it.contains("1024 service calls"))
    };
    runner.find(from, "no more room", is_full).await;
    assert_eq!(answer(&mut runner, "owner", &json!("late"), "approve").await["success"], true);
    let is_result = |line: &Value| line["event"] == "tool.result" && line["request_id"] == "late";
    let result = runner.find(from, "its result", is_result).await;
    assert_eq!(result["ok"], false);
    assert!(result["error"].as_str().unwrap().contains("1024 service calls"), "{result}");
    assert!(!runner.folder().join("session/ran").exists());
}

/// Who wants a person to be asked gets that in an open session too.
#[tokio::test]
async fn asking_goes_before_an_open_gate() {
    let mut runner = runner().await;
    let config = json!({ "harness": "demo", "gate": "open" });
    runner.ok(json!({ "cmd": "session.create", "session_id": "open", "config": config })).await;
    let write = |ask: bool| json!({ "cmd": "fs.write", "session_id": "open", "user_role": "operator", "path": "x", "content": "1", "ask": ask });
    runner.ok(write(false)).await;
    let from = runner.lines.len();
    runner.send(write(true)).await;
    runner.event(from, "agent.input_needed").await;
    runner.stop().await;
}
