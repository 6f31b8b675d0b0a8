//! The `files` and `terminal` channels of `/ws/mux`: other words for canonical commands and the records of runs.

mod files;
mod terminal;

pub(crate) use files::{DirectoryWatches, handle as handle_files};
pub(crate) use terminal::{
    TerminalOpened, WatchedTerminals, handle as handle_terminal, show as show_terminal,
};
