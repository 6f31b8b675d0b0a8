//! Kills a process in the middle of its writing and looks whether all it was promised is there.
//!
//! This program is both sides: started with `QD_STORE_CRASH_DIR` it writes for ever and says after each commit
//! what was acknowledged; without, it starts itself so, kills it with SIGKILL and reads what is left.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // A test with its own `main`.

mod fixtures;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use fixtures::{line, message, put, record, submission, unit};
use qd_store::{HubStore, RunnerStore, SearchQuery, StoreOptions, SubmissionRow};

const DIR: &str = "QD_STORE_CRASH_DIR";
/// How many acknowledgements to read before each kill.
const KILL_AFTER: [u64; 5] = [1, 2, 30, 400, 1500];

fn main() {
    // The test runner asks which tests there are before it runs them.
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("crash: test");
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Some(dir) = std::env::var_os(DIR) {
        runtime.block_on(write_for_ever(Path::new(&dir)));
    }
    for acknowledgements in KILL_AFTER {
        let dir = tempfile::tempdir().unwrap();
        let promised = kill_after(dir.path(), acknowledgements);
        runtime.block_on(check(dir.path(), promised));
        println!("crash after {acknowledgements} acknowledgements: all {promised} units are there");
    }
}

async fn write_for_ever(dir: &Path) {
    let (hub, runner) = open(dir);
    let mut number: u64 = 1;
    loop {
        let first = number * 10 - 9;
        let message = put(message(&format!("m{number}"), number.cast_signed(), "needle"));
        let records = vec![record("s", first, message), record("s", first + 1, None)];
        let (appended, journaled, committed) = tokio::join!(
            hub.append(records),
            hub.put_submission(under_way(number)),
            runner.commit(unit("s", first..=first + 9))
        );
        appended.unwrap();
        journaled.unwrap();
        committed.unwrap();
        hub.finish_submission(finished(number)).await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{number}").unwrap();
        out.flush().unwrap();
        number += 1;
    }
}

fn under_way(number: u64) -> SubmissionRow {
    submission(&format!("u{number:09}"), "ann", number.cast_signed())
}

fn finished(number: u64) -> SubmissionRow {
    let outcome_json = Some(Bytes::from(format!("{number}").repeat(100)));
    SubmissionRow { finished_at: Some(1), success: Some(true), outcome_json, ..under_way(number) }
}

fn open(dir: &Path) -> (HubStore, RunnerStore) {
    let hub = HubStore::open(&dir.join("hub.db"), StoreOptions::default()).unwrap();
    (hub, RunnerStore::open(&dir.join("runner.db"), StoreOptions::default()).unwrap())
}

/// Returns the last unit that was acknowledged before the process was gone.
fn kill_after(dir: &Path, acknowledgements: u64) -> u64 {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program).env(DIR, dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for expected in 1..=acknowledgements {
        assert_eq!(lines.next().unwrap().unwrap(), expected.to_string());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it still managed to say was promised as well.
    lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().unwrap_or(acknowledgements)
}

async fn check(dir: &Path, promised: u64) {
    let (hub, runner) = open(dir);
    let last = promised * 10;
    let spooled = runner.spool_after("s", 0, usize::MAX).await.unwrap();
    assert!(spooled.len() as u64 >= last, "{} lines of {last}", spooled.len());
    assert_eq!(spooled.len() % 10, 0, "no half units");
    let whole: Vec<_> = (1..=spooled.len() as u64).map(|seq| line("s", seq)).collect();
    assert_eq!(spooled, whole);
    assert_eq!(runner.spool_bytes(), spooled.iter().map(|(_, line)| line.len() as u64).sum::<u64>());

    let records = hub.records_after("s", 0, usize::MAX, usize::MAX).await.unwrap();
    assert!(records.len() as u64 >= 2 * promised);
    assert_eq!(records.len() % 2, 0, "no half batches");
    let page = hub.messages_page("s", None, 1).await.unwrap();
    assert_eq!(page.total * 2, records.len() as u64, "effects come with their records");
    let query =
        SearchQuery { text: "needle".into(), limit: 1, offset: page.total as u32 - 1, ..Default::default() };
    assert_eq!(hub.search(query).await.unwrap().len(), 1, "and so does the index");

    let journal = hub.submissions(usize::MAX).await.unwrap();
    let done = journal.iter().take_while(|row| row.finished_at.is_some()).count() as u64;
    assert!(done >= promised, "{done} outcomes of {promised}");
    assert!(journal.len() as u64 <= done + 1, "one at most is under way");
    let whole = (1..=done).map(finished).chain((done + 1..=journal.len() as u64).map(under_way));
    assert_eq!(journal, whole.collect::<Vec<_>>(), "outcomes whole or not at all");
    hub.close().await;
    runner.close().await;
}
