//! Terminals: joining bytes to text, the screen, and the questions on it.

mod joiner;
mod plain;
mod questions;
mod screen;

#[cfg(test)]
mod joiner_tests;
#[cfg(test)]
mod plain_tests;
#[cfg(test)]
mod questions_tests;
#[cfg(test)]
mod screen_tests;

pub use joiner::Utf8Joiner;
pub use questions::{QuestionRules, ScreenQuestion, ScreenRequest, known_tools};
pub use screen::{PENDING_BYTES_MAX, SCROLLBACK_LINES_MAX, Screen};
