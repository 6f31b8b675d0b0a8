//! The hub's JSON calls: one request on one connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request};
use http_body_util::Full;

use crate::http::{HttpError, exchange, read_body};
use crate::net::Dial;
use crate::open::{OpenError, ServerRoute};
use crate::tls::Trust;
use crate::url::ServerUrl;

pub use http::Method;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest answer; the hub's lists are far shorter.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why there is no answer. An answer with an error status is an answer.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Nothing was sent: the call itself is not right.
    #[error("{0}")]
    BadCall(String),
    /// Trying again may help, if repeating the call does no harm.
    #[error("no server answers at {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("the hub at {address} cannot be trusted: {reason}")]
    Untrusted { address: String, reason: String },
    #[error("the hub at {address} did not answer in time")]
    TimedOut { address: String },
    #[error("the answer of {address} cannot be understood: {reason}")]
    BadAnswer { address: String, reason: String },
}

/// Makes one call and returns the status and the body of the answer. `body` is JSON.
pub async fn call(
    url: &ServerUrl,
    trust: &Trust,
    dial: &dyn Dial,
    method: Method,
    path: &str,
    bearer: Option<&str>,
    body: Option<&[u8]>,
) -> Result<(u16, Vec<u8>), RestError> {
    let address = url.address();
    let request = request(&address, method, path, bearer, body)?;
    let exchange = async {
        let stream =
            ServerRoute { url, trust, dial }.stream().await.map_err(|error| explain(&address, error))?;
        let answered = exchange(stream, request, async |answer| {
            let status = answer.status().as_u16();
            Ok((status, read_body(answer, ANSWER_BYTES_MAX).await?.to_vec()))
        });
        answered.await.map_err(|error| match error {
            HttpError::Broken(reason) => RestError::Unreachable { address: address.clone(), reason },
            HttpError::Strange(reason) => RestError::BadAnswer { address: address.clone(), reason },
        })
    };
    match tokio::time::timeout(CALL_TIMEOUT, exchange).await {
        Ok(result) => result,
        Err(_) => Err(RestError::TimedOut { address }),
    }
}

fn request(
    address: &str,
    method: Method,
    path: &str,
    bearer: Option<&str>,
    body: Option<&[u8]>,
) -> Result<Request<Full<Bytes>>, RestError> {
    if !path.starts_with('/') {
        return Err(RestError::BadCall(format!("'{}' is not a path", path.escape_debug())));
    }
    let mut request = Request::builder().method(method).uri(path).header(HOST, address).header(ACCEPT, JSON);
    request = request.header(CONNECTION, "close");
    if let Some(bearer) = bearer {
        if !bearer.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "the token contains characters that cannot be sent";
            return Err(RestError::BadCall(reason.to_owned()));
        }
        request = request.header(AUTHORIZATION, format!("Bearer {bearer}"));
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, JSON);
    }
    let body = Bytes::copy_from_slice(body.unwrap_or_default());
    request.body(Full::new(body)).map_err(|error| {
        RestError::BadCall(format!("'{}' cannot be asked for: {error}", path.escape_debug()))
    })
}

fn explain(address: &str, error: OpenError) -> RestError {
    let address = address.to_owned();
    match error {
        OpenError::BadUrl(reason) => RestError::BadCall(reason.to_owned()),
        OpenError::Unreachable(source) => RestError::Unreachable { address, reason: source.to_string() },
        OpenError::Untrusted(reason) => RestError::Untrusted { address, reason },
        OpenError::BadHeader => RestError::BadCall("a header cannot be sent".to_owned()),
        OpenError::Status { status, body, .. } => {
            RestError::BadAnswer { address, reason: format!("HTTP {status} {body}") }
        }
        OpenError::Strange(reason) => RestError::BadAnswer { address, reason },
    }
}

#[cfg(test)]
mod tests;
