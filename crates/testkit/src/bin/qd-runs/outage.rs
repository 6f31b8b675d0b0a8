//! The hub killed for a while under a program that goes on writing on another machine.

use std::time::{Duration, Instant};

use qd_testkit::qd::{Qd, Sandbox};
use qd_testkit::run_app::RunApp;
use serde_json::{Value, json};

use crate::emit::wall_ms;

/// Live delivery must be back this soon after the hub.
const LIVE_MAX: Duration = Duration::from_secs(2);
/// The program writes this long before the hub dies and after it is back.
const BEFORE_SECONDS: u64 = 3;
const AFTER_SECONDS: u64 = 5;
/// How long the end of it all may take to arrive.
const END_MAX: Duration = Duration::from_secs(120);

/// Every outage of the issue.
pub(crate) async fn run_all(binary: &str) -> bool {
    let mut is_kept = true;
    for seconds in [3, 10, 60] {
        for rate in [5, 20, 10_000] {
            is_kept &= run(binary, seconds, rate).await;
        }
    }
    is_kept
}

/// One outage; true if every line arrived once and in order, and live delivery was back in time.
pub(crate) async fn run(binary: &str, down_seconds: u64, rate: u64) -> bool {
    let qd = Sandbox::new(binary).up().await;
    let machine = qd.machine(Sandbox::new(binary), "far").await;
    qd.connect().await.wait_online("far").await;
    let mut app = qd.run_app().await;
    let total_seconds = BEFORE_SECONDS + down_seconds + AFTER_SECONDS;
    let program = std::env::current_exe().unwrap();
    let cmd = format!("exec '{}' emit {rate} {total_seconds}", program.display());
    let run_id = app.start("far", &cmd, "/tmp").await;
    let mut seen = SeenLines::default();
    // Some may have come before the answer to the start.
    for frame in app.frames() {
        seen.take(frame, &run_id);
    }
    app.forget();
    let until = Instant::now() + Duration::from_secs(BEFORE_SECONDS);
    while Instant::now() < until && seen.take_next(&mut app, &run_id, until).await {}
    let sandbox = qd.kill9_at_address().await;
    tokio::time::sleep(Duration::from_secs(down_seconds)).await;
    let qd = sandbox.up().await;
    let (back, back_ms) = (Instant::now(), wall_ms());
    let live = follow(&qd, &run_id, &mut seen, back, back_ms).await;
    let total = rate * total_seconds;
    let is_whole = seen.trouble.is_empty() && seen.last_line == total;
    let is_soon = live.is_some_and(|live| live <= LIVE_MAX);
    println!(
        "hub down {down_seconds} s at {rate} lines/s: {} of {total} lines, {}; live again after {}{}",
        seen.last_line,
        if is_whole { "each once and in order" } else { "BROKEN" },
        live.map_or("never".to_owned(), |live| format!("{:.2} s", live.as_secs_f64())),
        if seen.trouble.is_empty() { String::new() } else { format!(" ({})", seen.trouble) },
    );
    machine.terminate().await;
    qd.terminate().await;
    is_whole && is_soon
}

/// Goes on where the client was, to the end; how long after `back` it saw what was written after it.
async fn follow(
    qd: &Qd,
    run_id: &str,
    seen: &mut SeenLines,
    back: Instant,
    back_ms: u64,
) -> Option<Duration> {
    let mut app = RunApp::connect(qd.url(), qd.token()).await;
    app.send("run.subscribe", run_id, json!({"since_seq": seen.last_seq})).await;
    let mut live = None;
    let until = back + END_MAX;
    while !seen.is_over && Instant::now() < until && seen.take_next(&mut app, run_id, until).await {
        if live.is_none() && seen.written_ms >= back_ms {
            live = Some(back.elapsed());
        }
    }
    live
}

/// What a client has of the run.
#[derive(Default)]
struct SeenLines {
    last_seq: u64,
    last_line: u64,
    /// When the last line was written, by its own word.
    written_ms: u64,
    rest: String,
    is_over: bool,
    trouble: String,
}

impl SeenLines {
    /// Takes one frame; false when there is none before `until`.
    async fn take_next(&mut self, app: &mut RunApp, run_id: &str, until: Instant) -> bool {
        let frame = tokio::time::timeout_at(until.into(), app.next()).await;
        let Ok(Some(frame)) = frame else { return false };
        app.forget();
        self.take(&frame, run_id);
        true
    }

    fn take(&mut self, frame: &Value, run_id: &str) {
        if frame["run_id"] != run_id {
            return;
        }
        if let Some(seq) = frame["seq"].as_u64() {
            if seq <= self.last_seq {
                self.trouble = format!("record {seq} after {}", self.last_seq);
            }
            self.last_seq = seq;
        }
        if frame["type"] == "run.output" {
            self.rest.push_str(frame["data"]["text"].as_str().unwrap_or_default());
            let whole = self.rest.rfind("\r\n").map_or(0, |end| end + 2);
            let lines: String = self.rest.drain(..whole).collect();
            for line in lines.split_terminator("\r\n") {
                let (number, at) = line.split_once(' ').unwrap_or((line, "0"));
                if number.parse() != Ok(self.last_line + 1) && self.trouble.is_empty() {
                    self.trouble = format!("{line:?} after line {}", self.last_line);
                }
                self.last_line += 1;
                self.written_ms = at.parse().unwrap_or(0);
            }
        }
        self.is_over |= frame["type"] == "run.exited";
    }
}
