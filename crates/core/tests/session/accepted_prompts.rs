//! A prompt that an agent has accepted is in the conversation once: shown by the agent, or marked as interrupted.

use std::collections::HashSet;

use crate::support::{
    after_a_crash, events_of, expect, interrupted, last_queue, notes, queue, session, user_message,
    user_message_ended,
};
use qd_core::agent::{AgentEvent, NativeMessage};
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, ExpectedPrompt, PromptTurn, Session, UNSHOWN_PROMPTS_MAX};
use qd_wire::data::SessionStatus;
use serde_json::json;

#[test]
fn a_prompt_that_was_accepted_and_never_shown_is_in_the_conversation_once() {
    let expected = || ExpectedPrompt { token: 7, text: "paint it".to_owned(), ..ExpectedPrompt::default() };
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
        session.agent_event(1, user_message_ended("paint it", 1), &mut out);
        end(&mut session, &mut out);
        assert_eq!(interrupted(&out), [""; 0], "it was read");
    }
}

#[test]
fn a_prompt_that_came_back_under_another_text_was_read_when_its_turn_settles() {
    for turn in [PromptTurn::After(0), PromptTurn::Running] {
        let (mut session, mut out) = (session(), EventWriter::default());
        expect(&mut session, 7, "/skill:paint");
        session.agent_event(1, AgentEvent::TurnStarted, &mut out);
        session.prompt_accepted(1, 7, turn, &mut out);
        session.agent_event(2, user_message_ended("Paint well.", 2), &mut out);
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
    session.agent_event(2, user_message_ended("Paint it red.", 2), &mut out);
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
            ..ExpectedPrompt::default()
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
        user_id: Some("anna".into()),
        image_count: 1,
        ..ExpectedPrompt::default()
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
            session.agent_event(2, user_message_ended(text, 2), &mut out);
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
                    message.map(|text| user_message_ended(&text, 2)),
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
    session.agent_event(2, user_message_ended("One, changed.", 2), &mut out);
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
    session.agent_event(1, user_message_ended("m5", 2), &mut out);
    assert!(session.has_room_for_prompt());
}

#[test]
fn a_yes_that_is_heard_after_the_agents_end_is_told() {
    let (mut session, mut out) = (session(), EventWriter::default());
    expect(&mut session, 1, "shown");
    expect(&mut session, 2, "waits");
    expect(&mut session, 3, "lost");
    session.agent_event(1, user_message_ended("shown", 1), &mut out);
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
