//! Any text as a message of a third-party host: each of its events becomes one record with the number it had, which the
//! hub reads as it reads those of its own runners; each of its answers an answer or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::record::{Record, SessionKind};
use qd_core::view::run::event::show;
use qd_core::view::run::host::{answer, event, time};
use qd_fuzz::json::is_json;
use qd_fuzz::runners::{ReadLine, is_checked, read_line};
use qd_wire::link::{LinkEvent, LinkLine};
use qd_wire::run_protocol::{Envelope, ResponseData};

const RUNNER: &str = "host-1";

fuzz_target!(|text: &str| {
    let Ok(envelope) = serde_json::from_str::<Envelope>(text) else { return };
    let _ = envelope.ts.as_deref().and_then(time::from_text);
    if let Ok(response) = serde_json::from_value::<ResponseData>(envelope.data.clone()) {
        drop(serde_json::to_string(&response));
    }
    let field = |name: &str| envelope.data.get(name);
    let result = field("result").cloned().unwrap_or_default();
    let error = field("error").and_then(|error| error.as_str());
    for is_ok in [true, false] {
        if let Ok(data) = answer::data(&envelope.kind, is_ok, &result, error) {
            assert!(data.is_object());
        }
    }
    drop(answer::started_run(envelope.run_id.as_deref(), &result));
    check_event(envelope);
});

fn check_event(envelope: Envelope) {
    let names = envelope.kind.bytes().chain(envelope.run_id.iter().flat_map(|run_id| run_id.bytes()));
    let is_plain = names.into_iter().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    let (payload, problem) = event::record(&envelope.kind, envelope.data);
    assert!(problem.is_none_or(|problem| !problem.is_empty()));
    let seq = envelope.seq.unwrap_or(1);
    let session_id = envelope.run_id.unwrap_or_else(|| "run-1".to_owned());
    let event = LinkEvent {
        session_id: session_id.clone(),
        runner_id: Some(RUNNER.to_owned()),
        ts: 7,
        seq: Some(seq),
        payload,
    };
    let line = serde_json::to_string(&LinkLine::Event(event)).expect("a record can be written");
    assert!(!line.contains('\n') && is_json(&line));
    assert!(is_checked(&line), "the hub refuses its own line: {line}");
    let Some(ReadLine::Event { session_id: read_id, seq: read_seq, event, frame, .. }) =
        read_line(&line, RUNNER)
    else {
        panic!("the hub does not read its own line: {line}");
    };
    assert_eq!((read_id, read_seq), (session_id, Some(seq)));
    assert!(!event.is_empty());
    // A name with escapes takes the slow way, whose parser refuses what is very deep.
    let Some(record) = Record::parse(&frame) else {
        assert!(!is_plain, "no record: {frame}");
        return;
    };
    assert_eq!((record.seq, &*record.event), (seq, &*event));
    for kind in [SessionKind::Terminal, SessionKind::Agent] {
        show(kind, &record, &mut |shown| {
            let text = shown.pieces.concat();
            assert!(is_json(&text), "{text}");
        });
    }
}
