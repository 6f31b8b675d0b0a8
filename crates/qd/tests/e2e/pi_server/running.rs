//! What must act on a running turn, and does.
#![allow(clippy::disallowed_methods, reason = "a promise about time is tested")]

use std::time::{Duration, Instant};

use qd_testkit::pi_server::PiClient;
use serde_json::{Value, json};

use super::{on, pi_with_session, prompt};
use crate::with;

/// The promise of the issue, from the frame sent to the frame that shows the effect.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A turn that goes on until it is stopped or released; waits until text flows.
async fn flowing(client: &mut PiClient, session: &str, message: &str) {
    client.ok(prompt(session, message)).await;
    client.wait_event("message_update").await;
}

/// Sends a message to a working agent: how soon it is in the agent's queue, and that it is accepted.
async fn queued_at_once(client: &mut PiClient, session: &str, kind: &str, message: &str) -> usize {
    let field = if kind == "steer" { "steering" } else { "followUp" };
    let (from, sent) = (client.count(), Instant::now());
    let id = client.send(with(on(session, kind), json!({"message": message}))).await;
    let is_queued = |frame: &Value| frame["event"][field] == json!([message]);
    let (queued, _) = client.since(from, "the queue with the message", is_queued).await;
    assert!(queued - sent < AT_ONCE, "queued after {:?}", queued - sent);
    assert_eq!(client.response(from, &id).await["success"], true);
    from
}

#[tokio::test]
async fn an_abort_stops_a_running_turn_at_once() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    flowing(&mut client, &session, "@@endless delay_ms=5").await;
    let (from, sent) = (client.count(), Instant::now());
    let id = client.send(on(&session, "abort")).await;
    let is_end = |frame: &Value| frame["type"] == "event" && frame["event"]["type"] == "agent_end";
    let (ended, _) = client.since(from, "agent_end", is_end).await;
    assert!(ended - sent < AT_ONCE, "the turn ended after {:?}", ended - sent);
    let response = client.response(from, &id).await;
    assert_eq!(response["success"], true, "{response}");
    assert_eq!(client.said_of(&id), ["accepted", "started", "finished", "response"]);
    let state = client.ok(on(&session, "get_state")).await;
    assert_eq!(state["data"]["isStreaming"], false);
}

#[tokio::test]
async fn steering_reaches_the_agent_while_it_works() {
    let (_qd, mut client, llm, session) = pi_with_session().await;
    flowing(&mut client, &session, "@@hold name=steered\n@@bash command=\"true\"").await;
    let from = queued_at_once(&mut client, &session, "steer", "turn left").await;
    llm.release("steered");
    let events = client.settled(from, &session).await;
    let read = events.iter().any(|event| {
        event["type"] == "message_end"
            && event["message"]["role"] == "user"
            && event["message"].to_string().contains("turn left")
    });
    assert!(read, "the agent never read the steering message");
}

