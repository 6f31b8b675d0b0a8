//! Which pi we can drive.
//!
//! Older ones are refused at the start with advice, and not driven with less: what they leave out cannot be made up,
//! and sessions would seem to hang.

use std::fmt;

/// The oldest pi whose events carry what we need (`agent_settled`, deltas without the whole message, the id and
/// name at the start of a tool call).
pub const MINIMUM_VERSION: PiVersion = PiVersion { major: 0, minor: 84, patch: 3 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PiVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PiVersionError {
    TooOld { found: PiVersion },
    Unreadable { output: String },
}

/// Reads what `pi --version` printed and refuses what is too old.
pub fn check_version(output: &str) -> Result<PiVersion, PiVersionError> {
    let version = output.split_whitespace().find_map(parse).ok_or_else(|| PiVersionError::Unreadable {
        output: output.trim().chars().take(OUTPUT_CHARS_MAX).collect(),
    })?;
    if version < MINIMUM_VERSION { Err(PiVersionError::TooOld { found: version }) } else { Ok(version) }
}

const OUTPUT_CHARS_MAX: usize = 200;

/// `1.5.0`, `v1.5.0` or `1.5.0-beta.2` (taken as 1.5.0).
fn parse(word: &str) -> Option<PiVersion> {
    let word = word.strip_prefix('v').unwrap_or(word);
    let numbers = word.split(['-', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
    let version = PiVersion { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
    parts.next().is_none().then_some(version)
}

impl fmt::Display for PiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl fmt::Display for PiVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PiVersionError::TooOld { found } => write!(
                f,
                "pi {found} is too old: {MINIMUM_VERSION} or newer is needed. Run: {INSTALL} (with Node 22.19 or newer)"
            ),
            PiVersionError::Unreadable { output } => write!(
                f,
                "`pi --version` did not print a version but {output:?}; {MINIMUM_VERSION} or newer is needed. Run: {INSTALL}"
            ),
        }
    }
}

const INSTALL: &str = "npm install -g @earendil-works/pi-coding-agent";

impl std::error::Error for PiVersionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let version = |major, minor, patch| PiVersion { major, minor, patch };
        assert_eq!(check_version("0.87.1\n"), Ok(version(0, 87, 1)));
        assert_eq!(check_version("pi v1.5.0-beta.2"), Ok(version(1, 5, 0)));
        assert_eq!(check_version("0.84.3"), Ok(MINIMUM_VERSION));
        assert_eq!(check_version("0.84.2"), Err(PiVersionError::TooOld { found: version(0, 84, 2) }));
        assert_eq!(check_version("1.2"), Err(PiVersionError::Unreadable { output: "1.2".to_owned() }));
        assert!(check_version("").is_err());
    }

    #[test]
    fn the_error_says_what_was_found_what_is_needed_and_what_to_do() {
        let message = check_version("0.73.1").expect_err("too old").to_string();
        for part in ["0.73.1", "0.84.3", "npm install -g @earendil-works/pi-coding-agent"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
