//! Questions with a time limit, forms, and what those see who watch in pi's form.

use crate::support::{events_of, session};
use proptest::prelude::*;
use qd_core::agent::{AgentEvent, MessageHead, NativeMessage, QuestionAnswer};
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, ExpectedPrompt, PromptTurn, Session};
use qd_core::view::watched_form;
use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::input::InterviewQuestion;
use qd_wire::message::Role;
use serde_json::{Value, json};

fn confirm(id: &str, timeout: Option<u64>) -> AgentEvent {
    let (title, message) = ("Sure?".to_owned(), String::new());
    AgentEvent::InputNeeded(InputRequest::Confirm { request_id: id.to_owned(), title, message, timeout })
}

fn ask(session: &mut Session, now: i64, event: AgentEvent) -> Vec<Value> {
    let mut out = EventWriter::default();
    session.agent_event(now, event, &mut out);
    events_of(out.bytes())
}

/// How work ends that was cut off.
const ENDED: [&str; 2] =
    [r#"{"type":"agent_end","messages":[]}"#, r#"{"type":"agent_settled","aborted":true}"#];

fn natives(events: &[Value]) -> Vec<Value> {
    named(events, "x-native").into_iter().map(|event| event["native"].clone()).collect()
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

#[test]
fn without_a_setting_the_agent_gives_up_by_itself() {
    let mut session = session();
    let asked = ask(&mut session, 0, confirm("a", Some(50)));
    assert_eq!(asked[0]["request"]["timeout"], 50);
    ask(&mut session, 0, confirm("b", None));
    assert_eq!(session.next_question_deadline(), Some(50));
    let mut out = EventWriter::default();
    assert!(session.expire_questions(50, &mut out).is_empty());
    let settled = events_of(out.bytes());
    assert_eq!(settled[0]["outcome"], "timed_out");
    assert_eq!(session.open_question_ids(), ["b"]);
    assert_eq!(session.next_question_deadline(), None);
}

#[test]
fn with_a_setting_every_question_ends_and_the_agent_is_told() {
    let mut session = session();
    session.set_question_timeout(Some(60));
    let shown = |events: Vec<Value>| events[0]["request"]["timeout"].clone();
    assert_eq!(shown(ask(&mut session, 0, confirm("short", Some(50)))), 50);
    assert_eq!(shown(ask(&mut session, 0, confirm("long", Some(90)))), 60);
    assert_eq!(shown(ask(&mut session, 0, confirm("none", None))), 60);
    let permission = InputRequest::Permission {
        request_id: "permission".into(),
        title: "May it?".into(),
        description: None,
        metadata: None,
        timeout: None,
    };
    ask(&mut session, 0, AgentEvent::InputNeeded(permission));
    let mut out = EventWriter::default();
    let told = |id: &str| (id.to_owned(), QuestionAnswer::TimedOut);
    assert_eq!(session.expire_questions(50, &mut out), [told("short")]);
    assert!(session.expire_questions(59, &mut out).is_empty());
    let expired = session.expire_questions(60, &mut out);
    assert_eq!(expired, [told("long"), told("none"), told("permission")]);
    assert!(session.open_question_ids().is_empty());
}

#[test]
fn dialogs_without_a_timer_of_the_agents_are_cancelled_when_their_time_is_over() {
    let mut session = session();
    let editor = InputRequest::Editor {
        request_id: "editor".into(),
        title: "Text".into(),
        prefill: None,
        timeout: Some(50),
    };
    let (title, questions) = ("Form".to_owned(), Vec::new());
    let form = InputRequest::Interview { request_id: "form".into(), title, questions, timeout: Some(50) };
    ask(&mut session, 0, AgentEvent::InputNeeded(editor));
    ask(&mut session, 0, AgentEvent::InputNeeded(form));
    ask(&mut session, 0, confirm("confirm", Some(50)));
    let expired = session.expire_questions(50, &mut EventWriter::default());
    let told = |id: &str| (id.to_owned(), QuestionAnswer::Cancelled);
    assert_eq!(expired, [told("editor"), told("form")]);
}

#[test]
fn an_answer_after_its_time_is_refused() {
    let mut session = session();
    ask(&mut session, 0, confirm("a", Some(50)));
    let params = InputResponseParams {
        request_id: "a".into(),
        confirmed: Some(true),
        ..InputResponseParams::default()
    };
    let mut out = EventWriter::default();
    let late = session.answer(50, &params, None, &mut out).unwrap_err();
    assert_eq!(late.to_string(), "Input request 'a' has timed out");
    assert!(out.bytes().is_empty());
    let answered = session.answer(49, &params, None, &mut out).unwrap();
    assert_eq!(answered.answer, QuestionAnswer::Confirmed(true));
    assert_eq!((answered.decision, answered.details), (None, None));
}

#[test]
fn a_question_too_many_is_refused_and_not_forgotten() {
    let mut session = session();
    for number in 0..257 {
        ask(&mut session, 0, confirm(&number.to_string(), None));
    }
    assert_eq!(session.open_question_ids().len(), 256);
    assert_eq!(session.take_refused_questions(), ["256"]);
    assert!(session.take_refused_questions().is_empty());
}

#[test]
fn the_answers_to_a_form_are_checked() {
    let question = |id: &str, kind: &str, options: &[&str], required: bool| InterviewQuestion {
        id: id.to_owned(),
        kind: kind.to_owned(),
        options: (!options.is_empty()).then(|| options.iter().map(|text| (*text).to_owned()).collect()),
        required: Some(required),
        ..InterviewQuestion::default()
    };
    let questions = vec![
        question("name", "text", &[], true),
        question("color", "select", &["red", "blue"], false),
        question("tags", "multiselect", &["x", "y"], false),
    ];
    let request =
        InputRequest::Interview { request_id: "form".into(), title: "Tell".into(), questions, timeout: None };
    let mut session = session();
    ask(&mut session, 0, AgentEvent::InputNeeded(request));
    let mut out = EventWriter::default();
    let mut answer = |responses: Value| {
        let params = InputResponseParams {
            request_id: "form".into(),
            responses: responses.as_object().cloned(),
            ..InputResponseParams::default()
        };
        let answered = session.answer(1, &params, None, &mut out);
        answered.map(|answered| answered.answer).map_err(|error| error.to_string())
    };
    for (responses, reason) in [
        (json!({}), "responses.name: This question must be answered"),
        (json!({ "name": "" }), "responses.name: This question must be answered"),
        (
            json!({ "name": "n", "color": "green" }),
            "responses.color: \"green\" is not one of the options: red, blue",
        ),
        (json!({ "name": "n", "tags": "x" }), "responses.tags: Must be a list of its options: x, y"),
        (json!({ "name": "n", "tags": ["x", "z"] }), "responses.tags: \"z\" is not one of the options"),
    ] {
        let error = answer(responses).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
    let good = json!({ "name": "n", "color": "red", "tags": ["y"], "more": 1 });
    assert_eq!(answer(good.clone()), Ok(QuestionAnswer::Responses(good.as_object().cloned().unwrap())));
}

#[test]
fn who_watches_sees_native_events_and_questions_and_nobody_else_does() {
    let mut session = session();
    let native = || AgentEvent::Native("{\"type\":\"turn_start\"}".into());
    assert!(ask(&mut session, 0, native()).is_empty());
    session.set_watched(Some(watched_form(true)));
    let seen = ask(&mut session, 1, native());
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["event"], "x-native");
    assert_eq!(seen[0]["native"], json!({ "type": "turn_start" }));
    assert!(seen[0].get("seq").is_none());
    let asked = ask(&mut session, 2, confirm("a", None));
    assert_eq!(named(&asked, "x-native").len(), 1);
    assert_eq!(named(&asked, "agent.input_needed").len(), 1);
    let mut out = EventWriter::default();
    session.withdraw_questions(3, &mut out);
    let settled = events_of(out.bytes());
    let resolved = named(&settled, "x-native")[0]["native"].clone();
    assert_eq!(
        resolved,
        json!({ "type": "extension_ui_resolved", "requestId": "a", "outcome": "withdrawn" })
    );
    session.set_watched(None);
    assert!(ask(&mut session, 4, native()).is_empty());
}

#[test]
fn who_watches_hears_the_end_of_work_that_was_cut_off() {
    let mut session = session();
    session.set_watched(Some(watched_form(true)));
    ask(&mut session, 0, AgentEvent::TurnStarted);
    let mut out = EventWriter::default();
    session.gone(1, AgentEnd::Died { error: "x".into() }, &mut out);
    let seen = events_of(out.bytes());
    assert_eq!(natives(&seen), ENDED.map(|text| serde_json::from_str::<Value>(text).unwrap()));
    let mut out = EventWriter::default();
    session.gone(2, AgentEnd::Stopped, &mut out);
    assert!(named(&events_of(out.bytes()), "x-native").is_empty(), "there was nothing to end");
}

#[test]
fn who_watches_hears_the_end_of_a_prompt_that_never_became_a_turn() {
    let prompt = |token| ExpectedPrompt { token, text: "hi".into(), ..ExpectedPrompt::default() };
    // The yes came before the end, or after it.
    for is_late in [false, true] {
        let mut session = session();
        session.set_watched(Some(watched_form(true)));
        session.expect_prompt(prompt(7));
        let mut out = EventWriter::default();
        if !is_late {
            session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
        }
        session.gone(2, AgentEnd::Died { error: "x".into() }, &mut out);
        if is_late {
            assert!(natives(&events_of(out.bytes())).is_empty());
            session.prompt_accepted(3, 7, PromptTurn::After(0), &mut out);
        }
        let expected = ENDED.map(|text| serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(natives(&events_of(out.bytes())), expected, "late: {is_late}");
    }
}

#[test]
fn who_watches_hears_that_the_messages_changed_without_events() {
    let head = MessageHead { role: Role::User, created_at: 5, tool_call_id: None };
    let message = || NativeMessage::new(head.clone(), Vec::new());
    let compacted = |success| AgentEvent::CompactionEnded {
        success,
        will_retry: false,
        error: None,
        summary_failed: false,
        summary: None,
        tokens_before: None,
    };
    let mut session = session();
    let mut out = EventWriter::default();
    session.replace_conversation(0, "n0".into(), None, Vec::new(), &mut out);
    assert!(natives(&events_of(out.bytes())).is_empty(), "nobody watches");
    session.set_watched(Some(watched_form(true)));
    let mut changes = |change: &mut dyn FnMut(&mut Session, &mut EventWriter)| {
        let mut out = EventWriter::default();
        change(&mut session, &mut out);
        let seen = natives(&events_of(out.bytes()));
        seen.into_iter()
            .map(|native| {
                assert_eq!(native["type"], "conversation_changed");
                native["reason"].as_str().unwrap().to_owned()
            })
            .collect::<Vec<_>>()
    };
    let replaced = changes(&mut |s, out| s.replace_conversation(1, "n".into(), None, vec![message()], out));
    assert_eq!(replaced, ["replaced"]);
    assert_eq!(changes(&mut |s, out| s.add_messages(2, vec![message()], out)), ["added"]);
    assert!(changes(&mut |s, out| s.add_messages(2, Vec::new(), out)).is_empty());
    assert_eq!(changes(&mut |s, out| s.agent_event(3, compacted(true), out)), ["compacted"]);
    assert!(changes(&mut |s, out| s.agent_event(4, compacted(false), out)).is_empty());
}

proptest! {
    #[test]
    fn no_question_outlives_its_time(
        asked in prop::collection::vec((0..1000i64, prop::option::of(0..500u64)), 0..20),
        setting in prop::option::of(1..300u64),
        now in 0..2000i64,
    ) {
        let mut session = session();
        session.set_question_timeout(setting);
        let mut out = EventWriter::default();
        for (index, (at, timeout)) in asked.iter().enumerate() {
            session.agent_event(*at, confirm(&index.to_string(), *timeout), &mut out);
        }
        let told: Vec<String> =
            session.expire_questions(now, &mut out).into_iter().map(|(id, _)| id).collect();
        let is_over = |(at, timeout): &(i64, Option<u64>)| {
            let limit = [*timeout, setting].into_iter().flatten().min();
            limit.is_some_and(|limit| at + limit as i64 <= now)
        };
        let over: Vec<String> =
            asked.iter().enumerate().filter(|(_, one)| is_over(one)).map(|(index, _)| index.to_string()).collect();
        prop_assert_eq!(session.open_question_ids().len(), asked.len() - over.len());
        prop_assert!(session.next_question_deadline().is_none_or(|at| at > now));
        prop_assert_eq!(told, if setting.is_some() { over } else { Vec::new() });
    }
}
