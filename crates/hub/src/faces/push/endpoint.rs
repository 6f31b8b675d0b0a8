//! Where a browser's push service takes messages, and how it is given one: one request on one connection. Redirects are
//! not followed, and of the answer only its head is read.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::header::{CONNECTION, HOST, RETRY_AFTER};
use http::{Request, Uri};
use qd_link::http::{HttpError, exchange};
use qd_link::net::BoxedStream;
use qd_link::tls::{self, Trust};
use qd_link::url::ServerUrl;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::public_address::{is_odd_number, is_public};

/// Addresses of push services are long, but not longer than this.
const URL_BYTES_MAX: usize = 2048;
/// How long a push service may take to say that it has a message.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an address is none that a push may be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("'endpoint' is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("'endpoint' is no address of a push service")]
    NoAddress,
    #[error("'endpoint' must be a whole https:// address")]
    NotWhole,
    #[error("'endpoint' must begin with https://")]
    NotTls,
    #[error("'endpoint' is an address of a private network; no push service is there")]
    Private,
}

/// Why a push service has not taken a message. It is for the log only: whoever gave the address must not learn from
/// the hub what answers there, and how.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("its name leads to no address of the internet")]
    Private,
    #[error("{0}")]
    Tls(String),
    #[error("the request cannot be sent: {0}")]
    BadRequest(#[from] http::Error),
    #[error("it did not answer as it should: {0}")]
    NoAnswer(#[from] HttpError),
    #[error("it did not answer in time")]
    TimedOut,
}

/// An address that a push may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushEndpoint {
    url: ServerUrl,
    authority: String,
    path: String,
    /// What a proof for this push service names.
    pub(super) origin: String,
    /// Addresses of this machine are good as well, for push services of tests.
    allows_loopback: bool,
}

