//! Disks that take their time: a little always, much in episodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qd_store::SimulatedDisk;

use qd_testkit::seeded_random::SeededRandom;

/// One machine's disk; it outlives the crashes of what runs on the machine.
pub(crate) struct SimDisk {
    random: Mutex<SeededRandom>,
    /// In microseconds; most commits take a part of this.
    usual_us: u64,
    /// In microseconds, during an episode; zero outside of one.
    slow_us: AtomicU64,
}

impl SimDisk {
    pub(crate) fn new(random: SeededRandom, usual_us: u64) -> Arc<SimDisk> {
        Arc::new(SimDisk { random: Mutex::new(random), usual_us, slow_us: AtomicU64::new(0) })
    }

    /// From now on everything takes about this long; zero ends the episode.
    pub(crate) fn slow_down(&self, delay: Duration) {
        self.slow_us.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl SimulatedDisk for SimDisk {
    fn delay(&self) -> Duration {
        let slow = self.slow_us.load(Ordering::Relaxed);
        let scale = if slow > 0 { slow } else { self.usual_us };
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        // Half of the usual commits find the disk free.
        if slow == 0 && (scale == 0 || random.percent(50)) {
            return Duration::ZERO;
        }
        Duration::from_micros(random.between(scale / 4, scale))
    }
}
