//! A person changes what waits for the agent: nothing is lost that was to stay, and nothing is sent twice.

use crate::support::{events_of, last_queue, queue, session, user_message_ended};
use proptest::prelude::*;
use qd_core::agent::{AgentEvent, Image};
use qd_core::event_writer::EventWriter;
use qd_core::session::{AgentEnd, ExpectedPrompt, Session};
use qd_wire::data::{QueueSetData, QueueState};
use serde_json::json;

/// A session that works, with this in the agent's queue.
fn working(queued: QueueState) -> (Session, EventWriter) {
    let (mut session, mut out) = (session(), EventWriter::default());
    session.agent_event(0, AgentEvent::TurnStarted, &mut out);
    session.agent_event(1, AgentEvent::QueueChanged(queued), &mut out);
    (session, out)
}

/// Changes the queue; `cleared` is what the agent gives back of its own.
fn set(
    session: &mut Session,
    out: &mut EventWriter,
    cleared: QueueState,
    wanted: QueueState,
) -> QueueSetData {
    let edit = session.begin_queue_edit();
    session.agent_event(10, AgentEvent::QueueChanged(QueueState::default()), out);
    session.set_queue(11, &edit, &cleared, wanted, Some("anna"), out)
}

fn kept(session: &Session) -> Vec<(String, bool)> {
    session.memory().kept.iter().map(|kept| (kept.text.clone(), kept.is_steering)).collect()
}

#[test]
fn messages_are_changed_removed_and_put_in_another_order() {
    let before = queue(&["a"], &["b", "c", "d"]);
    let (mut session, mut out) = working(before.clone());
    let data = set(&mut session, &mut out, before, queue(&["d"], &["c changed", "a"]));
    assert_eq!((data.steering, data.follow_up), (vec!["d".into()], vec!["c changed".into(), "a".into()]));
    assert_eq!(data.taken, [""; 0]);
    let expected = [("d", true), ("c changed", false), ("a", false)];
    assert_eq!(kept(&session), expected.map(|(text, is_steering)| (text.to_owned(), is_steering)));
    assert_eq!(last_queue(&out), json!({"steering": ["d"], "follow_up": ["c changed", "a"]}));
    assert!(!session.is_queue_in_agent());
}

#[test]
fn what_came_with_a_message_stays_with_its_text() {
    let before = queue(&[], &["look", "think"]);
    let (mut session, mut out) = working(QueueState::default());
    for (token, text) in [(1, "look"), (2, "think")] {
        session.expect_prompt(ExpectedPrompt {
            token,
            text: text.to_owned(),
            client_id: Some(format!("c{token}")),
            user_id: Some("bert".to_owned()),
            is_steering: false,
            image_count: usize::from(token == 1),
        });
    }
    let images = std::sync::Arc::new(vec![Image { data: "AAAA".into(), media_type: "image/png".into() }]);
    session.hold_images(1, "k".into(), images);
    session.agent_event(2, AgentEvent::QueueChanged(before.clone()), &mut out);
    set(&mut session, &mut out, before, queue(&["look"], &["think twice"]));
    let kept = &session.memory().kept;
    assert_eq!((kept[0].client_id.as_deref(), kept[0].user_id.as_deref()), (Some("c1"), Some("bert")));
    assert_eq!(kept[0].images.as_ref().map(|images| images.len()), Some(1));
    assert_eq!((kept[1].client_id.as_deref(), kept[1].user_id.as_deref()), (None, Some("anna")));
    session.take_kept(12, 20, &mut out).unwrap();
    let warned = events_of(out.bytes()).iter().any(|event| event["event"] == "notify");
    assert!(!warned, "its images go with it");
}

#[test]
fn what_the_agent_read_meanwhile_is_not_sent_again_and_is_said() {
    let before = queue(&[], &["a", "b"]);
    // It read "a" before it gave back the rest.
    let (mut session, mut out) = working(before.clone());
    let data = set(&mut session, &mut out, queue(&[], &["b"]), before.clone());
    assert_eq!((data.follow_up, data.taken), (vec!["b".to_owned()], vec!["a".to_owned()]));

    // The person has changed "a", and the agent has the old text.
    let (mut session, mut out) = working(before.clone());
    let data = set(&mut session, &mut out, queue(&[], &["b"]), queue(&[], &["a changed", "b"]));
    assert_eq!((data.follow_up, data.taken), (vec!["b".to_owned()], vec!["a changed".to_owned()]));

    // The person has not seen yet that it was read.
    let (mut session, mut out) = working(before.clone());
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["b"])), &mut out);
    session.agent_event(3, user_message_ended("a", 3), &mut out);
    let data = set(&mut session, &mut out, queue(&[], &["b"]), before);
    assert_eq!((data.follow_up, data.taken), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn what_came_after_the_change_began_stays() {
    let (mut session, mut out) = working(queue(&[], &["a"]));
    let edit = session.begin_queue_edit();
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["a", "late"])), &mut out);
    let data =
        session.set_queue(3, &edit, &queue(&[], &["a", "late"]), QueueState::default(), None, &mut out);
    assert_eq!(data.follow_up, ["late"]);
}

#[test]
fn without_an_agent_the_queue_is_ours_alone() {
    let (mut session, mut out) = working(queue(&["a"], &["b"]));
    session.gone(2, AgentEnd::Stopped, &mut out);
    assert!(!session.is_queue_in_agent());
    let edit = session.begin_queue_edit();
    let wanted = queue(&[], &["b", "new"]);
    let data = session.set_queue(3, &edit, &QueueState::default(), wanted, Some("anna"), &mut out);
    assert_eq!((data.steering, data.follow_up), (vec![], vec!["b".to_owned(), "new".to_owned()]));
}

