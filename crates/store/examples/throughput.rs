//! Prints durable rows per second of both stores: `cargo run --release -p qd-store --example throughput`.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // It measures and prints.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use qd_store::{
    HubStore, MessageRow, NewRecord, RecordEffect, RunnerBatch, RunnerStore, SearchQuery, SimulatedDisk,
    StoreExecution, StoreOptions, SubmissionRow,
};

const ROWS: u64 = 400_000;
const WORLDS: u32 = 200;
const IN_FLIGHT: usize = 4;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let body = Bytes::from(vec![b'x'; 160]);
    for batch in [1, 10, 100, 1000] {
        hub(&dir.path().join(format!("hub{batch}.db")), batch, &body).await?;
        runner(&dir.path().join(format!("runner{batch}.db")), batch, &body).await?;
    }
    submissions(&dir.path().join("hub1.db")).await?;
    round_trip(&dir.path().join("runner1.db")).await?;
    messages(&dir.path().join("hub100.db")).await?;
    replay(&dir.path().join("hub100.db")).await?;
    for name in ["hub100.db", "runner100.db"] {
        let start = Instant::now();
        if name.starts_with("hub") {
            HubStore::open(&dir.path().join(name), StoreOptions::default())?.close().await;
        } else {
            RunnerStore::open(&dir.path().join(name), StoreOptions::default())?.close().await;
        }
        println!("{name}: open and close an existing database: {:?}", start.elapsed());
    }
    inline_worlds(dir.path()).await?;
    println!("{}", memory());
    Ok(())
}

