//! The task that tells people: who wants to know, whether they look already, and the way to their push services.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qd_link::clock::now_ms;
use qd_store::{PushRow, StoreError};
use qd_wire::command_table::Permission;
use qd_wire::push::{PushKind, PushMessage, PushTopic};
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::notification_text::{self, NotificationText};
use super::questions::{AnswerTicket, OpenQuestion, QuestionKey};
use super::seal::{MessageRecipient, seal};
use super::{PushEndpoint, SessionEnd};
use crate::access::authenticate::{hash, random_text, role_of};
use crate::access::principals::{OWNER, Rights};
use crate::hub::Hub;

/// Jobs under way at a time, those that wait for somebody to look away included.
const TASKS_MAX: usize = 1024;
/// Requests under way at a time; those of one subscription come one after the other.
const LANES: usize = 16;
/// Enough for a short outage of a push service; after a longer one the notification is old news.
const ATTEMPTS_MAX: u32 = 4;
const RETRY_FACTOR: u32 = 4;
const RETRY_MAX: Duration = Duration::from_secs(120);
/// How long a push service keeps a message for a browser that is away.
const KEEP_QUESTION: Duration = Duration::from_secs(24 * 3600);
const KEEP_END: Duration = Duration::from_secs(12 * 3600);
const KEEP_TEST: Duration = Duration::from_secs(60);
/// The token alone permits an answer, so it must not be guessable.
const TOKEN_BYTES: usize = 32;
/// Agents may call their questions anything; a longer name is not in a push.
const REQUEST_ID_BYTES_MAX: usize = 256;
/// What a push service may know a message by, which a later one replaces.
const TOPIC_CHARS: usize = 32;

/// What is to be done.
pub(super) enum DeliveryJob {
    Question(QuestionKey),
    End(Arc<str>),
    Resolved { key: QuestionKey, told: Vec<String> },
    Send(Box<PushDelivery>),
}

/// A message to one browser.
pub(super) struct PushDelivery {
    subscription: PushRow,
    message: PushMessage,
    keep: Duration,
    /// It is sent only while this is open.
    question: Option<QuestionKey>,
}

/// One after the other for each subscription, and not too many at a time.
#[derive(Default)]
pub(super) struct DeliveryLanes([Mutex<()>; LANES]);

impl DeliveryLanes {
    fn of(&self, subscription_id: &str) -> &Mutex<()> {
        &self.0[usize::from(hash(subscription_id)[0]) % LANES]
    }
}

/// Said of every failure: by the address of a push service, which anybody with a login may give, nobody finds out what
/// the hub can reach and what answers there.
const NOT_TAKEN: &str = "The push service has not taken the message; turn notifications off and on again on this device, or see the hub's log (level debug)";

/// What came of an attempt to send.
enum DeliveryAttempt {
    Sent,
    /// The browser has taken its subscription back.
    Gone,
    Later {
        after: Option<Duration>,
    },
    NotTaken,
    Refused(String),
}

/// Does the jobs, for ever.
pub(crate) async fn deliver_pushes(hub: &Arc<Hub>) {
    let receiver = hub.faces.push.receiver.lock().take();
    let Some(mut jobs) = receiver.filter(|_| hub.config.faces.push.key.is_some()) else { return };
    count_subscribers(hub).await;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            job = jobs.recv(), if tasks.len() < TASKS_MAX => {
                let Some(job) = job else { return };
                tasks.spawn(run(Arc::clone(hub), job));
            }
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a push broke off");
                }
            }
        }
    }
}

/// Whether anybody wants pushes.
pub(crate) async fn count_subscribers(hub: &Hub) {
    // Read before the store is asked: whoever subscribes in between changes the count, and the empty list is not
    // believed.
    let subscribed = *hub.faces.push.subscribed.lock();
    match hub.store.push_subscriptions(alive_after(hub)).await {
        Ok(rows) if rows.is_empty() => hub.faces.push.note_no_subscribers(subscribed),
        Ok(_) => hub.faces.push.note_subscriber(),
        Err(error) => tracing::warn!(%error, "the subscriptions to pushes cannot be read"),
    }
}

async fn run(hub: Arc<Hub>, job: DeliveryJob) {
    match job {
        DeliveryJob::Question(key) => notify_of_question(&hub, &key).await,
        DeliveryJob::End(session_id) => notify_of_end(&hub, &session_id).await,
        DeliveryJob::Resolved { key, told } => notify_of_answer(&hub, &key, &told).await,
        DeliveryJob::Send(delivery) => send(&hub, *delivery).await,
    }
}

