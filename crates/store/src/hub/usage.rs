//! What the messages say they have used, in tokens and money: added up by day, model and session.
//!
//! Every message counts that the store has, also those that a fork or switch has left behind: they were paid for.

/// Which messages count, and what they are told apart by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Only messages created at or after this time, in unix milliseconds.
    pub from: Option<i64>,
    /// Only messages created before this time.
    pub to: Option<i64>,
    pub session_id: Option<String>,
    pub by_day: bool,
    pub by_model: bool,
    pub by_session: bool,
    /// What a day's clock is ahead of UTC, in milliseconds.
    pub day_offset_ms: i64,
    /// How many rows; the sum counts all.
    pub limit: usize,
}

/// What the messages of one day, model or session have used. What they are not told apart by is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRow {
    /// `2026-01-31`.
    pub day: Option<String>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub session_id: Option<String>,
    pub title: Option<String>,
    pub sum: UsageSum,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsageSum {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub cost_usd: f64,
    /// Those that say what they have used.
    pub messages: u64,
}

impl UsageSum {
    pub(crate) fn add(&mut self, other: &UsageSum) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.cost_usd = finite(self.cost_usd + other.cost_usd);
        self.messages = self.messages.saturating_add(other.messages);
    }
}

/// The newest days first, else the dearest and then the greatest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRows {
    pub rows: Vec<UsageRow>,
    /// Of all messages that count, also those of rows beyond the limit.
    pub total: UsageSum,
    /// Whether there are more rows than these.
    pub truncated: bool,
}

/// JSON has no infinity.
pub(crate) fn finite(sum: f64) -> f64 {
    if sum.is_finite() { sum } else { f64::MAX }
}
