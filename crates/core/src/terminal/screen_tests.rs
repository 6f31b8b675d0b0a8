use proptest::prelude::*;

use super::Screen;
use super::screen::{PENDING_BYTES_MAX, SCROLLBACK_LINES_MAX};

/// Another terminal: everything a person can see of it.
#[derive(Debug, PartialEq)]
struct Seen {
    lines: Vec<String>,
    scrollback: Vec<String>,
    cells: String,
    cursor: (u16, u16),
    modes: String,
    alternate: bool,
}

fn terminal(cols: u16, rows: u16) -> vt100::Parser {
    let size = |number: u16| std::num::NonZeroU16::new(number).unwrap();
    vt100::Parser::new(size(rows), size(cols), SCROLLBACK_LINES_MAX)
}

fn seen(parser: &mut vt100::Parser) -> Seen {
    let (rows, cols) = parser.screen().size();
    let mut scrollback = Vec::new();
    for back in (1..=parser.screen().scrollback_len()).rev() {
        parser.screen_mut().set_scrollback(back);
        let line: String = (0..cols.get()).map(|col| cell(parser.screen(), 0, col)).collect();
        scrollback.push(line);
    }
    parser.screen_mut().set_scrollback(0);
    let screen = parser.screen();
    let cells = (0..rows.get()).flat_map(|row| (0..cols.get()).map(move |col| cell(screen, row, col)));
    Seen {
        lines: screen.rows(0, cols.get()).collect(),
        scrollback,
        cells: cells.collect(),
        cursor: screen.cursor_position(),
        modes: format!(
            "{:?} {:?} {} {:?}",
            screen.input_mode_formatted(),
            screen.attributes_formatted(),
            screen.hide_cursor(),
            screen.cursor_style()
        ),
        alternate: screen.alternate_screen(),
    }
}

fn cell(screen: &vt100::Screen, row: u16, col: u16) -> String {
    let Some(cell) = screen.cell(row, col) else { return "?".into() };
    let flags = [cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse()];
    let flags: String = flags.iter().map(|is_set| if *is_set { '1' } else { '0' }).collect();
    let plain = (cell.fgcolor(), cell.bgcolor()) == (vt100::Color::Default, vt100::Color::Default);
    let text = if cell.is_wide_continuation() { "<" } else { cell.contents() };
    if plain && flags == "00000" {
        format!("[{text}]")
    } else {
        format!("[{text} {flags} {:?} {:?}]", cell.fgcolor(), cell.bgcolor())
    }
}

/// What the screen's snapshot makes of an empty terminal.
fn restored(screen: &mut Screen) -> vt100::Parser {
    let snapshot = screen.snapshot(1);
    let mut parser = terminal(snapshot.cols, snapshot.rows);
    parser.process(snapshot.scrollback.as_bytes());
    parser.process(snapshot.screen.as_bytes());
    parser
}

/// The same output read directly.
fn direct(cols: u16, rows: u16, text: &str) -> vt100::Parser {
    let mut parser = terminal(cols, rows);
    parser.process(text.as_bytes());
    parser
}

fn check(cols: u16, rows: u16, text: &str) {
    let mut screen = Screen::new(cols, rows);
    screen.push(text);
    assert_eq!(seen(&mut restored(&mut screen)), seen(&mut direct(cols, rows, text)), "{text:?}");
}

#[test]
fn a_snapshot_brings_an_empty_terminal_to_the_same_state() {
    for text in [
        "",
        "hello\r\nworld",
        "\x1b[31mred\x1b[1;44mbold\x1b[0m plain\r\n\x1b[7minverse\x1b[27m \x1b[38;2;1;2;3mrgb\x1b[48;5;200mx",
        // Wrapped lines, a cursor after the last column.
        "0123456789abcdefghij0123456789abcdefghij",
        "01234567890123456789",
        "漢字漢字漢字漢字漢字漢字x😀👩‍👩‍👧é שלום مرحبا",
        // Erased with a colour.
        "\x1b[44m\x1b[2J\x1b[5;5Hx\x1b[K",
        // A line that scrolls away, with and without a region.
        "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n9\r\n10\r\n",
        "top\x1b[2;4r\x1b[4;1Ha\r\nb\r\nc\r\nd",
        "\x1b[2;4r\x1b[?6h\x1b[2;3Hx",
        "\x1b[2;4r\x1b[?6h0aa     aa aaaé😀é😀",
        "\x1b[2;4r\x1b[?6h\x1b[31m01234567890123456789\x1b[44m\x1b[2K",
        // Modes.
        "\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?25l\x1b[4 q",
        "\x1b[3;7H\x1b[1m\x1b7\x1b[H\x1b[0mx",
    ] {
        check(20, 6, text);
    }
}