/// Logins that were not used since are over.
pub(super) fn alive_after(hub: &Hub) -> i64 {
    let life = i64::try_from(hub.config.login_life.as_millis()).unwrap_or(i64::MAX);
    now_ms().saturating_sub(life)
}

/// What somebody may do now; `None` if they may not come in any more.
pub(super) async fn rights_of(hub: &Hub, principal: &str) -> Result<Option<Rights>, StoreError> {
    if principal == OWNER {
        return Ok(Some(Rights::ALL));
    }
    let person = hub.store.person(principal).await?.filter(|person| !person.disabled);
    let role = person.as_ref().and_then(role_of);
    Ok(role.map(|role| Rights { role, permissions: role.permissions() }))
}

/// The browsers of those who may see sessions and want to know of this.
async fn audience(hub: &Hub, topic: PushTopic) -> Vec<(PushRow, Rights)> {
    let wanted = async {
        let mut rows = hub.store.push_subscriptions(alive_after(hub)).await?;
        rows.retain(|row| row.topics.split(' ').any(|word| word == topic.as_str()));
        let mut known: HashMap<String, Option<Rights>> = HashMap::new();
        let mut audience = Vec::with_capacity(rows.len());
        for row in rows {
            let rights = match known.get(&row.principal) {
                Some(rights) => *rights,
                None => {
                    let rights = rights_of(hub, &row.principal).await?;
                    known.insert(row.principal.clone(), rights);
                    rights
                }
            };
            if let Some(rights) = rights.filter(|rights| rights.permissions.contains(Permission::View)) {
                audience.push((row, rights));
            }
        }
        Ok::<_, StoreError>(audience)
    };
    wanted.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "nobody can be pushed, because the store cannot be read");
        Vec::new()
    })
}

/// Tells of a question when it has been open for a while. Those who see it are told when they look away and it is
/// still open.
async fn notify_of_question(hub: &Arc<Hub>, key: &QuestionKey) {
    let config = &hub.config.faces.push;
    sleep(config.delay).await;
    let Some(question) = hub.faces.push.questions.get(key, now_ms()) else { return };
    let topic = question.topic();
    let session = hub.store.session(&key.session_id).await.ok().flatten();
    let words = notification_text::of_question(&question.request, session.as_ref(), &key.session_id);
    // Who looked the last time, and who has looked away since.
    let mut away: HashMap<String, bool> = HashMap::new();
    loop {
        let Some(question) = hub.faces.push.questions.get(key, now_ms()) else { return };
        let mut looking = Vec::new();
        for (row, rights) in audience(hub, topic).await {
            if question.told.contains(&row.subscription_id) {
                continue;
            }
            let is_looking = hub.presence.is_looking(&row.principal, &key.session_id, true);
            let has_left = away.get(&row.principal).is_none_or(|was_away| *was_away);
            if is_looking || !has_left {
                looking.push((row.principal, !is_looking));
            } else {
                queue_question(hub, key, &question, row, rights, &words);
            }
        }
        if looking.is_empty() {
            return;
        }
        away.extend(looking);
        sleep(config.left_grace).await;
    }
}

fn queue_question(
    hub: &Arc<Hub>,
    key: &QuestionKey,
    question: &OpenQuestion,
    row: PushRow,
    rights: Rights,
    words: &NotificationText,
) {
    let may_answer = question.takes_yes_or_no() && rights.permissions.contains(Permission::Approve);
    let token = if may_answer { random_text(TOKEN_BYTES) } else { None };
    let ticket = token.as_deref().map(|token| {
        let (principal, subscription_id) = (row.principal.clone(), row.subscription_id.clone());
        (hash(token), AnswerTicket { key: key.clone(), principal, subscription_id })
    });
    // Noted before it is sent. If the question is answered meanwhile, the browser is among those whose notification is
    // removed.
    if !hub.faces.push.questions.note_notified(key, &row.subscription_id, ticket) {
        return;
    }
    let kind = if question.topic() == PushTopic::Approval { PushKind::Approval } else { PushKind::Question };
    let message = PushMessage {
        request_id: short(&key.request_id),
        answer_token: token,
        ..message(hub, kind, Some(&key.session_id), key.tag(), Some(words).filter(|_| row.content))
    };
    let left = question.expires_at.map(|end| end.saturating_sub(now_ms()));
    let left = left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0)));
    let keep = left.unwrap_or(KEEP_QUESTION).min(KEEP_QUESTION);
    queue(hub, PushDelivery { subscription: row, message, keep, question: Some(key.clone()) });
}

