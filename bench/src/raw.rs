//! What we are compared with: a forwarder and an echo, written plainly with the same libraries.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::error::{Outcome, failed};
use crate::hub_alone::delta_line;
use crate::process::announce;
use crate::script::Script;

type Socket = WebSocketStream<TcpStream>;

const READ_BYTES: usize = 64 << 10;
/// Lines in one block of the memory source: as many as a runner makes of one full pipe.
const BLOCK_LINES: usize = 225;
const BLOCKS_MAX: usize = 64;

/// When frames are given to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// After every frame.
    Each,
    /// When the source has nothing more.
    Idle,
}

impl Flush {
    fn parse(word: Option<&String>) -> Outcome<Self> {
        match word.map(String::as_str) {
            Some("each") => Ok(Flush::Each),
            Some("idle") => Ok(Flush::Idle),
            _ => failed("say `each` or `idle`"),
        }
    }
}

/// `raw-forwarder each|idle CLIENTS child|memory`
pub(crate) async fn forwarder(arguments: &[String]) -> Outcome<()> {
    let flush = Flush::parse(arguments.first())?;
    let count: usize = arguments.get(1).map_or("1", String::as_str).parse()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(accept(&listener).await?);
    }
    let mut forwarder = Forwarder { clients, flush };
    if arguments.get(2).is_some_and(|source| source == "memory") {
        return forwarder.forward_memory().await;
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["fake-pi", "--mode", "rpc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(stdin), Some(stdout)) => forwarder.forward_child(stdin, stdout).await,
        _ => failed("the child has no pipes"),
    }
}

/// `raw-echo each|idle`
pub(crate) async fn echo(arguments: &[String]) -> Outcome<()> {
    let flush = Flush::parse(arguments.first())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?)?;
    loop {
        let mut client = accept(&listener).await?;
        tokio::spawn(async move {
            // A client that goes ends its task; that is no error here.
            let _ = echo_one(&mut client, flush).await;
        });
    }
}

async fn echo_one(client: &mut Socket, flush: Flush) -> Outcome<()> {
    loop {
        let next = match flush {
            Flush::Each => None,
            Flush::Idle => client.next().now_or_never(),
        };
        let message = match next {
            Some(message) => message,
            None => {
                client.flush().await?;
                client.next().await
            }
        };
        match message {
            Some(Ok(message @ Message::Text(_))) => client.feed(message).await?,
            Some(Ok(_)) => {}
            _ => return Ok(()),
        }
    }
}

async fn accept(listener: &TcpListener) -> Outcome<Socket> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(tokio_tungstenite::accept_async(stream).await?)
}

struct Forwarder {
    clients: Vec<Socket>,
    flush: Flush,
}

impl Forwarder {
    /// The first client's frames go to the child; what the child says until it has settled goes to all.
    async fn forward_child(&mut self, mut stdin: ChildStdin, mut stdout: ChildStdout) -> Outcome<()> {
        let mut buffer = BytesMut::new();
        while let Some(prompt) = self.next_prompt().await? {
            stdin.write_all(prompt.as_bytes()).await?;
            stdin.write_all(b"\n").await?;
            let mut is_settled = false;
            while !is_settled {
                buffer.reserve(READ_BYTES);
                let ready = {
                    let mut read = pin!(stdout.read_buf(&mut buffer));
                    poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await
                };
                let read = match ready {
                    Poll::Ready(read) => read?,
                    Poll::Pending => {
                        self.flush_all().await?;
                        stdout.read_buf(&mut buffer).await?
                    }
                };
                if read == 0 {
                    return failed("the child ended");
                }
                is_settled = self.forward_lines(&mut buffer).await?;
            }
            self.flush_all().await?;
        }
        Ok(())
    }

    async fn forward_lines(&mut self, buffer: &mut BytesMut) -> Outcome<bool> {
        let mut is_settled = false;
        while let Some(end) = memchr::memchr(b'\n', buffer) {
            let mut line = buffer.split_to(end + 1);
            line.truncate(end);
            let line = line.freeze();
            is_settled = line.starts_with(br#"{"type":"agent_settled""#);
            self.forward(line).await?;
        }
        Ok(is_settled)
    }

    /// Lines come from a task of this process.
    async fn forward_memory(&mut self) -> Outcome<()> {
        while let Some(prompt) = self.next_prompt().await? {
            let count = Script::parse(&prompt).map_or(0, |script| script.number("n", 0));
            let (sender, mut receiver) = mpsc::channel::<Bytes>(BLOCKS_MAX);
            tokio::spawn(async move {
                let line = delta_line("{\"channel\":\"agent\",", 0);
                let block = Bytes::from(line.repeat(BLOCK_LINES));
                for _ in 0..count.div_ceil(BLOCK_LINES) {
                    if sender.send(block.clone()).await.is_err() {
                        return;
                    }
                }
            });
            loop {
                let block = match receiver.try_recv() {
                    Ok(block) => Some(block),
                    Err(_) => {
                        self.flush_all().await?;
                        receiver.recv().await
                    }
                };
                let Some(block) = block else { break };
                let mut start = 0;
                for end in memchr::memchr_iter(b'\n', &block) {
                    self.forward(block.slice(start..end)).await?;
                    start = end + 1;
                }
            }
        }
        Ok(())
    }

    async fn forward(&mut self, line: Bytes) -> Outcome<()> {
        let text = Utf8Bytes::try_from(line)?;
        for client in &mut self.clients {
            client.feed(Message::Text(text.clone())).await?;
            if self.flush == Flush::Each {
                client.flush().await?;
            }
        }
        Ok(())
    }

    async fn flush_all(&mut self) -> Outcome<()> {
        for client in &mut self.clients {
            client.flush().await?;
        }
        Ok(())
    }

    async fn next_prompt(&mut self) -> Outcome<Option<String>> {
        loop {
            match self.clients[0].next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(text.as_str().to_owned())),
                Some(Ok(_)) => {}
                _ => return Ok(None),
            }
        }
    }
}
