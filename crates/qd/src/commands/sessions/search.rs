//! `qd search`.

use qd_link::client::ClientRequest;
use qd_wire::Command;
use qd_wire::command::SearchParams;
use qd_wire::data::{SearchData, SearchHit};

use crate::arguments::SearchArguments;
use crate::client::connection;
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::{Output, Style, age, one_line};
use crate::settings::Settings;

const SNIPPET_CHARACTERS_MAX: usize = 160;

/// Prints the messages found.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: SearchArguments) -> Result<()> {
    let query = arguments.query.join(" ");
    if query.trim().is_empty() {
        return Err(CliError::usage("the query is empty").hint("give the words to find: qd search WORDS"));
    }
    let connection = connection::connect_hub(settings).await?;
    let params =
        SearchParams { query, role: arguments.role, limit: Some(arguments.limit), ..SearchParams::default() };
    let data: SearchData = connection.client.query(&ClientRequest::system(Command::Search(params))).await?;
    let now_ms = clock::now_ms();
    output.list(&data.hits, "nothing found\n", |hits| {
        hits.iter().map(|hit| line(hit, now_ms, output.style)).collect()
    })
}

fn line(hit: &SearchHit, now_ms: i64, style: Style) -> String {
    let place = format!("{}#{}", one_line(&hit.session_id, usize::MAX), hit.idx);
    let who = format!("{} {}", one_line(&hit.role, 12), age(now_ms, hit.created_at));
    let snippet = one_line(&hit.snippet.replace('\n', " "), SNIPPET_CHARACTERS_MAX);
    format!("{}  {}  {snippet}\n", style.bold(&place), style.dim(&who))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_one_line() {
        let hit = SearchHit {
            session_id: "s1".into(),
            message_id: "m1".into(),
            idx: 4,
            role: "assistant".into(),
            created_at: 0,
            snippet: "the [hull]\nis tight".into(),
            score: -1.0,
            ..SearchHit::default()
        };
        assert_eq!(line(&hit, 120_000, Style::PLAIN), "s1#4  assistant 2m  the [hull] is tight\n");
    }
}
