use super::plain::{EscapeState, invisible, plain_from};

fn from(state: EscapeState, text: &str) -> (usize, EscapeState) {
    let mut state = state;
    (plain_from(&mut state, text), state)
}

#[test]
fn plain_text_begins_after_the_last_control_sequence() {
    assert_eq!(from(EscapeState::Ground, "abc\r\n\tdef"), (0, EscapeState::Ground));
    assert_eq!(from(EscapeState::Ground, "\x1b[1mabc"), (4, EscapeState::Ground));
    assert_eq!(from(EscapeState::Ground, "a\x1b(Bb"), (4, EscapeState::Ground));
    assert_eq!(from(EscapeState::Ground, "\x1b]0;t\x07abc"), (6, EscapeState::Ground));
    assert_eq!(from(EscapeState::Ground, "\x1b]0;t\x1b\\abc"), (7, EscapeState::Ground));
    assert_eq!(from(EscapeState::Ground, "bell\x07abc"), (5, EscapeState::Ground));
}

#[test]
fn an_unfinished_sequence_goes_on_in_the_next_text() {
    assert_eq!(from(EscapeState::Ground, "abc\x1b[3"), (6, EscapeState::Csi));
    assert_eq!(from(EscapeState::Csi, "1mabc"), (2, EscapeState::Ground));
    assert_eq!(from(EscapeState::Csi, "12\r\n34"), (6, EscapeState::Csi), "digits do not end it");
    assert_eq!(from(EscapeState::Ground, "\x1b]0;title"), (9, EscapeState::Osc));
    assert_eq!(from(EscapeState::Osc, "swallowed\r\n"), (11, EscapeState::Osc));
    assert_eq!(
        from(EscapeState::Ground, "\x1bPabc\x07def"),
        (9, EscapeState::Text),
        "a bell does not end these"
    );
    assert_eq!(from(EscapeState::Text, "x\x1b\\y"), (3, EscapeState::Ground));
}

#[test]
fn only_what_leaves_the_screen_is_left_out() {
    let flood = "12345678\r\n".repeat(20_000);
    let skipped = invisible(&flood, 2024);
    assert_eq!(skipped, (20_000 - 2025) * 10);
    assert_eq!(invisible(&flood, 20_000), 0, "it all fits");
    assert_eq!(invisible(&"12345678\r\n".repeat(1000), 10), 0, "too little to think about");
    assert_eq!(invisible(&"12345678 \n".repeat(20_000), 2024), 0, "no line begins in the first column");
    assert_eq!(invisible(&"\r\n".repeat(90_000), 2024), 0, "nothing is printed");
}
