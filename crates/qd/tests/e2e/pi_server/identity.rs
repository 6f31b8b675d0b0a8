//! Replay, conflicts, principals and fingerprints, over the wire.

use qd_testkit::pi_server::PiClient;
use serde_json::{Value, json};

use super::{FaceStage, on, rename, with_each_agent};
use crate::{assert_fields, ok_json, with};

with_each_agent!(
    a_replayed_create_delete_or_switch_has_no_second_effect_and_one_response,
    a_duplicate_create_leaves_the_live_session_alone,
    the_same_id_of_two_principals_does_not_collide,
    the_order_of_keys_does_not_change_a_command,
    a_key_replays_under_another_id_and_without_one,
);

fn broadcasts(client: &PiClient, kind: &str, session: &str) -> usize {
    let own = |frame: &&Value| frame["type"] == kind && frame["data"]["sessionId"] == session;
    client.frames().iter().filter(own).count()
}

fn responses(client: &PiClient, id: &str) -> usize {
    client.frames().iter().filter(|frame| frame["type"] == "response" && frame["id"] == id).count()
}

async fn a_replayed_create_delete_or_switch_has_no_second_effect_and_one_response(stage: FaceStage) {
    let mut watcher = stage.qd.pi_client().await;
    let create = stage.create(json!({"sessionId": "r", "id": "c1"}));
    let mut client = stage.client;
    let switch = json!({"type": "switch_session", "sessionId": "r", "id": "s1"});
    let delete = json!({"type": "delete_session", "sessionId": "r", "id": "d1"});
    for command in [&create, &switch, &delete] {
        let first = client.ok(command.clone()).await;
        assert!(first.get("replayed").is_none(), "{first}");
    }
    for command in [&create, &switch, &delete] {
        let from = client.count();
        let id = command["id"].clone();
        client.send(command.clone()).await;
        let again = client.response(from, &id).await;
        assert_eq!((&again["success"], &again["replayed"]), (&json!(true), &json!(true)), "{again}");
    }
    client.caught_up().await;
    watcher.caught_up().await;
    for id in ["c1", "s1", "d1"] {
        assert_eq!(responses(&client, id), 2, "{id}");
        let (first, replay) =
            (["accepted", "started", "finished", "response"], ["accepted", "replayed", "response"]);
        assert_eq!(client.said_of(&json!(id)), [&first[..], &replay].concat(), "{id}");
    }
    for seen in [&client, &watcher] {
        assert_eq!(broadcasts(seen, "session_created", "r"), 1);
        assert_eq!(broadcasts(seen, "session_deleted", "r"), 1);
    }
    let list = client.ok(json!({"type": "list_sessions"})).await;
    assert_eq!(list["data"]["sessions"], json!([]));
}

async fn a_duplicate_create_leaves_the_live_session_alone(mut stage: FaceStage) {
    let session = stage.session().await;
    let mut other = stage.qd.pi_client().await;
    let again = stage.create(json!({"sessionId": session}));
    let mut client = stage.client;
    client.ok(rename(&session, "alive")).await;
    let error = other.refused(again).await;
    assert_eq!(error, format!("Session {session} already exists"));
    assert_eq!(client.ok(on(&session, "get_state")).await["data"]["sessionName"], "alive");
    let events = client.turn(&session, "hello").await;
    assert!(events.iter().any(|event| event["type"] == "message_end"));
    let list = client.ok(json!({"type": "list_sessions"})).await;
    assert_eq!(list["data"]["sessions"].as_array().unwrap().len(), 1);
}

async fn the_same_id_of_two_principals_does_not_collide(stage: FaceStage) {
    let added = ok_json(&stage.qd.cli(&["token", "add", "robot", "--json"]).await);
    let mut robot = stage.qd.pi_client_as(added["token"].as_str().unwrap()).await;
    let create = |name: &str| stage.create(json!({"sessionId": name, "id": "1", "idempotencyKey": "k"}));
    let (of_owner, of_robot) = (create("of-owner"), create("of-robot"));
    let mut owner = stage.client;
    let first = owner.ok(of_owner).await;
    let second = robot.ok(of_robot).await;
    assert_eq!(first["data"]["sessionId"], "of-owner");
    assert_eq!(second["data"]["sessionId"], "of-robot");
    assert!(second.get("replayed").is_none(), "{second}");
    let unknown = json!({"type": "list_sessions", "id": "2", "dependsOn": ["1"]});
    robot.ok(unknown).await;
    // Others see that a command ran, not the token that would let them replay it.
    robot.caught_up().await;
    let is_foreign = |data: &&Value| data["sessionId"] == "of-owner" && data.get("commandId").is_some();
    let foreign: Vec<&Value> = robot.frames().iter().map(|frame| &frame["data"]).filter(is_foreign).collect();
    assert!(!foreign.is_empty());
    assert!(foreign.iter().all(|data| data.get("idempotencyKey").is_none()), "{foreign:?}");
}

async fn the_order_of_keys_does_not_change_a_command(mut stage: FaceStage) {
    let session = stage.session().await;
    let mut client = stage.client;
    let one = format!(
        "{{\"type\":\"set_session_name\",\"id\":\"k\",\"sessionId\":\"{session}\",\"name\":\"n\",\"extra\":{{\"a\":1,\"b\":2}}}}"
    );
    let two = format!(
        "{{\"extra\":{{\"b\":2,\"a\":1}},\"name\":\"n\",\"sessionId\":\"{session}\",\"id\":\"k\",\"type\":\"set_session_name\"}}"
    );
    client.send_text(&one).await;
    client.response(0, &json!("k")).await;
    let from = client.count();
    client.send_text(&two).await;
    let again = client.response(from, &json!("k")).await;
    assert_fields(&again, json!({"success": true, "replayed": true, "sessionVersion": 1}));
    let other = with(rename(&session, "other"), json!({"id": "k"}));
    let from = client.count();
    client.send(other).await;
    let conflict = client.response(from, &json!("k")).await;
    assert_eq!(
        conflict["error"],
        "Conflicting id 'k': previously used for 'set_session_name', now used for 'set_session_name'"
    );
}

async fn a_key_replays_under_another_id_and_without_one(mut stage: FaceStage) {
    let session = stage.session().await;
    let mut client = stage.client;
    let keyed = |name: &str| with(rename(&session, name), json!({"idempotencyKey": "k"}));
    let first = client.ok(keyed("n")).await;
    let second = client.ok(keyed("n")).await;
    assert_eq!((&second["replayed"], &second["sessionVersion"]), (&json!(true), &first["sessionVersion"]));
    assert_ne!(first["id"], second["id"]);
    let from = client.count();
    client.send_text(&keyed("n").to_string()).await;
    let (_, third) = client.since(from, "the replay", |frame| frame["type"] == "response").await;
    assert!(third.get("id").is_none(), "{third}");
    // What was answered by a key's replay can be depended on.
    let depends = json!({"type": "get_state", "sessionId": session, "id": "d", "dependsOn": [second["id"]]});
    client.ok(depends).await;
    assert!(client.refused(keyed("m")).await.starts_with("Conflicting idempotencyKey 'k'"));
}
