//! What the hub can ask of its store: the contract that every backend keeps. The suite in `tests/suite` holds them to
//! it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_wire::people::{AuditEntry, HostTrust};

use super::{
    AccessTokenRow, AppendSummary, AuditQuery, Backend, HistoryQuery, HostRow, HubSession, HubStore,
    LoginRow, MessagePage, NewRecord, PersonChange, PersonRow, PersonStored, PushChange, PushRow, RunnerNote,
    RunnerRow, SearchHit, SearchQuery, SubmissionRow, TokenStored, UsageQuery, UsageRows,
};
use crate::RecordRewrite;
use crate::error::Result;
use crate::store_future::StoreFuture;

/// Makes of each line a method that hands the request to the backend. A `match` on an enum costs a predictable branch
/// per request and no allocation, and the compiler says which methods a new backend lacks.
macro_rules! hub_interface {
    ($( $(#[$meta:meta])* async fn $name:ident(&self $(, $argument:ident: $type:ty)* $(,)?) $(-> $output:ty)?; )*) => {
        impl HubStore {
            $( $(#[$meta])* pub async fn $name(&self $(, $argument: $type)*) $(-> $output)? {
                match &self.backend {
                    Backend::Sqlite(store) => store.$name($($argument),*).await,
                }
            } )*
        }
    };
}

hub_interface! {
    // Records, sessions and messages.

    /// Stores records and their effects in one transaction; resolves after the commit.
    async fn append(&self, batch: Vec<NewRecord>) -> Result<AppendSummary>;

    /// Like `append`, in two steps: the first await waits for room in the queue, the second for the commit. So
    /// a caller can have several batches under way and still know their order.
    async fn enqueue_append(&self, batch: Vec<NewRecord>) -> Result<StoreFuture<AppendSummary>>;

    /// Replaces the body of a record by what `with` makes of it, where there is such a record. For what no later record
    /// tells; otherwise see [`RecordEffect::Rewrite`](crate::RecordEffect::Rewrite).
    async fn rewrite_record(&self, session_id: &str, seq: u64, with: RecordRewrite) -> Result<()>;

    /// Removes a session with its records and messages; false if there was none.
    async fn delete_session(&self, session_id: &str) -> Result<bool>;

    async fn session(&self, session_id: &str) -> Result<Option<HubSession>>;

    /// All sessions, most recently updated first.
    async fn sessions(&self) -> Result<Vec<HubSession>>;

    /// Records after a cursor, in order, until one of the limits; at least one if there is one. Bodies share
    /// one allocation, so keeping one keeps all of this answer.
    async fn records_after(
        &self,
        session_id: &str,
        after_seq: u64,
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>>;

    /// Active messages before `before_idx`, or the newest, oldest first.
    async fn messages_page(
        &self,
        session_id: &str,
        before_idx: Option<i64>,
        limit: usize,
    ) -> Result<MessagePage>;

    async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>>;

    /// Records of these events after a cursor, in order, until one of the limits; at least one if there is one.
    async fn records_of(
        &self,
        session_id: &str,
        events: &'static [&'static str],
        after_seq: u64,
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>>;

    /// The newest records of these events, oldest first, until one of the limits; at least one if there is one.
    async fn newest_records_of(
        &self,
        session_id: &str,
        events: &'static [&'static str],
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>>;

    /// The first active messages after `after_idx`, oldest first, each with its `idx`; none at the end.
    async fn messages_after(&self, session_id: &str, after_idx: Option<i64>) -> Result<Vec<(i64, Bytes)>>;

    // Runners and deleted sessions.

    /// All runners that ever joined, revoked ones too, by id.
    async fn runners(&self) -> Result<Vec<RunnerRow>>;

    async fn runner(&self, runner_id: &str) -> Result<Option<RunnerRow>>;

    /// Stores a runner; one of the same id is replaced whole, its revocation included.
    async fn put_runner(&self, runner: RunnerRow) -> Result<()>;

    /// Notes what a runner said of itself. One that never joined gets a row with an empty key, which no key
    /// matches: that is for the hub's own runner. Keys and revocation stay as they are.
    async fn note_runner(&self, note: RunnerNote) -> Result<()>;

    /// Prepares a rotation; a later one takes the place of an earlier one. False if there is no such runner or it
    /// is revoked.
    async fn set_next_key(&self, runner_id: &str, key_hash: &[u8]) -> Result<bool>;

    /// Finishes a rotation: the prepared key becomes the key, if it is this one. False if it is not, or the runner
    /// is revoked.
    async fn promote_key(&self, runner_id: &str, key_hash: &[u8], now: i64) -> Result<bool>;

    /// False if there is no such runner or it was revoked before. Its hashes stay, so that its next visit can be
    /// refused by name.
    async fn revoke_runner(&self, runner_id: &str, now: i64) -> Result<bool>;

    /// Removes a session with its records and messages and leaves a tombstone for its runner, in one transaction.
    /// The tombstone stands even if there was no session, which is what false says. Beyond `DELETED_SESSIONS_MAX`
    /// the oldest tombstones go.
    async fn mark_session_deleted(&self, session_id: &str, runner_id: &str, now: i64) -> Result<bool>;

    /// The sessions this runner has yet to delete, those deleted first in front.
    async fn deleted_sessions_of(&self, runner_id: &str) -> Result<Vec<String>>;

    /// The runner that has yet to delete this session, if it is deleted.
    async fn runner_of_deleted(&self, session_id: &str) -> Result<Option<String>>;

    /// Takes a tombstone away: its runner has deleted the session. False if there was none.
    async fn forget_deleted_session(&self, session_id: &str) -> Result<bool>;

    // The journal of the pi-server face.

    /// Stores a submission that is under way; resolves after the commit. Rows are cheapest to add and delete when
    /// their `uid`s grow with time.
    async fn put_submission(&self, row: SubmissionRow) -> Result<()>;

    /// Stores what came of a submission; resolves after the commit. One that was not put before is stored whole.
    async fn finish_submission(&self, row: SubmissionRow) -> Result<()>;

    /// Stores several of both kinds in their order and with one commit: all of them or none.
    async fn write_submissions(&self, rows: Arc<[SubmissionRow]>) -> Result<()>;

    /// Removes all that a principal has submitted: whoever has its name next inherits nothing.
    async fn delete_submissions_of(&self, principal: &str) -> Result<()>;

    /// The newest `limit` submissions with all they carry, oldest first.
    async fn submissions(&self, limit: usize) -> Result<Vec<SubmissionRow>>;

    /// Submissions of one principal, newest first, and whether there are more than the limit. They come without
    /// their `data_json`, which may be great and is not for lists.
    async fn submission_history(&self, query: HistoryQuery) -> Result<(Vec<SubmissionRow>, bool)>;

    /// Removes these submissions in one transaction; those that are not there are no error.
    async fn delete_submissions(&self, uids: Vec<Arc<str>>) -> Result<()>;

    /// Removes all submissions but the newest `limit`: for a start with smaller bounds than the last one had. Tells
    /// how many went.
    async fn keep_submissions(&self, limit: usize) -> Result<u64>;

    // People, logins, access tokens.

    async fn person(&self, username: &str) -> Result<Option<PersonRow>>;

    /// All people, by name.
    async fn people(&self) -> Result<Vec<PersonRow>>;

    /// Adds a person unless the name is taken or there are `PEOPLE_MAX` already.
    async fn put_person(&self, person: PersonRow) -> Result<PersonStored>;

    /// Changes a person. Another password, or being disabled, ends all their logins and tokens with the same commit.
    /// False if there is no such person.
    async fn change_person(&self, username: &str, change: PersonChange) -> Result<bool>;

    /// Removes a person with all their logins and tokens; false if there was none.
    async fn delete_person(&self, username: &str) -> Result<bool>;

    /// Notes that a person has logged in.
    async fn note_person_login(&self, username: &str, now: i64) -> Result<()>;

    /// Stores a login by the hash of its token. Beyond `LOGINS_MAX` of the same person those unused for longest go;
    /// tells their hashes.
    async fn put_login(&self, login: LoginRow) -> Result<Vec<Vec<u8>>>;

    /// The login with this hash, if there is one that was used within `life`. Its use is noted, at most once a
    /// minute, and if the disk is full not at all: who has logged in stays in.
    async fn check_login(&self, token_hash: &[u8], now: i64, life: Duration) -> Result<Option<LoginRow>>;

    /// The logins of a person, or of the hub's owner, most recently used first; those that are over too.
    async fn logins_of(&self, username: Option<&str>) -> Result<Vec<LoginRow>>;

    /// False if there was none.
    async fn delete_login(&self, token_hash: &[u8]) -> Result<bool>;

    /// Adds a token, by its hash, unless its name is taken or there are `ACCESS_TOKENS_MAX` already.
    async fn put_access_token(&self, token: AccessTokenRow) -> Result<TokenStored>;

    /// All access tokens, those of the hub's owner first, then by owner and name.
    async fn access_tokens(&self) -> Result<Vec<AccessTokenRow>>;

    /// Removes a token of this owner, which is the hub's if it is `None`, and gives its hash; `None` if there was none.
    async fn delete_access_token(&self, owner: Option<&str>, name: &str) -> Result<Option<Vec<u8>>>;

    /// The token with this hash, if there is one that has not expired. Its use is noted, at most once a minute, and if
    /// the disk is full not at all: who has a token stays in.
    async fn check_access_token(&self, token_hash: &[u8], now: i64) -> Result<Option<AccessTokenRow>>;

    // Hosts that speak the run protocol.

    async fn host(&self, host_id: &str) -> Result<Option<HostRow>>;

    /// All hosts that ever came or were added, by id.
    async fn hosts(&self) -> Result<Vec<HostRow>>;

    /// Adds a host; false if there is one of this id already, which stays as it is. Beyond `PENDING_HOSTS_MAX` the
    /// oldest of those nobody has confirmed go.
    async fn put_host(&self, host: HostRow) -> Result<bool>;

    /// Trusts a host with this token; false if there is none with both.
    async fn confirm_host(&self, host_id: &str, token_hash: &[u8]) -> Result<bool>;

    /// False if there is no such host.
    async fn set_host_trust(&self, host_id: &str, trust: HostTrust) -> Result<bool>;

    /// Notes that a host was here, at most once a minute.
    async fn touch_host(&self, host_id: &str, now: i64) -> Result<()>;

    /// False if there was none. Its id is free then; revoke a host that must not come back.
    async fn delete_host(&self, host_id: &str) -> Result<bool>;

    // Browsers that want pushes.

    /// Stores a subscription and gives it as it is now. One of the same principal for the same endpoint is renewed and
    /// keeps its id; one of somebody else goes, because the browser has changed hands. Beyond
    /// `PUSH_SUBSCRIPTIONS_MAX` those of the principal that have worked least recently go.
    async fn put_push_subscription(&self, row: PushRow) -> Result<PushRow>;

    /// Those of one principal, oldest first.
    async fn push_subscriptions_of(&self, principal: &str) -> Result<Vec<PushRow>>;

    /// All whose login was used after `alive_after`, or that were made with the owner's token.
    async fn push_subscriptions(&self, alive_after: i64) -> Result<Vec<PushRow>>;

    /// One of those.
    async fn push_subscription(&self, subscription_id: &str, alive_after: i64) -> Result<Option<PushRow>>;

    /// Changes one of this principal; false if there is none.
    async fn change_push_subscription(
        &self,
        principal: &str,
        subscription_id: &str,
        change: PushChange,
    ) -> Result<bool>;

    /// Removes one of this principal, or of anybody; false if there is none.
    async fn delete_push_subscription(&self, principal: Option<&str>, subscription_id: &str) -> Result<bool>;

    /// Notes that a message was taken, or why not.
    async fn note_push(&self, subscription_id: &str, at: i64, failure: Option<String>) -> Result<()>;

    // What was done by whom.

    /// Stores what was done beside any record; resolves after the commit.
    async fn put_audit(&self, row: AuditEntry) -> Result<()>;

    /// Newest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>>;

    /// Removes rows from before a time, and the oldest of those that are more than `AUDIT_ROWS_MAX`; some at a time,
    /// so that nobody waits long for the writer. Tells whether there may be more of them.
    async fn prune_audit(&self, before: Option<i64>, rows_max: u64, at_most: usize) -> Result<bool>;

    // Usage.

    async fn usage(&self, query: UsageQuery) -> Result<UsageRows>;

    // For tests.

    /// While this is on, what needs more room gets `Full`, as on a full disk.
    #[doc(hidden)]
    async fn set_full_for_tests(&self, is_full: bool) -> Result<()>;

    /// Makes the tables refuse the title `bad` and every change of logins, as failing disks or later constraints
    /// might.
    #[doc(hidden)]
    async fn refuse_for_tests(&self) -> Result<()>;

    // The end.

    /// Finishes what is queued and closes; later requests get `Closed`.
    async fn close(&self);
}
