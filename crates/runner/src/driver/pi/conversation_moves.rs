//! Commands that take pi elsewhere: to another conversation, or within the tree of this one.
//!
//! A move is a request and a look: pi says whether it moved, not where it is then. So the conversation is read again
//! as a whole afterwards, and the session replaces its own by it.

use qd_core::agent::AgentRequest;
use qd_core::harness::pi;
use qd_core::session::{AgentFacts, QueueFate};
use qd_wire::command::NavigateTreeParams;
use qd_wire::{Command, ErrorCode};
use serde_json::{Value, json};

use super::PiHandle;
use super::execute::unsupported;
use crate::driver::{AgentFailure, AgentResult, CommandEffect, ExecuteResult, ExecutedCommand};

/// Commands that take pi to another conversation.
pub(super) async fn move_to(handle: &PiHandle, command: &Command, native: bool) -> ExecuteResult {
    match command {
        Command::Fork(params) => {
            let request = AgentRequest::Fork { entry_id: params.entry_id.clone() };
            let reply = handle.request(request).await?;
            let text = pi::fork_text(&reply);
            let data = json!({ "text": text, "cancelled": pi::is_cancelled(&reply) });
            moved(handle, reply, data, native).await
        }
        Command::SessionNew(params) => {
            // Asked before the move: afterwards pi has only its defaults to tell.
            let before = handle.facts().await?;
            let request = AgentRequest::NewSession { parent_session: params.parent_session.clone() };
            let reply = handle.request(request).await?;
            let data = json!({ "cancelled": pi::is_cancelled(&reply) });
            let warnings =
                if pi::is_cancelled(&reply) { Vec::new() } else { set_again(handle, &before).await };
            let mut executed = moved(handle, reply, data, native).await?;
            executed.effects.extend(warnings.into_iter().map(CommandEffect::Warning));
            Ok(executed)
        }
        Command::SessionSwitch(params) => switch(handle, &params.session_path, native).await,
        other => Err(unsupported(other)),
    }
}

/// pi begins a new conversation with its defaults; the session goes on with the model and the thinking level it had.
/// The conversation is there in any case, so what cannot be set is only told.
async fn set_again(handle: &PiHandle, before: &AgentFacts) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |what: &str, failure: &AgentFailure| {
        warnings
            .push(format!("The new conversation does not have {what} of the one before: {}", failure.error));
    };
    let mut now = match handle.facts().await {
        Ok(now) => now,
        Err(failure) => {
            warn("the model", &failure);
            return warnings;
        }
    };
    if let Some(model) = before.model.as_ref().filter(|model| now.model.as_ref() != Some(model)) {
        let (provider, model_id) = (model.provider.clone(), model.model_id.clone());
        let set = handle.request(AgentRequest::SetModel { provider, model_id }).await;
        // The levels there are depend on the model.
        match (set, handle.facts().await) {
            (Ok(_), Ok(changed)) => now = changed,
            (Err(failure), _) | (_, Err(failure)) => warn("the model", &failure),
        }
    }
    let level = before.thinking_level.as_ref();
    if let Some(level) = level.filter(|level| now.thinking_level.as_ref() != Some(level)) {
        let request = AgentRequest::SetThinkingLevel { level: level.clone() };
        if let Err(failure) = handle.request(request).await {
            warn("the thinking level", &failure);
        }
    }
    warnings
}

async fn switch(handle: &PiHandle, named: &str, native: bool) -> ExecuteResult {
    // The claim is held until the move is over, so that no other session opens the file in between.
    let (checked, claim) = handle.claim_existing(named)?;
    let session_path = checked.path().to_string_lossy().into_owned();
    let reply = handle.request(AgentRequest::SwitchSession { session_path }).await?;
    if !pi::is_cancelled(&reply) && !checked.is_still_there() {
        return Err(handle.give_up(checked.path()));
    }
    let data = json!({ "cancelled": pi::is_cancelled(&reply) });
    let result = moved(handle, reply, data, native).await;
    drop(claim);
    result
}

