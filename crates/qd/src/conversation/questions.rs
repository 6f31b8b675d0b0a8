//! The open questions of a session, in the order they came. Returns the texts to show.

use std::collections::VecDeque;

use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::input::InputOutcome;

use crate::approval;
use crate::output::Style;

/// How questions are put.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// A person sits here; else the way to answer from elsewhere is shown.
    pub(super) interactive: bool,
    pub(super) style: Style,
}

#[derive(Debug, Default)]
pub(super) struct Questions {
    open: VecDeque<InputRequest>,
    /// The last question answered here, whose end is no news.
    answered: Option<String>,
}

impl Questions {
    pub(super) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// A new question.
    pub(super) fn ask(&mut self, request: &InputRequest, session_id: &str, asking: Asking) -> String {
        if self.open.iter().any(|open| open.request_id() == request.request_id()) {
            return String::new();
        }
        self.open.push_back(request.clone());
        if !asking.interactive {
            return approval::show(request, asking.style) + &approval::how_to_answer(session_id, request);
        }
        if self.open.len() == 1 { self.put(asking) } else { String::new() }
    }

    /// All open questions, as the server knows them.
    pub(super) fn replace(&mut self, pending: &[InputRequest], session_id: &str, asking: Asking) -> String {
        self.open.retain(|open| pending.iter().any(|request| request.request_id() == open.request_id()));
        pending.iter().map(|request| self.ask(request, session_id, asking)).collect()
    }

    /// A question ended, here or elsewhere.
    pub(super) fn resolved(
        &mut self,
        request_id: &str,
        outcome: Option<InputOutcome>,
        asking: Asking,
    ) -> String {
        let was_first = self.open.front().is_some_and(|open| open.request_id() == request_id);
        let was_open = self.open.iter().any(|open| open.request_id() == request_id);
        self.open.retain(|open| open.request_id() != request_id);
        if self.answered.take_if(|answered| answered == request_id).is_some() {
            return if asking.interactive { self.put(asking) } else { String::new() };
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
        let mut text = format!("{}\n", asking.style.dim(&format!("the question {how}")));
        if asking.interactive && was_first {
            text.push_str(&self.put(asking));
        }
        text
    }

    /// The answer in a line typed at the first question; an error is a text to show.
    pub(super) fn answer(&mut self, line: &str) -> Result<InputResponseParams, String> {
        let Some(request) = self.open.front() else { return Err(String::new()) };
        let params = approval::typed_answer(request, line)
            .map_err(|problem| format!("{problem}\n[{}] ", approval::choices(request)))?;
        self.answered = Some(request.request_id().to_owned());
        self.open.pop_front();
        Ok(params)
    }

    /// The first question, with what may be typed.
    fn put(&self, asking: Asking) -> String {
        match self.open.front() {
            Some(request) => {
                format!("{}[{}] ", approval::show(request, asking.style), approval::choices(request))
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

    #[test]
    fn questions_are_put_one_after_the_other() {
        let asking = Asking { interactive: true, style: Style::PLAIN };
        let mut questions = Questions::default();
        let mut shown =
            vec![questions.ask(&confirm("a"), "s1", asking), questions.ask(&confirm("b"), "s1", asking)];
        shown.push(questions.answer("what").unwrap_err());
        assert_eq!(questions.answer("y").unwrap().confirmed, Some(true));
        shown.push(questions.resolved("a", Some(InputOutcome::Answered), asking));
        shown.push(questions.ask(&confirm("c"), "s1", asking));
        shown.push(questions.resolved("b", Some(InputOutcome::Answered), asking));
        insta::assert_snapshot!(shown.join("----\n"));
        assert!(questions.is_waiting());
    }
}
