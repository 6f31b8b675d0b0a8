//! The contract suite on SQLite, and what only SQLite files can show: schema versions and a full disk.
#![allow(clippy::unwrap_used)] // Test helpers, which clippy does not recognise as tests.

mod fixtures;
mod full;
mod suite;

use std::path::Path;

use fixtures::{DatabaseFiles, line, message, put, record, unit};
use qd_store::{HubStore, NewRecord, RunnerStore, StoreError, StoreOptions};
use suite::{HubFiles, RunnerFiles, hub_contract, runner_contract};

impl HubFiles for DatabaseFiles {
    async fn hub(&self) -> HubStore {
        DatabaseFiles::hub(self)
    }
}

impl RunnerFiles for DatabaseFiles {
    async fn runner(&self) -> RunnerStore {
        DatabaseFiles::runner(self)
    }
}

// Each case twice: with threads, and inline with a disk that is sometimes slow and a clock that skips waiting.
hub_contract! { hub_threads, #[tokio::test], crate::DatabaseFiles::threads() }
hub_contract! { hub_inline, #[tokio::test(start_paused = true)], crate::DatabaseFiles::inline() }
runner_contract! { runner_threads, #[tokio::test], crate::DatabaseFiles::threads() }
runner_contract! { runner_inline, #[tokio::test(start_paused = true)], crate::DatabaseFiles::inline() }

#[tokio::test]
async fn a_full_disk_with_threads() {
    full::a_full_hub_loses_nothing(&DatabaseFiles::threads()).await;
    full::acks_make_room_in_a_full_spool(&DatabaseFiles::threads()).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_inline() {
    full::a_full_hub_loses_nothing(&DatabaseFiles::inline()).await;
    full::acks_make_room_in_a_full_spool(&DatabaseFiles::inline()).await;
}

/// Released migrations never change: a database that saw the old text would differ from a fresh one.
#[test]
fn released_migrations_are_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/migrations");
    let released = [
        ("hub/0001_init.sql", 0xa228_630d_de8c_e1ec),
        ("hub/0002_fleet.sql", 0x9538_569f_d3fe_b644),
        ("hub/0003_submissions.sql", 0x1b83_92ce_a4f5_f660),
        ("hub/0004_people.sql", 0x3a16_7c63_e68e_8417),
        ("runner/0001_init.sql", 0x4e96_0b95_5771_5b71),
        ("runner/0002_tail.sql", 0x6994_0d86_d52e_8d5b),
        ("runner/0003_run_inputs.sql", 0xed5d_215b_5941_2a48),
    ];
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
    let files = DatabaseFiles::threads();
    let path = files.path("hub.db");
    files.hub().close().await;
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    match HubStore::open(&path, StoreOptions::default()) {
        Err(StoreError::Newer { found: 99, known: 7, .. }) => {}
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
    let files = DatabaseFiles::threads();
    let store = files.hub();
    store.append(vec![record("s", 1, None)]).await.unwrap();
    for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
        let mode = std::fs::metadata(files.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    store.close().await;
    assert!(!files.path("hub.db-wal").exists(), "close leaves one file");
}

/// The log is moved to the database now and then, whoever commits.
#[tokio::test]
async fn the_log_stays_short() {
    let files = DatabaseFiles::threads();
    let store = files.hub();
    let log = files.path("hub.db-wal");
    let mut longest = 0;
    for seq in 1..=4000 {
        let record = NewRecord { body: vec![b' '; 12 << 10].into(), ..record("s", seq, None) };
        store.append(vec![record]).await.unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    assert!((8 << 20..24 << 20).contains(&longest), "{longest} bytes, for 48 MiB of records");
    store.close().await;
}

/// Packed keys stay readable: the view shows records by session and `seq`, and the index agrees with its table.
#[tokio::test]
async fn people_can_look_into_the_file() {
    let files = DatabaseFiles::threads();
    let store = files.hub();
    let row = |id: &str, text: &str| put(message(id, 0, text));
    store
        .append(vec![record("a", 1, row("m", "one")), record("b", 7, None), record("a", 2, row("m", "two"))])
        .await
        .unwrap();
    store.append(vec![record("a", 3, Some(qd_store::RecordEffect::ReplaceMessages(vec![])))]).await.unwrap();
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

/// A spool from before there were tails: all its lines wait, and an ack makes a tail of them.
#[tokio::test]
async fn an_older_spool_is_taken_over() {
    let files = DatabaseFiles::threads();
    let raw = rusqlite::Connection::open(files.path("runner.db")).unwrap();
    raw.execute_batch(include_str!("../src/sqlite/migrations/runner/0001_init.sql")).unwrap();
    raw.pragma_update(None, "user_version", 1).unwrap();
    let bytes: usize = (8..=9).map(|seq| line("s", seq).1.len()).sum();
    raw.execute("INSERT INTO spool_sessions VALUES (3, 's', ?1)", [bytes as i64]).unwrap();
    for seq in 8..=9_u64 {
        let row = ((3_i64 << 40) | seq as i64, line("s", seq).1.to_vec());
        raw.execute("INSERT INTO spool VALUES (?1, ?2)", row).unwrap();
    }
    drop(raw);

    let store = files.runner();
    assert_eq!(store.spool_bytes(), bytes as u64);
    store.commit(unit("s", 10..=10)).await.unwrap();
    store.ack("s", 9);
    store.close().await;
    let store = files.runner();
    assert_eq!(store.spool_bytes(), line("s", 10).1.len() as u64);
    assert_eq!(store.tail("s", 9).await.unwrap(), [line("s", 8), line("s", 9), line("s", 10)]);
}

/// A hub from before there were people: its logins are its owner's, and its tokens stay good.
#[tokio::test]
async fn an_older_hub_is_taken_over() {
    let files = DatabaseFiles::threads();
    let raw = rusqlite::Connection::open(files.path("hub.db")).unwrap();
    raw.execute_batch(include_str!("../src/sqlite/migrations/hub/0001_init.sql")).unwrap();
    raw.execute_batch(include_str!("../src/sqlite/migrations/hub/0002_fleet.sql")).unwrap();
    raw.execute_batch(include_str!("../src/sqlite/migrations/hub/0003_submissions.sql")).unwrap();
    raw.pragma_update(None, "user_version", 3).unwrap();
    raw.execute("INSERT INTO access_tokens VALUES ('ci', x'01', 100, NULL)", []).unwrap();
    raw.execute("INSERT INTO logins VALUES (x'02', 100, 100, 'browser')", []).unwrap();
    raw.execute_batch(
        "INSERT INTO sessions (session_id, runner_id, harness, cwd, state, created_at, updated_at)
             VALUES ('s', 'r', 'pi', '/', 'idle', 1, 1), ('empty', 'r', 'pi', '/', 'idle', 1, 1);
         INSERT INTO messages
             (session_id, id, idx, active, role, created_at, tokens, cost_usd, content, parts_json, message_json)
             VALUES ('s', 'm0', 0, 1, 'user', 1, NULL, NULL, 'asked', '[]', x'7b7d'),
             ('s', 'm1', 1, 1, 'assistant', 1, 7, 0.5, 'answered', '[]', x'7b7d'),
             ('s', 'm2', 2, 0, 'assistant', 1, 3, 0.25, 'left behind', '[]', x'7b7d'),
             ('s', 'm3', 3, 1, 'tool', 1, NULL, NULL, 'a result', '[]', x'7b7d');",
    )
    .unwrap();
    drop(raw);

    let store = files.hub();
    let token = store.check_access_token(&[1], 200).await.unwrap().unwrap();
    assert_eq!((&*token.name, token.owner, token.scopes, token.expires_at), ("ci", None, None, None));
    let login = store.check_login(&[2], 200, std::time::Duration::from_secs(9)).await.unwrap().unwrap();
    assert_eq!(login.username, None);
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!((session.totals.tokens, session.totals.cost_usd), (10, 0.75), "also what a fork left behind");
    assert_eq!(session.last_text.as_deref(), Some("answered"));
    let empty = store.session("empty").await.unwrap().unwrap();
    assert_eq!((empty.totals.tokens, empty.last_text), (0, None));
}
