//! The runner's own socket: local clients speak the link's lines, with a hub or without.

mod connection;
mod hub_queries;
mod peer;
mod record_tail;
mod socket_file;
mod within;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::runner::LinkCommand;
use crate::session::RunnerContext;
use peer::ClientOrigin;
use socket_file::SocketFile;

/// Clients at once: more than one person's terminals need, few enough that all of them being slow fits in memory.
const CLIENTS_MAX: usize = 64;

/// Programs of sessions among them, so that these cannot lock out the person.
const PROGRAMS_MAX: usize = 32;

const UNKNOWN: &str = "Permission denied: the runner cannot tell which program this is: it has ended, runs in a container, \
                       or was started by the runner for no session. Ask from a terminal of your own";
const FULL: &str = "Too many programs use the runner's socket; close some and retry";

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
            let programs = Arc::new(());
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => break,
                    Some(_) = clients.join_next() => continue,
                    // At once, however many there are: who has connected is looked at while it is there to be looked at.
                    accepted = self.listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) if is_ours(&stream) => {
                        let origin = peer::origin_of(&stream);
                        let count =
                            ClientCount { all: clients.len(), programs: Arc::strong_count(&programs) - 1 };
                        if let Err(reason) = count.check(&origin) {
                            connection::turn_away(&stream, &reason);
                            continue;
                        }
                        let own = match origin {
                            ClientOrigin::InSession(own) => Some((own, Arc::clone(&programs))),
                            ClientOrigin::Outside | ClientOrigin::Unknown => None,
                        };
                        let (shared, commands) = (Arc::clone(&shared), commands.clone());
                        clients.spawn(async move {
                            // The second of the two is the place among the programs of sessions.
                            let within = own.as_ref().map(|(session_id, _)| Arc::clone(session_id));
                            connection::serve(shared, commands, stream, within).await;
                        });
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

/// How many clients there are.
struct ClientCount {
    all: usize,
    /// Those of sessions.
    programs: usize,
}

impl ClientCount {
    /// Why a further one cannot be served.
    fn check(&self, origin: &ClientOrigin) -> Result<(), CodedError> {
        let full = || Err(ErrorCode::Busy.with(FULL));
        match origin {
            ClientOrigin::Unknown => Err(ErrorCode::PermissionDenied.with(UNKNOWN)),
            ClientOrigin::InSession(_) if self.programs >= PROGRAMS_MAX => full(),
            ClientOrigin::InSession(_) | ClientOrigin::Outside if self.all >= CLIENTS_MAX => full(),
            ClientOrigin::InSession(_) | ClientOrigin::Outside => Ok(()),
        }
    }
}

/// Whether the other end runs as our user.
fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}