#[tokio::test]
async fn a_follow_up_is_queued_at_once_and_read_after_the_turn() {
    let (_qd, mut client, llm, session) = pi_with_session().await;
    flowing(&mut client, &session, "@@hold name=later").await;
    let from = queued_at_once(&mut client, &session, "follow_up", "and then?").await;
    llm.release("later");
    client.settled(from, &session).await;
    let messages = client.ok(on(&session, "get_messages")).await["data"]["messages"].clone();
    let mut roles: Vec<&Value> =
        messages.as_array().unwrap().iter().map(|message| &message["role"]).collect();
    roles.retain(|role| *role != "system");
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

#[tokio::test]
async fn reads_and_dialogs_do_not_wait_for_a_running_turn() {
    let (_qd, mut client, llm, session) = pi_with_session().await;
    flowing(&mut client, &session, "@@hold name=busy").await;
    for kind in ["get_state", "get_messages", "get_available_models", "get_session_stats", "get_commands"] {
        let sent = Instant::now();
        client.ok(on(&session, kind)).await;
        assert!(sent.elapsed() < Duration::from_secs(2), "{kind} took {:?}", sent.elapsed());
    }
    let state = client.ok(on(&session, "get_state")).await;
    assert_eq!(state["data"]["isStreaming"], true);
    llm.release("busy");
}

#[tokio::test]
async fn prompts_sent_at_once_run_one_after_the_other() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    let from = client.count();
    let mut ids = Vec::new();
    for number in 1..=3 {
        ids.push(client.send(prompt(&session, &format!("@@text text=\"answer {number}\""))).await);
    }
    for id in &ids {
        assert_eq!(client.response(from, id).await["success"], true);
    }
    let is_third = |frame: &Value| {
        let event = &frame["event"];
        event["type"] == "message_end" && event["message"].to_string().contains("answer 3")
    };
    client.wait_for("the third answer", is_third).await;
    let messages = client.ok(on(&session, "get_messages")).await["data"]["messages"].to_string();
    let places: Vec<usize> =
        (1..=3).map(|number| messages.rfind(&format!("answer {number}")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[tokio::test]
async fn an_abort_sent_right_after_its_prompt_aborts_it() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    // The turn may be anywhere between the wire and the model when the abort comes; several tries meet several places.
    for number in 0..5 {
        let from = client.count();
        let prompted = client.send(prompt(&session, "@@endless delay_ms=5")).await;
        let aborted = client.send(on(&session, "abort")).await;
        for id in [prompted, aborted] {
            let response = client.response(from, &id).await;
            assert_eq!(response["success"], true, "{response}");
        }
        client.settled(from, &session).await;
        let state = client.ok(on(&session, "get_state")).await;
        assert_eq!(state["data"]["isStreaming"], false, "try {number}");
    }
}

#[tokio::test]
async fn follow_ups_sent_at_once_are_queued_in_their_order() {
    let (_qd, mut client, llm, session) = pi_with_session().await;
    flowing(&mut client, &session, "@@hold name=many").await;
    let from = client.count();
    let messages: Vec<String> = (0..20).map(|number| format!("number {number}")).collect();
    for (number, message) in messages.iter().enumerate() {
        let id = format!("f{number}");
        client.send(json!({"type": "follow_up", "sessionId": session, "message": message, "id": id})).await;
    }
    let is_full =
        |frame: &Value| frame["event"]["followUp"].as_array().is_some_and(|queue| queue.len() == 20);
    let (_, full) = client.since(from, "all of them in the queue", is_full).await;
    assert_eq!(full["event"]["followUp"], json!(messages));
    for number in 0..20 {
        assert_eq!(client.response(from, &json!(format!("f{number}"))).await["success"], true);
    }
    llm.release("many");
    client.settled(from, &session).await;
    let heard = client.ok(on(&session, "get_messages")).await["data"]["messages"].clone();
    let heard: Vec<&str> = heard
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "user")
        .filter_map(|message| message["content"].as_str().or(message["content"][0]["text"].as_str()))
        .collect();
    assert_eq!(heard[1..], messages);
}

#[tokio::test]
async fn a_new_conversation_waits_for_the_end_of_the_turn() {
    let (_qd, mut client, llm, session) = pi_with_session().await;
    let from = client.count();
    flowing(&mut client, &session, "@@hold name=whole").await;
    let id = client.send(on(&session, "new_session")).await;
    let state = client.ok(on(&session, "get_state")).await;
    assert_eq!(state["data"]["isStreaming"], true);
    assert!(!client.said_of(&id).contains(&"response".to_owned()));
    llm.release("whole");
    let ends = client.settled(from, &session).await;
    let is_whole = |event: &Value| event["message"]["stopReason"] == "stop";
    assert!(ends.iter().any(is_whole), "the turn was cut off");
    assert_eq!(client.response(from, &id).await["success"], true);
}
