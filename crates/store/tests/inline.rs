//! Stores without threads: their time, and what a crash, which is a dropped runtime, leaves of them.
#![allow(clippy::unwrap_used)] // Test helpers, which clippy does not recognise as tests.

mod fixtures;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fixtures::{DatabaseFiles, line, record, unit};
use qd_store::{ACK_FLUSH_INTERVAL, HubStore, SimulatedDisk, StoreError};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

/// Takes this many milliseconds for everything.
#[derive(Clone, Default)]
struct SlowDisk(Arc<AtomicU64>);

impl SlowDisk {
    fn set(&self, milliseconds: u64) {
        self.0.store(milliseconds, Ordering::Relaxed);
    }
}

impl SimulatedDisk for SlowDisk {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A machine of the simulated world; dropping it is its crash.
fn machine() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

async fn stored(store: &HubStore) -> Vec<u64> {
    store
        .records_after("s", 0, usize::MAX, usize::MAX)
        .await
        .unwrap()
        .into_iter()
        .map(|(seq, _)| seq)
        .collect()
}

#[test]
fn a_crash_in_a_commit_loses_that_commit_only() {
    let disk = SlowDisk::default();
    let files = DatabaseFiles::on(disk.clone());
    let machine1 = machine();
    let (store, under_way, waiting) = machine1.block_on(async {
        let store = files.hub();
        store.append(vec![record("s", 1, None)]).await.unwrap();
        disk.set(10);
        let under_way = store.enqueue_append(vec![record("s", 2, None)]).await.unwrap();
        sleep(Duration::from_millis(9)).await;
        let waiting = store.enqueue_append(vec![record("s", 3, None)]).await.unwrap();
        (store, under_way, waiting)
    });
    drop(machine1);

    machine().block_on(async {
        let reopened = files.hub();
        assert_eq!(stored(&reopened).await, [1]);
        assert!(matches!(under_way.await, Err(StoreError::Closed)));
        assert!(matches!(waiting.await, Err(StoreError::Closed)));
        // A handle that outlived the crash reaches nothing any more, and closing it hangs nobody.
        assert!(matches!(store.append(vec![record("s", 4, None)]).await, Err(StoreError::Closed)));
        assert!(matches!(store.sessions().await, Err(StoreError::Closed)));
        store.close().await;
        reopened.append(vec![record("s", 2, None)]).await.unwrap();
        reopened.close().await;
        assert_eq!(stored(&files.hub()).await, [1, 2]);
    });
}

/// Crashes at every millisecond of a busy life: all that was acknowledged is there, and at most what was under way
/// beside it. Each life goes on with what the one before it left.
#[test]
fn crashes_at_any_moment_keep_what_was_acknowledged() {
    let disk = SlowDisk::default();
    let files = DatabaseFiles::on(disk.clone());
    let acknowledged = Arc::new(AtomicU64::new(0));
    for crash_at in 1..=60 {
        disk.set(crash_at % 4);
        let promised = acknowledged.load(Ordering::Relaxed);
        let machine = machine();
        let (store, last) = machine.block_on(async {
            let store = files.runner();
            let lines = store.spool_after("s", 0, usize::MAX).await.unwrap();
            let last = lines.last().map_or(0, |(seq, _)| *seq);
            assert!((promised..=promised + 10).contains(&last), "{last} of {promised}");
            let acked = lines.first().map_or(1, |(seq, _)| *seq);
            let whole: Vec<_> = (acked..=last).map(|seq| line("s", seq)).collect();
            assert_eq!(lines, whole, "no holes");
            (store, last)
        });
        let acknowledged = Arc::clone(&acknowledged);
        machine.spawn(async move {
            for first in (last + 1..).step_by(10) {
                store.commit(unit("s", first..=first + 9)).await.unwrap();
                acknowledged.store(first + 9, Ordering::Relaxed);
                store.ack("s", first);
                sleep(Duration::from_millis(1)).await;
            }
        });
        machine.block_on(async { sleep(Duration::from_millis(crash_at)).await });
    }
    assert!(acknowledged.load(Ordering::Relaxed) > 1000);
    machine().block_on(async {
        let store = files.runner();
        let lines = store.tail("s", usize::MAX).await.unwrap();
        let waiting: u64 = lines.iter().map(|(_, line)| line.len() as u64).sum();
        assert!(store.spool_bytes() <= waiting && store.spool_bytes() > 0);
        store.ack("s", u64::MAX);
        store.close().await;
        assert_eq!(files.runner().spool_bytes(), 0, "what is counted is what is there");
    });
}

#[tokio::test(start_paused = true)]
async fn all_time_is_the_runtimes() {
    let disk = SlowDisk::default();
    let files = DatabaseFiles::on(disk.clone());
    let store = files.runner();
    let start = Instant::now();
    store.commit(unit("s", 1..=9)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "no delay is no delay");
    disk.set(50);
    store.commit(unit("s", 10..=10)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(50));
    assert_eq!(store.spool_after("s", 9, 9).await.unwrap(), [line("s", 10)]);
    assert_eq!(start.elapsed(), Duration::from_millis(100));

    disk.set(0);
    let size = line("s", 1).1.len() as u64;
    let all = store.spool_bytes();
    store.ack("s", 8);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(store.spool_bytes(), all, "an ack waits for the interval");
    sleep(ACK_FLUSH_INTERVAL).await;
    assert_eq!(store.spool_bytes(), size + line("s", 10).1.len() as u64);
    // Long enough that nobody looks for acks any more.
    sleep(100 * ACK_FLUSH_INTERVAL).await;
    store.ack("s", 9);
    sleep(ACK_FLUSH_INTERVAL / 2).await;
    store.ack("s", 10);
    assert!(store.spool_bytes() > size, "the first after a pause wakes the writer and waits too");
    sleep(ACK_FLUSH_INTERVAL).await;
    assert_eq!(store.spool_bytes(), 0);
    if let Ok(threads) = std::fs::read_dir("/proc/self/task") {
        let name = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default()
        };
        let names: Vec<_> = threads.map(name).filter(|name| name.contains("-db-")).collect();
        assert_eq!(names, [""; 0], "no thread of a store");
    }
}

