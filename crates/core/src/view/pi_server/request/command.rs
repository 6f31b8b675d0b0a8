//! The fields of each command.
//!
//! Each error names its field in the words of the original, because clients compare them. All errors of a command are
//! collected, as the original does, and not only the first.

use qd_wire::command::Direction;
use qd_wire::pi_server::*;
use serde_json::Value;

use super::fields::{Fields, is_longer_than, whole_number};

/// The longest message to an agent, in characters.
pub(super) const MESSAGE_CHARS_MAX: usize = 200_000;
/// The longest shell command.
const BASH_CHARS_MAX: usize = 20_000;
/// The longest path.
const PATH_CHARS_MAX: usize = 4096;
/// The most entries of a history at once.
const HISTORY_MAX: u64 = 500;
/// Levels of thinking; `none` is the original's word for `off`.
const THINKING_LEVELS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh", "none"];
const THINKING_LEVELS_TEXT: &str = "Must be one of: off, minimal, low, medium, high, xhigh";

/// Reads the command `name`. What is returned counts only when no error was noted.
pub(super) fn read(name: &str, fields: &mut Fields) -> Option<Command> {
    // First, because these read `sessionId` in their own way, or not at all.
    if let Some(command) = server_command(name, fields) {
        return Some(command);
    }
    let session_id = match fields.take("sessionId") {
        Some(Value::String(session_id)) => session_id,
        // Noted with the envelope already.
        _ => String::new(),
    };
    if let Some(command) = plain_command(name, &session_id) {
        return Some(command);
    }
    Some(match name {
        "prompt" => Command::Prompt(prompt(session_id, fields)),
        "steer" => Command::Steer(steer(session_id, fields)),
        "follow_up" => Command::FollowUp(steer(session_id, fields)),
        "set_model" => {
            let (provider, model_id) = (fields.required_text("provider"), fields.required_text("modelId"));
            Command::SetModel(SetModel { session_id, provider, model_id })
        }
        "cycle_model" => Command::CycleModel(CycleModel { session_id, direction: direction(fields) }),
        "set_thinking_level" => {
            let level = fields.take("level").and_then(thinking_level).unwrap_or_default();
            if level.is_empty() {
                fields.error("level", THINKING_LEVELS_TEXT);
            }
            Command::SetThinkingLevel(SetThinkingLevel { session_id, level })
        }
        "set_session_name" => {
            Command::SetSessionName(SetSessionName { session_id, name: session_name(fields) })
        }
        "compact" => {
            let custom_instructions = fields.optional_text("customInstructions");
            Command::Compact(Compact { session_id, custom_instructions })
        }
        "set_auto_compaction" => {
            Command::SetAutoCompaction(SetEnabled { session_id, enabled: fields.required_flag("enabled") })
        }
        "set_auto_retry" => {
            Command::SetAutoRetry(SetEnabled { session_id, enabled: fields.required_flag("enabled") })
        }
        "bash" => {
            let command = fields.required_text_within("command", BASH_CHARS_MAX);
            let exclude_from_context = fields.optional_flag("excludeFromContext");
            Command::Bash(Bash { session_id, command, exclude_from_context })
        }
        "export_html" => {
            Command::ExportHtml(ExportHtml { session_id, output_path: fields.optional_text("outputPath") })
        }
        "new_session" => Command::NewSession(NewSession {
            session_id,
            parent_session: fields.optional_text("parentSession"),
        }),
        "switch_session_file" => {
            Command::SwitchSessionFile(SwitchSessionFile { session_id, session_path: session_path(fields) })
        }
        "fork" => Command::Fork(Fork { session_id, entry_id: fields.required_text("entryId") }),
        "navigate_tree" => Command::NavigateTree(navigate_tree(session_id, fields)),
        "extension_ui_response" => Command::ExtensionUiResponse(super::ui::ui_response(session_id, fields)?),
        _ => return None,
    })
}

/// Commands that have no session, or may do without.
fn server_command(name: &str, fields: &mut Fields) -> Option<Command> {
    Some(match name {
        "list_sessions" => Command::ListSessions(NoFields {}),
        "create_session" => Command::CreateSession(create_session(fields)),
        "delete_session" => Command::DeleteSession(SessionOnly { session_id: named_session(fields) }),
        "switch_session" => {
            let session_id = named_session(fields);
            Command::SwitchSession(SwitchSession { session_id, resync: fields.optional_flag("resync") })
        }
        "get_metrics" => Command::GetMetrics(NoFields {}),
        "health_check" => Command::HealthCheck(NoFields {}),
        "list_stored_sessions" => Command::ListStoredSessions(NoFields {}),
        "load_session" => {
            let session_path = session_path(fields);
            let session_id = fields.optional_name("sessionId");
            let runner_id = fields.optional_name("runnerId");
            let extensions = fields.optional_texts("extensions");
            Command::LoadSession(LoadSession { session_path, session_id, runner_id, extensions })
        }
        "get_startup_recovery" => Command::GetStartupRecovery(NoFields {}),
        "get_command_history" => Command::GetCommandHistory(command_history(fields)),
        _ => return None,
    })
}

