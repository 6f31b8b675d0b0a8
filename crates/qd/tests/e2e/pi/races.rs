//! Real pi: commands at the wrong moment, and texts of every kind.

use qd_testkit::mux::{of, short, text_of};
use qd_testkit::process::{eventually, with_marker};
use qd_testkit::replica::Replica;
use serde_json::{Value, json};

use crate::{on, pi, pi_session, pi_with_session, prompt, restarted, said_by, session_rows, with};

#[tokio::test]
async fn prompts_that_come_while_pi_starts_wait_for_it_in_order() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    let (_qd, mut mux) = restarted(qd).await;
    mux.ok(on(&session, "session.attach")).await;
    let from = mux.frames().len();
    let first = mux.send(prompt(&session, "@@slow n=20 delay_ms=20")).await;
    let second = mux.send(prompt(&session, "too early")).await;
    let later = json!({"streaming_behavior": "follow_up"});
    let third = mux.send(with(prompt(&session, "@@text text=later"), later)).await;
    assert_eq!(mux.response(from, &first).await["success"], true);
    assert_eq!(mux.response(from, &third).await["success"], true);
    let refused = mux.response(from, &second).await;
    assert!(refused["error"].as_str().unwrap().contains("streaming_behavior"), "{}", short(&refused));
    mux.until_idle(&session, from).await;
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "later");
}

#[tokio::test]
async fn a_session_closed_or_deleted_while_it_starts_leaves_no_process() {
    let (qd, mut mux, _llm) = pi().await;
    // The version is asked once; after that starts are what they always are.
    let warm = pi_session(&qd, &mut mux, json!({})).await;
    mux.ok(json!({"cmd": "session.delete", "session_id": warm})).await;
    let place = qd.sandbox().data_dir().join("agents").display().to_string();
    for cmd in ["session.close", "session.delete"] {
        let from = mux.frames().len();
        let config = json!({"harness": "pi", "cwd": qd.sandbox().work()});
        let create = mux.send(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
        let end = mux.send(json!({"cmd": cmd, "session_id": "s"})).await;
        let created = mux.response(from, &create).await;
        let ended = mux.response(from, &end).await;
        // Whichever came first, both are answered and nothing is left behind.
        if created["success"] == true && ended["success"] == false {
            mux.ok(json!({"cmd": "session.delete", "session_id": "s"})).await;
        } else if cmd == "session.close" {
            mux.call(json!({"cmd": "session.delete", "session_id": "s"})).await;
        }
        assert!(session_rows(&mut mux).await.is_empty());
        eventually("no agent is left", || with_marker(&place).is_empty()).await;
    }
}

#[tokio::test]
async fn moving_to_another_conversation_in_the_middle_of_a_turn_ends_the_turn() {
    let (_qd, mut mux, _llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=one").await;
    let from = mux.begin_prompt(&session, "@@hold name=never").await;
    mux.wait_event("stream.text_delta").await;
    let answer = mux.call(json!({"cmd": "session.new", "session_id": session})).await;
    if answer["success"] == false {
        // Refusing is right too, if it is clear and the turn goes on.
        assert!(answer["error"].as_str().unwrap().contains("working"), "{}", short(&answer));
        mux.ok(json!({"cmd": "abort", "session_id": session})).await;
        mux.until_idle(&session, from).await;
        return;
    }
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "aborted");
    assert_eq!(mux.prompt(&session, "@@text text=two").await.last().unwrap()["reason"], "stop");
    let replica = Replica::of(mux.frames(), &session);
    assert_eq!(mux.messages(&session).await, replica.messages);
    assert_eq!(said_by(&mut mux, "assistant", &session).await, ["two"]);
}

#[tokio::test]
async fn settings_change_while_the_agent_works() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.begin_prompt(&session, "@@hold name=a").await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(json!({"cmd": "set_model", "session_id": session, "provider": "fake", "model_id": "fake-2"}))
        .await;
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "Busy"})).await;
    mux.ok(json!({"cmd": "get_stats", "session_id": session})).await;
    llm.release("a");
    let events = mux.until_idle(&session, from).await;
    assert_eq!(of(&events, "config.model_changed")[0]["model_id"], "fake-2");
    mux.prompt(&session, "@@text").await;
    assert_eq!(llm.requests().last().unwrap().model(), "fake-2");
}

#[tokio::test]
async fn a_model_that_never_answers_can_be_left() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.begin_prompt(&session, "@@hang").await;
    llm.wait_until(|requests| !requests.is_empty()).await.unwrap();
    assert_eq!(mux.state(&session).await["status"], "working");
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    assert_eq!(mux.until_idle(&session, from).await.last().unwrap()["reason"], "aborted");
    // An abort with nothing to abort does no harm.
    mux.call(json!({"cmd": "abort", "session_id": session})).await;
    assert_eq!(mux.prompt(&session, "@@text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn texts_of_every_kind_come_back_as_they_went() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let text = "ä🙂\u{2028}漢字\u{2029}\u{85}\u{0}\u{7f}\\\"\t\r\n</script> \u{202e}rtl e\u{301} 👩‍👩‍👧‍👦 end";
    let message = format!("@@text text={}\n{text}", Value::from(text));
    let events = mux.prompt(&session, &message).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let replica = Replica::of(mux.frames(), &session);
    assert_eq!(replica.compared, 1);
    let messages = mux.messages(&session).await;
    assert_eq!(text_of(messages.last().unwrap()), text);
    assert_eq!(text_of(messages.iter().find(|message| message["role"] == "user").unwrap()), message);
    assert_eq!(llm.requests()[0].prompt(), message);
    let large = format!("@@text text=read\n{}", "line of text\n".repeat(300_000));
    let events = mux.prompt(&session, &large).await;
    assert!(!events.is_empty());
    let stored = mux.messages(&session).await;
    assert!(stored.iter().any(|message| text_of(message) == large), "4 MB arrive whole");
}
