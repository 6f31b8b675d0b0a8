//! What happened, line by line with the virtual time; and the first thing that must not happen.
//!
//! A world is one thread, so the trace belongs to the thread and everybody may write to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Lines kept for the report of a failure.
const LINES_MAX: usize = 250;

#[derive(Default)]
struct Trace {
    /// Between the steps of the simulation nobody else knows the time.
    now: Duration,
    lines: VecDeque<String>,
    hash: u64,
    counts: BTreeMap<String, u64>,
    violation: Option<Violation>,
    is_printed: bool,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: String,
    pub(crate) detail: String,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::new(Trace::default());
}

fn with<T>(work: impl FnOnce(&mut Trace) -> T) -> T {
    TRACE.with_borrow_mut(work)
}

/// Whether every line is printed as it comes.
pub(crate) fn print_all(is_printed: bool) {
    with(|trace| trace.is_printed = is_printed);
}

pub(crate) fn set_now(now: Duration) {
    with(|trace| trace.now = now);
}

/// The virtual time.
pub(crate) fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_else(|| with(|trace| trace.now))
}

/// Writes one line; its text must depend on nothing but the seed.
pub(crate) fn note(who: &str, text: &str) {
    let now = now();
    let line = format!("{:>9.3} {who:<4} {text}", now.as_secs_f64());
    with(|trace| {
        trace.hash = fnv(trace.hash, line.as_bytes());
        if trace.is_printed {
            println!("{line}");
        }
        if trace.lines.len() >= LINES_MAX {
            trace.lines.pop_front();
        }
        trace.lines.push_back(line);
    });
}

/// Counts something for the summary.
pub(crate) fn count(name: &str) {
    add(name, 1);
}

pub(crate) fn add(name: &str, number: u64) {
    with(|trace| match trace.counts.get_mut(name) {
        Some(count) => *count += number,
        None => {
            trace.counts.insert(name.to_owned(), number);
        }
    });
}

/// Notes a broken promise; the first one ends the world.
pub(crate) fn violate(who: &str, invariant: &str, detail: &str) {
    note(who, &format!("VIOLATION {invariant}: {detail}"));
    with(|trace| {
        let violation = Violation { invariant: invariant.to_owned(), detail: detail.to_owned() };
        trace.violation.get_or_insert(violation);
    });
}

pub(crate) fn violation() -> Option<Violation> {
    with(|trace| trace.violation.clone())
}

pub(crate) fn hash() -> u64 {
    with(|trace| trace.hash)
}

pub(crate) fn counts() -> BTreeMap<String, u64> {
    with(|trace| trace.counts.clone())
}

pub(crate) fn last_lines() -> Vec<String> {
    with(|trace| trace.lines.iter().cloned().collect())
}

/// A hash that is the same in every process.
pub(crate) fn fnv(start: u64, bytes: &[u8]) -> u64 {
    let mut hash = if start == 0 { 0xcbf2_9ce4_8422_2325 } else { start };
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
