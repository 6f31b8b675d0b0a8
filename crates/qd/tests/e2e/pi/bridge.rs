//! Real pi: what its RPC cannot do by itself, through our extension and the runner's own knowledge.

use std::fs;
use std::os::unix::fs::symlink;

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, text_of};
use qd_testkit::pi::test_extension;
use qd_testkit::process::eventually;
use qd_testkit::qd::Qd;
use qd_wire::ErrorCode;
use serde_json::{Value, json};

use crate::{answer, on, pi, pi_in, pi_session, pi_with_session, prompt, until, with};

async fn ask(mux: &mut Mux, cmd: &str, session: &str) -> Value {
    mux.ok(on(session, cmd)).await
}

async fn with_asker(qd: &Qd, mux: &mut Mux) -> String {
    pi_session(qd, mux, json!({"extensions": [test_extension("interview.ts")]})).await
}

async fn wait_notice(mux: &mut Mux, from: usize, message: &str) {
    let is_it = |frame: &Value| frame["event"] == "notify" && frame["message"] == message;
    mux.wait_since(from, message, is_it).await;
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_listed_and_a_late_one_too() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_asker(&qd, &mut mux).await;
    let tools = ask(&mut mux, "get_tools", &session).await["tools"].clone();
    for tool in ["read", "bash", "edit", "write"] {
        assert!(names(&tools).contains(&tool), "{tools}");
    }
    assert!(tools.as_array().unwrap().iter().all(|tool| !tool["description"].as_str().unwrap().is_empty()));
    mux.ok(prompt(&session, "/add-tool")).await;
    mux.prompt(&session, "@@text").await;
    let tools = ask(&mut mux, "get_tools", &session).await["tools"].clone();
    assert!(names(&tools).contains(&"late_tool"), "{tools}");
    // None of the bridge's own words reaches a person.
    let commands = ask(&mut mux, "get_commands", &session).await["commands"].clone();
    assert!(names(&commands).contains(&"ask-select"), "{commands}");
    assert!(!names(&commands).iter().any(|name| name.starts_with("qd-")), "{commands}");
    let texts = mux.state(&session).await["status_texts"].clone();
    assert!(texts.as_object().is_none_or(|texts| texts.keys().all(|key| !key.starts_with("qd_"))), "{texts}");
}

#[tokio::test]
async fn the_session_tree_is_shown_and_navigated() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    mux.prompt(&session, "@@text text=two").await;
    let tree = ask(&mut mux, "get_tree", &session).await;
    let nodes = tree["nodes"].as_array().unwrap().clone();
    let node = |text: &str| nodes.iter().find(|node| node["text"] == text).unwrap().clone();
    assert_eq!(node("two")["entry_id"], tree["current_leaf_id"]);
    assert_eq!(node("@@text text=two")["parent_id"], node("one")["entry_id"]);
    assert_eq!((&node("one")["role"], &node("one")["entry_type"]), (&json!("assistant"), &json!("message")));

    let go = |target: &Value| json!({"cmd": "navigate_tree", "session_id": session, "target_id": target});
    let data = mux.ok(go(&node("@@text text=two")["entry_id"])).await;
    assert_eq!(data, json!({"cancelled": false, "editor_text": "@@text text=two"}));
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "one");
    mux.prompt(&session, "@@text text=other").await;
    let context = llm.requests().last().unwrap().messages();
    assert!(!context.iter().any(|(_, text)| text == "two"), "{context:?}");
    let tree = ask(&mut mux, "get_tree", &session).await;
    let branches = tree["nodes"].as_array().unwrap().iter();
    assert_eq!(branches.filter(|branch| branch["parent_id"] == node("one")["entry_id"]).count(), 2);
    // Back to the other branch, with a summary of the one that is left.
    let back = with(go(&node("two")["entry_id"]), json!({"summarize": true}));
    assert_eq!(mux.ok(back).await["cancelled"], false);
    let answers: Vec<String> = mux.messages(&session).await.iter().map(text_of).collect();
    assert!(answers.contains(&"two".to_owned()) && !answers.contains(&"other".to_owned()), "{answers:?}");
    let error = mux.refused(go(&json!("ffffffff"))).await;
    assert!(error.contains("Entry ffffffff not found"), "{error}");
}

