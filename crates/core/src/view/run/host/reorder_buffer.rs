//! A run's events as a foreign host sends them: twice, in the wrong order, with holes. They leave here once and in
//! order; a hole that does not fill is passed over, and said to be one.

use std::collections::BTreeMap;

/// Events of one run that may wait for those before them; more, and the hole is given up.
pub const HELD_RECORDS_MAX: usize = 4096;
/// Their bytes.
pub const HELD_BYTES_MAX: usize = 4 << 20;
/// A host that has what is missing sends it within this time: the original sends a spool again every ten seconds.
pub const HOLE_WAIT_MS: i64 = 10_000;
/// Each missing number becomes a record of its own, so a host cannot ask for any number of them.
pub const HOLE_RECORDS_MAX: u64 = 100_000;

/// One step of a run, in the order of its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderedEvent<T> {
    Event(u64, T),
    /// The host never sent it.
    Lost(u64),
}

/// Why an event is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedEvent {
    /// It has come before.
    Repeated,
    /// It lies too far ahead of what has come.
    TooFar { expected: u64 },
}

/// What has come of one run.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    next: u64,
    held: BTreeMap<u64, (T, usize)>,
    held_bytes: usize,
    /// When it was first seen that `next` is missing.
    hole_since: Option<i64>,
}

impl<T> ReorderBuffer<T> {
    /// Everything up to `seq` has come.
    pub fn after(seq: u64) -> Self {
        ReorderBuffer { next: seq.saturating_add(1), held: BTreeMap::new(), held_bytes: 0, hole_since: None }
    }

    /// The last event that left.
    pub fn last_seq(&self) -> u64 {
        self.next - 1
    }

    /// Takes an event; what can leave goes to `out`.
    pub fn take(
        &mut self,
        now: i64,
        seq: u64,
        event: T,
        bytes: usize,
        out: &mut Vec<OrderedEvent<T>>,
    ) -> Result<(), RefusedEvent> {
        if seq < self.next || self.held.contains_key(&seq) {
            return Err(RefusedEvent::Repeated);
        }
        if seq - self.next > HOLE_RECORDS_MAX {
            return Err(RefusedEvent::TooFar { expected: self.next });
        }
        self.held.insert(seq, (event, bytes));
        self.held_bytes += bytes;
        self.release(now, out);
        while self.held.len() > HELD_RECORDS_MAX || self.held_bytes > HELD_BYTES_MAX {
            self.pass_over(now, out);
        }
        Ok(())
    }

    /// When the hole is given up; `None` while there is none.
    pub fn due(&self) -> Option<i64> {
        self.hole_since.map(|since| since.saturating_add(HOLE_WAIT_MS))
    }

    /// Gives up a hole that has been there for too long.
    pub fn tick(&mut self, now: i64, out: &mut Vec<OrderedEvent<T>>) {
        while self.due().is_some_and(|due| due <= now) {
            self.pass_over(now, out);
        }
    }

    /// Bytes of the events that wait.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Gives up all holes at once, since there is no room to wait.
    pub fn give_up(&mut self, now: i64, out: &mut Vec<OrderedEvent<T>>) {
        while !self.held.is_empty() {
            self.pass_over(now, out);
        }
    }

    fn release(&mut self, now: i64, out: &mut Vec<OrderedEvent<T>>) {
        let before = self.next;
        while let Some((event, bytes)) = self.held.remove(&self.next) {
            self.held_bytes -= bytes;
            out.push(OrderedEvent::Event(self.next, event));
            self.next += 1;
        }
        if self.held.is_empty() {
            self.hole_since = None;
        } else if self.hole_since.is_none() || self.next != before {
            self.hole_since = Some(now);
        }
    }

    fn pass_over(&mut self, now: i64, out: &mut Vec<OrderedEvent<T>>) {
        let Some((first, _)) = self.held.first_key_value() else {
            self.hole_since = None;
            return;
        };
        out.extend((self.next..*first).map(OrderedEvent::Lost));
        self.next = *first;
        self.release(now, out);
    }
}

#[cfg(test)]
#[path = "reorder_buffer_tests.rs"]
mod tests;
