use super::*;

/// Runs the demo on a clock of its own until it waits for a person or is idle.
fn run(demo: &mut DemoAgent, now: &mut i64, out: &mut Vec<AgentEvent>) {
    while let Some(at) = demo.next_wake() {
        *now = (*now).max(at);
        demo.advance(*now, out);
    }
}

fn events(prompt: &str) -> Vec<AgentEvent> {
    let (mut demo, mut now, mut out) = (DemoAgent::default(), 1000, Vec::new());
    demo.prompt(now, prompt.to_owned(), None, &mut out).unwrap();
    run(&mut demo, &mut now, &mut out);
    out
}

#[test]
fn every_script_ends_in_a_settled_turn() {
    for script in SCRIPTS {
        let (mut demo, mut now, mut out) = (DemoAgent::default(), 1000, Vec::new());
        demo.prompt(now, format!("/{}", script.name), None, &mut out).unwrap();
        run(&mut demo, &mut now, &mut out);
        if let Some(AgentEvent::InputNeeded(request)) = out.last().cloned() {
            demo.answer(now, request.request_id(), &QuestionAnswer::Value("green".into()));
            run(&mut demo, &mut now, &mut out);
        }
        assert_eq!(out.last(), Some(&AgentEvent::TurnSettled { aborted: false }), "{}", script.name);
        let count = |wanted: fn(&AgentEvent) -> bool| out.iter().filter(|event| wanted(event)).count();
        let started = count(|event| matches!(event, AgentEvent::MessageStarted(_)));
        assert_eq!(started, count(|event| matches!(event, AgentEvent::MessageEnded(_))), "{}", script.name);
    }
}

#[test]
fn a_long_answer_has_as_many_pieces_as_asked() {
    let deltas =
        events("/long 300").iter().filter(|event| matches!(event, AgentEvent::TextDelta { .. })).count();
    assert_eq!(deltas, 300);
}

#[test]
fn anything_else_names_the_scripts() {
    let text: String = events("hi there")
        .into_iter()
        .filter_map(|event| match event {
            AgentEvent::TextDelta { delta, .. } => Some(delta),
            _ => None,
        })
        .collect();
    assert!(SCRIPTS.iter().all(|script| text.contains(&format!("/{}", script.name))), "{text}");
}

#[test]
fn queued_prompts_run_before_the_turn_settles() {
    let (mut demo, mut now, mut out) = (DemoAgent::default(), 1000, Vec::new());
    demo.prompt(now, "/text".into(), None, &mut out).unwrap();
    assert!(demo.prompt(now, "x".into(), None, &mut out).is_err());
    demo.prompt(now, "later".into(), Some(WhenBusy::FollowUp), &mut out).unwrap();
    demo.prompt(now, "sooner".into(), Some(WhenBusy::Steer), &mut out).unwrap();
    run(&mut demo, &mut now, &mut out);
    let settled = out.iter().filter(|event| matches!(event, AgentEvent::TurnSettled { .. })).count();
    assert_eq!(settled, 1);
    assert_eq!(demo.stats.prompts, 3);
}
