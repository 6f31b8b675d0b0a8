//! Which acks a foreign host gets, and when.
//!
//! An ack is cumulative and names what is committed, never more. The original host sends its whole spool again after
//! every ack; so acks are few: one for many events, and a repeated one only now and then.

use std::collections::HashMap;

/// The shortest time between two acks of a run that say something new.
pub const ACK_INTERVAL_MS: i64 = 50;
/// The same for an ack that says again what was said: who repeats committed events has not heard it.
pub const REPEAT_INTERVAL_MS: i64 = 1000;

/// What is committed of each run of a host, and what the host was told on this connection.
#[derive(Debug, Default)]
pub struct HostAcks {
    runs: HashMap<String, RunAck>,
}

#[derive(Debug, Default)]
struct RunAck {
    committed: u64,
    told: u64,
    told_at: Option<i64>,
    due: Option<i64>,
}

impl HostAcks {
    /// Everything up to `seq` is committed.
    pub fn committed(&mut self, now: i64, run_id: &str, seq: u64) {
        let ack = self.runs.entry(run_id.to_owned()).or_default();
        ack.committed = ack.committed.max(seq);
        if ack.committed > ack.told {
            let due = ack.told_at.map_or(now, |told_at| now.max(told_at.saturating_add(ACK_INTERVAL_MS)));
            ack.due = Some(ack.due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    /// The same, known before the host said anything: it is told when it shows that it does not know.
    pub fn known(&mut self, run_id: &str, seq: u64) {
        let ack = self.runs.entry(run_id.to_owned()).or_default();
        ack.committed = ack.committed.max(seq);
    }

    /// The host sent an event again. If it is committed, the host has not heard so.
    pub fn repeated(&mut self, now: i64, run_id: &str, seq: u64) {
        let Some(ack) = self.runs.get_mut(run_id).filter(|ack| seq <= ack.committed) else { return };
        let due = ack.told_at.map_or(now, |told_at| now.max(told_at.saturating_add(REPEAT_INTERVAL_MS)));
        ack.due = Some(ack.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// The run is gone here.
    pub fn forget(&mut self, run_id: &str) {
        self.runs.remove(run_id);
    }

    /// When the next ack is to be sent.
    pub fn due(&self) -> Option<i64> {
        self.runs.values().filter_map(|ack| ack.due).min()
    }

    /// The acks to send now.
    pub fn take(&mut self, now: i64) -> Vec<(String, u64)> {
        let due = self.runs.iter_mut().filter(|(_, ack)| ack.due.is_some_and(|due| due <= now));
        due.map(|(run_id, ack)| {
            ack.due = None;
            ack.told = ack.committed;
            ack.told_at = Some(now);
            (run_id.clone(), ack.committed)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_are_cumulative_few_and_repeated_now_and_then() {
        let mut acks = HostAcks::default();
        acks.committed(0, "r", 1);
        assert_eq!(acks.take(0), [("r".to_owned(), 1)]);
        for seq in 2..100 {
            acks.committed(1, "r", seq);
        }
        assert_eq!((acks.take(1), acks.due()), (Vec::new(), Some(ACK_INTERVAL_MS)));
        assert_eq!(acks.take(ACK_INTERVAL_MS), [("r".to_owned(), 99)]);
        // An ack that comes late says nothing old.
        acks.committed(60, "r", 5);
        assert_eq!(acks.due(), None);
        // What is not committed is not acked, however often it comes.
        acks.repeated(2000, "r", 100);
        acks.repeated(2000, "unknown", 1);
        assert_eq!(acks.due(), None);
        for seq in 1..=99 {
            acks.repeated(70, "r", seq);
        }
        assert_eq!(acks.due(), Some(ACK_INTERVAL_MS + REPEAT_INTERVAL_MS));
        assert_eq!(acks.take(5000), [("r".to_owned(), 99)]);
    }
}
