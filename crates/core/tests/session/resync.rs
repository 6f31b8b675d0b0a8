//! A snapshot tells how the session stands, whatever it is doing, and takes no number.

use crate::support::{events_of, session};
use qd_core::agent::{AgentEvent, MessageHead};
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, Session};
use qd_wire::message::Role;
use serde_json::{Value, json};

fn snapshot(session: &mut Session) -> Value {
    let (before, mut out) = (session.memory().clone(), EventWriter::default());
    session.resync(9, &mut out);
    assert_eq!(*session.memory(), before, "nothing changes");
    let round = out.take();
    assert!(round.records.is_empty(), "it is live");
    let mut events = events_of(&round.bytes);
    assert_eq!(events.len(), 1);
    let event = events.remove(0);
    assert_eq!((&event["event"], &event["resume"]), (&json!("session.resync"), &json!("gap")));
    assert_eq!(event["seq"], before.last_seq, "what it covers");
    event
}

#[test]
fn a_snapshot_is_right_in_every_state() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.starting(0, &mut out);
    let starting = snapshot(&mut session);
    assert_eq!(starting["state"]["status"], "starting");
    assert_eq!(starting["state"]["phase"], "initializing");

    session.gone(1, AgentEnd::Died { error: "no such program".into() }, &mut out);
    let failed = snapshot(&mut session);
    assert_eq!(
        (&failed["state"]["status"], &failed["state"]["error"]),
        (&json!("failed"), &json!("no such program"))
    );
    assert!(failed.get("partial").is_none());

    session.gone(2, AgentEnd::Stopped, &mut out);
    assert_eq!(snapshot(&mut session)["state"]["status"], "dormant");

    session.agent_event(3, AgentEvent::TurnStarted, &mut out);
    let head = MessageHead { role: Role::Assistant, created_at: 3, tool_call_id: None };
    session.agent_event(3, AgentEvent::MessageStarted(head), &mut out);
    session.agent_event(3, AgentEvent::TextDelta { index: 0, delta: "half a sen".into() }, &mut out);
    let working = snapshot(&mut session);
    assert_eq!(working["state"]["status"], "working");
    assert_eq!(working["partial"]["message"]["blocks"][0]["text"], "half a sen");
}

#[test]
fn a_number_others_have_seen_is_not_given_again() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.skip_to(41);
    session.skip_to(7);
    // No session can have come so far: the number is not believed.
    session.skip_to(u64::MAX);
    session.agent_event(0, AgentEvent::TurnSettled { aborted: false }, &mut out);
    assert_eq!(events_of(out.bytes()).last().unwrap()["seq"], 42);
}