#[tokio::test]
async fn an_interview_is_asked_and_answered() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_asker(&qd, &mut mux).await;
    let (bob, heard) = (json!({"name": "Bob", "kind": "library"}), r#"{"kind":"library","name":"Bob"}"#);
    for (response, heard) in [(json!({"responses": bob}), heard), (json!({"cancelled": true}), "null")] {
        let from = mux.frames().len();
        mux.send(prompt(&session, "/ask-interview")).await;
        let request = mux.wait_event("agent.input_needed").await["request"].clone();
        assert_eq!((&request["type"], &request["title"]), (&json!("interview"), &json!("New project")));
        let kinds: Vec<&Value> =
            request["questions"].as_array().unwrap().iter().map(|q| &q["type"]).collect();
        assert_eq!(kinds, ["text", "select"]);
        assert_eq!(request["questions"][1]["options"], json!(["app", "library"]));
        mux.ok(answer(&session, &request["request_id"], response)).await;
        wait_notice(&mut mux, from, &format!("ask-interview: {heard}")).await;
    }
}

/// A server that keeps questions open for as long.
async fn impatient(seconds: &str) -> (Qd, Mux, LlmServer) {
    pi_in(|sandbox| sandbox.set("QD_QUESTION_TIMEOUT_SECONDS", seconds)).await
}

#[tokio::test]
async fn a_question_nobody_answers_is_an_error_for_the_extension() {
    let (qd, mut mux, _llm) = impatient("1").await;
    let session = with_asker(&qd, &mut mux).await;
    for kind in ["select", "confirm", "input", "editor", "interview"] {
        let from = mux.frames().len();
        mux.send(prompt(&session, &format!("/ask-{kind}"))).await;
        mux.wait_event("agent.input_needed").await;
        assert_eq!(mux.wait_event("agent.input_resolved").await["outcome"], "timed_out");
        wait_notice(&mut mux, from, &format!("ask-{kind} threw: UI request timed out after 1000ms")).await;
    }
}

#[tokio::test]
async fn the_extensions_own_timeout_is_an_error_when_timeouts_are() {
    let (qd, mut mux, _llm) = impatient("60").await;
    let session = with_asker(&qd, &mut mux).await;
    for kind in ["select", "interview"] {
        let from = mux.frames().len();
        mux.send(prompt(&session, &format!("/ask-{kind} 150"))).await;
        wait_notice(&mut mux, from, &format!("ask-{kind} threw: UI request timed out after 150ms")).await;
    }
    // Whoever says no is still just somebody who says no.
    let from = mux.frames().len();
    mux.send(prompt(&session, "/ask-confirm")).await;
    mux.skip();
    let is_question =
        |frame: &Value| frame["event"] == "agent.input_needed" && frame["request"]["type"] == "confirm";
    let asked = mux.wait_since(from, "a question", is_question).await;
    mux.ok(answer(&session, &asked["request"]["request_id"], json!({"confirmed": false}))).await;
    wait_notice(&mut mux, from, "ask-confirm: false").await;
}

#[tokio::test]
async fn without_the_setting_pis_own_contract_holds() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_asker(&qd, &mut mux).await;
    for (kind, answer) in [("select", "null"), ("confirm", "false"), ("interview", "null")] {
        let from = mux.frames().len();
        mux.send(prompt(&session, &format!("/ask-{kind} 150"))).await;
        wait_notice(&mut mux, from, &format!("ask-{kind}: {answer}")).await;
    }
}

