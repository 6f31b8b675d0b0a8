//! One HTTP/1.1 request on one connection, with hyper's client. Who asks decides how the connection is opened, what is
//! read of the answer and how long all of it may take.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::net::BoxedStream;

/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection ended or failed.
    #[error("{0}")]
    Broken(String),
    /// The other side does not speak HTTP as it should.
    #[error("{0}")]
    Strange(String),
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return HttpError::Strange("its head is too long".to_owned());
        }
        if error.is_parse() {
            return HttpError::Strange(format!("it is not HTTP/1.1: {error}"));
        }
        if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            return HttpError::Broken("the answer broke off".to_owned());
        }
        let cause = std::error::Error::source(&error);
        match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
            // hyper says so of a body that ends early or whose chunks have no size.
            Some(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => {
                HttpError::Broken("the answer broke off".to_owned())
            }
            Some(cause) if cause.kind() == std::io::ErrorKind::InvalidInput => {
                HttpError::Strange(cause.to_string())
            }
            Some(cause) if cause.kind() == std::io::ErrorKind::InvalidData => {
                HttpError::Strange(cause.to_string())
            }
            Some(cause) => HttpError::Broken(cause.to_string()),
            None => HttpError::Broken(error.to_string()),
        }
    }
}

/// Sends a request and lets `read` take what it wants of the answer. Interim answers (1xx) are passed over.
pub async fn exchange<T>(
    stream: BoxedStream,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, HttpError>,
) -> Result<T, HttpError> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    let mut answer = std::pin::pin!(async { read(sender.send_request(request).await?).await });
    tokio::select! {
        answer = &mut answer => answer,
        // The connection has read everything, or has failed: the answer is there or knows why it is not.
        _ = connection => answer.await,
    }
}

/// The whole body of an answer, unless it is longer than `bytes_max`.
pub async fn read_body(answer: Response<Incoming>, bytes_max: usize) -> Result<Bytes, HttpError> {
    let too_long = || HttpError::Strange(format!("it is longer than {bytes_max} bytes"));
    // An announced length need not come to be believed.
    if answer.body().size_hint().lower() > bytes_max as u64 {
        return Err(too_long());
    }
    match Limited::new(answer.into_body(), bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(error) => Err((*error).into()),
            Err(error) => Err(HttpError::Broken(error.to_string())),
        },
    }
}
