//! People with an account.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{SqliteHub, logins, tokens};
use crate::error::Result;
use crate::hub::{PEOPLE_MAX, PersonChange, PersonRow, PersonStored};
use crate::sqlite::error::SqlResult;

const COLUMNS: &str = "username, password_hash, role, created_at, last_login_at, disabled";
/// A principal is known by its name alone, so no token that is a principal of its own may have it.
const INSERT: &str = "INSERT INTO people (username, password_hash, role, created_at, last_login_at, disabled)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6
    WHERE NOT EXISTS (SELECT 1 FROM access_tokens WHERE owner = '' AND name = ?1)
    ON CONFLICT (username) DO NOTHING";
const CHANGE: &str =
    "UPDATE people SET password_hash = coalesce(?2, password_hash), role = coalesce(?3, role),
    disabled = coalesce(?4, disabled) WHERE username = ?1";

impl SqliteHub {
    pub(crate) async fn person(&self, username: &str) -> Result<Option<PersonRow>> {
        let username = username.to_owned();
        self.engine.read(move |connection| get(connection, &username)).await
    }

    pub(crate) async fn people(&self) -> Result<Vec<PersonRow>> {
        self.engine.read(list).await
    }

    pub(crate) async fn put_person(&self, person: PersonRow) -> Result<PersonStored> {
        self.engine.write(0, move |connection| put(connection, &person)).await
    }

    pub(crate) async fn change_person(&self, username: &str, change: PersonChange) -> Result<bool> {
        let username = username.to_owned();
        self.engine.write(0, move |connection| update(connection, &username, &change)).await
    }

    pub(crate) async fn delete_person(&self, username: &str) -> Result<bool> {
        let username = username.to_owned();
        self.engine.write(0, move |connection| delete(connection, &username)).await
    }

    pub(crate) async fn note_person_login(&self, username: &str, now: i64) -> Result<()> {
        let username = username.to_owned();
        let note = move |connection: &Connection| {
            let mut update =
                connection.prepare_cached("UPDATE people SET last_login_at = ?2 WHERE username = ?1")?;
            update.execute(params![username, now])?;
            Ok(())
        };
        self.engine.write(0, note).await
    }
}

fn get(connection: &Connection, username: &str) -> SqlResult<Option<PersonRow>> {
    let sql = format!("SELECT {COLUMNS} FROM people WHERE username = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([username], from_row).optional()?)
}

fn list(connection: &Connection) -> SqlResult<Vec<PersonRow>> {
    let sql = format!("SELECT {COLUMNS} FROM people ORDER BY username");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn put(connection: &Connection, person: &PersonRow) -> SqlResult<PersonStored> {
    let count: i64 =
        connection.prepare_cached("SELECT count(*) FROM people")?.query_row([], |row| row.get(0))?;
    let is_full = count >= PEOPLE_MAX as i64;
    if is_full && get(connection, &person.username)?.is_none() {
        return Ok(PersonStored::TooMany);
    }
    let added = connection.prepare_cached(INSERT)?.execute(params![
        person.username,
        person.password_hash,
        person.role,
        person.created_at,
        person.last_login_at,
        person.disabled,
    ])?;
    Ok(if added > 0 { PersonStored::Added } else { PersonStored::NameTaken })
}

fn update(connection: &Connection, username: &str, change: &PersonChange) -> SqlResult<bool> {
    let values = params![username, change.password_hash, change.role, change.disabled];
    if connection.prepare_cached(CHANGE)?.execute(values)? == 0 {
        return Ok(false);
    }
    if change.password_hash.is_some() || change.disabled == Some(true) {
        end_accesses(connection, username)?;
    }
    Ok(true)
}

fn delete(connection: &Connection, username: &str) -> SqlResult<bool> {
    end_accesses(connection, username)?;
    Ok(connection.prepare_cached("DELETE FROM people WHERE username = ?1")?.execute([username])? > 0)
}

fn end_accesses(connection: &Connection, username: &str) -> SqlResult<()> {
    logins::delete_of(connection, username)?;
    tokens::delete_of(connection, username)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<PersonRow> {
    Ok(PersonRow {
        username: row.get(0)?,
        password_hash: row.get(1)?,
        role: row.get(2)?,
        created_at: row.get(3)?,
        last_login_at: row.get(4)?,
        disabled: row.get(5)?,
    })
}
