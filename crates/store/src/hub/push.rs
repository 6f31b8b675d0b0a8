//! Subscriptions of browsers to pushes.

/// A browser that somebody wants to be told on. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRow {
    pub subscription_id: String,
    /// A person's name, or that of the hub's owner.
    pub principal: String,
    /// The login it was made with, which it ends with; `None` for the owner's token.
    pub login_hash: Option<Vec<u8>>,
    /// Where its push service takes messages. One subscription each.
    pub endpoint: String,
    /// The browser's public key, and a secret it shares with us.
    pub p256dh: Vec<u8>,
    pub auth: Vec<u8>,
    pub label: String,
    /// Words with spaces between them.
    pub topics: String,
    /// Whether messages may say what they are about.
    pub content: bool,
    pub created_at: i64,
    pub last_success_at: Option<i64>,
    pub last_failure_at: Option<i64>,
    pub last_failure: Option<String>,
}

/// What is to be changed; `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushChange {
    pub label: Option<String>,
    pub topics: Option<String>,
    pub content: Option<bool>,
}
