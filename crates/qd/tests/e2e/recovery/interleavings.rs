//! Commands that come too early, too late, too many or in each other's way: every one gets its one answer, and
//! nothing is lost. Each test is a fault that a review found.

use qd_testkit::mux::{of, text_of};
use qd_testkit::pi::test_extension;
use serde_json::{Value, json};

use crate::{
    assert_fields, demo, demo_with_session, on, pi, pi_in, pi_session, pi_with_session, prompt, say,
    session_rows, up, with,
};

#[tokio::test]
async fn hundreds_of_commands_that_fail_at_once_do_no_harm() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    mux.skip();
    let from = mux.frames().len();
    mux.send(json!({"cmd": "session.restart", "session_id": session})).await;
    mux.wait_for("the new start", |frame| frame["phase"] == "initializing").await;
    let mut ids = Vec::new();
    for _ in 0..900 {
        let command = json!({"cmd": "set_auto_retry", "session_id": session, "enabled": true, "if_session_version": 999});
        ids.push(mux.send(command).await);
    }
    for id in ids {
        let response = mux.response(from, &id).await;
        assert_eq!(response["code"], "version_mismatch", "{response}");
    }
    assert_eq!(mux.state(&session).await["status"], "idle");
}

#[tokio::test]
async fn a_session_that_never_came_up_takes_no_numbers_from_the_next() {
    let (qd, mut mux, _llm) = pi().await;
    let extension = qd.sandbox().path("early.ts");
    std::fs::write(
        &extension,
        "export default function (pi) { pi.on('session_start', (_event, ctx) => ctx.ui.notify('early', 'info')); }",
    )
    .unwrap();
    let create = |extensions: Value| {
        json!({"cmd": "session.create", "session_id": "again", "config":
            {"harness": "pi", "cwd": qd.sandbox().work(), "extensions": extensions}})
    };
    let error = mux.refused(create(json!([extension, test_extension("broken.ts")]))).await;
    assert!(error.contains("broken.ts"), "{error}");
    assert!(session_rows(&mut mux).await.is_empty());
    mux.ok(create(json!([extension]))).await;
    mux.skip();
    mux.ok(json!({"cmd": "session.attach", "session_id": "again", "after": 0})).await;
    let notify = mux.wait_event("notify").await;
    let created = mux.frames().iter().find(|frame| frame["event"] == "session.created").unwrap();
    assert_eq!(created["seq"], 1);
    assert!(notify["seq"].as_u64() > Some(1), "{notify}");
}

#[tokio::test]
async fn a_restart_that_is_closed_meanwhile_is_answered_and_blocks_nobody() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    let restart = mux.send(json!({"cmd": "session.restart", "session_id": session})).await;
    let close = mux.send(json!({"cmd": "session.close", "session_id": session})).await;
    assert_eq!(mux.response(from, &close).await["success"], true);
    assert_eq!(mux.response(from, &restart).await["success"], false);
    mux.ok(json!({"cmd": "session.restart", "session_id": session})).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    mux.prompt(&session, "@@text text=\"fine\"").await;
}

#[tokio::test]
async fn a_prompt_and_a_follow_up_in_one_breath_are_both_answered() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    mux.send(prompt(&session, "@@text text=one")).await;
    mux.send(say("follow_up", &session, "@@text text=two")).await;
    // In one turn or in two, as the agent is quick or slow.
    let is_answer =
        |frame: &Value| frame["event"] == "stream.message_end" && frame["message"]["role"] == "assistant";
    let is_second = |frame: &Value| is_answer(frame) && text_of(&frame["message"]) == "two";
    mux.wait_for("the second answer", is_second).await;
    let answers = mux.frames()[from..].iter().filter(|frame| is_answer(frame));
    let answers: Vec<String> = answers.map(|frame| text_of(&frame["message"])).collect();
    assert_eq!(answers, ["one", "two"]);
}

#[tokio::test]
async fn follow_ups_keep_their_order() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    mux.send(json!({"cmd": "prompt", "session_id": session, "message": "/text"})).await;
    let wanted: Vec<String> = (0..12).map(|number| format!("/long {number}")).collect();
    for message in &wanted {
        mux.send(json!({"cmd": "follow_up", "session_id": session, "message": message})).await;
    }
    let events = mux.until_idle(&session, from).await;
    let ends = of(&events, "stream.message_end").into_iter().map(|event| &event["message"]);
    let asked: Vec<String> = ends.filter(|message| message["role"] == "user").map(text_of).collect();
    assert_eq!(asked[1..], wanted);
}