/// New, switch and fork change session id and file without an event.
async fn moved(handle: &PiHandle, mut reply: Value, mut data: Value, native: bool) -> ExecuteResult {
    let effects = if pi::is_cancelled(&reply) { Vec::new() } else { read_conversation(handle, None).await? };
    if let Some(CommandEffect::Conversation { native_session_id, native_session_file, .. }) = effects.first()
    {
        if let Some(data) = data.as_object_mut() {
            data.insert("native_session_id".to_owned(), native_session_id.clone().into());
            data.insert("native_session_file".to_owned(), native_session_file.clone().into());
        }
        // Whoever forks wants to know where to.
        if let Some(reply) = reply.as_object_mut().filter(|reply| reply.contains_key("text")) {
            reply.insert("sessionId".to_owned(), native_session_id.clone().into());
        }
    }
    let data = if native { json!({ "native": reply }) } else { data };
    Ok(ExecutedCommand { data: Some(data), effects, ..ExecutedCommand::default() })
}

/// Moves to another entry of the session tree. pi's RPC cannot, so our extension does.
pub(super) async fn navigate(handle: &PiHandle, params: &NavigateTreeParams) -> ExecuteResult {
    if !handle.bridge().is_loaded() {
        let error = "The session tree cannot be navigated: Quarterdeck's extension does not run in this pi. \
                     session.restart tries it again.";
        return Err(AgentFailure::refused(ErrorCode::Unsupported.with(error)));
    }
    let id = handle.fresh_id("n");
    // Before the request, because the extension may answer before pi does.
    let expected = handle.bridge().expect(id.clone());
    let message = pi::navigate_prompt(&id, params);
    handle.request(AgentRequest::Prompt { message, images: Vec::new(), when_busy: None }).await?;
    let navigated = match expected.result() {
        Some(Ok(navigated)) => navigated,
        Some(Err(refusal)) => return Err(refusal.into()),
        None => {
            return Err(AgentFailure::replied(
                "pi did not report the result of the navigation; read the conversation to see where it is",
            ));
        }
    };
    // The extension reports every move in the tree. This one is answered here and must not be taken for a person's.
    handle.bridge().take_moved();
    let effects = if navigated.cancelled {
        Vec::new()
    } else {
        let queue = clear_queue(handle).await;
        read_conversation(handle, Some(queue)).await?
    };
    let mut data = json!({ "cancelled": navigated.cancelled });
    if let Some(aborted) = navigated.aborted {
        data["aborted"] = aborted.into();
    }
    if let Some(text) = navigated.editor_text {
        data["editor_text"] = text.into();
    }
    Ok(ExecutedCommand { data: Some(data), effects, ..ExecutedCommand::default() })
}

/// pi keeps its queue when it moves within its tree; what is in it was meant for where it was.
async fn clear_queue(handle: &PiHandle) -> QueueFate {
    match handle.request(AgentRequest::ClearQueue).await {
        Ok(reply) => QueueFate::Cleared(pi::cleared_texts(&reply)),
        Err(failure) => {
            // The oldest versions cannot.
            tracing::debug!(error = failure.error, "pi keeps its queue");
            QueueFate::Kept
        }
    }
}

/// The conversation pi is in, whole. With another conversation pi begins another queue; what became of it in the same
/// one must be said.
pub(super) async fn read_conversation(
    handle: &PiHandle,
    queue: Option<QueueFate>,
) -> AgentResult<Vec<CommandEffect>> {
    let (facts, waiting) = handle.facts_and_waiting().await?;
    let messages = handle.conversation().await?;
    let conversation = CommandEffect::Conversation {
        native_session_id: facts.native_session_id.clone().unwrap_or_default(),
        native_session_file: facts.native_session_file.clone(),
        messages,
        queue: queue.unwrap_or(QueueFate::LeftBehind { waiting }),
    };
    Ok(vec![conversation, CommandEffect::Facts(facts)])
}
