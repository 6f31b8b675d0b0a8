//! Counters of the pi-server face. Nothing decides by them; `get_metrics` shows them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the face counts for `get_metrics`, beside what the machine of admission counts itself.
#[derive(Default)]
pub(crate) struct PiCounters {
    pub(crate) session_limit: AtomicU64,
    pub(crate) message_size: AtomicU64,
    pub(crate) pending_limit: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) resyncs: AtomicU64,
}

impl PiCounters {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
