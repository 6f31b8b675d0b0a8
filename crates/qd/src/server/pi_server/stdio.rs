//! stdin and stdout as one more client of the hub's pi-server face: lines here, WebSocket text frames there.
//!
//! stdin and stdout may be pipes that nobody reads or that end at any time, and neither may block the other. The end
//! of stdin is not the end: answers to what was sent are still waited for, within limits.

use std::io;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use qd_wire::{CodedError, ErrorCode};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use super::lines::{InputLine, LineReader};
use super::refusal::refusal;

/// What is collected before it is written; a burst of events then costs few writes.
const BATCH_BYTES_MAX: usize = 64 * 1024;
/// Answers made here that may wait for stdout; then stdin waits.
const OWN_ANSWERS_MAX: usize = 16;
/// How every response of the face begins.
const RESPONSE_HEAD: &[u8] = br#"{"type":"response""#;

/// Why the bridge ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum BridgeEnd {
    /// The face closed the connection.
    Face,
    /// Nobody reads stdout any more.
    Output,
    /// stdin is at its end, and whoever has stdout does not read it.
    Unread,
}

/// How long the other side may take once stdin is at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct StdinEndTimeouts {
    /// Until every command has its answer.
    pub(super) answers: Duration,
    /// Until stdout takes something.
    pub(super) unread: Duration,
}

/// stdin is at its end, and every command of it is answered, or so many will not be in time.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct InputOver {
    pub(super) unanswered: u64,
}

/// What the reader of stdin tells the writer of stdout.
enum StdinNews {
    /// A line that the face never sees is answered here.
    Answer(String),
    /// Nothing more comes; so many commands were passed on.
    End { passed: u64 },
}

/// Passes lines to the face and frames back until the face closes or stdout does. The end of stdin is told to `over`,
/// and what the face says after it is still written, as long as `timeouts` allow. `hang_up` makes a future that ends
/// when nobody can write to stdin any more: while stdout is full the face may take no commands, and then the lines
/// before the end of stdin are never read.
pub(super) async fn bridge<S, H: Future<Output = ()> + Send>(
    input: impl AsyncBufRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin,
    face: S,
    message_bytes_max: usize,
    timeouts: StdinEndTimeouts,
    hang_up: impl Fn() -> H + Send + 'static,
    over: oneshot::Sender<InputOver>,
) -> BridgeEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The face has its own limits; what it says must arrive whole.
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let socket = WebSocketStream::from_raw_socket(face, Role::Client, Some(config)).await;
    let (sink, stream) = socket.split();
    let (news_sender, news) = mpsc::channel(OWN_ANSWERS_MAX);
    let lines = LineReader::new(input, message_bytes_max);
    // A task of its own: stdin must be able to wait for the face while stdout is written, and the other way round.
    let reading = tokio::spawn(pass_lines(lines, sink, news_sender, message_bytes_max));
    let input = StdinProgress { news, answered: 0, passed: None, until: None, over: Some(over) };
    let batch = OutputBatch { bytes: Vec::new(), written: 0 };
    let writer = StdoutWriter { output, stream, batch, is_greeted: false, timeouts, hang_up, input };
    let ending = writer.run().await;
    reading.abort();
    ending
}

async fn pass_lines<R: AsyncBufRead + Unpin, S: AsyncRead + AsyncWrite + Unpin>(
    mut lines: LineReader<R>,
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    news: mpsc::Sender<StdinNews>,
    message_bytes_max: usize,
) {
    let mut passed = 0;
    loop {
        let answer = match lines.next().await {
            Ok(Some(InputLine::Text(line))) => {
                passed += 1;
                if sink.send(Message::text(line)).await.is_err() {
                    // The writer sees the same end, with what was still said.
                    return;
                }
                continue;
            }
            Ok(Some(InputLine::TooLong { bytes, head })) => {
                let error = format!("Message size {bytes} exceeds limit {message_bytes_max}");
                refusal(&head, ErrorCode::TooLarge.with(error).with_limit(message_bytes_max))
            }
            Ok(Some(InputLine::NotText)) => refusal(&[], CodedError::invalid("Invalid JSON")),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "stdin cannot be read any more");
                break;
            }
        };
        if news.send(StdinNews::Answer(answer)).await.is_err() {
            return;
        }
    }
    // Nobody to tell is the end as well.
    let _ended = news.send(StdinNews::End { passed }).await;
    // The connection must stay open for the answers.
    std::future::pending::<()>().await;
}

/// What is known of stdin.
struct StdinProgress {
    news: mpsc::Receiver<StdinNews>,
    /// Commands that have their answer.
    answered: u64,
    /// All commands, once it is at its end.
    passed: Option<u64>,
    /// When answers are no longer waited for.
    until: Option<Instant>,
    /// Told once.
    over: Option<oneshot::Sender<InputOver>>,
}

