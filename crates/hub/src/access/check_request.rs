//! Who has sent a request, and whether they may do what it asks. REST, WebSockets and the ports of faces all check here.

use axum::extract::Query;
use http::{HeaderMap, Uri};
use qd_wire::command_table::Permission;
use serde::Deserialize;

use crate::access::authenticate::{self, Refusal};
use crate::access::principals::Principal;
use crate::hub::Hub;

/// Where the WebSockets are.
const SOCKETS: &str = "/ws/";

#[derive(Deserialize, Default)]
struct QuerySecrets {
    token: Option<String>,
    code: Option<String>,
}

fn secrets(uri: &Uri) -> QuerySecrets {
    Query::<QuerySecrets>::try_from_uri(uri).map(|Query(secrets)| secrets).unwrap_or_default()
}

/// The code in the query of `/login`.
pub(crate) fn query_code(uri: &Uri) -> String {
    secrets(uri).code.unwrap_or_default()
}

/// The token in the query of a WebSocket, whose headers a page cannot set. Everywhere else it would only get into the
/// logs and histories that addresses get into.
fn query_token(uri: &Uri) -> Option<String> {
    secrets(uri).token.filter(|_| uri.path().starts_with(SOCKETS))
}

/// Tells who has sent the request, whatever they may do.
pub(crate) async fn check_known(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Refusal> {
    let token = query_token(uri);
    authenticate::check_access(&hub.config, &hub.store, &hub.principals, headers, token.as_deref()).await
}

/// The same as [`check_access`] on a port where every path is a WebSocket.
pub(crate) async fn check_port_access(
    hub: &Hub,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Principal, Refusal> {
    let token = secrets(uri).token;
    let known =
        authenticate::check_access(&hub.config, &hub.store, &hub.principals, headers, token.as_deref());
    let principal = known.await?;
    principal.rights().check(uri.path(), Permission::View).map_err(Refusal::Denied)?;
    Ok(principal)
}

/// Checks that the request comes from somebody with this permission.
pub(crate) async fn check_permission(
    hub: &Hub,
    uri: &Uri,
    headers: &HeaderMap,
    permission: Permission,
) -> Result<Principal, Refusal> {
    let principal = check_known(hub, uri, headers).await?;
    principal.rights().check(uri.path(), permission).map_err(Refusal::Denied)?;
    Ok(principal)
}

/// Whether the request has a token, right or wrong.
pub(crate) fn has_token(uri: &Uri, headers: &HeaderMap) -> bool {
    authenticate::bearer(headers).is_some() || query_token(uri).is_some()
}

/// The same on a port where every path is a WebSocket.
pub(crate) fn has_port_token(uri: &Uri, headers: &HeaderMap) -> bool {
    authenticate::bearer(headers).is_some() || secrets(uri).token.is_some()
}

/// Checks that the request comes from somebody who may see what is here.
pub(crate) async fn check_access(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Refusal> {
    check_permission(hub, uri, headers, Permission::View).await
}
