//! Questions of an agent: how they are shown, and what a person's words mean as an answer.
//!
//! Everything that is asked is shown, also what an agent put into the details: a person cannot approve what they have
//! not seen.

mod form;

use qd_wire::command::InputResponseParams;
use qd_wire::run::PermissionDetails;
use qd_wire::{InputRequest, JsonObject};

use crate::output::{Style, harmless};
pub(crate) use form::{form_question_text, read_form_answer};

/// What the command line gives as an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GivenAnswer<'a> {
    /// A choice or a text.
    pub(crate) value: Option<&'a str>,
    /// Of a form: a JSON object of answers.
    pub(crate) answers: Option<&'a str>,
    /// Of a form: `id=value` each.
    pub(crate) pairs: &'a [String],
}

impl<'a> GivenAnswer<'a> {
    fn value(value: &'a str) -> GivenAnswer<'a> {
        GivenAnswer { value: Some(value), ..GivenAnswer::default() }
    }
}

/// The word that refuses a question which is not answered by yes or no.
pub(crate) const CANCEL_WORD: &str = "/cancel";

/// What a person reads first.
pub(crate) fn title_text(request: &InputRequest, style: Style) -> String {
    format!("{} {}\n", style.yellow("?"), style.bold(&harmless(request.title())))
}

/// The text of a question.
pub(crate) fn question_text(request: &InputRequest, style: Style) -> String {
    let mut text = title_text(request, style);
    match request {
        InputRequest::Select { options, .. } => {
            for (index, option) in options.iter().enumerate() {
                text.push_str(&format!("  {}. {}\n", index + 1, harmless(option)));
            }
        }
        InputRequest::Confirm { message, .. } => text.push_str(&indented(message)),
        InputRequest::Input { placeholder: below, .. } | InputRequest::Editor { prefill: below, .. } => {
            text.push_str(&indented(below.as_deref().unwrap_or("")));
        }
        InputRequest::Interview { questions, .. } => text.push_str(&form::form_text(questions)),
        InputRequest::Permission { description, metadata, .. } => {
            text.push_str(&indented(description.as_deref().unwrap_or("")));
            if let Some(metadata) = metadata {
                text.push_str(&indented(&permission_text(metadata)));
            }
        }
    }
    text
}

/// What is asked for, all of it: who decides must see everything.
fn permission_text(metadata: &serde_json::Value) -> String {
    // An agent's own wish is in its own words.
    let is_ours = metadata.get("source").is_some();
    let details = serde_json::from_value::<PermissionDetails>(metadata.clone()).ok().filter(|_| is_ours);
    let Some(details) = details else { return metadata.to_string() };
    let Some(tool) = &details.op_tool else {
        let choices: Vec<String> = details.choices.iter().map(|choice| choice.label.clone()).collect();
        return choices.join("\n");
    };
    let arguments = details.op_args.unwrap_or_default();
    let lines = arguments.as_object().into_iter().flatten().map(|(name, value)| match value.as_str() {
        Some(text) if text.contains('\n') => format!("{name}:\n{text}"),
        Some(text) => format!("{name}: {text}"),
        None => format!("{name}: {value}"),
    });
    let who = details.principal.map_or_else(String::new, |who| format!(" (asked by {who})"));
    format!("{tool}{who}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// What may be typed, for the prompt line.
pub(crate) fn answer_choices(request: &InputRequest) -> &'static str {
    match request {
        InputRequest::Select { .. } => "number or text, /cancel",
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => "y/n",
        InputRequest::Input { .. } => "text, /cancel",
        InputRequest::Editor { .. } => "one line (empty keeps the text above), /cancel",
        InputRequest::Interview { .. } => "one answer after the other, /cancel",
    }
}

/// How to answer from another terminal.
pub(crate) fn how_to_answer(session_id: &str, request: &InputRequest) -> String {
    let id = request.request_id();
    let approve = match request {
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => {
            format!("qd approve {session_id} {id}")
        }
        InputRequest::Select { .. } | InputRequest::Input { .. } | InputRequest::Editor { .. } => {
            format!("qd approve {session_id} {id} --value VALUE")
        }
        InputRequest::Interview { .. } => format!("qd approve {session_id} {id} --answer KEY=VALUE …"),
    };
    harmless(&format!("  answer with: {approve}\n  or refuse:   qd deny {session_id} {id}\n"))
}

/// Open questions for somebody who cannot answer here.
pub(crate) fn questions_text(pending: &[InputRequest], session_id: &str, style: Style) -> String {
    pending
        .iter()
        .map(|request| question_text(request, style) + &how_to_answer(session_id, request))
        .collect()
}

/// The answer in a line typed at the question.
pub(crate) fn read_typed_answer(request: &InputRequest, line: &str) -> Result<InputResponseParams, String> {
    let line = line.trim();
    if line == CANCEL_WORD {
        return Ok(refusal_of(request));
    }
    match request {
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => {
            match line.to_lowercase().as_str() {
                "y" | "yes" => Ok(confirmed_response(request, true)),
                "n" | "no" => Ok(confirmed_response(request, false)),
                _ => Err("please answer y or n".to_owned()),
            }
        }
        InputRequest::Editor { prefill, .. } if line.is_empty() => {
            Ok(value_response(request, prefill.clone().unwrap_or_default()))
        }
        InputRequest::Select { .. } | InputRequest::Input { .. } | InputRequest::Editor { .. } => {
            approval_of(request, GivenAnswer::value(line))
        }
        InputRequest::Interview { .. } => Err("this is a form: answer each of its questions".to_owned()),
    }
}

/// The answers to all questions of a form.
pub(crate) fn form_answer(request: &InputRequest, answers: JsonObject) -> InputResponseParams {
    InputResponseParams { responses: Some(answers), ..response_to(request) }
}

/// The answer of `qd approve`, with what it was given.
pub(crate) fn approval_of(
    request: &InputRequest,
    given: GivenAnswer<'_>,
) -> Result<InputResponseParams, String> {
    if let InputRequest::Interview { questions, .. } = request {
        if given.value.is_some() {
            return Err("this is a form: each of its questions needs its own answer".to_owned());
        }
        let answers = form::read_form_answers(questions, given.answers, given.pairs)?;
        return Ok(form_answer(request, answers));
    }
    if given.answers.is_some() || !given.pairs.is_empty() {
        return Err("this question is not a form; give it one answer".to_owned());
    }
    match (request, given.value) {
        (InputRequest::Confirm { .. } | InputRequest::Permission { .. }, None) => {
            Ok(confirmed_response(request, true))
        }
        (InputRequest::Confirm { .. } | InputRequest::Permission { .. }, Some(_)) => {
            Err("this question takes yes or no, not a value".to_owned())
        }
        (InputRequest::Select { options, .. }, Some(given)) => {
            choose_option(options, given).map(|option| value_response(request, option))
        }
        (InputRequest::Select { options, .. }, None) => Err(format!("choose one of: {}", options.join(", "))),
        (InputRequest::Editor { prefill: Some(prefill), .. }, None) => {
            Ok(value_response(request, prefill.clone()))
        }
        (_, Some(given)) => Ok(value_response(request, given.to_owned())),
        (_, None) => Err("this question needs a text as its answer".to_owned()),
    }
}

/// The answer of `qd deny`.
pub(crate) fn refusal_of(request: &InputRequest) -> InputResponseParams {
    match request {
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => confirmed_response(request, false),
        InputRequest::Select { .. }
        | InputRequest::Input { .. }
        | InputRequest::Editor { .. }
        | InputRequest::Interview { .. } => {
            InputResponseParams { cancelled: Some(true), ..response_to(request) }
        }
    }
}

/// An option by its text, its number, or a unique beginning of its text.
fn choose_option(options: &[String], given: &str) -> Result<String, String> {
    // The exact text goes first: an option may itself be a number.
    if let Some(option) = options.iter().find(|option| *option == given) {
        return Ok(option.clone());
    }
    if let Some(option) = given.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?)) {
        return Ok(option.clone());
    }
    let begins = |option: &&String| option.to_lowercase().starts_with(&given.to_lowercase());
    let matching: Vec<&String> = options.iter().filter(begins).collect();
    match matching.as_slice() {
        [one] if !given.is_empty() => Ok((*one).clone()),
        _ => Err(format!("'{given}' is not one of: {}", options.join(", "))),
    }
}

