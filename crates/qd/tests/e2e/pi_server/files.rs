//! Paths that clients send: confined, whatever they try.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::{bash, on, pi_with_session};

#[tokio::test]
async fn session_files_are_loaded_from_session_directories_only() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@text text=\"here\"").await;
    let file = client.ok(on(&session, "get_state")).await["data"]["sessionFile"].as_str().unwrap().to_owned();
    client.ok(on(&session, "delete_session")).await;
    let sessions = qd.sandbox().pi_dir().join("sessions");
    let outside = qd.sandbox().path("outside.jsonl");
    std::fs::copy(&file, &outside).unwrap();
    let link = sessions.join("link.jsonl");
    symlink(&outside, &link).unwrap();
    let directory_link = sessions.join("elsewhere");
    symlink(qd.sandbox().path(""), &directory_link).unwrap();
    let garbage = sessions.join("garbage.jsonl");
    std::fs::write(&garbage, "no session\n").unwrap();
    let text = sessions.join("notes.txt");
    std::fs::write(&text, "x").unwrap();
    let project = qd.sandbox().work().join("p/.pi/sessions");
    std::fs::create_dir_all(&project).unwrap();
    let local = project.join("mine.jsonl");
    std::fs::copy(&file, &local).unwrap();
    let display = |path: &std::path::Path| path.display().to_string();
    let dangerous =
        "Validation failed: sessionPath: sessionPath contains potentially dangerous path components";
    let allowed = "sessionPath must be under an allowed session directory";
    let existing = "sessionPath must point to an existing session file";
    let cases = [
        (format!("{}/../outside.jsonl", sessions.display()), dangerous),
        ("~/x.jsonl".to_owned(), dangerous),
        (format!("{file}\u{0}"), dangerous),
        ("relative.jsonl".to_owned(), "sessionPath must be an absolute path"),
        ("abc".to_owned(), "sessionPath must be an absolute path"),
        (display(&outside), allowed),
        (display(&link), existing),
        (display(&directory_link.join("outside.jsonl")), allowed),
        (display(&text), "sessionPath must point to a .jsonl or .json session file"),
        (display(&garbage), existing),
        (display(&sessions.join("missing.jsonl")), existing),
        ("x".repeat(5000), "Validation failed: sessionPath: sessionPath too long (max 4096 chars)"),
    ];
    for (path, expected) in &cases {
        let error = client.refused(json!({"type": "load_session", "sessionPath": path})).await;
        assert!(error.starts_with(expected), "{path}: {error}");
    }
    assert!(!sessions.join("missing.jsonl").exists(), "nothing is made by a refused path");
    client.ok(json!({"type": "load_session", "sessionPath": display(&local), "sessionId": "mine"})).await;
    let taken =
        client.refused(json!({"type": "load_session", "sessionPath": file, "sessionId": "mine"})).await;
    assert_eq!(taken, "Session mine already exists");
    client.ok(on("mine", "get_state")).await;
    for (path, expected) in &cases {
        let switch = json!({"type": "switch_session_file", "sessionId": "mine", "sessionPath": path});
        let error = client.refused(switch).await;
        assert!(error.starts_with(expected), "{path}: {error}");
    }
    let switched =
        client.ok(json!({"type": "switch_session_file", "sessionId": "mine", "sessionPath": file})).await;
    assert_eq!(switched["data"], json!({"cancelled": false}));
    let state = client.ok(on("mine", "get_state")).await;
    assert_eq!(state["data"]["sessionFile"], file.as_str());
}

#[tokio::test]
async fn exports_stay_in_the_sessions_directory() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@text text=\"export me\"").await;
    let work = qd.sandbox().work().canonicalize().unwrap();
    let export = |path: &str| json!({"type": "export_html", "sessionId": session, "outputPath": path});
    let outside = qd.sandbox().path("outside.html");
    symlink(qd.sandbox().path(""), work.join("out")).unwrap();
    for path in
        ["../outside.html", &outside.display().to_string(), "out/outside.html", "x\u{0}.html", "~/x.html"]
    {
        client.refused(export(path)).await;
        assert!(!outside.exists(), "{path} got out");
    }
    std::fs::create_dir(work.join("sub")).unwrap();
    let made = client.ok(export("sub/page.html")).await["data"]["path"].as_str().unwrap().to_owned();
    assert_eq!(made, work.join("sub/page.html").display().to_string());
    assert!(std::fs::read_to_string(&made).unwrap().contains("<html"));
    let made = client.ok(json!({"type": "export_html", "sessionId": session})).await;
    let path = made["data"]["path"].as_str().unwrap().to_owned();
    assert!(std::path::Path::new(&path).starts_with(&work), "{path}");
}

#[tokio::test]
async fn bash_runs_in_the_sessions_directory() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    let done = client.ok(bash(&session, "pwd; echo to-stderr >&2; exit 3")).await["data"].clone();
    assert_eq!((&done["exitCode"], &done["cancelled"]), (&json!(3), &json!(false)), "{done}");
    let output = done["output"].as_str().unwrap();
    let work = qd.sandbox().work().canonicalize().unwrap();
    assert!(output.contains(&work.display().to_string()) && output.contains("to-stderr"), "{output}");
    let from = client.count();
    let id = client.send(bash(&session, "touch started; sleep 30")).await;
    let started = work.join("started");
    qd_testkit::process::eventually("the shell runs", || started.exists()).await;
    client.ok(on(&session, "abort_bash")).await;
    let cancelled = client.response(from, &id).await;
    assert_eq!(cancelled["data"]["cancelled"], true, "{cancelled}");
}
