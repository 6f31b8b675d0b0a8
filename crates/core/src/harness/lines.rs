//! Bytes to lines: `\n` ends a line and nothing else does (U+2028 occurs raw inside JSON strings).

/// Cuts a byte stream into lines, whatever the chunks were. A line that is whole within one chunk is not copied.
#[derive(Debug)]
pub struct LineSplitter {
    partial: Vec<u8>,
    line_bytes_max: usize,
    /// Bytes of the current line thrown away because it is over the bound.
    dropped: u64,
}

/// How much of a line that is too long is shown in the error.
pub const PREVIEW_BYTES_MAX: usize = 200;

#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Without its `\n` and without a `\r` before it.
    Whole(&'a [u8]),
    /// Longer than the bound; the rest of it was dropped.
    TooLong { bytes: u64, preview: String },
}

impl LineSplitter {
    /// No line longer than `line_bytes_max` is kept in memory.
    pub fn new(line_bytes_max: usize) -> Self {
        LineSplitter { partial: Vec::new(), line_bytes_max, dropped: 0 }
    }

    /// Takes the next bytes and hands out every line they complete.
    pub fn push(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (head, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            if self.partial.is_empty() && self.dropped == 0 && head.len() <= self.line_bytes_max {
                each(Line::Whole(without_carriage_return(head)));
            } else {
                self.keep(head);
                self.hand_out(&mut each);
            }
        }
        self.keep(rest);
    }

    /// The stream ended: hands out a last line that has no `\n`.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.partial.is_empty() {
            self.hand_out(&mut each);
        }
    }

    /// Bytes waiting for the end of their line.
    pub fn pending_bytes(&self) -> usize {
        self.partial.len()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.line_bytes_max.saturating_sub(self.partial.len());
        let kept = bytes.len().min(room);
        self.partial.extend_from_slice(bytes.get(..kept).unwrap_or_default());
        self.dropped += (bytes.len() - kept) as u64;
    }

    fn hand_out(&mut self, each: &mut impl FnMut(Line<'_>)) {
        if self.dropped == 0 {
            each(Line::Whole(without_carriage_return(&self.partial)));
        } else {
            let bytes = self.partial.len() as u64 + self.dropped;
            each(Line::TooLong { bytes, preview: preview(&self.partial) });
        }
        // One huge line must not pin its memory for the life of the session.
        if self.partial.capacity() > KEPT_CAPACITY_MAX {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
        }
        self.dropped = 0;
    }
}

const KEPT_CAPACITY_MAX: usize = 256 * 1024;

/// The beginning of a line, readable.
pub(crate) fn preview(line: &[u8]) -> String {
    let head = line.get(..PREVIEW_BYTES_MAX).unwrap_or(line);
    String::from_utf8_lossy(head).into_owned()
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]], max: usize) -> Vec<String> {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        let mut each = |line: Line<'_>| match line {
            Line::Whole(bytes) => lines.push(String::from_utf8_lossy(bytes).into_owned()),
            Line::TooLong { bytes, .. } => lines.push(format!("too long: {bytes}")),
        };
        for chunk in chunks {
            splitter.push(chunk, &mut each);
        }
        splitter.finish(&mut each);
        lines
    }

    #[test]
    fn only_newline_ends_a_line() {
        assert_eq!(lines_of(&["a\u{2028}b\r\nc".as_bytes(), b"d\n\ne"], 100), ["a\u{2028}b", "cd", "", "e"]);
    }

    #[test]
    fn a_long_line_is_dropped_and_the_next_is_read() {
        assert_eq!(
            lines_of(&[b"01234", b"56789\nok\n", b"0123456789\n"], 6),
            ["too long: 10", "ok", "too long: 10"]
        );
    }
}
