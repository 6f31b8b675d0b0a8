//! Canonical commands carried out by pi: one command, the pi requests it takes, one result.

use qd_core::agent::AgentRequest;
use qd_core::harness::pi;
use qd_wire::Command;
use serde_json::{Value, json};

use super::PiHandle;
use crate::driver::{AgentFailure, Effect, Executed, session_name, to_value};

/// Levels pi knows; it would turn any other word into `off` without saying so.
const THINKING_LEVELS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];

/// Runs one command.
pub(in crate::driver) async fn execute(
    handle: &PiHandle,
    command: &Command,
) -> Result<Executed, AgentFailure> {
    match command {
        Command::GetStats(_) => read(handle, AgentRequest::GetStats, |data| to_value(&pi::stats(data))).await,
        Command::GetModels(_) => {
            read(handle, AgentRequest::GetModels, |data| to_value(&pi::models(data))).await
        }
        Command::GetCommands(_) => {
            read(handle, AgentRequest::GetCommands, |data| to_value(&pi::commands(data))).await
        }
        Command::GetForkPoints(_) => {
            read(handle, AgentRequest::GetForkPoints, |data| to_value(&pi::fork_points(data))).await
        }
        Command::SetModel(params) => {
            let (provider, model_id) = (params.provider.clone(), params.model_id.clone());
            handle.request(AgentRequest::SetModel { provider, model_id }).await?;
            model_now(handle).await
        }
        Command::CycleModel(_) => {
            let reply = handle.request(AgentRequest::CycleModel).await?;
            if reply.is_null() { Ok(nothing_to_cycle()) } else { model_now(handle).await }
        }
        Command::SetThinkingLevel(params) => set_thinking_level(handle, &params.level).await,
        Command::CycleThinkingLevel(_) => {
            let reply = handle.request(AgentRequest::CycleThinkingLevel).await?;
            if reply.is_null() { Ok(nothing_to_cycle()) } else { level_now(handle).await }
        }
        Command::SetAutoCompaction(params) => {
            handle.request(AgentRequest::SetAutoCompaction { enabled: params.enabled }).await?;
            Ok(Executed::with_effect(Effect::AutoCompaction(params.enabled)))
        }
        Command::SetAutoRetry(params) => {
            handle.request(AgentRequest::SetAutoRetry { enabled: params.enabled }).await?;
            Ok(Executed::with_effect(Effect::AutoRetry(params.enabled)))
        }
        Command::Compact(params) => {
            let request = AgentRequest::Compact { instructions: params.instructions.clone() };
            let reply = handle.request(request).await?;
            let data = json!({ "summary": reply.get("summary"), "tokens_before": reply.get("tokensBefore"),
                "tokens_after": reply.get("estimatedTokensAfter") });
            Ok(Executed::with_data(data))
        }
        Command::AbortRetry(_) => {
            handle.request(AgentRequest::AbortRetry).await?;
            Ok(Executed::default())
        }
        Command::SetSessionName(params) => {
            let name = session_name(&params.name)?;
            handle.request(AgentRequest::SetSessionName { name: name.clone() }).await?;
            Ok(Executed::with_effect(Effect::Title(name)))
        }
        Command::Fork(_) | Command::SessionNew(_) | Command::SessionSwitch(_) => {
            move_to(handle, command).await
        }
        other => Err(AgentFailure::refused(format!("pi does not support '{}'", other.spec().name))),
    }
}

/// Commands that take pi to another conversation.
async fn move_to(handle: &PiHandle, command: &Command) -> Result<Executed, AgentFailure> {
    match command {
        Command::Fork(params) => {
            let request = AgentRequest::Fork { entry_id: params.entry_id.clone() };
            let reply = handle.request(request).await?;
            let text = pi::fork_text(&reply);
            moved(handle, &reply, json!({ "text": text, "cancelled": pi::is_cancelled(&reply) })).await
        }
        Command::SessionNew(params) => {
            let request = AgentRequest::NewSession { parent_session: params.parent_session.clone() };
            let reply = handle.request(request).await?;
            moved(handle, &reply, json!({ "cancelled": pi::is_cancelled(&reply) })).await
        }
        Command::SessionSwitch(params) => {
            let (path, claim) = handle.claim_existing(&params.session_path)?;
            let session_path = path.to_string_lossy().into_owned();
            let reply = handle.request(AgentRequest::SwitchSession { session_path }).await?;
            let result = moved(handle, &reply, json!({ "cancelled": pi::is_cancelled(&reply) })).await;
            drop(claim);
            result
        }
        other => Err(AgentFailure::refused(format!("'{}' does not move pi", other.spec().name))),
    }
}

async fn read(
    handle: &PiHandle,
    request: AgentRequest,
    shape: fn(&Value) -> Result<Value, String>,
) -> Result<Executed, AgentFailure> {
    let reply = handle.request(request).await?;
    Ok(Executed::with_data(shape(&reply)?))
}

fn nothing_to_cycle() -> Executed {
    Executed::with_data(Value::Null)
}

/// pi sends no event for a changed model, so we ask what it is now.
async fn model_now(handle: &PiHandle) -> Result<Executed, AgentFailure> {
    let facts = handle.facts().await?;
    let model = facts.model.clone();
    let data = model.map(|model| json!({ "provider": model.provider, "model_id": model.model_id }));
    Ok(Executed { data, effects: vec![Effect::Facts(facts)], disposition: None })
}

async fn set_thinking_level(handle: &PiHandle, level: &str) -> Result<Executed, AgentFailure> {
    if !THINKING_LEVELS.contains(&level) {
        // A newer pi may know more words than we do.
        let known = pi::thinking_levels(&handle.request(AgentRequest::GetThinkingLevels).await?);
        if !known.iter().any(|known| known == level) {
            let error = format!("level: Must be one of: {}", THINKING_LEVELS.join(", "));
            return Err(AgentFailure::refused(error));
        }
    }
    handle.request(AgentRequest::SetThinkingLevel { level: level.to_owned() }).await?;
    level_now(handle).await
}

/// pi clamps a level the model does not have; the answer says what it became.
async fn level_now(handle: &PiHandle) -> Result<Executed, AgentFailure> {
    let facts = handle.facts().await?;
    let data = facts.thinking_level.clone().map(|level| json!({ "level": level }));
    Ok(Executed { data, effects: vec![Effect::Facts(facts)], disposition: None })
}

/// New, switch and fork change session id and file without an event.
async fn moved(handle: &PiHandle, reply: &Value, mut data: Value) -> Result<Executed, AgentFailure> {
    if pi::is_cancelled(reply) {
        return Ok(Executed::with_data(data));
    }
    let effects = where_now(handle).await?;
    if let Some(Effect::Conversation { native_session_id, native_session_file, .. }) = effects.first()
        && let Some(data) = data.as_object_mut()
    {
        data.insert("native_session_id".to_owned(), native_session_id.clone().into());
        data.insert("native_session_file".to_owned(), native_session_file.clone().into());
    }
    Ok(Executed { data: Some(data), effects, disposition: None })
}

/// The conversation pi is in, whole.
pub(in crate::driver) async fn where_now(handle: &PiHandle) -> Result<Vec<Effect>, AgentFailure> {
    let facts = handle.facts().await?;
    let messages = handle.conversation().await?;
    let conversation = Effect::Conversation {
        native_session_id: facts.native_session_id.clone().unwrap_or_default(),
        native_session_file: facts.native_session_file.clone(),
        messages,
    };
    Ok(vec![conversation, Effect::Facts(facts)])
}
