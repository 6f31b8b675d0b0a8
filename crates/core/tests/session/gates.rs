//! Calls that wait for a person: what approves them, what does not, and what they outlive.

use crate::support::{self, events_of, session};
use proptest::prelude::*;
use qd_core::agent::{AgentEvent, QuestionAnswer};
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, Allowance, AnswerError, GateError, RunStart, Session, StoredQuestion};
use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::run::{Decision, PermissionDetails, PermissionSource};
use serde_json::{Value, json};

fn gate(id: &str, op_tool: &str, timeout: Option<u64>) -> InputRequest {
    let details = PermissionDetails {
        source: PermissionSource::Gate,
        op_tool: Some(op_tool.into()),
        op_args: Some(json!({ "cmd": "export TOKEN=hunter2" })),
        command: Some("{\"cmd\":\"host.bash\"}".into()),
        principal: Some("ann".into()),
        actor: Some("web".into()),
        ..PermissionDetails::default()
    };
    InputRequest::Permission {
        request_id: id.into(),
        title: "May it?".into(),
        description: None,
        metadata: Some(serde_json::to_value(details).unwrap()),
        timeout,
    }
}

/// Of who asks in these tests.
fn wanted(op_tool: &str) -> Allowance {
    Allowance { principal: "ann".into(), actor: "web".into(), op_tool: op_tool.into() }
}

fn ask(session: &mut Session, request: InputRequest) -> Vec<Value> {
    let mut out = EventWriter::default();
    session.ask_gate(1, request, &mut out).unwrap();
    events_of(out.bytes())
}

fn decide(id: &str, decision: Decision) -> InputResponseParams {
    InputResponseParams {
        request_id: id.into(),
        decision: Some(decision),
        reason: Some("because".into()),
        actor: Some("cli".into()),
        ..InputResponseParams::default()
    }
}

fn open(session: &Session) -> Vec<String> {
    session.open_questions().map(|question| question.request.request_id().to_owned()).collect()
}

#[test]
fn the_decision_is_recorded_with_who_made_it() {
    for (decision, word, is_approval) in [
        (Decision::Approve, "approve", true),
        (Decision::Deny, "deny", false),
        (Decision::Abort, "abort", false),
        (Decision::ApproveForSession, "approve_for_session", true),
    ] {
        let mut session = session();
        let asked = ask(&mut session, gate("g", "bash", None));
        // Who decides sees everything.
        assert_eq!(asked[0]["request"]["metadata"]["op_args"]["cmd"], "export TOKEN=hunter2");
        let mut out = EventWriter::default();
        // `decision` goes before `confirmed`.
        let params = InputResponseParams { confirmed: Some(!is_approval), ..decide("g", decision) };
        let answered = session.answer(2, &params, Some("alice"), &mut out).unwrap();
        assert_eq!(answered.answer, QuestionAnswer::Confirmed(is_approval));
        assert_eq!(answered.decision.unwrap().is_approval(), is_approval);
        assert_eq!(answered.reason.as_deref(), Some("because"));
        assert_eq!(answered.details.unwrap().command.as_deref(), Some("{\"cmd\":\"host.bash\"}"));
        let resolved = &events_of(out.bytes())[0];
        assert_eq!(resolved["event"], "agent.input_resolved");
        assert_eq!(resolved["decision"], word);
        assert_eq!(resolved["actor"], "cli");
        assert_eq!(resolved["user_id"], "alice");
        assert_eq!(resolved["outcome"], "answered");
        assert_eq!(session.allows(&wanted("bash")), decision == Decision::ApproveForSession);
    }
}

#[test]
fn hole_2_a_made_up_request_allows_nothing() {
    let mut session = session();
    let mut out = EventWriter::default();
    let error =
        session.answer(2, &decide("made-up", Decision::ApproveForSession), None, &mut out).unwrap_err();
    assert_eq!(error, AnswerError::Unknown("made-up".into()));
    assert!(out.bytes().is_empty());
    assert!(session.memory().allowances.is_empty());
    // And a real one allows its own operation, nothing else, once.
    ask(&mut session, gate("g", "rpc.fs.write", None));
    session.answer(2, &decide("g", Decision::ApproveForSession), None, &mut out).unwrap();
    assert_eq!(session.memory().allowances, [wanted("rpc.fs.write")]);
    assert!(!session.allows(&wanted("bash")));
    let again = session.answer(3, &decide("g", Decision::ApproveForSession), None, &mut out).unwrap_err();
    assert_eq!(again, AnswerError::AlreadyAnswered("g".into()));
}

