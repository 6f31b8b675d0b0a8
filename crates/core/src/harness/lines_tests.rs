//! The splitter against a model that sees the whole stream at once.

use proptest::prelude::*;

use super::{LineSplitter, LineTooLong};

type Line = Result<Vec<u8>, LineTooLong>;

/// What the splitter must say, computed from the whole stream.
fn model(stream: &[u8], max: usize) -> Vec<Line> {
    let mut pieces: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    if pieces.last().is_some_and(|last| last.is_empty()) {
        pieces.pop();
    }
    let line = |piece: &[u8]| {
        if piece.len() > max {
            Err(LineTooLong { length: piece.len() as u64, max })
        } else {
            Ok(piece.strip_suffix(b"\r").unwrap_or(piece).to_vec())
        }
    };
    pieces.into_iter().map(line).collect()
}

/// Feeds the stream cut at `cuts`, checking the memory bound all the way.
fn split(stream: &[u8], cuts: &[usize], max: usize) -> Vec<Line> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let mut splitter = LineSplitter::new(max);
    let mut lines = Vec::new();
    for window in cuts.windows(2) {
        let mut chunk = &stream[window[0]..window[1]];
        while let Some(line) = splitter.next_line(&mut chunk) {
            lines.push(line.map(<[u8]>::to_vec));
        }
        assert!(chunk.is_empty());
        assert!(splitter.buffered_bytes() <= max.max(8), "{} bytes held", splitter.buffered_bytes());
    }
    lines.extend(splitter.finish().map(|line| line.map(<[u8]>::to_vec)));
    assert!(splitter.finish().is_none(), "the last line is delivered once");
    lines
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"\n".to_vec()),
        2 => Just(b"\r".to_vec()),
        2 => Just(b"\r\n".to_vec()),
        1 => Just("\u{2028}\u{2029}\u{85}".as_bytes().to_vec()),
        4 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => proptest::collection::vec(Just(b'x'), 0..60),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_lines(
        stream in stream(),
        cuts in proptest::collection::vec(any::<usize>(), 0..30),
        max in 0_usize..40,
    ) {
        prop_assert_eq!(split(&stream, &cuts, max), model(&stream, max));
    }

    #[test]
    fn byte_by_byte_is_no_different(stream in stream(), max in 0_usize..40) {
        let cuts: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(split(&stream, &cuts, max), model(&stream, max));
    }
}

#[test]
fn examples() {
    let separators = "a\u{2028}b\u{2029}c\rd\n";
    for (stream, expected) in [
        ("", vec![]),
        ("\n", vec![""]),
        ("a\n\nb", vec!["a", "", "b"]),
        ("a\r\n", vec!["a"]),
        ("a\r\r\n", vec!["a\r"]),
        ("a\r", vec!["a"]),
        (separators, vec!["a\u{2028}b\u{2029}c\rd"]),
    ] {
        let expected: Vec<Line> = expected.into_iter().map(|line| Ok(line.as_bytes().to_vec())).collect();
        assert_eq!(split(stream.as_bytes(), &[1, 2, 3, 5], 100), expected, "{stream:?}");
    }
}

#[test]
fn memory_is_given_back_after_a_huge_line() {
    const MIB: usize = 1024 * 1024;
    let mut splitter = LineSplitter::default();
    let chunk = vec![b'x'; MIB];
    for _ in 0..40 {
        assert!(splitter.next_line(&mut chunk.as_slice()).is_none());
    }
    assert!(splitter.buffered_bytes() >= 40 * MIB);
    let mut end: &[u8] = b"\nab";
    assert_eq!(splitter.next_line(&mut end).map(|line| line.map(<[u8]>::len)), Some(Ok(40 * MIB)));
    assert!(splitter.next_line(&mut end).is_none());
    assert!(splitter.buffered_bytes() <= 4096, "{} bytes held", splitter.buffered_bytes());
}

#[test]
fn a_line_beyond_the_bound_holds_no_memory_while_it_is_skipped() {
    let mut splitter = LineSplitter::new(1000);
    for _ in 0..1000 {
        assert!(splitter.next_line(&mut [b'x'; 700].as_slice()).is_none());
        assert!(splitter.buffered_bytes() <= 1000);
    }
    let mut end: &[u8] = b"\n{}\n";
    let too_long = LineTooLong { length: 700_000, max: 1000 };
    assert_eq!(splitter.next_line(&mut end), Some(Err(too_long)));
    assert_eq!(splitter.next_line(&mut end), Some(Ok(b"{}".as_slice())));
}

#[test]
fn a_line_within_one_chunk_is_not_copied() {
    let chunk = b"first\nsecond\n".to_vec();
    let mut splitter = LineSplitter::default();
    let mut input = chunk.as_slice();
    while let Some(line) = splitter.next_line(&mut input) {
        assert!(chunk.as_ptr_range().contains(&line.unwrap().as_ptr()));
    }
    assert_eq!(splitter.buffered_bytes(), 0);
}
