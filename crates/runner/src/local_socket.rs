//! The runner's own socket: local clients speak the link's lines, with a hub or without.

mod connection;
mod hub_queries;
mod record_tail;
mod socket_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::process::procfs;
use crate::runner::LinkCommand;
use crate::session::RunnerContext;
use socket_file::SocketFile;

/// Clients at once: more than one person's terminals need, few enough that all of them being slow fits in memory.
const CLIENTS_MAX: usize = 64;

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error("another runner is listening at {}; stop it first, or give this one another socket", .0.display())]
    Taken(PathBuf),
    #[error("the local socket {} cannot be opened: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

/// The socket, bound and not yet served.
pub(crate) struct LocalServer {
    listener: UnixListener,
    file: SocketFile,
}

impl LocalServer {
    /// Binds the socket for our user only. One that a dead runner left is replaced.
    pub(crate) fn bind(path: &Path) -> Result<LocalServer, LocalError> {
        let (listener, file) = socket_file::bind(path)?;
        Ok(LocalServer { listener, file })
    }

    /// Serves until `stop`, then removes the socket.
    pub(crate) fn start(
        self,
        shared: &Arc<RunnerContext>,
        commands: &mpsc::Sender<LinkCommand>,
        stop: &CancellationToken,
    ) -> JoinHandle<()> {
        let (shared, commands, stop) = (Arc::clone(shared), commands.clone(), stop.clone());
        tokio::spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => break,
                    Some(_) = clients.join_next() => continue,
                    accepted = self.listener.accept(), if clients.len() < CLIENTS_MAX => accepted,
                };
                match accepted {
                    Ok((stream, _)) if is_ours(&stream) => {
                        let place = client_origin(&stream);
                        clients.spawn(connection::serve(
                            Arc::clone(&shared),
                            commands.clone(),
                            stream,
                            place,
                        ));
                    }
                    Ok(_) => tracing::warn!("a client of another user was turned away from the local socket"),
                    Err(error) => {
                        tracing::warn!(%error, "a local client could not be taken");
                        // Without descriptors the next accept fails at once, too.
                        tokio::time::sleep(socket_file::ACCEPT_PAUSE).await;
                    }
                }
            }
            clients.shutdown().await;
            self.file.remove();
        })
    }
}

/// Where a client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientOrigin {
    /// Anywhere on this machine: it is a person's.
    Outside,
    /// Below this runner, which starts nothing but sessions: what an agent or a program does is not a person's will.
    InSession,
}

/// Guards stay the parents of everything their agents start, so nothing gets out by ending its own parent.
fn client_origin(stream: &UnixStream) -> ClientOrigin {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    match peer {
        Some(pid) if procfs::is_below(pid, own) => ClientOrigin::InSession,
        Some(_) | None => ClientOrigin::Outside,
    }
}

/// Whether the other end runs as our user.
fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}
