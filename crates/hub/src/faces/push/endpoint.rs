//! Where a browser's push service takes messages, and how it is given one: one request on one connection. Redirects are
//! not followed, and of the answer only its head is read.

use std::net::IpAddr;
use std::time::Duration;

use http::Uri;
use qd_link::net::{BoxedStream, Dial, TcpDial};
use qd_link::tls::{self, Trust};
use qd_link::url::ServerUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Addresses of push services are long, but not longer than this.
const URL_BYTES_MAX: usize = 2048;
/// How long a push service may take to say that it has a message.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// More than any push service sends; the hub reads what a stranger's server answers.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Interim answers (1xx) before the real one.
const INTERIM_ANSWERS_MAX: usize = 4;

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

/// Why a push service has not taken a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("it cannot be reached: {0}")]
    Unreachable(std::io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("it did not answer in time")]
    TimedOut,
    #[error("it closed the connection without an answer")]
    NoAnswer,
    #[error("its answer is too long")]
    AnswerTooLong,
    #[error("its answer is no HTTP")]
    NotHttp,
}

/// An address that a push may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushEndpoint {
    url: ServerUrl,
    authority: String,
    path: String,
    /// What a proof for this push service names.
    pub(super) origin: String,
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
        // own network. Names are not resolved here; behind a name, TLS has to show a certificate the system trusts.
        if !allows_loopback && is_private(url.host()) {
            return Err(EndpointError::Private);
        }
        let authority = authority.as_str().to_ascii_lowercase();
        // A proof names the origin as browsers write it, without the default port.
        let default_port = if url.is_tls() { ":443" } else { ":80" };
        let authority = authority.strip_suffix(default_port).unwrap_or(&authority).to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(PushEndpoint { origin: format!("{scheme}://{authority}"), url, authority, path })
    }

    /// Gives the push service a message.
    pub(super) async fn post(
        &self,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Result<PushServiceAnswer, PostError> {
        let exchange = async {
            let mut stream = self.stream().await?;
            let mut request = self.head(headers, body.len()).into_bytes();
            request.extend_from_slice(body);
            stream.write_all(&request).await?;
            stream.flush().await?;
            read_answer(&mut stream).await
        };
        timeout(POST_TIMEOUT, exchange).await.unwrap_or(Err(PostError::TimedOut))
    }

    async fn stream(&self) -> Result<BoxedStream, PostError> {
        let stream = TcpDial.dial(&self.url.address()).await;
        let stream = stream.map_err(PostError::Unreachable)?;
        if !self.url.is_tls() {
            return Ok(stream);
        }
        tls::client(stream, self.url.host(), &Trust::System)
            .await
            .map_err(|error| PostError::Tls(error.to_string()))
    }

    fn head(&self, headers: &[(&str, String)], body_bytes: usize) -> String {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {body_bytes}\r\n",
            self.path, self.authority
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head
    }
}

/// Whether a host is written as a number that means something only here.
fn is_private(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
        }
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => is_private(&mapped.to_string()),
            None => {
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
                    || address.is_multicast()
            }
        },
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// What a push service said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushServiceAnswer {
    pub(super) status: u16,
    /// When it wants to be asked again.
    pub(super) retry_after: Option<Duration>,
}

async fn read_answer(stream: &mut BoxedStream) -> Result<PushServiceAnswer, PostError> {
    let mut head = Vec::new();
    loop {
        if let Some(answer) = parse_answer(&head)? {
            return Ok(answer);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(PostError::AnswerTooLong);
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(PostError::NoAnswer);
        }
    }
}

/// The answer once its head is whole.
fn parse_answer(mut bytes: &[u8]) -> Result<Option<PushServiceAnswer>, PostError> {
    // The whole head is parsed again whenever more has come. It is short, and that needs no state between reads.
    for _ in 0..=INTERIM_ANSWERS_MAX {
        let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let head = String::from_utf8_lossy(&bytes[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
        let status = status.and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse::<u16>().ok());
        let status = status.ok_or(PostError::NotHttp)?;
        if !(100..200).contains(&status) {
            let seconds = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
                name.eq_ignore_ascii_case("retry-after").then(|| value.trim().parse::<u64>().ok())?
            });
            return Ok(Some(PushServiceAnswer { status, retry_after: seconds.map(Duration::from_secs) }));
        }
        bytes = &bytes[end + 4..];
    }
    Err(PostError::NotHttp)
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
        assert!(PushEndpoint::parse(&format!("https://push.example/{}", "a".repeat(3000)), false).is_err());
    }

    #[test]
    fn answers_are_read_from_their_heads() {
        let answer = |text: &str| parse_answer(text.as_bytes()).ok();
        let plain = |status| Some(Some(PushServiceAnswer { status, retry_after: None }));
        assert_eq!(answer("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"), plain(201));
        assert_eq!(answer("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 410 Gone\r\n\r\n"), plain(410));
        assert_eq!(answer("HTTP/1.1 201 Created\r\n"), Some(None));
        let later = PushServiceAnswer { status: 429, retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(answer("HTTP/1.1 429 Later\r\nretry-after: 7\r\n\r\n"), Some(Some(later)));
        assert_eq!(answer("HTTP/1.1 503 Later\r\nRetry-After: Fri, 01 Jan\r\n\r\n"), plain(503));
        assert_eq!(answer("SSH-2.0\r\n\r\n"), None);
    }
}
