//! Real pi: turns of every kind.

use std::collections::HashSet;

use qd_testkit::llm::Ending;
use qd_testkit::mux::{Mux, names, of, phases, short, text_of, transcript};
use qd_testkit::process::{eventually, with_marker};
use qd_testkit::replica::Replica;
use serde_json::{Value, json};

use crate::{PIXEL, pi, pi_session, pi_with_session, prompt, queue, restarted, said_by, say, with};

/// What a client builds from the frames must be what the hub has.
async fn check_replica(mux: &mut Mux, session: &str) -> Vec<Value> {
    let replica = Replica::of(mux.frames(), session);
    let messages = mux.messages(session).await;
    assert_eq!(replica.messages, messages);
    let ids: HashSet<String> = messages.iter().map(|message| message["id"].to_string()).collect();
    assert_eq!(ids.len(), messages.len());
    messages
}

fn reason(events: &[Value]) -> &str {
    events.last().unwrap()["reason"].as_str().unwrap()
}

#[tokio::test]
async fn a_prompt_gives_the_events_in_order_and_everything_is_there_after_kill_9() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let events = mux.prompt(&session, "@@text text=\"one two three four\"\n@@usage input=100 output=7").await;
    let end = ["stream.message_start", "stream.message_end", "stream.done", "agent.idle"];
    let names = names(&events);
    assert_eq!(names[names.len() - 4..], end, "{names:?}");
    assert_eq!((reason(&events), phases(&events)), ("stop", vec!["generating".to_owned()]));
    let started: Vec<&Value> =
        of(&events, "stream.message_start").iter().map(|event| &event["message_id"]).collect();
    let ended: Vec<&Value> =
        of(&events, "stream.message_end").iter().map(|event| &event["message"]["id"]).collect();
    assert_eq!(started, ended);
    let messages = check_replica(&mut mux, &session).await;
    assert_eq!(messages.iter().map(|message| &message["id"]).collect::<Vec<_>>(), started);
    let answer = messages.last().unwrap();
    assert_eq!(text_of(answer), "one two three four");
    assert_eq!((&answer["model"], &answer["provider"]), (&json!("fake-1"), &json!("fake")));
    let usage = &answer["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(100), &json!(7)));
    assert!(usage["cost_usd"].as_f64().unwrap() > 0.0);
    let state = mux.state(&session).await;
    let (_qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.messages(&session).await, messages);
    let data = mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    assert_eq!(data["messages"], Value::Array(messages.clone()));
    for field in
        ["seq", "session_version", "message_count", "model", "native_session_id", "native_session_file"]
    {
        assert_eq!(data["state"][field], state[field], "{field}");
    }
    // Ids made anew from pi's own file are the same: nothing comes twice.
    let events = mux.prompt(&session, "@@text text=again").await;
    assert_eq!(reason(&events), "stop");
    let after = mux.messages(&session).await;
    assert_eq!(after[..messages.len()], messages);
    assert_eq!(
        transcript(&after[messages.len()..]),
        [("user".to_owned(), "@@text text=again".to_owned()), ("assistant".to_owned(), "again".to_owned()),]
    );
}

#[tokio::test]
async fn thinking_and_text_of_both_kinds_of_provider() {
    let (qd, mut mux, _llm) = pi().await;
    for model in ["fake/fake-2", "fakeanth/fake-anth"] {
        let session = pi_session(&qd, &mut mux, json!({"model": model, "thinking_level": "high"})).await;
        let events = mux.prompt(&session, "@@thinking thinking=\"hm hm hm hm hm\" text=so").await;
        let thoughts = of(&events, "stream.thinking_delta");
        let joined: String = thoughts.iter().map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(joined, "hm hm hm hm hm", "{model}");
        assert!(phases(&events).contains(&"thinking".to_owned()), "{model}");
        let answer = check_replica(&mut mux, &session).await.pop().unwrap();
        let parts: Vec<&Value> =
            answer["parts"].as_array().unwrap().iter().map(|part| &part["type"]).collect();
        assert_eq!(parts, ["thinking", "text"], "{model}");
    }
}

