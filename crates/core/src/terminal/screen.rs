//! The screen of a terminal: what somebody who comes later has to see.
//!
//! `vt100` does the drawing. What is ours is the order of work (read late), the scrollback as text that redraws
//! itself, and those facts of a screen that the library does not tell and that have to be learned from a copy.

use std::num::NonZeroU16;

use qd_wire::run::TerminalSnapshot;

use super::plain::{self, EscapeState};
use super::questions::{self, QuestionRules, ScreenQuestion, ScreenView};

/// Lines kept that have left the screen; about what a person scrolls back, a megabyte or two with colours.
pub const SCROLLBACK_LINES_MAX: usize = 1000;

/// Text kept unread until somebody wants to see the screen.
pub const PENDING_BYTES_MAX: usize = 1024 * 1024;

/// Longer titles are cut.
const TITLE_CHARACTERS_MAX: usize = 256;

/// The sizes a terminal may have.
const COLS: std::ops::RangeInclusive<u16> = 2..=500;
const ROWS: std::ops::RangeInclusive<u16> = 1..=200;

/// The screen of a program. Text is kept as it comes and read when somebody looks, so that a flood nobody watches
/// costs almost nothing.
pub struct Screen {
    parser: vt100::Parser<WindowTitle>,
    pending: String,
    state: EscapeState,
    /// Whether lines that leave the screen go to the scrollback, all of them; unknown after a control sequence.
    is_whole: Option<bool>,
}

/// The title, as the program sets it.
#[derive(Debug, Default)]
struct WindowTitle(Option<String>);

impl vt100::Callbacks for WindowTitle {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let title: String = String::from_utf8_lossy(title).chars().take(TITLE_CHARACTERS_MAX).collect();
        self.0 = (!title.is_empty()).then_some(title);
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cols, rows) = self.size();
        write!(formatter, "Screen {{ {cols}x{rows}, {} bytes unread }}", self.pending.len())
    }
}

impl Screen {
    /// An empty screen; sizes no terminal has are brought to the nearest one.
    pub fn new(cols: u16, rows: u16) -> Self {
        let (rows, cols) = clamp(cols, rows);
        let parser =
            vt100::Parser::new_with_callbacks(rows, cols, SCROLLBACK_LINES_MAX, WindowTitle::default());
        Screen { parser, pending: String::new(), state: EscapeState::Ground, is_whole: Some(true) }
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let (rows, cols) = self.parser.screen().size();
        (cols.get(), rows.get())
    }

    /// What the program wrote; kept, and read later.
    pub fn push(&mut self, text: &str) {
        if self.pending.len() + text.len() > PENDING_BYTES_MAX {
            self.feed();
        }
        self.pending.push_str(text);
        if self.pending.len() > PENDING_BYTES_MAX {
            self.feed();
        }
    }

    /// The terminal has another size; what came before was written for the old one.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.feed();
        let (rows, cols) = clamp(cols, rows);
        self.parser.set_size(rows, cols);
        self.is_whole = None;
    }

    /// What brings an empty terminal of the same size to the same state. `seq` is that of the last record in it.
    pub fn snapshot(&mut self, seq: u64) -> TerminalSnapshot {
        self.feed();
        let (cols, rows) = self.size();
        let alternate = self.parser.screen().alternate_screen();
        let mut screen = String::new();
        let scrollback = if alternate {
            let mut main = probe(self.parser.screen());
            main.process(b"\x1b[?47l");
            let scrollback = scrollback(main.screen_mut());
            draw(main.screen(), &mut screen);
            screen.push_str("\x1b[?47h");
            scrollback
        } else {
            scrollback(self.parser.screen_mut())
        };
        draw(self.parser.screen(), &mut screen);
        screen.push_str(&self.parser.screen().input_mode_formatted());
        if !scrollback.is_empty() {
            // The last lines of it are still on the screen of who writes it: they must leave before it is cleared.
            screen.insert_str(0, &"\r\n".repeat(usize::from(rows) - 1));
        }
        let title = self.parser.callbacks().0.clone();
        TerminalSnapshot { cols, rows, seq, scrollback, screen, title, alternate }
    }

    /// What the screen asks a person, as far as these rules tell.
    pub fn question(&mut self, rules: &QuestionRules, echo_off: bool) -> Option<ScreenQuestion> {
        self.feed();
        questions::find(&self.view(), rules, echo_off)
    }

    fn view(&self) -> ScreenView {
        let screen = self.parser.screen();
        let (cols, rows) = self.size();
        let lines = screen.rows(0, cols).collect();
        let wrapped = (0..rows).map(|row| screen.row_wrapped(row)).collect();
        let (row, col) = screen.cursor_position();
        ScreenView {
            lines,
            wrapped,
            cursor_row: usize::from(row),
            cursor_col: usize::from(col),
            is_cursor_hidden: screen.hide_cursor(),
            has_application_keys: screen.application_cursor(),
        }
    }

    /// Reads what is pending, but for plain text that would leave the screen and the scrollback at once.
    fn feed(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let plain_from = plain::plain_from(&mut self.state, &pending);
        let (controls, plain) = pending.split_at(plain_from);
        if !controls.is_empty() {
            self.parser.process(controls.as_bytes());
            self.is_whole = None;
        }
        let (_, rows) = self.size();
        let skip = match plain::invisible(plain, SCROLLBACK_LINES_MAX + usize::from(rows)) {
            skip if skip > 0 && self.is_whole() => skip,
            _ => 0,
        };
        self.parser.process(&plain.as_bytes()[skip..]);
        // The room is kept where it is used often, and given back where it was used once.
        if pending.capacity() <= PENDING_BYTES_MAX / 8 {
            self.pending = pending;
            self.pending.clear();
        }
    }

    /// Whether every line goes to the scrollback: the main screen, without a region that scrolls by itself.
    fn is_whole(&mut self) -> bool {
        let screen = self.parser.screen();
        let is_whole = || {
            let (rows, _) = screen.size();
            !screen.alternate_screen() && ScreenFacts::of(screen).region == (0, rows.get() - 1)
        };
        let is_whole = self.is_whole.unwrap_or_else(is_whole);
        self.is_whole = Some(is_whole);
        is_whole
    }
}

