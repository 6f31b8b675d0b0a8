//! Several clients at one session.

use qd_testkit::mux::{Mux, text_of};
use qd_testkit::qd::Qd;
use qd_testkit::replica::Replica;
use qd_wire::ErrorCode;
use serde_json::{Value, json};

use crate::{answer, demo, demo_asks, demo_session, demo_with_session, on, prompt, session_rows};

/// A session of the demo agent that two clients follow.
async fn two_clients() -> (Qd, Mux, Mux, String) {
    let (qd, first, session) = demo_with_session().await;
    let mut second = qd.connect().await;
    second.ok(on(&session, "session.attach")).await;
    (qd, first, second, session)
}

#[tokio::test]
async fn two_clients_both_see_everything() {
    let (_qd, mut first, mut second, session) = two_clients().await;
    second.skip();
    let (seen_from, seen) = (second.frames().len(), first.prompt(&session, "/tools").await);
    let other = second.until_idle(&session, seen_from).await;
    assert_eq!(seen, other);
    let from = first.frames().len();
    let own = second.prompt(&session, "/thinking").await;
    let seen = first.until_idle(&session, from).await;
    assert_eq!(seen, own);
    let (mut a, mut b) = (Replica::default(), Replica::default());
    first.frames().iter().for_each(|frame| a.take(frame));
    second.frames().iter().for_each(|frame| b.take(frame));
    assert_eq!(a.messages.len(), 7);
    assert_eq!(a.messages, b.messages);
    assert_eq!((a.seq, a.is_idle), (b.seq, b.is_idle));
}

#[tokio::test]
async fn an_approval_answered_by_one_disappears_at_the_other_and_the_loser_is_told() {
    let (_qd, mut first, mut second, session) = two_clients().await;
    let from = first.frames().len();
    let request_id = demo_asks(&mut first, &session).await["request"]["request_id"].clone();
    assert_eq!(second.wait_event("agent.input_needed").await["request"]["request_id"], request_id);
    let colour = |value: &str| answer(&session, &request_id, json!({"value": value}));
    // Both answer at the same moment: one of them is first.
    let (one, two) = tokio::join!(first.call(colour("red")), second.call(colour("blue")));
    let (winner, loser, chosen) = match (one["success"] == true, two["success"] == true) {
        (true, false) => (one, two, "red"),
        (false, true) => (two, one, "blue"),
        _ => panic!("exactly one answer wins: {one} {two}"),
    };
    assert!(winner["error"].is_null());
    assert_eq!(loser["code"], "question_answered", "{loser}");
    for mux in [&mut first, &mut second] {
        let resolved = mux.wait_event("agent.input_resolved").await;
        assert_eq!(resolved["request_id"], request_id);
        assert_eq!((&resolved["outcome"], &resolved["user_id"]), (&json!("answered"), &json!("owner")));
    }
    first.until_idle(&session, from).await;
    let messages = first.messages(&session).await;
    assert!(text_of(messages.last().unwrap()).contains(chosen));
    second.refused_as(ErrorCode::QuestionAnswered, colour("green")).await;
    let unknown = answer(&session, &json!("nobody"), json!({"value": "red"}));
    second.refused_as(ErrorCode::QuestionNotFound, unknown).await;
}

#[tokio::test]
async fn a_client_that_comes_late_sees_the_open_question_and_the_conversation() {
    let (qd, mut first, session) = demo_with_session().await;
    let asked = demo_asks(&mut first, &session).await;
    let mut late = qd.connect().await;
    let data = late.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    assert_eq!(data["pending_input"], json!([asked["request"]]));
    assert_eq!(data["messages"], Value::Array(first.messages(&session).await));
    assert_eq!(data["state"]["status"], "working");
    assert_eq!(session_rows(&mut late).await[0]["pending_input_count"], 1);
    late.ok(json!({"cmd": "abort", "session_id": session})).await;
    let resolved = first.wait_event("agent.input_resolved").await;
    assert_eq!(resolved["outcome"], "withdrawn");
    assert_eq!(first.wait_event("agent.idle").await["reason"], "aborted");
}

#[tokio::test]
async fn a_detached_client_hears_no_more_of_the_session() {
    let (_qd, mut first, mut second, session) = two_clients().await;
    second.ok(json!({"cmd": "session.detach", "session_id": session})).await;
    let from = second.frames().len();
    first.prompt(&session, "/text").await;
    // Whatever was on its way comes before this answer.
    second.ok(json!({"cmd": "get_runners"})).await;
    let heard = &second.frames()[from..];
    assert!(
        heard.iter().all(|frame| frame["event"] == "response" || frame["channel"] == "system"),
        "{heard:?}"
    );
}

#[tokio::test]
async fn one_connection_follows_many_sessions() {
    let (_qd, mut mux) = demo().await;
    let mut sessions = Vec::new();
    for _ in 0..10 {
        sessions.push(demo_session(&mut mux).await);
    }
    let from = mux.frames().len();
    for session in &sessions {
        mux.send(prompt(session, "/thinking")).await;
    }
    for session in &sessions {
        let events = mux.until_idle(session, from).await;
        assert_eq!(events.last().unwrap()["reason"], "stop");
    }
    for session in &sessions {
        let replica = Replica::of(mux.frames(), session);
        assert_eq!((replica.messages.len(), replica.compared), (2, 1));
    }
}
