//! `qd up` itself: one server per data directory, clear errors, a clean stop.

use std::path::Path;
use std::process::Command;

use qd_testkit::process::{eventually, with_marker};
use serde_json::json;

use crate::{
    begin_endless, demo, demo_asks, demo_session, demo_with_session, endless_tool, failed, pi_with_session,
    sandbox, up,
};

#[tokio::test]
async fn two_servers_cannot_share_a_data_directory() {
    let (qd, mut mux) = demo().await;
    let output = qd.sandbox().run(&["up", "--ready-json", "--listen", "127.0.0.1:0"]).await;
    let error = failed(&output, 1);
    assert!(error.contains(&format!("pid {}", qd.pid())) && error.contains("--data-dir"), "{error}");
    assert!(output.stdout.is_empty());
    // The first one has not noticed.
    let session = demo_session(&mut mux).await;
    mux.prompt(&session, "/text").await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = failed(&sandbox().run(&["up", "--listen", &address]).await, 1);
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}

#[tokio::test]
async fn a_damaged_database_is_a_clear_error() {
    let (qd, mut mux, session) = demo_with_session().await;
    mux.prompt(&session, "/text").await;
    let sandbox = qd.terminate().await;
    let damaged = "this is no database, but it is long enough to look like a file";
    std::fs::write(sandbox.data_dir().join("hub.db"), damaged).unwrap();
    for leftover in ["hub.db-wal", "hub.db-shm"] {
        // It is there only while a server runs.
        let _absent = std::fs::remove_file(sandbox.data_dir().join(leftover));
    }
    let error = failed(&sandbox.run(&["up", "--listen", "127.0.0.1:0"]).await, 1);
    assert!(error.contains("hub.db"), "{error}");
}

#[tokio::test]
async fn sigterm_ends_the_server_in_time_with_work_going_on() {
    let (qd, mut mux) = demo().await;
    let working = demo_session(&mut mux).await;
    begin_endless(&mut mux, &working).await;
    let asking = demo_session(&mut mux).await;
    demo_asks(&mut mux, &asking).await;
    let _silent = qd.connect().await;
    let sandbox = qd.terminate().await;
    // Clients are told; then the connection ends.
    mux.wait_for("the goodbye", |frame| frame["channel"] == "system" && frame["type"] == "shutdown").await;
    while mux.next().await.is_some() {}
    let (_qd, mut mux) = up(sandbox).await;
    for session in [working, asking] {
        let state = mux.state(&session).await;
        assert_eq!((&state["status"], &state["pending_input"]), (&json!("dormant"), &json!([])));
        let last = mux.messages(&session).await.pop().unwrap();
        assert_eq!(last["role"], "assistant");
    }
}

#[tokio::test]
async fn sigterm_ends_pi_and_its_tools_too() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let marker = endless_tool(&mut mux, &session, 31).await;
    qd.terminate().await;
    eventually("no tool is left", || with_marker(&marker).is_empty()).await;
}

#[tokio::test]
async fn an_address_others_can_reach_needs_tls_or_a_word() {
    let refused = failed(&sandbox().run(&["up", "--listen", "0.0.0.0:0", "--tls", "off"]).await, 2);
    assert!(refused.contains("--insecure-bind"), "{refused}");
}

/// A small file system of its own; unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("size={size},mode=700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "qd-test"]).arg(at).status();
        let is_mounted = status.is_ok_and(|status| status.success());
        assert!(is_mounted, "a small disk cannot be mounted; run the tests as root (`sudo make test`)");
        SmallDisk(at)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_full_disk_is_a_clear_error_and_nothing_is_lost() {
    let mut sandbox = sandbox();
    let place = sandbox.path("small");
    let _disk = SmallDisk::mount(&place, "6m");
    sandbox.argument("--data-dir").argument(place.join("data"));
    let (mut qd, mut mux) = up(sandbox).await;
    let session = demo_session(&mut mux).await;
    mux.prompt(&session, "/text").await;
    let ballast = place.join("ballast");
    fill(&ballast);
    // Every command is told, the first one too; what it did waits for the disk.
    let from = mux.frames().len();
    let mut waiting = Vec::new();
    let mut error = None;
    for number in 0..200 {
        let rename =
            json!({"cmd": "set_session_name", "session_id": session, "name": format!("name {number}")});
        waiting.push(mux.send(rename).await);
        if let Some(answer) = mux.try_response(from, waiting.last().unwrap()).await
            && answer["success"] == false
        {
            error = answer["error"].as_str().map(str::to_owned);
            break;
        }
    }
    let error = error.expect("a full disk is noticed");
    assert!(error.contains("disk is full"), "{error}");
    assert!(qd.is_alive());
    assert_eq!(mux.ok(json!({"cmd": "get_messages", "session_id": session})).await["total"], 2);
    std::fs::remove_file(&ballast).unwrap();
    for id in &waiting {
        mux.response(from, id).await;
    }
    // The session takes commands again as soon as its records are stored.
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "after"})).await;
    mux.prompt(&session, "/text").await;
    assert_eq!(mux.messages(&session).await.len(), 4);
    assert_eq!(mux.state(&session).await["title"], "after");
    qd.kill9().await;
}

/// Writes until the disk is full.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [65536, 4096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}
