//! Whether the answers to a form are answers to its questions.

use qd_wire::JsonObject;
use qd_wire::input::InterviewQuestion;
use serde_json::Value;

use super::AnswerError;

/// Answers to questions that were not asked are let through: the asker knows what to do with them.
pub(super) fn check(questions: &[InterviewQuestion], responses: &JsonObject) -> Result<(), AnswerError> {
    questions.iter().try_for_each(|question| check_one(question, responses.get(&question.id)))
}

fn check_one(question: &InterviewQuestion, answer: Option<&Value>) -> Result<(), AnswerError> {
    let id = &question.id;
    let answer = match answer.filter(|answer| !is_empty(answer)) {
        Some(answer) => answer,
        None if question.required == Some(true) => {
            return Err(invalid(format!(
                "responses.{id}: This question must be answered (or cancelled: true)"
            )));
        }
        None => return Ok(()),
    };
    let options = question.options.as_deref().unwrap_or_default();
    // A choice without options cannot be checked; the asker decides.
    if options.is_empty() {
        return Ok(());
    }
    match question.kind.as_str() {
        "select" => check_option(id, options, answer),
        "multiselect" => match answer {
            Value::Array(chosen) => chosen.iter().try_for_each(|chosen| check_option(id, options, chosen)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(invalid(format!("responses.{id}: Must be a list of its options: {}", options.join(", "))))
            }
        },
        // Kinds are the asker's words. One that we do not know is passed on rather than refused.
        _ => Ok(()),
    }
}

fn check_option(id: &str, options: &[String], answer: &Value) -> Result<(), AnswerError> {
    let is_option = answer.as_str().is_some_and(|chosen| options.iter().any(|option| option == chosen));
    if is_option {
        return Ok(());
    }
    Err(invalid(format!("responses.{id}: {answer} is not one of the options: {}", options.join(", "))))
}

fn invalid(reason: String) -> AnswerError {
    AnswerError::Invalid(reason)
}

fn is_empty(answer: &Value) -> bool {
    match answer {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(chosen) => chosen.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}
