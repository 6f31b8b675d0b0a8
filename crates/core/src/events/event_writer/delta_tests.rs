use proptest::prelude::*;
use qd_wire::EventPayload;
use qd_wire::event::Event;
use qd_wire::link::LinkLine;

use super::*;

const TEXT: &str = "stream.text_delta";
const TOOL: &str = "stream.tool_call_delta";

fn piece<'a>(message_id: &'a str, delta: &'a str, offset: u64) -> Delta<'a> {
    Delta { event: TEXT, message_id, tool_call_id: None, delta, content_index: 0, offset }
}

fn lines(outbox: &mut EventWriter) -> Vec<String> {
    String::from_utf8(outbox.take().bytes).unwrap().lines().map(str::to_owned).collect()
}

/// The lines of these deltas, one after the other.
fn lines_of(deltas: &[Delta<'_>]) -> Vec<String> {
    let (mut outbox, front) = (EventWriter::default(), EventFront::new("s1", "local"));
    deltas.iter().for_each(|delta| outbox.delta(&front, 7, *delta));
    lines(&mut outbox)
}

#[test]
fn pieces_that_follow_each_other_are_one_line() {
    let found =
        lines_of(&[piece("m1", "ab", 3), piece("m1", "\"ü\n", 5), piece("m1", "", 8), piece("m1", "c", 8)]);
    let line = concat!(
        r#"{"type":"event","session_id":"s1","runner_id":"local","ts":7,"event":"stream.text_delta","#,
        r#""message_id":"m1","delta":"ab\"ü\nc","content_index":0,"offset":3}"#,
    );
    assert_eq!(found, [line]);
}

#[test]
fn what_does_not_go_on_stays_by_itself() {
    let first = piece("m1", "ab", 0);
    let others = [
        piece("m1", "c", 3),
        piece("m2", "c", 2),
        Delta { content_index: 1, ..piece("m1", "c", 2) },
        Delta { event: "stream.thinking_delta", ..piece("m1", "c", 2) },
        Delta { tool_call_id: Some("t"), ..piece("m1", "c", 2) },
    ];
    for other in others {
        assert_eq!(lines_of(&[first, other]).len(), 2, "{other:?}");
    }
    let call = |id| Delta { event: TOOL, tool_call_id: Some(id), ..piece("m1", "x", 0) };
    let rest = |id| Delta { offset: 1, ..call(id) };
    assert_eq!(lines_of(&[call("t"), rest("t")]).len(), 1);
    assert_eq!(lines_of(&[call("t"), rest("u")]).len(), 2);
    assert_eq!(lines_of(&[call("t\""), rest("t\"")]).len(), 2);
}

#[test]
fn nothing_is_joined_across_another_line_or_a_round() {
    let (mut outbox, front) = (EventWriter::default(), EventFront::new("s1", "local"));
    outbox.delta(&front, 7, piece("m1", "a", 0));
    outbox.known(&front, 7, Some(1), &Event::AgentIdle { reason: None, message_version: None });
    outbox.delta(&front, 7, piece("m1", "b", 1));
    assert_eq!(lines(&mut outbox).len(), 3);
    outbox.delta(&front, 7, piece("m1", "c", 2));
    assert_eq!(lines(&mut outbox).len(), 1);
    outbox.delta(&EventFront::new("s2", "local"), 7, piece("m1", "c", 3));
    outbox.delta(&front, 7, piece("m1", "c", 4));
    assert_eq!(lines(&mut outbox).len(), 2);
}

#[test]
fn a_line_grows_to_its_bound_and_no_further() {
    let (mut outbox, front) = (EventWriter::default(), EventFront::new("s1", "local"));
    for number in 0..JOINED_BYTES_MAX as u64 {
        outbox.delta(&front, 7, piece("m1", "abcd", number * 4));
    }
    let lines = lines(&mut outbox);
    // With its line end a line is at its bound, or less than a piece above it.
    assert!((JOINED_BYTES_MAX..JOINED_BYTES_MAX + 4).contains(&(lines[0].len() + 1)), "{}", lines[0].len());
    assert!(lines.iter().all(|line| line.len() + 1 < JOINED_BYTES_MAX + 4));
    assert_eq!(lines.len(), 5);
}

proptest! {
    #[test]
    fn the_text_stays_the_same(pieces in prop::collection::vec((0..3u32, "\\PC{0,6}|[\"\\\\\n\u{0}\u{1f600}]{0,4}"), 0..60)) {
        let (mut outbox, front) = (EventWriter::default(), EventFront::new("s1", "local"));
        let mut sent = [String::new(), String::new(), String::new()];
        for (index, text) in &pieces {
            let whole = &mut sent[*index as usize];
            let offset = whole.chars().count() as u64;
            outbox.delta(&front, 7, Delta { content_index: *index, ..piece("m1", text, offset) });
            whole.push_str(text);
        }
        let mut found = [String::new(), String::new(), String::new()];
        for line in lines(&mut outbox) {
            let LinkLine::Event(event) = serde_json::from_str(&line).unwrap() else { panic!("an event") };
            let EventPayload::Known(Event::TextDelta { delta, content_index, offset, .. }) = event.payload else {
                panic!("a delta")
            };
            let whole = &mut found[content_index as usize];
            prop_assert_eq!(offset, Some(whole.chars().count() as u64));
            whole.push_str(&delta);
        }
        prop_assert_eq!(found, sent);
    }
}
