//! Any lines as those of a runner: what the hub passes on to clients is one JSON object whose head says what the hub has
//! read, in the runner's own name, whichever of two equal names a client's parser takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::record::Record;
use qd_fuzz::json::{is_exact, is_json, value};
use qd_fuzz::runners::{ReadLine, is_checked, read_line};
use qd_wire::link::LinkLine;

const RUNNER: &str = "r";

fuzz_target!(|text: &str| {
    for line in text.split('\n') {
        // A runner in the hub's own process is not checked; nothing may panic all the same.
        let read = read_line(line, RUNNER);
        drop(Record::parse(line));
        drop(Record::parse_live(line));
        check_typed(line);
        if !is_checked(line) {
            continue;
        }
        assert!(is_json(line), "the hub's check passes what is no JSON");
        let Some(read) = read else { continue };
        // In our own order a `seq` behind the head is the event's own, as a resync has one. In another order it may be the
        // record's, or make the line one that cannot be read.
        if matches!(&read, ReadLine::Event { seq: None, frame, .. } if frame.contains("seq") || frame.contains('\\'))
        {
            check(&read, &read);
            continue;
        }
        // A space takes it the way of lines in another order, which must say the same.
        let other_way = read_line(&format!(" {line}"), RUNNER).expect("both ways read it");
        check(&read, &other_way);
        check(&other_way, &read);
    }
});

fn check(read: &ReadLine, other: &ReadLine) {
    match (read, other) {
        (
            ReadLine::Event { session_id, ts, seq, event, frame, body },
            ReadLine::Event {
                session_id: other_session,
                ts: other_ts,
                seq: other_seq,
                event: other_event,
                ..
            },
        ) => {
            assert_eq!((session_id, ts, seq, event), (other_session, other_ts, other_seq, other_event));
            assert!(is_json(frame) && is_json(body) && !frame.contains('\n'), "{frame}");
            // A number that no float holds, or half of a character, is passed on as it came.
            let Some(value) = value(frame) else { return };
            assert_eq!(value["channel"], "agent");
            assert_eq!(value["session_id"], **session_id);
            assert_eq!(value["runner_id"], RUNNER);
            assert_eq!(value["event"], **event);
            if let Some(seq) = seq {
                assert_eq!(value["seq"], *seq);
            }
            for name in ["\"channel\":", "\"session_id\":", "\"runner_id\":"] {
                assert!(frame.contains(name), "{frame}");
            }
        }
        (
            ReadLine::Response { id, session_id, success, tail },
            ReadLine::Response { id: other_id, session_id: other_session, success: other_success, .. },
        ) => {
            assert_eq!((id, session_id, success), (other_id, other_session, other_success));
            assert!(is_json(tail) && !tail.contains('\n'), "{tail}");
            if let Some(value) = value(tail) {
                assert_eq!(value["success"].as_bool().unwrap_or(false), *success);
            }
        }
        (ReadLine::Other(kind), ReadLine::Other(other)) => assert_eq!(kind, other),
        _ => panic!("{read:?} is not {other:?}"),
    }
}

/// Hello, heartbeat and all others: what is read and written is read again as the same.
fn check_typed(line: &str) {
    let Ok(read) = serde_json::from_str::<LinkLine>(line) else { return };
    let written = serde_json::to_string(&read).expect("what was read can be written");
    assert!(!written.contains('\n'));
    let again: LinkLine = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    if is_exact(line) {
        assert_eq!(read, again);
    }
}
