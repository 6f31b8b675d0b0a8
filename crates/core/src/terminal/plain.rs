//! Floods of plain text: which part of one a screen cannot show any more, so that it need not be read.
//!
//! Text without control sequences, printed on a whole screen, ends in the same state whatever stood more lines before
//! its end than screen and scrollback hold. Where that is not certain nothing is left out.

const ESCAPE: u8 = 0x1b;

/// Less than this is read faster than it is thought about.
const SKIP_BYTES_MIN: usize = 16 * 1024;

/// Where the reader of control sequences stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EscapeState {
    /// What comes is printed.
    #[default]
    Ground,
    Escape,
    Csi,
    /// A title and the like; BEL ends it.
    Osc,
    /// Other strings; only an escape sequence ends them.
    Text,
}

impl EscapeState {
    /// Reads until the ground is reached or everything is read. Returns how much was read.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            *self = match (*self, *byte) {
                (EscapeState::Ground, byte) if byte != ESCAPE => return at,
                (_, ESCAPE) => EscapeState::Escape,
                (_, 0x18 | 0x1a) | (EscapeState::Csi, 0x40..=0x7e) | (EscapeState::Osc, 0x07) => {
                    EscapeState::Ground
                }
                (EscapeState::Escape, b'[') => EscapeState::Csi,
                (EscapeState::Escape, b']') => EscapeState::Osc,
                (EscapeState::Escape, b'P' | b'X' | b'^' | b'_') => EscapeState::Text,
                (EscapeState::Escape, 0x30..=0x7e) => EscapeState::Ground,
                (state, _) => state,
            };
        }
        bytes.len()
    }
}

/// Where the text that is printed as it is begins: after it there is no control character but tab and line ends, and
/// no control sequence. The state is taken over this text; without reaching the ground there is no such text.
pub(super) fn plain_from(state: &mut EscapeState, text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_control = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r') || *byte == 0x7f;
    let after_control = bytes.iter().rposition(is_control).map_or(0, |at| at + 1);
    match memchr::memrchr(ESCAPE, &bytes[..after_control]) {
        // Whatever was begun before it, an escape begins anew.
        Some(escape) => {
            *state = EscapeState::Ground;
            let read = escape + state.advance(&bytes[escape..after_control]);
            debug_assert!(read <= after_control);
        }
        None => {
            state.advance(&bytes[..after_control]);
        }
    }
    let from = after_control + state.advance(&bytes[after_control..]);
    // A sequence ends with an ASCII character, so this is an edge of one.
    if *state == EscapeState::Ground { from } else { bytes.len() }
}

/// How much at the beginning of a plain text leaves no trace on a screen that holds `lines` lines in all: up to the
/// beginning of a line, in the first column.
pub(super) fn invisible(plain: &str, lines: usize) -> usize {
    let bytes = plain.as_bytes();
    if bytes.len() < SKIP_BYTES_MIN + lines {
        return 0;
    }
    // One line more: the first one that is read is out of sight too.
    let is_line_start = |at: &usize| *at > 0 && bytes[*at - 1] == b'\r';
    let found = memchr::memrchr_iter(b'\n', bytes).skip(lines + 1).find(is_line_start);
    match found {
        // The last character counts for a sequence that repeats it, so there has to be one.
        Some(at) if at >= SKIP_BYTES_MIN && bytes[at..].iter().any(|byte| (0x21..0x7f).contains(byte)) => {
            at + 1
        }
        _ => 0,
    }
}
