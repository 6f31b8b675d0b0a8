//! `qd log audit`.

use qd_link::rest::Method;
use qd_wire::people::{AuditData, AuditEntry};
use serde_json::Value;

use crate::arguments::LogCommand;
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, age, harmless, one_line};
use crate::rest::{Refusal, Rest};
use crate::settings::Settings;
use crate::table::{Row, table};

const HEAD: [&str; 7] = ["AGE", "WHO", "HOW", "WHAT", "TOOL", "OUTCOME", "ABOUT"];
const SUMMARY_CHARACTERS_MAX: usize = 80;

/// Prints the entries.
pub(crate) async fn run(settings: &Settings, output: &Output, command: LogCommand) -> Result<(), CliError> {
    let LogCommand::Audit { session, who, tool, kind, limit } = command;
    let mut path = format!("/api/audit?limit={limit}");
    for (name, value) in [("session", session), ("principal", who), ("tool", tool), ("kind", kind)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(&value)));
        }
    }
    let answer = Rest::of(settings)?.call::<AuditData>(Method::Get, &path, None::<&Value>).await?;
    let AuditData { entries, .. } = answer.map_err(Refusal::into_error)?;
    if output.json {
        return entries.iter().try_for_each(|entry| output.json_line(entry));
    }
    if entries.is_empty() {
        output.note("nothing was done yet\n");
        return Ok(());
    }
    let now = clock::now_ms();
    let rows: Vec<Row> = entries.iter().map(|entry| row(entry, now)).collect();
    output.out(&table(&HEAD, &rows, output.style))
}

fn row(entry: &AuditEntry, now: i64) -> Row {
    let text = |value: &Option<String>| harmless(value.as_deref().unwrap_or("-"));
    let outcome = match (entry.ok, entry.duration_ms) {
        (Some(true), Some(duration)) => format!("ok, {duration} ms"),
        (Some(true), None) => "ok".to_owned(),
        (Some(false), _) => "failed".to_owned(),
        (None, _) => "-".to_owned(),
    };
    let about = [entry.session_id.as_deref(), entry.summary.as_deref()];
    let about: Vec<&str> = about.into_iter().flatten().collect();
    Row::new(vec![
        age(now, entry.ts),
        text(&entry.principal),
        text(&entry.actor),
        harmless(&entry.kind),
        text(&entry.tool),
        outcome,
        one_line(&about.join(" "), SUMMARY_CHARACTERS_MAX),
    ])
}

/// A value for a query string.
pub(super) fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_query_is_escaped() {
        assert_eq!(escaped("a b&c=ä"), "a%20b%26c%3D%C3%A4");
    }
}
