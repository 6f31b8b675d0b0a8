//! Commands the hub answers from its own copies.
//!
//! A client's connection does them one at a time (`connection/attachments`), so that a client with many reads waits
//! for itself and for nobody else.

mod away;

use std::sync::Arc;

use bytes::Bytes;
use qd_store::{MESSAGE_PAGE_ROWS_MAX, SEARCH_LIMIT_MAX, SearchQuery, StoreError};
use qd_wire::command::{GetMessagesParams, SearchParams};
use qd_wire::command_table::CommandName;
use qd_wire::data::{RunnersData, SearchData, SearchHit, SessionSummary, SessionsData};
use qd_wire::{CodedError, ErrorCode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::access::audit::CommandNote;
use crate::command::ask::{CommandAnswer, OnAnswer};
use crate::command::reply::ReplyTo;
use crate::hub::Hub;
use crate::runners::runner::Runner;
use crate::sessions::session::SessionEntry;
pub(crate) use away::{AwayAttach, attach as attach_away, delete_while_away};

/// Messages in the snapshot of an attach.
pub(crate) const SNAPSHOT_MESSAGES: usize = 200;
const SEARCH_LIMIT_DEFAULT: u64 = 20;

/// A read, and where its answer goes.
pub(crate) struct HubCommand {
    pub(crate) reply: ReplyTo,
    pub(crate) read: HubRead,
}

pub(crate) enum HubRead {
    Messages(GetMessagesParams),
    Sessions,
    Runners,
    /// Done by the connection itself.
    Detach,
    /// Of a session whose runner is away: follow it all the same.
    AwayAttach {
        session: Arc<SessionEntry>,
        after: Option<u64>,
    },
    /// How such a session stands.
    AwayState(Arc<SessionEntry>),
    /// Delete such a session; its runner is told when it comes.
    Bury {
        session: Arc<SessionEntry>,
        by: Arc<str>,
    },
    Search {
        params: Box<SearchParams>,
        session_id: Option<String>,
    },
}

impl HubCommand {
    /// The answer as a frame, or the error in it.
    pub(crate) async fn run(self, hub: &Arc<Hub>) -> Result<Bytes, (ReplyTo, CodedError)> {
        let HubCommand { reply, read } = self;
        match read.data(hub, reply.session_id.as_deref().unwrap_or_default()).await {
            Ok(ReadData::Nothing) => Ok(reply.success(None)),
            Ok(ReadData::Text(data)) => Ok(reply.success(Some(&data))),
            Ok(ReadData::Messages(page)) => Ok(reply.success_of(&page.parts())),
            Err(error) => Err((reply, error)),
        }
    }

    /// The same for a face of the hub, in a task of its own.
    pub(crate) fn run_for_face(self, hub: &Arc<Hub>, on_answer: OnAnswer) {
        hub.spawn(async move |hub| {
            let HubCommand { reply: ReplyTo { session_id, runner_id, .. }, read } = self;
            let data = read.data(&hub, session_id.as_deref().unwrap_or_default()).await;
            let answered = match data.and_then(ReadData::into_raw) {
                Ok(data) => CommandAnswer { success: true, data, ..CommandAnswer::default() },
                Err(error) => CommandAnswer::failure(error),
            };
            let session_id = session_id.map(|session_id| session_id.to_string());
            on_answer(&hub, CommandAnswer { session_id, runner_id, ..answered });
        });
    }
}

/// What an answer holds.
enum ReadData {
    Nothing,
    /// JSON.
    Text(String),
    /// Messages are copied once, into the frame.
    Messages(MessagesText),
}

impl ReadData {
    fn into_raw(self) -> Result<Option<Box<RawValue>>, CodedError> {
        let data = match self {
            ReadData::Nothing => return Ok(None),
            ReadData::Text(data) => data,
            // What is no text cannot be read either, and is told as such.
            ReadData::Messages(page) => String::from_utf8(page.parts().concat()).unwrap_or_default(),
        };
        RawValue::from_string(data).map(Some).map_err(|error| {
            ErrorCode::Internal.with(format!("What the hub has stored cannot be read: {error}"))
        })
    }
}

impl HubRead {
    /// What the answer holds, or the error in it.
    async fn data(self, hub: &Arc<Hub>, session_id: &str) -> Result<ReadData, CodedError> {
        let data = match self {
            HubRead::Messages(params) => {
                let page = MessagesText::read(hub, session_id, params).await;
                return page.map(ReadData::Messages).map_err(|error| unreadable(&error));
            }
            HubRead::Sessions => sessions(hub).await.map(|sessions| json(&SessionsData { sessions })),
            HubRead::Runners => runners(hub).await.map(|runners| json(&runners)),
            HubRead::Detach => return Ok(ReadData::Nothing),
            HubRead::AwayAttach { session, after } => Ok(json(&away::attach_data(&session, after))),
            HubRead::AwayState(session) => Ok(json(&away::state(&session))),
            HubRead::Bury { session, by } => {
                let note = CommandNote::of(CommandName::SessionDelete.spec(), &by, Some(&session.id));
                let deleted = away::delete_while_away(hub, &session).await;
                if let Some(mut note) = note {
                    note.at(&session.runner_id);
                    note.put(hub, None, Some(deleted.is_ok()));
                }
                return deleted.map(|()| ReadData::Nothing);
            }
            HubRead::Search { params, session_id } => search(hub, *params, session_id).await,
        };
        data.map(ReadData::Text).map_err(|error| unreadable(&error))
    }
}

/// The hub's store does not answer.
pub(crate) fn unreadable(error: &StoreError) -> CodedError {
    ErrorCode::StoreUnavailable.with(format!("The hub cannot read its store: {error}"))
}

fn json(data: &impl Serialize) -> String {
    // These types have no maps with odd keys, so writing them cannot fail.
    serde_json::to_string(data).unwrap_or_default()
}

/// A page of messages as they are stored, and what follows them.
struct MessagesText {
    messages: Vec<Bytes>,
    end: String,
}

impl MessagesText {
    async fn read(hub: &Hub, session_id: &str, params: GetMessagesParams) -> Result<Self, StoreError> {
        let limit =
            params.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MESSAGE_PAGE_ROWS_MAX);
        let before = params.before.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
        let page = hub.store.messages_page(session_id, before, limit).await?;
        let mut end = format!(",\"total\":{}", page.total);
        if let Some(first) = page.first_idx.filter(|first| *first > 0) {
            end.push_str(&format!(",\"before\":{first}"));
        }
        end.push('}');
        Ok(Self { messages: page.messages, end })
    }

    /// The data of an answer in pieces.
    fn parts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<&[u8]> = vec![b"{\"messages\":"];
        push_list(&mut parts, &self.messages);
        parts.push(self.end.as_bytes());
        parts
    }
}

