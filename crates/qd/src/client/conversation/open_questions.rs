//! The open questions of a session, in the order they came. Returns the texts to show.
//!
//! What a person types belongs to the question on the screen. If that ends while they type, the line is neither an
//! answer to the next question nor a prompt: they are told and can type again.

use std::collections::VecDeque;

use qd_wire::command::InputResponseParams;
use qd_wire::input::InputOutcome;
use qd_wire::{InputRequest, JsonObject};

use crate::client::questions;
use crate::output::{Style, harmless, one_line};

/// As much of a line as is shown again.
const ECHO_CHARACTERS_MAX: usize = 60;

/// How questions are put.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskingMode {
    /// A person sits here; else the way to answer from elsewhere is shown.
    pub(super) interactive: bool,
    pub(super) style: Style,
}

/// What a typed line came to.
#[derive(Debug, PartialEq)]
pub(super) enum TypedAnswer {
    /// The question is answered.
    Answer(Box<InputResponseParams>),
    /// One question of a form is answered; the text puts the next.
    Next(String),
}

/// How far the form that is the first open question has come.
#[derive(Debug, Default)]
struct FormProgress {
    request_id: String,
    /// The question that is put.
    index: usize,
    answers: JsonObject,
}

#[derive(Debug, Default)]
pub(super) struct OpenQuestions {
    open: VecDeque<InputRequest>,
    form: FormProgress,
    /// The last question answered here, whose end is no news.
    answered: Option<String>,
    /// The question shown ended without us; what is typed now may have been begun as its answer.
    overtaken: bool,
}

impl OpenQuestions {
    pub(super) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// A new question.
    pub(super) fn ask(&mut self, request: &InputRequest, session_id: &str, asking: AskingMode) -> String {
        if self.open.iter().any(|open| open.request_id() == request.request_id()) {
            return String::new();
        }
        self.open.push_back(request.clone());
        if !asking.interactive {
            return questions::question_text(request, asking.style)
                + &questions::how_to_answer(session_id, request);
        }
        if self.open.len() == 1 { self.first_question_text(asking) } else { String::new() }
    }

    /// All open questions, as the server knows them.
    pub(super) fn replace(
        &mut self,
        pending: &[InputRequest],
        session_id: &str,
        asking: AskingMode,
    ) -> String {
        let is_open =
            |open: &InputRequest| pending.iter().any(|request| request.request_id() == open.request_id());
        let first_ended = self.open.front().is_some_and(|first| !is_open(first));
        self.open.retain(is_open);
        let rest: String = pending.iter().map(|request| self.ask(request, session_id, asking)).collect();
        if !first_ended || !asking.interactive {
            return rest;
        }
        self.overtaken = true;
        let rest = if rest.is_empty() { self.first_question_text(asking) } else { rest };
        // The cursor stands behind the question.
        format!("\n{}\n{rest}", asking.style.dim("the question was answered elsewhere"))
    }

    /// A question ended, here or elsewhere.
    pub(super) fn resolved(
        &mut self,
        request_id: &str,
        outcome: Option<InputOutcome>,
        answer: Option<&str>,
        asking: AskingMode,
    ) -> String {
        let was_first = self.open.front().is_some_and(|open| open.request_id() == request_id);
        let was_open = self.open.iter().any(|open| open.request_id() == request_id);
        self.open.retain(|open| open.request_id() != request_id);
        // The person who answered here sees the next question, and is not told of their own answer.
        if self.answered.take_if(|answered| answered == request_id).is_some() {
            return if asking.interactive { self.first_question_text(asking) } else { String::new() };
        }
        if !was_open {
            return String::new();
        }
        let how = match outcome {
            Some(InputOutcome::Answered) | None => "was answered elsewhere",
            Some(InputOutcome::Cancelled) => "was refused elsewhere",
            Some(InputOutcome::TimedOut) => "was not answered in time",
            Some(InputOutcome::Withdrawn) => "was withdrawn",
        };
        let answer = answer.map(|answer| format!(": {}", one_line(answer, ECHO_CHARACTERS_MAX)));
        let news = format!("the question {how}{}", answer.unwrap_or_default());
        let mut text = format!("{}\n", asking.style.dim(&news));
        if asking.interactive && was_first {
            self.overtaken = true;
            // The cursor stands behind the question.
            text.insert(0, '\n');
            text.push_str(&self.first_question_text(asking));
        }
        text
    }

