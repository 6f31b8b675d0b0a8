//! The frame decoder and validator of the pi-server face against frames nobody would send: the corpus is replayed,
//! then mutated for a while. `cargo xtask fuzz --mutate --seconds 600` does it for longer; `fuzz/` has the
//! same for libFuzzer.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "pi_server_support/checks.rs"]
mod checks;
#[allow(dead_code, reason = "this test needs a part of it")]
mod pi_server_support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use checks::check_frame;
use pi_server_support::corpus;
use qd_wire::pi_server::COMMANDS;

/// How long one run of the tests fuzzes.
const SECONDS: u64 = 3;

/// The longest frame made; what breaks at more, breaks at less.
const FRAME_BYTES_MAX: usize = 4096;

#[test]
fn the_corpus_is_read() {
    for (name, text) in corpus() {
        let checked = catch_unwind(|| check_frame(&text));
        assert!(checked.is_ok(), "the frame {name} of the corpus");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "fuzzing is bounded by time")]
fn mutated_frames_are_read() {
    let seconds = std::env::var("QD_FUZZ_SECONDS").ok().map(|text| text.parse().expect("seconds"));
    let seed = std::env::var("QD_FUZZ_SEED").ok().map(|text| text.parse().expect("a number"));
    let end = std::time::Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let mut random = Random(seed.unwrap_or(0x5eed_0001));
    let seeds: Vec<String> = corpus().into_iter().map(|(_, text)| text).collect();
    let mut pool = seeds.clone();
    let (mut frames, mut valid) = (0_u64, 0_u64);
    while std::time::Instant::now() < end {
        for _ in 0..256 {
            let frame = mutate(&mut random, &seeds, &pool);
            frames += 1;
            let checked = catch_unwind(AssertUnwindSafe(|| check_frame(&frame)));
            assert!(checked.is_ok(), "frame {frames}, keep it in the corpus: {frame:?}");
            // What is still a command is the best beginning of the next.
            if frame.len() < FRAME_BYTES_MAX && qd_core::view::pi_server::request::read(&frame).is_ok() {
                valid += 1;
                let place = random.below(POOL_MAX);
                if pool.len() < POOL_MAX {
                    pool.push(frame);
                } else {
                    pool[place] = frame;
                }
            }
        }
    }
    println!("{frames} frames, {valid} of them valid");
    assert!(valid > 0 && frames > valid, "{frames} frames, {valid} of them valid");
}

const POOL_MAX: usize = 4096;

/// One new frame out of old ones.
fn mutate(random: &mut Random, seeds: &[String], pool: &[String]) -> String {
    let mut frame = match random.below(4) {
        0 => random.pick(seeds).clone(),
        1 => {
            let object = random_object(random, pool);
            structured(random, object)
        }
        _ => random.pick(pool).clone(),
    };
    for _ in 0..random.below(4) {
        frame = if random.below(3) == 0 {
            bytes(random, &frame, pool)
        } else {
            match serde_json::from_str(&frame) {
                Ok(object) => structured(random, object),
                Err(_) => bytes(random, &frame, pool),
            }
        };
    }
    frame
}

type Object = serde_json::Map<String, serde_json::Value>;

fn random_object(random: &mut Random, pool: &[String]) -> Object {
    let frame: &String = random.pick(pool);
    serde_json::from_str(frame).unwrap_or_default()
}

/// Other values, other fields, another type.
fn structured(random: &mut Random, mut object: Object) -> String {
    let names: Vec<String> = object.keys().cloned().collect();
    let fields = [
        "id",
        "idempotencyKey",
        "dependsOn",
        "ifSessionVersion",
        "sessionId",
        "message",
        "images",
        "response",
        "sessionPath",
        "limit",
        "fromTimestamp",
        "toTimestamp",
        "options",
        "name",
        "level",
        "direction",
        "cwd",
        "enabled",
        "requestId",
        "command",
        "streamingBehavior",
        "extensions",
        "thinkingLevel",
        "__proto__",
        "",
    ];
    match random.below(4) {
        0 => {
            let kind = random.pick(COMMANDS).name;
            object.insert("type".to_owned(), kind.into());
        }
        1 if !names.is_empty() => {
            object.remove(random.pick(&names));
        }
        2 if !names.is_empty() => {
            let value = value(random, 0);
            object.insert(random.pick(&names).clone(), value);
        }
        _ => {
            let value = value(random, 0);
            object.insert((*random.pick(&fields)).to_owned(), value);
        }
    }
    serde_json::Value::Object(object).to_string()
}

fn value(random: &mut Random, depth: usize) -> serde_json::Value {
    use serde_json::json;
    let texts = [
        "",
        " ",
        "x",
        "a.b:c-d_e",
        "anon:1",
        "..",
        "~",
        "/a/b.jsonl",
        "\0",
        "\u{7f}",
        "steer",
        "followUp",
        "none",
        "off",
        "forward",
        "image",
        "image/png",
        "QUJD",
        "select",
        "interview",
        "cancelled",
        "confirm",
        "\u{feff}",
        "👩‍👩‍👧",
        "ü",
        "Session 'x' not found",
        "\u{2028}",
        "_server_",
        "_system",
    ];
    match random.below(if depth > 3 { 6 } else { 10 }) {
        0 => serde_json::Value::Null,
        1 => json!(random.below(2) == 0),
        2 => json!(random.next() as i64),
        3 => json!(f64::from_bits(random.next())),
        4 => json!(*random.pick(&[0.0, -0.0, 1.0, 1.5, 500.0, 501.0, 9_007_199_254_740_993.0, 1e300])),
        5 => json!("x".repeat(*random.pick(&[255, 256, 257, 300]))),
        6 | 7 => json!(*random.pick(&texts)),
        8 => (0..random.below(5)).map(|_| value(random, depth + 1)).collect(),
        _ => {
            let names = [
                "type",
                "method",
                "value",
                "data",
                "mimeType",
                "confirmed",
                "responses",
                "summarize",
                "label",
            ];
            let mut object = Object::new();
            for _ in 0..random.below(5) {
                let field = value(random, depth + 1);
                object.insert((*random.pick(&names)).to_owned(), field);
            }
            serde_json::Value::Object(object)
        }
    }
}

/// Bytes changed, cut, doubled, joined with another frame's; what is no text any more is made one.
fn bytes(random: &mut Random, frame: &str, pool: &[String]) -> String {
    let mut bytes = frame.as_bytes().to_vec();
    let place = random.below(bytes.len() + 1);
    match random.below(6) {
        0 => bytes.truncate(place),
        1 => bytes.insert(place, random.next() as u8),
        2 if place < bytes.len() => bytes[place] ^= 1 << random.below(8),
        3 => bytes.extend_from_within(place..),
        4 => {
            let token = *random.pick(&[
                b"\"".as_slice(),
                b"\\",
                b"{",
                b"}",
                b"[",
                b",",
                b":",
                b"null",
                b"1e999",
                b"\\ud800",
                b"-0",
                b"\n",
                b"1E5",
                b"18446744073709551616",
                b"\xf0\x9f\x98\x80",
            ]);
            bytes.splice(place..place, token.iter().copied());
        }
        _ => {
            let other = random.pick(pool).as_bytes();
            let from = random.below(other.len() + 1);
            bytes.splice(place.., other[from..].iter().copied());
        }
    }
    bytes.truncate(FRAME_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A small generator (SplitMix64): the same seed gives the same frames.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