#[tokio::test]
async fn tools_run_alone_and_in_parallel() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let prompt = "@@text text=Running.\n@@bash command=\"echo a b\"\n@@final text=\"It ran.\"";
    let events = mux.prompt(&session, prompt).await;
    let start = of(&events, "tool.start")[0];
    assert_eq!((&start["name"], &start["input"]["command"]), (&json!("bash"), &json!("echo a b")));
    let end = of(&events, "tool.end")[0];
    assert_eq!((&end["tool_call_id"], &end["is_error"]), (&start["tool_call_id"], &json!(false)));
    assert!(end["output"].to_string().contains("a b") && end["duration_ms"].is_u64(), "{end}");
    assert!(phases(&events).contains(&"tool_running:bash".to_owned()));
    let mut order = names(&events);
    order.retain(|name| name.starts_with("tool") || *name == "stream.done");
    assert_eq!(order, ["stream.done", "tool.start", "tool.end", "stream.done"]);

    let events = mux.prompt(&session, "@@parallel n=3 command=\"echo number {i}\"").await;
    let ids = |name: &str| -> HashSet<String> {
        of(&events, name).iter().map(|event| event["tool_call_id"].to_string()).collect()
    };
    assert_eq!(ids("tool.start").len(), 3);
    assert_eq!(ids("tool.start"), ids("tool.end"));
    // With several tools the phase is not over when the first one is done.
    let phases = phases(&events);
    let first_tool = phases.iter().position(|phase| phase.starts_with("tool_running")).unwrap();
    let ends = of(&events, "tool.end");
    let last_end = events.iter().rposition(|event| event["event"] == "tool.end").unwrap();
    let first_start = events.iter().position(|event| event["event"] == "tool.start").unwrap();
    let is_generating = |event: &Value| event["event"] == "agent.working" && event["phase"] == "generating";
    let generating = first_start + events[first_start..].iter().position(is_generating).unwrap();
    assert!(ends.len() == 3 && first_tool > 0 && generating > last_end, "{phases:?}");
    let messages = check_replica(&mut mux, &session).await;
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert!(roles.ends_with(&["assistant", "tool", "tool", "tool", "assistant"]), "{roles:?}");
    let [call, results @ .., _] = &messages[roles.len() - 5..] else { panic!("five messages") };
    let calls = call["parts"].as_array().unwrap().iter().map(|part| &part["tool_call_id"]);
    assert!(calls.eq(results.iter().map(|message| &message["tool_call_id"])), "{call}");
    std::fs::write(qd.sandbox().work().join("a.txt"), "alpha").unwrap();
    let events = mux.prompt(&session, "@@read path=missing.txt").await;
    assert_eq!(of(&events, "tool.end")[0]["is_error"], true);
    let messages = mux.messages(&session).await;
    assert_eq!(messages.iter().rfind(|message| message["role"] == "tool").unwrap()["is_error"], true);
    let events = mux.prompt(&session, "@@write path=b.txt content=beta").await;
    assert_eq!(reason(&events), "stop");
    assert_eq!(std::fs::read_to_string(qd.sandbox().work().join("b.txt")).unwrap(), "beta");
}

#[tokio::test]
async fn a_long_stream_arrives_complete() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let events = mux.prompt(&session, "@@deltas n=2000").await;
    let answer = check_replica(&mut mux, &session).await.pop().unwrap();
    assert_eq!(text_of(&answer).split_whitespace().count(), 2000);
    let deltas = of(&events, "stream.text_delta");
    let bytes: usize = deltas.iter().map(|delta| delta.to_string().len()).sum();
    let text: usize = text_of(&answer).len();
    assert!(bytes as f64 <= 1.5 * text as f64 + 220.0 * deltas.len() as f64, "{bytes} bytes for {text}");
}

#[tokio::test]
async fn steering_and_following_up_are_read_in_their_turn() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    mux.ok(prompt(&session, "@@hold name=a")).await;
    mux.wait_event("stream.text_delta").await;
    let error = mux.refused(prompt(&session, "now?")).await;
    assert!(error.contains("streaming_behavior"), "{error}");
    mux.ok(say("follow_up", &session, "@@text text=followed")).await;
    mux.ok(say("steer", &session, "@@text text=steered")).await;
    let both = queue(&["@@text text=steered"], &["@@text text=followed"]);
    mux.wait_for("the queue", |frame| frame["event"] == "queue.changed" && frame["queue"] == both).await;
    assert_eq!(mux.state(&session).await["queue"], both);
    llm.release("a");
    let events = mux.until_idle(&session, from).await;
    assert_eq!((reason(&events), of(&events, "agent.idle").len()), ("stop", 1));
    check_replica(&mut mux, &session).await;
    let answers = said_by(&mut mux, "assistant", &session).await;
    assert_eq!(answers, ["Before the gate. After it.", "steered", "followed"]);
    assert_eq!(mux.state(&session).await["queue"], queue(&[], &[]));
    // Steering an agent that waits is a prompt.
    let from = mux.frames().len();
    mux.ok(say("steer", &session, "@@text text=idle")).await;
    assert_eq!(reason(&mux.until_idle(&session, from).await), "stop");
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "idle");
}

