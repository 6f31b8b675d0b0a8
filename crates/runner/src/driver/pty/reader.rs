//! Reads everything a program writes, and passes it on in pieces that are worth a record each.
//!
//! A piece goes out when it is large, when its first byte has waited long enough, or at once when the terminal had been
//! quiet: what a key echoes must not wait. Whoever takes the pieces sets the pace. While nobody takes one, the terminal
//! is not read, and the program waits in its own write; nothing is ever dropped.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use qd_core::redact::Scrubber;
use qd_core::terminal::Utf8Joiner;
use qd_link::mutex::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::now_ms;
use crate::process::{ExitStatus, Terminal};

/// A piece of this size goes out; larger ones make clients wait for what is there.
const PIECE_BYTES: usize = 64 * 1024;

/// The first byte of a piece waits this long at most.
const PIECE_WAIT: Duration = Duration::from_millis(10);

/// What comes from a terminal that was quiet for this long does not wait at all: it may be the echo of a key. Nobody types
/// faster, and a program that writes as seldom makes no more records than can be stored.
const QUIET: Duration = Duration::from_millis(1);

/// What may be the beginning of a secret is held back this long at most.
const HELD_WAIT: Duration = Duration::from_millis(30);

/// Read at once; the kernel gives no more than a quarter of it.
const READ_BYTES: usize = 16 * 1024;

/// Pieces that may wait to be taken.
const PIECES_MAX: usize = 2;

/// A program that has closed its terminal may open it again: it is looked that often.
const CLOSED_POLL: Duration = Duration::from_millis(50);

/// A terminal that was closed and is open again is looked at that often.
const HUNG_POLL: Duration = Duration::from_millis(5);

/// How long an end waits for the last bytes, where something that cannot be killed holds the terminal open.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// What a program does, in its own order.
#[derive(Debug)]
pub(super) enum ReaderMessage {
    Text(String),
    /// Everything it wrote has been said.
    Ended(ExitStatus),
}

/// Begins to read a terminal; `exit` tells the end of its program.
pub(super) fn start(
    terminal: Arc<AsyncFd<Terminal>>,
    scrubber: Arc<Mutex<Scrubber>>,
    exit: impl Future<Output = ExitStatus> + Send + Sync + 'static,
) -> mpsc::Receiver<ReaderMessage> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let reader = TerminalReader {
        terminal,
        scrubber,
        sender,
        exit: Box::pin(exit),
        ended: None,
        joiner: Utf8Joiner::default(),
        buffer: vec![0; READ_BYTES].into_boxed_slice(),
        piece: String::new(),
        expected_bytes: 0,
        piece_since: None,
        last_byte_at: None,
        may_hold: false,
        is_hung: false,
    };
    tokio::spawn(reader.run());
    receiver
}

struct TerminalReader {
    terminal: Arc<AsyncFd<Terminal>>,
    scrubber: Arc<Mutex<Scrubber>>,
    sender: mpsc::Sender<ReaderMessage>,
    exit: Pin<Box<dyn Future<Output = ExitStatus> + Send + Sync>>,
    /// How the program ended, and until when its last bytes may come.
    ended: Option<(ExitStatus, Instant)>,
    joiner: Utf8Joiner,
    buffer: Box<[u8]>,
    piece: String,
    /// The size of the last piece: the next is likely as large, so a flood is joined without regrowing.
    expected_bytes: usize,
    /// When its first byte came, if it may wait.
    piece_since: Option<Instant>,
    last_byte_at: Option<Instant>,
    /// The scrubber may have held something back.
    may_hold: bool,
    /// No program had the terminal open at some time.
    is_hung: bool,
}

/// What came of reading.
enum ReadResult {
    /// A piece is full; there may be more.
    Full,
    /// There is nothing more now.
    Nothing,
    /// No program has the terminal open.
    Closed,
}

/// Nobody takes the pieces any more.
struct ReaderAbandoned;

impl TerminalReader {
    async fn run(mut self) {
        // Nobody is left who could be told; the terminal is closed with us.
        let _ = self.read_to_end().await;
    }

    async fn read_to_end(&mut self) -> Result<(), ReaderAbandoned> {
        loop {
            match self.read() {
                ReadResult::Full => self.send_piece().await?,
                ReadResult::Nothing => {
                    if self.is_due() {
                        self.send_piece().await?;
                    }
                    if self.ended.is_some_and(|(_, until)| until <= Instant::now()) {
                        return self.finish().await;
                    }
                    self.wait().await?;
                }
                ReadResult::Closed if self.ended.is_some() => return self.finish().await,
                ReadResult::Closed => {
                    self.is_hung = true;
                    self.send_piece().await?;
                    self.wait_closed().await;
                }
            }
        }
    }