/// What is queued or read when the close comes is finished, however slow the disk.
#[tokio::test(start_paused = true)]
async fn close_waits_for_reads_and_writes() {
    let disk = SlowDisk::default();
    let files = DatabaseFiles::on(disk.clone());
    let store = files.hub();
    store.append(vec![record("s", 1, None)]).await.unwrap();
    disk.set(20);
    let write = store.enqueue_append(vec![record("s", 2, None)]).await.unwrap();
    let reading = tokio::spawn({
        let store = store.clone();
        async move { stored(&store).await }
    });
    tokio::task::yield_now().await;
    tokio::join!(store.close(), store.close());
    assert!(write.await.is_ok());
    assert!(!reading.await.unwrap().is_empty());
    assert_eq!(stored(&files.hub()).await, [1, 2]);
}

/// When the last handle goes without a close, what was queued is still stored, as with threads.
#[tokio::test(start_paused = true)]
async fn a_dropped_store_finishes_its_queue() {
    let files = DatabaseFiles::inline();
    let store = files.hub();
    let pending = store.enqueue_append(vec![record("s", 1, None)]).await.unwrap();
    drop(store);
    pending.await.unwrap();
}

#[test]
fn a_store_that_cannot_run_inline_says_why() {
    let files = DatabaseFiles::inline();
    let outside = HubStore::open(&files.path("hub.db"), files.options()).err().unwrap().to_string();
    assert!(outside.contains("writing task"), "{outside}");
    machine().block_on(async {
        let store = files.hub();
        let twice = HubStore::open(&files.path("hub.db"), files.options()).err().unwrap().to_string();
        assert!(twice.contains("locked"), "{twice}");
        store.append(vec![record("s", 1, None)]).await.unwrap();
    });
    assert_eq!(machine().block_on(async { stored(&files.hub()).await }), [1]);
}