#[tokio::test]
async fn a_turn_is_aborted_in_the_middle_of_a_stream() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.begin_prompt(&session, "@@endless").await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(reason(&events), "aborted");
    assert!(of(&events, "agent.error").is_empty(), "an abort is no error");
    let answer = check_replica(&mut mux, &session).await.pop().unwrap();
    assert_eq!(answer["stop_reason"], "aborted");
    assert!(text_of(&answer).starts_with("w1 "));
    llm.wait_until(|requests| requests[0].ending == Ending::ClientGone).await.unwrap();
    assert_eq!(reason(&mux.prompt(&session, "@@text").await), "stop");
}

#[tokio::test]
async fn a_turn_is_aborted_in_the_middle_of_a_tool_and_the_tool_is_gone() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    let marker = format!("sleep\x0032{}", std::process::id());
    let bash = format!("@@bash command=\"echo begun; {}\"", marker.replace('\0', " "));
    mux.ok(prompt(&session, &bash)).await;
    let is_output = |frame: &Value| frame["event"] == "tool.progress" && frame.to_string().contains("begun");
    let progress = mux.wait_for("output", is_output).await;
    assert_eq!(progress["name"], "bash");
    eventually("the tool runs", || !with_marker(&marker).is_empty()).await;
    let mut late = qd.connect().await;
    let data = late.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    let tool = &data["partial"]["tools"][0];
    assert!(tool["name"] == "bash" && tool["partial_output"].to_string().contains("begun"), "{tool}");
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(reason(&events), "aborted");
    assert_eq!(of(&events, "tool.end")[0]["is_error"], true);
    eventually("the tool is gone", || with_marker(&marker).is_empty()).await;
    assert_eq!(reason(&mux.prompt(&session, "@@text").await), "stop");
    check_replica(&mut mux, &session).await;
}

#[tokio::test]
async fn failures_of_the_provider_are_retried_within_one_turn() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let cases = [
        ("@@error status=429 times=1 retry_after=0", 1),
        ("@@error status=500 times=1", 1),
        ("@@error status=529 times=2\n@@text text=\"Better now.\"", 2),
        ("@@drop after=2", 1),
    ];
    for (prompt, attempts) in cases {
        let events = mux.prompt(&session, prompt).await;
        assert_eq!(reason(&events), "stop", "{prompt}");
        assert_eq!(of(&events, "retry.start").len(), attempts, "{prompt}");
        let start = of(&events, "retry.start")[0];
        assert!(start["attempt"] == 1 && start["max_attempts"] == 3 && start["error"].is_string(), "{start}");
        let ends = of(&events, "retry.end");
        assert_eq!((ends.len(), &ends[0]["success"]), (1, &json!(true)), "{prompt}");
        assert!(phases(&events).contains(&"retrying".to_owned()), "{prompt}");
        assert_eq!(of(&events, "agent.idle").len(), 1, "{prompt}");
    }
    check_replica(&mut mux, &session).await;
}

#[tokio::test]
async fn retries_that_give_up_end_in_one_error() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let events = mux.prompt(&session, "@@error status=529 times=99 message=\"the model is on strike\"").await;
    assert_eq!(reason(&events), "error");
    let end = of(&events, "retry.end")[0];
    assert_eq!(end["success"], false);
    let errors = of(&events, "agent.error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0]["error"].as_str().unwrap().contains("on strike"), "{}", errors[0]);
    assert_eq!(errors[0]["recoverable"], true);
    assert_eq!(llm.requests().len(), 4);
    check_replica(&mut mux, &session).await;
    assert_eq!(reason(&mux.prompt(&session, "@@text").await), "stop");
}

