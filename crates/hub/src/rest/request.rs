//! What the handlers of REST calls take from a request, and their errors: who asks, a short JSON body, and an error that
//! becomes the answer.
//!
//! A handler that names `Viewer` or `Manager` among its arguments runs only for callers with that permission; one
//! that names `Caller` is open to everybody who is known.

use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use qd_store::StoreError;
use qd_wire::CodedError;
use qd_wire::command_table::Permission;
use serde::de::DeserializeOwned;
use tokio::time::{Duration, timeout};

use crate::access::authenticate::Refusal;
use crate::access::check_request::{check_known, check_permission};
use crate::access::principals::Principal;
use crate::server::Server;
use crate::server::router::{failed_as, failed_with, refused, unavailable};

/// No call has a long body, but for commands and files, which read theirs themselves.
const BODY_BYTES_MAX: usize = 64 << 10;
/// A body that is not here by then is not coming.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// The answer of a call that failed.
pub(crate) struct RestError(Response);

pub(crate) type RestResult<T = Response> = Result<T, RestError>;

impl RestError {
    /// With a status that the route had before its error had a code.
    pub(crate) fn with_status(status: StatusCode, error: &CodedError) -> Self {
        Self(failed_as(status, error))
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        self.0
    }
}

impl From<Response> for RestError {
    fn from(response: Response) -> Self {
        Self(response)
    }
}

impl From<CodedError> for RestError {
    fn from(error: CodedError) -> Self {
        Self(failed_with(&error))
    }
}

impl From<StoreError> for RestError {
    fn from(error: StoreError) -> Self {
        Self(unavailable(&error))
    }
}

impl From<Refusal> for RestError {
    fn from(refusal: Refusal) -> Self {
        Self(refused(&refusal))
    }
}

/// Somebody who is known here, whatever they may do.
pub(crate) struct Caller(pub(crate) Principal);

impl FromRequestParts<Server> for Caller {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> RestResult<Self> {
        Ok(Self(check_known(&server.hub, &parts.uri, &parts.headers).await?))
    }
}

/// Callers that must have a permission.
macro_rules! callers {
    ($($(#[$about:meta])* $name:ident needs $permission:ident;)*) => {$(
        $(#[$about])*
        pub(crate) struct $name(pub(crate) Principal);

        impl FromRequestParts<Server> for $name {
            type Rejection = RestError;

            async fn from_request_parts(parts: &mut Parts, server: &Server) -> RestResult<Self> {
                let permission = Permission::$permission;
                Ok(Self(check_permission(&server.hub, &parts.uri, &parts.headers, permission).await?))
            }
        }
    )*};
}

callers! {
    /// Somebody who may see what is here.
    Viewer needs View;
    /// Somebody who manages people and machines.
    Manager needs Manage;
}

/// A query as the framework has read it, or could not.
pub(crate) type QueryResult<T> = Result<Query<T>, QueryRejection>;

/// What a query asks for; `error` says what its fields must be.
pub(crate) fn read_query<T>(query: QueryResult<T>, error: &str) -> Result<T, CodedError> {
    query.map(|Query(query)| query).map_err(|_| CodedError::invalid(error))
}

/// The body of a call, which is short and comes soon.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, CodedError> {
    let Ok(body) = timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX)).await else {
        return Err(CodedError::invalid("The request body did not arrive in time; send it again"));
    };
    body.map_err(|error| {
        CodedError::invalid(format!("The body cannot be read ({error}); it may have {BODY_BYTES_MAX} bytes"))
    })
}

/// The same as JSON. `explain` says what the body must be; it leaves the parser's words out where they could repeat a
/// secret.
pub(crate) async fn read_json<T: DeserializeOwned>(
    body: Body,
    explain: impl FnOnce(serde_json::Error) -> String,
) -> Result<T, CodedError> {
    let body = read_body(body).await?;
    serde_json::from_slice(&body).map_err(|error| CodedError::invalid(explain(error)))
}
