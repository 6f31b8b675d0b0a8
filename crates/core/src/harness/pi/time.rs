//! pi's entry timestamps (`2026-11-15T06:04:59.214Z`) to Unix milliseconds.

/// None for anything that is not a UTC time of this form.
pub(super) fn unix_ms(text: &str) -> Option<i64> {
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

#[cfg(test)]
mod tests {
    use super::unix_ms;

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
