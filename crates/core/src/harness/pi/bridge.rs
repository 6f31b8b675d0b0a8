//! The private words between our bridge extension (`extensions/qd-bridge.ts`) and the driver. They travel as status
//! lines, a slash command and the texts of dialogs, and no person ever sees them.

use qd_wire::InputRequest;
use qd_wire::command::NavigateTreeParams;
use qd_wire::input::InterviewQuestion;
use serde::Deserialize;
use serde_json::json;

use crate::harness::AgentRefusal;

/// The answer that the bridge turns into an error in the extension that asked.
pub(super) const TIMED_OUT: &str = "\u{1}qd:timed-out";

/// The title of a dialog that the bridge waits for begins so: only then can [`TIMED_OUT`] be understood.
const ASKED: &str = "\u{1}qd:asked:";

/// An `editor` dialog whose text begins so is an interview; its questions follow as JSON.
const INTERVIEW: &str = "\u{1}qd:interview:";

/// Status lines with such keys are the bridge's, readable or not; the others are those of its predecessors.
const PRIVATE_KEYS_FRONT: &str = "qd_";
const PRIVATE_KEYS: [&str; 2] = ["octo_phase", "oqto_phase"];

/// The slash command that moves in the session tree, which pi's RPC cannot.
const NAVIGATE_COMMAND: &str = "qd-navigate";

/// Slash commands of the bridge, which are none of a person's.
pub(super) const PRIVATE_COMMANDS: [&str; 1] = [NAVIGATE_COMMAND];

/// What the bridge told the driver.
#[derive(Debug, Clone, PartialEq)]
pub enum BridgeMessage {
    /// The tools the model may be given.
    Tools(Vec<PiTool>),
    /// What became of a [`navigate_prompt`], by its id.
    Navigated { id: String, result: Result<PiNavigated, AgentRefusal> },
    /// pi is at another entry of its session tree, whoever moved it.
    Moved,
    /// The bridge waits for the answer to this dialog and understands [`QuestionAnswer::TimedOut`](crate::agent::QuestionAnswer).
    Asks { request_id: String },
    /// A form that nobody can read, and so nobody can answer.
    UnreadableInterview { request_id: String },
    /// A status line of the bridge's that is not one of its words.
    Unreadable { key: String },
}

/// A tool of pi.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PiTool {
    pub name: String,
    #[serde(default)]
    pub description: String,
}

/// pi has moved in its session tree, unless an extension or a person stopped it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PiNavigated {
    #[serde(default)]
    pub cancelled: bool,
    pub aborted: Option<bool>,
    /// The text of the user message it went back before, for the person to edit.
    pub editor_text: Option<String>,
}

/// The prompt that makes the bridge move in the session tree. Its result comes as a [`BridgeMessage`] before pi's reply.
pub fn navigate_prompt(id: &str, params: &NavigateTreeParams) -> String {
    let order = json!({
        "id": id,
        "targetId": params.target_id,
        "options": {
            "summarize": params.summarize,
            "customInstructions": params.custom_instructions,
            "replaceInstructions": params.replace_instructions,
            "label": params.label,
        },
    });
    format!("/{NAVIGATE_COMMAND} {order}")
}

/// The bridge's own slash command that a person's text would run, if it would.
pub fn private_command(message: &str) -> Option<&'static str> {
    let word = message.trim_start().strip_prefix('/')?.split_whitespace().next()?;
    PRIVATE_COMMANDS.into_iter().find(|command| *command == word)
}

/// Whether a status line is a signal to us and nothing to show.
pub(super) fn is_private_key(key: &str) -> bool {
    key.starts_with(PRIVATE_KEYS_FRONT) || PRIVATE_KEYS.contains(&key)
}

/// Takes the bridge's mark off the title of a dialog; whether it was there.
pub(super) fn take_mark(title: &mut String) -> bool {
    let is_marked = title.starts_with(ASKED);
    if is_marked {
        title.drain(..ASKED.len());
    }
    is_marked
}

/// The word in a status line of the bridge; none for the key of somebody else, or a text that is no such word.
pub(super) fn word(key: &str, text: &str) -> Option<BridgeMessage> {
    #[derive(Deserialize)]
    struct Navigated {
        id: String,
        error: Option<String>,
        result: Option<PiNavigated>,
    }
    match key {
        "qd_moved" => Some(BridgeMessage::Moved),
        "qd_tools" => serde_json::from_str(text).ok().map(BridgeMessage::Tools),
        "qd_navigated" => {
            let navigated: Navigated = serde_json::from_str(text).ok()?;
            let result = match navigated.error {
                Some(error) => Err(AgentRefusal::Failed(error)),
                None => Ok(navigated.result.unwrap_or_default()),
            };
            Some(BridgeMessage::Navigated { id: navigated.id, result })
        }
        _ => None,
    }
}

/// The interview in the text of an `editor` dialog, if it is meant to be one; an error if it cannot be read.
pub(super) fn interview(
    request_id: &str,
    title: &str,
    prefill: &str,
) -> Option<Result<InputRequest, serde_json::Error>> {
    #[derive(Deserialize)]
    struct Form {
        questions: Vec<InterviewQuestion>,
        timeout: Option<u64>,
    }
    let form = serde_json::from_str::<Form>(prefill.strip_prefix(INTERVIEW)?);
    Some(form.map(|form| InputRequest::Interview {
        request_id: request_id.to_owned(),
        title: title.to_owned(),
        questions: form.questions,
        timeout: form.timeout,
    }))
}

#[cfg(test)]
#[path = "bridge_tests.rs"]
mod tests;
