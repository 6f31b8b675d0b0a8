use std::sync::Arc;

use qd_core::view::pi_server::request;
use qd_wire::pi_server::{CommandAccepted, CommandFinished, Response, ServerMessage};
use serde_json::json;

use super::*;

const COMMAND: &str = r#"{"type":"prompt","id":"a\"b","sessionId":"s","message":"m","dependsOn":["x","ü\n"],
    "ifSessionVersion":3,"idempotencyKey":"k"}"#;

fn outcome() -> PiServerOutcome {
    PiServerOutcome {
        data: Some(Arc::from("{\"n\":1.50}")),
        error: Some(Arc::from("no \"luck\"")),
        code: Some(ErrorCode::Failed),
        session_version: Some(4),
        timed_out: true,
        indeterminate: true,
        ..PiServerOutcome::default()
    }
}

/// The text of the frame, which is the only one.
fn text(frames: &[u8]) -> String {
    let (frame, payload) = frame::split_text(frames).unwrap();
    assert_eq!(frame.len(), frames.len());
    String::from_utf8(payload.to_vec()).unwrap()
}

/// The text of a response, in pieces or not.
fn whole(frame: PiFrame) -> String {
    match frame {
        PiFrame::Whole(frame) => text(&frame),
        PiFrame::Pieces(pieces) => text(&pieces.concat()),
    }
}

fn accepted(key: Option<&str>) -> CommandAccepted {
    CommandAccepted {
        command_id: "a\"b".to_owned(),
        command_type: "prompt".to_owned(),
        session_id: Some("s".to_owned()),
        depends_on: vec!["x".to_owned(), "ü\n".to_owned()],
        if_session_version: Some(3),
        idempotency_key: key.map(str::to_owned),
    }
}

/// What is written by hand is what the wire types write.
#[test]
fn frames_of_commands_are_those_of_the_wire_types() {
    let request = request::read(COMMAND).unwrap();
    let heading = CommandHeading::new(&request, request.envelope.id.as_deref().unwrap());
    let outcome = outcome();
    for (for_own, key) in [(true, Some("k")), (false, None)] {
        let frame = |phase| {
            let mut out = BytesMut::new();
            heading.push_frame(&mut out, phase, for_own);
            text(&out)
        };
        assert_eq!(
            frame(CommandPhase::Accepted),
            json(&ServerMessage::CommandAccepted { data: accepted(key) })
        );
        assert_eq!(
            frame(CommandPhase::Started),
            json(&ServerMessage::CommandStarted { data: accepted(key) })
        );
        let finished = CommandFinished {
            command: accepted(key),
            success: false,
            error: Some("no \"luck\"".to_owned()),
            code: Some(ErrorCode::Failed),
            session_version: Some(4),
            replayed: Some(true),
        };
        assert_eq!(
            frame(CommandPhase::Finished { outcome: &outcome, replayed: true }),
            json(&ServerMessage::CommandFinished { data: finished })
        );
    }
}

#[test]
fn responses_are_those_of_the_wire_types() {
    let written = whole(response(Some("a\"b"), "prompt", &outcome(), true));
    let typed = ServerMessage::Response(Response {
        id: Some(json!("a\"b")),
        command: "prompt".to_owned(),
        success: false,
        data: Some(json!({"n": 1.5})),
        error: Some("no \"luck\"".to_owned()),
        code: Some(ErrorCode::Failed),
        limit: None,
        session_version: Some(4),
        replayed: Some(true),
        timed_out: Some(true),
        indeterminate: Some(true),
    });
    // Data is passed on as it came.
    assert_eq!(written.replace("1.50", "1.5"), json(&typed));
    let success = PiServerOutcome { success: true, ..PiServerOutcome::default() };
    assert_eq!(
        whole(response(None, "abort", &success, false)),
        r#"{"type":"response","command":"abort","success":true}"#
    );
    let data: Arc<str> = json!({ "text": "x".repeat(100_000) }).to_string().into();
    let great =
        PiServerOutcome { data: Some(Arc::clone(&data)), success: true, ..PiServerOutcome::default() };
    let frame = response(None, "bash", &great, true);
    assert!(
        matches!(&frame, PiFrame::Pieces(pieces) if pieces[1].as_ptr() == data.as_ptr()),
        "it is not copied"
    );
    assert_eq!(
        whole(frame),
        format!(r#"{{"type":"response","command":"bash","success":true,"data":{data},"replayed":true}}"#)
    );
    assert_eq!(
        text(&refusal(Some(&json!(7)), "unknown", &CodedError::invalid("Invalid JSON"))),
        r#"{"type":"response","id":7,"command":"unknown","success":false,"error":"Invalid JSON","code":"invalid_request"}"#
    );
    let full = ErrorCode::TooManyInFlight.with("Wait").with_limit(16);
    let full: Value = serde_json::from_str(&text(&refusal(None, "prompt", &full))).unwrap();
    assert_eq!((&full["code"], &full["limit"]), (&json!("too_many_in_flight"), &json!(16)));
}

#[test]
fn events_are_those_of_the_wire_types() {
    let gap = FaceEvent::EventGap { missed: 3 };
    assert_eq!(
        text(&event("s\"", &gap)),
        r#"{"type":"event","sessionId":"s\"","event":{"type":"event_gap","missed":3}}"#
    );
    assert_eq!(text(&lifecycle_gap(2)), r#"{"type":"lifecycle_gap","data":{"missed":2}}"#);
    assert_eq!(text(&session_deleted("s")), r#"{"type":"session_deleted","data":{"sessionId":"s"}}"#);
}
