//! Inputs that an agent had in its queue and did not read reach the next one, each at most once.

use std::collections::HashSet;

use crate::support::{
    after_a_crash, expect, interrupted, last_queue, notes, queue, session, user_message, user_message_ended,
};
use proptest::prelude::*;
use qd_core::agent::AgentEvent;
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, ExpectedPrompt, PromptTurn, QueueFate, ReadyAgent, Session};
use serde_json::json;

#[test]
fn a_queue_outlives_its_agent_in_order_with_the_clients_own_ids() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::TurnStarted, &mut out);
    for (token, text) in [(1, "later"), (2, "sooner")] {
        let (client_id, user_id) = (Some(format!("c{token}")), Some("anna".to_owned()));
        session.expect_prompt(ExpectedPrompt {
            token,
            text: text.to_owned(),
            client_id,
            user_id,
            ..ExpectedPrompt::default()
        });
    }
    session.agent_event(1, AgentEvent::QueueChanged(queue(&["sooner"], &["later"])), &mut out);
    for mut came_back in [after_a_crash(&session), {
        session.gone(2, AgentEnd::Died { error: "x".into() }, &mut out);
        session
    }] {
        assert_eq!(came_back.state().queue, queue(&["sooner"], &["later"]));
        let mut out = EventWriter::default();
        let first = came_back.take_kept(3, 10, &mut out).unwrap();
        assert_eq!((first.text.as_str(), first.client_id.as_deref()), ("sooner", Some("c2")));
        assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": ["later"]}));
        assert_eq!(came_back.take_kept(3, 11, &mut out), None, "one after the other");
        came_back.kept_delivered();
        let second = came_back.take_kept(4, 11, &mut out).unwrap();
        assert_eq!((second.text.as_str(), second.user_id.as_deref()), ("later", Some("anna")));
        came_back.kept_delivered();
        assert!(!came_back.has_kept() && notes(&out).is_empty());
    }
}

#[test]
fn an_input_that_was_on_its_way_is_marked_and_not_run_again() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["paint it"])), &mut out);
    session.gone(1, AgentEnd::Stopped, &mut out);
    session.take_kept(2, 10, &mut out).unwrap();
    let mut came_back = after_a_crash(&session);
    let mut out = EventWriter::default();
    came_back.interrupted(3, false, Vec::new(), &mut out);
    assert!(!came_back.has_kept() && !came_back.is_delivering());
    assert_eq!((interrupted(&out), notes(&out).len()), (vec!["paint it".to_owned()], 1));
}

#[test]
fn what_was_taken_from_the_queue_and_not_shown_is_kept() {
    let shown: [bool; 2] = [true, false];
    for is_shown in shown {
        let (mut session, mut out) = (session(), EventWriter::default());
        session.agent_event(1, AgentEvent::TurnStarted, &mut out);
        for (token, text) in [(7, "one"), (8, "two")] {
            expect(&mut session, token, text);
        }
        session.agent_event(2, AgentEvent::QueueChanged(queue(&["one"], &["two"])), &mut out);
        session.agent_event(3, AgentEvent::QueueChanged(queue(&[], &["two"])), &mut out);
        if is_shown {
            session.agent_event(4, user_message_ended("one", 4), &mut out);
        }
        let mut came_back = after_a_crash(&session);
        came_back.interrupted(5, true, Vec::new(), &mut out);
        assert_eq!(came_back.state().queue, queue(&[], &["two"]));
        assert_eq!(interrupted(&out), if is_shown { vec![] } else { vec!["one".to_owned()] });
    }
}

#[test]
fn what_was_read_before_the_agent_says_that_it_left_the_queue_counts_as_read() {
    let reads = [user_message_ended("one", 4), AgentEvent::QueueChanged(queue(&[], &[]))];
    for order in [[0, 1], [1, 0]] {
        let (mut session, mut out) = (session(), EventWriter::default());
        session.agent_event(1, AgentEvent::TurnStarted, &mut out);
        expect(&mut session, 7, "one");
        session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["one"])), &mut out);
        for place in order {
            session.agent_event(3, reads[place].clone(), &mut out);
        }
        session.agent_event(4, AgentEvent::TurnSettled { aborted: false }, &mut out);
        assert_eq!(interrupted(&out), [""; 0]);
        let edit = session.begin_queue_edit();
        let data = session.set_queue(5, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, &mut out);
        assert_eq!(data.taken, ["one"], "{order:?}");
    }
}

