//! Canonical commands carried out by pi: one command, the pi requests it takes, one result.
//!
//! pi's RPC lacks some of our commands, which are then made of several requests. It sends no event for a changed
//! setting, so pi is asked afterwards how it stands.

use qd_core::agent::AgentRequest;
use qd_core::harness::pi;
use qd_core::session::AgentFacts;
use qd_wire::command::{CycleModelParams, Direction};
use qd_wire::data::{ModelInfo, ModelRef};
use qd_wire::{CodedError, Command};
use serde_json::{Value, json};

use super::{PiHandle, conversation_moves, export, queries, shell_commands};
use crate::driver::{AgentFailure, CommandEffect, ExecuteResult, ExecutedCommand, session_name};

/// Levels pi knows; it would turn any other word into `off` without saying so.
const THINKING_LEVELS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];

/// Runs one command. With `native` the data is pi's own wherever pi has an answer of its own.
pub(super) async fn execute(handle: &PiHandle, command: &Command, native: bool) -> ExecuteResult {
    match command {
        Command::SetModel(params) => {
            let (provider, model_id) = (params.provider.clone(), params.model_id.clone());
            let reply = handle.request(AgentRequest::SetModel { provider, model_id }).await?;
            let facts = handle.facts().await?;
            changed(native, reply, facts, model_of)
        }
        Command::CycleModel(params) => cycle_model(handle, params, native).await,
        Command::SetThinkingLevel(params) => set_thinking_level(handle, &params.level, native).await,
        Command::CycleThinkingLevel(_) => {
            let reply = handle.request(AgentRequest::CycleThinkingLevel).await?;
            cycled(handle, native, reply, level_of).await
        }
        Command::SetAutoCompaction(params) => {
            handle.request(AgentRequest::SetAutoCompaction { enabled: params.enabled }).await?;
            Ok(ExecutedCommand::with_effect(CommandEffect::AutoCompaction(params.enabled)))
        }
        Command::SetAutoRetry(params) => {
            handle.request(AgentRequest::SetAutoRetry { enabled: params.enabled }).await?;
            Ok(ExecutedCommand::with_effect(CommandEffect::AutoRetry(params.enabled)))
        }
        Command::Compact(params) => {
            let request = AgentRequest::Compact { instructions: params.instructions.clone() };
            let reply = handle.request(request).await?;
            let data = reply_data(native, reply, |reply| {
                Ok(json!({ "summary": reply.get("summary"), "tokens_before": reply.get("tokensBefore"),
                    "tokens_after": reply.get("estimatedTokensAfter") }))
            })?;
            Ok(ExecutedCommand::with_data(data))
        }
        Command::AbortRetry(_) => done(handle, AgentRequest::AbortRetry).await,
        Command::AbortCompaction(_) => abort_compaction(handle).await,
        Command::Bash(params) => shell_commands::run(handle, params, native).await,
        Command::AbortBash(_) => done(handle, AgentRequest::AbortBash).await,
        Command::ExportHtml(params) => export::export(handle, params.output_path.as_deref()).await,
        Command::SetSessionName(params) => {
            let name = session_name(&params.name)?;
            handle.request(AgentRequest::SetSessionName { name: name.clone() }).await?;
            Ok(ExecutedCommand::with_effect(CommandEffect::Title(name)))
        }
        Command::Fork(_) | Command::SessionNew(_) | Command::SessionSwitch(_) => {
            conversation_moves::move_to(handle, command, native).await
        }
        Command::NavigateTree(params) => conversation_moves::navigate(handle, params).await,
        other => queries::read(handle, other, native).await,
    }
}

pub(super) fn unsupported(command: &Command) -> AgentFailure {
    crate::driver::unsupported("pi", command)
}

/// pi's answer as it is, or in our words.
pub(super) fn reply_data(
    native: bool,
    reply: Value,
    canonical: impl FnOnce(&Value) -> Result<Value, CodedError>,
) -> Result<Value, CodedError> {
    if native { Ok(json!({ "native": reply })) } else { canonical(&reply) }
}

async fn done(handle: &PiHandle, request: AgentRequest) -> ExecuteResult {
    handle.request(request).await?;
    Ok(ExecutedCommand::default())
}

