//! What was done by whom, for those who may know.

use axum::extract::State;
use axum::response::Json;
use qd_store::{AUDIT_PAGE_ROWS_MAX, AuditQuery};
use qd_wire::command_table::Permission;
use qd_wire::people::AuditData;
use serde::Deserialize;

use crate::rest::request::{QueryResult, RestResult, Viewer, read_query};
use crate::server::Server;

const LIMIT_DEFAULT: usize = 100;

#[derive(Deserialize)]
pub(crate) struct AuditParameters {
    session: Option<String>,
    principal: Option<String>,
    tool: Option<String>,
    kind: Option<String>,
    before: Option<u64>,
    limit: Option<usize>,
}

/// `GET /api/audit`: what was done in sessions, and one's own deeds; everything for those who manage.
pub(crate) async fn list(
    State(server): State<Server>,
    Viewer(principal): Viewer,
    wanted: QueryResult<AuditParameters>,
) -> RestResult<Json<AuditData>> {
    let wanted = read_query(wanted, "'before' and 'limit' must be whole numbers")?;
    let limit = wanted.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, AUDIT_PAGE_ROWS_MAX);
    let is_manager = principal.permissions.contains(Permission::Manage);
    let query = AuditQuery {
        session_id: wanted.session,
        principal: wanted.principal,
        tool: wanted.tool,
        kind: wanted.kind,
        visible_to: (!is_manager).then(|| principal.name.to_string()),
        before: wanted.before,
        limit,
    };
    let rows = server.hub.store.audit(query).await?;
    // A full page may be the last; the next one is empty then.
    let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.id);
    Ok(Json(AuditData { entries: rows, next }))
}
