//! What was used, in tokens and money.
//!
//! Days are those of the asker's clock, which comes along as an offset: the hub knows no time zones.

use axum::extract::State;
use axum::response::Json;
use qd_core::time::{iso_8601, unix_ms};
use qd_store::{USAGE_ROWS_MAX, UsageQuery};
use qd_wire::CodedError;
use qd_wire::rest::UsageData;
use serde::Deserialize;

use crate::rest::request::{QueryResult, RestResult, Viewer, read_query};
use crate::server::Server;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// No clock is further from UTC.
const OFFSET_MINUTES_MAX: i64 = 14 * 60;
/// The date at the beginning of an ISO 8601 time.
const DAY_CHARS: usize = 10;

#[derive(Deserialize)]
pub(crate) struct UsageParameters {
    from: Option<String>,
    to: Option<String>,
    by: Option<String>,
    session_id: Option<String>,
    tz_offset_minutes: Option<i64>,
    limit: Option<usize>,
}

/// `GET /api/usage`
pub(crate) async fn usage(
    State(server): State<Server>,
    _: Viewer,
    wanted: QueryResult<UsageParameters>,
) -> RestResult<Json<UsageData>> {
    let wanted = read_query(wanted, "'tz_offset_minutes' and 'limit' must be whole numbers")?;
    let found = server.hub.store.usage(read(wanted)?).await?;
    Ok(Json(UsageData { rows: found.rows, total: found.total, truncated: found.truncated.then_some(true) }))
}

fn read(wanted: UsageParameters) -> Result<UsageQuery, CodedError> {
    let minutes = wanted.tz_offset_minutes.unwrap_or(0);
    if minutes.abs() > OFFSET_MINUTES_MAX {
        return Err(CodedError::invalid(format!(
            "'tz_offset_minutes' must be -{OFFSET_MINUTES_MAX} to {OFFSET_MINUTES_MAX}"
        )));
    }
    let day_offset_ms = minutes * MINUTE_MS;
    let mut query = UsageQuery {
        from: moment("from", wanted.from.as_deref(), day_offset_ms)?.map(|(at, _)| at),
        // A day that is named counts to its end.
        to: moment("to", wanted.to.as_deref(), day_offset_ms)?
            .map(|(at, is_day)| if is_day { at.saturating_add(DAY_MS) } else { at }),
        session_id: wanted.session_id,
        day_offset_ms,
        limit: wanted.limit.unwrap_or(USAGE_ROWS_MAX),
        ..UsageQuery::default()
    };
    for word in wanted.by.as_deref().unwrap_or("day").split(',').filter(|word| !word.is_empty()) {
        match word.trim() {
            "day" => query.by_day = true,
            "model" => query.by_model = true,
            "session" => query.by_session = true,
            _ => {
                return Err(CodedError::invalid(
                    "'by' takes 'day', 'model' and 'session', with commas between them",
                ));
            }
        }
    }
    Ok(query)
}

/// A time in Unix milliseconds, and whether it is the beginning of a day that was named.
fn moment(field: &str, text: Option<&str>, day_offset_ms: i64) -> Result<Option<(i64, bool)>, CodedError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    // A day contains dashes, so it is never read as a number.
    if let Ok(at) = text.parse() {
        return Ok(Some((at, false)));
    }
    // A day that no month has would be read as one of the next.
    let day = unix_ms(&format!("{text}T00:00:00Z"));
    match day.filter(|at| iso_8601(*at).get(..DAY_CHARS) == Some(text)) {
        Some(at) => Ok(Some((at - day_offset_ms, true))),
        None => {
            Err(CodedError::invalid(format!("'{field}' must be a day (2026-01-31) or Unix milliseconds")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_read() {
        assert_eq!(moment("from", Some("1970-01-02"), 0), Ok(Some((DAY_MS, true))));
        assert_eq!(
            moment("from", Some("1970-01-02"), 2 * 60 * MINUTE_MS),
            Ok(Some((DAY_MS - 7_200_000, true)))
        );
        assert_eq!(moment("from", Some("1794722699214"), 0), Ok(Some((1_794_722_699_214, false))));
        assert_eq!(moment("from", None, 0), Ok(None));
        assert_eq!(moment("from", Some(""), 0), Ok(None));
        for wrong in ["2026-02-30", "2026-13-01", "yesterday", "2026-01-01T00:00:00Z", "26-1-1"] {
            assert!(moment("from", Some(wrong), 0).is_err(), "{wrong}");
        }
    }
}
