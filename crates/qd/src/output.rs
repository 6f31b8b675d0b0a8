//! Where text goes: stdout for results, stderr for errors and notes; colours on a terminal only.
//!
//! Commands that print `--json` keep stdout to JSON alone, also when something fails: notes and questions go to
//! stderr.

pub(crate) mod render;
pub(crate) mod table;

use std::io::{self, IsTerminal, Write};

use qd_link::client::Frame;
use qd_wire::EventEnvelope;
use serde::Serialize;

use crate::error::{CliError, Result};
use crate::process_memory::wipe;
use crate::settings::Environment;
use render::Renderer;

/// A method of `Style` for each name, with the number that terminals know it by.
macro_rules! styles {
    ($($name:ident $code:literal),*) => { $(
        pub(crate) fn $name(self, text: &str) -> String {
            self.wrap($code, text)
        }
    )* };
}

/// Colours and weights, or nothing of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    pub(crate) const PLAIN: Style = Style { colour: false };
    #[cfg(test)]
    pub(crate) const COLOUR: Style = Style { colour: true };

    styles! { dim "2", bold "1", red "31", green "32", yellow "33" }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The two streams of the process.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) json: bool,
    /// For stdout.
    pub(crate) style: Style,
    /// For stderr.
    pub(crate) error_style: Style,
}

impl Output {
    /// Colours on each stream that is a terminal and wants them.
    pub(crate) fn new(json: bool, environment: &Environment) -> Output {
        let wanted = environment.get("NO_COLOR").is_none() && environment.get("TERM") != Some("dumb");
        let style = |is_terminal: bool| Style { colour: wanted && !json && is_terminal };
        Output {
            json,
            style: style(io::stdout().is_terminal()),
            error_style: style(io::stderr().is_terminal()),
        }
    }

    /// A renderer in the colours of the two streams.
    pub(crate) fn renderer(&self) -> Renderer {
        Renderer::new(self.style).error_style(self.error_style)
    }

    /// Writes what was rendered; with `--json` nobody reads it.
    pub(crate) fn rendered(&self, renderer: &mut Renderer) -> Result<()> {
        let rendered = renderer.take();
        if self.json {
            return Ok(());
        }
        if !rendered.out.is_empty() {
            self.out(&rendered.out)?;
        }
        if !rendered.err.is_empty() {
            self.note(&rendered.err);
        }
        Ok(())
    }

    /// Writes an event as one line: as the server sent it, where that is what happened.
    pub(crate) fn event_line(&self, event: &EventEnvelope, frame: Option<&Frame>) -> Result<()> {
        match frame {
            Some(frame) => self.out(&format!("{}\n", frame.text())),
            None => self.json_line(event),
        }
    }

    /// Writes a result and shows it at once.
    pub(crate) fn out(&self, text: &str) -> Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Writes a note or an error. A closed stderr is not worth dying for.
    pub(crate) fn note(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        // There is nobody left to tell.
        let _unheard = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// Writes a value: as JSON, or as the text it makes.
    pub(crate) fn show<T: Serialize + ?Sized>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        if self.json { self.json_line(value) } else { self.out(&text(value)) }
    }

    /// Says that something was done: the answer as JSON, or a sentence.
    pub(crate) fn report(&self, answer: &impl Serialize, sentence: &str) -> Result<()> {
        self.show(answer, |_| format!("{}\n", harmless(sentence)))
    }

    /// Writes a list: as JSON, or as the text it makes; of an empty one a note says what to do.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        empty: &str,
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<()> {
        if items.is_empty() && !self.json {
            self.note(empty);
            return Ok(());
        }
        self.show(items, text)
    }

    /// Writes one JSON value as one line.
    pub(crate) fn json_line(&self, value: &(impl Serialize + ?Sized)) -> Result<()> {
        let mut line = serde_json::to_string(value).map_err(|error| CliError::failed(error.to_string()))?;
        line.push('\n');
        self.out(&line)
    }

    /// The same for a value with a secret in it, which must not stay in memory.
    pub(crate) fn secret_json_line(&self, value: &impl Serialize) -> Result<()> {
        // With room for all of it: a text that grows leaves what it had in memory that is free again.
        let mut line = Vec::with_capacity(SECRET_LINE_BYTES);
        let written = serde_json::to_writer(&mut line, value).map_err(io::Error::from).and_then(|()| {
            line.push(b'\n');
            let mut stdout = io::stdout().lock();
            stdout.write_all(&line)?;
            stdout.flush()
        });
        wipe(line);
        Ok(written?)
    }
}

/// More than a line with a secret has.
const SECRET_LINE_BYTES: usize = 4096;

/// Text of others made harmless for a terminal: control characters cannot move the cursor or change its title, and
/// text does not run in another direction than it is read.
pub(crate) fn harmless(text: &str) -> String {
    let safe = |character: char| match character {
        '\n' | '\t' => character,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    text.replace("\r\n", "\n").chars().map(safe).collect()
}

/// The first line, cut to `characters_max`.
pub(crate) fn one_line(text: &str, characters_max: usize) -> String {
    let text = harmless(text);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let cut = lines.next().is_some() || first.chars().count() > characters_max;
    let mut line: String = first.chars().take(characters_max).collect();
    if cut {
        line.push('…');
    }
    line
}

/// A duration as people say it.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..60_000 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// How long ago something was, in one unit.
pub(crate) fn age(now_ms: i64, then_ms: i64) -> String {
    let seconds = (now_ms - then_ms).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The same as people say it; `never` for what has not been.
pub(crate) fn ago(now_ms: i64, then_ms: impl Into<Option<i64>>) -> String {
    then_ms.into().map_or_else(|| "never".to_owned(), |then_ms| format!("{} ago", age(now_ms, then_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}]0;x\u{7}b\r\nc\td"), "a\u{fffd}]0;x\u{fffd}b\nc\td");
        assert_eq!(harmless("a\u{202e}b\u{2069}c\u{9b}2Jd"), "a\u{fffd}b\u{fffd}c\u{fffd}2Jd");
        assert_eq!(one_line("\n  first line \nsecond", 20), "first line…");
        assert_eq!(one_line("abcdef", 3), "abc…");
    }

    #[test]
    fn times_are_short() {
        let spoken: Vec<_> = [7, 1250, 61_000, 3_700_000].map(duration).into_iter().collect();
        assert_eq!(spoken, ["7 ms", "1.2 s", "1 min 1 s", "1 h 1 min"]);
        let ages: Vec<_> =
            [0, 59_000, 60_000, 7_200_000, 200_000_000].map(|now| age(now, 0)).into_iter().collect();
        assert_eq!(ages, ["0s", "59s", "1m", "2h", "2d"]);
    }
}
