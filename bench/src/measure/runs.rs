//! Programs in terminals: `seq 1 2000000` to a client, and the echo of a key, beside a raw relay of a terminal.

use std::time::Duration;

use memchr::memmem::find;
use serde_json::json;

use super::{Plan, percentile};
use crate::client::Client;
use crate::clock;
use crate::error::{Outcome, failed};
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "runs";
const LINES: usize = 2_000_000;
const FLOODS: usize = 5;
const KEYS: usize = 2000;
/// Turns of each side, one after the other, so that a noisy moment of the machine meets both.
const ROUNDS: usize = 10;
/// A person types slower; this keeps every key apart from the one before.
const KEY_PAUSE: Duration = Duration::from_micros(2500);

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    flood(plan, report).await?;
    echo(plan, report).await
}

/// What one flood was.
#[derive(Default)]
struct Flood {
    seconds: f64,
    bytes: usize,
}

async fn flood(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let lines = plan.size(LINES);
    let expected = expected_bytes(lines);
    let (mut ours, mut raws) = (Vec::new(), Vec::new());
    let mut peak = 0;
    for _ in 0..FLOODS {
        let raw = raw_flood(lines).await?;
        let qd = Server::qd(&plan.qd)?;
        let before = qd.memory()?.private_bytes;
        let own = own_flood(&qd, lines).await?;
        peak = peak.max(qd.memory()?.private_bytes.saturating_sub(before));
        if own.bytes != expected || raw.bytes != expected {
            return failed(format!("of {expected} bytes qd gave {} and the relay {}", own.bytes, raw.bytes));
        }
        ours.push(expected as f64 / own.seconds / 1e6);
        raws.push(expected as f64 / raw.seconds / 1e6);
    }
    ours.sort_by(f64::total_cmp);
    raws.sort_by(f64::total_cmp);
    report
        .add(GROUP, &format!("seq 1 {lines} to a client, median of {FLOODS}"), ours[FLOODS / 2], "MB/s")
        .raw("raw relay", raws[FLOODS / 2])
        .target(Target::RatioAtLeast(0.8))
        .note(format!("slowest {:.1}, the relay's {:.1}", ours[0], raws[0]));
    report.add(GROUP, "  more memory after it", peak as f64 / 1e6, "MB");
    Ok(())
}

/// The terminal makes two bytes of each line's end.
fn expected_bytes(lines: usize) -> usize {
    (1..=lines).map(|number| number.ilog10() as usize + 3).sum()
}

async fn raw_flood(lines: usize) -> Outcome<Flood> {
    let server = Server::own(&["raw-pty", "seq", "1", &lines.to_string()])?;
    let start = clock::now();
    let mut client = Client::connect(&server).await?;
    let mut flood = Flood::default();
    let mut is_over = false;
    while !is_over {
        client
            .read_all(|is_text, frame| if is_text { is_over = true } else { flood.bytes += frame.len() })
            .await?;
    }
    flood.seconds = start.elapsed().as_secs_f64();
    Ok(flood)
}

async fn own_flood(qd: &Server, lines: usize) -> Outcome<Flood> {
    let mut client = Client::connect_to(qd, "/ws/app", 1 << 20).await?;
    let host = host_id(qd).await?;
    let start = clock::now();
    let data = json!({"request_id": "r", "host_id": host, "tool": "seq", "cmd": format!("exec seq 1 {lines}"), "cwd": "/tmp"});
    client
        .send(&json!({"type": "rpc.run.start", "ts": "2026-01-01T00:00:00Z", "data": data}).to_string())
        .await?;
    let mut flood = Flood::default();
    let mut is_over = false;
    while !is_over {
        client
            .read(|frame| {
                if let Some(text) = output_text(frame) {
                    flood.bytes += text_bytes(text);
                } else if frame.starts_with(b"{\"type\":\"run.exited\"") {
                    is_over = true;
                }
            })
            .await?;
    }
    flood.seconds = start.elapsed().as_secs_f64();
    Ok(flood)
}

