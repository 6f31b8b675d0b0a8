//! Keys: revoked, stolen, changed, used twice.

use qd_testkit::process::{eventually, kill9};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    create_on, fleet, invite_code, runner, session_on, until_local_status, until_said, until_status,
};
use crate::{failed, ok, ok_json, prompt, sandbox, signal};

/// A sandbox with the membership of another, changed a little.
fn copy_of(membership: &Value, change: impl FnOnce(&mut Value)) -> qd_testkit::qd::Sandbox {
    let sandbox = sandbox();
    let mut membership = membership.clone();
    change(&mut membership);
    let path = sandbox.membership_path();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, membership.to_string()).unwrap();
    sandbox
}

#[tokio::test]
async fn a_revoked_runner_is_cut_off_at_once_and_may_join_again() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    mux.ok(prompt(&session, "/long 100000")).await;
    let unknown = failed(&qd.cli(&["runner", "revoke", "nobody", "--yes"]).await, 1);
    assert!(unknown.contains("qd runner list"), "{unknown}");
    let unconfirmed = failed(&qd.cli(&["runner", "revoke", "desk"]).await, 2);
    assert!(unconfirmed.contains("--yes"), "{unconfirmed}");
    assert!(ok(&qd.cli(&["runner", "revoke", "desk", "--yes"]).await).contains("revoked desk"));
    let shown = runner(&mut mux, "desk").await;
    assert_eq!(shown["status"], "offline", "{shown}");
    assert!(shown["revoked_at"].is_i64(), "{shown}");
    assert!(mux.refused(prompt(&session, "more")).await.contains("desk"));
    until_said(|| qd.stderr(), "revoked").await;
    assert!(ok(&qd.cli(&["runner", "list"]).await).contains("revoked"));
    // Its sessions go on for those on that machine.
    ok(&desk.cli(&["abort", &session]).await);
    let status = until_local_status(desk.sandbox(), "not connected").await;
    assert!(status.contains("revoked"), "{status}");
    let again = failed(&qd.cli(&["runner", "revoke", "desk", "--yes"]).await, 1);
    assert!(again.contains("revoked already"), "{again}");

    let sandbox = desk.terminate().await;
    let code = invite_code(&qd).await;
    let join = ["runner", "join", qd.url(), "--code", &code, "--name", "desk", "--no-start", "--force"];
    ok(&sandbox.run(&join).await);
    let _desk = sandbox.runner().await;
    until_status(&mut mux, "desk", "online").await;
    let events = mux.attach_and_prompt(&session, "/text").await;
    assert_eq!(events.last().unwrap()["reason"], "stop", "its sessions came back with it");
}

#[tokio::test]
async fn a_stolen_name_without_its_key_opens_nothing() {
    let (qd, mut mux, desk) = fleet().await;
    let attic = qd.machine(sandbox(), "attic").await;
    until_status(&mut mux, "attic", "online").await;
    let membership = attic.sandbox().membership();
    attic.terminate().await;
    let thief = copy_of(&membership, |membership| membership["runner_id"] = json!("desk")).runner().await;
    until_said(|| qd.stderr(), "not the runner's key").await;
    until_local_status(thief.sandbox(), "not connected").await;
    let session = session_on(&mut mux, "desk").await;
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
    let sessions = ok_json(&desk.cli(&["ls", "--json", "--local"]).await);
    assert_eq!(sessions[0]["session_id"], session.as_str(), "it runs where it should");
    let nobody = copy_of(&membership, |membership| membership["runner_id"] = json!("ghost")).runner().await;
    until_said(|| qd.stderr(), "No runner of this name").await;
    nobody.terminate().await;
    assert_eq!(runner(&mut mux, "ghost").await, Value::Null);
}

#[tokio::test]
async fn a_new_key_takes_over_and_the_old_one_ends() {
    let (qd, mut mux, desk) = fleet().await;
    let before = desk.sandbox().membership();
    assert!(ok(&qd.cli(&["runner", "rotate", "desk"]).await).contains("desk"));
    eventually("the new key is in use", || {
        let now = desk.sandbox().membership();
        now["key"] != before["key"] && now.get("next_key").is_none()
    })
    .await;
    let sandbox = desk.kill9().await;
    until_status(&mut mux, "desk", "offline").await;
    let desk = sandbox.runner().await;
    until_status(&mut mux, "desk", "online").await;
    let session = session_on(&mut mux, "desk").await;
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
    assert!(runner(&mut mux, "desk").await["rotated_at"].is_i64());
    let old = copy_of(&before, |_| {}).runner().await;
    until_said(|| qd.stderr(), "not the runner's key").await;
    old.terminate().await;
    assert_eq!(runner(&mut mux, "desk").await["status"], "online");
    desk.terminate().await;
    let away = failed(&qd.cli(&["runner", "rotate", "desk"]).await, 3);
    assert!(away.contains("desk is not connected"), "{away}");
}

#[tokio::test]
async fn a_second_connection_replaces_the_first_and_its_late_death_changes_nothing() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    mux.prompt(&session, "/text").await;
    // The first one hangs: its link is half open.
    signal(desk.pid(), Signal::STOP);
    let second = copy_of(&desk.sandbox().membership(), |_| {}).runner().await;
    let created = loop {
        let from = mux.frames().len();
        let id = mux.send(create_on("desk")).await;
        if let Some(answer) = mux.try_response(from, &id).await.filter(|answer| answer["success"] == true) {
            break answer["data"]["session_id"].as_str().unwrap().to_owned();
        }
    };
    assert_eq!(mux.prompt(&created, "/text").await.last().unwrap()["reason"], "stop");
    kill9(desk.pid());
    let sandbox = desk.kill9().await;
    assert_eq!(mux.prompt(&created, "/tools").await.last().unwrap()["reason"], "stop");
    assert_eq!(runner(&mut mux, "desk").await["status"], "online");
    assert_eq!(mux.messages(&session).await.len(), 2, "the sessions of the first are kept");
    second.terminate().await;
    // The first returns with its own sessions.
    let _desk = sandbox.runner().await;
    until_status(&mut mux, "desk", "online").await;
    assert_eq!(mux.attach_and_prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
    assert_eq!(qd.cli(&["ls"]).await.status.code(), Some(0));
}
