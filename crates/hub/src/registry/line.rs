//! What lists show of a session, folded from its records as they are stored. The store has the same, but for what is
//! of now only.

use std::sync::{MutexGuard, PoisonError};

use qd_store::{HubSession, SessionPatch, Totals};
use qd_wire::InputRequest;
use qd_wire::data::SessionSummary;
use qd_wire::event::AgentPhase;
use serde::Deserialize;

use super::{Hub, SessionEntry};

/// Questions whose titles are kept of one session.
const QUESTIONS_MAX: usize = 64;

/// What lists show of a question.
const TITLE_CHARACTERS_MAX: usize = 200;

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Question {
    pub(crate) request_id: String,
    #[serde(default)]
    pub(crate) title: String,
}

impl From<&InputRequest> for Question {
    fn from(request: &InputRequest) -> Self {
        Question { request_id: request.request_id().to_owned(), title: request.title().to_owned() }
    }
}

/// A session's line in lists.
#[derive(Default)]
pub(crate) struct SessionLine {
    /// The row in the store, without what changes with every record.
    row: HubSession,
    phase: Option<AgentPhase>,
    working_since: Option<i64>,
    /// The oldest first.
    questions: Vec<Question>,
}

impl SessionLine {
    /// The store has a row for it.
    pub(crate) fn learn(&mut self, row: &HubSession) {
        self.row = row.clone();
    }

    /// The store has changed its row. True if that shows: who it is and how it stands is told by others.
    pub(crate) fn patch(&mut self, patch: &SessionPatch) -> bool {
        fn set(field: &mut Option<String>, value: Option<&String>) -> bool {
            let Some(value) = value else { return false };
            let value = Some(value.clone()).filter(|value| !value.is_empty());
            let is_news = *field != value;
            *field = value;
            is_news
        }
        let row = &mut self.row;
        let mut is_news = set(&mut row.title, patch.title.as_ref());
        is_news |= set(&mut row.model, patch.model.as_ref());
        is_news |= set(&mut row.provider, patch.provider.as_ref());
        is_news |= set(&mut row.branch, patch.branch.as_ref());
        is_news |= set(&mut row.error, patch.error.as_ref());
        is_news |= set(&mut row.run_tool, patch.run_tool.as_ref());
        if let Some(harness) = &patch.harness {
            row.harness.clone_from(harness);
        }
        if let Some(cwd) = &patch.cwd {
            row.cwd.clone_from(cwd);
        }
        is_news
    }

    /// The agent works. True if that is news.
    pub(crate) fn work(&mut self, phase: Option<AgentPhase>, now: i64) -> bool {
        let is_news = self.working_since.is_none() || self.phase != phase;
        self.working_since.get_or_insert(now);
        self.phase = phase;
        is_news
    }

    /// The agent does not work.
    pub(crate) fn rest(&mut self) {
        self.working_since = None;
        self.phase = None;
    }

    /// Its last message; an empty text for none.
    pub(crate) fn say(&mut self, text: Option<&str>, count: u64) {
        if let Some(text) = text {
            self.row.last_text = Some(text.to_owned()).filter(|text| !text.is_empty());
        }
        self.row.message_count = count;
    }

    pub(crate) fn set_totals(&mut self, totals: Totals) {
        self.row.totals = totals;
    }
}

impl SessionEntry {
    /// What lists show of it; held for a moment only.
    pub(crate) fn line(&self) -> MutexGuard<'_, SessionLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The questions that wait, the oldest first.
    pub(crate) fn set_questions(&self, questions: Vec<Question>) {
        self.set_pending_inputs(questions.len());
        let mut line = self.line();
        line.questions = questions;
        line.questions.truncate(QUESTIONS_MAX);
    }

    /// One more question waits.
    pub(crate) fn add_question(&self, question: &Question) {
        self.change_pending_inputs(true);
        let mut line = self.line();
        if line.questions.len() < QUESTIONS_MAX {
            line.questions.push(question.clone());
        }
    }

    /// A question waits no more.
    pub(crate) fn remove_question(&self, request_id: &str) {
        self.change_pending_inputs(false);
        self.line().questions.retain(|question| question.request_id != request_id);
    }

