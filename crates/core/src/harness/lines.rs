//! Cuts a byte stream into strict JSON lines: `\n` ends a line and nothing else does.

/// The longest line accepted by default.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A buffer larger than this is given back once its line was delivered.
const PARTIAL_KEPT_BYTES_MAX: usize = 4 * 1024;

/// A line was longer than the bound. It was skipped to its end; the next line is intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTooLong {
    /// Bytes of the whole line, without its `\n`.
    pub length: u64,
    /// The bound it broke.
    pub max: usize,
}

impl std::fmt::Display for LineTooLong {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LineTooLong { length, max } = self;
        write!(formatter, "a line of {length} bytes is longer than the {max} allowed and was skipped")
    }
}

impl std::error::Error for LineTooLong {}

/// Splits on `\n` only, strips one `\r` before it, and keeps a partial line for the next chunk.
///
/// Unicode line separators and a lone `\r` are ordinary bytes of a line. The bound counts all bytes
/// before the `\n`, the `\r` included.
#[derive(Debug)]
pub struct LineSplitter {
    max_line_bytes: usize,
    partial: Vec<u8>,
    /// The partial line was delivered by the last call and is dropped by the next.
    delivered: bool,
    /// Length so far of a line that is too long, while its end is sought.
    skipped: Option<u64>,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(LINE_BYTES_MAX)
    }
}

impl LineSplitter {
    /// A splitter that skips lines of more than `max_line_bytes`.
    pub fn new(max_line_bytes: usize) -> Self {
        Self { max_line_bytes, partial: Vec::new(), delivered: false, skipped: None }
    }

    /// The next complete line, taken from the front of `input`.
    ///
    /// `None` means that `input` is used up; call again with the next chunk. A line that lies in one
    /// chunk is a slice of it, without a copy.
    pub fn next_line<'line, 'input: 'line>(
        &'line mut self,
        input: &mut &'input [u8],
    ) -> Option<Result<&'line [u8], LineTooLong>> {
        self.forget_delivered();
        let Some(end) = memchr::memchr(b'\n', input) else {
            let rest = std::mem::take(input);
            self.keep(rest);
            return None;
        };
        let head = &input[..end];
        *input = &input[end + 1..];
        if self.skipped.is_none() && self.partial.is_empty() {
            return Some(if head.len() > self.max_line_bytes {
                Err(LineTooLong { length: head.len() as u64, max: self.max_line_bytes })
            } else {
                Ok(without_carriage_return(head))
            });
        }
        self.keep(head);
        Some(self.deliver())
    }

    /// The line that the end of the stream left without its `\n`, if any.
    pub fn finish(&mut self) -> Option<Result<&[u8], LineTooLong>> {
        self.forget_delivered();
        (self.has_partial()).then(|| self.deliver())
    }

    /// Whether the last chunk ended within a line.
    pub fn has_partial(&self) -> bool {
        self.skipped.is_some() || (!self.delivered && !self.partial.is_empty())
    }

    /// Heap bytes held now.
    pub fn buffered_bytes(&self) -> usize {
        self.partial.capacity()
    }

    fn forget_delivered(&mut self) {
        if std::mem::take(&mut self.delivered) {
            if self.partial.capacity() > PARTIAL_KEPT_BYTES_MAX {
                self.partial = Vec::new();
            } else {
                self.partial.clear();
            }
        }
    }

    /// Appends to the partial line, or to the length of the line being skipped.
    fn keep(&mut self, bytes: &[u8]) {
        if let Some(length) = &mut self.skipped {
            *length += bytes.len() as u64;
            return;
        }
        let length = self.partial.len() + bytes.len();
        if length > self.max_line_bytes {
            self.skipped = Some(length as u64);
            self.partial = Vec::new();
            return;
        }
        if length > self.partial.capacity() {
            // Doubling keeps the copying linear; the bound keeps it from overshooting.
            let capacity = length.max(self.partial.capacity() * 2).min(self.max_line_bytes);
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
    }

    fn deliver(&mut self) -> Result<&[u8], LineTooLong> {
        if let Some(length) = self.skipped.take() {
            return Err(LineTooLong { length, max: self.max_line_bytes });
        }
        self.delivered = true;
        Ok(without_carriage_return(&self.partial))
    }
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Bytes of a line shown when it makes no sense.
const PREVIEW_BYTES_MAX: usize = 200;

/// The beginning of a line, readable.
pub(crate) fn preview(line: &[u8]) -> String {
    let head = line.get(..PREVIEW_BYTES_MAX).unwrap_or(line);
    String::from_utf8_lossy(head).into_owned()
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
