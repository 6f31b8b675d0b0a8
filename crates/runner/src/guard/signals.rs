//! Signals of the guard, turned into a readable fd by the self-pipe trick.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// Becomes readable when a signal has arrived.
pub(super) struct SignalReceiver {
    reader: UnixStream,
    terminate: Arc<AtomicBool>,
}

impl SignalReceiver {
    /// Handles SIGCHLD, and the signals that ask a process to end; exec resets them for the agent.
    pub(super) fn install() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let writer = Arc::new(writer);
        let terminate = Arc::new(AtomicBool::new(false));
        register(Signal::CHILD, Arc::clone(&writer), None)?;
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            register(signal, Arc::clone(&writer), Some(Arc::clone(&terminate)))?;
        }
        Ok(Self { reader, terminate })
    }

    pub(super) fn terminate_requested(&self) -> bool {
        self.terminate.load(Ordering::Relaxed)
    }

    /// Forgets the wake-ups so far; callers look at the state afterwards.
    pub(super) fn drain(&self) {
        let mut buffer = [0_u8; 64];
        while matches!((&self.reader).read(&mut buffer), Ok(length) if length > 0) {}
    }

    /// Waits for the next signal, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        // Whether a signal, the limit or an error ended the wait, the caller looks again.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&limit));
        self.drain();
    }
}

impl AsFd for SignalReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[allow(unsafe_code)]
fn register(signal: Signal, writer: Arc<UnixStream>, terminate: Option<Arc<AtomicBool>>) -> io::Result<()> {
    let action = move || {
        if let Some(terminate) = &terminate {
            terminate.store(true, Ordering::Relaxed);
        }
        // A full pipe means that a wake-up is pending already.
        let _ = rustix::io::write(&*writer, b"!");
    };
    // SAFETY: the action runs in a signal handler, so it may only do what is async-signal-safe: it
    // stores to an atomic and makes one `write` system call, and neither allocates nor locks.
    unsafe { signal_hook_registry::register(signal.as_raw(), action) }?;
    Ok(())
}