    /// Reads until there is nothing more, or a piece is full.
    fn read(&mut self) -> ReadResult {
        loop {
            let buffer = &mut self.buffer;
            let read = self.terminal.try_io(Interest::READABLE, |terminal| terminal.read(buffer));
            let count = match read {
                Ok(0) => return ReadResult::Closed,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ReadResult::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return ReadResult::Closed,
            };
            if self.piece.is_empty() {
                let now = Instant::now();
                let was_quiet = self.last_byte_at.is_none_or(|at| now - at >= QUIET);
                self.piece_since = (!was_quiet).then_some(now);
                self.piece.reserve(self.expected_bytes);
            }
            self.joiner.push(&self.buffer[..count], &mut self.piece);
            if self.piece.len() >= PIECE_BYTES {
                self.last_byte_at = Some(Instant::now());
                return ReadResult::Full;
            }
        }
    }

    /// Whether the piece goes out now that there is nothing more to read.
    fn is_due(&mut self) -> bool {
        if self.piece.is_empty() {
            return false;
        }
        let now = Instant::now();
        self.last_byte_at = Some(now);
        self.piece_since.is_none_or(|since| now - since >= PIECE_WAIT)
    }

    /// Waits for bytes, for the moment the piece is due, or for the program's end.
    async fn wait(&mut self) -> Result<(), ReaderAbandoned> {
        let piece_at = self.piece_since.filter(|_| !self.piece.is_empty()).map(|since| since + PIECE_WAIT);
        let held_at = self.last_byte_at.filter(|_| self.may_hold).map(|at| at + HELD_WAIT);
        let ended_at = self.ended.map(|(_, until)| until);
        let deadline = [piece_at, held_at, ended_at].into_iter().flatten().min();
        let is_running = self.ended.is_none();
        tokio::select! {
            biased;
            ready = readable(&self.terminal, self.is_hung) => {
                // An error here is the end of the runtime.
                self.is_hung |= ready.map_err(|_| ReaderAbandoned)?;
                Ok(())
            }
            status = &mut self.exit, if is_running => {
                self.ended = Some((status, Instant::now() + DRAIN_MAX));
                Ok(())
            }
            () = until(deadline) => {
                if held_at.is_some_and(|at| at <= Instant::now()) && self.piece.is_empty() {
                    return self.send_held().await;
                }
                Ok(())
            }
            () = self.sender.closed() => Err(ReaderAbandoned),
        }
    }

    /// Waits a while for a program that lives without its terminal.
    async fn wait_closed(&mut self) {
        tokio::select! {
            status = &mut self.exit => self.ended = Some((status, Instant::now() + DRAIN_MAX)),
            () = tokio::time::sleep(CLOSED_POLL) => {}
        }
    }

    async fn send_piece(&mut self) -> Result<(), ReaderAbandoned> {
        self.piece_since = None;
        let piece = std::mem::take(&mut self.piece);
        self.expected_bytes = piece.len();
        let (piece, is_active) = {
            let mut scrubber = self.scrubber.lock();
            (scrubber.scrub(now_ms(), piece, false), scrubber.is_active())
        };
        self.may_hold = is_active;
        self.send(piece).await
    }

    async fn send_held(&mut self) -> Result<(), ReaderAbandoned> {
        self.may_hold = false;
        let held = self.scrubber.lock().scrub(now_ms(), String::new(), true);
        self.send(held).await
    }

    /// Says everything that is left, and then the end.
    async fn finish(&mut self) -> Result<(), ReaderAbandoned> {
        let mut rest = std::mem::take(&mut self.piece);
        self.joiner.finish(&mut rest);
        let rest = self.scrubber.lock().scrub(now_ms(), rest, true);
        self.send(rest).await?;
        let status = self.ended.map_or(ExitStatus::Unknown, |(status, _)| status);
        self.sender.send(ReaderMessage::Ended(status)).await.map_err(|_| ReaderAbandoned)
    }

    async fn send(&self, text: String) -> Result<(), ReaderAbandoned> {
        if text.is_empty() {
            return Ok(());
        }
        self.sender.send(ReaderMessage::Text(text)).await.map_err(|_| ReaderAbandoned)
    }
}

/// Waits until there is something to read; true when the terminal is or was closed. Once closed it counts as readable
/// for ever, though a program may have opened it again: from then on it is looked now and then.
async fn readable(terminal: &AsyncFd<Terminal>, is_hung: bool) -> io::Result<bool> {
    if is_hung {
        tokio::time::sleep(HUNG_POLL).await;
        return Ok(true);
    }
    let mut ready = terminal.readable().await?;
    ready.retain_ready();
    Ok(ready.ready().is_read_closed())
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