#[tokio::test]
async fn shell_commands_run_are_kept_and_are_aborted() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    let bash = |line: &str| json!({"cmd": "bash", "session_id": session, "command": line});
    let data = mux.ok(bash("echo out; pwd; exit 3")).await;
    let work = qd.sandbox().work().canonicalize().unwrap();
    assert_eq!(data["output"], format!("out\n{}\n", work.display()));
    assert_eq!((&data["exit_code"], &data["cancelled"]), (&json!(3), &json!(false)));
    let last = mux.messages(&session).await.pop().unwrap();
    assert_eq!(last["metadata"]["native_role"], "bashExecution", "{last}");
    mux.prompt(&session, "@@text text=seen").await;
    let context = llm.requests().last().unwrap().messages();
    assert!(context.iter().any(|(_, text)| text.contains("echo out")), "{context:?}");
    let roles = |messages: Vec<Value>| {
        messages.iter().filter(|m| m["metadata"]["native_role"] == "bashExecution").count()
    };
    assert_eq!(roles(mux.messages(&session).await), 1);

    // One that would never end, beside a turn that runs on; what it was is kept when the turn is over.
    let from = mux.begin_prompt(&session, "@@slow n=60 delay_ms=50").await;
    mux.send(with(bash("touch started; exec sleep 1000"), json!({"id": "endless"}))).await;
    let started = qd.sandbox().work().join("started");
    eventually("the command has started", || started.exists()).await;
    ask(&mut mux, "abort_bash", &session).await;
    let answer =
        mux.wait_since(from, "the answer", |frame| frame["id"] == "endless" && frame["cmd"] == "bash").await;
    assert_eq!((&answer["success"], &answer["data"]["cancelled"]), (&json!(true), &json!(true)), "{answer}");
    mux.until_idle(&session, from).await;
    until("the shell command in the history", async || {
        let count = roles(mux.messages(&session).await);
        if count < 2 { Err(count.to_string()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_page_is_exported_into_the_sessions_directory_only() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let export = |path: &str| json!({"cmd": "export_html", "session_id": session, "output_path": path});
    mux.prompt(&session, "@@text text=exported").await;
    let work = qd.sandbox().work();
    let out = qd.sandbox().path("outside");
    fs::create_dir_all(&out).unwrap();
    fs::create_dir_all(work.join("sub")).unwrap();
    symlink(&out, work.join("link")).unwrap();
    let absolute = work.join("sub/b.html");
    for (path, expected) in [("a.html", work.join("a.html")), (absolute.to_str().unwrap(), absolute.clone())]
    {
        assert_eq!(mux.ok(export(path)).await["path"], json!(expected));
        assert!(fs::read_to_string(&expected).unwrap().contains("<html"), "{path}");
    }
    let path = ask(&mut mux, "export_html", &session).await["path"].as_str().unwrap().to_owned();
    assert!(path.starts_with(work.join("pi-session-").to_str().unwrap()), "{path}");
    assert!(std::path::Path::new(&path).is_file());
    let elsewhere = out.join("x.html").display().to_string();
    for path in ["../x.html", elsewhere.as_str(), "link/x.html", "~/x.html", "sub/../../x.html"] {
        let error = mux.refused(export(path)).await;
        assert!(error.contains("within the session's directory"), "{path}: {error}");
    }
    mux.refused_as(ErrorCode::NotFound, export("none/x.html")).await;
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "nothing was written outside");
}

#[tokio::test]
async fn what_pi_knows_is_asked_in_both_forms() {
    let (qd, mut mux, _llm) = pi().await;
    let skill = qd.sandbox().pi_dir().join("skills/greet");
    fs::create_dir_all(&skill).unwrap();
    fs::write(skill.join("SKILL.md"), "---\nname: greet\ndescription: Says hello\n---\nSay hello.\n")
        .unwrap();
    let session = pi_session(&qd, &mut mux, json!({})).await;
    assert_eq!(ask(&mut mux, "get_last_assistant_text", &session).await, json!({"text": null}));
    mux.prompt(&session, "@@text text=answer").await;
    assert_eq!(ask(&mut mux, "get_last_assistant_text", &session).await, json!({"text": "answer"}));
    let usage = ask(&mut mux, "get_context_usage", &session).await;
    assert_eq!(usage["context_window"], 128_000, "{usage}");
    let skills = ask(&mut mux, "get_skills", &session).await;
    let skill = &skills["skills"].as_array().unwrap().iter().find(|skill| skill["name"] == "greet").unwrap();
    assert_eq!(skill["description"], "Says hello", "{skills}");
    assert!(skill["file_path"].as_str().unwrap().ends_with("SKILL.md"), "{skills}");
    let files = ask(&mut mux, "list_session_files", &session).await;
    assert_eq!(files["files"][0]["path"], mux.state(&session).await["native_session_file"]);
    let messages = ask(&mut mux, "get_native_messages", &session).await["native"]["messages"].clone();
    assert_eq!(messages.as_array().unwrap().last().unwrap()["role"], "assistant");

    let native = with(on(&session, "get_models"), json!({"native": true}));
    let models = mux.ok(native).await["native"]["models"].clone();
    assert_eq!((&models[0]["id"], &models[0]["api"]), (&json!("fake-1"), &json!("openai-completions")));
    let native = json!({"cmd": "set_model", "session_id": session, "native": true, "provider": "fake", "model_id": "fake-2"});
    assert_eq!(mux.ok(native).await["native"]["id"], "fake-2");
    assert_eq!(mux.state(&session).await["model"]["model_id"], "fake-2");
    let cycle = json!({"cmd": "cycle_model", "session_id": session, "native": true, "direction": "backward"});
    let cycled = mux.ok(cycle).await["native"].clone();
    assert_eq!((&cycled["model"]["id"], &cycled["isScoped"]), (&json!("fake-1"), &json!(false)));
    assert_eq!(mux.state(&session).await["model"]["model_id"], "fake-1");
    ask(&mut mux, "abort_compaction", &session).await;
}

#[tokio::test]
async fn stored_sessions_are_listed_and_loaded_where_they_were() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let young = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=one").await;
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "Mine"})).await;
    let state = mux.state(&session).await;
    let stored = mux.ok(json!({"cmd": "runner.stored_sessions"})).await["sessions"].clone();
    let of = |id: &str| stored.as_array().unwrap().iter().find(|s| s["session_id"] == id).unwrap().clone();
    let mine = of(&session);
    assert_eq!(
        (&mine["title"], &mine["exists"], &mine["loaded"]),
        (&json!("Mine"), &json!(true), &json!(true))
    );
    assert_eq!(
        (&mine["message_count"], &mine["path"]),
        (&state["message_count"], &state["native_session_file"])
    );
    assert_eq!(of(&young)["exists"], false);

    mux.ok(json!({"cmd": "session.close", "session_id": session})).await;
    let create = |path: &Value| json!({"cmd": "session.create", "config": {"harness": "pi", "continue_session": path}});
    let data = mux.ok(create(&mine["path"])).await;
    assert_eq!(data["state"]["cwd"], json!(qd.sandbox().work()), "it goes on where it was");
    assert_eq!(data["state"]["title"], "Mine");
    let file = std::path::Path::new(mine["path"].as_str().unwrap());
    symlink(file, file.with_file_name("link.jsonl")).unwrap();
    let copy = qd.sandbox().path("copy.jsonl");
    fs::copy(file, &copy).unwrap();
    for (path, error) in [
        (file.with_file_name("link.jsonl"), "must point to an existing session file"),
        (copy, "must be under an allowed session directory"),
    ] {
        assert!(mux.refused(create(&json!(path))).await.contains(error), "{}", path.display());
        let switch = json!({"cmd": "session.switch", "session_id": young, "session_path": path});
        assert!(mux.refused(switch).await.contains(error), "{}", path.display());
    }
    assert!(mux.refused(create(&json!("work/x.jsonl"))).await.contains("must be an absolute path"));
}