/// The escaped text of a `run.output`, which comes last in its frame.
fn output_text(frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(b"{\"type\":\"run.output\"")?;
    let at = find(rest, b"\"text\":\"")? + 8;
    rest[at..].strip_suffix(b"\"}}")
}

/// Bytes of the text behind its escapes; digits and line ends have no others than these.
fn text_bytes(text: &[u8]) -> usize {
    text.len() - memchr::memchr_iter(b'\\', text).count()
}

async fn echo(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let count = plan.size(KEYS) / ROUNDS;
    let server = Server::own(&["raw-pty", "cat"])?;
    let mut raw_client = Client::connect(&server).await?;
    let qd = Server::qd(&plan.qd)?;
    let mut client = Client::connect_to(&qd, "/ws/app", 64 << 10).await?;
    let run_id = start_cat(&qd, &mut client).await?;
    let key = json!({"type": "run.send_stdin", "ts": "2026-01-01T00:00:00Z", "run_id": run_id, "data": {"text": "x"}});
    let key = key.to_string();
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..count {
            raw.push(press(&mut raw_client, "x", |is_text, _| !is_text).await?);
        }
        for _ in 0..count {
            ours.push(press(&mut client, &key, |_, frame| output_text(frame).is_some()).await?);
        }
    }
    for times in [&mut ours, &mut raw] {
        times.sort_unstable();
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let target = if share > 0.9 { Target::RatioAtMost(2.5) } else { Target::None };
        report
            .add(
                GROUP,
                &format!("echo of a key through hub and runner, {name}"),
                percentile(&ours, share) / 1000.0,
                "us",
            )
            .raw("raw relay", percentile(&raw, share) / 1000.0)
            .target(target)
            .note(format!(
                "p90 {:.0}, worst {:.0}; the relay's {:.0}, {:.0}",
                percentile(&ours, 0.9) / 1000.0,
                percentile(&ours, 1.0) / 1000.0,
                percentile(&raw, 0.9) / 1000.0,
                percentile(&raw, 1.0) / 1000.0,
            ));
    }
    Ok(())
}

/// Nanoseconds from sending a key to seeing its echo.
async fn press(client: &mut Client, key: &str, is_echo: impl Fn(bool, &[u8]) -> bool) -> Outcome<u64> {
    tokio::time::sleep(KEY_PAUSE).await;
    let start = clock::now();
    client.send(key).await?;
    let mut seen = false;
    while !seen {
        client.read_all(|is_text, frame| seen |= is_echo(is_text, frame)).await?;
    }
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

async fn start_cat(qd: &Server, client: &mut Client) -> Outcome<String> {
    let data = json!({"request_id": "r", "host_id": host_id(qd).await?, "tool": "cat", "cmd": "exec cat", "cwd": "/tmp"});
    client
        .send(&json!({"type": "rpc.run.start", "ts": "2026-01-01T00:00:00Z", "data": data}).to_string())
        .await?;
    let mut answer = None;
    while answer.is_none() {
        client
            .read(|frame| {
                if frame.starts_with(b"{\"type\":\"rpc.response\"") {
                    answer = serde_json::from_slice::<serde_json::Value>(frame).ok();
                }
            })
            .await?;
    }
    match answer.as_ref().and_then(|answer| answer["run_id"].as_str()) {
        Some(run_id) => Ok(run_id.to_owned()),
        None => failed(format!("no run: {answer:?}")),
    }
}

/// The name of the one runner there is.
async fn host_id(qd: &Server) -> Outcome<String> {
    let mut client = Client::connect(qd).await?;
    client.send(r#"{"channel":"agent","id":"1","cmd":"get_runners"}"#).await?;
    let mut found = None;
    while found.is_none() {
        client
            .read(|frame| {
                let frame: serde_json::Value = serde_json::from_slice(frame).unwrap_or_default();
                found = found.take().or(frame["data"]["runners"][0]["runner_id"].as_str().map(str::to_owned));
            })
            .await?;
    }
    found.map_or_else(|| failed("no runner"), Ok)
}