impl PushEndpoint {
    /// Reads an address that a browser gave. Plain HTTP is for push services of tests, on this machine.
    pub(super) fn parse(text: &str, allows_loopback: bool) -> Result<PushEndpoint, EndpointError> {
        if text.len() > URL_BYTES_MAX {
            return Err(EndpointError::TooLong);
        }
        let uri: Uri = text.parse().map_err(|_| EndpointError::NoAddress)?;
        let url = ServerUrl::parse(text).map_err(|_| EndpointError::NoAddress)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EndpointError::NotWhole);
        };
        match scheme {
            "https" => {}
            "http" if allows_loopback && url.is_loopback() => {}
            _ => return Err(EndpointError::NotTls),
        }
        // The address comes from a client, so without this anybody with a login could make the hub call services of its
        // own network. Here only what is no name is refused; what a name leads to is checked when it is used.
        if is_private(url.host(), allows_loopback) {
            return Err(EndpointError::Private);
        }
        let authority = authority.as_str().to_ascii_lowercase();
        // A proof names the origin as browsers write it, without the default port.
        let default_port = if url.is_tls() { ":443" } else { ":80" };
        let authority = authority.strip_suffix(default_port).unwrap_or(&authority).to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(PushEndpoint { origin: format!("{scheme}://{authority}"), url, authority, path, allows_loopback })
    }

    /// Gives the push service a message.
    pub(super) async fn post(
        &self,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Result<PushServiceAnswer, PostError> {
        let mut request = Request::post(&self.path).header(HOST, &self.authority).header(CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(body.to_vec().into())?;
        let post = async {
            let stream = self.stream().await?;
            Ok(exchange(stream, request, async |answer| Ok(PushServiceAnswer::of(&answer))).await?)
        };
        timeout(POST_TIMEOUT, post).await.unwrap_or(Err(PostError::TimedOut))
    }

    async fn stream(&self) -> Result<BoxedStream, PostError> {
        let stream: BoxedStream = Box::new(self.connect().await?);
        if !self.url.is_tls() {
            return Ok(stream);
        }
        tls::client(stream, self.url.host(), &Trust::System)
            .await
            .map_err(|error| PostError::Tls(error.to_string()))
    }

    /// Connects to an address that was checked, and not to the name, which may lead elsewhere the next time.
    async fn connect(&self) -> Result<TcpStream, PostError> {
        let mut failure = PostError::Private;
        for address in lookup_host(self.url.address()).await? {
            if !self.is_allowed(address) {
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    fn is_allowed(&self, address: SocketAddr) -> bool {
        is_allowed(address.ip(), self.allows_loopback)
    }
}

fn is_allowed(address: IpAddr, allows_loopback: bool) -> bool {
    is_public(address) || allows_loopback && address.to_canonical().is_loopback()
}

/// Whether a host is written as an address that means something only here, or as nothing that a push service has.
fn is_private(host: &str, allows_loopback: bool) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => !is_allowed(address, allows_loopback),
        Err(_) if is_odd_number(host) => true,
        Err(_) => host.eq_ignore_ascii_case("localhost") && !allows_loopback,
    }
}

/// What a push service said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushServiceAnswer {
    pub(super) status: u16,
    /// When it wants to be asked again.
    pub(super) retry_after: Option<Duration>,
}

impl PushServiceAnswer {
    fn of<B>(answer: &http::Response<B>) -> Self {
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        PushServiceAnswer { status: answer.status().as_u16(), retry_after: seconds.map(Duration::from_secs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_push_services_are_written_to() {
        let origin =
            |text: &str, allows| PushEndpoint::parse(text, allows).ok().map(|endpoint| endpoint.origin);
        assert_eq!(origin("https://Push.Example/a?b=c", false).as_deref(), Some("https://push.example"));
        assert_eq!(origin("https://push.example:443/a", false).as_deref(), Some("https://push.example"));
        assert_eq!(origin("https://push.example:444/a", false).as_deref(), Some("https://push.example:444"));
        for text in [
            "http://push.example/a",
            "http://127.0.0.1:9/a",
            "https://127.0.0.1/a",
            "https://localhost:9/a",
            "https://10.1.2.3/a",
            "https://192.168.1.1/a",
            "https://169.254.169.254/latest",
            "https://[::1]/a",
            "https://[::ffff:10.0.0.1]/a",
            "https://[fd00::1]/a",
            "https://127.1/a",
            "https://2130706433/a",
            "https://0x7f000001/a",
            "https://0177.0.0.1/a",
            "https://[::ffff:127.0.0.1]/a",
            "https://[::7f00:1]/a",
            "https://[64:ff9b::7f00:1]/a",
            "https://100.64.0.1/a",
            "https://user@push.example/a",
            "https:///a",
            "/a",
            "push.example/a",
            "unix:/run/socket",
            "ftp://push.example",
            "https://push.example/a b",
            "https://push.example/a\r\nX: y",
        ] {
            assert_eq!(origin(text, false), None, "{text}");
        }
        assert_eq!(origin("http://127.0.0.1:9/a", true).as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(origin("http://push.example/a", true), None);
        assert_eq!(origin("https://10.1.2.3/a", true), None, "not of this machine");
        assert!(PushEndpoint::parse(&format!("https://push.example/{}", "a".repeat(3000)), false).is_err());
    }

    /// A name that leads to this machine is not followed, whatever it looked like when it was stored.
    #[tokio::test]
    async fn what_a_name_leads_to_is_checked_when_it_is_used() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = |host: &str| ServerUrl::parse(&format!("https://{host}:{port}/a")).unwrap();
        for host in ["localhost", "127.1", "2130706433", "0x7f000001", "127.0.0.1", "::ffff:127.0.0.1"] {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            let endpoint = PushEndpoint {
                url: url(&host),
                authority: host.clone(),
                path: "/a".to_owned(),
                origin: "https://push.example".to_owned(),
                allows_loopback: false,
            };
            let error = endpoint.post(&[], b"").await.unwrap_err();
            assert!(matches!(error, PostError::Private), "{host}: {error}");
        }
        let here = PushEndpoint::parse(&format!("http://localhost:{port}/a"), true).unwrap();
        assert!(here.connect().await.is_ok(), "tests may");
    }

    #[test]
    fn answers_are_read_from_their_heads() {
        let answer = |status, retry_after: Option<&str>| {
            let answer = http::Response::builder().status(status);
            let answer =
                retry_after.into_iter().fold(answer, |answer, value| answer.header(RETRY_AFTER, value));
            PushServiceAnswer::of(&answer.body(()).unwrap())
        };
        let expected = |status, seconds: Option<u64>| PushServiceAnswer {
            status,
            retry_after: seconds.map(Duration::from_secs),
        };
        assert_eq!(answer(201, None), expected(201, None));
        assert_eq!(answer(429, Some("7")), expected(429, Some(7)));
        assert_eq!(answer(503, Some("Fri, 01 Jan")), expected(503, None));
    }
}
