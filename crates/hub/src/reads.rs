//! Commands the hub answers from its own copies.

use std::sync::Arc;

use bytes::Bytes;
use qd_store::{HubSession, MESSAGE_PAGE_ROWS_MAX, SEARCH_LIMIT_MAX, SearchQuery, StoreError};
use qd_wire::command::{GetMessagesParams, SearchParams};
use qd_wire::data::{RunnerStatus, RunnersData, SearchData, SearchHit, SessionSummary, SessionsData};
use serde::Serialize;

use crate::registry::Hub;
use crate::reply::ReplyTo;

/// Messages in the snapshot of an attach.
pub(crate) const SNAPSHOT_MESSAGES: usize = 200;
const SEARCH_LIMIT_DEFAULT: u64 = 20;

/// A read, and where its answer goes.
pub(crate) struct HubCommand {
    pub(crate) reply: ReplyTo,
    pub(crate) read: Read,
}

pub(crate) enum Read {
    Messages(GetMessagesParams),
    Sessions,
    Runners,
    Search { params: SearchParams, session_id: Option<String> },
}

impl HubCommand {
    /// The answer as a frame.
    pub(crate) async fn run(self, hub: &Hub) -> Bytes {
        let data = match self.read {
            Read::Messages(params) => {
                let session_id = self.reply.session_id.as_deref().unwrap_or_default();
                messages(hub, session_id, params).await
            }
            Read::Sessions => sessions(hub).await.map(|sessions| json(&SessionsData { sessions })),
            Read::Runners => Ok(json(&runners(hub))),
            Read::Search { params, session_id } => search(hub, params, session_id).await,
        };
        match data {
            Ok(data) => self.reply.success(Some(&data)),
            Err(error) => self.reply.error(&format!("The hub cannot read its store: {error}")),
        }
    }
}

fn json(data: &impl Serialize) -> String {
    // These types have no maps with odd keys, so writing them cannot fail.
    serde_json::to_string(data).unwrap_or_default()
}

async fn messages(hub: &Hub, session_id: &str, params: GetMessagesParams) -> Result<String, StoreError> {
    let limit = params.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MESSAGE_PAGE_ROWS_MAX);
    let before = params.before.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
    let page = hub.store.messages_page(session_id, before, limit).await?;
    let mut text = format!("{{\"messages\":{}", message_list(&page.messages));
    text.push_str(&format!(",\"total\":{}", page.total));
    if let Some(first) = page.first_idx.filter(|first| *first > 0) {
        text.push_str(&format!(",\"before\":{first}"));
    }
    text.push('}');
    Ok(text)
}

/// Stored messages as a JSON array, as they came.
pub(crate) fn message_list(messages: &[Bytes]) -> String {
    let bytes: usize = messages.iter().map(|message| message.len() + 1).sum();
    let mut text = String::with_capacity(bytes + 2);
    text.push('[');
    for message in messages {
        // Stored from text, so this borrows.
        text.push_str(&String::from_utf8_lossy(message));
        text.push(',');
    }
    if text.ends_with(',') {
        text.pop();
    }
    text.push(']');
    text
}

/// All sessions, most recently active first.
pub(crate) async fn sessions(hub: &Hub) -> Result<Vec<SessionSummary>, StoreError> {
    let rows = hub.store.sessions().await?;
    let mut sessions = Vec::with_capacity(rows.len());
    for row in rows {
        sessions.push(summary(hub, row).await?);
    }
    Ok(sessions)
}

async fn summary(hub: &Hub, row: HubSession) -> Result<SessionSummary, StoreError> {
    let entry = hub.session(&row.session_id);
    let is_away = hub.runner(&row.runner_id).is_none_or(|runner| runner.status() == RunnerStatus::Offline);
    let state = match &entry {
        Some(entry) if !is_away => entry.status().as_str().to_owned(),
        _ if is_away => "offline".to_owned(),
        _ => row.state,
    };
    let message_count = match entry.as_ref().and_then(|entry| entry.message_count()) {
        Some(count) => count,
        None => {
            let count = hub.store.messages_page(&row.session_id, None, 1).await?.total;
            if let Some(entry) = &entry {
                entry.set_message_count(Some(count));
            }
            count
        }
    };
    Ok(SessionSummary {
        session_id: row.session_id,
        runner_id: row.runner_id,
        harness: row.harness,
        state,
        cwd: (!row.cwd.is_empty()).then_some(row.cwd),
        title: row.title,
        provider: row.provider,
        model: row.model,
        created_at: row.created_at,
        last_activity: row.updated_at,
        seq: row.last_seq,
        message_count,
        subscriber_count: entry.as_ref().map_or(0, |entry| entry.ring.subscriber_count() as u64),
        pending_input_count: entry.map_or(0, |entry| u64::from(entry.pending_inputs())),
    })
}

fn runners(hub: &Hub) -> RunnersData {
    let info = |runner: Arc<crate::registry::Runner>| runner.info(hub.sessions_of(&runner.id).len());
    RunnersData { runners: hub.runners().into_iter().map(info).collect() }
}

async fn search(hub: &Hub, params: SearchParams, session_id: Option<String>) -> Result<String, StoreError> {
    let clip = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let query = SearchQuery {
        text: params.query,
        session_id,
        role: params.role,
        limit: clip(params.limit.unwrap_or(SEARCH_LIMIT_DEFAULT)).min(SEARCH_LIMIT_MAX),
        offset: clip(params.offset.unwrap_or(0)),
        ..SearchQuery::default()
    };
    let hits = hub.store.search(query).await?.into_iter().map(|hit| SearchHit {
        session_id: hit.session_id,
        message_id: hit.message_id,
        idx: hit.idx.cast_unsigned(),
        role: hit.role,
        created_at: hit.created_at,
        snippet: hit.snippet,
        score: hit.rank,
    });
    Ok(json(&SearchData { hits: hits.collect() }))
}
