//! Inputs to programs in terminals, by the name their sender gave them, and the images of accepted prompts. What is
//! typed into a terminal cannot be taken back, so an input is noted before it is written, and once only.

use bytes::Bytes;
use rusqlite::Connection;

use super::types::InputClaim;
use crate::sqlite::error::SqlResult;
use crate::sqlite::statements::{Column, changes, rows, run, value};

/// Notes an input that is not known yet.
pub(super) fn put(connection: &Connection, session_id: &str, input_id: &str) -> SqlResult<InputClaim> {
    let sql = "INSERT OR IGNORE INTO run_inputs (session_id, input_id, is_settled) VALUES (?1, ?2, 0)";
    if changes(connection, sql, [session_id, input_id])? {
        return Ok(InputClaim::New);
    }
    let sql = "SELECT is_settled FROM run_inputs WHERE session_id = ?1 AND input_id = ?2";
    Ok(if value(connection, sql, [session_id, input_id])? { InputClaim::Settled } else { InputClaim::Begun })
}

/// Notes that these inputs were written, together with what says so.
pub(super) fn settle(connection: &Connection, session_id: &str, input_ids: &[String]) -> SqlResult<()> {
    let sql = "UPDATE run_inputs SET is_settled = 1 WHERE session_id = ?1 AND input_id = ?2";
    for input_id in input_ids {
        run(connection, sql, [session_id, input_id.as_str()])?;
    }
    Ok(())
}

/// Forgets inputs that were noted and then not written after all.
pub(super) fn delete(connection: &Connection, session_id: &str, input_ids: &[String]) -> SqlResult<()> {
    for input_id in input_ids {
        let sql = "DELETE FROM run_inputs WHERE session_id = ?1 AND input_id = ?2";
        run(connection, sql, [session_id, input_id.as_str()])?;
    }
    Ok(())
}

/// Otherwise a new session of the same id would find its inputs already taken.
pub(super) fn delete_session(connection: &Connection, session_id: &str) -> SqlResult<()> {
    run(connection, "DELETE FROM run_inputs WHERE session_id = ?1", [session_id])?;
    run(connection, "DELETE FROM input_images WHERE session_id = ?1", [session_id]).map(drop)
}

/// Puts come first: a name that is put and deleted in the same unit is gone afterwards.
pub(super) fn change_images(
    connection: &Connection,
    session_id: &str,
    put: &[(String, Bytes)],
    delete: &[String],
) -> SqlResult<()> {
    for (key, body) in put {
        let sql = "INSERT OR REPLACE INTO input_images (session_id, images_key, body) VALUES (?1, ?2, ?3)";
        run(connection, sql, (session_id, key, &body[..]))?;
    }
    for key in delete {
        let sql = "DELETE FROM input_images WHERE session_id = ?1 AND images_key = ?2";
        run(connection, sql, [session_id, key.as_str()])?;
    }
    Ok(())
}

pub(super) fn images(connection: &Connection, session_id: &str) -> SqlResult<Vec<(String, Bytes)>> {
    let sql = "SELECT images_key, body FROM input_images WHERE session_id = ?1";
    rows(connection, sql, [session_id], |row| Ok((row.get(0)?, Column::read(row, 1)?)))
}