/// For the session means: for who asked, the way they came, and that kind of operation.
#[test]
fn an_allowance_is_for_who_asked() {
    let mut session = session();
    let mut out = EventWriter::default();
    ask(&mut session, gate("g", "bash", None));
    session.answer(2, &decide("g", Decision::ApproveForSession), Some("olga"), &mut out).unwrap();
    assert!(session.allows(&wanted("bash")));
    assert!(!session.allows(&Allowance { principal: "bob".into(), ..wanted("bash") }));
    assert!(!session.allows(&Allowance { actor: "agent".into(), ..wanted("bash") }));
    assert!(!session.allows(&Allowance { principal: "olga".into(), ..wanted("bash") }));
    // A question of an earlier version may not say who asked: then it is approved, and nothing else.
    let mut request = gate("h", "rpc.fs.write", None);
    let InputRequest::Permission { metadata: Some(details), .. } = &mut request else { panic!() };
    details.as_object_mut().unwrap().remove("principal");
    ask(&mut session, request);
    let answered = session.answer(3, &decide("h", Decision::ApproveForSession), None, &mut out).unwrap();
    assert!(answered.decision.unwrap().is_approval());
    assert_eq!(session.memory().allowances, [wanted("bash")]);
}

#[test]
fn an_agent_cannot_pass_for_a_gate() {
    let mut session = session();
    let mut out = EventWriter::default();
    session.agent_event(1, AgentEvent::InputNeeded(gate("a", "bash", None)), &mut out);
    assert_eq!(events_of(out.bytes())[0]["request"]["metadata"]["source"], "agent");
    // Neither now nor after a restart, which knows only what is stored.
    let stored: Vec<StoredQuestion> = session.open_questions().map(StoredQuestion::from).collect();
    let mut later = support::session();
    assert_eq!(later.restore_questions(5, stored.clone()), stored);
    assert!(open(&later).is_empty());
    let answered = session.answer(2, &decide("a", Decision::ApproveForSession), None, &mut out).unwrap();
    assert_eq!((answered.decision, answered.details), (Some(Decision::Approve), None));
    assert!(session.memory().allowances.is_empty());
}

#[test]
fn hole_17_a_pending_call_outlives_agents_programs_and_the_runner() {
    let mut session = session();
    let mut out = EventWriter::default();
    ask(&mut session, gate("g", "bash", None));
    session.agent_event(2, AgentEvent::TurnStarted, &mut out);
    session.agent_event(3, AgentEvent::TurnSettled { aborted: true }, &mut out);
    session.withdraw_questions(4, &mut out);
    session.gone(5, AgentEnd::Died { error: "x".into() }, &mut out);
    session.run_started(6, RunStart::default(), &mut out);
    session.run_exited(7, 0, None, None, &mut out);
    session.gone(8, AgentEnd::Closed { reason: "x".into() }, &mut out);
    assert_eq!(open(&session), ["g"]);
    assert!(session.open_question_ids().is_empty(), "the agent is not told of it");
    assert!(!session.activity().has_questions, "the agent does not wait for it");
    assert_eq!(session.state().pending_input.len(), 1);

    let mut stored: Vec<StoredQuestion> = session.open_questions().map(StoredQuestion::from).collect();
    let asked_seq = stored[0].asked_seq;
    assert!(asked_seq.is_some());
    // What an older version stored says nothing of its record.
    let old = r#"{"type":"confirm","request_id":"old","title":"Sure?","message":""}"#;
    stored.push(serde_json::from_str(old).unwrap());
    let stored = serde_json::to_string(&stored).unwrap();
    let mut later = support::session();
    let gone = later.restore_questions(9, serde_json::from_str(&stored).unwrap());
    assert_eq!(gone.iter().map(|question| question.request.request_id()).collect::<Vec<_>>(), ["old"]);
    assert_eq!(open(&later), ["g"]);
    let mut said = EventWriter::default();
    let answered = later.answer(10, &decide("g", Decision::Approve), None, &mut said).unwrap();
    assert_eq!(answered.details.unwrap().op_tool.as_deref(), Some("bash"));
    // Its record is named, so that it can be kept without secrets from here on.
    assert_eq!(events_of(said.bytes())[0]["asked_seq"].as_u64(), asked_seq);
    assert_eq!(later.take_settled_records(), Vec::from_iter(asked_seq));
    assert!(later.take_settled_records().is_empty());
}

