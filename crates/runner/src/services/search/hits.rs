//! Lines that matched.
//!
//! A line can be megabytes long, so what is told of it is a window around the hit.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkFinish, SinkMatch};

/// Characters of a line that are told.
const TEXT_CHARACTERS_MAX: usize = 400;

/// Of those, the ones before the hit.
const CHARACTERS_BEFORE: usize = 100;

pub(super) struct SearchHit {
    pub(super) line: u64,
    pub(super) column: u64,
    pub(super) text: String,
}

/// Collects the hits of one file, up to a number.
pub(super) struct HitCollector<'a> {
    matcher: &'a RegexMatcher,
    /// Lines up to this one were told before.
    after: u64,
    room: usize,
    found: Vec<SearchHit>,
    is_binary: bool,
}

impl<'a> HitCollector<'a> {
    pub(super) fn new(matcher: &'a RegexMatcher, after: u64, room: usize) -> Self {
        HitCollector { matcher, after, room, found: Vec::new(), is_binary: false }
    }

    /// Nothing if the file turned out to be no text.
    pub(super) fn into_found(self) -> Vec<SearchHit> {
        if self.is_binary { Vec::new() } else { self.found }
    }
}

impl Sink for HitCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let line = found.line_number().unwrap_or_default();
        if line <= self.after {
            return Ok(true);
        }
        let bytes = found.bytes();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let at = self.matcher.find(bytes).map_err(io::Error::other)?.map_or(0, |found| found.start());
        let (column, text) = cut(bytes, at);
        self.found.push(SearchHit { line, column, text });
        Ok(self.found.len() < self.room)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary |= finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Which character the hit begins with, from 1, and the line, or what is around the hit.
fn cut(line: &[u8], at: usize) -> (u64, String) {
    let (before, rest) = line.split_at_checked(at).unwrap_or((line, &[]));
    let before = String::from_utf8_lossy(before);
    let rest = String::from_utf8_lossy(rest);
    let count = before.chars().count();
    let column = count as u64 + 1;
    let total = count + rest.chars().count();
    if total <= TEXT_CHARACTERS_MAX {
        return (column, format!("{before}{rest}"));
    }
    let skipped = count.saturating_sub(CHARACTERS_BEFORE);
    let kept = before.chars().chain(rest.chars()).skip(skipped).take(TEXT_CHARACTERS_MAX);
    let mut text = String::new();
    if skipped > 0 {
        text.push('…');
    }
    text.extend(kept);
    if skipped + TEXT_CHARACTERS_MAX < total {
        text.push('…');
    }
    (column, text)
}
