//! Menus: numbered choices, or choices with a mark before one of them.
//!
//! Programs draw menus in many ways, and a false one would put a question before a person that nobody asked. So a
//! menu counts only near the end of the screen, and only with a mark or where the cursor's line asks for a number.

use qd_wire::run::ScreenChoice;

use super::rules::{MenuAnswer, QuestionRules};
use super::{ScreenQuestion, ScreenView, choice_question, prompt, trim};

/// Signs before the choice that Enter takes.
const MARKS: [char; 9] = ['❯', '›', '▶', '▸', '→', '➤', '●', '◉', '»'];

/// These begin ordinary lines too, so that they count only before a number.
const WEAK_MARKS: [char; 2] = ['>', '*'];

/// Lines below a menu: hints, the edge of a box, an input line.
const LINES_BELOW_MAX: usize = 6;

/// Lines one choice may go on.
const LABEL_LINES_MAX: usize = 3;

/// A menu with more is a list.
const CHOICES_MAX: usize = 20;

/// One line of the menu.
struct MenuEntry {
    row: usize,
    number: Option<u32>,
    is_marked: bool,
    /// Where its text begins.
    column: usize,
    label: String,
}

/// The menu at the end of the screen, if there is one.
pub(super) fn find(view: &ScreenView, rules: &QuestionRules) -> Option<ScreenQuestion> {
    let last = view.last_line()?;
    numbered(view, rules, last).or_else(|| marked(view, last))
}

/// `1. Yes`, `2. No`… with a mark at one of them, or asked for on the line of the cursor.
fn numbered(view: &ScreenView, rules: &QuestionRules, last: usize) -> Option<ScreenQuestion> {
    let entries = numbered_entries(view, last)?;
    let (first, end) = (entries.first()?.row, entries.last()?.row);
    let mark = entries.iter().position(|entry| entry.is_marked);
    let is_asked = view.cursor_row > end
        && !view.is_cursor_hidden
        && last <= view.cursor_row
        && asks_for_number(trim(view.lines.get(view.cursor_row)?));
    let keys = match mark {
        Some(_) => rules.marked,
        None if is_asked => MenuAnswer::DigitEnter,
        None => return None,
    };
    let choices = (0..entries.len()).map(|index| ScreenChoice {
        label: label(&entries, index),
        text: match (keys, entries[index].number) {
            (MenuAnswer::Digit, Some(number)) => number.to_string(),
            (MenuAnswer::DigitEnter, Some(number)) => format!("{number}\n"),
            _ => move_mark(view, mark.unwrap_or(0), index),
        },
    });
    Some(choice_question(choices.collect(), prompt(view.context(first))))
}

/// The numbers 1, 2, 3… from the last one upwards, near the end of the screen.
fn numbered_entries(view: &ScreenView, last: usize) -> Option<Vec<MenuEntry>> {
    let mut entries: Vec<MenuEntry> = Vec::new();
    for row in (0..=last).rev() {
        let below = entries.last().map_or(last, |entry| entry.row);
        let next = entries.last().and_then(|entry| entry.number);
        let is_next = |number: u32| next.is_none_or(|next| number + 1 == next);
        match entry(row, &view.lines[row]).filter(|entry| entry.number.is_some_and(is_next)) {
            Some(entry) => {
                let is_first = entry.number == Some(1);
                entries.push(entry);
                if is_first {
                    break;
                }
            }
            None if entries.is_empty() && below - row >= LINES_BELOW_MAX => return None,
            None if !entries.is_empty() && below - row >= LABEL_LINES_MAX => return None,
            None => {}
        }
    }
    entries.reverse();
    let is_menu = (2..=CHOICES_MAX).contains(&entries.len()) && entries[0].number == Some(1);
    is_menu.then_some(entries)
}

