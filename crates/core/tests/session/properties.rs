//! Whatever an agent does, in whatever order, a session stays truthful.

use crate::support::{events_of, session};
use proptest::prelude::*;
use qd_core::agent::{AgentEvent, MessageHead, NativeMessage};
use qd_core::event_writer::EventWriter;
use qd_core::session::AgentEnd;
use qd_wire::InputRequest;
use qd_wire::event::AgentPhase;
use qd_wire::message::{Role, StopReason};
use serde_json::{Value, json};

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::Tool), Just(Role::System)]
}

fn head() -> impl Strategy<Value = MessageHead> {
    (role(), 0i64..4).prop_map(|(role, created_at)| MessageHead { role, created_at, tool_call_id: None })
}

fn native(head: MessageHead, stop_reason: Option<StopReason>) -> NativeMessage {
    NativeMessage { stop_reason, ..NativeMessage::new(head, Vec::new()) }
}

fn agent_event() -> impl Strategy<Value = AgentEvent> {
    let tool = || (0u8..3).prop_map(|number| format!("t{number}"));
    let stop = prop_oneof![Just(StopReason::Stop), Just(StopReason::Error), Just(StopReason::Aborted)];
    prop_oneof![
        Just(AgentEvent::TurnStarted),
        any::<bool>().prop_map(|will_retry| AgentEvent::RunEnded { will_retry }),
        any::<bool>().prop_map(|aborted| AgentEvent::TurnSettled { aborted }),
        head().prop_map(AgentEvent::MessageStarted),
        (0u32..3, "\\PC{0,8}").prop_map(|(index, delta)| AgentEvent::TextDelta { index, delta }),
        (0u32..3, "\\PC{0,8}").prop_map(|(index, delta)| AgentEvent::ThinkingDelta { index, delta }),
        (0u32..3, tool()).prop_map(|(index, tool_call_id)| AgentEvent::ToolCallStarted {
            index,
            tool_call_id,
            name: "bash".into()
        }),
        (0u32..3, "[a-z]{0,4}").prop_map(|(index, delta)| AgentEvent::ToolCallDelta { index, delta }),
        (head(), stop).prop_map(|(head, stop)| AgentEvent::MessageEnded(native(head, Some(stop)))),
        tool().prop_map(|tool_call_id| AgentEvent::ToolStarted {
            tool_call_id,
            name: "bash".into(),
            input: None
        }),
        tool().prop_map(|tool_call_id| AgentEvent::ToolEnded {
            tool_call_id,
            name: "bash".into(),
            output: Value::Null,
            is_error: false,
            duration_ms: None
        }),
        Just(AgentEvent::CompactionStarted { reason: "threshold".into() }),
        Just(AgentEvent::CompactionEnded {
            success: true,
            will_retry: false,
            error: None,
            summary_failed: false,
            summary: None,
            tokens_before: None
        }),
        Just(AgentEvent::PhaseHint { phase: Some(AgentPhase::ToolRunning), detail: None }),
        (0u8..4).prop_map(|number| AgentEvent::InputNeeded(InputRequest::Confirm {
            request_id: format!("q{number}"),
            title: "sure?".into(),
            message: String::new(),
            timeout: Some(5),
        })),
        Just(AgentEvent::Unknown { event: "x-pi.new".into(), fields: Default::default() }),
    ]
}

/// Checks what a client may rely on.
fn check(events: &[Value]) {
    let mut open_message: Option<String> = None;
    let mut open_questions = std::collections::BTreeSet::new();
    let mut seq = 0;
    for event in events {
        if let Some(number) = event["seq"].as_u64() {
            seq += 1;
            assert_eq!(number, seq, "records have no holes");
        }
        match event["event"].as_str().unwrap() {
            "stream.message_start" => {
                let id = event["message_id"].as_str().unwrap().to_owned();
                assert_eq!(open_message.replace(id), None, "a message started inside another");
            }
            "stream.message_end" => {
                let id = event["message"]["id"].as_str().unwrap();
                assert_eq!(open_message.take().as_deref(), Some(id), "start and end have one id");
            }
            "agent.input_needed" => {
                let id = event["request"]["request_id"].as_str().unwrap().to_owned();
                assert!(open_questions.insert(id), "a question is asked once");
            }
            "agent.input_resolved" => {
                let id = event["request_id"].as_str().unwrap();
                assert!(open_questions.remove(id), "only an open question is settled");
            }
            _ => {}
        }
    }
    assert_eq!(open_message, None, "a message was left open");
    assert!(open_questions.is_empty(), "a question was left open");
}

