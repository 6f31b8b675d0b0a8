//! The simulated network as the hub, runners and clients see it.

use std::io;

use qd_hub::Listen;
use qd_link::net::{BoxedStream, Dial, DialFuture};
use turmoil::net::{TcpListener, TcpStream};

/// Opens streams in the simulated network.
pub(crate) struct SimDial;

impl Dial for SimDial {
    fn dial(&self, address: &str) -> DialFuture {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address.as_str()).await?;
            Ok(Box::new(stream) as BoxedStream)
        })
    }
}

/// Where the hub waits for them.
pub(crate) struct SimListener(pub(crate) TcpListener);

impl Listen for SimListener {
    async fn accept(&mut self) -> io::Result<(BoxedStream, String)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((Box::new(stream) as BoxedStream, peer.to_string()))
    }
}
