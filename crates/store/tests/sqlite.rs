//! The contract suite on SQLite, and what only SQLite files can show: schema versions and a full disk.
#![allow(clippy::unwrap_used)] // Test helpers, which clippy does not recognise as tests.

mod fixtures;
mod suite;

use std::path::Path;

use bytes::Bytes;
use fixtures::{message, put, record, unit};
use qd_store::{HubStore, RunnerStore, StoreError, StoreOptions};
use suite::Place;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

impl Place for Files {
    fn hub(&self) -> HubStore {
        HubStore::open(&self.path("hub.db"), StoreOptions::default()).unwrap()
    }

    fn runner(&self) -> RunnerStore {
        RunnerStore::open(&self.path("runner.db"), StoreOptions::default()).unwrap()
    }
}

macro_rules! contract {
    ($($area:ident: $($case:ident)*;)*) => { $($(
        #[tokio::test]
        async fn $case() {
            suite::$area::$case(&Files::new()).await;
        }
    )*)* };
}

contract! {
    hub: records_come_back_in_order repeated_records_change_nothing sessions_are_listed_patched_and_deleted
        messages_are_paged_and_replaced a_bad_request_fails_alone logins_are_kept close_finishes_what_is_queued;
    search: search_follows_every_change search_takes_words_as_words search_filters_ranks_and_pages;
    runner: spool_keeps_until_acked sessions_are_kept_and_deleted a_unit_is_atomic
        outcomes_are_found_and_updated outcomes_are_pruned_oldest_first;
}

/// Released migrations never change: a database that saw the old text would differ from a fresh one.
#[test]
fn released_migrations_are_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let released =
        [("hub/0001_init.sql", 0xa228_630d_de8c_e1ec), ("runner/0001_init.sql", 0x4e96_0b95_5771_5b71)];
    for (name, expected) in released {
        let text = std::fs::read(folder.join(name)).unwrap();
        // FNV-1a: stable everywhere, and nobody is trying to fool it.
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(hash, expected, "{name} was released and may not change: add another file ({hash:#x})");
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let files = Files::new();
    let path = files.path("hub.db");
    files.hub().close().await;
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    match HubStore::open(&path, StoreOptions::default()) {
        Err(StoreError::Newer { found: 99, known: 1, .. }) => {}
        other => panic!("{:?}", other.err()),
    }
    assert!(matches!(
        HubStore::open(Path::new("/no/such/hub.db"), StoreOptions::default()),
        Err(StoreError::Open { .. })
    ));
    std::fs::write(files.path("text.db"), "no database at all, but long enough to be looked at\n".repeat(99))
        .unwrap();
    assert!(HubStore::open(&files.path("text.db"), StoreOptions::default()).is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let store = files.hub();
    store.append(vec![record("s", 1, None)]).await.unwrap();
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let mode = std::fs::metadata(files.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
    assert!(!files.path("hub.db-wal").exists(), "close leaves one file");
}

/// A full disk: `Full` for what does not fit, all that was acknowledged still there, and on it goes with room.
#[tokio::test]
async fn a_full_hub_loses_nothing() {
    let files = Files::new();
    let options = StoreOptions { pages_max: Some(60), ..StoreOptions::default() };
    let store = HubStore::open(&files.path("hub.db"), options).unwrap();
    let big = |seq| {
        let mut record = record("s", seq, None);
        record.body = Bytes::from(vec![b'x'; 10_000]);
        vec![record]
    };
    let mut seq = 1;
    let error = loop {
        match store.append(big(seq)).await {
            Ok(_) => seq += 1,
            Err(error) => break error,
        }
        assert!(seq < 1000, "the limit does not bite");
    };
    assert!(matches!(error, StoreError::Full), "{error}");
    assert!(seq > 5, "some fitted: {seq}");
    // Several in one group: each is told.
    let mut group = Vec::new();
    for _ in 0..3 {
        group.push(store.enqueue_append(big(seq)).await.unwrap());
    }
    for request in group {
        assert!(matches!(request.await, Err(StoreError::Full)));
    }
    let stored = |records: Vec<(u64, Bytes)>| records.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
    let acknowledged: Vec<_> = (1..seq).collect();
    assert_eq!(stored(store.records_after("s", 0, 1000, usize::MAX).await.unwrap()), acknowledged);

    store.limit_pages_for_tests(100_000).await.unwrap();
    store.append(big(seq)).await.unwrap();
    store.close().await;
    let acknowledged: Vec<_> = (1..=seq).collect();
    assert_eq!(stored(files.hub().records_after("s", 0, 1000, usize::MAX).await.unwrap()), acknowledged);
}

/// When the spool is full, acks still get through, and they make the room that new lines need.
#[tokio::test]
async fn acks_make_room_in_a_full_spool() {
    let files = Files::new();
    let options = StoreOptions { pages_max: Some(80), ..StoreOptions::default() };
    let store = RunnerStore::open(&files.path("runner.db"), options).unwrap();
    let mut seq = 1;
    let error = loop {
        match store.commit(unit("s", seq..=seq + 99)).await {
            Ok(()) => seq += 100,
            Err(error) => break error,
        }
        assert!(seq < 100_000, "the limit does not bite");
    };
    assert!(matches!(error, StoreError::Full), "{error}");
    let spooled = store.spool_after("s", 0, usize::MAX).await.unwrap();
    assert_eq!(spooled.len() as u64, seq - 1);
    assert_eq!(store.spool_bytes(), spooled.iter().map(|(_, line)| line.len() as u64).sum::<u64>());

    store.ack("s", seq - 1);
    let deadline = std::time::Duration::from_secs(10);
    let retried = tokio::time::timeout(deadline, async {
        while store.commit(unit("s", seq..=seq + 99)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    assert!(retried.await.is_ok(), "the acks made no room");
    assert_eq!(store.spool_after("s", 0, usize::MAX).await.unwrap().len(), 100);
}

/// Packed keys stay readable: the view shows records by session and `seq`, and the index agrees with its table.
#[tokio::test]
async fn people_can_look_into_the_file() {
    let files = Files::new();
    let store = files.hub();
    let row = |id: &str, text: &str| put(message(id, 0, text));
    store
        .append(vec![record("a", 1, row("m", "one")), record("b", 7, None), record("a", 2, row("m", "two"))])
        .await
        .unwrap();
    store.append(vec![record("a", 3, Some(qd_store::Effect::ReplaceMessages(vec![])))]).await.unwrap();
    store.delete_session("b").await.unwrap();
    store.close().await;
    let raw = rusqlite::Connection::open(files.path("hub.db")).unwrap();
    let mut select = raw.prepare("SELECT session_id, seq FROM record_list").unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let rows: Vec<(String, i64)> = rows.map(Result::unwrap).collect();
    assert_eq!(rows, [("a".into(), 1), ("a".into(), 2), ("a".into(), 3)]);
    raw.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)", []).unwrap();
    let whole: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}
