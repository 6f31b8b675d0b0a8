//! `qd ls`.

use std::collections::BTreeMap;

use qd_wire::InputRequest;
use qd_wire::data::SessionSummary;

use crate::arguments::ListArguments;
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, Style, age, one_line};
use crate::server;
use crate::settings::Settings;

const TITLE_CHARACTERS_MAX: usize = 40;
const DIRECTORY_CHARACTERS_MAX: usize = 40;
const QUESTION_CHARACTERS_MAX: usize = 100;
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
    let mut questions = BTreeMap::new();
    if arguments.waiting {
        for session in &sessions {
            let state = server::state(&client, &session.session_id).await?;
            questions.insert(session.session_id.clone(), state.pending_input);
        }
    }
    let home = std::env::var("HOME").ok();
    output.out(&table(&sessions, &questions, clock::now_ms(), home.as_deref(), output.style))
}

fn table(
    sessions: &[SessionSummary],
    questions: &BTreeMap<String, Vec<InputRequest>>,
    now_ms: i64,
    home: Option<&str>,
    style: Style,
) -> String {
    let rows: Vec<[String; 8]> = sessions.iter().map(|session| row(session, now_ms, home)).collect();
    let mut widths = HEAD.map(|title| title.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = style.bold(&line(&HEAD.map(str::to_owned), &widths)) + "\n";
    for (row, session) in rows.iter().zip(sessions) {
        let line = line(row, &widths);
        let waits = !row[7].is_empty();
        text.push_str(&if waits { style.yellow(&line) } else { line });
        text.push('\n');
        for question in questions.get(&session.session_id).into_iter().flatten() {
            let (title, id) = (one_line(question.title(), QUESTION_CHARACTERS_MAX), question.request_id());
            text.push_str(&format!("  ? {title}  {}\n", style.dim(&one_line(id, usize::MAX))));
        }
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
        one_line(&session.session_id, usize::MAX),
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
        let question = json!({"type":"confirm","request_id":"q1","title":"Go\u{1b}?","message":"now"});
        let questions = BTreeMap::from([("s2".to_owned(), vec![serde_json::from_value(question).unwrap()])]);
        insta::assert_snapshot!(table(&sessions, &questions, 60_000, Some("/home/ada"), Style::PLAIN));
    }
}
