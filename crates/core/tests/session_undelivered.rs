//! Inputs that an agent accepted and did not read reach the next one, each at most once.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failing test")]

mod support;

use std::collections::HashSet;

use proptest::prelude::*;
use qd_core::agent::{AgentEvent, MessageHead, NativeMessage};
use qd_core::event_writer::EventWriter;
use qd_core::session::{
    AgentEnd, ExpectedPrompt, PromptTurn, QueueFate, ReadyAgent, Session, UNSHOWN_PROMPTS_MAX,
};
use qd_wire::data::{QueueState, SessionStatus};
use qd_wire::message::{KnownPart, Part, Role};
use serde_json::{Value, json};
use support::{events_of, session};

fn queue(steering: &[&str], follow_up: &[&str]) -> QueueState {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    QueueState { steering: owned(steering), follow_up: owned(follow_up) }
}

fn user_message(text: &str, created_at: i64) -> NativeMessage {
    NativeMessage {
        head: MessageHead { role: Role::User, created_at, tool_call_id: None },
        parts: vec![Part::Known(KnownPart::Text {
            id: "p0".into(),
            text: text.into(),
            format: None,
            meta: None,
        })],
        model: None,
        provider: None,
        stop_reason: None,
        usage: None,
        tool_name: None,
        is_error: None,
        error: None,
        metadata: None,
    }
}

/// The session as the store would give it back after a crash.
fn after_a_crash(session: &Session) -> Session {
    let mut memory = session.memory().clone();
    memory.kept = session.waiting_inputs();
    memory.queue = QueueState::default();
    Session::new(session.identity().clone(), memory, SessionStatus::Dormant)
}

