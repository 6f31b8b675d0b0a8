//! Questions on a terminal's screen. They are read where the cursor rests, when output is quiet, and never from the
//! stream: a screen shows a question once, whole, however it was written.
//!
//! A question found wrongly holds nothing back, and goes away when the screen is looked at again. Until then somebody
//! may answer it, and what is typed goes to whatever the program does by then: before an answer is typed the screen has to
//! be looked at, if anything was written since.

mod menu;
mod rules;

use qd_wire::run::{AwaitingReason, ScreenChoice};

use rules::{LineKind, LineRule};

#[cfg(test)]
pub(super) use rules::check_data;

pub use rules::{QuestionRules, known_tools};

/// Longer prompts are cut at their beginning: the question itself comes last.
const PROMPT_CHARACTERS_MAX: usize = 200;

/// Lines above a question that belong to it: what it is about.
const CONTEXT_LINES_MAX: usize = 8;

/// Lines at the end of the screen in which a question of a full-screen program is looked for.
const BOTTOM_LINES_MAX: usize = 16;

/// What the upper edge of a box, or a rule, is made of.
const EDGES: [&str; 4] = ["───", "━━━", "═══", "╌╌╌"];

/// Something a program asks on its screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenQuestion {
    pub reason: AwaitingReason,
    /// What it says, at most 200 characters.
    pub prompt: String,
    pub request: ScreenRequest,
}

/// How it can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenRequest {
    /// Yes or no, with what is typed for each. `choices` is all of a menu that has more than these two.
    Permission { approve_text: String, deny_text: String, choices: Vec<ScreenChoice> },
    /// One of a menu.
    Choice { choices: Vec<ScreenChoice> },
    /// A text and Enter. A secret is not shown while it is typed.
    Text { secret: bool },
}

/// What is on the screen.
#[derive(Debug, Clone, Default)]
pub(super) struct ScreenView {
    pub(super) lines: Vec<String>,
    /// Whether each line goes on in the next.
    pub(super) wrapped: Vec<bool>,
    pub(super) cursor_row: usize,
    pub(super) cursor_col: usize,
    pub(super) is_cursor_hidden: bool,
    /// Arrow keys are sent in the other of their two forms.
    pub(super) has_application_keys: bool,
}

/// What the screen asks, if it asks.
pub(super) fn find(view: &ScreenView, rules: &QuestionRules, echo_off: bool) -> Option<ScreenQuestion> {
    bottom_question(view, rules).or_else(|| menu::find(view, rules)).or_else(|| {
        let line = CursorLine::of(view)?;
        line_question(view, rules, &line, echo_off)
    })
}

impl ScreenView {
    /// The last line that has anything on it.
    fn last_line(&self) -> Option<usize> {
        self.lines.iter().rposition(|line| !trim(line).is_empty())
    }

    /// The lines above `row` that belong to what stands there: up to the edge of its box, else up to the paragraph that
    /// asks, else the nearest one.
    fn context(&self, row: usize) -> Vec<String> {
        let (mut lines, mut paragraphs) = (Vec::new(), Vec::new());
        let mut is_boxed = false;
        for line in self.lines[..row].iter().rev() {
            let text = trim(line);
            if lines.len() == CONTEXT_LINES_MAX {
                break;
            } else if !text.is_empty() {
                lines.push(text.to_owned());
            } else if EDGES.iter().any(|edge| line.contains(edge)) {
                is_boxed = true;
                break;
            } else if !lines.is_empty() {
                paragraphs.push(lines.len());
            }
        }
        paragraphs.push(lines.len());
        if !is_boxed {
            let asks = |end: &&usize| lines[..**end].iter().any(|line| line.ends_with('?'));
            let end = paragraphs.iter().find(asks).or(paragraphs.first()).copied();
            lines.truncate(end.unwrap_or(0));
        }
        lines.reverse();
        lines
    }
}

/// The line the cursor rests on: nothing comes after it.
struct CursorLine {
    row: usize,
    text: String,
    /// It is empty or a mere prompt sign; the line above may be the question.
    is_sign: bool,
}

impl CursorLine {
    fn of(view: &ScreenView) -> Option<CursorLine> {
        let line = view.lines.get(view.cursor_row)?;
        let is_last = view.last_line().is_none_or(|last| last <= view.cursor_row);
        // What is right of the cursor was typed already, or the cursor rests elsewhere by chance.
        if !is_last || columns(line.trim_end()) > view.cursor_col || view.is_cursor_hidden {
            return None;
        }
        let mut row = view.cursor_row;
        let mut text = line.clone();
        while row > 0 && view.wrapped.get(row - 1) == Some(&true) {
            row -= 1;
            text.insert_str(0, &view.lines[row]);
        }
        let text = trim(&text).to_owned();
        let is_sign = matches!(text.as_str(), "" | ">" | "❯" | "›" | "»" | ":" | "?" | "->" | "=>" | ">>");
        Some(CursorLine { row, text, is_sign })
    }
}

