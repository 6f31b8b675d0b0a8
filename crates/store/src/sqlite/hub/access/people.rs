//! People with an account.
//! What a person had access with ends in the same commit as the change that ends it.

use rusqlite::{Connection, params, params_from_iter};

use super::{logins, tokens};
use crate::hub::{PEOPLE_MAX, PersonChange, PersonRow, PersonStored};
use crate::sqlite::error::SqlResult;
use crate::sqlite::hub::requests::requests;
use crate::sqlite::statements::{StoredRow, changes, first, rows, run, stored_row, value};

stored_row!(PersonRow: username, password_hash, role, created_at, last_login_at, disabled);

/// A principal is known by its name alone, so no token that is a principal of its own may have it.
const INSERT: &str = "INSERT INTO people (username, password_hash, role, created_at, last_login_at, disabled)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6
    WHERE NOT EXISTS (SELECT 1 FROM access_tokens WHERE owner = '' AND name = ?1)
    ON CONFLICT (username) DO NOTHING";
const CHANGE: &str =
    "UPDATE people SET password_hash = coalesce(?2, password_hash), role = coalesce(?3, role),
    disabled = coalesce(?4, disabled) WHERE username = ?1";

requests! {
    read person(username: &str) -> Option<PersonRow> = get;
    read people() -> Vec<PersonRow> = list;
    write put_person(person: PersonRow) -> PersonStored = put;
    write change_person(username: &str, change: PersonChange) -> bool = update;
    write delete_person(username: &str) -> bool = delete;
    write note_person_login(username: &str, now: i64) -> () = note_login;
}

fn get(connection: &Connection, username: &str) -> SqlResult<Option<PersonRow>> {
    let sql = format!("SELECT {COLUMNS} FROM people WHERE username = ?1");
    first(connection, &sql, [username], PersonRow::from_row)
}

fn list(connection: &Connection) -> SqlResult<Vec<PersonRow>> {
    rows(connection, &format!("SELECT {COLUMNS} FROM people ORDER BY username"), [], PersonRow::from_row)
}

fn put(connection: &Connection, person: &PersonRow) -> SqlResult<PersonStored> {
    let is_full = value::<i64>(connection, "SELECT count(*) FROM people", [])? >= PEOPLE_MAX as i64;
    // A taken name is the better answer, because the person who adds somebody can act on it.
    if is_full && get(connection, &person.username)?.is_none() {
        return Ok(PersonStored::TooMany);
    }
    let added = changes(connection, INSERT, params_from_iter(person.values()?))?;
    Ok(if added { PersonStored::Added } else { PersonStored::NameTaken })
}

fn update(connection: &Connection, username: &str, change: &PersonChange) -> SqlResult<bool> {
    let values = params![username, change.password_hash, change.role, change.disabled];
    if !changes(connection, CHANGE, values)? {
        return Ok(false);
    }
    // Whoever changes a password may do so because somebody else knows it: nothing that was opened with it may stay.
    if change.password_hash.is_some() || change.disabled == Some(true) {
        end_accesses(connection, username)?;
    }
    Ok(true)
}

fn delete(connection: &Connection, username: &str) -> SqlResult<bool> {
    end_accesses(connection, username)?;
    changes(connection, "DELETE FROM people WHERE username = ?1", [username])
}

fn note_login(connection: &Connection, username: &str, now: i64) -> SqlResult<()> {
    const NOTE: &str = "UPDATE people SET last_login_at = ?2 WHERE username = ?1";
    run(connection, NOTE, params![username, now]).map(drop)
}

fn end_accesses(connection: &Connection, username: &str) -> SqlResult<()> {
    logins::delete_of(connection, username)?;
    tokens::delete_of(connection, username)
}
