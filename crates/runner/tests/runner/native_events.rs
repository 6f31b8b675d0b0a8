//! Native events are for the hub alone, and only on the link by which it asked for them.

use crate::support::hub_link::{HubEnd, TestRunner};
use serde_json::{Value, json};

fn is_native(line: &Value) -> bool {
    line["event"] == "x-native"
}

async fn watch(hub: &HubEnd, on: bool) {
    hub.say(json!({ "type": "session.watch", "session_id": "s1", "on": on })).await;
}

/// One whole turn; what came of it is in `hub.events`.
async fn turn(hub: &mut HubEnd) {
    hub.events.clear();
    hub.turn("/text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_events_end_with_the_link_and_never_reach_local_clients() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("s1").await;
    let mut local = runner.client().await;
    assert_eq!(local.call("s1", "session.attach", json!({})).await["success"], true);
    watch(&hub, true).await;
    turn(&mut hub).await;
    assert!(hub.events.iter().any(is_native));
    local.find("the end", |line| line["event"] == "agent.idle" && line["reason"] == "stop").await;
    assert!(local.events.iter().any(|line| line["event"] == "stream.text_delta"));
    assert!(!local.events.iter().any(is_native));
    let health = local.call("", "runner.health", json!({})).await;
    assert_eq!((&health["success"], &health["data"]["agents"]), (&json!(true), &json!(1)), "{health}");
    let sessions = local.call("", "runner.sessions", json!({})).await;
    assert_eq!(sessions["data"]["sessions"][0]["session_id"], "s1", "{sessions}");

    let committed = hub.read.clone();
    hub.ack("s1").await;
    drop(hub);
    let mut hub = address.accept(&committed).await;
    // Live again, and nobody has asked for anything yet.
    hub.find("how the session stands", |line| line["event"] == "session.resync").await;
    turn(&mut hub).await;
    assert!(hub.events.iter().any(|line| line["event"] == "stream.text_delta"));
    assert!(!hub.events.iter().any(is_native));
    watch(&hub, true).await;
    turn(&mut hub).await;
    assert!(hub.events.iter().any(is_native));
    runner.end().await;
}