    /// Its line in lists as the hub knows it without its store.
    pub(crate) fn summary(&self, is_away: bool) -> SessionSummary {
        let line = self.line();
        let row = HubSession {
            session_id: self.id.to_string(),
            runner_id: self.runner_id.to_string(),
            updated_at: self.last_activity(),
            last_seq: self.committed_seq(),
            ..line.row.clone()
        };
        let mut summary = of_row(row);
        drop(line);
        self.show_now(&mut summary, is_away);
        summary
    }

    /// Completes a line with what is of now only.
    fn show_now(&self, summary: &mut SessionSummary, is_away: bool) {
        let line = self.line();
        let state = if is_away { "offline" } else { self.status().as_str() };
        state.clone_into(&mut summary.state);
        summary.subscriber_count = self.ring.subscriber_count() as u64;
        summary.pending_input_count = u64::from(self.pending_inputs());
        let oldest = line.questions.first().filter(|_| summary.pending_input_count > 0);
        summary.pending_title = oldest.map(|question| one_line(&question.title, TITLE_CHARACTERS_MAX));
        if !is_away {
            summary.phase = line.phase;
            summary.working_since = line.working_since;
        }
    }
}

impl Hub {
    /// A row of the store as a line, with what is known of now.
    pub(crate) fn summary(&self, row: HubSession) -> SessionSummary {
        let is_away = self.is_away(&row.runner_id);
        let mut summary = of_row(row);
        match self.session(&summary.session_id) {
            Some(entry) => entry.show_now(&mut summary, is_away),
            None if is_away => summary.state = "offline".to_owned(),
            None => {}
        }
        summary
    }
}

fn of_row(row: HubSession) -> SessionSummary {
    SessionSummary {
        session_id: row.session_id,
        runner_id: row.runner_id,
        harness: row.harness,
        state: row.state,
        cwd: (!row.cwd.is_empty()).then_some(row.cwd),
        title: row.title,
        provider: row.provider,
        model: row.model,
        created_at: row.created_at,
        last_activity: row.updated_at,
        seq: row.last_seq,
        message_count: row.message_count,
        branch: row.branch,
        last_text: row.last_text.map(|text| one_line(&text, usize::MAX)),
        tokens: u64::try_from(row.totals.tokens).ok().filter(|tokens| *tokens > 0),
        cost_usd: Some(row.totals.cost_usd).filter(|cost| *cost > 0.0),
        error: row.error,
        run_tool: row.run_tool,
        ..SessionSummary::default()
    }
}

/// The beginning of a text on one line, without what could disturb it: control characters, and those that turn the
/// direction of writing.
pub(crate) fn one_line(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        let word = word.chars().filter(|character| !is_disturbing(*character));
        let mut is_first = true;
        for character in word {
            if count + 1 >= characters_max {
                line.push('…');
                return line;
            }
            if std::mem::take(&mut is_first) && !line.is_empty() {
                line.push(' ');
                count += 1;
            }
            line.push(character);
            count += 1;
        }
    }
    line
}

fn is_disturbing(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_one_harmless_line() {
        assert_eq!(one_line(" a\n\tb\u{1b}[31mc\u{202e}d ", 200), "a b [31mcd");
        assert_eq!(one_line("\u{0}\n", 200), "");
        let long = one_line(&"word ".repeat(100), 200);
        assert!(long.chars().count() <= 200 && long.ends_with('…'), "{long}");
        assert_eq!(one_line("exactly", 8), "exactly");
    }

    #[test]
    fn a_line_is_folded() {
        let mut line = SessionLine::default();
        let patch =
            SessionPatch { branch: Some("main".into()), error: Some(String::new()), ..Default::default() };
        assert!(line.patch(&patch) && !line.patch(&patch));
        assert!(line.work(Some(AgentPhase::Thinking), 5) && line.work(Some(AgentPhase::Generating), 6));
        assert!(!line.work(Some(AgentPhase::Generating), 7));
        assert_eq!(line.working_since, Some(5));
        line.say(Some("hello"), 1);
        line.say(None, 2);
        assert_eq!((line.row.last_text.as_deref(), line.row.message_count), (Some("hello"), 2));
        line.say(Some(""), 0);
        assert_eq!(line.row.last_text, None);
    }
}
