//! Byte streams, and the way to open one: TCP in life, a simulated network in tests.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static> ByteStream for T {}

pub type BoxedStream = Box<dyn ByteStream>;

/// What [`Dial::dial`] returns.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send>>;

/// Opens a stream to `host:port`. TLS is put on top by whoever asks for it.
pub trait Dial: Send + Sync + 'static {
    fn dial(&self, address: &str) -> DialFuture;
}

/// Real TCP, without delay of small packets.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial(&self, address: &str) -> DialFuture {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedStream)
        })
    }
}