/// The journal in its steady state: each submission is stored twice, and an old one goes for each new one.
async fn submissions(path: &Path) -> Outcome<()> {
    let store = HubStore::open(path, StoreOptions::default())?;
    let kept: u64 = 10_000;
    let row = |number: u64| SubmissionRow {
        uid: format!("{number:012}-0123456789abcdef").into(),
        principal: "owner".into(),
        command_id: Some(format!("command-{number}")),
        scope: "session-1".into(),
        session_id: Some("session-1".into()),
        command: "set_session_name".into(),
        accepted_at: number as i64,
        ..SubmissionRow::default()
    };
    let start = Instant::now();
    for first in (0..ROWS / 4).step_by(512) {
        let tasks = (first..first + 512).map(|number| {
            let (store, row) = (store.clone(), row(number));
            tokio::spawn(async move {
                store.put_submission(row.clone()).await?;
                let outcome_json = Some(Bytes::from_static(b"{\"success\":true,\"sessionVersion\":17}"));
                let done = SubmissionRow { finished_at: Some(1), success: Some(true), outcome_json, ..row };
                store.finish_submission(done).await
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        let old = first.saturating_sub(kept);
        store
            .delete_submissions((old..(old + 512).min(first)).map(|number| row(number).uid).collect())
            .await?;
    }
    println!("submissions, put, finished and deleted: {}", rate(ROWS / 4, start.elapsed()));
    store.close().await;
    Ok(())
}

/// What a simulated world pays for its stores.
async fn inline_worlds(dir: &Path) -> Outcome<()> {
    let options =
        || StoreOptions { execution: StoreExecution::Inline(Arc::new(NoDelay)), ..StoreOptions::default() };
    for what in ["create", "reopen"] {
        let start = Instant::now();
        for number in 0..WORLDS {
            let hub = HubStore::open(&dir.join(format!("world{number}-hub.db")), options())?;
            hub.close().await;
        }
        let hubs = start.elapsed() / WORLDS;
        let start = Instant::now();
        for number in 0..WORLDS {
            let runner = RunnerStore::open(&dir.join(format!("world{number}-runner.db")), options())?;
            runner.close().await;
        }
        let runners = start.elapsed() / WORLDS;
        println!("inline, {what} and close: hub {hubs:?}, runner {runners:?}");
    }
    let store = RunnerStore::open(&dir.join("world-runner.db"), options())?;
    let start = Instant::now();
    let units = 20_000;
    for seq in 1..=units {
        let spool = vec![(seq, Bytes::from_static(b"{}"))];
        store.commit(RunnerBatch { session_id: "alone".into(), spool, ..RunnerBatch::default() }).await?;
        store.ack("alone", seq);
    }
    println!("inline, one commit at a time with acks: {}", rate(units, start.elapsed()));
    store.close().await;
    Ok(())
}

struct NoDelay;

impl SimulatedDisk for NoDelay {
    fn delay(&self) -> Duration {
        Duration::ZERO
    }
}

async fn hub(path: &Path, batch: u64, body: &Bytes) -> Outcome<()> {
    let start = Instant::now();
    let store = HubStore::open(path, StoreOptions::default())?;
    let opened = start.elapsed();
    let sessions: Vec<Arc<str>> = (0..16).map(|number| format!("session-{number}").into()).collect();
    let runner: Arc<str> = "r1".into();
    let rows = if batch == 1 { ROWS / 8 } else { ROWS };
    let start = Instant::now();
    let mut pending = std::collections::VecDeque::new();
    for number in 0..rows / batch {
        let session = &sessions[number as usize % sessions.len()];
        let first = (number / sessions.len() as u64) * batch + 1;
        let records = (first..first + batch)
            .map(|seq| NewRecord {
                session_id: Arc::clone(session),
                runner_id: Arc::clone(&runner),
                seq,
                ts: seq as i64,
                event: Cow::Borrowed("tool.end"),
                body: body.clone(),
                audit: None,
                effect: None,
            })
            .collect();
        pending.push_back(store.enqueue_append(records).await?);
        let allowed = if batch == 1 { 64 } else { IN_FLIGHT };
        while pending.len() >= allowed {
            if let Some(oldest) = pending.pop_front() {
                oldest.await?;
            }
        }
    }
    for rest in pending {
        rest.await?;
    }
    println!("hub append, batches of {batch}: {} (create {opened:?})", rate(rows, start.elapsed()));
    store.close().await;
    Ok(())
}

async fn runner(path: &Path, batch: u64, line: &Bytes) -> Outcome<()> {
    let store = RunnerStore::open(path, StoreOptions::default())?;
    let rows = if batch == 1 { ROWS / 8 } else { ROWS };
    let start = Instant::now();
    let mut pending = std::collections::VecDeque::new();
    for number in 0..rows / batch {
        let session_id = format!("session-{}", number % 16);
        let first = (number / 16) * batch + 1;
        let spool = (first..first + batch).map(|seq| (seq, line.clone())).collect();
        let unit = RunnerBatch { session_id: session_id.clone(), spool, ..RunnerBatch::default() };
        pending.push_back((session_id, first + batch - 1, store.enqueue_commit(unit).await?));
        let allowed = if batch == 1 { 64 } else { IN_FLIGHT };
        while pending.len() >= allowed {
            if let Some((session_id, last, oldest)) = pending.pop_front() {
                oldest.await?;
                store.ack(&session_id, last);
            }
        }
    }
    for (_, _, rest) in pending {
        rest.await?;
    }
    println!("runner spool with acks, batches of {batch}: {}", rate(rows, start.elapsed()));
    store.close().await;
    Ok(())
}

async fn round_trip(path: &Path) -> Outcome<()> {
    let store = RunnerStore::open(path, StoreOptions::default())?;
    let mut times = Vec::new();
    for seq in 1..=5000 {
        let spool = vec![(seq, Bytes::from_static(b"{}"))];
        let start = Instant::now();
        store.commit(RunnerBatch { session_id: "alone".into(), spool, ..RunnerBatch::default() }).await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("one commit at a time: p50 {:?}, p99 {:?}", times[2500], times[4950]);
    store.close().await;
    Ok(())
}

async fn messages(path: &Path) -> Outcome<()> {
    let store = HubStore::open(path, StoreOptions::default())?;
    let (rows, batch) = (20_000, 100);
    let start = Instant::now();
    for first in (1..=rows).step_by(batch as usize) {
        let records = (first..first + batch).map(message).collect();
        store.append(records).await?;
    }
    println!("messages with full-text index: {}", rate(rows as u64, start.elapsed()));
    let start = Instant::now();
    let query = SearchQuery { text: "word77*".into(), limit: 20, ..SearchQuery::default() };
    let hits = store.search(query).await?.len();
    println!("search in {rows} messages: {hits} hits in {:?}", start.elapsed());
    store.close().await;
    Ok(())
}

fn message(number: i64) -> NewRecord {
    let content: String = (0..40).map(|word| format!("word{} ", (number * 31 + word * 17) % 5000)).collect();
    let message = MessageRow {
        id: format!("m{number}"),
        idx: number,
        role: "assistant".into(),
        parts_json: format!("[{{\"type\":\"text\",\"text\":\"{content}\"}}]"),
        message_json: Bytes::from(content.clone()),
        content,
        ..MessageRow::default()
    };
    NewRecord {
        session_id: "talk".into(),
        runner_id: "r1".into(),
        seq: number as u64,
        ts: number,
        event: Cow::Borrowed("stream.message_end"),
        body: message.message_json.clone(),
        audit: None,
        effect: Some(RecordEffect::Message(Box::new(message))),
    }
}

async fn replay(path: &Path) -> Outcome<()> {
    let store = HubStore::open(path, StoreOptions::default())?;
    let start = Instant::now();
    let mut rows = 0;
    for session in 0..16 {
        let mut after = 0;
        loop {
            let page = store.records_after(&format!("session-{session}"), after, 2000, 1 << 20).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            rows += page.len() as u64;
        }
    }
    println!("replay: {}", rate(rows, start.elapsed()));
    store.close().await;
    Ok(())
}

fn rate(rows: u64, time: Duration) -> String {
    format!("{:.0} rows/s", rows as f64 / time.as_secs_f64())
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM")).collect()
}
