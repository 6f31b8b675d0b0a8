//! Questions with a time limit, forms, and what those see who watch in pi's form.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failing test")]

mod support;

use proptest::prelude::*;
use qd_core::agent::{AgentEvent, Answer};
use qd_core::outbox::Outbox;
use qd_core::session::{Gone, Session};
use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::input::InterviewQuestion;
use serde_json::{Value, json};
use support::{events_of, session};

fn confirm(id: &str, timeout: Option<u64>) -> AgentEvent {
    let (title, message) = ("Sure?".to_owned(), String::new());
    AgentEvent::InputNeeded(InputRequest::Confirm { request_id: id.to_owned(), title, message, timeout })
}

fn ask(session: &mut Session, now: i64, event: AgentEvent) -> Vec<Value> {
    let mut out = Outbox::default();
    session.agent_event(now, event, &mut out);
    events_of(out.bytes())
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
    let mut out = Outbox::default();
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
    };
    ask(&mut session, 0, AgentEvent::InputNeeded(permission));
    let mut out = Outbox::default();
    assert_eq!(session.expire_questions(50, &mut out), ["short"]);
    assert!(session.expire_questions(59, &mut out).is_empty());
    assert_eq!(session.expire_questions(60, &mut out), ["long", "none", "permission"]);
    assert!(session.open_question_ids().is_empty());
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
    let mut out = Outbox::default();
    let mut answer = |responses: Value| {
        let params = InputResponseParams {
            request_id: "form".into(),
            responses: responses.as_object().cloned(),
            ..InputResponseParams::default()
        };
        session.answer(1, &params, None, &mut out).map_err(|error| error.to_string())
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
    assert_eq!(answer(good.clone()), Ok(Answer::Responses(good.as_object().cloned().unwrap())));
}

#[test]
fn who_watches_sees_native_events_and_questions_and_nobody_else_does() {
    let mut session = session();
    let native = || AgentEvent::Native("{\"type\":\"turn_start\"}".into());
    assert!(ask(&mut session, 0, native()).is_empty());
    session.set_watched(true);
    let seen = ask(&mut session, 1, native());
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["event"], "x-native");
    assert_eq!(seen[0]["native"], json!({ "type": "turn_start" }));
    assert!(seen[0].get("seq").is_none());
    let asked = ask(&mut session, 2, confirm("a", None));
    assert_eq!(named(&asked, "x-native").len(), 1);
    assert_eq!(named(&asked, "agent.input_needed").len(), 1);
    let mut out = Outbox::default();
    session.withdraw_questions(3, &mut out);
    let settled = events_of(out.bytes());
    let resolved = named(&settled, "x-native")[0]["native"].clone();
    assert_eq!(
        resolved,
        json!({ "type": "extension_ui_resolved", "requestId": "a", "outcome": "withdrawn" })
    );
    session.set_watched(false);
    assert!(ask(&mut session, 4, native()).is_empty());
}

#[test]
fn who_watches_hears_the_end_of_work_that_was_cut_off() {
    let mut session = session();
    session.set_watched(true);
    ask(&mut session, 0, AgentEvent::TurnStarted);
    let mut out = Outbox::default();
    session.gone(1, Gone::Died { error: "x".into() }, &mut out);
    let seen = events_of(out.bytes());
    assert_eq!(named(&seen, "x-native")[0]["native"]["type"], "agent_end");
    let mut out = Outbox::default();
    session.gone(2, Gone::Stopped, &mut out);
    assert!(named(&events_of(out.bytes()), "x-native").is_empty(), "there was nothing to end");
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
        let mut out = Outbox::default();
        for (index, (at, timeout)) in asked.iter().enumerate() {
            session.agent_event(*at, confirm(&index.to_string(), *timeout), &mut out);
        }
        let told = session.expire_questions(now, &mut out);
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
