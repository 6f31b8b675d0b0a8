//! Any text as a frame of the pi-server face: no panic, one answer, a canonical command that parses, a fingerprint that
//! does not depend on the order of fields, the id as it was sent.
//!
//! The tests of `qd-core` make the same checks over the same corpus, and over mutations of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/core/tests/pi_server_support/checks.rs"]
mod checks;

fuzz_target!(|text: &str| checks::check_frame(text));
