//! Versions and ranges of versions, as cargo and the advisories write them.

use std::cmp::Ordering;

/// `major.minor.patch`, and what is before the release of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    /// How many of the numbers were written.
    written: usize,
    /// Empty for a release.
    early: Vec<EarlyPart>,
}

/// One identifier of a version before its release: numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum EarlyPart {
    Number(u64),
    Word(String),
}

impl Version {
    pub(super) fn parse(text: &str) -> Option<Version> {
        let text = text.split('+').next().unwrap_or_default().trim();
        let (release, early) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = [0; 3];
        let mut written = 0;
        for part in release.split('.') {
            *numbers.get_mut(written)? = part.parse().ok()?;
            written += 1;
        }
        let part =
            |part: &str| part.parse().map_or_else(|_| EarlyPart::Word(part.to_owned()), EarlyPart::Number);
        let early = early.split('.').filter(|it| !it.is_empty()).map(part).collect();
        Some(Version { numbers, written, early })
    }

    /// The first version after all that begin with the numbers that were written.
    fn after(&self) -> Version {
        let mut numbers = self.numbers;
        let last = self.written.clamp(1, 3) - 1;
        numbers[last] += 1;
        numbers[last + 1..].fill(0);
        Version { numbers, written: 3, early: Vec::new() }
    }

    /// The first version that is not compatible with this one: a step of the first number that is not zero.
    fn next_incompatible(&self) -> Version {
        let first = self.numbers.iter().position(|number| *number > 0).unwrap_or(self.written.max(1) - 1);
        Version { numbers: self.numbers, written: first + 1, early: Vec::new() }.after()
    }

    fn compare(&self, other: &Version) -> Ordering {
        let early = match (self.early.is_empty(), other.early.is_empty()) {
            // A release comes after all that were before it.
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.early.cmp(&other.early),
        };
        self.numbers.cmp(&other.numbers).then(early)
    }
}

/// Whether a version is in a range, such as `>= 1.2, < 2`; `None` for a range that cannot be read.
pub(super) fn is_in(version: &Version, range: &str) -> Option<bool> {
    let mut is_in = true;
    for part in range.split(',') {
        let part = part.trim();
        let digits = part.find(|letter: char| letter.is_ascii_digit())?;
        let (operator, bound) = (part[..digits].trim(), Version::parse(&part[digits..])?);
        let is_whole = bound.written == 3;
        is_in &= match operator {
            ">=" => version.compare(&bound).is_ge(),
            "<" => version.compare(&bound).is_lt(),
            ">" if is_whole => version.compare(&bound).is_gt(),
            ">" => version.compare(&bound.after()).is_ge(),
            "<=" if is_whole => version.compare(&bound).is_le(),
            "<=" => version.compare(&bound.after()).is_lt(),
            "=" if is_whole => version.compare(&bound).is_eq(),
            "=" | "~" => version.compare(&bound).is_ge() && version.compare(&tilde_end(&bound)).is_lt(),
            "" | "^" => {
                version.compare(&bound).is_ge() && version.compare(&bound.next_incompatible()).is_lt()
            }
            _ => return None,
        };
    }
    Some(is_in)
}

/// Where `~1.2.3` ends: before 1.3; `~1` before 2.
fn tilde_end(bound: &Version) -> Version {
    Version { written: bound.written.min(2), ..bound.clone() }.after()
}
