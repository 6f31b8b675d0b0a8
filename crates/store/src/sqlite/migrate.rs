//! Brings a database file to the schema of this version. It never goes back: an older `qd` refuses a newer file.

use std::path::Path;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::sqlite::error::{SqlError, SqlResult};

/// The migrations of one database, oldest first. Never change one that was released: add another.
/// `user_version` counts how many of them a file has seen.
pub(crate) type Migrations = &'static [&'static str];

pub(crate) fn migrate(connection: &mut Connection, path: &Path, migrations: Migrations) -> SqlResult<()> {
    // SQLite keeps this number in the header of the file and never uses it itself, so no table is needed to know which
    // tables there are.
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = migrations.len() as i64;
    if found > known {
        return Err(StoreError::Newer { database: path.display().to_string(), found, known }.into());
    }
    for (version, sql) in (1..).zip(migrations).skip(found.max(0).cast_unsigned() as usize) {
        apply(connection, version, sql).map_err(|error| match StoreError::from(SqlError::from(error)) {
            // A full disk says nothing against the migration: the caller is told to free space, not to report a bug.
            StoreError::Full => StoreError::Full,
            other => {
                let (database, reason) = (path.display().to_string(), other.to_string());
                StoreError::Migration { database, version, reason }
            }
        })?;
    }
    Ok(())
}

/// The schema change and its number commit together, so a crash between them cannot be.
fn apply(connection: &mut Connection, version: i64, sql: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute_batch(sql)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}