/// pi sends no event for a changed setting, so it was asked how it stands now.
fn changed(
    native: bool,
    reply: Value,
    facts: AgentFacts,
    canonical: fn(&AgentFacts) -> Option<Value>,
) -> ExecuteResult {
    let data = if native { Some(json!({ "native": reply })) } else { canonical(&facts) };
    Ok(ExecutedCommand { data, effects: vec![CommandEffect::Facts(facts)], ..ExecutedCommand::default() })
}

/// The same for a cycle, whose answer is null when there is nothing to cycle through.
async fn cycled(
    handle: &PiHandle,
    native: bool,
    reply: Value,
    canonical: fn(&AgentFacts) -> Option<Value>,
) -> ExecuteResult {
    if reply.is_null() {
        return Ok(ExecutedCommand::with_data(reply_data(native, reply, |null| Ok(null.clone()))?));
    }
    let facts = handle.facts().await?;
    changed(native, reply, facts, canonical)
}

fn model_of(facts: &AgentFacts) -> Option<Value> {
    let model = facts.model.as_ref()?;
    Some(json!({ "provider": model.provider, "model_id": model.model_id }))
}

/// pi clamps a level the model does not have; the answer says what it became.
fn level_of(facts: &AgentFacts) -> Option<Value> {
    facts.thinking_level.as_ref().map(|level| json!({ "level": level }))
}

async fn cycle_model(handle: &PiHandle, params: &CycleModelParams, native: bool) -> ExecuteResult {
    if params.direction != Some(Direction::Backward) {
        let reply = handle.request(AgentRequest::CycleModel).await?;
        return cycled(handle, native, reply, model_of).await;
    }
    // pi's RPC only goes forward.
    let models = handle.request(AgentRequest::GetModels).await?;
    let models = pi::models(&models).models;
    let now = handle.facts().await?.model;
    let Some(previous) = previous(&models, now.as_ref()) else {
        return cycled(handle, native, Value::Null, model_of).await;
    };
    let (provider, model_id) = (previous.provider.clone(), previous.model_id.clone());
    let model = handle.request(AgentRequest::SetModel { provider, model_id }).await?;
    let facts = handle.facts().await?;
    let reply = json!({ "model": model, "thinkingLevel": facts.thinking_level, "isScoped": false });
    changed(native, reply, facts, model_of)
}

/// The model before this one, around the end; none where there is no other. pi takes an unknown one for the first.
fn previous<'a>(models: &'a [ModelInfo], now: Option<&ModelRef>) -> Option<&'a ModelInfo> {
    if models.len() < 2 {
        return None;
    }
    let is_now = |model: &ModelInfo| {
        now.is_some_and(|now| now.provider == model.provider && now.model_id == model.model_id)
    };
    let at = models.iter().position(is_now).unwrap_or(0);
    models.get((at + models.len() - 1) % models.len())
}

async fn set_thinking_level(handle: &PiHandle, level: &str, native: bool) -> ExecuteResult {
    if !THINKING_LEVELS.contains(&level) {
        // A newer pi may know more words than we do.
        let known = pi::thinking_levels(&handle.request(AgentRequest::GetThinkingLevels).await?);
        if !known.iter().any(|known| known == level) {
            refuse!(InvalidRequest, "level: Must be one of: {}", THINKING_LEVELS.join(", "));
        }
    }
    let reply = handle.request(AgentRequest::SetThinkingLevel { level: level.to_owned() }).await?;
    let facts = handle.facts().await?;
    changed(native, reply, facts, level_of)
}

/// pi's RPC has no such command; its `abort` ends a compaction, and everything else too. So without a compaction
/// nothing is done.
async fn abort_compaction(handle: &PiHandle) -> ExecuteResult {
    let state = pi::state(&handle.request(AgentRequest::GetState).await?);
    if state.is_compacting { done(handle, AgentRequest::Abort).await } else { Ok(ExecutedCommand::default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_cycled_backward_around_the_end() {
        let model = |id: &str| ModelInfo {
            provider: "p".into(),
            model_id: id.into(),
            name: None,
            reasoning: None,
            context_window: None,
            max_tokens: None,
            thinking_levels: None,
        };
        let models = [model("a"), model("b"), model("c")];
        let before = |id: &str| {
            let now = ModelRef { provider: "p".into(), model_id: id.into() };
            previous(&models, Some(&now)).map(|model| model.model_id.as_str())
        };
        assert_eq!((before("b"), before("a"), before("?")), (Some("a"), Some("c"), Some("c")));
        assert_eq!(previous(&models[..1], None), None);
    }
}