/// What a screen does not tell by itself, learned from a copy of it.
struct ScreenFacts {
    /// The first and the last row that scroll.
    region: (u16, u16),
    /// Positions count from the region.
    has_origin: bool,
    /// Where the cursor goes back to, and how it writes there.
    saved: (u16, u16),
    saved_attributes: String,
}

impl ScreenFacts {
    fn of(screen: &vt100::Screen) -> ScreenFacts {
        let row = |probe: &vt100::Parser| probe.screen().cursor_position().0;
        let mut copy = probe(screen);
        copy.process(b"\x1b8");
        let saved = copy.screen().cursor_position();
        let saved_attributes = copy.screen().attributes_formatted();
        *copy.screen_mut() = screen.clone();
        copy.process(b"\x1b[?6h");
        let top = row(&copy);
        copy.process(b"\x1b[9999;1H");
        let bottom = row(&copy);
        // Home is the first row of any region then; where there is no room for one it makes no difference.
        *copy.screen_mut() = screen.clone();
        copy.process(b"\x1b[2;3r\x1b[H");
        let has_origin = row(&copy) > 0;
        ScreenFacts { region: (top, bottom), has_origin, saved, saved_attributes }
    }
}

/// A reader of its own with a copy of the screen: it can be asked without doing anything to the real one, which may be
/// in the middle of a sequence.
fn probe(screen: &vt100::Screen) -> vt100::Parser {
    let (rows, cols) = screen.size();
    let mut probe = vt100::Parser::new(rows, cols, 0);
    *probe.screen_mut() = screen.clone();
    probe
}

/// The lines that have left the screen, oldest first.
fn scrollback(screen: &mut vt100::Screen) -> String {
    let (rows, cols) = screen.size();
    let count = screen.scrollback_len();
    let mut text = String::new();
    // Each look shows as many lines as the screen has. The first of them is the last of the look before, so that a
    // line that goes on from there is known to.
    let window = usize::from(rows.get());
    let mut done = 0;
    while done < count {
        let overlap = usize::from(done > 0 && window > 1);
        screen.set_scrollback(count - (done - overlap));
        let shown = window.min(count - (done - overlap));
        for (row, line) in screen.rows_formatted(0, cols.get()).take(shown).enumerate().skip(overlap) {
            text.push_str(&line);
            if line.contains('\x1b') {
                text.push_str("\x1b[m");
            }
            done += 1;
            // A line that goes on is joined by itself; what the screen goes on with is drawn anew.
            let is_joined = u16::try_from(row).is_ok_and(|row| screen.row_wrapped(row));
            if !is_joined || done == count {
                text.push_str("\r\n");
            }
        }
    }
    screen.set_scrollback(0);
    text
}

/// Draws the screen that is shown, with its cursor.
fn draw(screen: &vt100::Screen, out: &mut String) {
    use std::fmt::Write;
    let facts = ScreenFacts::of(screen);
    out.push_str(&screen.contents_formatted());
    let (rows, _) = screen.size();
    let is_whole = facts.region == (0, rows.get() - 1);
    // Writing to a text cannot fail.
    if facts.saved != (0, 0) || facts.saved_attributes != "\x1b[m" {
        let (row, col) = facts.saved;
        let _ = write!(out, "\x1b[{};{}H{}\x1b7", row + 1, col + 1, facts.saved_attributes);
    }
    if !is_whole {
        let (top, bottom) = facts.region;
        let _ = write!(out, "\x1b[{};{}r", top + 1, bottom + 1);
    }
    if facts.has_origin {
        let _ = write!(out, "\x1b[?6h");
        place_from_origin(screen, facts.region.0, out);
    } else {
        let _ = write!(out, "\x1b[m{}", screen.cursor_state_formatted());
    }
    out.push_str(&screen.attributes_formatted());
}

/// Puts the cursor where it is, counted from the first row that scrolls. After the last column it can only be by
/// writing there, so what is there is written again.
fn place_from_origin(screen: &vt100::Screen, top: u16, out: &mut String) {
    use std::fmt::Write;
    let (_, cols) = screen.size();
    let (row, col) = screen.cursor_position();
    let is_after_last = col >= cols.get();
    let mut at = col.min(cols.get() - 1);
    if is_after_last && screen.cell(row, at).is_some_and(vt100::Cell::is_wide_continuation) {
        at -= 1;
    }
    // Writing to a text cannot fail.
    let _ = write!(out, "\x1b[m\x1b[{};{}H", row.saturating_sub(top) + 1, at + 1);
    if !is_after_last {
        return;
    }
    let last = screen.rows_formatted(at, cols.get() - at).nth(usize::from(row)).unwrap_or_default();
    if screen.cell(row, at).is_some_and(vt100::Cell::has_contents) {
        out.push_str(&last);
    } else {
        let _ = write!(out, " \x1b7\x08\x1b[X{last}\x1b8");
    }
}

fn clamp(cols: u16, rows: u16) -> (NonZeroU16, NonZeroU16) {
    let one = NonZeroU16::MIN;
    let rows = rows.clamp(*ROWS.start(), *ROWS.end());
    let cols = cols.clamp(*COLS.start(), *COLS.end());
    (NonZeroU16::new(rows).unwrap_or(one), NonZeroU16::new(cols).unwrap_or(one))
}
