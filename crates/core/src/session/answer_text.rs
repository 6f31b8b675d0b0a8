//! What is kept of an answer: the text that a person typed or the option that was chosen, without secrets.
//!
//! It is part of the record that settles the question, so it is stored before the answer is acknowledged.

use qd_wire::command::InputResponseParams;
use qd_wire::input::InterviewQuestion;
use qd_wire::{InputRequest, JsonObject};
use serde_json::Value;

use super::OpenQuestion;
use crate::agent::QuestionAnswer;
use crate::redact::{REDACTED, asks_for_secret, redact, redact_value, secrets};

/// As long as a message of the pi-server protocol may be: a person types both.
pub const ANSWER_CHARACTERS_MAX: usize = 200_000;

/// So much more of a long answer is searched for secrets, so that one that begins within what is kept is seen whole.
const SECRET_BYTES_MAX: usize = 8 * 1024;

/// What the record says was answered; nothing where the question asks for a secret or where nobody answered.
pub(super) fn kept(
    question: &OpenQuestion,
    answer: &QuestionAnswer,
    response: &InputResponseParams,
) -> Option<String> {
    if question.is_secret || asks_for_secret_text(&question.request) {
        return None;
    }
    match answer {
        QuestionAnswer::Value(text) => Some(clean(text)),
        // The decision is a field of its own; what a person can add to it is the reason.
        QuestionAnswer::Confirmed(_) if matches!(question.request, InputRequest::Permission { .. }) => {
            response.reason.as_deref().filter(|reason| !reason.is_empty()).map(clean)
        }
        QuestionAnswer::Confirmed(confirmed) => Some(yes_or_no(*confirmed).to_owned()),
        QuestionAnswer::Responses(responses) => match &question.request {
            InputRequest::Interview { title, questions, .. } => {
                Some(clean(&form(asks_for_secret(title), questions, responses)))
            }
            InputRequest::Select { .. }
            | InputRequest::Confirm { .. }
            | InputRequest::Input { .. }
            | InputRequest::Editor { .. }
            | InputRequest::Permission { .. } => None,
        },
        QuestionAnswer::TimedOut | QuestionAnswer::Cancelled => None,
    }
}

/// Agents cannot mark a question as secret, but its words can say so. Options are shown to everybody anyway.
fn asks_for_secret_text(request: &InputRequest) -> bool {
    match request {
        InputRequest::Input { title, placeholder, .. } => {
            asks_for_secret(title) || placeholder.as_deref().is_some_and(asks_for_secret)
        }
        InputRequest::Editor { title, .. } => asks_for_secret(title),
        InputRequest::Select { .. }
        | InputRequest::Confirm { .. }
        | InputRequest::Interview { .. }
        | InputRequest::Permission { .. } => false,
    }
}

/// Without secrets, and not longer than is kept.
fn clean(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(ANSWER_CHARACTERS_MAX) else {
        return redact(text).into_owned();
    };
    let searched = text.floor_char_boundary(end.saturating_add(SECRET_BYTES_MAX));
    let cut_through =
        secrets(&text[..searched]).into_iter().find(|secret| secret.start < end && end < secret.end);
    let kept = match cut_through {
        Some(secret) => format!("{}{REDACTED}", redact(&text[..secret.start])),
        None => redact(&text[..end]).into_owned(),
    };
    let count = text.chars().count();
    format!("{kept}… [cut: the first {ANSWER_CHARACTERS_MAX} of {count} characters are kept]")
}

/// A line for each answer of a form, in the order of its questions; then those nobody asked for.
fn form(is_all_secret: bool, questions: &[InterviewQuestion], responses: &JsonObject) -> String {
    let asked = questions.iter().filter_map(|question| {
        let answer = responses.get(&question.id)?;
        let label = if question.question.is_empty() { &question.id } else { &question.question };
        let is_secret = is_all_secret
            || matches!(question.kind.as_str(), "password" | "secret")
            || asks_for_secret(&question.id)
            || asks_for_secret(label)
            || question.placeholder.as_deref().is_some_and(asks_for_secret);
        line(label, answer, is_secret)
    });
    let others = responses.iter().filter(|(id, _)| !questions.iter().any(|question| question.id == **id));
    let others = others.filter_map(|(id, answer)| line(id, answer, is_all_secret || asks_for_secret(id)));
    asked.chain(others).collect::<Vec<_>>().join("\n")
}

fn line(label: &str, answer: &Value, is_secret: bool) -> Option<String> {
    let text = value_text(answer).filter(|text| !text.is_empty())?;
    let has_options = matches!(answer, Value::Bool(_));
    let text = if is_secret && !has_options { REDACTED.to_owned() } else { text };
    Some(format!("{label}: {text}"))
}

fn value_text(answer: &Value) -> Option<String> {
    match answer {
        Value::Null => None,
        Value::Bool(confirmed) => Some(yes_or_no(*confirmed).to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(chosen) => Some(chosen.iter().filter_map(value_text).collect::<Vec<_>>().join(", ")),
        Value::Object(_) => Some(redact_value(answer).to_string()),
    }
}

fn yes_or_no(confirmed: bool) -> &'static str {
    if confirmed { "yes" } else { "no" }
}
