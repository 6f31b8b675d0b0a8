//! StdinLines from stdin. A thread reads them, because a read of a terminal cannot be taken back.

use std::io::{BufRead, IsTerminal};

use tokio::sync::mpsc;

use crate::error::Result;

/// StdinLines that may wait; a pipe that is faster waits itself.
const LINES_MAX: usize = 16;

pub(crate) type StdinLines = mpsc::Receiver<String>;

/// Whether a person can type.
pub(crate) fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Starts reading stdin; the channel ends with it.
pub(crate) fn stdin_lines() -> Result<StdinLines> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(read)?;
    Ok(receiver)
}

/// The next line, `None` at the end; never without lines.
pub(super) async fn next_line(lines: Option<&mut StdinLines>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}