#[test]
fn full_screen_programs_look_right_and_leave_the_shell_behind() {
    let shell = "alice$ ls\r\n\x1b[1;34msrc\x1b[0m  README.md\r\n".repeat(8) + "alice$ vim x\r\n";
    let vim = "\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[1;6r\x1b[?12h\x1b[?12l\x1b[27m\x1b[m\x1b[H\x1b[2J\
               \x1b[1mfn\x1b[m main() {\r\n}\x1b[94m\r\n~\r\n~\x1b[m\x1b[6;1H\"x\" 2L, 14B\x1b[1;4H";
    let inside = format!("{shell}{vim}");
    let mut screen = Screen::new(20, 6);
    screen.push(&inside);
    let snapshot = screen.snapshot(9);
    assert!(snapshot.alternate);
    assert_eq!(snapshot.seq, 9);
    assert!(snapshot.scrollback.contains("README.md"));
    let mut other = restored(&mut screen);
    let mut same = direct(20, 6, &inside);
    assert_eq!(seen(&mut other), seen(&mut same));
    // What comes after looks the same too: the shell is back, with its scrollback.
    for parser in [&mut other, &mut same] {
        parser.process(b"\x1b[5;1H\r\nmore\x1b[?1049l\x1b[?1l\x1b>alice$ ");
    }
    assert_eq!(seen(&mut other), seen(&mut same));
    assert!(!seen(&mut other).alternate);
}

#[test]
fn the_title_is_kept_and_bounded() {
    let mut screen = Screen::new(20, 6);
    assert_eq!(screen.snapshot(0).title, None);
    screen.push("\x1b]0;vim — x\x07");
    assert_eq!(screen.snapshot(0).title.as_deref(), Some("vim — x"));
    screen.push(&format!("\x1b]2;{}\x1b\\", "t".repeat(5000)));
    assert_eq!(screen.snapshot(0).title.unwrap().len(), 256);
}

#[test]
fn an_unfinished_title_takes_no_memory() {
    let mut screen = Screen::new(20, 6);
    screen.push("\x1b]0;");
    for _ in 0..20 {
        screen.push(&"x".repeat(PENDING_BYTES_MAX));
    }
    screen.push("\x07ok");
    assert!(screen.snapshot(0).screen.contains("ok"));
}

#[test]
fn a_flood_shows_its_last_lines() {
    let mut screen = Screen::new(80, 24);
    let mut text = String::new();
    for number in 1..=300_000 {
        text.push_str(&format!("{number}\r\n"));
        if text.len() > 60_000 {
            screen.push(&text);
            text.clear();
        }
    }
    screen.push(&text);
    let snapshot = screen.snapshot(1);
    let lines: Vec<&str> = snapshot.scrollback.lines().collect();
    assert_eq!(lines.len(), SCROLLBACK_LINES_MAX);
    assert_eq!(lines.last(), Some(&"299977"));
    assert_eq!(lines[0], (299_977 - SCROLLBACK_LINES_MAX + 1).to_string());
    assert!(snapshot.screen.contains("300000"));
}

#[test]
fn sizes_no_terminal_has_are_brought_to_the_nearest() {
    let mut screen = Screen::new(0, 0);
    assert_eq!(screen.size(), (2, 1));
    screen.push("漢字\r\nabc");
    screen.resize(9999, 9999);
    assert_eq!(screen.size(), (500, 200));
    screen.resize(2, 1);
    screen.snapshot(1);
}

/// Beginnings after which lines scroll in other ways, or not at all.
const BEGINNINGS: [&str; 14] = [
    "",
    "x\r\ny",
    "\x1b[31m",
    "\x1b[3;5r",
    "\x1b[3;5r\x1b[4;1H",
    "\x1b[?6h\x1b[2;4r",
    "\x1b[?1049h",
    "\x1b[?47h\x1b[2;3r",
    "\x1b[?7l",
    "\x1b[4h",
    "\x1b]0;unfinished",
    "\x1b[3",
    "\x1b",
    "\x1bP1$r",
];