/// An answer that says nothing yet.
pub(crate) fn response_to(request: &InputRequest) -> InputResponseParams {
    InputResponseParams { request_id: request.request_id().to_owned(), ..InputResponseParams::default() }
}

fn confirmed_response(request: &InputRequest, confirmed: bool) -> InputResponseParams {
    InputResponseParams { confirmed: Some(confirmed), ..response_to(request) }
}

fn value_response(request: &InputRequest, value: String) -> InputResponseParams {
    InputResponseParams { value: Some(value), ..response_to(request) }
}

fn indented(text: &str) -> String {
    harmless(text).lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(value: serde_json::Value) -> InputRequest {
        serde_json::from_value(value).unwrap()
    }

    fn select() -> InputRequest {
        request(json!({"type":"select","request_id":"q1","title":"Which?","options":["red","green","grey"]}))
    }

    #[test]
    fn words_become_answers() {
        let confirm = request(json!({"type":"confirm","request_id":"q1","title":"Go?","message":"now"}));
        let editor = request(json!({"type":"editor","request_id":"q1","title":"Text","prefill":"a\nb"}));
        let input = request(json!({"type":"input","request_id":"q1","title":"Name"}));
        let permission = request(json!({"type":"permission","request_id":"q1","title":"May I?"}));
        let cases = [
            (&confirm, "Yes", json!({"request_id":"q1","confirmed":true})),
            (&confirm, "n", json!({"request_id":"q1","confirmed":false})),
            (&confirm, "/cancel", json!({"request_id":"q1","confirmed":false})),
            (&permission, "y", json!({"request_id":"q1","confirmed":true})),
            (&select(), "2", json!({"request_id":"q1","value":"green"})),
            (&select(), "RE", json!({"request_id":"q1","value":"red"})),
            (&select(), "/cancel", json!({"request_id":"q1","cancelled":true})),
            (&editor, "", json!({"request_id":"q1","value":"a\nb"})),
            (&editor, "c", json!({"request_id":"q1","value":"c"})),
            (&input, "Ada", json!({"request_id":"q1","value":"Ada"})),
        ];
        for (request, line, answer) in cases {
            let read = read_typed_answer(request, line).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), answer, "{line}");
        }
        for (request, line) in [(&confirm, "maybe"), (&select(), "gr"), (&select(), "4"), (&select(), "")] {
            assert!(read_typed_answer(request, line).is_err(), "{line}");
        }
        assert!(approval_of(&select(), GivenAnswer::default()).unwrap_err().contains("red, green, grey"));
        assert!(approval_of(&confirm, GivenAnswer::value("x")).is_err());
        assert!(approval_of(&input, GivenAnswer::default()).is_err());
    }

    #[test]
    fn questions_are_shown_with_the_way_to_answer() {
        let permission = request(
            json!({"type":"permission","request_id":"q2","title":"Run rm?","description":"rm -r x","metadata":{"tool":"bash"}}),
        );
        let interview = request(
            json!({"type":"interview","request_id":"q3","title":"Tell","questions":[{"id":"a","question":"A?"}]}),
        );
        let text = [select(), permission, interview]
            .map(|request| questions_text(&[request], "s1", Style::PLAIN))
            .join("\n");
        insta::assert_snapshot!(text);
    }
}