/// Tells of an end, if the session has not gone on by itself.
async fn notify_of_end(hub: &Arc<Hub>, session_id: &Arc<str>) {
    sleep(hub.config.faces.push.delay).await;
    let Some(end) = hub.faces.push.take_end(session_id) else { return };
    if hub.session(session_id).is_some_and(|entry| entry.projection().is_in_turn()) {
        return;
    }
    let SessionEnd { topic, said } = end;
    let is_failure = topic == PushTopic::Failed;
    let kind = if is_failure { PushKind::Failed } else { PushKind::Done };
    let session = hub.store.session(session_id).await.ok().flatten();
    let last =
        session.as_ref().and_then(|row| if is_failure { row.error.clone() } else { row.last_text.clone() });
    let words = notification_text::of_end(session.as_ref(), session_id, said.or(last).as_deref());
    for (row, _) in audience(hub, topic).await {
        if hub.presence.is_looking(&row.principal, session_id, is_failure) {
            continue;
        }
        let tag = format!("end:{session_id}");
        let message = message(hub, kind, Some(session_id), tag, Some(&words).filter(|_| row.content));
        queue(hub, PushDelivery { subscription: row, message, keep: KEEP_END, question: None });
    }
}

/// Takes back what was shown of a question.
async fn notify_of_answer(hub: &Arc<Hub>, key: &QuestionKey, told: &[String]) {
    for subscription_id in told {
        match hub.store.push_subscription(subscription_id, alive_after(hub)).await {
            Ok(Some(subscription)) => {
                let request_id = short(&key.request_id);
                let message = message(hub, PushKind::Resolved, Some(&key.session_id), key.tag(), None);
                let message = PushMessage { request_id, ..message };
                queue(hub, PushDelivery { subscription, message, keep: KEEP_QUESTION, question: None });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a subscription to pushes cannot be read"),
        }
    }
}

fn message(
    hub: &Hub,
    kind: PushKind,
    session_id: Option<&str>,
    tag: String,
    words: Option<&NotificationText>,
) -> PushMessage {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PushMessage {
        kind,
        session_id: session_id.map(str::to_owned),
        tag,
        title: words.and_then(|words| text(&words.title)),
        body: words.and_then(|words| text(&words.body)),
        request_id: None,
        answer_token: None,
        badge: hub.needing_count(),
    }
}

fn short(request_id: &str) -> Option<String> {
    (request_id.len() <= REQUEST_ID_BYTES_MAX).then(|| request_id.to_owned())
}

fn queue(hub: &Hub, delivery: PushDelivery) {
    hub.faces.push.queue(DeliveryJob::Send(Box::new(delivery)));
}

/// Sends a message, again if need be.
async fn send(hub: &Hub, delivery: PushDelivery) {
    let id = &delivery.subscription.subscription_id;
    let mut pause = hub.config.faces.push.retry_first;
    for number in 1..=ATTEMPTS_MAX {
        let tried = {
            // The lane keeps the order of one browser's messages: a removal must not arrive before the notification it
            // removes.
            let _lane = hub.faces.push.lanes.of(id).lock().await;
            let is_stale = |key: &QuestionKey| hub.faces.push.questions.get(key, now_ms()).is_none();
            if delivery.question.as_ref().is_some_and(is_stale) {
                return;
            }
            attempt(hub, &delivery).await
        };
        match tried {
            DeliveryAttempt::Later { after, .. } if number < ATTEMPTS_MAX => {
                sleep(after.unwrap_or(pause).min(RETRY_MAX)).await;
                pause *= RETRY_FACTOR;
            }
            tried @ (DeliveryAttempt::Sent
            | DeliveryAttempt::Gone
            | DeliveryAttempt::Later { .. }
            | DeliveryAttempt::NotTaken
            | DeliveryAttempt::Refused(_)) => {
                // The reason is stored for the person.
                let _ = record_attempt(hub, &delivery.subscription, tried).await;
                return;
            }
        }
    }
}

/// Tries a subscription at once, and once. The error says why the browser did not get it.
pub(crate) async fn send_test(hub: &Hub, subscription: PushRow) -> Result<(), CodedError> {
    let words = NotificationText {
        title: "Notifications work".to_owned(),
        body: "This device will tell you when an agent needs you.".to_owned(),
    };
    let message = message(hub, PushKind::Test, None, "test".to_owned(), Some(&words));
    let delivery = PushDelivery { subscription, message, keep: KEEP_TEST, question: None };
    let tried = attempt(hub, &delivery).await;
    record_attempt(hub, &delivery.subscription, tried).await
}

/// Notes how it went; a subscription that is no more goes.
async fn record_attempt(hub: &Hub, subscription: &PushRow, tried: DeliveryAttempt) -> Result<(), CodedError> {
    let id = &subscription.subscription_id;
    let failure = match tried {
        DeliveryAttempt::Sent => None,
        DeliveryAttempt::Later { .. } | DeliveryAttempt::NotTaken => Some(ErrorCode::Failed.with(NOT_TAKEN)),
        DeliveryAttempt::Refused(reason) => Some(ErrorCode::Failed.with(reason)),
        DeliveryAttempt::Gone => {
            tracing::info!(
                principal = subscription.principal,
                label = subscription.label,
                "a browser takes no more pushes"
            );
            if let Err(error) = hub.store.delete_push_subscription(None, id).await {
                tracing::warn!(%error, "a subscription that is over cannot be removed");
            }
            let error = "The browser has taken this subscription back; turn notifications on again";
            return Err(ErrorCode::NotFound.with(error));
        }
    };
    if let Some(reason) = &failure {
        tracing::warn!(
            principal = subscription.principal,
            label = subscription.label,
            %reason,
            "a push was not taken"
        );
    }
    if let Err(error) =
        hub.store.note_push(id, now_ms(), failure.as_ref().map(|error| error.message.clone())).await
    {
        tracing::warn!(%error, "it cannot be noted how a push went");
    }
    failure.map_or(Ok(()), Err)
}

async fn attempt(hub: &Hub, delivery: &PushDelivery) -> DeliveryAttempt {
    let PushDelivery { subscription, message, keep, .. } = delivery;
    let config = &hub.config.faces.push;
    let Some(key) = &config.key else {
        return DeliveryAttempt::Refused("The hub sends no pushes".to_owned());
    };
    let endpoint = match PushEndpoint::parse(&subscription.endpoint, config.allow_loopback) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            tracing::debug!(subscription = subscription.subscription_id, %error, "a push cannot be sent");
            return DeliveryAttempt::NotTaken;
        }
    };
    let reader = MessageRecipient { p256dh: &subscription.p256dh, auth: &subscription.auth };
    let text = serde_json::to_vec(message).unwrap_or_default();
    let (Some(body), Some(authorization)) =
        (seal(reader, &text), key.authorization(&endpoint.origin, &config.contact, now_ms()))
    else {
        return DeliveryAttempt::Refused("The message cannot be encrypted for this browser".to_owned());
    };
    // A hash, because the push service sees the topic and must not learn the names of sessions from it.
    let mut topic = URL_SAFE_NO_PAD.encode(hash(&message.tag));
    topic.truncate(TOPIC_CHARS);
    let urgency = match message.kind {
        PushKind::Approval | PushKind::Question | PushKind::Test => "high",
        PushKind::Done | PushKind::Failed | PushKind::Resolved => "normal",
    };
    let headers = [
        ("TTL", keep.as_secs().to_string()),
        ("Urgency", urgency.to_owned()),
        ("Topic", topic),
        ("Content-Encoding", "aes128gcm".to_owned()),
        ("Content-Type", "application/octet-stream".to_owned()),
        ("Authorization", authorization),
    ];
    let posted = endpoint.post(&headers, &body).await;
    let (id, origin) = (&subscription.subscription_id, &endpoint.origin);
    match posted {
        Ok(answer) => {
            tracing::debug!(subscription = id, origin, status = answer.status, "a push service has answered");
            match answer.status {
                200..=299 => DeliveryAttempt::Sent,
                // The push service has forgotten the subscription; sending again would fail for ever.
                404 | 410 => DeliveryAttempt::Gone,
                429 | 500..=599 => DeliveryAttempt::Later { after: answer.retry_after },
                _ => DeliveryAttempt::NotTaken,
            }
        }
        Err(error) => {
            tracing::debug!(subscription = id, origin, %error, "a push service cannot be asked");
            DeliveryAttempt::Later { after: None }
        }
    }
}
