//! Short texts: random ids and the beginning of a longer text.

use qd_core::encoding::base36;
use qd_link::backoff::random;

/// An id that nobody has used, after a letter that says what it names.
pub(crate) fn random_id(letter: &str) -> String {
    format!("{letter}{}", base36(random()))
}

/// The first characters of a text, on one line.
pub(crate) fn shorten(text: &str, characters_max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= characters_max {
        return line;
    }
    let mut cut: String = line.chars().take(characters_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shorten("  a\n b  ", 80), "a b");
        assert_eq!(shorten("日本語", 2), "日…");
    }
}
