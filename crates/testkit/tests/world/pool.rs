//! Many worlds: each in a process of its own, because randomness and clocks belong to the process.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::run::WorldSummary;

/// Which worlds, and how many at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManyWorlds {
    pub(crate) from: u64,
    pub(crate) seeds: u64,
    pub(crate) jobs: u64,
    /// The name of a planted bug.
    pub(crate) bug: Option<&'static str>,
    /// Whether the first failure ends it.
    pub(crate) stops_at_failure: bool,
    /// How often progress is told, in worlds; zero for never.
    pub(crate) tell_every: u64,
}

/// What many worlds were like.
#[derive(Default)]
pub(crate) struct WorldResults {
    pub(crate) worlds: u64,
    pub(crate) virtual_ms: u64,
    pub(crate) settle_ms_max: u64,
    pub(crate) counts: BTreeMap<String, u64>,
    /// Seeds with their reports.
    pub(crate) failures: BTreeMap<u64, String>,
}

impl WorldResults {
    fn take(&mut self, seed: u64, result: Result<WorldSummary, String>) {
        self.worlds += 1;
        match result {
            Ok(summary) => {
                self.virtual_ms += summary.virtual_ms;
                self.settle_ms_max = self.settle_ms_max.max(summary.settle_ms);
                for (name, count) in summary.counts {
                    *self.counts.entry(name).or_insert(0) += count;
                }
            }
            Err(report) => {
                self.failures.insert(seed, report);
            }
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut lines = vec![format!(
            "{} worlds, {} s of virtual time, at most {} ms until all was well after healing, {} failures",
            self.worlds,
            self.virtual_ms / 1000,
            self.settle_ms_max,
            self.failures.len()
        )];
        lines.extend(self.counts.iter().map(|(name, count)| format!("{count:>12} {name}")));
        lines.join("\n")
    }
}

/// Runs one world in a process of its own.
pub(crate) fn one(seed: u64, bug: Option<&str>) -> Result<WorldSummary, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program).arg("seed").arg(seed.to_string()).args(bug).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success()
        && let Some(summary) = text.lines().last().and_then(|line| serde_json::from_str(line).ok())
    {
        return Ok(summary);
    }
    Err(format!("{text}\n{}\nseed {seed}: {}", String::from_utf8_lossy(&output.stderr), output.status))
}

pub(crate) fn run(many: ManyWorlds) -> WorldResults {
    let next = AtomicU64::new(many.from);
    let stop = AtomicBool::new(false);
    let results = Mutex::new(WorldResults::default());
    std::thread::scope(|scope| {
        for _ in 0..many.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= many.from + many.seeds || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = one(seed, many.bug);
                    if result.is_err() && many.stops_at_failure {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut results = results.lock().unwrap();
                    results.take(seed, result);
                    tell(&many, &results);
                }
            });
        }
    });
    results.into_inner().unwrap()
}

fn tell(many: &ManyWorlds, results: &WorldResults) {
    if many.tell_every > 0 && results.worlds.is_multiple_of(many.tell_every) {
        println!("{} of {} worlds, {} failures", results.worlds, many.seeds, results.failures.len());
        // Progress is for people who watch; without them nothing is lost.
        let _flushed = std::io::stdout().flush();
    }
}
