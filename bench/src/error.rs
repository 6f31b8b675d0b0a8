//! Whatever goes wrong ends the run with a text.

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An error that is only a text.
pub(crate) fn failed<T>(text: impl Into<String>) -> Outcome<T> {
    Err(text.into().into())
}
