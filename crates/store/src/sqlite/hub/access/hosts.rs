//! Machines of others that speak the run protocol to the hub, and whether they are let in.

use qd_wire::people::HostTrust;
use rusqlite::{Connection, params, params_from_iter};

use crate::hub::{HostRow, PENDING_HOSTS_MAX, TOUCH_MS};
use crate::sqlite::error::SqlResult;
use crate::sqlite::hub::requests::requests;
use crate::sqlite::statements::{StoredRow, changes, first, rows, run, stored_row};

stored_row!(HostRow: host_id, token_hash, trust, first_seen_at, last_seen_at, address);

/// The first token of a host stays: one who comes later under the same id must not take it over.
const INSERT: &str = "INSERT INTO hosts (host_id, token_hash, trust, first_seen_at, last_seen_at, address)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (host_id) DO NOTHING";
/// The one that has just come stays, whatever its clock says.
const FORGET_OLDEST: &str = "DELETE FROM hosts WHERE trust = 'pending' AND host_id <> ?1 AND host_id NOT IN
    (SELECT host_id FROM hosts WHERE trust = 'pending' AND host_id <> ?1 ORDER BY first_seen_at DESC LIMIT ?2)";
/// The condition is in the statement, so that callers need not read first: a fresh row is not written again.
const TOUCH: &str = "UPDATE hosts SET last_seen_at = ?2
    WHERE host_id = ?1 AND (last_seen_at IS NULL OR last_seen_at <= ?2 - ?3)";

requests! {
    read host(host_id: &str) -> Option<HostRow> = get;
    read hosts() -> Vec<HostRow> = list;
    write put_host(host: HostRow) -> bool = put;
    write confirm_host(host_id: &str, token_hash: &[u8]) -> bool = confirm;
    write set_host_trust(host_id: &str, trust: HostTrust) -> bool = set_trust;
    write touch_host(host_id: &str, now: i64) -> () = touch;
    write delete_host(host_id: &str) -> bool = delete;
}

fn get(connection: &Connection, host_id: &str) -> SqlResult<Option<HostRow>> {
    let sql = format!("SELECT {COLUMNS} FROM hosts WHERE host_id = ?1");
    first(connection, &sql, [host_id], HostRow::from_row)
}

fn list(connection: &Connection) -> SqlResult<Vec<HostRow>> {
    rows(connection, &format!("SELECT {COLUMNS} FROM hosts ORDER BY host_id"), [], HostRow::from_row)
}

fn put(connection: &Connection, host: &HostRow) -> SqlResult<bool> {
    let added = changes(connection, INSERT, params_from_iter(host.values()?))?;
    if added && host.trust == HostTrust::Pending {
        run(connection, FORGET_OLDEST, params![host.host_id, PENDING_HOSTS_MAX as i64 - 1])?;
    }
    Ok(added)
}

/// One statement, so that no host of another token takes its place between a look and the change.
fn confirm(connection: &Connection, host_id: &str, token_hash: &[u8]) -> SqlResult<bool> {
    let sql = "UPDATE hosts SET trust = 'trusted' WHERE host_id = ?1 AND token_hash = ?2";
    changes(connection, sql, params![host_id, token_hash])
}

fn set_trust(connection: &Connection, host_id: &str, trust: HostTrust) -> SqlResult<bool> {
    changes(connection, "UPDATE hosts SET trust = ?2 WHERE host_id = ?1", params![host_id, trust.as_str()])
}

fn touch(connection: &Connection, host_id: &str, now: i64) -> SqlResult<()> {
    run(connection, TOUCH, params![host_id, now, TOUCH_MS]).map(drop)
}

fn delete(connection: &Connection, host_id: &str) -> SqlResult<bool> {
    changes(connection, "DELETE FROM hosts WHERE host_id = ?1", [host_id])
}
