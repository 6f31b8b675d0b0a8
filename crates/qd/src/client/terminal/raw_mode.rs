//! The terminal while a program of another machine has it.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The sizes a run takes.
const COLS: std::ops::RangeInclusive<u16> = 2..=500;
const ROWS: std::ops::RangeInclusive<u16> = 1..=200;

/// Every key is passed on as it is; dropping this gives the terminal back as it was.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(super) fn enter() -> io::Result<RawMode> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
        Ok(RawMode { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before) {
            tracing::warn!(%error, "the terminal could not be restored; run `reset`");
        }
    }
}

/// Columns and rows of the terminal on stdout, as far as a run takes them; `None` where there is none.
pub(crate) fn window_size() -> Option<(u16, u16)> {
    let size =
        tcgetwinsize(rustix::stdio::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
    let within =
        |value: u16, range: &std::ops::RangeInclusive<u16>| value.clamp(*range.start(), *range.end());
    Some((within(size.ws_col, &COLS), within(size.ws_row, &ROWS)))
}
