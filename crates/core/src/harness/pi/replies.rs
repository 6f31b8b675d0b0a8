//! The data of pi's replies to the data of ours. Whatever pi leaves out is absent or zero, never an error.
//!
//! A reply is the answer to one request, so a missing field must not fail the command it is for. Older versions of pi
//! leave out what newer ones say.

use qd_wire::data::{
    CommandsData, ForkPoint, ForkPointsData, ModelInfo, ModelRef, ModelsData, QueueState, SlashCommand,
    StatsData, TokenStats,
};
use qd_wire::message::Role;
use serde_json::{Value, json};

use super::bridge::PRIVATE_COMMANDS;
use super::other_events::whole;

/// How pi stands (`get_state`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PiState {
    pub model: Option<ModelRef>,
    pub thinking_level: Option<String>,
    pub is_streaming: bool,
    /// Also while it summarises a branch it leaves.
    pub is_compacting: bool,
    pub session_id: Option<String>,
    pub session_file: Option<String>,
    pub session_name: Option<String>,
    pub auto_compaction: Option<bool>,
    /// Inputs in its queue.
    pub waiting: u64,
}

pub fn state(data: &Value) -> PiState {
    PiState {
        model: data.get("model").and_then(model),
        thinking_level: text(data, "thinkingLevel"),
        is_streaming: flag(data, "isStreaming").unwrap_or(false),
        is_compacting: flag(data, "isCompacting").unwrap_or(false),
        session_id: text(data, "sessionId"),
        session_file: text(data, "sessionFile"),
        session_name: text(data, "sessionName"),
        auto_compaction: flag(data, "autoCompactionEnabled"),
        waiting: data.get("pendingMessageCount").and_then(Value::as_u64).unwrap_or(0),
    }
}

/// The model of a `set_model` reply (the model itself) or of a `cycle_model` reply (in its field `model`).
pub fn model(data: &Value) -> Option<ModelRef> {
    let model = data.get("model").filter(|inner| inner.is_object()).unwrap_or(data);
    Some(ModelRef { provider: text(model, "provider")?, model_id: text(model, "id")? })
}

/// The level of a `cycle_thinking_level` or `cycle_model` reply.
pub fn thinking_level(data: &Value) -> Option<String> {
    text(data, "level").or_else(|| text(data, "thinkingLevel"))
}