fn line_question(
    view: &ScreenView,
    rules: &QuestionRules,
    line: &CursorLine,
    echo_off: bool,
) -> Option<ScreenQuestion> {
    if line.is_sign {
        // Only what is certain: an ordinary last line of output stands above the cursor too.
        let above = trim(view.lines.get(line.row.checked_sub(1)?)?).to_owned();
        let rule = rules.lines.iter().find(|rule| rule.above && rule.pattern.is_match(&above))?;
        return question_of(rule, prompt(vec![above]));
    }
    if echo_off && line.text.ends_with([':', '?', '>']) {
        let (reason, prompt) = (AwaitingReason::Prompt, prompt(vec![line.text.clone()]));
        return Some(ScreenQuestion { reason, prompt, request: ScreenRequest::Text { secret: true } });
    }
    let rule = rules.lines.iter().find(|rule| rule.pattern.is_match(&line.text))?;
    question_of(rule, prompt(vec![line.text.clone()]))
}

fn question_of(rule: &LineRule, prompt: String) -> Option<ScreenQuestion> {
    let permission = |reason, approve: &str, deny: &str| {
        let (approve_text, deny_text) = (approve.to_owned(), deny.to_owned());
        let choices = Vec::new();
        (reason, ScreenRequest::Permission { approve_text, deny_text, choices })
    };
    let (reason, request) = match rule.kind {
        LineKind::Permission => permission(AwaitingReason::Permission, &rule.approve, &rule.deny),
        LineKind::Enter => permission(AwaitingReason::Prompt, "\r", "\u{3}"),
        LineKind::Text => (AwaitingReason::Prompt, ScreenRequest::Text { secret: false }),
        LineKind::Secret => (AwaitingReason::Prompt, ScreenRequest::Text { secret: true }),
        LineKind::None => return None,
    };
    Some(ScreenQuestion { reason, prompt, request })
}

fn bottom_question(view: &ScreenView, rules: &QuestionRules) -> Option<ScreenQuestion> {
    let last = view.last_line()?;
    let first = (last + 1).saturating_sub(BOTTOM_LINES_MAX);
    let lines: Vec<String> = view.lines[first..=last].iter().map(|line| trim(line).to_owned()).collect();
    let text = lines.join("\n");
    let rule = rules.bottom.iter().find(|rule| rule.pattern.is_match(&text))?;
    let lines = lines.into_iter().filter(|line| !line.is_empty()).collect();
    Some(choice_question(rule.choices.clone(), prompt(lines)))
}

/// A menu is a permission where it has a yes and a no; else it is a choice.
fn choice_question(choices: Vec<ScreenChoice>, prompt: String) -> ScreenQuestion {
    let text = |is_meant: fn(&str) -> bool, from_end: bool| {
        let mut meant = choices.iter().filter(|choice| is_meant(&choice.label));
        let found = if from_end { meant.next_back() } else { meant.next() };
        found.map(|choice| choice.text.clone())
    };
    match (text(menu::is_yes, false), text(menu::is_no, true)) {
        (Some(approve_text), Some(deny_text)) => ScreenQuestion {
            reason: AwaitingReason::Permission,
            prompt,
            request: ScreenRequest::Permission { approve_text, deny_text, choices },
        },
        _ => ScreenQuestion {
            reason: AwaitingReason::Choice,
            prompt,
            request: ScreenRequest::Choice { choices },
        },
    }
}

/// Joins the lines; what is too long loses its beginning.
fn prompt(lines: Vec<String>) -> String {
    let text = lines.join("\n");
    let count = text.chars().count();
    if count <= PROMPT_CHARACTERS_MAX {
        return text;
    }
    let end: String = text.chars().skip(count + 1 - PROMPT_CHARACTERS_MAX).collect();
    format!("…{end}")
}

/// The line without spaces and the lines of boxes around it.
fn trim(line: &str) -> &str {
    line.trim_matches(|character: char| {
        character.is_whitespace() || ('\u{2500}'..='\u{259f}').contains(&character) || character == '|'
    })
}

/// How many columns the text takes, nearly: wide characters count as one, so that the cursor may stand after them.
fn columns(text: &str) -> usize {
    text.chars().count()
}
