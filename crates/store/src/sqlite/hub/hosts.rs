//! Machines of others that speak the run protocol to the hub, and whether they are let in.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteHub;
use crate::error::{Result, StoreError};
use crate::hub::{HostRow, HostTrust, PENDING_HOSTS_MAX, TOUCH_MS};
use crate::sqlite::error::SqlResult;

const COLUMNS: &str = "host_id, token_hash, trust, first_seen_at, last_seen_at, address";
const INSERT: &str = "INSERT INTO hosts (host_id, token_hash, trust, first_seen_at, last_seen_at, address)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (host_id) DO NOTHING";
/// The one that has just come stays, whatever its clock says.
const FORGET_OLDEST: &str = "DELETE FROM hosts WHERE trust = 'pending' AND host_id <> ?1 AND host_id NOT IN
    (SELECT host_id FROM hosts WHERE trust = 'pending' AND host_id <> ?1 ORDER BY first_seen_at DESC LIMIT ?2)";
const TOUCH: &str = "UPDATE hosts SET last_seen_at = ?2
    WHERE host_id = ?1 AND (last_seen_at IS NULL OR last_seen_at <= ?2 - ?3)";

impl SqliteHub {
    pub(crate) async fn host(&self, host_id: &str) -> Result<Option<HostRow>> {
        let host_id = host_id.to_owned();
        self.engine.read(move |connection| get(connection, &host_id)).await
    }

    pub(crate) async fn hosts(&self) -> Result<Vec<HostRow>> {
        self.engine.read(list).await
    }

    pub(crate) async fn put_host(&self, host: HostRow) -> Result<bool> {
        self.engine.write(0, move |connection| put(connection, &host)).await
    }

    pub(crate) async fn set_host_trust(&self, host_id: &str, trust: HostTrust) -> Result<bool> {
        let host_id = host_id.to_owned();
        let set = move |connection: &Connection| {
            let mut update = connection.prepare_cached("UPDATE hosts SET trust = ?2 WHERE host_id = ?1")?;
            Ok(update.execute(params![host_id, trust.as_str()])? > 0)
        };
        self.engine.write(0, set).await
    }

    pub(crate) async fn touch_host(&self, host_id: &str, now: i64) -> Result<()> {
        let host_id = host_id.to_owned();
        let touch = move |connection: &Connection| {
            connection.prepare_cached(TOUCH)?.execute(params![host_id, now, TOUCH_MS])?;
            Ok(())
        };
        self.engine.write(0, touch).await
    }

    pub(crate) async fn delete_host(&self, host_id: &str) -> Result<bool> {
        let host_id = host_id.to_owned();
        let delete = move |connection: &Connection| {
            Ok(connection.prepare_cached("DELETE FROM hosts WHERE host_id = ?1")?.execute([&host_id])? > 0)
        };
        self.engine.write(0, delete).await
    }
}

fn get(connection: &Connection, host_id: &str) -> SqlResult<Option<HostRow>> {
    let sql = format!("SELECT {COLUMNS} FROM hosts WHERE host_id = ?1");
    let row = connection.prepare_cached(&sql)?.query_row([host_id], |row| Ok(from_row(row))).optional()?;
    row.transpose()
}

fn list(connection: &Connection) -> SqlResult<Vec<HostRow>> {
    let sql = format!("SELECT {COLUMNS} FROM hosts ORDER BY host_id");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], |row| Ok(from_row(row)))?;
    rows.map(|row| row?).collect()
}

fn put(connection: &Connection, host: &HostRow) -> SqlResult<bool> {
    let added = connection.prepare_cached(INSERT)?.execute(params![
        host.host_id,
        host.token_hash,
        host.trust.as_str(),
        host.first_seen_at,
        host.last_seen_at,
        host.address,
    ])? > 0;
    if added && host.trust == HostTrust::Pending {
        connection
            .prepare_cached(FORGET_OLDEST)?
            .execute(params![host.host_id, PENDING_HOSTS_MAX as i64 - 1])?;
    }
    Ok(added)
}

fn from_row(row: &Row<'_>) -> SqlResult<HostRow> {
    let trust: String = row.get(2)?;
    let trust =
        HostTrust::parse(&trust).ok_or(StoreError::Unknown { column: "hosts.trust", value: trust })?;
    Ok(HostRow {
        host_id: row.get(0)?,
        token_hash: row.get(1)?,
        trust,
        first_seen_at: row.get(3)?,
        last_seen_at: row.get(4)?,
        address: row.get(5)?,
    })
}
