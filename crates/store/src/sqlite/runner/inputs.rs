use rusqlite::Connection;

use crate::sqlite::error::SqlResult;

/// Notes an input; false if it is known.
pub(super) fn put(connection: &Connection, session_id: &str, input_id: &str) -> SqlResult<bool> {
    let added = connection
        .prepare_cached("INSERT OR IGNORE INTO run_inputs (session_id, input_id) VALUES (?1, ?2)")?
        .execute([session_id, input_id])?;
    Ok(added > 0)
}

/// Forgets inputs that were noted and then not written after all.
pub(super) fn delete(connection: &Connection, session_id: &str, input_ids: &[String]) -> SqlResult<()> {
    for input_id in input_ids {
        connection
            .prepare_cached("DELETE FROM run_inputs WHERE session_id = ?1 AND input_id = ?2")?
            .execute([session_id, input_id.as_str()])?;
    }
    Ok(())
}

pub(super) fn delete_session(connection: &Connection, session_id: &str) -> SqlResult<()> {
    connection.prepare_cached("DELETE FROM run_inputs WHERE session_id = ?1")?.execute([session_id])?;
    Ok(())
}