#[tokio::test]
async fn waiting_for_a_retry_can_be_given_up() {
    let (qd, mut mux, _llm) = pi().await;
    let settings = qd.sandbox().pi_dir().join("settings.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&settings).unwrap()).unwrap();
    text["retry"]["baseDelayMs"] = json!(60_000);
    std::fs::write(&settings, text.to_string()).unwrap();
    let session = pi_session(&qd, &mut mux, json!({})).await;
    let from = mux.begin_prompt(&session, "@@error status=500 times=9").await;
    mux.wait_event("retry.start").await;
    assert_eq!(mux.state(&session).await["phase"], "retrying");
    mux.ok(json!({"cmd": "abort_retry", "session_id": session})).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(of(&events, "retry.end")[0]["success"], false);
    assert!(["error", "aborted"].contains(&reason(&events)), "{}", short(events.last().unwrap()));
}

#[tokio::test]
async fn a_conversation_is_compacted_by_hand() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    for _ in 0..3 {
        mux.prompt(&session, &format!("@@text {}", "word ".repeat(200))).await;
    }
    mux.skip();
    let before = mux.messages(&session).await;
    let data = mux.ok(json!({"cmd": "compact", "session_id": session, "instructions": "be brief"})).await;
    assert!(data["summary"].as_str().unwrap().contains("scripted model"), "{data}");
    assert_eq!(mux.wait_event("compact.start").await["reason"], "manual");
    let end = mux.wait_event("compact.end").await;
    assert_eq!((&end["success"], &end["will_retry"]), (&json!(true), &json!(false)));
    let idle = mux.wait_event("agent.idle").await;
    assert!(idle.get("reason").is_none(), "{idle}");
    assert_eq!(mux.state(&session).await["status"], "idle");
    assert_eq!(mux.messages(&session).await[..before.len()], before, "nothing a person can read is lost");
    assert_eq!(reason(&mux.prompt(&session, "@@text").await), "stop");
    check_replica(&mut mux, &session).await;
}

#[tokio::test]
async fn a_small_context_is_compacted_by_itself_within_the_turn() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-small"})).await;
    mux.prompt(&session, &format!("@@text {}", "word ".repeat(400))).await;
    let events = mux.prompt(&session, &format!("@@text {}", "word ".repeat(3_000))).await;
    assert_eq!(of(&events, "compact.start")[0]["reason"], "threshold");
    assert_eq!(of(&events, "compact.end")[0]["success"], true);
    assert!(phases(&events).contains(&"compacting".to_owned()));
    assert_eq!((reason(&events), names(&events).last()), ("stop", Some(&"agent.idle")));
    check_replica(&mut mux, &session).await;
}

#[tokio::test]
async fn an_overflow_is_compacted_and_tried_again() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    let long = "word ".repeat(400);
    mux.prompt(&session, &format!("@@text text=\"{long}\" {long}")).await;
    mux.prompt(&session, &format!("@@text text=\"{long}\" {long}")).await;
    let events = mux.prompt(&session, "@@overflow\n@@text text=\"It fits.\"").await;
    assert_eq!(of(&events, "compact.start")[0]["reason"], "overflow");
    assert_eq!(of(&events, "compact.end")[0]["will_retry"], true);
    assert_eq!((reason(&events), of(&events, "agent.idle").len()), ("stop", 1));
    let messages = check_replica(&mut mux, &session).await;
    assert_eq!(text_of(messages.last().unwrap()), "It fits.");
}

#[tokio::test]
async fn images_reach_the_model() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    let images = json!({"images": [{"data": PIXEL, "media_type": "image/png"}]});
    mux.ok(with(prompt(&session, "@@text look"), images)).await;
    mux.until_idle(&session, from).await;
    let images = llm.requests()[0].images();
    assert_eq!(images.len(), 1);
    assert_eq!((images[0].mime_type.as_str(), images[0].data.as_str()), ("image/png", PIXEL));
    let messages = check_replica(&mut mux, &session).await;
    let user = messages.iter().find(|message| message["role"] == "user").unwrap();
    let part = user["parts"].as_array().unwrap().iter().find(|part| part["type"] == "image").unwrap();
    assert_eq!((&part["source"]["source"], &part["source"]["data"]), (&json!("base64"), &json!(PIXEL)));
}
