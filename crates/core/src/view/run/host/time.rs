//! Times as hosts write them (RFC 3339), in Unix milliseconds.

use crate::time::unix_ms;

/// `None` for what is no time.
pub fn from_text(text: &str) -> Option<i64> {
    if text.ends_with(['Z', 'z']) {
        return unix_ms(&text.replace('t', "T").replace('z', "Z"));
    }
    // `+02:00`, an ASCII text of six characters.
    let place = text.len().checked_sub(6)?;
    let (local, zone) = (text.get(..place)?, text.get(place..)?);
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let distance_ms = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
    let distance_ms = i64::from(distance_ms.0) * 3_600_000 + i64::from(distance_ms.1) * 60_000;
    let local_ms = unix_ms(&format!("{}Z", local.replace([' ', 't'], "T")))?;
    match zone.as_bytes().first()? {
        b'+' => Some(local_ms - distance_ms),
        b'-' => Some(local_ms + distance_ms),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_spellings_of_a_time_are_read() {
        for (text, time_ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2025-01-01T00:00:00.123456789Z", 1_735_689_600_123),
            ("2025-01-01T00:00:00.123456789+00:00", 1_735_689_600_123),
            ("2025-01-01T02:00:00+02:00", 1_735_689_600_000),
            ("2024-12-31 18:30:00.5-05:30", 1_735_689_600_500),
        ] {
            assert_eq!(from_text(text), Some(time_ms), "{text}");
        }
        for text in ["", "now", "2025-13-01T00:00:00Z", "2025-01-01T00:00:00", "2025-01-01T00:00:00*01:00"] {
            assert_eq!(from_text(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC{0,40}") {
            let _ = from_text(&text);
        }
    }
}
