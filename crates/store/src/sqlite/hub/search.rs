//! Full-text search over messages. What people type is never taken as the query language of the index.

use rusqlite::{Connection, params};

use crate::hub::{SEARCH_LIMIT_MAX, SEARCH_TOKENS_MAX, SearchHit, SearchQuery};
use crate::sqlite::error::SqlResult;
use crate::sqlite::statements::{StoredRow, rows, stored_row};

stored_row!(SearchHit of several tables: session_id, session_title, message_id, idx, role, created_at, snippet, rank,
    runner_id, harness, cwd);

/// CROSS JOIN keeps the index outermost: it then yields rows best first by itself, and a snippet is made only
/// for rows that are returned.
const SEARCH: &str = "SELECT m.session_id, s.title, m.id, m.idx, m.role, m.created_at,
     snippet(messages_fts, 0, '[', ']', '…', 12), messages_fts.rank, coalesce(s.runner_id, ''),
     coalesce(s.harness, ''), coalesce(s.cwd, '')
    FROM messages_fts CROSS JOIN messages m ON m.message_key = messages_fts.rowid
    LEFT JOIN sessions s ON s.session_id = m.session_id
    WHERE messages_fts MATCH ?1 AND (m.active = 1 OR ?2) AND (?3 IS NULL OR m.session_id = ?3)
     AND (?4 IS NULL OR m.role = ?4) AND (?5 IS NULL OR m.created_at >= ?5) AND (?6 IS NULL OR m.created_at < ?6)
     AND (?9 IS NULL OR s.runner_id = ?9) AND (?10 IS NULL OR s.harness = ?10)
    ORDER BY messages_fts.rank LIMIT ?7 OFFSET ?8";

pub(super) fn search(connection: &Connection, query: &SearchQuery) -> SqlResult<Vec<SearchHit>> {
    let Some(expression) = match_expression(&query.text) else { return Ok(Vec::new()) };
    let values = params![
        expression,
        query.include_inactive,
        query.session_id,
        query.role,
        query.after,
        query.before,
        query.limit.min(SEARCH_LIMIT_MAX),
        query.offset,
        query.runner_id,
        query.harness,
    ];
    rows(connection, SEARCH, values, SearchHit::from_row)
}

/// Every word quoted, so that `hp-z8` or `a:b` is text and not query syntax; a trailing `*` stays outside.
/// `None` if no word has a letter or digit, because such words are not in the index.
fn match_expression(text: &str) -> Option<String> {
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
    let quoted: Vec<String> = words.take(SEARCH_TOKENS_MAX).map(quote).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

fn quote(word: &str) -> String {
    let stem = word.trim_end_matches('*');
    let star = if stem.len() < word.len() { "*" } else { "" };
    // A NUL would end the expression in the middle of the quotes.
    format!("\"{}\"{star}", stem.replace('"', "\"\"").replace('\0', " "))
}

#[cfg(test)]
mod tests {
    use super::match_expression;

    #[test]
    fn every_word_is_quoted() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(match_expression(text).as_deref(), expected, "{text:?}");
        };
        check("hp-z8 model:x", Some(r#""hp-z8" "model:x""#));
        check("migrat* \"quoted\"", Some(r#""migrat"* """quoted""""#));
        check("a** NEAR(b", Some(r#""a"* "NEAR(b""#));
        check("-- * \"\"", None);
        check("", None);
    }
}