fn flood_line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just("123456\r\n".to_owned()),
        2 => "[a-z ]{0,30}\r\n",
        1 => Just("漢字 😀\r\n".to_owned()),
        1 => Just("staircase\n".to_owned()),
        1 => Just("tab\tend\r".to_owned()),
        1 => Just("m;5H\r\n".to_owned()),
        1 => Just("\r\n".to_owned()),
    ]
}

/// Nothing here goes back to a saved cursor: where the cursor stands after the last column of an empty line, only saving
/// it can bring it there, and what the program had saved is lost.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    let sequence = prop::sample::select(
        &[
            "\x1b[H",
            "\x1b[2J",
            "\x1b[K",
            "\x1b[1;31m",
            "\x1b[m",
            "\x1b[2;4r",
            "\x1b[r",
            "\x1b[?6h",
            "\x1b[?6l",
            "\x1b[?1049h",
            "\x1b[?47l",
            "\x1b[3A",
            "\x1b[2B",
            "\x1b[5C",
            "\x1b[4D",
            "\x1b[2L",
            "\x1b[M",
            "\x1b[3P",
            "\x1b[2@",
            "\x1bM",
            "\x1b[2S",
            "\x1b[T",
            "\x1b[4;3H",
            "\x1b[44m",
            "\x1b[?25l",
            "\x1b[?25h",
            "\x1b[J",
            "\x1b[1J",
            "\x1b[3X",
            "\x08",
            "\x0b",
            "\t",
            "\r",
            "\n",
            "\r\n",
        ][..],
    );
    let text = prop_oneof![Just("漢字".to_owned()), Just("é😀".to_owned()), "[a-z0-9 ]{1,25}"];
    prop::collection::vec(prop_oneof![sequence.prop_map(str::to_owned), text], 0..40)
}

proptest! {
    #![proptest_config(a_tenth())]

    #[test]
    fn leaving_out_a_flood_changes_nothing(
        beginning in prop::sample::select(&BEGINNINGS[..]),
        unit in prop::collection::vec(flood_line(), 1..8),
        count in 1500..9000usize,
        end in prop::sample::select(&["", "prompt$ ", "\x1b[1mx", "\r\n", "\x07", "\x1b\\after"][..]),
    ) {
        let flood: String = unit.iter().cycle().take(count).map(String::as_str).collect();
        let text = format!("{beginning}{flood}{end}");
        let mut screen = Screen::new(20, 6);
        screen.push(beginning);
        screen.push(&flood);
        // Once what is there is looked at before the end comes, once after.
        if count % 2 == 0 {
            screen.snapshot(1);
        }
        screen.push(end);
        prop_assert_eq!(seen(&mut restored(&mut screen)), seen(&mut direct(20, 6, &text)));
    }
}

proptest! {
    #[test]
    fn any_screen_is_restored_and_goes_on_in_the_same_way(before in pieces(), after in pieces()) {
        let (before, after) = (before.concat(), after.concat());
        let mut screen = Screen::new(20, 6);
        screen.push(&before);
        let mut other = restored(&mut screen);
        let mut same = direct(20, 6, &before);
        prop_assert_eq!(seen(&mut other), seen(&mut same));
        other.process(after.as_bytes());
        same.process(after.as_bytes());
        let (other, same) = (seen(&mut other), seen(&mut same));
        prop_assert_eq!(other.lines, same.lines);
        prop_assert_eq!(other.cursor, same.cursor);
    }

}

/// Sizes that are mostly small, where more can go wrong, and sometimes none a terminal has.
fn size() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![6 => (0..12u16, 0..6u16), 1 => (0..600u16, 0..300u16)]
}

/// Cases that take long are fewer.
fn a_tenth() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases / 10, ..config }
}

proptest! {
    #![proptest_config(a_tenth())]

    #[test]
    fn random_output_and_sizes_never_panic(
        steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), pieces(), size()), 0..8),
        (cols, rows) in size(),
    ) {
        let mut screen = Screen::new(cols, rows);
        for (bytes, pieces, (cols, rows)) in steps {
            screen.push(&String::from_utf8_lossy(&bytes));
            screen.push(&pieces.concat());
            screen.question(super::QuestionRules::for_tool("claude"), rows % 2 == 0);
            screen.resize(cols, rows);
            screen.push(&pieces.concat());
            screen.snapshot(1);
        }
    }
}