#[test]
fn a_queue_that_could_not_be_given_back_is_as_it_was() {
    let (mut session, mut out) = working(queue(&[], &["a", "b"]));
    session.begin_queue_edit();
    session.agent_event(2, AgentEvent::QueueChanged(queue(&[], &["b"])), &mut out);
    assert_eq!(session.waiting_inputs().len(), 2, "a crash now loses nothing");
    session.give_up_queue_edit(3, &mut out);
    assert_eq!(session.state().queue, queue(&[], &["b"]), "what it read meanwhile");

    let (mut session, mut out) = working(queue(&[], &["a", "b"]));
    session.begin_queue_edit();
    session.agent_event(2, AgentEvent::QueueChanged(QueueState::default()), &mut out);
    session.gone(3, AgentEnd::Died { error: "killed".into() }, &mut out);
    assert_eq!(session.state().queue, queue(&[], &["a", "b"]), "the next agent gets it");
}

#[test]
fn what_goes_back_shows_no_gap_on_its_way_and_keeps_its_order() {
    let before = queue(&[], &["a", "b", "c"]);
    let (mut session, mut out) = working(before.clone());
    set(&mut session, &mut out, before, queue(&[], &["a", "c"]));
    let mut out = EventWriter::default();
    session.take_kept(12, 20, &mut out).unwrap();
    assert!(events_of(out.bytes()).is_empty(), "nothing has changed for those who look");
    assert_eq!(session.state().queue, queue(&[], &["a", "c"]));
    session.agent_event(13, AgentEvent::QueueChanged(queue(&[], &["a"])), &mut out);
    assert_eq!(session.state().queue, queue(&[], &["a", "c"]));
    session.take_kept(14, 21, &mut out).unwrap();
    // The agent has read "a" and is done with it, so "c" becomes its next turn at once.
    session.agent_event(15, AgentEvent::QueueChanged(QueueState::default()), &mut out);
    session.kept_delivered();
    session.tell_queue(16, &mut out);
    assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": []}));
}

#[test]
fn what_the_agent_gave_back_and_reads_all_the_same_is_not_sent_again() {
    let before = queue(&[], &["a", "b"]);
    let (mut session, mut out) = working(before.clone());
    set(&mut session, &mut out, before.clone(), before);
    session.agent_event(12, user_message_ended("a", 12), &mut out);
    assert_eq!(kept(&session), [("b".to_owned(), false)]);
    assert_eq!(last_queue(&out), json!({"steering": [], "follow_up": ["b"]}));
}

#[test]
fn after_an_abort_what_goes_back_waits_for_a_prompt() {
    let before = queue(&[], &["a", "b"]);
    let (mut session, mut out) = working(before.clone());
    set(&mut session, &mut out, before.clone(), queue(&[], &["b"]));
    assert!(!session.waits_for_prompt(), "its turn runs");
    session.agent_event(12, AgentEvent::TurnSettled { aborted: true }, &mut out);
    assert!(session.waits_for_prompt());

    // The same where the turn was aborted before.
    let (mut session, mut out) = working(before.clone());
    session.agent_event(2, AgentEvent::TurnSettled { aborted: true }, &mut out);
    set(&mut session, &mut out, before, queue(&[], &["b"]));
    assert!(session.waits_for_prompt());
}

proptest! {
    /// Whatever waits, is read meanwhile and is wanted: what is wanted and was not read is in the queue as often as it
    /// is wanted, in that order; what was read is not sent again; what came late is still there.
    #[test]
    fn the_queue_is_what_is_wanted_but_for_what_was_read(
        here in prop::collection::vec(0u8..6, 0..6),
        read in 0usize..6,
        wanted in prop::collection::vec(0u8..6, 0..6),
        late in prop::option::of(Just(9u8)),
    ) {
        let names = |numbers: &[u8]| numbers.iter().map(|number| format!("m{number}")).collect::<Vec<_>>();
        // Each text once: a person cannot tell two that are the same.
        let unique = |mut numbers: Vec<u8>| {
            let mut seen = std::collections::BTreeSet::new();
            numbers.retain(|number| seen.insert(*number));
            names(&numbers)
        };
        let (here, wanted) = (unique(here), unique(wanted));
        let read = read.min(here.len());
        let (mut session, mut out) =
            working(QueueState { steering: Vec::new(), follow_up: here.clone() });
        let edit = session.begin_queue_edit();
        let mut left = here[read..].to_vec();
        left.extend(late.map(|late| format!("m{late}")));
        let cleared = QueueState { steering: Vec::new(), follow_up: left.clone() };
        let asked = QueueState { steering: Vec::new(), follow_up: wanted.clone() };
        let data = session.set_queue(5, &edit, &cleared, asked, None, &mut out);

        for text in &here[..read] {
            prop_assert!(!data.follow_up.contains(text), "{text} was read");
        }
        let (mut known, mut taken) = (Vec::new(), Vec::new());
        for text in &wanted {
            if data.taken.contains(text) { taken.push(text.clone()) } else { known.push(text.clone()) }
        }
        known.extend(late.map(|late| format!("m{late}")));
        prop_assert_eq!(&data.follow_up, &known, "in the order that is wanted, what came late behind it");
        prop_assert!(taken.len() <= read, "no more is left out than was read");
        for text in &taken {
            prop_assert!(here[..read].contains(text) || !here.contains(text), "{text} still waited");
        }
        prop_assert_eq!(session.state().queue.follow_up, data.follow_up);
        let waiting: Vec<String> = session.waiting_inputs().into_iter().map(|kept| kept.text).collect();
        prop_assert_eq!(waiting, known, "and so it is stored");
    }
}
