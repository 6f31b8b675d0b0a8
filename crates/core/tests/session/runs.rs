//! Programs in terminals: their records, their questions, their end.

use crate::support::{events_of, session};
use qd_core::agent::QuestionAnswer;
use qd_core::event_writer::EventWriter;
use qd_core::session::{RunInputNote, RunStart, Session, SettledAnswer};
use qd_core::terminal::{ScreenQuestion, ScreenRequest};
use qd_wire::command::InputResponseParams;
use qd_wire::data::{Resume, SessionStatus};
use qd_wire::event::Event;
use qd_wire::run::{AwaitingReason, Decision, PermissionSource, ScreenChoice, TerminalSnapshot};
use serde_json::{Value, json};

fn said(session: &mut Session, act: impl FnOnce(&mut Session, &mut EventWriter)) -> Vec<Value> {
    let mut out = EventWriter::default();
    act(session, &mut out);
    events_of(out.bytes())
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

fn start() -> RunStart {
    let (tool, command, cwd) = ("bash".to_owned(), "bash -l".to_owned(), "/work".to_owned());
    RunStart { tool, command, cwd, pid: Some(7), cols: 80, rows: 24 }
}

fn running() -> Session {
    let mut session = session();
    said(&mut session, |session, out| session.run_started(1, start(), out));
    session
}

fn yes_no(prompt: &str) -> ScreenQuestion {
    let request = ScreenRequest::Permission {
        approve_text: "y\n".into(),
        deny_text: "n\n".into(),
        choices: Vec::new(),
    };
    ScreenQuestion { reason: AwaitingReason::Permission, prompt: prompt.into(), request }
}

fn ask(session: &mut Session, question: ScreenQuestion, id: &str) -> Vec<Value> {
    said(session, |session, out| session.run_screen_question(5, Some((question, id.into())), out))
}

fn answer(session: &mut Session, params: InputResponseParams) -> SettledAnswer {
    session.answer(6, &params, Some("alice"), &mut EventWriter::default()).unwrap()
}

fn to(id: &str) -> InputResponseParams {
    InputResponseParams { request_id: id.into(), ..InputResponseParams::default() }
}

#[test]
fn a_run_from_its_start_to_its_end() {
    let mut session = session();
    let events = said(&mut session, |session, out| {
        session.run_started(1, start(), out);
        session.run_output(2, "hello\r\n", out);
        session.run_output(2, "", out);
        session.run_resized(3, 100, 30, out);
        session.run_resized(3, 100, 30, out);
        let note = RunInputNote {
            actor: "web".into(),
            input_id: "i1".into(),
            text_redacted: "x".into(),
            text_sha256: "h".into(),
            user_id: Some("alice".into()),
        };
        session.run_input(4, note, out);
        session.run_exited(9, 0, None, None, out);
        session.run_exited(10, 1, None, None, out);
    });
    assert_eq!(
        names(&events),
        ["session.created", "run.started", "run.output", "run.resized", "run.input", "run.exited"]
    );
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(session.status(), SessionStatus::Closed);
    let state = session.state().run.unwrap();
    assert_eq!((state.cols, state.rows, state.exit_code, state.pid), (100, 30, Some(0), None));
    assert_eq!((state.started_at, state.exited_at), (Some(1), Some(9)));
    // The same command again, in the same session.
    let again = said(&mut session, |session, out| session.run_started(20, start(), out));
    assert_eq!(names(&again), ["run.started"]);
    assert_eq!(session.status(), SessionStatus::Working);
    assert_eq!(session.run_state().unwrap().exit_code, None);
}

#[test]
fn a_question_on_the_screen_is_asked_kept_and_withdrawn() {
    let mut session = running();
    let asked = ask(&mut session, yes_no("Continue?"), "q1");
    assert_eq!(names(&asked), ["agent.input_needed", "run.awaiting_input"]);
    assert_eq!(asked[0]["request"]["type"], "permission");
    assert_eq!(asked[0]["request"]["metadata"]["source"], "screen");
    assert_eq!(asked[0]["request"]["metadata"]["approve_text"], "y\n");
    assert_eq!(asked[1]["request_id"], "q1");
    assert_eq!(asked[1]["reason"], "permission");
    assert!(ask(&mut session, yes_no("Continue?"), "q2").is_empty(), "it is the same one");
    assert_eq!(session.run_state().unwrap().awaiting.as_ref().unwrap().request_id.as_deref(), Some("q1"));
    let other = ask(&mut session, yes_no("Really?"), "q3");
    assert_eq!(names(&other), ["agent.input_resolved", "agent.input_needed", "run.awaiting_input"]);
    assert_eq!(other[0]["outcome"], "withdrawn");
    let gone = said(&mut session, |session, out| session.run_screen_question(7, None, out));
    assert_eq!(names(&gone), ["agent.input_resolved"]);
    assert_eq!(session.run_state().unwrap().awaiting, None);
    assert!(said(&mut session, |session, out| session.run_screen_question(7, None, out)).is_empty());
}

#[test]
fn an_answer_says_what_to_type() {
    let mut session = running();
    ask(&mut session, yes_no("Continue?"), "q1");
    let approved = InputResponseParams { decision: Some(Decision::ApproveForSession), ..to("q1") };
    let answered = answer(&mut session, approved);
    assert_eq!(answered.source(), PermissionSource::Screen);
    assert_eq!(answered.decision, Some(Decision::Approve), "only a gate can allow for the session");
    assert_eq!(answered.text_to_type().as_deref(), Some("y\n"));
    assert!(session.memory().allowances.is_empty());
    assert_eq!(session.run_state().unwrap().awaiting, None);

    ask(&mut session, yes_no("Continue?"), "q2");
    let denied = answer(&mut session, InputResponseParams { confirmed: Some(false), ..to("q2") });
    assert_eq!(denied.text_to_type().as_deref(), Some("n\n"));

    let choices = ["one", "two"].map(|label| ScreenChoice { label: label.into(), text: format!("{label}!") });
    let request = ScreenRequest::Choice { choices: choices.to_vec() };
    let menu = ScreenQuestion { reason: AwaitingReason::Choice, prompt: "Which?".into(), request };
    let asked = ask(&mut session, menu, "q3");
    assert_eq!(asked[0]["request"]["options"], json!(["one", "two"]));
    let chosen = answer(&mut session, InputResponseParams { value: Some("two".into()), ..to("q3") });
    assert_eq!(chosen.answer, QuestionAnswer::Value("two".into()));
    assert_eq!(chosen.text_to_type().as_deref(), Some("two!"));

    let request = ScreenRequest::Text { secret: true };
    ask(
        &mut session,
        ScreenQuestion { reason: AwaitingReason::Prompt, prompt: "Password:".into(), request },
        "q4",
    );
    let typed = answer(&mut session, InputResponseParams { value: Some("pw".into()), ..to("q4") });
    assert_eq!(typed.text_to_type().as_deref(), Some("pw\r"));

    ask(&mut session, yes_no("Again?"), "q5");
    let cancelled = answer(&mut session, InputResponseParams { cancelled: Some(true), ..to("q5") });
    assert_eq!(cancelled.text_to_type(), None);
}

#[test]
fn a_menu_of_yes_and_no_can_be_answered_by_its_choices_too() {
    let mut session = running();
    let choices =
        ["Yes", "Always", "No"].map(|label| ScreenChoice { label: label.into(), text: label[..1].into() });
    let (approve_text, deny_text) = ("Y".to_owned(), "N".to_owned());
    let request = ScreenRequest::Permission { approve_text, deny_text, choices: choices.to_vec() };
    ask(
        &mut session,
        ScreenQuestion { reason: AwaitingReason::Permission, prompt: "May I?".into(), request },
        "q1",
    );
    let wrong = InputResponseParams { value: Some("Maybe".into()), ..to("q1") };
    let error = session.answer(6, &wrong, None, &mut EventWriter::default()).unwrap_err();
    assert!(error.to_string().contains("'decision'"), "{error}");
    let chosen = answer(&mut session, InputResponseParams { value: Some("Always".into()), ..to("q1") });
    assert_eq!(chosen.text_to_type().as_deref(), Some("A"));
}

#[test]
fn input_and_the_end_withdraw_what_the_screen_asked() {
    let mut session = running();
    ask(&mut session, yes_no("Continue?"), "q1");
    let typed = said(&mut session, |session, out| session.run_input(6, RunInputNote::default(), out));
    assert_eq!(names(&typed), ["run.input", "agent.input_resolved"]);
    ask(&mut session, yes_no("Continue?"), "q2");
    let exited = said(&mut session, |session, out| {
        session.run_exited(7, -1, Some(9), Some("The runner stopped".into()), out);
    });
    assert_eq!(names(&exited), ["agent.input_resolved", "run.exited"]);
    assert_eq!(exited[1]["exit_code"], -1);
    assert_eq!(exited[1]["signal"], 9);
    assert!(ask(&mut session, yes_no("Ghost?"), "q3").is_empty(), "nothing of the process follows");
}

#[test]
fn who_attaches_gets_the_screen_or_the_records() {
    let mut session = running();
    let snapshot = || TerminalSnapshot { cols: 80, rows: 24, seq: 2, ..TerminalSnapshot::default() };
    for (after, resume) in
        [(None, Resume::Gap), (Some(3), Resume::Gap), (Some(2), Resume::Ok), (Some(0), Resume::Ok)]
    {
        let attach = session.attach_run(after, snapshot());
        assert_eq!(attach.resume, resume, "{after:?}");
        assert_eq!(attach.terminal.is_some(), resume == Resume::Gap);
        assert_eq!(session.needs_snapshot(after), resume == Resume::Gap);
        assert_eq!((attach.seq, attach.messages.is_none()), (2, true));
    }
    let events = said(&mut session, |session, out| session.resync_run(5, snapshot(), out));
    assert_eq!(events[0]["event"], "session.resync");
    assert_eq!(events[0]["terminal"]["cols"], 80);
    assert_eq!(events[0]["resume"], "gap");
}

#[test]
fn calls_of_services_are_records() {
    let mut session = running();
    let call = Event::ServiceCall {
        request_id: "r".into(),
        tool: "rpc.fs.read".into(),
        actor: "web".into(),
        args: json!({ "path": "x" }),
        user_id: None,
    };
    let events = said(&mut session, |session, out| session.service_event(5, call, out));
    assert_eq!(events[0]["event"], "tool.call");
    assert_eq!(events[0]["seq"], 3);
}

#[test]
fn an_answer_to_a_screen_is_one_line_of_text() {
    let mut session = running();
    let request = ScreenRequest::Text { secret: false };
    let question = ScreenQuestion { reason: AwaitingReason::Prompt, prompt: "Name:".into(), request };
    ask(&mut session, question, "q1");
    for value in ["a\rb", "a\n", "\t", "\u{1b}[A", "\u{7f}", "\u{3}"] {
        let keys = InputResponseParams { value: Some(value.into()), ..to("q1") };
        let error = session.answer(6, &keys, None, &mut EventWriter::default()).unwrap_err();
        assert!(error.to_string().contains("control characters"), "{error}");
    }
    assert!(session.is_screen_asking(), "what was refused settles nothing");
    let typed = answer(&mut session, InputResponseParams { value: Some("日本 x".into()), ..to("q1") });
    assert_eq!(typed.text_to_type().as_deref(), Some("日本 x\r"));
}

#[test]
fn what_is_typed_for_a_screen_is_recorded_unless_nobody_can_see_it() {
    let mut session = running();
    let mut answer_of = |secret: bool, is_echo_off: bool, id: &str| {
        let request = ScreenRequest::Text { secret };
        let question = ScreenQuestion { reason: AwaitingReason::Prompt, prompt: "Name:".into(), request };
        ask(&mut session, question, id);
        if is_echo_off {
            session.mark_secret(id);
        }
        let params = InputResponseParams { value: Some("Ada".into()), ..to(id) };
        let events = said(&mut session, |session, out| {
            session.answer(6, &params, Some("alice"), out).unwrap();
        });
        assert_eq!(names(&events), ["agent.input_resolved"]);
        events[0]["answer"].clone()
    };
    assert_eq!(answer_of(false, false, "q1"), "Ada");
    assert_eq!(answer_of(true, false, "q2"), Value::Null);
    assert_eq!(answer_of(false, true, "q3"), Value::Null);
}
