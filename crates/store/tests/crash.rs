//! Kills a process in the middle of its writing and looks whether all it was promised is there.
//!
//! This program is both sides: started with `QD_STORE_CRASH_DIR` it writes for ever and says after each commit
//! what was acknowledged; without, it starts itself so, kills it with SIGKILL and reads what is left.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // A test with its own `main`.

mod fixtures;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::{line, message, put, record, unit};
use qd_store::{HubStore, RunnerStore, SearchQuery, StoreOptions};

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
        let (appended, committed) =
            tokio::join!(hub.append(records), runner.commit(unit("s", first..=first + 9)));
        appended.unwrap();
        committed.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{number}").unwrap();
        out.flush().unwrap();
        number += 1;
    }
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
    hub.close().await;
    runner.close().await;
}