proptest! {
    #[test]
    fn whatever_happens_everything_is_closed(events in prop::collection::vec(agent_event(), 0..60), died in any::<bool>()) {
        let (mut session, mut out) = (session(), EventWriter::default());
        for (at, event) in events.into_iter().enumerate() {
            let now = at as i64;
            session.agent_event(now, event, &mut out);
            session.expire_questions(now, &mut out);
            // The snapshot must always be serialisable and agree with the stream's position.
            let attach = serde_json::to_value(session.attach(Some(0))).unwrap();
            prop_assert_eq!(attach["seq"].as_u64().unwrap(), session.memory().last_seq);
        }
        let gone = if died { AgentEnd::Died { error: "x".into() } } else { AgentEnd::Closed { reason: "x".into() } };
        session.gone(100, gone, &mut out);
        check(&events_of(out.bytes()));
        prop_assert!(session.open_question_ids().is_empty());
    }

    /// A client that takes the snapshot at any point and the deltas after it has the text of one that saw all.
    #[test]
    fn a_snapshot_and_what_follows_make_the_whole(deltas in prop::collection::vec((0u32..3, "\\PC{0,6}"), 1..30), cut in 0usize..30) {
        let (mut session, mut out) = (session(), EventWriter::default());
        let head = MessageHead { role: Role::Assistant, created_at: 1, tool_call_id: None };
        session.agent_event(0, AgentEvent::TurnStarted, &mut out);
        session.agent_event(0, AgentEvent::MessageStarted(head), &mut out);
        let cut = cut.min(deltas.len());
        let mut whole = std::collections::BTreeMap::<u64, String>::new();
        let mut late = std::collections::BTreeMap::<u64, String>::new();
        for (position, (index, delta)) in deltas.into_iter().enumerate() {
            if position == cut {
                late = snapshot(&serde_json::to_value(session.attach(Some(0))).unwrap());
            }
            out.take();
            session.agent_event(0, AgentEvent::TextDelta { index, delta: delta.clone() }, &mut out);
            whole.entry(u64::from(index)).or_default().push_str(&delta);
            if position >= cut {
                for event in events_of(out.bytes()).iter().filter(|event| event["event"] == "stream.text_delta") {
                    let block = late.entry(event["content_index"].as_u64().unwrap()).or_default();
                    prop_assert_eq!(block.chars().count() as u64, event["offset"].as_u64().unwrap());
                    block.push_str(event["delta"].as_str().unwrap());
                }
            }
        }
        if cut < usize::MAX && !late.is_empty() {
            prop_assert_eq!(late, whole);
        }
    }
}

fn snapshot(attach: &Value) -> std::collections::BTreeMap<u64, String> {
    let blocks = attach["partial"]["message"]["blocks"].as_array().cloned().unwrap_or_default();
    blocks
        .iter()
        .map(|block| (block["content_index"].as_u64().unwrap(), block["text"].as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn a_late_answer_is_told_so() {
    let (mut session, mut out) = (session(), EventWriter::default());
    let request = InputRequest::Select {
        request_id: "q".into(),
        title: "which?".into(),
        options: vec!["a".into(), "b".into()],
        timeout: None,
    };
    session.agent_event(0, AgentEvent::InputNeeded(request), &mut out);
    let mut answer = |value: Value| {
        let response = serde_json::from_value(value).unwrap();
        let answered = session.answer(1, &response, Some("alice"), &mut out);
        answered.map(|answered| answered.answer).map_err(|error| error.to_string())
    };
    assert_eq!(
        answer(json!({"request_id": "q", "value": "c"})),
        Err("'c' is not one of the options: a, b".into())
    );
    assert!(answer(json!({"request_id": "q", "value": "b"})).is_ok());
    assert_eq!(
        answer(json!({"request_id": "q", "value": "a"})),
        Err("Input request 'q' was already answered".into())
    );
    assert_eq!(answer(json!({"request_id": "z"})), Err("No pending input request with id 'z'".into()));
}

#[test]
fn what_comes_after_the_turn_does_not_start_another() {
    let (mut session, mut out) = (session(), EventWriter::default());
    let tool = |tool_call_id: &str| AgentEvent::ToolStarted {
        tool_call_id: tool_call_id.into(),
        name: "bash".into(),
        input: None,
    };
    session.agent_event(0, AgentEvent::TurnStarted, &mut out);
    session.agent_event(1, tool("t1"), &mut out);
    session.agent_event(2, AgentEvent::TurnSettled { aborted: false }, &mut out);
    let late = AgentEvent::ToolEnded {
        tool_call_id: "t1".into(),
        name: "bash".into(),
        output: Value::Null,
        is_error: false,
        duration_ms: None,
    };
    session.agent_event(3, late, &mut out);
    session.agent_event(
        4,
        AgentEvent::RetryStarted { attempt: 1, max_attempts: 3, delay_ms: 1, error: "x".into() },
        &mut out,
    );
    assert!(!session.is_working());
}

#[test]
fn a_prompt_that_failed_names_no_later_message() {
    use qd_core::session::ExpectedPrompt;
    let (mut session, mut out) = (session(), EventWriter::default());
    let expect = |token, client_id: &str| ExpectedPrompt {
        token,
        text: String::new(),
        client_id: Some(client_id.into()),
        ..ExpectedPrompt::default()
    };
    session.expect_prompt(expect(1, "A"));
    session.forget_prompt(1);
    session.expect_prompt(expect(2, "B"));
    let head = MessageHead { role: Role::User, created_at: 1, tool_call_id: None };
    session.agent_event(0, AgentEvent::MessageEnded(native(head, None)), &mut out);
    let end =
        events_of(out.bytes()).into_iter().find(|event| event["event"] == "stream.message_end").unwrap();
    assert_eq!(end["message"]["client_id"], "B");
}

#[test]
fn events_nobody_knows_are_passed_on_and_counted() {
    let (mut session, mut out) = (session(), EventWriter::default());
    assert_eq!(session.state().unknown_events, None);
    let unknown = AgentEvent::Unknown { event: "x-pi.new".into(), fields: Default::default() };
    session.agent_event(0, unknown, &mut out);
    assert_eq!(events_of(out.bytes())[0]["event"], "x-pi.new");
    assert_eq!(session.state().unknown_events, Some(1));
}
