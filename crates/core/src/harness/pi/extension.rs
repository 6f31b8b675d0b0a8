//! What pi's extensions want: dialogs, notifications, status lines, and the reports of their failures.
//!
//! A hook that fails on every delta is reported once and counted, and the texts of failures are cut.

use qd_wire::data::ModelRef;
use qd_wire::event::{AgentPhase, NotifyLevel};
use qd_wire::{InputRequest, JsonObject};
use serde::Deserialize;
use serde_json::Value;

use super::bridge::{self, BridgeMessage};
use super::decode::{LineResult, PiOutput, UNKNOWN_FIELDS_BYTES_MAX, text_of};
use super::other_events::whole;
use crate::agent::AgentEvent;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UiRequest {
    id: String,
    method: String,
    title: String,
    options: Vec<Value>,
    message: String,
    placeholder: Option<String>,
    prefill: Option<String>,
    timeout: Option<f64>,
    notify_type: Option<String>,
    status_key: String,
    status_text: Option<String>,
}

pub(super) fn ui_request(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    let request: UiRequest = serde_json::from_slice(line)?;
    // Our extension has no channel of its own: it speaks through status lines under private keys, which are filtered
    // out here before anybody sees them.
    if request.method == "setStatus"
        && let Some(word) =
            request.status_text.as_deref().and_then(|text| bridge::word(&request.status_key, text))
    {
        out.push(PiOutput::Private(word));
        return Ok(());
    }
    let event = match request.method.as_str() {
        "select" | "confirm" | "input" | "editor" => {
            dialog(request, out);
            return Ok(());
        }
        "notify" => {
            // An unknown level is no reason to lose the message.
            let level = request.notify_type.as_deref().and_then(NotifyLevel::parse);
            let level = level.unwrap_or(NotifyLevel::Info);
            AgentEvent::Notify { level, message: request.message }
        }
        "setStatus" => match status(&request.status_key, request.status_text) {
            Some(event) => event,
            None => {
                out.push(PiOutput::Private(BridgeMessage::Unreadable { key: request.status_key }));
                return Ok(());
            }
        },
        method => unknown_method(method, line)?,
    };
    out.push(PiOutput::Event(event));
    Ok(())
}

/// A question. What the bridge has to say of it comes first, so that it is known when somebody answers.
fn dialog(request: UiRequest, out: &mut Vec<PiOutput>) {
    let UiRequest { id: request_id, mut title, .. } = request;
    let is_marked = bridge::take_mark(&mut title);
    let timeout = request.timeout.map(whole);
    let prefill = request.prefill;
    let interview = match (request.method.as_str(), prefill.as_deref()) {
        ("editor", Some(prefill)) => bridge::interview(&request_id, &title, prefill),
        _ => None,
    };
    if is_marked || interview.is_some() {
        out.push(PiOutput::Private(BridgeMessage::Asks { request_id: request_id.clone() }));
    }
    let question = match (request.method.as_str(), interview) {
        (_, Some(Ok(interview))) => interview,
        (_, Some(Err(error))) => {
            let message =
                format!("An extension's interview '{title}' cannot be read, so it was cancelled: {error}");
            out.push(PiOutput::Private(BridgeMessage::UnreadableInterview { request_id }));
            let level = NotifyLevel::Error;
            return out.push(PiOutput::Event(AgentEvent::Notify { level, message }));
        }
        ("select", _) => {
            let options = request.options.into_iter().map(text_of).collect();
            InputRequest::Select { request_id, title, options, timeout }
        }
        ("confirm", _) => InputRequest::Confirm { request_id, title, message: request.message, timeout },
        ("input", _) => InputRequest::Input { request_id, title, placeholder: request.placeholder, timeout },
        _ => InputRequest::Editor { request_id, title, prefill, timeout },
    };
    out.push(PiOutput::Event(AgentEvent::InputNeeded(question)));
}

/// A status line. Those of the bridge are signals and never shown: none for one that cannot be read.
fn status(key: &str, text: Option<String>) -> Option<AgentEvent> {
    match key {
        "qd_phase" | "octo_phase" | "oqto_phase" => match text.as_deref().map(phase_hint) {
            None => Some(AgentEvent::PhaseHint { phase: None, detail: None }),
            Some(hint) => hint.map(|(phase, detail)| AgentEvent::PhaseHint { phase: Some(phase), detail }),
        },
        "qd_model" => {
            let ModelRef { provider, model_id } = serde_json::from_str(text.as_deref()?).ok()?;
            Some(AgentEvent::ModelChanged { provider, model_id })
        }
        private if bridge::is_private_key(private) => None,
        key => Some(AgentEvent::Status { key: key.to_owned(), text }),
    }
}

