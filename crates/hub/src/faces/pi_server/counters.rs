use std::sync::atomic::{AtomicU64, Ordering};

/// What the face counts for `get_metrics`, beside what the machine of admission counts itself.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) session_limit: AtomicU64,
    pub(super) message_size: AtomicU64,
    pub(super) pending_limit: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) resyncs: AtomicU64,
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}
