//! A small HTTP/1.1 client for the hub's JSON calls: one request on one connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::net::{BoxedStream, Dial};
use crate::open::{OpenError, ServerRoute};
use crate::tls::Trust;
use crate::url::ServerUrl;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest answer, head included; the hub's lists are far shorter.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Interim answers (1xx) before the real one; servers send one or two.
const INTERIM_ANSWERS_MAX: usize = 8;
/// What is read at once.
const READ_BYTES: usize = 16 * 1024;

/// The methods the hub's calls use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

/// Why there is no answer. An answer with an error status is an answer.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Nothing was sent: the call itself is not right.
    #[error("{0}")]
    BadCall(String),
    /// Trying again may help, if repeating the call does no harm.
    #[error("nothing answers at {address}: {reason}")]
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
        exchange(stream, &request).await.map_err(|failure| failure.at(&address))
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
) -> Result<Vec<u8>, RestError> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.starts_with('/') || !is_plain(path) {
        return Err(RestError::BadCall(format!("'{}' is not a path", path.escape_debug())));
    }
    if !bearer.is_none_or(is_plain) {
        return Err(RestError::BadCall("the token contains characters that cannot be sent".to_owned()));
    }
    let method = match method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    };
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\nConnection: close\r\n"
    );
    if let Some(bearer) = bearer {
        head.push_str(&format!("Authorization: Bearer {bearer}\r\n"));
    }
    let body = match (body, method) {
        (Some(body), _) => {
            head.push_str("Content-Type: application/json\r\n");
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            body
        }
        (None, "POST") => {
            head.push_str("Content-Length: 0\r\n");
            &[]
        }
        (None, _) => &[],
    };
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    Ok(request)
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

/// A failure before it is known to the caller which server failed.
#[derive(Debug, PartialEq, Eq)]
enum CallFailure {
    Broken(String),
    Strange(String),
}

impl CallFailure {
    fn at(self, address: &str) -> RestError {
        let address = address.to_owned();
        match self {
            CallFailure::Broken(reason) => RestError::Unreachable { address, reason },
            CallFailure::Strange(reason) => RestError::BadAnswer { address, reason },
        }
    }
}

async fn exchange(mut stream: BoxedStream, request: &[u8]) -> Result<(u16, Vec<u8>), CallFailure> {
    let broken = |error: std::io::Error| CallFailure::Broken(error.to_string());
    stream.write_all(request).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let mut answer = Vec::new();
    let mut is_at_end = false;
    loop {
        if let Some(done) = read_answer(&answer, is_at_end)? {
            return Ok(done);
        }
        if is_at_end {
            return Err(CallFailure::Broken("the answer broke off".to_owned()));
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(CallFailure::Strange(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        answer.reserve(READ_BYTES);
        match stream.read_buf(&mut answer).await {
            Ok(0) => is_at_end = true,
            Ok(_) => {}
            // Servers that close without a TLS goodbye have still said everything if the length is known.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => is_at_end = true,
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Status and body once the answer is whole; `None` while something is missing.
fn read_answer(mut answer: &[u8], is_at_end: bool) -> Result<Option<(u16, Vec<u8>)>, CallFailure> {
    for _ in 0..=INTERIM_ANSWERS_MAX {
        let Some((head, body)) = split_head(answer)? else { return Ok(None) };
        if !(100..200).contains(&head.status) {
            return read_body(&head, body, is_at_end);
        }
        // An interim answer; the real one follows.
        answer = body;
    }
    Err(CallFailure::Strange(format!("more than {INTERIM_ANSWERS_MAX} interim answers came before it")))
}

/// The head of an answer and what follows it; `None` while the head is not whole.
fn split_head(answer: &[u8]) -> Result<Option<(AnswerHead, &[u8])>, CallFailure> {
    let strange = |reason: &str| CallFailure::Strange(reason.to_owned());
    let Some(head_end) = memchr::memmem::find(answer, b"\r\n\r\n") else {
        if answer.len() > HEAD_BYTES_MAX {
            return Err(strange("its head is too long"));
        }
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..head_end]).map_err(|_| strange("its head is not text"))?;
    Ok(Some((read_head(head)?, &answer[head_end + 4..])))
}

/// Status and body once the body is whole.
fn read_body(head: &AnswerHead, body: &[u8], is_at_end: bool) -> Result<Option<(u16, Vec<u8>)>, CallFailure> {
    if matches!(head.status, 204 | 304) {
        return Ok(Some((head.status, Vec::new())));
    }
    let body = match head.length {
        BodyLength::Known(length) if length > ANSWER_BYTES_MAX => {
            return Err(CallFailure::Strange(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        BodyLength::Known(length) => body.get(..length).map(<[u8]>::to_vec),
        BodyLength::Chunked => unchunk(body)?,
        BodyLength::UntilClosed => is_at_end.then(|| body.to_vec()),
    };
    Ok(body.map(|body| (head.status, body)))
}

struct AnswerHead {
    status: u16,
    length: BodyLength,
}

enum BodyLength {
    Known(usize),
    Chunked,
    UntilClosed,
}

fn read_head(head: &str) -> Result<AnswerHead, CallFailure> {
    let strange = |reason: &str| CallFailure::Strange(reason.to_owned());
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| strange("it is not HTTP/1.1"))?;
    let mut length = BodyLength::UntilClosed;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| strange("a header has no colon"))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(strange("its transfer encoding is unknown"));
            }
            length = BodyLength::Chunked;
        } else if name.eq_ignore_ascii_case("content-length") && !matches!(length, BodyLength::Chunked) {
            length = BodyLength::Known(value.parse().map_err(|_| strange("its length is not a number"))?);
        }
    }
    Ok(AnswerHead { status, length })
}

/// The body without the marks of its chunks; `None` while the last chunk is missing.
fn unchunk(mut rest: &[u8]) -> Result<Option<Vec<u8>>, CallFailure> {
    let strange = |reason: &str| CallFailure::Strange(reason.to_owned());
    let mut body = Vec::new();
    loop {
        let Some(line_end) = memchr::memmem::find(rest, b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(&rest[..line_end]).ok();
        let size = size.and_then(|line| line.split(';').next()).map(str::trim);
        let size = size.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let size =
            size.filter(|size| *size <= ANSWER_BYTES_MAX).ok_or_else(|| strange("a chunk has no size"))?;
        rest = &rest[line_end + 2..];
        if size == 0 {
            // Trailers say nothing to us; the empty line that ends them must have come.
            let is_whole = rest.starts_with(b"\r\n") || memchr::memmem::find(rest, b"\r\n\r\n").is_some();
            return Ok(is_whole.then_some(body));
        }
        let Some(chunk) = rest.get(..size + 2) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err(strange("a chunk is longer than its size"));
        }
        body.extend_from_slice(&chunk[..size]);
        rest = &rest[size + 2..];
    }
}

#[cfg(test)]
mod tests;