/// Stored messages as a JSON array, as they came.
pub(crate) fn push_list<'a>(parts: &mut Vec<&'a [u8]>, messages: &'a [Bytes]) {
    parts.push(b"[");
    for (number, message) in messages.iter().enumerate() {
        if number > 0 {
            parts.push(b",");
        }
        parts.push(message);
    }
    parts.push(b"]");
}

/// All sessions, most recently active first.
pub(crate) async fn sessions(hub: &Hub) -> Result<Vec<SessionSummary>, StoreError> {
    Ok(hub.store.sessions().await?.into_iter().map(|row| hub.summary(row)).collect())
}

/// All runners there ever were, connected or not.
pub(crate) async fn runners(hub: &Hub) -> Result<RunnersData, StoreError> {
    let counts = hub.session_counts();
    // Runners join, change their keys and are revoked in the store; how they stand now is known here.
    for row in hub.store.runners().await? {
        hub.runner_or_new(&Arc::from(&*row.runner_id)).apply_row(&row);
    }
    let info = |runner: Arc<Runner>| runner.info(counts.get(&runner.id).copied().unwrap_or(0));
    Ok(RunnersData { runners: hub.runners().into_iter().map(info).collect() })
}

async fn search(hub: &Hub, params: SearchParams, session_id: Option<String>) -> Result<String, StoreError> {
    let clip = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let query = SearchQuery {
        text: params.query,
        session_id,
        runner_id: params.runner_id,
        harness: params.harness,
        role: params.role,
        after: params.from,
        before: params.to,
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
        title: hit.session_title,
        harness: hit.harness,
        runner_id: hit.runner_id,
        cwd: Some(hit.cwd).filter(|cwd| !cwd.is_empty()),
    });
    Ok(json(&SearchData { hits: hits.collect() }))
}
