use proptest::prelude::*;

use super::*;

const DELTA: &str = r#"{"type":"event","session_id":"s1","runner_id":"local","ts":17,"event":"stream.text_delta","message_id":"m1","delta":"hé\"","content_index":0}"#;

fn slow(line: &str) -> LineHead<'_> {
    parse_any(line, "local").unwrap()
}

#[test]
fn a_usual_event_is_spliced_and_not_copied() {
    let LineHead::Event(head) = parse(DELTA, "local").unwrap() else { panic!("not an event") };
    assert_eq!((&*head.session_id, head.ts, head.seq, &*head.event), ("s1", 17, None, "stream.text_delta"));
    assert!(matches!(head.tail, Cow::Borrowed(_)));
    let frame = format!("{}{}", std::str::from_utf8(EVENT_PREFIX).unwrap(), head.tail);
    assert_eq!(frame, DELTA.replace(r#""type":"event""#, r#""channel":"agent""#));
}

#[test]
fn any_order_is_read_and_brought_into_the_usual_one() {
    let line = r#"{"event":"agent.idle","x":[1,2],"seq":7,"ts":9,"session_id":"s\u00311","type":"event"}"#;
    let LineHead::Event(head) = parse(line, "far").unwrap() else { panic!("not an event") };
    assert_eq!((&*head.session_id, head.ts, head.seq, &*head.event), ("s11", 9, Some(7), "agent.idle"));
    assert_eq!(
        head.tail,
        r#""session_id":"s\u00311","runner_id":"far","ts":9,"seq":7,"event":"agent.idle","x":[1,2]}"#
    );
}

#[test]
fn the_seq_of_a_resync_is_no_record_number() {
    let usual = r#"{"type":"event","session_id":"s","runner_id":"r","ts":9,"event":"session.resync","resume":"gap","seq":7}"#;
    let odd = r#"{"type":"event","session_id":"s","runner_id":"r","ts":9,"seq":7,"event":"session.resync","resume":"gap"}"#;
    for (line, tail) in [
        (
            usual,
            r#""session_id":"s","runner_id":"r","ts":9,"event":"session.resync","resume":"gap","seq":7}"#,
        ),
        (odd, r#""session_id":"s","runner_id":"r","ts":9,"event":"session.resync","seq":7,"resume":"gap"}"#),
    ] {
        let LineHead::Event(head) = parse(line, "r").unwrap() else { panic!("not an event") };
        assert_eq!((head.seq, &*head.event, &*head.tail), (None, "session.resync", tail));
        assert_eq!(LineHead::Event(head), parse_any(line, "r").unwrap());
    }
}

#[test]
fn a_runner_speaks_for_itself_only() {
    let LineHead::Event(head) = parse(DELTA, "own").unwrap() else { panic!("not an event") };
    assert!(head.tail.starts_with(r#""session_id":"s1","runner_id":"own","ts":17,"#), "{}", head.tail);
    assert!(!head.tail.contains("local"));
}

#[test]
fn responses_keep_everything_but_the_id() {
    let tail = r#""session_id":"s1","runner_id":"local","ts":3,"cmd":"prompt","success":false,"error":"no"}"#;
    let line = format!(r#"{{"type":"response","id":"h12",{tail}"#);
    let LineHead::Response(head) = parse(&line, "local").unwrap() else { panic!("not a response") };
    assert_eq!((&*head.id, head.session_id.as_deref(), head.success), ("h12", Some("s1"), false));
    assert_eq!(head.tail, tail);
    let shuffled = r#"{"success":true,"cmd":"get_state","id":"h1","type":"response","extra":1}"#;
    let LineHead::Response(head) = parse(shuffled, "local").unwrap() else { panic!("not a response") };
    assert_eq!(head.tail, r#""runner_id":"local","cmd":"get_state","success":true,"extra":1}"#);
}

#[test]
fn what_is_no_line_is_refused() {
    for line in ["", "{}", "[]", "nonsense", r#"{"type":5}"#, r#"{"type":"event"}"#, r#"{"type":"response"}"#]
    {
        assert!(parse(line, "local").is_err(), "{line}");
    }
    for line in
        [r#"{"type":"event","session_id":"s","event":"e","seq":-1}"#, r#"{"type":"event","session_id":7}"#]
    {
        assert!(parse(line, "local").is_err(), "{line}");
    }
    assert_eq!(parse(r#"{"type":"runner.hello"}"#, "x").unwrap(), LineHead::Other("runner.hello".into()));
}

#[test]
fn a_line_of_another_machine_is_whole_and_has_one_head() {
    check(DELTA).unwrap();
    check(r#"{"type":"response","id":"h1","session_id":"s","runner_id":"r","ts":1,"cmd":"c","success":true,"data":{"id":1,"event":2}}"#).unwrap();
    check(r#"{"type":"runner.heartbeat","uptime_s":1}"#).unwrap();
    let head = r#"{"type":"event","session_id":"s","runner_id":"local","ts":1,"seq":2,"event":"notify""#;
    for tail in [
        "",
        r#","x":}"#,
        r#","x":1},"y":{}"#,
        r#","x":[1}"#,
        r#","session_id":"t"}"#,
        r#","runner_id":"other"}"#,
        r#","\u0074s":5}"#,
        r#","seq":3}"#,
        r#","event":"response"}"#,
        r#","type":"event"}"#,
        r#","channel":"system"}"#,
        r#","id":"1","id":"2"}"#,
    ] {
        let line = format!("{head}{tail}");
        assert!(check(&line).is_err(), "{line}");
    }
    check(&format!(r#"{head},"x":{{"seq":9,"channel":"c"}}}}"#)).unwrap();
    assert!(check(r#"{"type":"response","id":"h1","event":"agent.idle"}"#).is_err());
    // The hub would act on the first, and a client on the last.
    assert!(check(r#"{"type":"response","id":"h1","session_id":"s","runner_id":"r","ts":1,"cmd":"c","success":true,"success":false}"#).is_err());
    assert!(check(r#"{"event":"agent.idle","type":"response","id":"h1"}"#).is_err());
}

fn event_line() -> impl Strategy<Value = String> {
    let rest = prop_oneof![
        Just(serde_json::json!({})),
        any::<String>().prop_map(|text| serde_json::json!({ "delta": text }))
    ];
    (
        any::<String>(),
        "local|own|[a-z]{1,8}",
        0..i64::MAX,
        proptest::option::of(any::<u64>()),
        any::<String>(),
        rest,
    )
        .prop_map(|(session, runner, ts, seq, event, rest)| {
            let seq = seq.map_or(String::new(), |seq| format!(r#""seq":{seq},"#));
            let rest = rest.to_string();
            let rest = if rest == "{}" { "}".to_owned() } else { format!(",{}", &rest[1..]) };
            format!(
                r#"{{"type":"event","session_id":{},"runner_id":"{runner}","ts":{ts},{seq}"event":{}{rest}"#,
                json_string(&session),
                json_string(&event)
            )
        })
}

proptest! {
    #[test]
    fn the_fast_way_and_the_slow_way_agree(line in event_line()) {
        prop_assert_eq!(parse(&line, "local").unwrap(), slow(&line));
        prop_assert_eq!(parse(&line, "own").unwrap(), parse_any(&line, "own").unwrap());
    }

    #[test]
    fn no_text_panics(line in any::<String>()) {
        // Only that it returns is checked here.
        let _ = parse(&line, "local");
    }

    #[test]
    fn no_cut_line_panics(line in event_line(), cut in any::<prop::sample::Index>()) {
        let mut end = cut.index(line.len());
        while !line.is_char_boundary(end) { end -= 1; }
        let _ = parse(&line[..end], "local");
    }
}

#[test]
fn the_fields_behind_a_head_are_what_a_view_would_read_there() {
    for line in [
        r#"{"type":"event","session_id":"s","runner_id":"local","ts":9,"seq":7,"event":"run.output","stream":"stdout","text":"a\"b"}"#,
        r#"{"type":"event","session_id":"s","runner_id":"local","ts":9,"seq":7,"event":"agent.idle"}"#,
        r#"{"event":"agent.idle","reason":"stop","ts":9,"seq":7,"session_id":"s\u00311","type":"event"}"#,
        r#"{"event":"agent.idle","ts":9,"seq":7,"session_id":"s","type":"event"}"#,
    ] {
        let LineHead::Event(head) = parse(line, "local").unwrap() else { panic!("not an event") };
        let text = format!("{}{}", std::str::from_utf8(EVENT_PREFIX).unwrap(), head.tail);
        let read_again = qd_core::record::Record::parse(&text).unwrap();
        assert_eq!(head.tail[head.body_at..], *read_again.rest, "{line}");
        assert_eq!((head.seq, head.ts, &*head.event), (Some(7), 9, &*read_again.event));
    }
}