/// Commands that say no more than which session.
fn plain_command(name: &str, session_id: &str) -> Option<Command> {
    let session = || SessionOnly { session_id: session_id.to_owned() };
    Some(match name {
        "get_available_models" => Command::GetAvailableModels(session()),
        "get_commands" => Command::GetCommands(session()),
        "get_skills" => Command::GetSkills(session()),
        "get_tools" => Command::GetTools(session()),
        "list_session_files" => Command::ListSessionFiles(session()),
        "abort" => Command::Abort(session()),
        "get_state" => Command::GetState(session()),
        "get_messages" => Command::GetMessages(session()),
        "cycle_thinking_level" => Command::CycleThinkingLevel(session()),
        "abort_compaction" => Command::AbortCompaction(session()),
        "abort_retry" => Command::AbortRetry(session()),
        "abort_bash" => Command::AbortBash(session()),
        "get_session_stats" => Command::GetSessionStats(session()),
        "get_fork_messages" => Command::GetForkMessages(session()),
        "get_tree" => Command::GetTree(session()),
        "get_last_assistant_text" => Command::GetLastAssistantText(session()),
        "get_context_usage" => Command::GetContextUsage(session()),
        _ => return None,
    })
}

/// What the name and the directory must look like is checked where the session is made.
fn create_session(fields: &mut Fields) -> CreateSession {
    let session_id = fields.optional_name("sessionId");
    let cwd = fields.optional_text("cwd");
    let runner_id = fields.optional_name("runnerId");
    let harness = fields.optional_name("harness");
    let provider = fields.optional_name("provider");
    let model = fields.optional_name("model");
    let thinking_level = fields.take("thinkingLevel").and_then(|level| {
        let level = thinking_level(level);
        if level.is_none() {
            fields.error("thinkingLevel", THINKING_LEVELS_TEXT);
        }
        level
    });
    let extensions = fields.optional_texts("extensions");
    CreateSession { session_id, cwd, runner_id, harness, provider, model, thinking_level, extensions }
}

fn named_session(fields: &mut Fields) -> String {
    match fields.take("sessionId") {
        Some(Value::String(name)) if is_longer_than(&name, NAME_CHARS_MAX) => {
            fields.error("sessionId", format_args!("Too long (max {NAME_CHARS_MAX} chars)"));
            name
        }
        Some(Value::String(name)) if !name.trim().is_empty() => name,
        _ => {
            fields.error("sessionId", "Required non-empty string");
            String::new()
        }
    }
}

fn command_history(fields: &mut Fields) -> GetCommandHistory {
    let session_id_filter = fields.optional_name("sessionIdFilter");
    let command_id = fields.optional_name("commandId");
    if command_id.as_deref().is_some_and(|id| is_longer_than(id, NAME_CHARS_MAX)) {
        fields.error("commandId", format_args!("Too long (max {NAME_CHARS_MAX} chars)"));
    }
    let from_timestamp = timestamp(fields, "fromTimestamp");
    let to_timestamp = timestamp(fields, "toTimestamp");
    if let (Some(from), Some(to)) = (from_timestamp, to_timestamp)
        && from > to
    {
        fields.error("fromTimestamp", "Must be less than or equal to toTimestamp");
    }
    let limit = fields.take("limit").and_then(|value| match whole_number(&value) {
        Some(limit) if (1..=HISTORY_MAX).contains(&limit) => Some(limit),
        Some(_) => {
            fields.error("limit", format_args!("Must be between 1 and {HISTORY_MAX}"));
            None
        }
        // `-1` is a whole number too, only outside the range, and the client is told which of the two is wrong.
        None if value.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            fields.error("limit", format_args!("Must be between 1 and {HISTORY_MAX}"));
            None
        }
        None => {
            fields.error("limit", "Must be an integer if provided");
            None
        }
    });
    GetCommandHistory { session_id_filter, command_id, from_timestamp, to_timestamp, limit }
}

fn timestamp(fields: &mut Fields, field: &str) -> Option<i64> {
    let time = whole_number(&fields.take(field)?);
    if time.is_none() {
        fields.error(field, "Must be a non-negative integer timestamp");
    }
    time.map(|time| i64::try_from(time).unwrap_or(i64::MAX))
}

