//! Bounds that every backend keeps, because callers count on them.

/// The greatest `seq` a record can have.
pub const SEQ_MAX: u64 = (1 << 40) - 1;
/// The longest page of messages, whatever was asked for.
pub const MESSAGE_PAGE_ROWS_MAX: usize = 1000;
/// A page ends with the message that makes it greater than this: it holds at most this and one message.
pub const MESSAGE_PAGE_BYTES_MAX: usize = 4 << 20;
/// Words of a query that count; the rest is ignored.
pub const SEARCH_TOKENS_MAX: usize = 32;
/// The most hits of one answer, whatever was asked for.
pub const SEARCH_LIMIT_MAX: u32 = 200;
/// Tombstones that are kept. A runner that stays away while this many others are deleted brings the oldest of its
/// deleted sessions back, and they can be deleted again.
pub const DELETED_SESSIONS_MAX: usize = 10_000;
/// People that can be there at a time; owners add them by hand.
pub const PEOPLE_MAX: usize = 1000;
/// Logins that are kept of one person, and of the hub's owner.
pub const LOGINS_MAX: usize = 100;
/// Access tokens that can be there at a time; people name them by hand.
pub const ACCESS_TOKENS_MAX: usize = 1000;
/// Hosts nobody has confirmed yet that are kept: whoever reaches the hub can add one, so the oldest go.
pub const PENDING_HOSTS_MAX: usize = 64;
/// Subscriptions that are kept of one principal; who has more has browsers they do not use any more.
pub const PUSH_SUBSCRIPTIONS_MAX: usize = 32;
/// The most rows of one answer, whatever was asked for.
pub const AUDIT_PAGE_ROWS_MAX: usize = 1000;
/// Rows that are kept: about a gigabyte. Whoever fills this up loses the oldest.
pub const AUDIT_ROWS_MAX: u64 = 4_000_000;
/// The most rows of one answer, whatever was asked for.
pub const USAGE_ROWS_MAX: usize = 5000;

/// When a login, a token or a host was last seen is written only when the stored time is older than this.
pub(crate) const TOUCH_MS: i64 = 60_000;