impl StdinProgress {
    /// Commands without an answer, once no more can come.
    fn missing(&self) -> Option<u64> {
        self.passed.map(|passed| passed.saturating_sub(self.answered))
    }

    fn report_input_over(&mut self) {
        self.until = None;
        if let Some(over) = self.over.take() {
            // Whoever has stopped listening is ending already.
            let _ending = over.send(InputOver { unanswered: self.missing().unwrap_or(0) });
        }
    }
}

/// Lines on their way to stdout.
struct OutputBatch {
    bytes: Vec<u8>,
    /// So many of them are written.
    written: usize,
}

impl OutputBatch {
    fn add(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.push(b'\n');
    }

    fn has_room(&self) -> bool {
        self.bytes.len() < BATCH_BYTES_MAX
    }

    /// Writes some of it; `false` when all is written and out. Nothing is lost when this is dropped half-way.
    async fn write_some(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> io::Result<bool> {
        if self.bytes.is_empty() {
            return Ok(false);
        }
        if self.written < self.bytes.len() {
            let count = output.write(&self.bytes[self.written..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += count;
            return Ok(true);
        }
        output.flush().await?;
        self.bytes.clear();
        self.written = 0;
        // A single large message must not keep its room for ever.
        self.bytes.shrink_to(BATCH_BYTES_MAX);
        Ok(false)
    }
}

struct StdoutWriter<S, W, H> {
    output: W,
    stream: SplitStream<WebSocketStream<S>>,
    batch: OutputBatch,
    /// The face has said its first word, which must be the first on stdout.
    is_greeted: bool,
    timeouts: StdinEndTimeouts,
    hang_up: H,
    input: StdinProgress,
}

impl<S, W, H, F> StdoutWriter<S, W, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
    H: Fn() -> F,
    F: Future<Output = ()>,
{
    async fn run(mut self) -> BridgeEnd {
        loop {
            let goes_on = self.fill_batch().await;
            if let Err(ending) = self.write().await {
                return ending;
            }
            if !goes_on {
                return BridgeEnd::Face;
            }
            if self.is_greeted && self.input.missing() == Some(0) {
                self.input.report_input_over();
            }
        }
    }

    /// Waits for something to write, and takes what else is there already; `false` when the face has closed.
    async fn fill_batch(&mut self) -> bool {
        let until = self.input.until;
        tokio::select! {
            frame = self.stream.next() => {
                let mut frame = Some(frame);
                while let Some(next) = frame {
                    if !self.take_frame(next) {
                        return false;
                    }
                    frame = if self.batch.has_room() { self.stream.next().now_or_never() } else { None };
                }
            }
            Some(news) = self.input.news.recv(), if self.is_greeted => self.take_news(news),
            () = wait_until(until) => self.input.report_input_over(),
        }
        true
    }

    /// Takes a frame; `false` when it was the last.
    fn take_frame(&mut self, frame: Option<Result<Message, SocketError>>) -> bool {
        match frame {
            Some(Ok(Message::Text(text))) => {
                self.is_greeted = true;
                self.input.answered += u64::from(text.as_bytes().starts_with(RESPONSE_HEAD));
                self.batch.add(text.as_bytes());
                true
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => true,
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => {
                tracing::warn!("the face sent a frame that is no text");
                true
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => false,
        }
    }

    fn take_news(&mut self, news: StdinNews) {
        match news {
            StdinNews::Answer(line) => self.batch.add(line.as_bytes()),
            StdinNews::End { passed } => {
                self.input.passed = Some(passed);
                self.input.until = Some(Instant::now() + self.timeouts.answers);
            }
        }
    }

    /// Writes the batch out. Whoever does not read is waited for as long as stdin is open.
    async fn write(&mut self) -> Result<(), BridgeEnd> {
        let mut has_hung_up = false;
        loop {
            let has_ended = has_hung_up || self.input.passed.is_some();
            let give_up = has_ended.then(|| self.unread_deadline());
            let takes_news = self.is_greeted && self.batch.has_room();
            tokio::select! {
                // The usual case: stdout takes it at once, and nothing else is looked at.
                biased;
                result = self.batch.write_some(&mut self.output) => match result {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => {
                        tracing::debug!(%error, "stdout cannot be written any more");
                        return Err(BridgeEnd::Output);
                    }
                },
                Some(news) = self.input.news.recv(), if takes_news => self.take_news(news),
                () = (self.hang_up)(), if !has_ended => has_hung_up = true,
                () = wait_until(give_up) => return Err(BridgeEnd::Unread),
            }
        }
    }

    /// When stdout that takes nothing from now on is given up.
    fn unread_deadline(&self) -> Instant {
        let unread = Instant::now() + self.timeouts.unread;
        self.input.until.map_or(unread, |until| until.min(unread))
    }
}

/// Waits until then; for ever without a time.
async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
