//! Forms: how their questions are shown, and what a person's words mean as answers.
//!
//! The same reading serves a person at a terminal, who is asked question by question, and `qd approve`, where an
//! answer is `KEY=VALUE`.

use qd_wire::JsonObject;
use qd_wire::input::InterviewQuestion;
use serde_json::Value;

use super::{CANCEL_WORD, choose_option, indented};
use crate::output::{harmless, one_line};

/// As much of a default as is shown beside the question.
const DEFAULT_CHARACTERS_MAX: usize = 60;

/// All questions of a form, with the keys of their answers.
pub(crate) fn form_text(questions: &[InterviewQuestion]) -> String {
    let one = |question: &InterviewQuestion| {
        let rest = match (is_required(question), shown_default(question)) {
            (_, Some(default)) => format!(" (default: {default})"),
            (true, None) => " (required)".to_owned(),
            (false, None) => String::new(),
        };
        format!("{}{}", indented(&format!("{}: {}{rest}", question.id, words(question))), options(question))
    };
    questions.iter().map(one).collect()
}

/// One question of the form, put to a person, with what may be typed.
pub(crate) fn form_question_text(questions: &[InterviewQuestion], index: usize) -> String {
    let Some(question) = questions.get(index) else { return String::new() };
    let place = format!("{}/{} {}", index + 1, questions.len(), words(question));
    format!("{}{}[{}] ", indented(&place), options(question), form_choices(question))
}

/// What may be typed at a question.
pub(crate) fn form_choices(question: &InterviewQuestion) -> String {
    let kind = match question.kind.as_str() {
        "select" => "number or text",
        "multiselect" => "numbers or texts, separated by commas",
        "confirm" => "y/n",
        "number" => "a number",
        _ => "text",
    };
    let empty = match (shown_default(question), is_required(question)) {
        (Some(default), _) => format!(", empty: {default}"),
        (None, false) => ", empty: no answer".to_owned(),
        (None, true) => String::new(),
    };
    format!("{kind}{empty}, {CANCEL_WORD}")
}

/// What a line means as the answer to a question; `None` leaves it without one.
pub(crate) fn read_form_answer(question: &InterviewQuestion, line: &str) -> Result<Option<Value>, String> {
    if line.is_empty() {
        return match &question.default {
            Some(default) => Ok(Some(default.clone())),
            None if is_required(question) => Err("this question needs an answer".to_owned()),
            None => Ok(None),
        };
    }
    let offered = question.options.as_deref().unwrap_or_default();
    match question.kind.as_str() {
        "select" if !offered.is_empty() => choose_option(offered, line).map(|option| Some(option.into())),
        "multiselect" => {
            let parts = line.split(',').map(str::trim).filter(|part| !part.is_empty());
            let chosen: Result<Vec<Value>, String> =
                parts.map(|part| pick(offered, part).map(Value::String)).collect();
            chosen.map(|chosen| Some(Value::Array(chosen)))
        }
        "confirm" => match line.to_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(Some(true.into())),
            "n" | "no" | "false" => Ok(Some(false.into())),
            _ => Err("please answer y or n".to_owned()),
        },
        "number" => match serde_json::from_str::<Value>(line) {
            // JSON keeps integers and decimals apart, as the agent's schema may want it.
            Ok(number @ Value::Number(_)) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(format!("'{line}' is not a number")),
        },
        _ => Ok(Some(line.into())),
    }
}

/// The answers of `qd approve`: those of `--answers` (a JSON object), over them each `--answer id=value`, and the
/// defaults of the form where nothing is said.
pub(crate) fn read_form_answers(
    questions: &[InterviewQuestion],
    object: Option<&str>,
    pairs: &[String],
) -> Result<JsonObject, String> {
    let mut answers = match object {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("--answers is not a JSON object of answers: {error}"))?,
        None => JsonObject::new(),
    };
    for pair in pairs {
        let Some((id, text)) = pair.split_once('=') else {
            return Err(format!("--answer '{pair}' is not id=value"));
        };
        let question = find(questions, id.trim())?;
        match read_form_answer(question, text.trim())
            .map_err(|problem| format!("{}: {problem}", question.id))?
        {
            Some(answer) => answers.insert(question.id.clone(), answer),
            None => answers.remove(&question.id),
        };
    }
    // An answer to a question that does not exist is a typing error, which the agent would never report.
    for id in answers.keys() {
        find(questions, id)?;
    }
    for question in questions {
        if !answers.contains_key(&question.id)
            && let Some(default) =
                read_form_answer(question, "").map_err(|problem| format!("{}: {problem}", question.id))?
        {
            answers.insert(question.id.clone(), default);
        }
    }
    Ok(answers)
}

