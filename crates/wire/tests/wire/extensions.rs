//! What this version does not know survives a round trip unchanged; what it need not know is ignored.

use crate::support::check_round_trip;
use qd_wire::link::LinkLine;
use qd_wire::message::{KnownPart, Message, Part};
use qd_wire::mux::ServerFrame;
use qd_wire::{Event, EventEnvelope, EventPayload};
use serde_json::{Value, json};

#[test]
fn unknown_events_survive_in_every_envelope() {
    for body in [
        r#""event":"x-pi.model_select","a":{"b":[1,null,"x"]},"big":18446744073709551615"#,
        r#""event":"x-qd","payload":null,"meta":{}"#,
        r#""event":"stream.citation","message_id":"m1","url":"u""#,
        r#""event":"agent.working","phase":"dreaming","why":"a later phase""#,
        r#""event":"tool.end","tool_call_id":1"#,
    ] {
        let event = format!(r#"{{"session_id":"s1","runner_id":"local","ts":1,"seq":4,{body}}}"#);
        let envelope: EventEnvelope = check_round_trip("an envelope", &event);
        assert!(matches!(envelope.payload, EventPayload::Other(_)), "{body}");
        assert!(envelope.payload.is_record(), "{body}");
        check_round_trip::<ServerFrame>("a frame", &event.replacen('{', r#"{"channel":"agent","#, 1));
        check_round_trip::<LinkLine>("a line", &event.replacen('{', r#"{"type":"event","#, 1));
    }
}

#[test]
fn unknown_parts_survive() {
    for text in [
        r#"{"type":"x-chart","id":"p1","payload":{"a":[1,2.5,null]},"meta":{"k":"v"}}"#,
        r#"{"type":"x-chart","id":"p1"}"#,
        r#"{"type":"x-chart","id":"p1","payload":null}"#,
        r#"{"type":"x-chart","id":"p1","payload":"text","meta":null,"more":{"x":1}}"#,
        r#"{"type":"x-chart","payload":1}"#,
        r#"{"type":"x-chart","id":7,"meta":[1]}"#,
        r#"{"type":"x-chart","id":""}"#,
        r#"{"type":"citation","id":"p1","url":"u","title":"of a later version"}"#,
        r#"{"type":"tool_call","id":"p1","tool_call_id":"c1","name":"bash","status":"skipped"}"#,
        r#"{"type":"text","id":"p1"}"#,
    ] {
        let part: Part = check_round_trip("a part", text);
        assert!(matches!(part, Part::Other(_)), "{text}");
        let message = format!(r#"{{"id":"m1","idx":0,"role":"assistant","parts":[{text}],"created_at":1}}"#);
        check_round_trip::<Message>("a message", &message);
    }
}

#[test]
fn payload_and_meta_of_an_extension_are_named_fields() {
    let part: Part = serde_json::from_str(r#"{"type":"x-a","id":"p","payload":1,"meta":{"k":2},"more":3}"#)
        .expect("an extension");
    let Part::Other(other) = part else { panic!("kept as it came") };
    assert_eq!((other.kind.as_str(), other.id.as_str()), ("x-a", "p"));
    assert_eq!(other.payload, Some(json!(1)));
    assert_eq!(other.meta.and_then(|meta| meta.get("k").cloned()), Some(json!(2)));
    assert_eq!(Value::Object(other.rest), json!({"more": 3}));
}

#[test]
fn every_known_part_carries_meta() {
    for kind in KnownPart::TYPES {
        let text = json!({
            "type": kind, "id": "p1", "text": "", "tool_call_id": "c", "name": "n", "status": "running",
            "is_error": false, "source": {"source": "url", "url": "u"}, "uri": "u", "meta": {"k": "v"},
        });
        let part: Part = serde_json::from_value(text).expect("a part");
        assert!(matches!(part, Part::Known(_)), "{kind}");
        let after = serde_json::to_value(part).expect("serialises");
        assert_eq!(after["meta"], json!({"k": "v"}), "{kind}");
    }
}

#[test]
fn unknown_fields_of_known_types_are_ignored() {
    let idle: EventEnvelope = serde_json::from_value(json!({
        "session_id": "s1", "runner_id": "local", "ts": 1, "seq": 2, "event": "agent.idle", "later": true,
    }))
    .expect("an event");
    assert_eq!(idle.payload, EventPayload::Known(Event::AgentIdle { reason: None, message_version: None }));

    let message: Message = serde_json::from_value(json!({
        "id": "m", "idx": 0, "role": "user", "created_at": 1, "later": true,
        "parts": [{"type": "text", "id": "p", "text": "x", "later": true}],
    }))
    .expect("a message");
    assert_eq!(message.parts.len(), 1);
    assert!(matches!(message.parts[0], Part::Known(KnownPart::Text { .. })));

    let line: LinkLine =
        serde_json::from_value(json!({"type": "ack", "session_id": "s", "seq": 1, "later": [1]}))
            .expect("a line");
    assert_eq!(line, LinkLine::Ack { session_id: "s".to_owned(), seq: 1 });
}