/// `phase[:detail]`; none for a word that is no phase.
fn phase_hint(text: &str) -> Option<(AgentPhase, Option<String>)> {
    let (word, detail) = match text.split_once(':') {
        Some((word, detail)) => (word, Some(detail.to_owned()).filter(|detail| !detail.is_empty())),
        None => (text, None),
    };
    Some((AgentPhase::parse(word)?, detail))
}

/// `setWidget` becomes `x-pi.set_widget`. The id goes along only where somebody might have to answer.
fn unknown_method(method: &str, line: &[u8]) -> Result<AgentEvent, serde_json::Error> {
    let event = format!("x-pi.{}", snake_case(method));
    if line.len() > UNKNOWN_FIELDS_BYTES_MAX {
        let fields = JsonObject::from_iter([("omitted_bytes".to_owned(), Value::from(line.len()))]);
        return Ok(AgentEvent::Unknown { event, fields });
    }
    let mut fields: JsonObject = serde_json::from_slice(line)?;
    fields.remove("type");
    fields.remove("method");
    // pi waits for no answer to these.
    if matches!(method, "setWidget" | "setTitle" | "set_editor_text") {
        fields.remove("id");
    }
    Ok(AgentEvent::Unknown { event, fields })
}

/// A method's name is pi's, an event's name is ours: small letters, digits and `_`, and not too many.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars().take(METHOD_CHARS_MAX) {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    if snake.is_empty() { "extension_ui_request".to_owned() } else { snake }
}

/// The name becomes part of an event's name, which stands in every list of events.
const METHOD_CHARS_MAX: usize = 64;

/// A hook of an extension threw.
#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtensionError {
    #[serde(default)]
    extension_path: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    error: String,
}

impl ExtensionError {
    pub(super) fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        let mut error: ExtensionError = serde_json::from_slice(line)?;
        for text in [&mut error.extension_path, &mut error.event, &mut error.error] {
            cut(text, ERROR_TEXT_BYTES_MAX);
        }
        Ok(error)
    }

    pub(super) fn notification(&self) -> AgentEvent {
        let message = format!("extension {} failed in {}: {}", self.extension_path, self.event, self.error);
        AgentEvent::Notify { level: NotifyLevel::Error, message }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.extension_path.len() + self.event.len() + self.error.len()
    }
}

/// Stack traces and whole inputs end up in these texts; a person needs the beginning.
const ERROR_TEXT_BYTES_MAX: usize = 2000;

fn cut(text: &mut String, bytes_max: usize) {
    let mut end = bytes_max;
    while end < text.len() && !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Counts failures within a turn: a hook that throws on every delta is told of once, and summed up at the end.
#[derive(Debug, Default)]
pub(super) struct ErrorTally {
    seen: Vec<(ExtensionError, u64)>,
    /// Failures of other kinds after the list was full.
    others: u64,
}

/// Kinds of failures told one by one within a turn.
const ERROR_KINDS_MAX: usize = 16;

impl ErrorTally {
    /// Whether this failure is new in this turn and there is room to tell of it.
    pub(super) fn is_first(&mut self, error: &ExtensionError) -> bool {
        if let Some((_, repeats)) = self.seen.iter_mut().find(|(known, _)| known == error) {
            *repeats += 1;
            return false;
        }
        if self.seen.len() >= ERROR_KINDS_MAX {
            self.others += 1;
            return false;
        }
        // A copy, because the caller still tells of this one.
        let copy = ExtensionError {
            extension_path: error.extension_path.clone(),
            event: error.event.clone(),
            error: error.error.clone(),
        };
        self.seen.push((copy, 0));
        true
    }

    /// The turn is over: what was not told, in numbers.
    pub(super) fn drain(&mut self) -> Vec<AgentEvent> {
        let mut told = Vec::new();
        for (error, repeats) in self.seen.drain(..).filter(|(_, repeats)| *repeats > 0) {
            let ExtensionError { extension_path, event, error } = error;
            let message =
                format!("extension {extension_path} failed in {event} {repeats} more times: {error}");
            told.push(AgentEvent::Notify { level: NotifyLevel::Error, message });
        }
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            let message = format!("extensions failed {others} more times in other ways");
            told.push(AgentEvent::Notify { level: NotifyLevel::Error, message });
        }
        told
    }

    pub(super) fn retained_bytes(&self) -> usize {
        self.seen.iter().map(|(error, _)| error.bytes()).sum()
    }
}
