//! A TCP proxy between runner and hub that can be cut, stalled and mended.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the wire does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Whole,
    /// Connections break and new ones are refused.
    Cut,
    /// Nothing moves, and nobody is told.
    Stalled,
}

/// The proxy; its tasks end with it.
pub(crate) struct Proxy {
    address: SocketAddr,
    wire: Arc<watch::Sender<Wire>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (wire, _) = watch::channel(Wire::Whole);
        let wire = Arc::new(wire);
        let task = tokio::spawn(accept(listener, target, Arc::clone(&wire)));
        Proxy { address, wire, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, wire: Arc<watch::Sender<Wire>>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { continue };
        if *wire.borrow() == Wire::Cut {
            continue;
        }
        let wire = wire.subscribe();
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            let there = tokio::spawn(copy_bytes(near_read, far_write, wire.clone()));
            copy_bytes(far_read, near_write, wire).await;
            there.abort();
        });
    }
}

/// Copies one direction until an end closes or the wire is cut.
async fn copy_bytes(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut wire: watch::Receiver<Wire>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(count) if count > 0 => count,
                _ => return,
            },
            cut = wire.wait_for(|wire| *wire == Wire::Cut) => { drop(cut); return }
        };
        let moves = wire.wait_for(|wire| *wire != Wire::Stalled).await.map(|wire| *wire);
        if !matches!(moves, Ok(Wire::Whole)) || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