#[test]
fn what_waited_with_us_and_was_read_cannot_be_changed_any_more() {
    for is_accepted_first in [true, false] {
        let (mut session, mut out) = (session(), EventWriter::default());
        let edit = session.begin_queue_edit();
        session.set_queue(1, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, &mut out);
        // The agent is idle, so it gets it as a prompt, which is in no queue.
        assert_eq!(session.take_kept(2, 7, &mut out).unwrap().text, "one");
        expect(&mut session, 7, "one");
        if is_accepted_first {
            session.kept_accepted(3, 7, PromptTurn::After(0), &mut out);
        }
        session.agent_event(4, AgentEvent::TurnStarted, &mut out);
        session.agent_event(5, user_message_ended("one", 5), &mut out);
        let edit = session.begin_queue_edit();
        let data = session.set_queue(6, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, &mut out);
        assert_eq!((data.taken, data.follow_up), (vec!["one".to_owned()], vec![]), "{is_accepted_first}");
    }
}

/// A session whose agent was idle and has read "one", which waited with us, at 5.
fn one_was_read(out: &mut EventWriter) -> Session {
    let mut session = session();
    let edit = session.begin_queue_edit();
    session.set_queue(1, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, out);
    session.take_kept(2, 7, out).unwrap();
    expect(&mut session, 7, "one");
    session.kept_accepted(3, 7, PromptTurn::After(0), out);
    session.agent_event(4, AgentEvent::TurnStarted, out);
    session.agent_event(5, user_message_ended("one", 5), out);
    session
}

#[test]
fn what_is_new_is_added_also_right_after_another_was_read() {
    let mut out = EventWriter::default();
    let mut session = one_was_read(&mut out);
    let edit = session.begin_queue_edit();
    let data = session.set_queue(6, &edit, &queue(&[], &[]), queue(&[], &["two"]), None, &mut out);
    assert_eq!((data.taken, data.follow_up), (vec![], vec!["two".to_owned()]));
}

#[test]
fn what_is_read_while_the_queue_is_changed_counts_once() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    expect(&mut session, 7, "one");
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["one", "two"])), &mut out);
    let edit = session.begin_queue_edit();
    session.agent_event(3, user_message_ended("one", 3), &mut out);
    let wanted = queue(&[], &["one", "two", "three"]);
    let data = session.set_queue(4, &edit, &queue(&[], &["two"]), wanted, None, &mut out);
    let added = vec!["two".to_owned(), "three".to_owned()];
    assert_eq!((data.taken, data.follow_up), (vec!["one".to_owned()], added));
}

#[test]
fn what_was_in_the_agents_queue_after_all_is_read_once() {
    let (mut session, mut out) = (session(), EventWriter::default());
    let edit = session.begin_queue_edit();
    session.set_queue(1, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, &mut out);
    session.take_kept(2, 7, &mut out).unwrap();
    expect(&mut session, 7, "one");
    // The yes to it is handled before the agent's word that it is in its queue.
    session.kept_accepted(3, 7, PromptTurn::Running, &mut out);
    session.agent_event(4, AgentEvent::QueueChanged(queue(&[], &["one"])), &mut out);
    session.agent_event(5, AgentEvent::QueueChanged(queue(&[], &[])), &mut out);
    session.agent_event(6, user_message_ended("one", 6), &mut out);
    // The same text again, sent directly and much later, is nothing that was read from the queue.
    expect(&mut session, 8, "one");
    session.agent_event(60_000, user_message_ended("one", 60_000), &mut out);
    let edit = session.begin_queue_edit();
    let data = session.set_queue(60_001, &edit, &queue(&[], &[]), queue(&[], &["one"]), None, &mut out);
    assert_eq!((data.taken, data.follow_up), (vec![], vec!["one".to_owned()]));
}

