//! An export as one HTML file that needs nothing else: no script, no address of others. Whatever an agent has written is
//! text in it.
//!
//! The page carries its own content security policy as well: the file is opened from a disk, where no server's header
//! protects it.

use std::fmt::{self, Write};

use qd_wire::data::SessionSummary;
use qd_wire::message::{KnownPart, Message, Part, Role};

use super::text::{elsewhere, facts, image, is_tricky, readable, speaker, time, title};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #777 }
@media (prefers-color-scheme: dark) { :root { --dim: #999 } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; color: var(--dim); font-size: .85rem }
dd { margin: 0; unicode-bidi: isolate }
article { border-top: 1px solid var(--line); padding: .75rem 0 }
article.user { background: var(--soft); padding: .75rem; border-radius: .4rem }
article > header { color: var(--dim); font-size: .85rem }
article > header b { color: CanvasText }
.text { white-space: pre-wrap; unicode-bidi: isolate; margin: .5rem 0 }
pre { background: var(--soft); padding: .6rem .75rem; border-radius: .4rem; overflow-x: auto; white-space: pre-wrap; font: .85rem/1.45 ui-monospace, monospace; unicode-bidi: isolate }
details { margin: .5rem 0 }
summary { cursor: pointer; color: var(--dim) }
.bad > summary { color: #c33 }
img { max-width: 100% }
.note { color: var(--dim); font-style: italic }
";
pub(super) const END: &str = "</main>\n</html>\n";
/// Of a tool's input in the line that is shown when it is folded.
const HINT_CHARS_MAX: usize = 120;

pub(super) fn head(session: &SessionSummary, exported_at: i64) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"Quarterdeck\">\n<title>",
    );
    // Writing to a String cannot fail, here and below.
    let title = Escaped(title(session));
    let _ = writeln!(out, "{title}</title>\n<style>{STYLE}</style>\n<main>\n<h1>{title}</h1>\n<dl>");
    for (name, value) in facts(session, exported_at) {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", Escaped(&value));
    }
    out.push_str("</dl>\n");
    out
}

pub(super) fn note(out: &mut String, text: &str) {
    let _ = writeln!(out, "<p class=\"note\">{}</p>", Escaped(text));
}

pub(super) fn message(out: &mut String, message: &Message) {
    let class = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "tool",
    };
    let (speaker, time) = (speaker(message), time(message.created_at));
    let _ = writeln!(out, "<article class=\"{class}\" id=\"m{}\">", message.idx);
    let _ = write!(out, "<header><b>{}</b> · {time}", Escaped(&speaker));
    if let Some(model) = &message.model {
        let _ = write!(out, " · {}", Escaped(model));
    }
    out.push_str("</header>\n");
    for each in &message.parts {
        part(out, each, message.is_error == Some(true));
    }
    out.push_str("</article>\n");
}

fn part(out: &mut String, part: &Part, is_error: bool) {
    let part = match part {
        Part::Known(part) => part,
        Part::Other(other) => {
            // A part that this version does not know is shown as it is, because an export must not lose anything.
            let text = serde_json::to_string_pretty(other).unwrap_or_default();
            return folded(out, &other.kind, &text, false);
        }
    };
    match part {
        KnownPart::Text { text, .. } => prose(out, text),
        KnownPart::Thinking { text, .. } => {
            out.push_str("<details>\n<summary>Thinking</summary>\n");
            prose(out, text);
            out.push_str("</details>\n");
        }
        KnownPart::ToolCall { name, input, .. } => {
            let text = input.as_ref().map(readable).unwrap_or_default();
            folded(out, &format!("{name} {}", hint(&text)), &text, false);
        }
        KnownPart::ToolResult { output, is_error: is_bad, .. } => {
            let text = output.as_ref().map(readable).unwrap_or_default();
            let is_bad = *is_bad || is_error;
            folded(out, if is_bad { "Failed" } else { "Result" }, &text, is_bad);
        }
        // Only images that are in the message: fetching one would tell its host who reads the file.
        KnownPart::Image { source, alt, .. } => match image(source) {
            Some((mime, data)) => {
                let alt = Escaped(alt.as_deref().unwrap_or("Image"));
                let _ = writeln!(out, "<p><img src=\"data:{mime};base64,{data}\" alt=\"{alt}\"></p>");
            }
            None => note(out, &elsewhere("Image", source)),
        },
        KnownPart::Audio { source, transcript, .. } => {
            note(out, &elsewhere("Sound", source));
            prose(out, transcript.as_deref().unwrap_or_default());
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

fn hint(text: &str) -> String {
    let words = text.split_whitespace().flat_map(|word| [word, " "]);
    words.flat_map(str::chars).take(HINT_CHARS_MAX).collect()
}

fn folded(out: &mut String, summary: &str, text: &str, is_bad: bool) {
    let class = if is_bad { " class=\"bad\"" } else { "" };
    let (summary, text) = (Escaped(summary), Escaped(text));
    let _ = write!(out, "<details{class}>\n<summary>{summary}</summary>\n<pre>{text}</pre>\n</details>\n");
}

/// Text as it is, with code between fences set apart.
fn prose(out: &mut String, text: &str) {
    let mut code: Option<(String, usize)> = None;
    let mut plain = String::new();
    for line in text.lines() {
        let fence = line.trim_start();
        let ticks = fence.len() - fence.trim_start_matches('`').len();
        match &mut code {
            // Backticks later in the same line make it inline code, which opens no block.
            None if ticks >= 3 && !fence[ticks..].contains('`') => {
                paragraph(out, &plain);
                plain.clear();
                code = Some((String::new(), ticks));
            }
            // Only a fence at least as long as the one that opened the block closes it, as in Markdown.
            Some((kept, opened)) if ticks >= *opened && fence.trim_end().len() == ticks => {
                block(out, kept);
                code = None;
            }
            Some((kept, _)) => {
                kept.push_str(line);
                kept.push('\n');
            }
            None => {
                plain.push_str(line);
                plain.push('\n');
            }
        }
    }
    // A fence that is never closed holds the rest.
    match code {
        Some((kept, _)) => block(out, &kept),
        None => paragraph(out, &plain),
    }
}

fn paragraph(out: &mut String, text: &str) {
    let text = text.trim_matches('\n');
    if !text.is_empty() {
        let _ = writeln!(out, "<div class=\"text\">{}</div>", Escaped(text));
    }
}

fn block(out: &mut String, text: &str) {
    let _ = writeln!(out, "<pre>{}</pre>", Escaped(text.trim_end_matches('\n')));
}

/// Text that is only ever text, within an element or a quoted attribute. What would be invisible is shown.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' | '\t' => out.write_char(letter)?,
                '\r' => {}
                // Letters that turn the direction of text can make code look like other code.
                _ if is_tricky(letter) => write!(out, "[U+{:04X}]", u32::from(letter))?,
                _ if letter.is_control() => out.write_char('\u{fffd}')?,
                _ => out.write_char(letter)?,
            }
        }
        Ok(())
    }
}