fn notes(out: &EventWriter) -> Vec<String> {
    let events = events_of(out.bytes());
    let notes = events.iter().filter(|event| event["event"] == "notify");
    notes.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// The texts of the messages that are marked as interrupted.
fn interrupted(out: &EventWriter) -> Vec<String> {
    let events = events_of(out.bytes());
    let marked = events.iter().filter(|event| event["message"]["interrupted"] == true);
    marked.map(|event| event["message"]["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
}

fn last_queue(out: &EventWriter) -> Value {
    let events = events_of(out.bytes());
    events.iter().rev().find(|event| event["event"] == "queue.changed").unwrap()["queue"].clone()
}

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
            is_steering: false,
            image_count: 0,
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
fn a_prompt_that_was_accepted_and_never_shown_is_in_the_conversation_once() {
    let expected = || ExpectedPrompt {
        token: 7,
        text: "paint it".to_owned(),
        client_id: None,
        user_id: None,
        is_steering: false,
        image_count: 0,
    };
    let ends: [fn(&mut Session, &mut EventWriter); 2] = [
        |session, out| session.gone(2, AgentEnd::Died { error: "killed".to_owned() }, out),
        |session, out| {
            let mut came_back = after_a_crash(session);
            came_back.interrupted(2, false, Vec::new(), out);
            *session = came_back;
        },
    ];
    for end in ends {
        let (mut session, mut out) = (session(), EventWriter::default());
        session.expect_prompt(expected());
        session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
        end(&mut session, &mut out);
        assert_eq!(interrupted(&out), ["paint it"]);
        assert_eq!(session.memory().accepted, [], "told once");

        let (mut session, mut out) = (self::session(), EventWriter::default());
        session.expect_prompt(expected());
        session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
        session.agent_event(1, AgentEvent::MessageEnded(user_message("paint it", 1)), &mut out);
        end(&mut session, &mut out);
        assert_eq!(interrupted(&out), [""; 0], "it was read");
    }
}

/// A prompt with this token on its way to the agent.
fn expect(session: &mut Session, token: u64, text: &str) {
    let text = text.to_owned();
    session.expect_prompt(ExpectedPrompt {
        token,
        text,
        client_id: None,
        user_id: None,
        is_steering: false,
        image_count: 0,
    });
}

#[test]
fn a_prompt_that_came_back_under_another_text_was_read_when_its_turn_settles() {
    for turn in [PromptTurn::After(0), PromptTurn::Running] {
        let (mut session, mut out) = (session(), EventWriter::default());
        expect(&mut session, 7, "/skill:paint");
        session.agent_event(1, AgentEvent::TurnStarted, &mut out);
        session.prompt_accepted(1, 7, turn, &mut out);
        session.agent_event(2, AgentEvent::MessageEnded(user_message("Paint well.", 2)), &mut out);
        assert_eq!(session.memory().accepted, [], "what begins with a slash may come back as anything");
        session.agent_event(3, AgentEvent::TurnSettled { aborted: false }, &mut out);
        session.gone(4, AgentEnd::Stopped, &mut out);
        assert_eq!((interrupted(&out), notes(&out)), (Vec::new(), Vec::new()));
    }
}

#[test]
fn a_text_that_an_extension_has_changed_was_read_when_its_turn_settles() {
    let (mut session, mut out) = (session(), EventWriter::default());
    expect(&mut session, 7, "paint it");
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
    session.agent_event(2, AgentEvent::MessageEnded(user_message("Paint it red.", 2)), &mut out);
    assert_eq!(session.memory().accepted.len(), 1, "nobody can know yet");
    session.agent_event(3, AgentEvent::TurnSettled { aborted: false }, &mut out);
    assert_eq!((session.memory().accepted.len(), interrupted(&out)), (0, Vec::new()));
}

#[test]
fn a_turn_that_settles_without_its_prompt_leaves_the_prompt_marked() {
    let (mut session, mut out) = (session(), EventWriter::default());
    expect(&mut session, 7, "paint it");
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
    session.agent_event(3, AgentEvent::TurnSettled { aborted: true }, &mut out);
    assert_eq!((session.memory().accepted.len(), interrupted(&out)), (0, vec!["paint it".to_owned()]));
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
            session.agent_event(4, AgentEvent::MessageEnded(user_message("one", 4)), &mut out);
        }
        let mut came_back = after_a_crash(&session);
        came_back.interrupted(5, true, Vec::new(), &mut out);
        assert_eq!(came_back.state().queue, queue(&[], &["two"]));
        assert_eq!(interrupted(&out), if is_shown { vec![] } else { vec!["one".to_owned()] });
    }
}

#[test]
fn what_was_read_before_the_agent_says_that_it_left_the_queue_counts_as_read() {
    let reads = [AgentEvent::MessageEnded(user_message("one", 4)), AgentEvent::QueueChanged(queue(&[], &[]))];
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
        session.agent_event(5, AgentEvent::MessageEnded(user_message("one", 5)), &mut out);
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
    session.agent_event(5, AgentEvent::MessageEnded(user_message("one", 5)), out);
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
    session.agent_event(3, AgentEvent::MessageEnded(user_message("one", 3)), &mut out);
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
    session.agent_event(6, AgentEvent::MessageEnded(user_message("one", 6)), &mut out);
    // The same text again, sent directly and much later, is nothing that was read from the queue.
    expect(&mut session, 8, "one");
    session.agent_event(60_000, AgentEvent::MessageEnded(user_message("one", 60_000)), &mut out);
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
fn what_the_agents_file_shows_is_not_interrupted() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    for (token, text) in [(7, "taken"), (8, "queued"), (9, "accepted")] {
        let (client_id, user_id) = (Some(format!("c{token}")), None);
        let text = text.to_owned();
        session.expect_prompt(ExpectedPrompt {
            token,
            text,
            client_id,
            user_id,
            is_steering: false,
            image_count: 0,
        });
    }
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["taken", "queued"])), &mut out);
    session.agent_event(3, AgentEvent::QueueChanged(queue(&[], &["queued"])), &mut out);
    session.prompt_accepted(4, 9, PromptTurn::After(1), &mut out);
    assert!(session.has_unshown());
    let file: Vec<NativeMessage> = [("taken", 5), ("queued", 6), ("accepted", 7)]
        .iter()
        .map(|(text, at)| user_message(text, *at))
        .collect();
    for came_back in [true, false] {
        let mut ended = after_a_crash(&session);
        let mut out = EventWriter::default();
        if came_back {
            ended.complete_conversation(8, file.clone(), &HashSet::new(), &mut out);
            ended.interrupted(9, true, Vec::new(), &mut out);
        } else {
            session.complete_conversation(8, file.clone(), &HashSet::new(), &mut out);
            session.gone(9, AgentEnd::Died { error: "x".into() }, &mut out);
        }
        assert_eq!(interrupted(&out), [""; 0]);
        let events = events_of(out.bytes());
        let ids: Vec<&str> =
            events.iter().filter_map(|event| event["message"]["client_id"].as_str()).collect();
        assert_eq!(ids, ["c7", "c8", "c9"], "each once, with the client's own id");
        assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": []}));
    }
}