#[tokio::test]
async fn a_compaction_is_aborted_and_nothing_else() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"extensions": [test_extension("slow_compact.ts")]})).await;
    for _ in 0..3 {
        mux.prompt(&session, &format!("@@text {}", "word ".repeat(200))).await;
    }
    let from = mux.begin_prompt(&session, "@@slow n=10 delay_ms=50").await;
    ask(&mut mux, "abort_compaction", &session).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop", "without a compaction nothing is aborted");

    let from = mux.frames().len();
    mux.send(with(on(&session, "compact"), json!({"id": "compact"}))).await;
    mux.wait_since(from, "its start", |frame| frame["event"] == "compact.start").await;
    ask(&mut mux, "abort_compaction", &session).await;
    let end = mux.wait_since(from, "its end", |frame| frame["event"] == "compact.end").await;
    assert_eq!(end["success"], false);
    let answer = mux.wait_since(from, "the answer", |frame| frame["cmd"] == "compact").await;
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(mux.prompt(&session, "@@text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_file_that_is_exchanged_while_pi_opens_it_is_not_gone_on_with() {
    let (qd, mut mux, _llm) = pi().await;
    let first = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&first, "@@text text=one").await;
    let file = mux.state(&first).await["native_session_file"].as_str().unwrap().to_owned();
    let bait = |name: &str| {
        let path = std::path::Path::new(&file).with_file_name(name);
        fs::copy(&file, &path).unwrap();
        path
    };
    let swapper = json!([test_extension("swapper.ts")]);
    let config = json!({"harness": "pi", "extensions": swapper, "continue_session": bait("bait1.jsonl")});
    let error = mux.refused(json!({"cmd": "session.create", "config": config})).await;
    assert!(error.contains("was exchanged while pi opened it"), "{error}");

    let session = pi_session(&qd, &mut mux, json!({"extensions": swapper})).await;
    mux.prompt(&session, "@@text text=mine").await;
    let from = mux.frames().len();
    let switch = json!({"cmd": "session.switch", "session_id": session, "session_path": bait("bait2.jsonl")});
    let error = mux.refused(switch).await;
    assert!(error.contains("was exchanged while pi opened it"), "{error}");
    mux.wait_since(from, "the agent's end", |frame| frame["event"] == "agent.error").await;
    // Its own conversation goes on.
    mux.prompt(&session, "@@text text=more").await;
    let said: Vec<String> = mux.messages(&session).await.iter().map(text_of).collect();
    assert!(said.contains(&"mine".to_owned()) && !said.contains(&"one".to_owned()), "{said:?}");
}
