//! `hub.db`: sessions, their records, their messages with full-text search, people, logins, access tokens, runners,
//! hosts of others, browsers that want pushes, what was done by whom,
//! tombstones of sessions whose runner has yet to learn that they are deleted, and the journal of submissions.

mod append;
mod audit;
mod burials;
mod export;
mod fleet;
mod hosts;
mod logins;
mod messages;
mod people;
mod push;
mod read;
mod run_reads;
mod runners;
mod search;
mod sessions;
mod submissions;
mod tokens;
mod types;
mod usage;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::Connection;

pub use audit::{AUDIT_PAGE_ROWS_MAX, AUDIT_ROWS_MAX};
pub use burials::BURIED_SESSIONS_MAX;
pub use hosts::PENDING_HOSTS_MAX;
pub use logins::LOGINS_MAX;
pub use people::PEOPLE_MAX;
pub use push::{PUSH_SUBSCRIPTIONS_MAX, PushChange, PushRow};
pub use read::{MESSAGE_PAGE_BYTES_MAX, MESSAGE_PAGE_ROWS_MAX};
pub use search::{SEARCH_LIMIT_MAX, SEARCH_TOKENS_MAX};
pub use tokens::ACCESS_TOKENS_MAX;
pub use types::{
    AccessToken, Appended, AuditQuery, AuditRow, Effect, HistoryQuery, HostRow, HostTrust, HubSession, Login,
    MessagePage, MessageRow, PersonChange, PersonPut, PersonRow, RecordIn, RunnerNote, RunnerRow, SearchHit,
    SearchQuery, SessionPatch, SubmissionRow, TokenPut, Totals,
};
pub use usage::{USAGE_ROWS_MAX, UsageQuery, UsageRow, UsageRows, UsageSum};

use crate::Rewrite;
use crate::database::StoreOptions;
use crate::engine::Engine;
use crate::error::Result;
use crate::migrate::Migrations;
use crate::writer::Pending;

const MIGRATIONS: Migrations = &[
    include_str!("../../migrations/hub/0001_init.sql"),
    include_str!("../../migrations/hub/0002_fleet.sql"),
    include_str!("../../migrations/hub/0003_submissions.sql"),
    include_str!("../../migrations/hub/0004_people.sql"),
    include_str!("../../migrations/hub/0005_summaries.sql"),
    include_str!("../../migrations/hub/0006_push.sql"),
    include_str!("../../migrations/hub/0007_usage.sql"),
];

/// The hub's copy of all sessions. Clones share one database.
#[derive(Clone)]
pub struct HubStore {
    engine: Arc<Engine>,
}

impl HubStore {
    /// Opens or creates the database. Blocks for a few milliseconds: call it at start. With `Execution::Inline` it
    /// must be called inside a tokio runtime, which the store then lives and dies with.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        let opened = Engine::open(path, options, MIGRATIONS)?;
        Ok(Self { engine: Arc::new(Engine::start("hub-db", opened, None)?) })
    }

    /// Stores records and their effects in one transaction; resolves after the commit.
    pub async fn append(&self, batch: Vec<RecordIn>) -> Result<Appended> {
        self.enqueue_append(batch).await?.await
    }

    /// Like `append`, in two steps: the first await waits for room in the queue, the second for the commit. So
    /// a caller can have several batches under way and still know their order.
    pub async fn enqueue_append(&self, batch: Vec<RecordIn>) -> Result<Pending<Appended>> {
        let bytes = append::batch_bytes(&batch);
        let is_short = append::is_short(&batch);
        let apply = move |connection: &Connection| append::append(connection, &batch);
        if is_short {
            return self.engine.enqueue_short(bytes, apply, |_| {}).await;
        }
        self.engine.enqueue(bytes, apply, |_| {}).await
    }

    /// Replaces the body of a record by what `with` makes of it, where there is such a record. For what no later record
    /// tells; otherwise see [`Effect::Rewrite`].
    pub async fn rewrite_record(&self, session_id: &str, seq: u64, with: Rewrite) -> Result<()> {
        let session_id = session_id.to_owned();
        self.engine
            .write(0, move |connection| append::rewrite_record(connection, &session_id, seq, with))
            .await
    }

    /// Removes a session with its records and messages; false if there was none.
    pub async fn delete_session(&self, session_id: &str) -> Result<bool> {
        let session_id = session_id.to_owned();
        self.engine.write(0, move |connection| sessions::delete(connection, &session_id)).await
    }

    pub async fn session(&self, session_id: &str) -> Result<Option<HubSession>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| sessions::get(connection, &session_id)).await
    }

    /// All sessions, most recently updated first.
    pub async fn sessions(&self) -> Result<Vec<HubSession>> {
        self.engine.read(sessions::list).await
    }

    /// Records after a cursor, in order, until one of the limits; at least one if there is one. Bodies share
    /// one allocation, so keeping one keeps all of this answer.
    pub async fn records_after(
        &self,
        session_id: &str,
        after_seq: u64,
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>> {
        let session_id = session_id.to_owned();
        self.engine
            .read(move |connection| {
                read::records_after(connection, &session_id, after_seq, limit_rows, limit_bytes)
            })
            .await
    }

    /// Active messages before `before_idx`, or the newest, oldest first.
    pub async fn messages_page(
        &self,
        session_id: &str,
        before_idx: Option<i64>,
        limit: usize,
    ) -> Result<MessagePage> {
        let session_id = session_id.to_owned();
        self.engine
            .read(move |connection| read::messages_page(connection, &session_id, before_idx, limit))
            .await
    }

    pub async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>> {
        self.engine.read(move |connection| search::search(connection, &query)).await
    }

    /// Bounds the file, as a full disk would.
    #[doc(hidden)]
    pub async fn limit_pages_for_tests(&self, pages: u32) -> Result<()> {
        self.engine.limit_pages(pages).await
    }

    /// Makes the tables refuse the title `bad` and every change of logins, as failing disks or later constraints
    /// might.
    #[doc(hidden)]
    pub async fn refuse_for_tests(&self) -> Result<()> {
        const TRIGGERS: &str = "CREATE TEMP TRIGGER no_bad_title BEFORE UPDATE OF title ON main.sessions
            WHEN new.title = 'bad' BEGIN SELECT raise(ABORT, 'refused for a test'); END;
            CREATE TEMP TRIGGER no_login BEFORE INSERT ON main.logins
            BEGIN SELECT raise(ABORT, 'refused for a test'); END;
            CREATE TEMP TRIGGER no_use BEFORE UPDATE ON main.logins
            BEGIN SELECT raise(ABORT, 'refused for a test'); END;";
        self.engine.write(0, |connection| Ok(connection.execute_batch(TRIGGERS)?)).await
    }

    /// Finishes what is queued, checkpoints and closes; later requests get `Closed`.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}
