//! What is typed: written at once where the terminal has room, else it waits, within a bound and in order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use qd_link::mutex::Mutex;
use qd_wire::{CodedError, ErrorCode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::driver::{AgentFailure, AgentResult};
use crate::process::Terminal;

/// Input that may wait for a program that does not read.
pub(super) const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// How often a terminal is tried that no program had open.
const CLOSED_POLL: Duration = Duration::from_millis(50);

/// The way to a program's keyboard. Clones share it; the terminal is let go with the last.
#[derive(Clone)]
pub(super) struct TerminalInput {
    shared: Arc<InputState>,
    _stop: Arc<DropGuard>,
}

struct InputState {
    terminal: Arc<AsyncFd<Terminal>>,
    waiting: Mutex<BytesMut>,
    /// Something waits.
    wake: Notify,
}

impl TerminalInput {
    pub(super) fn start(terminal: Arc<AsyncFd<Terminal>>) -> Self {
        let shared = Arc::new(InputState { terminal, waiting: Mutex::default(), wake: Notify::new() });
        let (writer, stop) = (Arc::clone(&shared), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = writer.write_what_waits() => {}
            }
        });
        TerminalInput { shared, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Whether this many bytes may be written or wait.
    pub(super) fn check_room(&self, count: usize) -> Result<(), CodedError> {
        if count > INPUT_BYTES_MAX {
            let error =
                format!("The input is too long (max {} KiB); send it in pieces", INPUT_BYTES_MAX >> 10);
            return Err(ErrorCode::TooLarge.with(error));
        }
        let waiting = self.shared.waiting.lock().len();
        if waiting + count > INPUT_BYTES_MAX {
            return Err(ErrorCode::InputFull.with(format!(
                "The program does not read its input: {} KiB wait for it already. Wait until it does, or stop it \
                 with run.stop.",
                waiting >> 10
            )));
        }
        Ok(())
    }

    /// Writes, or lets it wait its turn.
    pub(super) fn write(&self, bytes: &[u8]) -> AgentResult<()> {
        self.check_room(bytes.len())?;
        let mut waiting = self.shared.waiting.lock();
        let mut rest = bytes;
        if waiting.is_empty() {
            rest = write_now(bytes, |rest| self.shared.terminal.get_ref().write(rest))?;
        }
        if !rest.is_empty() {
            waiting.extend_from_slice(rest);
            self.shared.wake.notify_one();
        }
        Ok(())
    }
}

/// Writes what there is room for, and returns the rest.
fn write_now(bytes: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> AgentResult<&[u8]> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => {
                let written = bytes.len() - rest.len();
                let error = format!("The program has closed its terminal: {error}");
                return Err(if written == 0 {
                    ErrorCode::InputClosed.with(error).into()
                } else {
                    // The program may have read the beginning: the same again could do it twice.
                    AgentFailure::lost(format!("{error}, after {written} of {} bytes", bytes.len()))
                });
            }
        }
    }
    Ok(rest)
}

impl InputState {
    /// Writes whatever waits, for as long as the terminal is there.
    async fn write_what_waits(&self) {
        loop {
            if self.waiting.lock().is_empty() {
                self.wake.notified().await;
                continue;
            }
            let is_closed = match self.terminal.writable().await {
                Ok(mut ready) => {
                    ready.retain_ready();
                    ready.ready().is_write_closed()
                }
                // The runtime ends.
                Err(_) => return,
            };
            if !self.write_some() && is_closed {
                // Once closed it counts as writable for ever, though a program may open it again and read.
                tokio::time::sleep(CLOSED_POLL).await;
            }
        }
    }

    /// Writes what there is room for; false if there is none.
    fn write_some(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let written = self.terminal.try_io(Interest::WRITABLE, |terminal| terminal.write(&waiting));
        match written {
            Ok(count) => waiting.advance(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // How the program ended is told by its exit; what it did not read, nobody will.
                tracing::debug!(%error, bytes = waiting.len(), "a program's terminal takes no more input");
                waiting.clear();
            }
        }
        true
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
