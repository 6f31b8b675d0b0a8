//! Calls to the hub's REST interface, with errors for people.
//!
//! A refusal of the hub and a hub that cannot be reached are different things to a script (exit codes 1 and 3), so
//! they are kept apart to the end.

use qd_link::net::{Dial, TcpDial};
use qd_link::rest::{self, Method, RestError};
use qd_link::tls::Trust;
use qd_link::url::ServerUrl;
use qd_wire::ErrorCode;
use qd_wire::rest::ErrorBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::connection;
use crate::error::{CliError, ErrorKind, Result, refusal};
use crate::settings::Settings;

/// As much of an answer that is not ours as is worth showing.
const BODY_CHARACTERS_MAX: usize = 300;

/// One hub, and who we are to it.
pub(crate) struct RestClient {
    pub(crate) url: ServerUrl,
    pub(crate) trust: Trust,
    pub(crate) token: Option<String>,
}

/// A hub that answered, and said no.
pub(crate) struct HttpRefusal {
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// Absent from hubs older than the codes, and from whatever else answers there.
    pub(crate) code: Option<ErrorCode>,
}

/// What came of a call.
pub(crate) type Answer<T> = Result<Result<T, HttpRefusal>>;

impl RestClient {
    /// The hub of the settings, with the token that goes with it.
    pub(crate) fn of(settings: &Settings) -> Result<RestClient> {
        let options = connection::locate(settings)?;
        Ok(RestClient { url: server_url(&options.url)?, trust: options.trust, token: Some(options.token) })
    }

    /// What is at `path`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None::<&()>).await?.map_err(HttpRefusal::into_error)
    }

    /// Sends `body` to `path`; a refusal is an error.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        self.call(method, path, Some(body)).await?.map_err(HttpRefusal::into_error)
    }

    /// Deletes what is at `path`.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value> {
        self.call(Method::DELETE, path, None::<&()>).await?.map_err(HttpRefusal::into_error)
    }

    /// Calls and reads the answer; a refusal is an answer too.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Answer<T> {
        self.call_by(&TcpDial, method, path, body).await
    }

    /// The same, over connections that `dial` opens.
    pub(crate) async fn call_by<T: DeserializeOwned>(
        &self,
        dial: &dyn Dial,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Answer<T> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| CliError::failed(error.to_string()))?;
        let token = self.token.as_deref();
        let called = rest::call(&self.url, &self.trust, dial, method, path, token, body.as_deref()).await;
        let (status, body) = called?;
        if !(200..300).contains(&status) {
            let (reason, code) = reason(status, &body);
            return Ok(Err(HttpRefusal { status, reason, code }));
        }
        // An answer without a body is `null` where nothing is expected.
        let body = if body.is_empty() { b"null".as_slice() } else { &body };
        serde_json::from_slice(body).map(Ok).map_err(|error| {
            CliError::failed(format!("the answer of {} cannot be read: {error}", self.url))
                .hint("the hub may have another version; compare `qd --version` with `qd doctor`")
        })
    }
}

impl HttpRefusal {
    /// The refusal of a call made with the owner's token.
    pub(crate) fn into_error(self) -> CliError {
        match (self.status, self.code) {
            (401, code) => CliError {
                kind: ErrorKind::refused(code),
                message: "the server refused the token (HTTP 401)".to_owned(),
                hint: Some("pass a valid token with --token or QD_TOKEN".to_owned()),
            },
            (403, code) => CliError { kind: ErrorKind::refused(code), message: self.reason, hint: None },
            (_, Some(code)) => refusal(code.with(self.reason), None),
            (_, None) => CliError::failed(self.reason),
        }
    }
}

/// Reads the address of a hub.
pub(crate) fn server_url(url: &str) -> Result<ServerUrl> {
    let parsed = ServerUrl::parse(url).map_err(|error| {
        CliError::usage(error.to_string()).hint("give the hub's address as https://HOST:PORT")
    })?;
    match parsed {
        ServerUrl::Network { .. } => Ok(parsed),
        ServerUrl::Unix(_) => Err(CliError::usage("this needs the hub; a runner's socket cannot do it")
            .hint("give the hub's address as https://HOST:PORT")),
    }
}

/// A value as a part of a path or of a query string.
pub(crate) fn escape(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// What an error page says: our hub sends `{"error":…}`, others send anything.
fn reason(status: u16, body: &[u8]) -> (String, Option<ErrorCode>) {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(page) => (page.error, page.code),
        Err(_) => {
            let text: String =
                String::from_utf8_lossy(body).trim().chars().take(BODY_CHARACTERS_MAX).collect();
            (format!("HTTP {status} {text}").trim_end().to_owned(), None)
        }
    }
}

impl From<RestError> for CliError {
    fn from(error: RestError) -> Self {
        let message = error.to_string();
        match error {
            RestError::BadCall(_) => CliError::usage(message),
            RestError::Unreachable { .. } => CliError::unreachable(message)
                .hint("check that the hub is running and that this machine can reach the address"),
            RestError::TimedOut { .. } => {
                CliError::unreachable(message).hint("the hub may be busy or the network slow; retry")
            }
            RestError::Untrusted { .. } => CliError { kind: ErrorKind::Refused, message, hint: None }.hint(
                "compare the fingerprint with what `qd up` prints on the hub's machine; if the hub has a new \
                 certificate, ask for a new code",
            ),
            RestError::BadAnswer { .. } => {
                CliError::unreachable(message).hint("check that this is the address of a Quarterdeck hub")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_page_is_read_for_people() {
        assert_eq!(
            reason(409, br#"{"error":"taken","code":"conflict"}"#),
            ("taken".into(), Some(ErrorCode::Conflict))
        );
        assert_eq!(reason(409, br#"{"error":"taken"}"#), ("taken".into(), None));
        assert_eq!(reason(502, b"<html>"), ("HTTP 502 <html>".into(), None));
        assert_eq!(reason(500, b""), ("HTTP 500".into(), None));
    }

    #[test]
    fn a_value_of_a_query_is_escaped() {
        assert_eq!(escape("a b&c=ä"), "a%20b%26c%3D%C3%A4");
    }

    #[test]
    fn a_refusal_keeps_its_code_and_its_exit_code() {
        let cases = [
            (401, Some(ErrorCode::NotLoggedIn), 1, "refused"),
            (403, Some(ErrorCode::PermissionDenied), 1, "refused"),
            (404, Some(ErrorCode::NotFound), 1, "failed"),
            (503, Some(ErrorCode::StoreUnavailable), 3, "failed"),
            (503, Some(ErrorCode::ShuttingDown), 3, "failed"),
            (403, None, 1, "refused"),
            (503, None, 1, "failed"),
        ];
        for (status, code, exit_code, kind) in cases {
            let error = HttpRefusal { status, reason: "no".into(), code }.into_error();
            let json = error.to_json();
            let name = code.map_or(serde_json::Value::Null, |code| code.as_str().into());
            assert_eq!((error.kind.exit_code(), &json["error"]["code"]), (exit_code, &name), "{status}");
            assert_eq!(json["error"]["kind"], kind, "{status}");
        }
    }

    #[test]
    fn a_socket_is_no_hub() {
        assert!(server_url("https://deck.example").is_ok());
        assert!(server_url("unix:/s").unwrap_err().message.contains("needs the hub"));
        assert!(server_url("ftp://x").is_err());
    }
}