fn find<'a>(questions: &'a [InterviewQuestion], id: &str) -> Result<&'a InterviewQuestion, String> {
    questions.iter().find(|question| question.id == id).ok_or_else(|| {
        let ids: Vec<&str> = questions.iter().map(|question| question.id.as_str()).collect();
        format!("the form has no question '{id}'; it has: {}", ids.join(", "))
    })
}

fn pick(offered: &[String], part: &str) -> Result<String, String> {
    if offered.is_empty() { Ok(part.to_owned()) } else { choose_option(offered, part) }
}

fn words(question: &InterviewQuestion) -> &str {
    if question.question.is_empty() { &question.id } else { &question.question }
}

fn options(question: &InterviewQuestion) -> String {
    let offered = question.options.as_deref().unwrap_or_default();
    let one = |(index, option): (usize, &String)| format!("    {}. {}\n", index + 1, harmless(option));
    offered.iter().enumerate().map(one).collect()
}

fn is_required(question: &InterviewQuestion) -> bool {
    question.required == Some(true)
}

fn shown_default(question: &InterviewQuestion) -> Option<String> {
    let text = match question.default.as_ref()? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(one_line(&text, DEFAULT_CHARACTERS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form() -> Vec<InterviewQuestion> {
        serde_json::from_value(json!([
            {"id": "name", "question": "Your name?", "required": true},
            {"id": "colour", "type": "select", "question": "Which\u{1b}?", "options": ["red", "green"], "default": "red"},
            {"id": "tools", "type": "multiselect", "question": "Tools?", "options": ["bash", "edit", "read"]},
            {"id": "sure", "type": "confirm", "question": "Sure?"},
            {"id": "count", "type": "number", "question": "How many?", "default": 3},
            {"id": "odd", "type": "colour-wheel"},
        ]))
        .unwrap()
    }

    #[test]
    fn words_become_the_answers_of_their_kind() {
        let form = form();
        let cases = [
            (0, "Ada", Ok(Some(json!("Ada")))),
            (0, "", Err(())),
            (1, "2", Ok(Some(json!("green")))),
            (1, "gr", Ok(Some(json!("green")))),
            (1, "", Ok(Some(json!("red")))),
            (1, "blue", Err(())),
            (2, "1, read", Ok(Some(json!(["bash", "read"])))),
            (2, "saw", Err(())),
            (2, "", Ok(None)),
            (3, "Y", Ok(Some(json!(true)))),
            (3, "maybe", Err(())),
            (4, "2.5", Ok(Some(json!(2.5)))),
            (4, "", Ok(Some(json!(3)))),
            (4, "many", Err(())),
            (5, "blue", Ok(Some(json!("blue")))),
        ];
        for (index, line, expected) in cases {
            assert_eq!(read_form_answer(&form[index], line).map_err(|_| ()), expected, "{index} {line}");
        }
    }

    #[test]
    fn answers_come_as_json_and_as_pairs_and_defaults_fill_the_rest() {
        let form = form();
        let pairs = |pairs: &[&str]| pairs.iter().map(|pair| (*pair).to_owned()).collect::<Vec<_>>();
        let both = read_form_answers(
            &form,
            Some(r#"{"name":"Ada","sure":true}"#),
            &pairs(&["sure=n", "tools=edit"]),
        );
        let expected = json!({"name": "Ada", "sure": false, "tools": ["edit"], "colour": "red", "count": 3});
        assert_eq!(Value::Object(both.unwrap()), expected);
        for (object, given, says) in [
            (None, vec![], "name: this question needs an answer"),
            (Some("[]"), vec![], "not a JSON object"),
            (Some(r#"{"nam":1}"#), vec!["name=x"], "no question 'nam'"),
            (None, vec!["name"], "is not id=value"),
            (None, vec!["size=1"], "it has: name, colour"),
            (None, vec!["name=x", "count=many"], "count: 'many' is not a number"),
        ] {
            let problem = read_form_answers(&form, object, &pairs(&given)).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn a_form_reads_well() {
        let form = form();
        let put: String = (0..form.len()).map(|index| form_question_text(&form, index) + "\n").collect();
        insta::assert_snapshot!(format!("{}----\n{put}", form_text(&form)));
    }
}
