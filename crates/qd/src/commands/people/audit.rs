//! `qd log audit`.

use qd_wire::people::{AuditData, AuditEntry};

use crate::arguments::LogCommand;
use crate::client::rest::{RestClient, escape};
use crate::clock;
use crate::error::Result;
use crate::output::table::{TableRow, table};
use crate::output::{Output, age, harmless, one_line};
use crate::settings::Settings;

const HEAD: [&str; 7] = ["AGE", "WHO", "HOW", "WHAT", "TOOL", "OUTCOME", "ABOUT"];
const SUMMARY_CHARACTERS_MAX: usize = 80;

/// Prints the entries.
pub(crate) async fn run(settings: &Settings, output: &Output, command: LogCommand) -> Result<()> {
    let LogCommand::Audit { session, who, tool, kind, limit } = command;
    let mut path = format!("/api/audit?limit={limit}");
    for (name, value) in [("session", session), ("principal", who), ("tool", tool), ("kind", kind)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escape(&value)));
        }
    }
    let AuditData { entries, .. } = RestClient::of(settings)?.get(&path).await?;
    if output.json {
        // One line for each entry and not one list, so that `jq` and `grep` can work on it.
        return entries.iter().try_for_each(|entry| output.json_line(entry));
    }
    if entries.is_empty() {
        output.note("the audit log is empty\n");
        return Ok(());
    }
    let now = clock::now_ms();
    output.out(&table(&HEAD, entries.iter().map(|entry| row(entry, now)), output.style))
}

fn row(entry: &AuditEntry, now: i64) -> TableRow {
    let text = |value: &Option<String>| harmless(value.as_deref().unwrap_or("-"));
    let outcome = match (entry.ok, entry.duration_ms) {
        (Some(true), Some(duration)) => format!("ok, {duration} ms"),
        (Some(true), None) => "ok".to_owned(),
        (Some(false), _) => "failed".to_owned(),
        (None, _) => "-".to_owned(),
    };
    let about = [entry.session_id.as_deref(), entry.summary.as_deref()];
    let about: Vec<&str> = about.into_iter().flatten().collect();
    TableRow::new(vec![
        age(now, entry.ts),
        text(&entry.principal),
        text(&entry.actor),
        harmless(&entry.kind),
        text(&entry.tool),
        outcome,
        one_line(&about.join(" "), SUMMARY_CHARACTERS_MAX),
    ])
}