#[test]
fn a_call_with_a_time_limit_ends_and_one_without_does_not() {
    let mut session = session();
    session.set_question_timeout(Some(1));
    ask(&mut session, gate("short", "bash", Some(50)));
    ask(&mut session, gate("long", "bash", None));
    assert_eq!(session.next_question_deadline(), Some(51));
    let mut out = EventWriter::default();
    assert!(session.expire_questions(51, &mut out).is_empty(), "nothing for the agent");
    assert_eq!(events_of(out.bytes())[0]["outcome"], "timed_out");
    let over = session.take_timed_out_gates();
    assert_eq!(over.len(), 1);
    assert_eq!((over[0].0.as_str(), over[0].1.op_tool.as_deref()), ("short", Some("bash")));
    assert!(session.take_timed_out_gates().is_empty());
    assert_eq!(open(&session), ["long"]);
}

#[test]
fn who_asked_may_withdraw_and_cancelling_is_denying() {
    let mut session = session();
    let mut out = EventWriter::default();
    ask(&mut session, gate("a", "bash", None));
    ask(&mut session, gate("b", "bash", None));
    assert!(session.withdraw_question(2, "a", &mut out));
    assert!(!session.withdraw_question(2, "a", &mut out));
    let params = InputResponseParams { request_id: "b".into(), cancelled: Some(true), ..Default::default() };
    let answered = session.answer(3, &params, None, &mut out).unwrap();
    assert_eq!(answered.decision, Some(Decision::Deny));
    assert_eq!(answered.answer, QuestionAnswer::Cancelled);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let mut session = session();
    let mut out = EventWriter::default();
    let (title, message) = ("Sure?".to_owned(), String::new());
    let confirm = InputRequest::Confirm { request_id: "c".into(), title, message, timeout: None };
    assert!(session.ask_gate(1, confirm, &mut out).is_err());
    ask(&mut session, gate("g0", "bash", None));
    assert!(
        session.ask_gate(1, gate("g0", "bash", None), &mut out).unwrap_err()
            == GateError::IdUsed("g0".into())
    );
    for number in 1..64 {
        ask(&mut session, gate(&format!("g{number}"), "bash", None));
    }
    let error = session.ask_gate(1, gate("g64", "bash", None), &mut out).unwrap_err();
    assert_eq!(error, GateError::TooMany);
    assert!(out.bytes().is_empty());
}

proptest! {
    /// Whatever is answered, only a real question of a gate that was approved for the session allows its own tool.
    #[test]
    fn the_allow_list_has_nothing_nobody_allowed(
        steps in prop::collection::vec((0..6usize, 0..4usize, any::<bool>(), 0..4usize), 0..30),
    ) {
        let tools = ["bash", "rpc.fs.write", "rpc.fs.delete", "rpc.git.worktree_add"];
        let decisions = [Decision::Approve, Decision::Deny, Decision::ApproveForSession, Decision::Abort];
        let mut session = session();
        let mut out = EventWriter::default();
        let mut waiting: std::collections::BTreeMap<String, (usize, bool)> = Default::default();
        let mut known = std::collections::BTreeSet::new();
        let mut allowed = std::collections::BTreeSet::new();
        for (id, tool, is_gate, decision) in steps {
            let id = format!("q{id}");
            if known.insert(id.clone()) {
                let request = gate(&id, tools[tool], None);
                if is_gate {
                    session.ask_gate(1, request, &mut out).unwrap();
                } else {
                    session.agent_event(1, AgentEvent::InputNeeded(request), &mut out);
                }
                waiting.insert(id, (tool, is_gate));
                continue;
            }
            let answered = session.answer(2, &decide(&id, decisions[decision]), None, &mut out);
            prop_assert_eq!(answered.is_ok(), waiting.contains_key(&id));
            if let Some((tool, true)) = waiting.remove(&id)
                && decisions[decision] == Decision::ApproveForSession
            {
                allowed.insert(tools[tool]);
            }
        }
        for tool in tools {
            prop_assert_eq!(session.allows(&wanted(tool)), allowed.contains(tool));
        }
    }
}

#[test]
fn only_an_approval_lets_a_call_through() {
    let mut session = session();
    ask(&mut session, gate("g", "bash", None));
    let is_let_through = |params: InputResponseParams| session.gate_let_through(&params).is_some();
    assert!(is_let_through(decide("g", Decision::Approve)));
    assert!(is_let_through(decide("g", Decision::ApproveForSession)));
    assert!(is_let_through(InputResponseParams {
        confirmed: Some(true),
        decision: None,
        ..decide("g", Decision::Deny)
    }));
    assert!(!is_let_through(decide("g", Decision::Deny)));
    assert!(!is_let_through(decide("g", Decision::Abort)));
    assert!(!is_let_through(InputResponseParams { cancelled: Some(true), ..decide("g", Decision::Approve) }));
    assert!(!is_let_through(decide("made-up", Decision::Approve)));
}