/// `❯ Yes`, `  No`: choices under each other, one of them marked, below a question.
fn marked(view: &ScreenView, last: usize) -> Option<ScreenQuestion> {
    let from = last.saturating_sub(CHOICES_MAX + LINES_BELOW_MAX);
    let is_marked = |row: &usize| {
        entry(*row, &view.lines[*row]).is_some_and(|entry| entry.is_marked && entry.number.is_none())
    };
    let marked_row = (from..=last).rev().find(is_marked)?;
    let column = entry(marked_row, &view.lines[marked_row])?.column;
    let is_choice = |row: &usize| {
        let line = &view.lines[*row];
        *row == marked_row || !trim(line).is_empty() && first_column(line) == Some(column)
    };
    let first = (from..=marked_row).rev().take_while(is_choice).last()?;
    let end = (marked_row..=last).take_while(is_choice).last()?;
    let context = view.context(first);
    let is_question = context.last().is_some_and(|line| line.ends_with(['?', ':']) || line.starts_with('?'));
    let is_menu = (2..=CHOICES_MAX).contains(&(end - first + 1)) && last - end <= LINES_BELOW_MAX;
    if !is_question || !is_menu {
        return None;
    }
    let choices = (first..=end).map(|row| ScreenChoice {
        label: entry(row, &view.lines[row]).map_or_else(String::new, |entry| entry.label),
        text: move_mark(view, marked_row - first, row - first),
    });
    let choices: Vec<ScreenChoice> = choices.collect();
    let mut labels: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    let are_apart = labels.len() == choices.len();
    are_apart.then(|| choice_question(choices, prompt(context)))
}

/// Reads one line as a choice.
fn entry(row: usize, line: &str) -> Option<MenuEntry> {
    let text = trim(line);
    let strong = text.strip_prefix(MARKS).map(str::trim_start);
    let weak = text.strip_prefix(WEAK_MARKS).map(str::trim_start).filter(|rest| number(rest).is_some());
    let is_marked = strong.or(weak).is_some();
    let rest = strong.or(weak).unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    // The text of a marked line begins after the mark; the others stand below it.
    let column = line.find(rest).map(|at| line[..at].chars().count())?;
    let (number, label) = match number(rest) {
        Some((number, label)) => (Some(number), label),
        None => (None, rest),
    };
    Some(MenuEntry { row, number, is_marked, column, label: label.to_owned() })
}

/// `12. Text` or `12) Text`.
fn number(text: &str) -> Option<(u32, &str)> {
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let number = text[..digits].parse().ok().filter(|_| digits <= 2)?;
    let label = text[digits..].strip_prefix(['.', ')'])?;
    let label = label.strip_prefix(' ')?.trim();
    (!label.is_empty()).then_some((number, label))
}

fn first_column(line: &str) -> Option<usize> {
    let text = trim(line);
    line.find(text).map(|at| line[..at].chars().count())
}

/// Two choices may read the same; then their numbers tell them apart.
fn label(entries: &[MenuEntry], index: usize) -> String {
    let entry = &entries[index];
    let is_alone = entries.iter().filter(|other| other.label == entry.label).count() == 1;
    match entry.number {
        Some(number) if !is_alone => format!("{number}. {}", entry.label),
        _ => entry.label.clone(),
    }
}

fn move_mark(view: &ScreenView, from: usize, to: usize) -> String {
    let (up, down) = if view.has_application_keys { ("\x1bOA", "\x1bOB") } else { ("\x1b[A", "\x1b[B") };
    let moves = if to < from { up.repeat(from - to) } else { down.repeat(to - from) };
    format!("{moves}\r")
}

/// Whether the line of the cursor waits for one of the numbers.
fn asks_for_number(line: &str) -> bool {
    const WORDS: [&str; 9] =
        ["choice", "choose", "select", "number", "option", "pick", "enter", "which", "selection"];
    let lower = line.to_lowercase();
    let is_sign = matches!(line, ">" | "#?" | "?" | ":" | "❯" | "›");
    is_sign || line.ends_with([':', '?', '>', ']']) && WORDS.iter().any(|word| lower.contains(word))
}

/// Whether the label says yes.
pub(super) fn is_yes(label: &str) -> bool {
    const WORDS: [&str; 11] =
        ["yes", "allow", "approve", "accept", "proceed", "ok", "okay", "continue", "run", "trust", "confirm"];
    begins_with(label, &WORDS)
}

/// Whether the label says no.
pub(super) fn is_no(label: &str) -> bool {
    const WORDS: [&str; 11] =
        ["no", "deny", "reject", "cancel", "decline", "abort", "exit", "quit", "don't", "refuse", "stop"];
    begins_with(label, &WORDS)
}

fn begins_with(label: &str, words: &[&str]) -> bool {
    let first = label.split(|character: char| !character.is_alphabetic() && character != '\'').next();
    first.is_some_and(|first| words.iter().any(|word| first.eq_ignore_ascii_case(word)))
}
