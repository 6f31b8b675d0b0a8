//! An export as Markdown: what people and agents wrote as they wrote it, what tools did between fences.

use std::fmt::Write;

use qd_wire::data::SessionSummary;
use qd_wire::message::{KnownPart, Message, Part};

use super::text::{elsewhere, facts, readable, speaker, time, title};

pub(super) fn head(session: &SessionSummary, exported_at: i64) -> String {
    let mut out = format!("# {}\n\n", one_line(title(session)));
    for (name, value) in facts(session, exported_at) {
        let _ = writeln!(out, "- {name}: {}", one_line(&value));
    }
    out
}

pub(super) fn note(out: &mut String, text: &str) {
    let _ = write!(out, "\n_{}_\n", one_line(text));
}

pub(super) fn message(out: &mut String, message: &Message) {
    let _ = write!(out, "\n## {} · {}", one_line(&speaker(message)), time(message.created_at));
    if let Some(model) = &message.model {
        let _ = write!(out, " · {}", one_line(model));
    }
    out.push('\n');
    for each in &message.parts {
        part(out, each, message.is_error == Some(true));
    }
}

fn part(out: &mut String, part: &Part, is_error: bool) {
    let part = match part {
        Part::Known(part) => part,
        Part::Other(other) => {
            // A part that this version does not know is shown as it is, because an export must not lose anything.
            let text = serde_json::to_string_pretty(other).unwrap_or_default();
            return fenced(out, &other.kind, &text);
        }
    };
    match part {
        KnownPart::Text { text, .. } => {
            out.push('\n');
            push_text(out, text);
            out.push('\n');
        }
        KnownPart::Thinking { text, .. } => {
            out.push_str("\n> _Thinking_\n>\n");
            for line in text.lines() {
                out.push_str("> ");
                push_text(out, line);
                out.push('\n');
            }
        }
        KnownPart::ToolCall { name, input, .. } => {
            fenced(out, name, &input.as_ref().map(readable).unwrap_or_default());
        }
        KnownPart::ToolResult { output, is_error: is_bad, .. } => {
            let heading = if *is_bad || is_error { "Failed" } else { "Result" };
            fenced(out, heading, &output.as_ref().map(readable).unwrap_or_default());
        }
        KnownPart::Image { source, alt, .. } => {
            note(out, &elsewhere(alt.as_deref().unwrap_or("Image"), source));
        }
        KnownPart::Audio { source, transcript, .. } => {
            note(out, &elsewhere("Sound", source));
            if let Some(transcript) = transcript {
                out.push('\n');
                push_text(out, transcript);
                out.push('\n');
            }
        }
        KnownPart::Video { source, .. } => note(out, &elsewhere("Video", source)),
        KnownPart::FileRef { uri, label, .. } => {
            note(out, &format!("File: {}", label.as_deref().unwrap_or(uri)));
        }
        KnownPart::Attachment { source, filename, .. } => {
            note(out, &elsewhere(filename.as_deref().unwrap_or("Attachment"), source));
        }
    }
}

/// A block that nothing in it can end: its fence is longer than any there.
fn fenced(out: &mut String, heading: &str, text: &str) {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(out, "\n**{}**\n\n{fence}\n", one_line(heading));
    push_text(out, text.trim_end_matches('\n'));
    let _ = writeln!(out, "\n{fence}");
}

/// Control characters go: a terminal that prints the file must not obey escape sequences of an agent.
fn push_text(out: &mut String, text: &str) {
    out.extend(text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')));
}

/// Headings and list items end at a line break, so text that somebody else chose is joined before it goes into one.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|letter| !letter.is_control()).collect()
}
