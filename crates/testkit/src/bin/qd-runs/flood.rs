//! Very much output, again and again.

use std::collections::VecDeque;
use std::time::Instant;

use qd_testkit::process::resident_bytes;
use qd_testkit::qd::Sandbox;
use qd_testkit::run_app::RunApp;
use serde_json::Value;

const LINES: u64 = 2_000_000;
/// The server may take so much more while it passes all this on, however often.
const MORE_BYTES_MAX: u64 = 100_000_000;

/// Runs `seq` so many times; true if every byte came, in order and once, each time.
pub(crate) async fn run(binary: &str, count: u64) -> bool {
    let qd = Sandbox::new(binary).up().await;
    let before = resident_bytes(qd.pid());
    let mut peak = before;
    let mut seconds = Vec::new();
    let mut broken = 0;
    for number in 1..=count {
        let mut app = qd.run_app().await;
        let start = Instant::now();
        let run_id = app.start(&qd.runner_id().await, &format!("exec seq 1 {LINES}"), "/tmp").await;
        let mut expected = Expected::default();
        let is_whole = expected.read(&mut app, &run_id).await;
        seconds.push(start.elapsed().as_secs_f64());
        peak = peak.max(resident_bytes(qd.pid()));
        if !is_whole {
            broken += 1;
            println!("BROKEN: run {number} of {count}: {}", expected.trouble);
        }
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "seq 1 {LINES}: {} of {count} whole; median {:.2} s, slowest {:.2} s; memory {:.1} MB before, {:.1} MB at most",
        count - broken,
        seconds[seconds.len() / 2],
        seconds[seconds.len() - 1],
        before as f64 / 1e6,
        peak as f64 / 1e6,
    );
    qd.terminate().await;
    let is_bounded = peak < before + MORE_BYTES_MAX;
    if !is_bounded {
        println!("BROKEN: the server grew by {:.1} MB", (peak - before) as f64 / 1e6);
    }
    broken == 0 && is_bounded
}

/// What should come next.
#[derive(Default)]
struct Expected {
    next: u64,
    /// The rest of a line that has begun.
    rest: String,
    trouble: String,
}

impl Expected {
    /// Reads up to the end of the run; true if nothing was missing, doubled or out of order.
    async fn read(&mut self, app: &mut RunApp, run_id: &str) -> bool {
        let mut last_seq = 0;
        // Some may have come before the answer to the start.
        let mut early: VecDeque<Value> = app.frames().to_vec().into();
        app.forget();
        loop {
            let next = match early.pop_front() {
                Some(frame) => Some(frame),
                None => app.next().await,
            };
            let Some(frame) = next else {
                self.trouble = "the connection ended".to_owned();
                return false;
            };
            app.forget();
            if frame["run_id"] != run_id {
                continue;
            }
            let seq = frame["seq"].as_u64().unwrap_or(0);
            if seq != 0 && seq <= last_seq {
                self.trouble = format!("record {seq} after {last_seq}");
                return false;
            }
            last_seq = last_seq.max(seq);
            match frame["type"].as_str() {
                Some("run.output") if !self.take(frame["data"]["text"].as_str().unwrap_or_default()) => {
                    return false;
                }
                Some("run.exited") => {
                    if self.next != LINES {
                        self.trouble = format!("the last line was {}", self.next);
                    }
                    return self.next == LINES;
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, text: &str) -> bool {
        self.rest.push_str(text);
        let whole = self.rest.rfind("\r\n").map_or(0, |end| end + 2);
        let lines: String = self.rest.drain(..whole).collect();
        for line in lines.split_terminator("\r\n") {
            self.next += 1;
            if line.parse() != Ok(self.next) {
                self.trouble = format!("{line:?} instead of {}", self.next);
                return false;
            }
        }
        true
    }
}
