//! `hub.db`: sessions, their records, their messages with full-text search, people, logins, access tokens, runners,
//! hosts of others, browsers that want pushes, what was done by whom,
//! tombstones of sessions whose runner has yet to learn that they are deleted, and the journal of submissions.

mod access;
mod append;
mod audit;
mod deleted_sessions;
mod messages;
mod push;
mod read;
mod requests;
mod runners;
mod search;
mod sessions;
mod submissions;
mod usage;

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use crate::RecordRewrite;
use crate::error::Result;
use crate::hub::{AppendSummary, HubSession, NewRecord, SearchHit, SearchQuery};
use crate::sqlite::database::StoreOptions;
use crate::sqlite::engine::Engine;
use crate::sqlite::migrate::Migrations;
use crate::store_future::StoreFuture;
use requests::requests;

/// More than any file has.
const PAGES_MAX: u32 = 1 << 30;

const MIGRATIONS: Migrations = &[
    include_str!("migrations/hub/0001_init.sql"),
    include_str!("migrations/hub/0002_fleet.sql"),
    include_str!("migrations/hub/0003_submissions.sql"),
    include_str!("migrations/hub/0004_people.sql"),
    include_str!("migrations/hub/0005_summaries.sql"),
    include_str!("migrations/hub/0006_push.sql"),
    include_str!("migrations/hub/0007_usage.sql"),
];

/// The hub's copy of all sessions. Clones share one database.
#[derive(Clone)]
pub(crate) struct SqliteHub {
    engine: Arc<Engine>,
}

requests! {
    write rewrite_record(session_id: &str, seq: u64, with: RecordRewrite) -> () = append::rewrite_record;
    write delete_session(session_id: &str) -> bool = sessions::delete;
    read session(session_id: &str) -> Option<HubSession> = sessions::get;
    read sessions() -> Vec<HubSession> = sessions::list;
    read search(query: SearchQuery) -> Vec<SearchHit> = search::search;
}

impl SqliteHub {
    pub(crate) fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        let opened = Engine::open(path, options, MIGRATIONS)?;
        Ok(Self { engine: Arc::new(Engine::start("hub-db", opened, None)?) })
    }

    pub(crate) async fn append(&self, batch: Vec<NewRecord>) -> Result<AppendSummary> {
        self.enqueue_append(batch).await?.await
    }

    pub(crate) async fn enqueue_append(&self, batch: Vec<NewRecord>) -> Result<StoreFuture<AppendSummary>> {
        let bytes = append::batch_bytes(&batch);
        let is_short = append::is_short(&batch);
        let apply = move |connection: &Connection| append::append(connection, &batch);
        // Only what is short in any case may run on the caller's thread; see `Writer::enqueue_short`.
        if is_short {
            return self.engine.enqueue_short(bytes, apply, |_| {}).await;
        }
        self.engine.enqueue(bytes, apply, |_| {}).await
    }

    pub(crate) async fn set_full_for_tests(&self, is_full: bool) -> Result<()> {
        // A file does not become shorter than it is: at one page it can only not grow.
        self.engine.limit_pages(if is_full { 1 } else { PAGES_MAX }).await
    }

    pub(crate) async fn refuse_for_tests(&self) -> Result<()> {
        const TRIGGERS: &str = "CREATE TEMP TRIGGER no_bad_title BEFORE UPDATE OF title ON main.sessions
            WHEN new.title = 'bad' BEGIN SELECT raise(ABORT, 'refused for a test'); END;
            CREATE TEMP TRIGGER no_login BEFORE INSERT ON main.logins
            BEGIN SELECT raise(ABORT, 'refused for a test'); END;
            CREATE TEMP TRIGGER no_use BEFORE UPDATE ON main.logins
            BEGIN SELECT raise(ABORT, 'refused for a test'); END;";
        self.engine.write(|connection| Ok(connection.execute_batch(TRIGGERS)?)).await
    }

    pub(crate) async fn close(&self) {
        self.engine.close().await;
    }
}
