//! The canonical command that does the work of a request.

use std::borrow::Cow;

use qd_wire::command::{Direction, ImageAttachment, SessionConfig};
use qd_wire::pi_server::{
    Command, CreateSession, ImageContent, LoadSession, NavigateTree, Prompt, Steer, StreamingBehavior,
    UiResponse,
};
use serde::Serialize;

use super::PiServerRequest;

/// The harness of sessions that name none.
const HARNESS: &str = "pi";

/// Takes the fields of a canonical command, one after the other, so that nothing is built only to be written.
pub trait FieldWriter {
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T);

    /// Leaves out what is not there.
    fn maybe<T: Serialize>(&mut self, name: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.field(name, &value);
        }
    }
}

/// Writes what the canonical command that does the work of a request says, beside its name, its address and its
/// conditions.
pub fn write_parameters(request: &PiServerRequest, fields: &mut impl FieldWriter) {
    if request.command.wants_native() {
        fields.field("native", &true);
    }
    if request.command.waits_for_agent() {
        fields.field("when_idle", &true);
    }
    parameters(&request.command, fields);
}

/// The runner that the client has named for a new session.
#[allow(clippy::wildcard_enum_match_arm)] // Every other command is about a session, which has a runner.
pub fn named_runner(request: &PiServerRequest) -> Option<&str> {
    match &request.command {
        Command::CreateSession(fields) => fields.runner_id.as_deref(),
        Command::LoadSession(fields) => fields.runner_id.as_deref(),
        _ => None,
    }
}

fn parameters(command: &Command, text: &mut impl FieldWriter) {
    match command {
        Command::CreateSession(fields) => create_session(fields, text),
        Command::LoadSession(fields) => load_session(fields, text),
        Command::Prompt(fields) => prompt(fields, text),
        Command::Steer(fields) | Command::FollowUp(fields) => steer(fields, text),
        Command::SetModel(fields) => {
            text.field("provider", &fields.provider);
            text.field("model_id", &fields.model_id);
        }
        Command::CycleModel(fields) => {
            text.maybe("direction", fields.direction.map(Direction::as_str));
        }
        Command::SetThinkingLevel(fields) => text.field("level", thinking_level(&fields.level)),
        Command::SetSessionName(fields) => text.field("name", &fields.name),
        Command::Compact(fields) => text.maybe("instructions", fields.custom_instructions.as_deref()),
        Command::SetAutoCompaction(fields) | Command::SetAutoRetry(fields) => {
            text.field("enabled", &fields.enabled);
        }
        Command::Bash(fields) => {
            text.field("command", &fields.command);
            text.maybe("exclude_from_context", fields.exclude_from_context);
        }
        Command::ExportHtml(fields) => text.maybe("output_path", fields.output_path.as_deref()),
        Command::NewSession(fields) => text.maybe("parent_session", fields.parent_session.as_deref()),
        Command::SwitchSessionFile(fields) => text.field("session_path", &*as_path(&fields.session_path)),
        Command::Fork(fields) => text.field("entry_id", &fields.entry_id),
        Command::NavigateTree(fields) => navigate_tree(fields, text),
        Command::ExtensionUiResponse(fields) => {
            text.field("request_id", &fields.request_id);
            ui_response(&fields.response, text);
        }
        // The rest says no more than which session, if any.
        Command::ListSessions(_)
        | Command::DeleteSession(_)
        | Command::SwitchSession(_)
        | Command::GetMetrics(_)
        | Command::HealthCheck(_)
        | Command::ListStoredSessions(_)
        | Command::GetStartupRecovery(_)
        | Command::GetCommandHistory(_)
        | Command::GetAvailableModels(_)
        | Command::GetCommands(_)
        | Command::GetSkills(_)
        | Command::GetTools(_)
        | Command::ListSessionFiles(_)
        | Command::Abort(_)
        | Command::GetState(_)
        | Command::GetMessages(_)
        | Command::CycleThinkingLevel(_)
        | Command::AbortCompaction(_)
        | Command::AbortRetry(_)
        | Command::AbortBash(_)
        | Command::GetSessionStats(_)
        | Command::GetForkMessages(_)
        | Command::GetTree(_)
        | Command::GetLastAssistantText(_)
        | Command::GetContextUsage(_) => {}
    }
}

fn create_session(fields: &CreateSession, text: &mut impl FieldWriter) {
    let config = SessionConfig {
        harness: fields.harness.clone().unwrap_or_else(|| HARNESS.to_owned()),
        cwd: fields.cwd.clone(),
        provider: fields.provider.clone(),
        model: fields.model.clone(),
        thinking_level: fields.thinking_level.as_deref().map(thinking_level).map(str::to_owned),
        extensions: fields.extensions.clone().unwrap_or_default(),
        ..SessionConfig::default()
    };
    text.field("config", &config);
}

fn load_session(fields: &LoadSession, text: &mut impl FieldWriter) {
    let config = SessionConfig {
        harness: HARNESS.to_owned(),
        continue_session: Some(as_path(&fields.session_path).into_owned()),
        extensions: fields.extensions.clone().unwrap_or_default(),
        ..SessionConfig::default()
    };
    text.field("config", &config);
}

/// The document knows paths only. Runners take a bare word for an agent's own name of a conversation, so one is
/// written as the relative path it is here, which they refuse.
fn as_path(path: &str) -> Cow<'_, str> {
    if path.contains('/') { Cow::Borrowed(path) } else { Cow::Owned(format!("./{path}")) }
}

/// Without a word about it a prompt waits for the end of the turn, so that prompts can be sent one after the other.
fn prompt(fields: &Prompt, text: &mut impl FieldWriter) {
    text.field("message", &fields.message);
    text.maybe("images", images(fields.images.as_deref()));
    let behavior = match fields.streaming_behavior {
        Some(StreamingBehavior::Steer) => "steer",
        Some(StreamingBehavior::FollowUp) | None => "follow_up",
    };
    text.field("streaming_behavior", behavior);
}

fn steer(fields: &Steer, text: &mut impl FieldWriter) {
    text.field("message", &fields.message);
    text.maybe("images", images(fields.images.as_deref()));
}

fn images(images: Option<&[ImageContent]>) -> Option<Vec<ImageAttachment>> {
    let attachment = |image: &ImageContent| ImageAttachment {
        data: image.data.clone(),
        media_type: image.mime_type.clone(),
    };
    images.map(|images| images.iter().map(attachment).collect())
}

fn thinking_level(level: &str) -> &str {
    if level == "none" { "off" } else { level }
}

fn navigate_tree(fields: &NavigateTree, text: &mut impl FieldWriter) {
    text.field("target_id", &fields.target_id);
    let Some(options) = &fields.options else { return };
    text.maybe("summarize", options.summarize);
    text.maybe("custom_instructions", options.custom_instructions.as_deref());
    text.maybe("replace_instructions", options.replace_instructions);
    text.maybe("label", options.label.as_deref());
}

fn ui_response(response: &UiResponse, text: &mut impl FieldWriter) {
    match response {
        UiResponse::Select { value } | UiResponse::Input { value } | UiResponse::Editor { value } => {
            text.field("value", value);
        }
        UiResponse::Confirm { confirmed } => text.field("confirmed", confirmed),
        UiResponse::Interview { responses } => text.field("responses", responses),
        UiResponse::Cancelled {} => text.field("cancelled", &true),
    }
}
