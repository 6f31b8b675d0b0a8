//! Lines of stdin with a bound: whoever writes without an end of line costs no memory.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What is kept of a line that is too long: enough to find the id of the command, which clients write early.
const HEAD_BYTES_MAX: usize = 4096;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    Text(String),
    /// It has so many bytes, and only the first of them were kept.
    TooLong {
        bytes: usize,
        head: Vec<u8>,
    },
    /// It is not UTF-8.
    NotText,
}

/// Reads lines that are no longer than a bound.
pub(super) struct LineReader<R> {
    source: R,
    bytes_max: usize,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    pub(super) fn new(source: R, bytes_max: usize) -> LineReader<R> {
        LineReader { source, bytes_max }
    }

    /// The next line that is not empty; `None` at the end. A last line needs no end.
    pub(super) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            let Some(line) = self.any().await? else { return Ok(None) };
            if !matches!(&line, InputLine::Text(text) if text.trim().is_empty()) {
                return Ok(Some(line));
            }
        }
    }

    async fn any(&mut self) -> io::Result<Option<InputLine>> {
        let mut kept = Vec::new();
        let mut length = 0;
        let mut is_whole = true;
        loop {
            let chunk = self.source.fill_buf().await?;
            if chunk.is_empty() {
                return Ok((length > 0).then(|| finish(kept, length, is_whole, self.bytes_max)));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            length += part.len();
            // One more byte may be the carriage return before the end.
            if length <= self.bytes_max + 1 {
                kept.extend_from_slice(part);
            } else {
                let missing = HEAD_BYTES_MAX.saturating_sub(kept.len());
                kept.extend_from_slice(&part[..part.len().min(missing)]);
                kept.truncate(HEAD_BYTES_MAX);
                // The line may have grown to the bound before it was found too long; that memory goes back now.
                kept.shrink_to_fit();
                is_whole = false;
            }
            let consumed = end.map_or(chunk.len(), |end| end + 1);
            self.source.consume(consumed);
            if end.is_some() {
                return Ok(Some(finish(kept, length, is_whole, self.bytes_max)));
            }
        }
    }
}

fn finish(mut kept: Vec<u8>, mut length: usize, is_whole: bool, bytes_max: usize) -> InputLine {
    if is_whole && kept.last() == Some(&b'\r') {
        kept.pop();
        length -= 1;
    }
    if length > bytes_max {
        kept.truncate(HEAD_BYTES_MAX);
        return InputLine::TooLong { bytes: length, head: kept };
    }
    String::from_utf8(kept).map_or(InputLine::NotText, InputLine::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn lines(input: &[u8], buffer: usize) -> Vec<InputLine> {
        let mut reader = LineReader::new(BufReader::with_capacity(buffer, input), 8);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn lines_come_whole_whatever_the_pieces() {
        let text = |text: &str| InputLine::Text(text.to_owned());
        for buffer in [1, 3, 64] {
            let input = b"one\r\n\n  \n12345678\n12345678\r\n123456789\n\xff\xfe\nlast";
            let expected = [
                text("one"),
                text("12345678"),
                text("12345678"),
                InputLine::TooLong { bytes: 9, head: b"123456789".to_vec() },
                InputLine::NotText,
                text("last"),
            ];
            assert_eq!(lines(input, buffer).await, expected, "{buffer}");
        }
        assert_eq!(lines(b"", 4).await, []);
        let head = vec![b'x'; HEAD_BYTES_MAX];
        assert_eq!(lines(&[b'x'; 100_000], 64).await, [InputLine::TooLong { bytes: 100_000, head }]);
    }
}
