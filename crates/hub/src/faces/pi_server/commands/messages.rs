//! `get_messages`: the agent's own words, or the hub's copies where there are none.
//!
//! The agent's own messages have everything in pi's form; the copies have what the canonical form keeps, and are
//! there also while the machine is offline.

use std::sync::Arc;

use qd_core::view::pi_server::answer;
use qd_store::{MESSAGE_PAGE_ROWS_MAX, StoreError};
use qd_wire::Message;
use qd_wire::pi_server::MessageList;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::faces::pi_server::commands::execute::{
    ask_for, canonical, failure, finish, open_session, outcome, success,
};
use crate::faces::pi_server::commands::lifecycle;
use crate::faces::pi_server::commands::pending_commands::CommandJob;
use crate::hub::Hub;
use crate::sessions::reads::unreadable;

#[derive(Deserialize)]
struct NativeMessages<'a> {
    #[serde(borrow)]
    native: Option<&'a RawValue>,
}

pub(crate) fn messages(hub: &Arc<Hub>, job: CommandJob) {
    let entry = match open_session(hub, &job) {
        Ok(entry) => entry,
        Err(error) => return finish(hub, &job, failure(error)),
    };
    let command = canonical(&job, None).map(|command| command.on_session(&entry));
    ask_for(hub, job, command, move |hub, job, answered| {
        let has_native = answered.data.as_deref().is_some_and(has_native);
        // Copies have no version that could be compared.
        let is_conditional = job.request.envelope.if_session_version.is_some();
        let is_away = !answered.success && !is_conditional && hub.is_away(&entry.runner_id);
        // A harness other than pi has no messages in the document's form; they are made from the hub's copies then.
        if (answered.success && !has_native) || is_away {
            return from_copies(hub, job, answered.session_version);
        }
        let outcome = outcome(&job, answered);
        finish(hub, &job, outcome);
    });
}

fn has_native(data: &RawValue) -> bool {
    let native = serde_json::from_str::<NativeMessages<'_>>(data.get()).ok().and_then(|data| data.native);
    native.is_some_and(|native| native.get() != "null")
}

fn from_copies(hub: &Arc<Hub>, job: CommandJob, session_version: Option<u64>) {
    hub.spawn(async move |hub| {
        let outcome = match copies(&hub, job.session()).await {
            Ok(messages) => {
                let list = MessageList { messages: answer::messages(&messages) };
                success(Some(lifecycle::json(&list)), session_version)
            }
            Err(error) => failure(unreadable(&error)),
        };
        finish(&hub, &job, outcome);
    });
}

/// All messages of a session, oldest first.
async fn copies(hub: &Hub, session_id: &str) -> Result<Vec<Message>, StoreError> {
    let mut pages = Vec::new();
    let mut before = None;
    loop {
        let page = hub.store.messages_page(session_id, before, MESSAGE_PAGE_ROWS_MAX).await?;
        // The store counts pages from the end, so the last page read is the first of the conversation.
        before = page.first_idx.filter(|first| *first > 0);
        pages.push(page.messages);
        if before.is_none() {
            break;
        }
    }
    let messages = pages.iter().rev().flatten();
    let read = |text: &bytes::Bytes| {
        serde_json::from_slice(text)
            .inspect_err(|error| tracing::warn!(%error, "a stored message is odd"))
            .ok()
    };
    Ok(messages.filter_map(read).collect())
}
