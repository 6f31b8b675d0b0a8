//! Any bytes as the output of a program in a terminal: the text does not depend on how they are cut, and the screen has
//! the size it was given, whatever the program asks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::terminal::{QuestionRules, Screen, Utf8Joiner};

fuzz_target!(|bytes: &[u8]| {
    let text = joined(bytes, bytes.len().max(1));
    assert_eq!(text, String::from_utf8_lossy(bytes));
    for size in [1, 2, 3, 7] {
        assert_eq!(text, joined(bytes, size), "cut every {size} bytes");
    }
    let (cols, rows) = (20, 5);
    let mut screen = Screen::new(cols, rows);
    let mut start = 0;
    for end in text.char_indices().map(|(at, _)| at).step_by(16).chain([text.len()]) {
        screen.push(&text[start..end]);
        start = end;
    }
    let snapshot = screen.snapshot(3);
    assert_eq!((snapshot.cols, snapshot.rows, snapshot.seq), (cols, rows, 3));
    assert!(snapshot.title.is_none_or(|title| title.chars().count() <= 1024));
    drop(screen.question(QuestionRules::for_tool("claude"), false));
    screen.resize(0, 0);
    screen.push(&text);
    let snapshot = screen.snapshot(4);
    assert!(snapshot.cols > 0 && snapshot.rows > 0);
    screen.resize(31, 9);
    assert_eq!(screen.size(), (31, 9));
});

fn joined(bytes: &[u8], size: usize) -> String {
    let (mut joiner, mut text) = (Utf8Joiner::default(), String::new());
    for piece in bytes.chunks(size) {
        joiner.push(piece, &mut text);
    }
    joiner.finish(&mut text);
    assert!(!joiner.has_rest());
    text
}
