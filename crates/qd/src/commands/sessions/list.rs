//! `qd ls`.

use std::collections::BTreeMap;

use qd_runner::driver::first_try;
use qd_wire::InputRequest;
use qd_wire::data::SessionSummary;

use crate::arguments::ListArguments;
use crate::client::connection;
use crate::clock;
use crate::error::Result;
use crate::output::table::{TableRow, table};
use crate::output::{Output, Style, age, one_line};
use crate::settings::Settings;

const TITLE_CHARACTERS_MAX: usize = 40;
const DIRECTORY_CHARACTERS_MAX: usize = 40;
const QUESTION_CHARACTERS_MAX: usize = 100;
const HEAD: [&str; 8] = ["ID", "STATE", "HARNESS", "RUNNER", "DIRECTORY", "TITLE", "AGE", "WAITING"];
/// Where the runner stands in a row; left out where there is only one.
const RUNNER_COLUMN: usize = 3;

/// Prints the sessions.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: ListArguments) -> Result<()> {
    let connection = connection::connect(settings, output).await?;
    let mut sessions = connection.sessions().await?;
    if arguments.waiting {
        sessions.retain(|session| session.pending_input_count > 0);
    }
    if output.json {
        return output.json_line(&sessions);
    }
    if sessions.is_empty() {
        output.note(&format!("no sessions; start one: {}\n", first_try()));
        return Ok(());
    }
    let mut questions = BTreeMap::new();
    // Only here are the questions themselves asked for. It costs one call for each session, which a plain list does not
    // need.
    if arguments.waiting {
        for session in &sessions {
            let state = connection.session_state(&session.session_id).await?;
            questions.insert(session.session_id.clone(), state.pending_input);
        }
    }
    let several_runners = connection.runners().await?.len() > 1;
    let home = std::env::var("HOME").ok();
    let view =
        SessionTable { now_ms: clock::now_ms(), home: home.as_deref(), several_runners, style: output.style };
    output.out(&view.text(&sessions, &questions))
}

/// How the list is shown.
struct SessionTable<'a> {
    now_ms: i64,
    home: Option<&'a str>,
    several_runners: bool,
    style: Style,
}

impl SessionTable<'_> {
    fn text(&self, sessions: &[SessionSummary], questions: &BTreeMap<String, Vec<InputRequest>>) -> String {
        let row = |session: &SessionSummary| {
            let below = questions.get(&session.session_id).into_iter().flatten();
            let below = below.map(|question| self.question(question)).collect();
            let is_marked = session.pending_input_count > 0;
            TableRow { cells: self.columns(self.row(session).to_vec()), is_marked, below }
        };
        table(&self.columns(HEAD.to_vec()), sessions.iter().map(row), self.style)
    }

    fn columns<T>(&self, mut cells: Vec<T>) -> Vec<T> {
        if !self.several_runners {
            cells.remove(RUNNER_COLUMN);
        }
        cells
    }

    fn question(&self, question: &InputRequest) -> String {
        let (title, id) = (one_line(question.title(), QUESTION_CHARACTERS_MAX), question.request_id());
        format!("  ? {title}  {}\n", self.style.dim(&one_line(id, usize::MAX)))
    }

    fn row(&self, session: &SessionSummary) -> [String; 8] {
        let waiting = match session.pending_input_count {
            0 => String::new(),
            count => format!("{count}"),
        };
        [
            one_line(&session.session_id, usize::MAX),
            one_line(&session.state, 20),
            one_line(&session.harness, 20),
            one_line(&session.runner_id, 20),
            directory(session.cwd.as_deref().unwrap_or(""), self.home),
            one_line(session.title.as_deref().unwrap_or(""), TITLE_CHARACTERS_MAX),
            age(self.now_ms, session.last_activity),
            waiting,
        ]
    }
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
        let view = |several_runners| {
            let view = SessionTable {
                now_ms: 60_000,
                home: Some("/home/ada"),
                several_runners,
                style: Style::PLAIN,
            };
            view.text(&sessions, &questions)
        };
        insta::assert_snapshot!(format!("{}\n{}", view(false), view(true)));
    }
}
