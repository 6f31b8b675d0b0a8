//! Machines of others that speak the run protocol to the hub, and whether they are let in.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::HubStore;
use super::types::{HostRow, HostTrust};
use crate::error::{Result, StoreError};

/// Hosts nobody has confirmed yet that are kept: whoever reaches the hub can add one, so the oldest go.
pub const PENDING_HOSTS_MAX: usize = 64;
/// A host's last visit is written only when the stored one is older than this.
const TOUCH_MS: i64 = 60_000;

const COLUMNS: &str = "host_id, token_hash, trust, first_seen_at, last_seen_at, address";
const INSERT: &str = "INSERT INTO hosts (host_id, token_hash, trust, first_seen_at, last_seen_at, address)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (host_id) DO NOTHING";
/// The one that has just come stays, whatever its clock says.
const FORGET_OLDEST: &str = "DELETE FROM hosts WHERE trust = 'pending' AND host_id <> ?1 AND host_id NOT IN
    (SELECT host_id FROM hosts WHERE trust = 'pending' AND host_id <> ?1 ORDER BY first_seen_at DESC LIMIT ?2)";
const TOUCH: &str = "UPDATE hosts SET last_seen_at = ?2
    WHERE host_id = ?1 AND (last_seen_at IS NULL OR last_seen_at <= ?2 - ?3)";

impl HubStore {
    pub async fn host(&self, host_id: &str) -> Result<Option<HostRow>> {
        let host_id = host_id.to_owned();
        self.engine.read(move |connection| get(connection, &host_id)).await
    }

    /// All hosts that ever came or were added, by id.
    pub async fn hosts(&self) -> Result<Vec<HostRow>> {
        self.engine.read(list).await
    }

    /// Adds a host; false if there is one of this id already, which stays as it is. Beyond `PENDING_HOSTS_MAX` the
    /// oldest of those nobody has confirmed go.
    pub async fn put_host(&self, host: HostRow) -> Result<bool> {
        self.engine.write(0, move |connection| put(connection, &host)).await
    }

    /// False if there is no such host.
    pub async fn set_host_trust(&self, host_id: &str, trust: HostTrust) -> Result<bool> {
        let host_id = host_id.to_owned();
        let set = move |connection: &Connection| {
            let mut update = connection.prepare_cached("UPDATE hosts SET trust = ?2 WHERE host_id = ?1")?;
            Ok(update.execute(params![host_id, trust.as_str()])? > 0)
        };
        self.engine.write(0, set).await
    }

    /// Notes that a host was here, at most once a minute.
    pub async fn touch_host(&self, host_id: &str, now: i64) -> Result<()> {
        let host_id = host_id.to_owned();
        let touch = move |connection: &Connection| {
            connection.prepare_cached(TOUCH)?.execute(params![host_id, now, TOUCH_MS])?;
            Ok(())
        };
        self.engine.write(0, touch).await
    }

    /// False if there was none. Its id is free then; revoke a host that must not come back.
    pub async fn delete_host(&self, host_id: &str) -> Result<bool> {
        let host_id = host_id.to_owned();
        let delete = move |connection: &Connection| {
            Ok(connection.prepare_cached("DELETE FROM hosts WHERE host_id = ?1")?.execute([&host_id])? > 0)
        };
        self.engine.write(0, delete).await
    }
}

fn get(connection: &Connection, host_id: &str) -> Result<Option<HostRow>> {
    let sql = format!("SELECT {COLUMNS} FROM hosts WHERE host_id = ?1");
    let row = connection.prepare_cached(&sql)?.query_row([host_id], |row| Ok(from_row(row))).optional()?;
    row.transpose()
}

fn list(connection: &Connection) -> Result<Vec<HostRow>> {
    let sql = format!("SELECT {COLUMNS} FROM hosts ORDER BY host_id");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], |row| Ok(from_row(row)))?;
    rows.map(|row| row?).collect()
}

fn put(connection: &Connection, host: &HostRow) -> Result<bool> {
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

fn from_row(row: &Row<'_>) -> Result<HostRow> {
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
