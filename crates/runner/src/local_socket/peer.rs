//! Which program speaks at the socket: one of a session, or one of a person.
//!
//! It fails closed: whoever cannot be identified is nobody's. A process id alone tells nothing, because the process may
//! have ended and its number may be another's by now; so the kernel's handle of the process that has connected must still
//! be alive after its parents were read, and these must be the same when they are read again.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::UnixStream;

use crate::process::guard_table;
use crate::process::procfs::{self, ProcessStat};

/// How often parents are read again that change while they are read.
const TRIES_MAX: usize = 16;

/// Parents looked at before a chain is given up; longer than any real one.
const PARENTS_MAX: usize = 4096;

/// Where a client runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientOrigin {
    /// Anywhere on this machine: it is a person's.
    Outside,
    /// Below a guard of this runner: what an agent or a program does is not a person's will.
    InSession(Arc<str>),
    /// Nobody knows: it has ended, belongs to no session, or is in a container of its own.
    Unknown,
}

/// Says where the other end of a connection runs.
pub(super) fn origin_of(stream: &UnixStream) -> ClientOrigin {
    let Some(pid) = stream.peer_cred().ok().and_then(|peer| peer.pid()) else { return ClientOrigin::Unknown };
    match peer_handle(stream) {
        Ok(handle) => identify(pid, handle.as_ref()),
        Err(error) => {
            tracing::debug!(%error, "a local client has ended before it was looked at");
            ClientOrigin::Unknown
        }
    }
}

/// The same by its number and its handle, where the kernel has one.
#[cfg(target_os = "linux")]
fn identify(pid: i32, handle: Option<&OwnedFd>) -> ClientOrigin {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if pid == own {
        return ClientOrigin::Outside;
    }
    let Some(chain) = stable_chain(pid, own) else { return ClientOrigin::Unknown };
    // Alive now means that the number was its own all the time.
    let is_alive = match handle {
        Some(handle) => !has_ended(handle),
        None => chain.first().is_some_and(|process| !process.is_dead()),
    };
    match chain.last() {
        _ if !is_alive => ClientOrigin::Unknown,
        Some(top) if top.parent == own => match guard_table::session_of(top.pid) {
            Some(session_id) if !session_id.is_empty() => ClientOrigin::InSession(session_id),
            // What we have started for ourselves has no business here; nor has a command of no session.
            Some(_) | None => ClientOrigin::Unknown,
        },
        Some(_) => ClientOrigin::Outside,
        None => ClientOrigin::Unknown,
    }
}

/// Elsewhere there is no /proc: there everybody of our user is taken for a person.
#[cfg(not(target_os = "linux"))]
fn identify(_pid: i32, _handle: Option<&OwnedFd>) -> ClientOrigin {
    ClientOrigin::Outside
}

/// The process and its parents up to the child of `end`, or up to the first of all. None if they do not hold still.
fn stable_chain(pid: i32, end: i32) -> Option<Vec<ProcessStat>> {
    let mut last = None;
    for _ in 0..TRIES_MAX {
        let chain = chain(pid, end);
        let is_same = |last: &Vec<ProcessStat>| {
            let named = |chain: &[ProcessStat]| -> Vec<(i32, u64, i32)> {
                chain.iter().map(|process| (process.pid, process.start_ticks, process.parent)).collect()
            };
            chain.as_deref().is_some_and(|chain| named(chain) == named(last))
        };
        if last.as_ref().is_some_and(is_same) {
            return chain;
        }
        last = chain;
    }
    None
}

fn chain(pid: i32, end: i32) -> Option<Vec<ProcessStat>> {
    let mut chain: Vec<ProcessStat> = Vec::new();
    let mut next = pid;
    while chain.len() < PARENTS_MAX {
        let process = match procfs::look_at(next) {
            Ok(process) => process,
            // A parent of another user, where /proc shows only one's own: nothing that we have started is above it. If
            // it has ended instead, the second look finds another parent.
            Err(ErrorKind::NotFound | ErrorKind::PermissionDenied) if !chain.is_empty() => {
                return Some(chain);
            }
            Err(_) => return None,
        };
        let parent = process.parent;
        chain.push(process);
        if parent == end || parent <= 0 {
            return Some(chain);
        }
        next = parent;
    }
    None
}

/// Whether the process of a handle has ended, reaped or not.
fn has_ended(handle: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(handle, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut ready, Some(&now)), Ok(0))
}

/// The kernel's handle of the process that has connected; none on kernels before 6.5. An error if it is gone.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn peer_handle(stream: &UnixStream) -> std::io::Result<Option<OwnedFd>> {
    use std::os::fd::{AsRawFd, FromRawFd};
    /// As in the kernel's `asm-generic/socket.h`.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut number: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(std::io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `stream` lives, and the two pointers are to variables of this
    // function, of which the kernel writes no more than `length` says.
    let result = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    if result == 0 && number >= 0 {
        // SAFETY: the kernel has made this descriptor for us just now, so nobody else owns it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }));
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) { Ok(None) } else { Err(error) }
}

#[cfg(not(target_os = "linux"))]
fn peer_handle(_stream: &UnixStream) -> std::io::Result<Option<OwnedFd>> {
    Ok(None)
}

#[cfg(test)]
#[path = "peer_tests.rs"]
mod tests;