    /// Whether a line was probably begun as the answer to a question that is over; the text says so. Lines come
    /// whole, so only the first one after the end can have been.
    pub(super) fn take_overtaken(&mut self, line: &str) -> Option<String> {
        if !std::mem::take(&mut self.overtaken) || line.trim().is_empty() {
            return None;
        }
        let again = if self.is_waiting() { "answer the next one" } else { "send it as a prompt" };
        let line = one_line(line, ECHO_CHARACTERS_MAX);
        Some(format!(
            "not sent: \"{line}\" — the question was answered elsewhere; type it again to {again}\n"
        ))
    }

    /// What a line typed at the first question means; an error is a text to show.
    pub(super) fn answer(&mut self, line: &str) -> Result<TypedAnswer, String> {
        let Some(request) = self.open.front() else { return Err(String::new()) };
        let params = match request {
            InputRequest::Interview { questions, .. } if line.trim() != questions::CANCEL_WORD => {
                // Answers of a form that was overtaken must not fill in the next one.
                if self.form.request_id != request.request_id() {
                    self.form = FormProgress {
                        request_id: request.request_id().to_owned(),
                        ..FormProgress::default()
                    };
                }
                if let Some(question) = questions.get(self.form.index) {
                    let answer = questions::read_form_answer(question, line.trim()).map_err(|problem| {
                        format!(
                            "{}\n{}",
                            harmless(&problem),
                            questions::form_question_text(questions, self.form.index)
                        )
                    })?;
                    self.form.answers.extend(answer.map(|answer| (question.id.clone(), answer)));
                    self.form.index += 1;
                }
                if self.form.index < questions.len() {
                    return Ok(TypedAnswer::Next(questions::form_question_text(questions, self.form.index)));
                }
                questions::form_answer(request, std::mem::take(&mut self.form).answers)
            }
            _ => questions::read_typed_answer(request, line).map_err(|problem| {
                format!("{}\n[{}] ", harmless(&problem), questions::answer_choices(request))
            })?,
        };
        self.answered = Some(request.request_id().to_owned());
        self.open.pop_front();
        Ok(TypedAnswer::Answer(Box::new(params)))
    }

