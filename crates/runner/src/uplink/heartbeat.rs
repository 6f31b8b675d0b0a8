//! The runner's sign of life, with how busy its machine is.
//!
//! The figures help the hub choose a machine for a new session and are shown to people.

use std::sync::atomic::Ordering;
use std::time::Duration;

use qd_wire::link::{LinkLine, RunnerHeartbeat, RunnerLoad};

use super::{UplinkTask, send_line};
use crate::clock::now_ms;
use crate::session::RunnerContext;

/// Often enough for figures that people watch; that a link is dead is noticed by its pings.
const HEARTBEAT: Duration = Duration::from_secs(10);

impl UplinkTask {
    /// One beat now, then one every [`HEARTBEAT`].
    pub(super) async fn send_heartbeats(&self, origin: u64) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        loop {
            ticks.tick().await;
            let send_heartbeats = RunnerHeartbeat {
                runner_id: self.shared.config.runner_id.clone(),
                uptime_s: u64::try_from((now_ms() - self.started_at) / 1000).unwrap_or(0),
                sessions: self.shared.process_table.sessions(),
                load: Some(load(&self.shared)),
            };
            send_line(&self.shared, origin, &LinkLine::Heartbeat(send_heartbeats));
        }
    }
}

/// How busy the machine is, as far as it can be read.
pub(crate) fn load(shared: &RunnerContext) -> RunnerLoad {
    let average = std::fs::read_to_string("/proc/loadavg").ok();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    RunnerLoad {
        agents: shared.agents.load(Ordering::Acquire) as u64,
        cpu_count: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        load_1m: average.as_deref().and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
        memory_total_bytes: memory_field(&memory, "MemTotal:"),
        memory_available_bytes: memory_field(&memory, "MemAvailable:"),
        spool_bytes: shared.store.spool_bytes(),
    }
}

/// A field of `/proc/meminfo`, which counts in KiB.
fn memory_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:        8000 kB\nMemFree: 5 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(memory_field(text, "MemTotal:"), Some(8_192_000));
        assert_eq!(memory_field(text, "MemAvailable:"), Some(2_048_000));
        assert_eq!(memory_field(text, "SwapTotal:"), None);
    }
}