#[tokio::test]
async fn a_refused_create_leaves_nothing_behind() {
    let (_qd, mut mux) = demo().await;
    let create = |cwd: &str| json!({"cmd": "session.create", "session_id": "here", "config": {"harness": "demo", "cwd": cwd}});
    let early = with(create("/tmp"), json!({"depends_on": ["nobody"]}));
    assert_eq!(mux.refused(early).await, "Dependency 'nobody' is unknown");
    mux.ok(create("/usr")).await;
    assert_eq!(mux.state("here").await["cwd"], "/usr");
}

#[tokio::test]
async fn versions_survive_kill_9_whatever_raised_them() {
    let (qd, mut mux, session) = demo_with_session().await;
    for _ in 0..3 {
        // Without an id: nothing but the version is left of such a command.
        mux.send_text(&json!({"channel": "agent", "cmd": "abort", "session_id": session}).to_string()).await;
    }
    mux.wait_for("the third abort", |frame| frame["session_version"] == 3).await;
    let qd = qd.restart().await;
    assert_eq!(qd.connect().await.state(&session).await["session_version"], 3);
}

#[tokio::test]
async fn a_chosen_model_survives_a_restart_before_the_first_prompt() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-2"})).await;
    mux.ok(json!({"cmd": "session.restart", "session_id": session})).await;
    assert_eq!(mux.state(&session).await["model"]["model_id"], "fake-2");
}

#[tokio::test]
async fn a_command_cut_off_by_a_shutdown_is_indeterminate() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"extensions": [test_extension("dialogs.ts")]})).await;
    let prompt = with(prompt(&session, "/dlg-select"), json!({"idempotency_key": "k"}));
    mux.send(prompt.clone()).await;
    mux.wait_event("agent.input_needed").await;
    let (_qd, mut mux) = up(qd.terminate().await).await;
    let response = mux.call(prompt).await;
    assert_fields(&response, json!({"success": false, "replayed": true, "indeterminate": true}));
}

#[tokio::test]
async fn our_own_extension_never_keeps_pi_from_starting() {
    let real = qd_testkit::pi::pi_command().unwrap().join(" ");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *qd-bridge.ts*) echo 'Failed to load extension qd-bridge.ts' >&2; exit 1;; esac\nexec {real} \"$@\"\n"
    );
    let (qd, mut mux, _llm) = pi_in(|sandbox| {
        let wrapper = sandbox.path("pi-that-hates-bridges");
        std::fs::write(&wrapper, script).unwrap();
        std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        sandbox.set("QD_PI_COMMAND", &wrapper)
    })
    .await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let warning = mux.wait_event("notify").await;
    assert!(warning["message"].as_str().unwrap().contains("bridge"), "{warning}");
    let events = mux.prompt(&session, "@@text text=\"all the same\"").await;
    assert_eq!(of(&events, "agent.working")[0]["phase"], "generating");
}

#[tokio::test]
async fn a_wrong_type_names_its_field() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let error = mux.refused(json!({"cmd": "prompt", "session_id": session, "message": 5})).await;
    assert!(error.starts_with("Invalid 'prompt': message: invalid type"), "{error}");
    let image = json!({"cmd": "prompt", "session_id": session, "message": "x", "images": [{"data": 1}]});
    assert!(mux.refused(image).await.contains("images[0].data"));
}

#[tokio::test]
async fn a_command_with_a_wrong_envelope_is_answered() {
    let (_qd, mut mux, session) = demo_with_session().await;
    for (field, value) in [
        ("idempotency_key", json!(5)),
        ("if_session_version", json!("x")),
        ("if_session_version", json!(-1)),
        ("depends_on", json!("one")),
    ] {
        let id = mux.send(with(on(&session, "abort"), json!({field: value}))).await;
        let answer = mux.wait_for("an answer", |frame| frame["id"] == id).await;
        assert!(answer["error"].is_string(), "{field}: {answer}");
    }
}
