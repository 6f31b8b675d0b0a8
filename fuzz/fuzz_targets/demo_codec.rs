//! Any prompts, aborts and answers to the demo agent: turns begin and end in pairs, the same inputs give the same events,
//! the queue is bounded, and it never waits for itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::agent::{AgentEvent, QuestionAnswer, WhenBusy};
use qd_core::harness::demo::DemoAgent;

/// Longer scripts are aborted.
const STEPS_MAX: usize = 200;

fuzz_target!(|text: &str| {
    let events = play(text);
    assert_eq!(format!("{events:?}"), format!("{:?}", play(text)), "the same inputs give other events");
});

fn play(text: &str) -> Vec<AgentEvent> {
    let (mut demo, mut out, mut now) = (DemoAgent::default(), Vec::new(), 1_000);
    for line in text.lines().take(100) {
        now += 5;
        match line.split_at_checked(1) {
            Some(("a", _)) => demo.abort(&mut out),
            Some(("c", _)) => drop(demo.clear_queue(&mut out)),
            Some(("w", rest)) => now += rest.parse::<u16>().map_or(10, i64::from),
            Some(("y", rest)) => demo.answer(now, rest, &QuestionAnswer::Confirmed(true)),
            Some(("s", rest)) => drop(demo.prompt(now, rest.to_owned(), Some(WhenBusy::Steer), &mut out)),
            Some(("f", rest)) => drop(demo.prompt(now, rest.to_owned(), Some(WhenBusy::FollowUp), &mut out)),
            _ => drop(demo.prompt(now, line.to_owned(), None, &mut out)),
        }
        demo.advance(now, &mut out);
    }
    let mut steps = 0;
    while let Some(wake) = demo.next_wake() {
        now = now.max(wake);
        demo.advance(now, &mut out);
        assert!(demo.next_wake().is_none_or(|next| next > now), "it waits for a moment that has passed");
        steps += 1;
        if steps > STEPS_MAX {
            demo.abort(&mut out);
        }
    }
    check(&out);
    out
}

fn check(events: &[AgentEvent]) {
    let mut is_in_turn = false;
    for event in events {
        match event {
            AgentEvent::TurnStarted => is_in_turn = true,
            AgentEvent::TurnSettled { .. } => is_in_turn = false,
            AgentEvent::QueueChanged(queue) => assert!(queue.steering.len() + queue.follow_up.len() <= 64),
            _ => assert!(is_in_turn, "{event:?} outside of a turn"),
        }
    }
}
