//! Times as JavaScript writes them (`2026-11-15T06:04:59.214Z`) to Unix milliseconds and back.

/// None for anything that is not a UTC time of this form.
pub fn unix_ms(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    let plausible = (1..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..=23).contains(&hour)
        && (0..=59).contains(&minute)
        && (0..=60).contains(&second);
    let milliseconds = format!("{fraction:0<3}").get(..3)?.parse::<u16>().ok()?;
    plausible.then(|| {
        let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
        seconds * 1000 + i64::from(milliseconds)
    })
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse::<u16>().ok().map(i64::from));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Days of the proleptic Gregorian calendar, counted in years that begin in March.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// The form JavaScript writes; times outside the years 1 to 9999 are moved to the nearest within.
pub fn iso_8601(unix_ms: i64) -> String {
    let (first, last) = (days_since_epoch(1, 1, 1), days_since_epoch(9999, 12, 31));
    let days = unix_ms.div_euclid(DAY_MS).clamp(first, last);
    let (year, month, day) = date_of(days);
    let ms = unix_ms.rem_euclid(DAY_MS);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

const DAY_MS: i64 = 86_400_000;

/// The inverse of [`days_since_epoch`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{iso_8601, unix_ms};

    #[test]
    fn times_go_there_and_back() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T12:30:45.678Z",
            "2026-11-15T06:04:59.214Z",
            "1969-12-31T23:59:59.999Z",
            "2100-03-01T00:00:00.000Z",
            "0001-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
        ] {
            assert_eq!(iso_8601(unix_ms(text).unwrap()), text);
        }
        assert_eq!(&iso_8601(i64::MAX)[..10], "9999-12-31");
        assert_eq!(&iso_8601(i64::MIN)[..10], "0001-01-01");
    }

    #[test]
    fn times_of_pi() {
        assert_eq!(unix_ms("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(unix_ms("2000-02-29T12:30:45.678Z"), Some(951_827_445_678));
        assert_eq!(unix_ms("2026-11-15T06:04:59.214Z"), Some(1_794_722_699_214));
        assert_eq!(unix_ms("2026-11-15T06:04:59Z"), Some(1_794_722_699_000));
        for wrong in
            ["", "Z", "2026-11-15", "2026-13-15T06:04:59.214Z", "2026-11-15T06:04:59.214+01:00", "TZ"]
        {
            assert_eq!(unix_ms(wrong), None, "{wrong}");
        }
    }
}
