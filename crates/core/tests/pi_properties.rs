//! Whatever bytes come, the codec lives; however they are cut, it says the same.
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failing test")]
#![allow(clippy::expect_used, reason = "a helper of a test fails the test")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod pi_support;

use std::sync::LazyLock;

use pi_support::{Fixture, NOW_MS, decode, fixtures};
use proptest::prelude::*;
use qd_core::agent::AgentEvent;
use qd_core::harness::lines::LineSplitter;
use qd_core::harness::pi::{PiCodec, PiOutput};

static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(fixtures);

/// What the codec may keep between lines, whatever came.
const RETAINED_BYTES_MAX: usize = 256 * 1024;
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

fn through_chunks(bytes: &[u8], cuts: &[usize]) -> Vec<PiOutput> {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut codec = PiCodec::new();
    let mut out = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = &bytes[from..cut];
        while let Some(line) = splitter.next_line(&mut piece) {
            codec.line(line.unwrap(), NOW_MS, &mut out);
        }
        from = cut;
    }
    if let Some(line) = splitter.finish() {
        codec.line(line.unwrap(), NOW_MS, &mut out);
    }
    out
}

#[test]
fn every_recording_says_the_same_in_chunks_of_any_size() {
    for fixture in FIXTURES.iter() {
        let bytes = fixture.bytes();
        let whole = decode(&fixture.lines);
        for size in [1, 7, 4096] {
            let cuts: Vec<usize> = (0..bytes.len()).step_by(size).collect();
            assert!(through_chunks(&bytes, &cuts) == whole, "{} in chunks of {size}", fixture.name);
        }
    }
}

#[test]
fn every_end_follows_its_start() {
    for fixture in FIXTURES.iter() {
        let mut open = None;
        let mut left_open = 0;
        for output in decode(&fixture.lines) {
            match output {
                PiOutput::Event(AgentEvent::MessageStarted(head)) => {
                    left_open += usize::from(open.replace(head).is_some());
                }
                PiOutput::Event(AgentEvent::MessageEnded(message)) => {
                    assert_eq!(open.take(), Some(message.head), "{}", fixture.name);
                }
                _ => {}
            }
        }
        // Only a pi that was killed leaves a message open, and only its last one.
        assert_eq!(left_open, 0, "{}", fixture.name);
    }
}

#[test]
fn a_turn_of_failing_extensions_does_not_grow_the_codec() {
    let mut codec = PiCodec::new();
    let mut out = Vec::new();
    codec.line(br#"{"type":"agent_start"}"#, NOW_MS, &mut out);
    let error = "x".repeat(10_000);
    for number in 0..10_000 {
        let line = format!(
            r#"{{"type":"extension_error","extensionPath":"a","event":"e","error":"{number}{error}"}}"#
        );
        codec.line(line.as_bytes(), NOW_MS, &mut out);
        assert!(codec.retained_bytes() < RETAINED_BYTES_MAX);
    }
    assert!(out.len() < 20, "{} outputs", out.len());
}

/// A line that looks like one of pi's, with one byte changed, or a piece cut out.
fn damaged_line() -> impl Strategy<Value = Vec<u8>> {
    let lines: Vec<&'static Vec<u8>> = FIXTURES.iter().flat_map(|fixture| &fixture.lines).collect();
    (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<u8>(),
        any::<bool>(),
    )
        .prop_map(move |(line, from, to, byte, cut)| {
            let mut line = line.get(&lines).to_vec();
            let (from, to) = (from.index(line.len()), to.index(line.len()));
            if cut {
                line.drain(from.min(to)..from.max(to));
            } else {
                line[from] = byte;
            }
            line
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..2000), cuts in prop::collection::vec(0usize..2000, 0..8)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(through_chunks(&bytes, &cuts), through_chunks(&bytes, &[]));
    }

    #[test]
    fn damaged_lines_do_no_harm(lines in prop::collection::vec(damaged_line(), 1..20)) {
        let mut codec = PiCodec::new();
        for line in lines {
            let mut out = Vec::new();
            codec.line(&line, NOW_MS, &mut out);
            // A line says at most: start, end, done; or a settle with what extensions failed.
            prop_assert!(out.len() <= 20);
            prop_assert!(codec.retained_bytes() < RETAINED_BYTES_MAX + line.len());
        }
    }

    #[test]
    fn chunks_do_not_matter(fixture in any::<prop::sample::Index>(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let fixture = fixture.get(&FIXTURES);
        let bytes = fixture.bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert!(through_chunks(&bytes, &cuts) == decode(&fixture.lines), "{}", fixture.name);
    }

    #[test]
    fn deep_json_is_refused(depth in 1usize..100_000, key in "[a-z_]{1,12}") {
        let line = format!("{{\"type\":\"{key}\",\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let mut out = Vec::new();
        PiCodec::new().line(line.as_bytes(), NOW_MS, &mut out);
        prop_assert!(out.len() <= 1);
    }
}
