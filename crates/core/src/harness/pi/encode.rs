//! Requests to lines for pi. Every command is built here, field by field.

use serde_json::{Value, json};

use super::bridge;
use crate::agent::{AgentRequest, Image, QuestionAnswer, WhenBusy};

/// One line with its `\n`. `id` comes back in the reply; an answer to a dialog has none.
pub fn encode(id: &str, request: &AgentRequest) -> Vec<u8> {
    let mut command = command(request);
    // An `id` here is the dialog's own, and must not be overwritten.
    if expects_reply(request)
        && let Some(fields) = command.as_object_mut()
    {
        fields.insert("id".to_owned(), Value::from(id));
    }
    let mut line = command.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Whether pi answers at all; it takes the answer to a dialog in silence.
fn expects_reply(request: &AgentRequest) -> bool {
    !matches!(request, AgentRequest::Answer { .. })
}

fn command(request: &AgentRequest) -> Value {
    match request {
        AgentRequest::Prompt { message, images, when_busy } => prompt(message, images, *when_busy),
        AgentRequest::Abort => json!({ "type": "abort" }),
        AgentRequest::Answer { request_id, answer } => answer_to(request_id, answer),
        AgentRequest::GetState => json!({ "type": "get_state" }),
        AgentRequest::GetEntries { since } => with_optional("get_entries", "since", since.as_deref()),
        AgentRequest::GetStats => json!({ "type": "get_session_stats" }),
        AgentRequest::GetModels => json!({ "type": "get_available_models" }),
        AgentRequest::GetThinkingLevels => json!({ "type": "get_available_thinking_levels" }),
        AgentRequest::GetCommands => json!({ "type": "get_commands" }),
        AgentRequest::GetForkPoints => json!({ "type": "get_fork_messages" }),
        AgentRequest::SetModel { provider, model_id } => {
            json!({ "type": "set_model", "provider": provider, "modelId": model_id })
        }
        AgentRequest::CycleModel => json!({ "type": "cycle_model" }),
        AgentRequest::SetThinkingLevel { level } => json!({ "type": "set_thinking_level", "level": level }),
        AgentRequest::CycleThinkingLevel => json!({ "type": "cycle_thinking_level" }),
        AgentRequest::SetAutoCompaction { enabled } => {
            json!({ "type": "set_auto_compaction", "enabled": enabled })
        }
        AgentRequest::SetAutoRetry { enabled } => json!({ "type": "set_auto_retry", "enabled": enabled }),
        AgentRequest::Compact { instructions } => {
            with_optional("compact", "customInstructions", instructions.as_deref())
        }
        AgentRequest::ClearQueue => json!({ "type": "clear_queue" }),
        AgentRequest::AbortRetry => json!({ "type": "abort_retry" }),
        AgentRequest::SetSessionName { name } => json!({ "type": "set_session_name", "name": name }),
        AgentRequest::Fork { entry_id } => json!({ "type": "fork", "entryId": entry_id }),
        AgentRequest::NewSession { parent_session } => {
            with_optional("new_session", "parentSession", parent_session.as_deref())
        }
        AgentRequest::SwitchSession { session_path } => {
            json!({ "type": "switch_session", "sessionPath": session_path })
        }
        AgentRequest::Bash { command, exclude_from_context } => {
            json!({ "type": "bash", "command": command, "excludeFromContext": exclude_from_context })
        }
        AgentRequest::AbortBash => json!({ "type": "abort_bash" }),
        AgentRequest::GetMessages => json!({ "type": "get_messages" }),
        AgentRequest::GetLastAssistantText => json!({ "type": "get_last_assistant_text" }),
        AgentRequest::ExportHtml { output_path } => {
            with_optional("export_html", "outputPath", output_path.as_deref())
        }
    }
}

fn prompt(message: &str, images: &[Image], when_busy: Option<WhenBusy>) -> Value {
    let mut command = json!({ "type": "prompt", "message": message });
    if !images.is_empty() {
        let blocks = images
            .iter()
            .map(|image| json!({ "type": "image", "data": image.data, "mimeType": image.media_type }));
        command["images"] = Value::Array(blocks.collect());
    }
    if let Some(when_busy) = when_busy {
        command["streamingBehavior"] = Value::from(match when_busy {
            WhenBusy::Steer => "steer",
            WhenBusy::FollowUp => "followUp",
        });
    }
    command
}

fn answer_to(request_id: &str, answer: &QuestionAnswer) -> Value {
    match answer {
        QuestionAnswer::Value(value) => {
            json!({ "type": "extension_ui_response", "id": request_id, "value": value })
        }
        QuestionAnswer::Confirmed(confirmed) => {
            json!({ "type": "extension_ui_response", "id": request_id, "confirmed": confirmed })
        }
        QuestionAnswer::Responses(responses) => {
            // The bridge makes an object of it again; pi carries texts only.
            let text = Value::Object(responses.clone()).to_string();
            json!({ "type": "extension_ui_response", "id": request_id, "value": text })
        }
        // Whichever field this kind of dialog reads, it finds the mark. Only for a dialog that the bridge waits for:
        // to anybody else the mark is an answer, and to a `confirm` even a yes.
        QuestionAnswer::TimedOut => json!({
            "type": "extension_ui_response", "id": request_id,
            "value": bridge::TIMED_OUT, "confirmed": bridge::TIMED_OUT,
        }),
        QuestionAnswer::Cancelled => {
            json!({ "type": "extension_ui_response", "id": request_id, "cancelled": true })
        }
    }
}

fn with_optional(kind: &str, field: &str, value: Option<&str>) -> Value {
    match value {
        Some(value) => json!({ "type": kind, field: value }),
        None => json!({ "type": kind }),
    }
}