#[test]
fn what_was_taken_from_the_queue_in_a_turn_that_is_aborted_is_marked_at_once() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["one", "two"])), &mut out);
    session.agent_event(3, AgentEvent::QueueChanged(queue(&[], &["two"])), &mut out);
    session.agent_event(4, AgentEvent::TurnSettled { aborted: true }, &mut out);
    assert_eq!((interrupted(&out), session.memory().accepted.len()), (vec!["one".to_owned()], 0));
    assert_eq!(session.state().queue, queue(&[], &["two"]));
}

#[test]
fn proof_of_arrival_ends_the_doubt() {
    let ways: [fn(&mut Session, &mut EventWriter); 2] = [
        // It is in the agent's own queue.
        |session, out| session.agent_event(3, AgentEvent::QueueChanged(queue(&[], &["paint it"])), out),
        // It came back as a message.
        |session, out| session.agent_event(3, user_message_ended("paint it", 3), out),
    ];
    for way in ways {
        let (mut session, mut out) = (session(), EventWriter::default());
        session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["paint it"])), &mut out);
        session.gone(1, AgentEnd::Stopped, &mut out);
        session.take_kept(2, 10, &mut out).unwrap();
        let text = "paint it".to_owned();
        session.expect_prompt(ExpectedPrompt { token: 10, text, ..ExpectedPrompt::default() });
        way(&mut session, &mut out);
        assert!(!session.is_delivering());
        session.gone(4, AgentEnd::Died { error: "x".into() }, &mut out);
        assert_eq!(interrupted(&out), [""; 0]);
    }
}

#[test]
fn what_the_agents_file_shows_as_read_is_not_delivered_again() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::QueueChanged(queue(&["one"], &["two"])), &mut out);
    let mut came_back = after_a_crash(&session);
    let up = ReadyAgent { conversation: vec![user_message("one", 7)], ..ReadyAgent::default() };
    came_back.ready(8, true, up, &HashSet::new(), &mut out);
    assert_eq!(came_back.state().queue, queue(&[], &["two"]));
}

#[test]
fn a_refused_input_waits_on_and_a_closed_session_says_what_it_drops() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["one", "two"])), &mut out);
    session.gone(1, AgentEnd::Stopped, &mut out);
    session.take_kept(2, 10, &mut out).unwrap();
    session.kept_refused(3, "no model", &mut out);
    assert_eq!(session.state().queue, queue(&[], &["one", "two"]));
    assert!(notes(&out)[0].contains("no model") && notes(&out)[0].contains("one"));
    session.gone(4, AgentEnd::Closed { reason: "x".into() }, &mut out);
    assert_eq!(interrupted(&out), ["one", "two"]);
    assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": []}));
}

#[test]
fn a_message_that_loses_its_images_says_so() {
    let (mut session, mut out) = (session(), EventWriter::default());
    let text = "look at this".to_owned();
    session.expect_prompt(ExpectedPrompt { token: 1, text, image_count: 2, ..ExpectedPrompt::default() });
    session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["look at this"])), &mut out);
    let mut came_back = after_a_crash(&session);
    came_back.take_kept(1, 2, &mut out).unwrap();
    assert!(notes(&out)[0].contains("without its images (2)"), "{:?}", notes(&out));
}

#[derive(Debug, Clone)]
enum Step {
    Queue(Vec<u8>),
    Take,
    Arrive,
    Refuse,
    Die,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec(0u8..6, 0..4).prop_map(Step::Queue),
        Just(Step::Take),
        Just(Step::Take),
        Just(Step::Arrive),
        Just(Step::Refuse),
        Just(Step::Die),
        Just(Step::Crash),
    ]
}

