//! Canonical results in the words of the document: the data of every command, the texts of errors, sessions,
//! messages and questions in pi's form.

mod error;
mod lists;
pub(super) mod message;
mod runner_answer;
mod session;
mod work;

use qd_wire::data::Partial;
use qd_wire::pi_server::{Command, FaceEvent};
use qd_wire::{CodedError, ErrorCode, InputRequest, Message};
use serde_json::Value;
use serde_json::value::RawValue;

use super::request::PiServerRequest;
pub use error::error;
use runner_answer::RunnerAnswer;
pub use session::{bash_breaker, breakers, health, session_info, stored_info, summary_info};

/// The `data` of a response as JSON text, from what the canonical command answered: `{"native": …}` with the
/// agent's own words, or canonical data. `Ok(None)` for commands that answer nothing.
pub fn data(
    request: &PiServerRequest,
    canonical: Option<&RawValue>,
) -> Result<Option<String>, UnreadableAnswer> {
    let text = canonical.map_or("null", RawValue::get);
    let said =
        if request.command.wants_native() { RunnerAnswer::of(text) } else { RunnerAnswer::canonical(text) };
    let shaped = shape(request, &said);
    shaped.map_err(|source| UnreadableAnswer { command: request.spec.canonical, source })
}

/// A runner answered in a form that this version does not know.
#[derive(Debug, thiserror::Error)]
#[error("The answer to '{command}' cannot be read: {source}. Update hub and runner to the same version.")]
pub struct UnreadableAnswer {
    command: &'static str,
    source: serde_json::Error,
}

impl UnreadableAnswer {
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::Internal
    }
}

impl From<UnreadableAnswer> for CodedError {
    fn from(error: UnreadableAnswer) -> Self {
        error.code().with(error.to_string())
    }
}

fn shape(request: &PiServerRequest, said: &RunnerAnswer<'_>) -> Result<Option<String>, serde_json::Error> {
    let text = match &request.command {
        Command::ListSessions(_) => session::list(said)?,
        Command::CreateSession(_) | Command::LoadSession(_) => session::created(said)?,
        Command::DeleteSession(_) => r#"{"deleted":true}"#.to_owned(),
        Command::SwitchSession(_) => session::switched(said)?,
        Command::GetState(_) => session::state(said)?,
        Command::GetMetrics(_) => session::metrics(said)?,
        Command::HealthCheck(_) => session::health_of_one(said)?,
        Command::ListStoredSessions(_) => session::stored(said)?,
        // The hub makes these itself.
        Command::GetStartupRecovery(_) | Command::GetCommandHistory(_) => said.text().to_owned(),
        Command::GetAvailableModels(_) => lists::models(said)?,
        Command::GetCommands(_) => lists::commands(said)?,
        Command::GetSkills(_) => lists::skills(said)?,
        Command::GetTools(_) => lists::tools(said)?,
        Command::ListSessionFiles(_) => lists::files(said)?,
        Command::GetMessages(_) => lists::messages(said)?,
        Command::GetForkMessages(_) => lists::fork_messages(said)?,
        Command::GetTree(_) => lists::tree(said)?,
        Command::SetModel(_) => work::model_set(said)?,
        Command::CycleModel(_) => work::model_cycled(said)?,
        Command::CycleThinkingLevel(_) => work::level_cycled(said)?,
        Command::Compact(_) => work::compacted(said)?,
        Command::Bash(_) => work::bash(said)?,
        Command::GetSessionStats(_) => work::stats(request.session_id.as_deref().unwrap_or_default(), said)?,
        Command::ExportHtml(_) => work::exported(said)?,
        Command::NewSession(_) | Command::SwitchSessionFile(_) => work::moved(said)?,
        Command::Fork(_) => work::forked(said)?,
        Command::NavigateTree(_) => work::navigated(said)?,
        Command::GetLastAssistantText(_) => work::last_text(said)?,
        Command::GetContextUsage(_) => work::context_usage(said)?,
        Command::Prompt(_)
        | Command::Steer(_)
        | Command::FollowUp(_)
        | Command::Abort(_)
        | Command::SetThinkingLevel(_)
        | Command::SetSessionName(_)
        | Command::AbortCompaction(_)
        | Command::SetAutoCompaction(_)
        | Command::SetAutoRetry(_)
        | Command::AbortRetry(_)
        | Command::AbortBash(_)
        | Command::ExtensionUiResponse(_) => return Ok(None),
    };
    Ok(Some(text))
}

/// Canonical messages in pi's form, for harnesses that are not pi.
pub fn messages(canonical: &[Message]) -> Vec<Value> {
    canonical.iter().map(message::of_message).collect()
}

/// The answer being generated so far, in pi's form; null when there is none.
pub fn partial_message(partial: &Partial) -> Value {
    partial.message.as_ref().map_or(Value::Null, message::of_partial)
}

/// A question as clients get it.
pub fn ui_request(request: &InputRequest) -> FaceEvent {
    let (mut options, mut message, mut placeholder, mut prefill, mut questions) =
        (None, None, None, None, None);
    let method = match request {
        InputRequest::Select { options: choices, .. } => {
            options = Some(choices.clone());
            "select"
        }
        InputRequest::Confirm { message: text, .. } => {
            message = Some(text.clone());
            "confirm"
        }
        InputRequest::Input { placeholder: text, .. } => {
            placeholder.clone_from(text);
            "input"
        }
        InputRequest::Editor { prefill: text, .. } => {
            prefill.clone_from(text);
            "editor"
        }
        InputRequest::Interview { questions: asked, .. } => {
            questions = Some(asked.clone());
            "interview"
        }
        // The document has no gates; a gate is a question with yes or no.
        InputRequest::Permission { description, .. } => {
            message = Some(description.clone().unwrap_or_default());
            "confirm"
        }
    };
    FaceEvent::ExtensionUiRequest {
        request_id: request.request_id().to_owned(),
        method: method.to_owned(),
        title: request.title().to_owned(),
        options,
        message,
        placeholder,
        prefill,
        questions,
        timeout: request.timeout_ms(),
    }
}
