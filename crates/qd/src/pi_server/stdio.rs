//! stdin and stdout as one more client of the hub's pi-server face: lines here, WebSocket text frames there.

use std::io;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use qd_wire::pi_server::{Response, ServerMessage};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use super::lines::{Line, LineReader};

/// What is collected before it is written; a burst of events then costs few writes.
const BATCH_BYTES_MAX: usize = 64 * 1024;
/// Answers made here that may wait for stdout; then stdin waits.
const OWN_ANSWERS_MAX: usize = 16;
/// How every response of the face begins.
const RESPONSE_HEAD: &[u8] = br#"{"type":"response""#;

/// Why the bridge ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Ending {
    /// The face closed the connection.
    Face,
    /// Nobody reads stdout any more.
    Output,
}

/// stdin is at its end, and every command of it is answered, or so many will not be in time.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct InputOver {
    pub(super) unanswered: u64,
}

/// What the reader of stdin tells the writer of stdout.
enum News {
    /// A line that the face never sees is answered here.
    Answer(String),
    /// Nothing more comes; so many commands were passed on.
    End { passed: u64 },
}

/// Passes lines to the face and frames back until the face closes or stdout does. The end of stdin is told to `over`,
/// and what the face says after it is still written. `patience` is how long answers may take after that end.
pub(super) async fn bridge<S>(
    input: impl AsyncBufRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin,
    face: S,
    message_bytes_max: usize,
    patience: Duration,
    over: oneshot::Sender<InputOver>,
) -> Ending
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
    let input = Input { news, answered: 0, passed: None, until: None, over: Some(over) };
    let writer = Writer { output, stream, batch: Vec::new(), is_greeted: false, input };
    let ending = writer.run(patience).await;
    reading.abort();
    ending
}

async fn pass_lines<R: AsyncBufRead + Unpin, S: AsyncRead + AsyncWrite + Unpin>(
    mut lines: LineReader<R>,
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    news: mpsc::Sender<News>,
    message_bytes_max: usize,
) {
    let mut passed = 0;
    loop {
        let answer = match lines.next().await {
            Ok(Some(Line::Text(line))) => {
                passed += 1;
                if sink.send(Message::text(line)).await.is_err() {
                    // The writer sees the same end, with what was still said.
                    return;
                }
                continue;
            }
            Ok(Some(Line::TooLong(bytes))) => {
                format!("Message size {bytes} exceeds limit {message_bytes_max}")
            }
            Ok(Some(Line::NotText)) => "Invalid JSON".to_owned(),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "stdin cannot be read any more");
                break;
            }
        };
        if news.send(News::Answer(refusal(answer))).await.is_err() {
            return;
        }
    }
    // Nobody to tell is the end as well.
    let _ended = news.send(News::End { passed }).await;
    // The connection must stay open for the answers.
    std::future::pending::<()>().await;
}

fn refusal(error: String) -> String {
    let response = ServerMessage::Response(Response {
        id: None,
        command: "unknown".to_owned(),
        success: false,
        data: None,
        error: Some(error),
        session_version: None,
        replayed: None,
        timed_out: None,
        indeterminate: None,
    });
    // Plain text fields only, so it can always be written.
    serde_json::to_string(&response).unwrap_or_default()
}

/// What is known of stdin.
struct Input {
    news: mpsc::Receiver<News>,
    /// Commands that have their answer.
    answered: u64,
    /// All commands, once it is at its end.
    passed: Option<u64>,
    /// When answers are no longer waited for.
    until: Option<Instant>,
    /// Told once.
    over: Option<oneshot::Sender<InputOver>>,
}

impl Input {
    /// Commands without an answer, once no more can come.
    fn missing(&self) -> Option<u64> {
        self.passed.map(|passed| passed.saturating_sub(self.answered))
    }

    fn tell_over(&mut self) {
        self.until = None;
        if let Some(over) = self.over.take() {
            // Whoever has stopped listening is ending already.
            let _ending = over.send(InputOver { unanswered: self.missing().unwrap_or(0) });
        }
    }
}

struct Writer<S, W> {
    output: W,
    stream: SplitStream<WebSocketStream<S>>,
    batch: Vec<u8>,
    /// The face has said its first word.
    is_greeted: bool,
    input: Input,
}

impl<S: AsyncRead + AsyncWrite + Unpin, W: AsyncWrite + Unpin> Writer<S, W> {
    async fn run(mut self, patience: Duration) -> Ending {
        loop {
            let goes_on = self.turn(patience).await;
            if let Err(error) = self.write().await {
                tracing::debug!(%error, "stdout cannot be written any more");
                return Ending::Output;
            }
            if !goes_on {
                return Ending::Face;
            }
            if self.is_greeted && self.input.missing() == Some(0) {
                self.input.tell_over();
            }
        }
    }

    /// Waits for something to write, and takes what else is there already; `false` when the face has closed.
    async fn turn(&mut self, patience: Duration) -> bool {
        let until = self.input.until;
        tokio::select! {
            frame = self.stream.next() => {
                let mut frame = Some(frame);
                while let Some(next) = frame {
                    if !self.take(next) {
                        return false;
                    }
                    let more = self.batch.len() < BATCH_BYTES_MAX;
                    frame = if more { self.stream.next().now_or_never() } else { None };
                }
            }
            Some(news) = self.input.news.recv() => match news {
                News::Answer(line) => self.line(line.as_bytes()),
                News::End { passed } => {
                    self.input.passed = Some(passed);
                    self.input.until = Some(Instant::now() + patience);
                }
            },
            () = at(until) => self.input.tell_over(),
        }
        true
    }

    /// Takes a frame; `false` when it was the last.
    fn take(&mut self, frame: Option<Result<Message, SocketError>>) -> bool {
        match frame {
            Some(Ok(Message::Text(text))) => {
                self.is_greeted = true;
                self.input.answered += u64::from(text.as_bytes().starts_with(RESPONSE_HEAD));
                self.line(text.as_bytes());
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

    fn line(&mut self, text: &[u8]) {
        self.batch.extend_from_slice(text);
        self.batch.push(b'\n');
    }

    async fn write(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.output.write_all(&self.batch).await?;
        self.batch.clear();
        // A single large message must not keep its room for ever.
        self.batch.shrink_to(BATCH_BYTES_MAX);
        self.output.flush().await
    }
}

/// Waits until then; for ever without a time.
async fn at(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;