#[test]
fn an_interrupted_message_has_its_images_also_after_a_crash() {
    let (mut session, mut out) = (session(), EventWriter::default());
    let images = std::sync::Arc::new(vec![qd_core::agent::Image {
        data: "aGk=".into(),
        media_type: "image/png".into(),
    }]);
    let text = "look".to_owned();
    session.expect_prompt(ExpectedPrompt {
        token: 7,
        text,
        client_id: None,
        user_id: Some("anna".into()),
        is_steering: false,
        image_count: 1,
    });
    session.hold_images(7, "k1".into(), images.clone());
    session.prompt_accepted(1, 7, PromptTurn::After(0), &mut out);
    assert_eq!(session.unshown_images().into_keys().collect::<Vec<_>>(), ["k1"]);
    // What is stored is JSON, and the images are stored apart.
    let row = serde_json::to_string(&session.memory().accepted).unwrap();
    assert!(!row.contains("aGk="), "{row}");
    let mut memory = session.memory().clone();
    memory.accepted = serde_json::from_str(&row).unwrap();
    let mut came_back = Session::new(session.identity().clone(), memory, SessionStatus::Dormant);
    assert_eq!(came_back.missing_images().into_iter().collect::<Vec<_>>(), ["k1"]);
    came_back.restore_images(&[("k1".to_owned(), images)].into());
    came_back.interrupted(2, false, Vec::new(), &mut out);
    let events = events_of(out.bytes());
    let message = &events.iter().find(|event| event["message"]["interrupted"] == true).unwrap()["message"];
    assert_eq!(message["parts"][1]["source"]["data"], "aGk=", "{message}");
    assert_eq!((&message["created_at"], &message["sender"]["id"]), (&json!(1), &json!("anna")));
    assert_eq!(came_back.unshown_images().len(), 0);
}

#[test]
fn a_prompt_whose_yes_is_heard_after_its_turn_is_shown_or_marked() {
    // What the turn showed of the prompt, and what the conversation must mark afterwards.
    let cases = [(None, vec!["paint it"]), (Some("paint it"), vec![]), (Some("Paint it red."), vec![])];
    for (shown, marked) in cases {
        let (mut session, mut out) = (session(), EventWriter::default());
        expect(&mut session, 7, "paint it");
        session.agent_event(1, AgentEvent::TurnStarted, &mut out);
        if let Some(text) = shown {
            session.agent_event(2, AgentEvent::MessageEnded(user_message(text, 2)), &mut out);
        }
        session.agent_event(3, AgentEvent::TurnSettled { aborted: shown.is_none() }, &mut out);
        session.prompt_accepted(4, 7, PromptTurn::After(0), &mut out);
        assert_eq!(session.memory().accepted, []);
        assert_eq!(interrupted(&out), marked, "the turn showed {shown:?}");
        session.gone(5, AgentEnd::Stopped, &mut out);
        assert_eq!(interrupted(&out), marked, "and not twice");
    }
}

/// Wherever the agent's yes falls between the events of the turn, and whatever the turn shows: an accepted prompt is in
/// the conversation once.
#[test]
fn an_accepted_prompt_is_in_the_conversation_once_whenever_its_yes_is_heard() {
    let ways: Vec<(usize, usize)> =
        (0..3).flat_map(|shown| (0..4).map(move |yes_at| (shown, yes_at))).collect();
    for first in &ways {
        for second in &ways {
            let (mut session, mut out) = (session(), EventWriter::default());
            let mut marked = Vec::new();
            for (turn, (shown, yes_at)) in [first, second].into_iter().enumerate() {
                let text = format!("prompt {turn}");
                let token = turn as u64 + 1;
                expect(&mut session, token, &text);
                let message = match shown {
                    0 => None,
                    1 => Some(text.clone()),
                    _ => Some(format!("{text}, changed")),
                };
                if message.is_none() {
                    marked.push(text);
                }
                let events = [
                    Some(AgentEvent::TurnStarted),
                    message.map(|text| AgentEvent::MessageEnded(user_message(&text, 2))),
                    Some(AgentEvent::TurnSettled { aborted: false }),
                ];
                for place in 0..4 {
                    if place == *yes_at {
                        session.prompt_accepted(2, token, PromptTurn::After(turn as u64), &mut out);
                    }
                    if let Some(event) = events.get(place).cloned().flatten() {
                        session.agent_event(2, event, &mut out);
                    }
                }
            }
            assert_eq!(interrupted(&out), marked, "{first:?} {second:?}");
            session.gone(5, AgentEnd::Stopped, &mut out);
            assert_eq!(interrupted(&out), marked, "and not twice: {first:?} {second:?}");
        }
    }
}

