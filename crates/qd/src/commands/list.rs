//! `qd ls`.

use qd_wire::data::SessionSummary;

use crate::arguments::ListArguments;
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, Style, age, one_line};
use crate::server;
use crate::settings::Settings;

const TITLE_CHARACTERS_MAX: usize = 40;
const DIRECTORY_CHARACTERS_MAX: usize = 40;
const HEAD: [&str; 8] = ["ID", "STATE", "HARNESS", "MACHINE", "DIRECTORY", "TITLE", "AGE", "WAITING"];

/// Prints the sessions.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: ListArguments,
) -> Result<(), CliError> {
    let (client, _frames) = server::connect(settings).await?;
    let mut sessions = server::sessions(&client).await?;
    if arguments.waiting {
        sessions.retain(|session| session.pending_input_count > 0);
    }
    if output.json {
        return output.json_line(&sessions);
    }
    if sessions.is_empty() {
        output.note("no sessions; start one: qd run --harness demo \"hello\"\n");
        return Ok(());
    }
    let home = std::env::var("HOME").ok();
    output.out(&table(&sessions, clock::now_ms(), home.as_deref(), output.style))
}

fn table(sessions: &[SessionSummary], now_ms: i64, home: Option<&str>, style: Style) -> String {
    let rows: Vec<[String; 8]> = sessions.iter().map(|session| row(session, now_ms, home)).collect();
    let mut widths = HEAD.map(|title| title.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = style.bold(&line(&HEAD.map(str::to_owned), &widths)) + "\n";
    for row in &rows {
        let line = line(row, &widths);
        let waits = !row[7].is_empty();
        text.push_str(&if waits { style.yellow(&line) } else { line });
        text.push('\n');
    }
    text
}

fn line(cells: &[String; 8], widths: &[usize; 8]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}

fn row(session: &SessionSummary, now_ms: i64, home: Option<&str>) -> [String; 8] {
    let waiting = match session.pending_input_count {
        0 => String::new(),
        count => format!("{count}"),
    };
    [
        session.session_id.clone(),
        one_line(&session.state, 20),
        one_line(&session.harness, 20),
        one_line(&session.runner_id, 20),
        directory(session.cwd.as_deref().unwrap_or(""), home),
        one_line(session.title.as_deref().unwrap_or(""), TITLE_CHARACTERS_MAX),
        age(now_ms, session.last_activity),
        waiting,
    ]
}

/// A path with `~` for the home directory; of a long one the end, which says most.
fn directory(path: &str, home: Option<&str>) -> String {
    let below_home = home.filter(|home| !home.is_empty()).and_then(|home| path.strip_prefix(home));
    let path = match below_home {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
        Some(_) | None => path.to_owned(),
    };
    let path = one_line(&path, usize::MAX);
    let length = path.chars().count();
    if length <= DIRECTORY_CHARACTERS_MAX {
        return path;
    }
    let end: String = path.chars().skip(length - DIRECTORY_CHARACTERS_MAX + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sessions_stand_in_a_table() {
        let session = |id: &str, more: serde_json::Value| {
            let mut value = json!({"session_id":id,"runner_id":"local","harness":"pi","state":"idle","created_at":0,
                "last_activity":0,"seq":1,"message_count":1,"subscriber_count":0,"pending_input_count":0});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<SessionSummary>(value).unwrap()
        };
        let sessions = [
            session(
                "s2",
                json!({"state":"working","pending_input_count":2,"cwd":"/home/ada/deck","title":"Fix the\nhull"}),
            ),
            session(
                "s1",
                json!({"harness":"demo","cwd":"/very/long/path/that/goes/on/and/on/until/the/end","last_activity":59_000}),
            ),
        ];
        insta::assert_snapshot!(table(&sessions, 60_000, Some("/home/ada"), Style::PLAIN));
    }
}
