//! Pushes to browsers: bodies of the REST calls about them, what a push says, and how a client tells what its person
//! looks at.

use crate::ErrorCode;
use crate::derive::wire;

/// What TypeScript has of these.
#[cfg(feature = "codegen")]
pub(crate) fn visit_types(visitor: &mut impl ts_rs::TypeVisitor) {
    visitor.visit::<PushState>();
    visitor.visit::<NewPushSubscription>();
    visitor.visit::<ChangePushSubscription>();
    visitor.visit::<PushTest>();
    visitor.visit::<PushTested>();
    visitor.visit::<PushAnswer>();
    visitor.visit::<PushAnswered>();
    visitor.visit::<RemovedPushSubscription>();
    visitor.visit::<PushMessage>();
    visitor.visit::<crate::mux::SystemClientFrame>();
}

/// What a browser can be told of.
#[wire(words, Hash)]
pub enum PushTopic {
    /// Somebody has to allow something.
    Approval,
    /// Any other question.
    Question,
    /// A turn that took its time has ended.
    Done,
    /// A session, or a turn of it, has failed.
    Failed,
}

/// Answer of `GET /api/push`: one's own.
#[wire(Eq)]
pub struct PushState {
    /// The hub's key, base64url, for `applicationServerKey`.
    pub public_key: String,
    /// Oldest first.
    pub subscriptions: Vec<PushSubscriptionInfo>,
}

/// A browser that its person is told on.
#[wire(Eq)]
pub struct PushSubscriptionInfo {
    /// For `PATCH` and `DELETE /api/push/subscriptions/{id}`.
    pub id: String,
    /// As the browser gave it: by this a browser knows its own.
    pub endpoint: String,
    pub label: String,
    pub topics: Vec<PushTopic>,
    /// Whether pushes may say what they are about.
    pub content: bool,
    /// Unix milliseconds.
    pub created_at: i64,
    pub last_success_at: Option<i64>,
    pub last_failure_at: Option<i64>,
    /// Why, for the person.
    pub last_failure: Option<String>,
}

/// Body of `POST /api/push/subscriptions`: what the browser's `subscribe()` gave, and what the person wants. The same
/// endpoint again renews the subscription.
#[wire(Eq)]
pub struct NewPushSubscription {
    pub endpoint: String,
    pub keys: PushKeys,
    /// What the person calls the device; without it what the browser says of itself.
    pub label: Option<String>,
    pub topics: Vec<PushTopic>,
    pub content: bool,
}

/// The browser's keys, base64url.
#[wire(Eq)]
pub struct PushKeys {
    pub p256dh: String,
    pub auth: String,
}

/// Body of `PATCH /api/push/subscriptions/{id}`; what is absent stays.
#[wire(Default, Eq)]
#[serde(default)]
pub struct ChangePushSubscription {
    pub label: Option<String>,
    pub topics: Option<Vec<PushTopic>>,
    pub content: Option<bool>,
}

/// Body of `POST /api/push/test`; without `id` all of one's own are tried.
#[wire(Default, Eq)]
#[serde(default)]
pub struct PushTest {
    pub id: Option<String>,
}

/// Answer of `POST /api/push/test`.
#[wire(Eq)]
pub struct PushTested {
    pub results: Vec<PushTestResult>,
}

#[wire(Eq)]
pub struct PushTestResult {
    pub id: String,
    /// Whether the browser's push service has taken it.
    pub ok: bool,
    pub error: Option<String>,
    /// Of `error`, for programs.
    pub code: Option<ErrorCode>,
}

/// Body of `POST /api/push/answer`, which needs no login: the token, which came in a push, is the access.
#[wire(Eq)]
pub struct PushAnswer {
    /// Good for the one question the push was about, once.
    pub token: String,
    pub decision: PushDecision,
}

/// Answer of `POST /api/push/answer`.
#[wire(Eq)]
pub struct PushAnswered {
    pub session_id: String,
    pub request_id: String,
}

/// Answer of `DELETE /api/push/subscriptions/{id}`.
#[wire(Eq)]
pub struct RemovedPushSubscription {
    pub id: String,
}

#[wire(words)]
pub enum PushDecision {
    Approve,
    Deny,
}

/// What a push says to the browser's service worker, encrypted on its way.
#[wire(Eq)]
pub struct PushMessage {
    pub kind: PushKind,
    pub session_id: Option<String>,
    /// A later push with the same tag takes the place of an earlier one.
    pub tag: String,
    /// Only where the person has allowed content.
    pub title: Option<String>,
    pub body: Option<String>,
    pub request_id: Option<String>,
    /// For `POST /api/push/answer`; only for those who may answer, and only where yes or no is an answer.
    pub answer_token: Option<String>,
    /// How many sessions wait for somebody.
    pub badge: u64,
}

#[wire(words)]
pub enum PushKind {
    Approval,
    Question,
    Done,
    Failed,
    /// The question with the same tag needs no answer any more: nothing is to be shown, what was shown goes.
    Resolved,
    Test,
}
