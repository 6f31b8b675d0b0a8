//! The event stream: pi's own words for pi, the same words for others; slow readers are told what they missed.

use qd_testkit::pi_server::kinds;
use serde_json::{Value, json};

use super::{demo, demo_session, demo_with_session, on, pi, pi_session, pi_with_session, prompt, up};

#[tokio::test]
async fn a_turn_of_pi_is_told_in_pis_own_words() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    let events = client.turn(&session, "@@bash command=\"echo hi\"\n@@final text=\"done it\"").await;
    let told = kinds(&events);
    let expected = [
        "agent_start",
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "message_start",
        "message_end",
        "turn_end",
        "turn_start",
        "message_start",
        "message_end",
        "turn_end",
        "agent_end",
        "agent_settled",
    ];
    let mut known: Vec<&str> = told.iter().copied().filter(|kind| expected.contains(kind)).collect();
    // The first turn of a session may also show the system message, at its beginning.
    let system: Vec<&Value> = events.iter().filter(|event| event["message"]["role"] == "system").collect();
    if let [start, end] = system[..] {
        assert_eq!((&start["type"], &end["type"]), (&json!("message_start"), &json!("message_end")));
        known.drain(2..4);
    } else {
        assert!(system.is_empty(), "{system:?}");
    }
    assert_eq!(known, expected, "{told:?}");
    let ends = events.iter().filter(|event| event["type"] == "message_end");
    let roles: Vec<&str> = ends.filter_map(|event| event["message"]["role"].as_str()).collect();
    let spoken: Vec<&str> = roles.into_iter().filter(|role| *role != "system").collect();
    assert_eq!(spoken, ["user", "assistant", "toolResult", "assistant"]);
    let update = events.iter().find(|event| event["type"] == "message_update").unwrap();
    assert!(update["assistantMessageEvent"]["type"].is_string(), "{update}");
    let tool = events.iter().find(|event| event["type"] == "tool_execution_start").unwrap();
    assert_eq!((&tool["toolName"], &tool["args"]["command"]), (&json!("bash"), &json!("echo hi")));
    let end = events.iter().find(|event| event["type"] == "agent_end").unwrap();
    assert!(end["messages"].to_string().contains("done it"));
    assert!(!told.contains(&"x-native"));
    let private =
        events.iter().any(|event| event["statusKey"].as_str().is_some_and(|key| key.starts_with("qd_")));
    assert!(!private, "our own signals are not for clients");
}

#[tokio::test]
async fn a_turn_of_another_agent_is_told_in_the_same_words() {
    let (_qd, mut client, session) = demo_with_session().await;
    let events = client.turn(&session, "hello").await;
    let told = kinds(&events);
    assert_eq!(told.first(), Some(&"agent_start"), "{told:?}");
    assert_eq!(told[told.len() - 3..], ["turn_end", "agent_end", "agent_settled"], "{told:?}");
    let updates = events.iter().map(|event| &event["assistantMessageEvent"]);
    let deltas = updates.filter(|update| update["type"] == "text_delta");
    let text: String = deltas.filter_map(|update| update["delta"].as_str()).collect();
    assert!(!text.is_empty());
    let is_answer =
        |event: &&Value| event["type"] == "message_end" && event["message"]["role"] == "assistant";
    let answer = events.iter().rfind(is_answer).unwrap();
    assert!(answer["message"]["content"].to_string().contains(text.split('\n').next().unwrap()), "{answer}");
}

#[tokio::test]
async fn compaction_and_retries_have_the_names_of_the_document() {
    let (qd, mut client, _llm) = pi().await;
    let session =
        client.create(json!({"cwd": qd.sandbox().work(), "provider": "fake", "model": "fake-small"})).await;
    let long = "word ".repeat(5_000);
    client.turn(&session, &format!("@@text text=\"one\"\n{long}")).await;
    let events = client.turn(&session, &format!("@@text text=\"two\"\n{long}")).await;
    let told = kinds(&events);
    assert!(told.contains(&"auto_compaction_start") && told.contains(&"auto_compaction_end"), "{told:?}");
    let session = pi_session(&qd, &mut client).await;
    let events = client.turn(&session, "@@error status=529 times=1\n@@text text=\"at last\"").await;
    let told = kinds(&events);
    assert!(told.contains(&"auto_retry_start") && told.contains(&"auto_retry_end"), "{told:?}");
}

#[tokio::test]
async fn events_go_to_followers_and_lifecycle_to_all() {
    let (qd, mut client) = demo().await;
    let mut bystander = qd.pi_client().await;
    let session = demo_session(&mut client).await;
    client.turn(&session, "hello").await;
    bystander.caught_up().await;
    let frames = bystander.frames();
    assert!(frames.iter().all(|frame| frame["type"] != "event"), "only followers get events");
    assert!(frames.iter().any(|frame| frame["type"] == "session_created"));
    let prompts: Vec<&Value> =
        frames.iter().filter(|frame| frame["data"]["commandType"] == "prompt").collect();
    assert_eq!(prompts.len(), 3, "{prompts:?}");
}

#[tokio::test]
async fn sessions_of_one_face_are_there_on_the_other() {
    let (qd, mut client) = demo().await;
    let mut mux = qd.connect().await;
    let canonical = mux.create(json!({"harness": "demo"})).await;
    let is_news =
        |frame: &Value| frame["type"] == "session_created" && frame["data"]["sessionId"] == *canonical;
    client.wait_for("the news", is_news).await;
    client.ok(on(&canonical, "switch_session")).await;
    let from = client.count();
    mux.prompt(&canonical, "hello").await;
    let events = client.settled(from, &canonical).await;
    assert!(!events.is_empty());
    let session = demo_session(&mut client).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    client.ok(prompt(&session, "hello")).await;
    mux.wait_event("stream.message_end").await;
}

#[tokio::test]
async fn a_slow_reader_is_told_of_the_gap_and_where_the_session_stands() {
    let (qd, mut client) = up(crate::sandbox(), &[("QD_PI_BACKLOG_BYTES_MAX", "65536")]).await;
    let session = demo_session(&mut client).await;
    let mut slow = qd.pi_client().await;
    slow.ok(on(&session, "switch_session")).await;
    slow.skip();
    // It reads nothing while more is said than all buffers between hold. It may not take long: who is silent for long is
    // taken for dead.
    for _ in 0..5 {
        client.turn(&session, "/long 20000").await;
    }
    let gap = slow.wait_event("event_gap").await;
    assert!(gap["missed"].as_u64().unwrap() > 0, "{gap}");
    let resync = slow.wait_event("session_resync").await;
    assert_eq!(resync["sessionInfo"]["sessionId"], session.as_str(), "{resync}");
    // There may have been several gaps, each with its resync; the last one tells how it stands now.
    let count = client.ok(on(&session, "get_state")).await["data"]["messageCount"].clone();
    if resync["sessionInfo"]["messageCount"] != count {
        let is_last = |frame: &Value| {
            frame["event"]["type"] == "session_resync"
                && frame["event"]["sessionInfo"]["messageCount"] == count
        };
        slow.wait_for("the last resync", is_last).await;
    }
    let from = slow.count();
    client.turn(&session, "hello").await;
    let events = slow.settled(from, &session).await;
    assert!(kinds(&events).contains(&"agent_start"), "after the resync everything comes again");
}