proptest! {
    /// Every input the agent had in its queue when it ended is delivered, told of, or still waits; none twice.
    #[test]
    fn no_input_is_lost_or_doubled(steps in prop::collection::vec(step(), 0..60)) {
        let (mut session, mut out, mut next) = (session(), EventWriter::default(), 0u32);
        let (mut waiting, mut on_its_way): (Vec<String>, Option<String>) = (Vec::new(), None);
        let (mut held, mut taken): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for (at, step) in steps.into_iter().enumerate() {
            let now = at as i64;
            match step {
                Step::Queue(count) => {
                    taken.append(&mut held);
                    held = count.iter().map(|_| { next += 1; format!("m{next}") }).collect();
                    let texts: Vec<&str> = held.iter().map(String::as_str).collect();
                    session.agent_event(now, AgentEvent::QueueChanged(queue(&[], &texts)), &mut out);
                }
                Step::Take => {
                    let taken = session.take_kept(now, u64::from(next), &mut out).map(|kept| kept.text);
                    if on_its_way.is_some() || waiting.is_empty() {
                        prop_assert_eq!(taken, None);
                    } else {
                        prop_assert_eq!(taken.as_ref(), Some(&waiting.remove(0)), "in order");
                        on_its_way = taken;
                    }
                }
                Step::Arrive => { session.kept_delivered(); on_its_way = None; }
                Step::Refuse => {
                    session.kept_refused(now, "no", &mut out);
                    if let Some(text) = on_its_way.take() { waiting.insert(0, text); }
                }
                Step::Die | Step::Crash => {
                    let mut said = EventWriter::default();
                    if matches!(step, Step::Crash) {
                        session = after_a_crash(&session);
                        session.interrupted(now, true, Vec::new(), &mut said);
                    } else {
                        session.gone(now, AgentEnd::Died { error: "x".into() }, &mut said);
                    }
                    // What is in the agent's queue came before what still waits for the agent.
                    held.append(&mut waiting);
                    waiting = std::mem::take(&mut held);
                    let lost: Vec<String> = on_its_way.take().into_iter().chain(std::mem::take(&mut taken)).collect();
                    prop_assert_eq!(interrupted(&said), lost);
                }
            }
            let expected: Vec<String> = held.iter().chain(&waiting).cloned().collect();
            prop_assert_eq!(session.state().queue.follow_up, expected);
        }
    }
}

#[test]
fn what_a_finished_turn_left_over_waits_for_a_prompt_and_what_was_cut_off_does_not() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::TurnStarted, &mut out);
    session.agent_event(1, AgentEvent::QueueChanged(queue(&[], &["later"])), &mut out);
    assert!(!after_a_crash(&session).waits_for_prompt(), "its turn runs");
    session.agent_event(2, AgentEvent::TurnSettled { aborted: true }, &mut out);
    assert!(after_a_crash(&session).waits_for_prompt());
    session.gone(3, AgentEnd::Stopped, &mut out);
    assert!(session.waits_for_prompt() && session.has_kept());
    session.ready(4, true, ReadyAgent::default(), &HashSet::new(), &mut out);
    assert!(session.waits_for_prompt(), "a new agent changes nothing");
    session.agent_event(5, AgentEvent::TurnStarted, &mut out);
    assert!(!session.waits_for_prompt());
}

#[test]
fn what_waited_in_the_old_conversation_is_dropped_and_told_once() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["kept"])), &mut out);
    session.gone(1, AgentEnd::Stopped, &mut out);
    session.agent_event(2, AgentEvent::TurnStarted, &mut out);
    session.agent_event(3, AgentEvent::QueueChanged(queue(&["read"], &["old"])), &mut out);
    expect(&mut session, 7, "/skill:paint");
    session.prompt_accepted(3, 7, PromptTurn::Running, &mut out);
    session.move_begun();
    session.agent_event(4, user_message_ended("read", 4), &mut out);
    session.agent_event(4, AgentEvent::TurnSettled { aborted: true }, &mut out);
    // The agent has left the conversation, and says what waits in the new one.
    session.agent_event(5, AgentEvent::QueueChanged(queue(&[], &["new"])), &mut out);
    for _ in 0..2 {
        session.replace_conversation(6, "n".into(), None, Vec::new(), &mut out);
        session.leave_queue_behind(6, QueueFate::LeftBehind { waiting: 1 }, &mut out);
    }
    session.move_over();
    let notes = notes(&out);
    assert!(notes.len() == 1 && notes[0].ends_with(":\nkept\nold\n/skill:paint"), "{notes:?}");
    assert_eq!(session.state().queue, queue(&[], &["new"]));
    assert_eq!(session.memory().accepted, []);
    session.leave_queue_behind(7, QueueFate::Kept, &mut out);
    assert_eq!(session.state().queue, queue(&[], &["new"]), "the agent has it still");
    session.leave_queue_behind(8, QueueFate::Cleared(vec!["new".to_owned()]), &mut out);
    assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": []}));
    assert!(!session.waits_for_prompt() && self::notes(&out)[1].ends_with(":\nnew"));
}