/// `get_available_thinking_levels`.
pub fn thinking_levels(data: &Value) -> Vec<String> {
    list(data, "levels").filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `get_session_stats`.
pub fn stats(data: &Value) -> StatsData {
    let tokens = data.get("tokens").unwrap_or(&Value::Null);
    let context = data.get("contextUsage").unwrap_or(&Value::Null);
    StatsData {
        user_messages: count(data, "userMessages"),
        assistant_messages: count(data, "assistantMessages"),
        tool_calls: count(data, "toolCalls"),
        tool_results: count(data, "toolResults"),
        total_messages: count(data, "totalMessages"),
        tokens: TokenStats {
            input: count(tokens, "input"),
            output: count(tokens, "output"),
            cache_read: count(tokens, "cacheRead"),
            cache_write: count(tokens, "cacheWrite"),
            total: count(tokens, "total"),
        },
        cost_usd: data.get("cost").and_then(Value::as_f64).unwrap_or(0.0),
        context_tokens: number(context, "tokens"),
        context_window: number(context, "contextWindow"),
    }
}

/// `get_available_models`.
pub fn models(data: &Value) -> ModelsData {
    let models = list(data, "models").filter_map(|native| {
        let ModelRef { provider, model_id } = model(native)?;
        Some(ModelInfo {
            provider,
            model_id,
            name: text(native, "name"),
            reasoning: flag(native, "reasoning"),
            context_window: number(native, "contextWindow"),
            max_tokens: number(native, "maxTokens"),
            thinking_levels: Some(levels_of(native)),
        })
    });
    ModelsData { models: models.collect() }
}

/// The levels pi has, in its order.
const LEVELS: [&str; 7] = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The levels a model takes, as pi finds them: one that is mapped to null is none of them, and the highest two must be
/// mapped to something. Without reasoning there is nothing to choose.
fn levels_of(native: &Value) -> Vec<String> {
    if flag(native, "reasoning") != Some(true) {
        return vec![LEVELS[0].to_owned()];
    }
    let takes = |level: &&&str| {
        let mapped = native.get("thinkingLevelMap").and_then(|map| map.get(**level));
        mapped.map_or(!matches!(**level, "xhigh" | "max"), |mapped| !mapped.is_null())
    };
    LEVELS.iter().filter(takes).map(|level| (*level).to_owned()).collect()
}

/// Takes out what is not for people, and says beside each command where it is from, as older versions of pi did.
pub fn native_commands(data: &mut Value) {
    let Some(commands) = data.get_mut("commands").and_then(Value::as_array_mut) else { return };
    commands.retain(|command| !is_private(command));
    for command in commands {
        let path = command.pointer("/sourceInfo/path").filter(|path| path.is_string()).cloned();
        if let (Some(path), Some(command)) = (path, command.as_object_mut()) {
            command.entry("path").or_insert(path);
        }
    }
}

fn is_private(command: &Value) -> bool {
    let name = command.get("name").and_then(Value::as_str).unwrap_or_default();
    PRIVATE_COMMANDS.contains(&name)
}

/// The skills among the commands (`get_commands`).
pub fn skills(data: &Value) -> Value {
    let is_skill = |command: &&Value| command.get("source").and_then(Value::as_str) == Some("skill");
    let skills = list(data, "commands").filter(is_skill).filter_map(|native| {
        let name = text(native, "name")?;
        let info = native.get("sourceInfo").unwrap_or(&Value::Null);
        Some(json!({
            "name": name.strip_prefix("skill:").unwrap_or(&name),
            "description": text(native, "description").unwrap_or_default(),
            "file_path": text(info, "path").unwrap_or_default(),
            "source": text(info, "scope").or_else(|| text(info, "source")).unwrap_or_default(),
        }))
    });
    json!({ "skills": skills.collect::<Vec<_>>() })
}

/// `get_last_assistant_text`; pi leaves the field out where there is none.
pub fn last_assistant_text(data: &Value) -> Option<String> {
    text(data, "text")
}

/// How full the context is (in `get_session_stats`), in our words; null where pi cannot say.
pub fn context_usage(data: &Value) -> Value {
    let Some(usage) = data.get("contextUsage").filter(|usage| usage.is_object()) else { return Value::Null };
    json!({
        "tokens": usage.get("tokens"),
        "context_window": usage.get("contextWindow"),
        "percent": usage.get("percent"),
    })
}

/// `get_commands`.
pub fn commands(data: &Value) -> CommandsData {
    let commands = list(data, "commands").filter(|command| !is_private(command)).filter_map(|native| {
        Some(SlashCommand {
            name: text(native, "name")?,
            description: text(native, "description"),
            source: text(native, "source"),
        })
    });
    CommandsData { commands: commands.collect() }
}

/// `get_fork_messages`: pi forks at messages of the user only.
pub fn fork_points(data: &Value) -> ForkPointsData {
    let points = list(data, "messages").filter_map(|native| {
        let preview = text(native, "text").unwrap_or_default().chars().take(PREVIEW_CHARS_MAX).collect();
        Some(ForkPoint { entry_id: text(native, "entryId")?, role: Role::User, preview })
    });
    ForkPointsData { fork_points: points.collect() }
}

const PREVIEW_CHARS_MAX: usize = 200;

/// The text of the message a `fork` went back before, for the person to edit.
pub fn fork_text(data: &Value) -> Option<String> {
    text(data, "text")
}

/// Whether an extension refused a `fork`, `new_session` or `switch_session`.
pub fn is_cancelled(data: &Value) -> bool {
    flag(data, "cancelled").unwrap_or(false)
}

/// What a `clear_queue` reply says was thrown away.
pub fn cleared_texts(data: &Value) -> Vec<String> {
    let QueueState { mut steering, follow_up } = cleared_queue(data);
    steering.extend(follow_up);
    steering
}

/// The same, as it was in the queue.
pub fn cleared_queue(data: &Value) -> QueueState {
    let texts = |field: &str| list(data, field).filter_map(Value::as_str).map(str::to_owned).collect();
    QueueState { steering: texts("steering"), follow_up: texts("followUp") }
}

fn list<'a>(data: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    data.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text(data: &Value, field: &str) -> Option<String> {
    data.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn flag(data: &Value, field: &str) -> Option<bool> {
    data.get(field).and_then(Value::as_bool)
}

fn number(data: &Value, field: &str) -> Option<u64> {
    data.get(field).and_then(Value::as_f64).map(whole)
}

fn count(data: &Value, field: &str) -> u64 {
    number(data, field).unwrap_or(0)
}