    /// The first question, with what may be typed; of a form, where it stands.
    fn first_question_text(&self, asking: AskingMode) -> String {
        match self.open.front() {
            Some(request @ InputRequest::Interview { questions, .. }) => {
                let is_begun = self.form.request_id == request.request_id();
                let index = if is_begun { self.form.index } else { 0 };
                questions::title_text(request, asking.style)
                    + &questions::form_question_text(questions, index)
            }
            Some(request) => {
                format!(
                    "{}[{}] ",
                    questions::question_text(request, asking.style),
                    questions::answer_choices(request)
                )
            }
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn confirm(id: &str) -> InputRequest {
        serde_json::from_value(
            json!({"type":"confirm","request_id":id,"title":format!("Go {id}?"),"message":"now"}),
        )
        .unwrap()
    }

    fn asked(interactive: bool) -> (AskingMode, OpenQuestions) {
        (AskingMode { interactive, style: Style::PLAIN }, OpenQuestions::default())
    }

    #[test]
    fn questions_are_put_one_after_the_other() {
        let (asking, mut questions) = asked(true);
        let mut shown =
            vec![questions.ask(&confirm("a"), "s1", asking), questions.ask(&confirm("b"), "s1", asking)];
        shown.push(questions.answer("what").unwrap_err());
        let TypedAnswer::Answer(answer) = questions.answer("y").unwrap() else {
            panic!("a question of its own")
        };
        assert_eq!(answer.confirmed, Some(true));
        shown.push(questions.resolved("a", Some(InputOutcome::Answered), None, asking));
        shown.push(questions.ask(&confirm("c"), "s1", asking));
        shown.push(questions.resolved("b", Some(InputOutcome::Answered), None, asking));
        insta::assert_snapshot!(shown.join("----\n"));
        assert!(questions.is_waiting());
    }

    #[test]
    fn what_was_answered_elsewhere_is_shown() {
        let (asking, mut questions) = asked(false);
        questions.ask(&confirm("a"), "s1", asking);
        let long = format!("{}\u{1b}[31m\nmore", "x".repeat(ECHO_CHARACTERS_MAX));
        let text = questions.resolved("a", Some(InputOutcome::Answered), Some(&long), asking);
        let cut = "x".repeat(ECHO_CHARACTERS_MAX);
        assert_eq!(text, format!("the question was answered elsewhere: {cut}…\n"));
        questions.ask(&confirm("b"), "s1", asking);
        let text = questions.resolved("b", Some(InputOutcome::Answered), Some("yes"), asking);
        assert_eq!(text, "the question was answered elsewhere: yes\n");
    }

    #[test]
    fn a_form_is_asked_question_by_question() {
        let (asking, mut questions) = asked(true);
        let form: InputRequest = serde_json::from_value(json!({"type": "interview", "request_id": "f",
            "title": "About you", "questions": [{"id": "name", "question": "Name?", "required": true},
            {"id": "sure", "type": "confirm", "question": "Sure?"}]}))
        .unwrap();
        let mut shown = vec![questions.ask(&form, "s1", asking)];
        shown.push(questions.answer("").unwrap_err());
        let TypedAnswer::Next(next) = questions.answer(" Ada ").unwrap() else {
            panic!("one question is left")
        };
        shown.push(next);
        shown.push(questions.answer("perhaps").unwrap_err());
        let TypedAnswer::Answer(answer) = questions.answer("y").unwrap() else { panic!("all are answered") };
        let answer = serde_json::to_value(answer).unwrap();
        assert_eq!(answer, json!({"request_id": "f", "responses": {"name": "Ada", "sure": true}}));
        insta::assert_snapshot!(shown.join("\n----\n"));
        questions.resolved("f", Some(InputOutcome::Answered), None, asking);
        questions.ask(&form, "s1", asking);
        let TypedAnswer::Answer(answer) = questions.answer("/cancel").unwrap() else {
            panic!("a refusal is an answer")
        };
        assert_eq!(answer.cancelled, Some(true));
    }

    #[test]
    fn a_line_begun_as_an_answer_does_not_become_a_prompt() {
        let (asking, mut questions) = asked(true);
        questions.ask(&confirm("a"), "s1", asking);
        assert_eq!(questions.take_overtaken("green"), None, "the question still waits");
        questions.resolved("a", Some(InputOutcome::Answered), None, asking);
        let text = questions.take_overtaken("green").unwrap();
        let again = "type it again to send it as a prompt";
        assert_eq!(text, format!("not sent: \"green\" — the question was answered elsewhere; {again}\n"));
        assert_eq!(questions.take_overtaken("green"), None, "the second time it is meant");
        questions.ask(&confirm("b"), "s1", asking);
        questions.ask(&confirm("c"), "s1", asking);
        let text = questions.replace(&[confirm("c")], "s1", asking);
        assert!(text.starts_with("\nthe question was answered elsewhere"), "{text}");
        assert!(text.contains("Go c?"), "{text}");
        assert!(questions.take_overtaken("y").unwrap().contains("answer the next one"));
        questions.answer("y").unwrap();
        questions.resolved("c", Some(InputOutcome::Answered), None, asking);
        assert_eq!(questions.take_overtaken("next"), None, "we answered it ourselves");
        let (piped, mut elsewhere) = asked(false);
        elsewhere.ask(&confirm("d"), "s1", piped);
        elsewhere.resolved("d", Some(InputOutcome::Answered), None, piped);
        assert_eq!(elsewhere.take_overtaken("next"), None, "a pipe begins no line early");
    }
}
