//! What an agent process uses.

use std::time::Instant;

use super::procfs;
use crate::clock;

/// One reading of an agent process; its descendants are not counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessStats {
    pub alive: bool,
    pub rss_bytes: u64,
    /// Share of one core since the previous reading, in percent; the first counts from the start.
    pub cpu_pct: f64,
    /// User and system time so far, in clock ticks.
    pub cpu_ticks: u64,
    pub uptime_s: u64,
}

/// Turns counters into rates, from one reading to the next.
#[derive(Debug)]
pub(super) struct StatsReader {
    pid: i32,
    started: Instant,
    last_time: Instant,
    last_ticks: u64,
}

impl StatsReader {
    pub(super) fn new(pid: i32) -> Self {
        let started = clock::monotonic_now();
        Self { pid, started, last_time: started, last_ticks: 0 }
    }

    /// Reads now; `exited` says that the process is known to be gone and its id may be another's.
    pub(super) fn read(&mut self, exited: bool) -> ProcessStats {
        let now = clock::monotonic_now();
        let uptime_s = now.duration_since(self.started).as_secs();
        let stat = if exited { None } else { procfs::read_stat(self.pid) };
        let Some(stat) = stat.filter(|stat| !stat.is_dead()) else {
            return ProcessStats {
                alive: false,
                rss_bytes: 0,
                cpu_pct: 0.0,
                cpu_ticks: self.last_ticks,
                uptime_s,
            };
        };
        let pages = procfs::read_resident_pages(self.pid).unwrap_or(0);
        let cpu_pct = percent(
            stat.cpu_ticks.saturating_sub(self.last_ticks),
            rustix::param::clock_ticks_per_second(),
            now.duration_since(self.last_time).as_secs_f64(),
        );
        self.last_time = now;
        self.last_ticks = stat.cpu_ticks;
        ProcessStats {
            alive: true,
            rss_bytes: pages * rustix::param::page_size() as u64,
            cpu_pct,
            cpu_ticks: stat.cpu_ticks,
            uptime_s,
        }
    }
}

/// Zero for an interval too short to mean anything: one tick is 10 ms.
fn percent(ticks: u64, ticks_per_second: u64, seconds: f64) -> f64 {
    if seconds < 0.001 || ticks_per_second == 0 {
        return 0.0;
    }
    ticks as f64 / ticks_per_second as f64 / seconds * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_of_one_core() {
        assert_eq!(percent(50, 100, 1.0), 50.0);
        assert_eq!(percent(400, 100, 2.0), 200.0);
        assert_eq!(percent(5, 100, 0.0), 0.0);
    }
}