fn prompt(session_id: String, fields: &mut Fields) -> Prompt {
    let Steer { session_id, message, images } = steer(session_id, fields);
    let streaming_behavior = fields.take("streamingBehavior").and_then(|value| match value.as_str() {
        Some("steer") => Some(StreamingBehavior::Steer),
        Some("followUp") => Some(StreamingBehavior::FollowUp),
        _ => {
            fields.error("streamingBehavior", "Must be 'steer' or 'followUp'");
            None
        }
    });
    Prompt { session_id, message, images, streaming_behavior }
}

fn steer(session_id: String, fields: &mut Fields) -> Steer {
    let message = fields.required_text_within("message", MESSAGE_CHARS_MAX);
    Steer { session_id, message, images: images(fields) }
}

fn images(fields: &mut Fields) -> Option<Vec<ImageContent>> {
    let Value::Array(items) = fields.take("images")? else {
        fields.error("images", "Must be an array of images");
        return None;
    };
    let mut images = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        match image(item) {
            Ok(image) => images.push(image),
            Err(error) => {
                // The first is enough: a client that gets one wrong gets all of them wrong.
                fields.error(&format!("images[{position}]"), error);
                break;
            }
        }
    }
    Some(images)
}

/// What is wrong with an image.
#[derive(Debug, thiserror::Error)]
enum ImageError {
    #[error("Must be an object {{ type: 'image', data, mimeType }}")]
    NotAnObject,
    #[error("Must have the type 'image'")]
    OtherType,
    #[error("Must have base64 'data'")]
    NoData,
    #[error("Must have a 'mimeType' as 'image/png'")]
    NoMimeType,
}

fn image(item: Value) -> Result<ImageContent, ImageError> {
    let Value::Object(mut object) = item else {
        return Err(ImageError::NotAnObject);
    };
    if object.get("type").is_some_and(|kind| kind != "image") {
        return Err(ImageError::OtherType);
    }
    let data = match object.remove("data") {
        Some(Value::String(data)) if is_base64(&data) => data,
        _ => return Err(ImageError::NoData),
    };
    let mime_type = match object.remove("mimeType") {
        Some(Value::String(mime_type)) if mime_type.starts_with("image/") => mime_type,
        _ => return Err(ImageError::NoMimeType),
    };
    Ok(ImageContent { kind: "image".to_owned(), data, mime_type })
}

/// Looks at the letters only: decoding would cost as much memory again, and only the agent needs the data.
fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !body.is_empty() && data.len() - body.len() <= 2 && body.bytes().all(is_letter)
}

fn direction(fields: &mut Fields) -> Option<Direction> {
    let direction = fields.take("direction")?.as_str().and_then(Direction::parse);
    if direction.is_none() {
        fields.error("direction", "Must be 'forward' or 'backward'");
    }
    direction
}

fn thinking_level(value: Value) -> Option<String> {
    let Value::String(level) = value else { return None };
    THINKING_LEVELS.contains(&level.as_str()).then_some(level)
}

fn session_name(fields: &mut Fields) -> String {
    let name = fields.required_text_within("name", NAME_CHARS_MAX);
    if !is_longer_than(&name, NAME_CHARS_MAX) && name.chars().any(|letter| letter.is_ascii_control()) {
        fields.error("name", "Must not contain control characters");
    }
    name
}

/// What can be said of a path without looking at the disk.
/// It is a first line of defence; the runner resolves the path and checks where it leads.
fn session_path(fields: &mut Fields) -> String {
    let path = fields.required_text("sessionPath");
    if is_longer_than(&path, PATH_CHARS_MAX) {
        fields.error("sessionPath", format_args!("sessionPath too long (max {PATH_CHARS_MAX} chars)"));
    } else if path.contains("..") || path.contains('\0') || path.starts_with('~') {
        fields.error("sessionPath", "sessionPath contains potentially dangerous path components");
    }
    path
}

fn navigate_tree(session_id: String, fields: &mut Fields) -> NavigateTree {
    let target_id = fields.required_text("targetId");
    let options = match fields.take("options") {
        None => None,
        Some(Value::Object(object)) => Some(fields.within("options.", object, |options| NavigateOptions {
            summarize: options.optional_flag("summarize"),
            custom_instructions: options.optional_text("customInstructions"),
            replace_instructions: options.optional_flag("replaceInstructions"),
            label: options.optional_text("label"),
        })),
        Some(_) => {
            fields.error("options", "Must be an object if provided");
            None
        }
    };
    NavigateTree { session_id, target_id, options }
}
