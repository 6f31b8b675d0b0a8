//! The program that runs: numbered lines at a steady pace, each with the moment it was written.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines are written in batches this often, or one by one where they are rarer.
const BATCH: Duration = Duration::from_millis(10);

/// Writes `rate` lines a second for so many seconds.
pub(crate) fn run(rate: u64, seconds: u64) -> bool {
    let start = Instant::now();
    let total = rate * seconds;
    let mut out = std::io::stdout().lock();
    let mut written = 0;
    while written < total {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
        let mut batch = String::new();
        while written < due.min(total) {
            written += 1;
            batch.push_str(&format!("{written} {}\n", wall_ms()));
        }
        out.write_all(batch.as_bytes()).and_then(|()| out.flush()).expect("the terminal takes it");
        std::thread::sleep(BATCH);
    }
    true
}

pub(crate) fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(now.as_millis()).expect("milliseconds")
}