#[test]
fn a_message_of_a_turn_stands_for_one_late_prompt_only() {
    let (mut session, mut out) = (session(), EventWriter::default());
    for (token, text) in [(7, "one"), (8, "two")] {
        expect(&mut session, token, text);
    }
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    session.agent_event(2, AgentEvent::MessageEnded(user_message("One, changed.", 2)), &mut out);
    session.agent_event(3, AgentEvent::TurnSettled { aborted: false }, &mut out);
    for token in [7, 8] {
        session.prompt_accepted(4, token, PromptTurn::After(0), &mut out);
    }
    assert_eq!(interrupted(&out), ["two"]);
}

#[test]
fn a_turn_that_settles_says_nothing_of_the_prompt_after_it() {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(1, AgentEvent::TurnStarted, &mut out);
    expect(&mut session, 7, "next");
    session.prompt_accepted(1, 7, PromptTurn::After(1), &mut out);
    session.agent_event(3, AgentEvent::TurnSettled { aborted: false }, &mut out);
    session.gone(4, AgentEnd::Stopped, &mut out);
    assert_eq!(interrupted(&out), ["next"]);
}

#[test]
fn unshown_prompts_are_bounded_by_refusing_more() {
    let (mut session, mut out) = (session(), EventWriter::default());
    for token in 0..UNSHOWN_PROMPTS_MAX as u64 {
        assert!(session.has_room_for_prompt());
        expect(&mut session, token + 1, &format!("m{token}"));
        session.prompt_accepted(1, token + 1, PromptTurn::After(0), &mut out);
    }
    assert!(!session.has_room_for_prompt());
    session.agent_event(1, AgentEvent::MessageEnded(user_message("m5", 2)), &mut out);
    assert!(session.has_room_for_prompt());
}

#[test]
fn a_yes_that_is_heard_after_the_agents_end_is_told() {
    let (mut session, mut out) = (session(), EventWriter::default());
    expect(&mut session, 1, "shown");
    expect(&mut session, 2, "waits");
    expect(&mut session, 3, "lost");
    session.agent_event(1, AgentEvent::MessageEnded(user_message("shown", 1)), &mut out);
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["waits"])), &mut out);
    session.gone(3, AgentEnd::Died { error: "killed".into() }, &mut out);
    session.gone(3, AgentEnd::Closed { reason: "over".into() }, &mut out);
    let mut out = EventWriter::default();
    for token in 1..4 {
        session.prompt_accepted(4, token, PromptTurn::After(0), &mut out);
        session.prompt_accepted(4, token, PromptTurn::After(0), &mut out);
    }
    assert_eq!(interrupted(&out), ["lost"], "once, and only what is lost");
}

#[test]
fn proof_of_arrival_ends_the_doubt() {
    let ways: [fn(&mut Session, &mut EventWriter); 2] = [
        // It is in the agent's own queue.
        |session, out| session.agent_event(3, AgentEvent::QueueChanged(queue(&[], &["paint it"])), out),
        // It came back as a message.
        |session, out| session.agent_event(3, AgentEvent::MessageEnded(user_message("paint it", 3)), out),
    ];
    for way in ways {
        let (mut session, mut out) = (session(), EventWriter::default());
        session.agent_event(0, AgentEvent::QueueChanged(queue(&[], &["paint it"])), &mut out);
        session.gone(1, AgentEnd::Stopped, &mut out);
        session.take_kept(2, 10, &mut out).unwrap();
        let text = "paint it".to_owned();
        session.expect_prompt(ExpectedPrompt {
            token: 10,
            text,
            client_id: None,
            user_id: None,
            is_steering: false,
            image_count: 0,
        });
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
    session.expect_prompt(ExpectedPrompt {
        token: 1,
        text,
        client_id: None,
        user_id: None,
        is_steering: false,
        image_count: 2,
    });
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
    session.agent_event(4, AgentEvent::MessageEnded(user_message("read", 4)), &mut out);
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
