//! Usage, added up. SQLite reads the fields of a message's usage; nothing else here looks into it.

use qd_wire::rest::{UsageRow, UsageSum};
use rusqlite::{Connection, Row, params};

use super::requests::requests;
use crate::hub::{USAGE_ROWS_MAX, UsageQuery, UsageRows};
use crate::sqlite::error::SqlResult;

requests! {
    read usage(query: UsageQuery) -> UsageRows = usage;
}

fn usage(connection: &Connection, query: &UsageQuery) -> SqlResult<UsageRows> {
    let mut select = connection.prepare_cached(&sql(query))?;
    let from = query.from.unwrap_or(i64::MIN);
    let to = query.to.unwrap_or(i64::MAX);
    let mut rows = select.query(params![from, to, query.session_id, query.day_offset_ms])?;
    let limit = query.limit.min(USAGE_ROWS_MAX);
    let mut found = UsageRows::default();
    // All rows are read, also those beyond the limit, because the total is of everything that was asked for.
    while let Some(row) = rows.next()? {
        let row = from_row(row)?;
        add(&mut found.total, &row.sum);
        if found.rows.len() < limit {
            found.rows.push(row);
        } else {
            found.truncated = true;
        }
    }
    if !(query.by_day || query.by_model || query.by_session) {
        // Nothing tells them apart: the one row is the sum.
        found.rows.clear();
        found.truncated = false;
    }
    Ok(found)
}

fn add(total: &mut UsageSum, other: &UsageSum) {
    total.input_tokens = total.input_tokens.saturating_add(other.input_tokens);
    total.output_tokens = total.output_tokens.saturating_add(other.output_tokens);
    total.cache_read_tokens = total.cache_read_tokens.saturating_add(other.cache_read_tokens);
    total.cache_write_tokens = total.cache_write_tokens.saturating_add(other.cache_write_tokens);
    total.cost_usd = finite(total.cost_usd + other.cost_usd);
    total.messages = total.messages.saturating_add(other.messages);
}

/// JSON has no infinity.
fn finite(sum: f64) -> f64 {
    if sum.is_finite() { sum } else { f64::MAX }
}

/// Sums are floating: an overflow of whole numbers would be an error, and agents may say anything.
fn sql(query: &UsageQuery) -> String {
    let chosen = |is_wanted: bool, column: &'static str| if is_wanted { column } else { "NULL" };
    let day = "strftime('%Y-%m-%d', (m.created_at + ?4) / 1000, 'unixepoch')";
    // Usage is what an agent said: text that is no JSON counts as nothing, and a negative number as zero.
    let field = |name: &str| {
        format!("total(CASE WHEN json_valid(m.usage_json) THEN max(0, m.usage_json ->> '$.{name}') END)")
    };
    format!(
        // `?4` stands in the condition too, because a statement without days would not use it, and binding a value that
        // a statement does not name is an error.
        "SELECT {}, {}, {}, {}, {}, {} AS input, {} AS output, {}, {}, total(max(0, m.cost_usd)) AS cost, count(*)
         FROM messages m LEFT JOIN sessions s ON s.session_id = m.session_id
         WHERE m.usage_json IS NOT NULL AND m.created_at >= ?1 AND m.created_at < ?2
          AND (?3 IS NULL OR m.session_id = ?3) AND ?4 IS NOT NULL
         GROUP BY 1, 2, 3, 4 ORDER BY 1 DESC, cost DESC, input + output DESC, 2, 3, 4",
        chosen(query.by_day, day),
        chosen(query.by_model, "m.model"),
        chosen(query.by_model, "m.provider"),
        chosen(query.by_session, "m.session_id"),
        chosen(query.by_session, "s.title"),
        field("input_tokens"),
        field("output_tokens"),
        field("cache_read_tokens"),
        field("cache_write_tokens"),
    )
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    // A float becomes the nearest whole number there is.
    let count = |place| row.get::<_, f64>(place).map(|sum| sum.round() as u64);
    Ok(UsageRow {
        day: row.get(0)?,
        model: row.get(1)?,
        provider: row.get(2)?,
        session_id: row.get(3)?,
        title: row.get(4)?,
        sum: UsageSum {
            input_tokens: count(5)?,
            output_tokens: count(6)?,
            cache_read_tokens: count(7)?,
            cache_write_tokens: count(8)?,
            cost_usd: finite(row.get(9)?),
            messages: row.get::<_, i64>(10)?.cast_unsigned(),
        },
    })
}
