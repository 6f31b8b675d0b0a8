//! A client that costs little: it reads big pieces off the socket and looks at frames where they lie. The same one
//! serves both sides of every comparison.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Outcome, failed};
use crate::process::Server;

const BUFFER_BYTES: usize = 256 << 10;
const OPCODE_TEXT: u8 = 1;
const OPCODE_BINARY: u8 = 2;
const OPCODE_CLOSE: u8 = 8;
const OPCODE_PING: u8 = 9;
const OPCODE_PONG: u8 = 10;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes read off the socket since the handshake.
    pub(crate) received: u64,
    last_id: u64,
}

impl Client {
    pub(crate) async fn connect(server: &Server) -> Outcome<Self> {
        Self::connect_small(server, BUFFER_BYTES).await
    }

    /// The same with a buffer of this size, which grows when a frame needs it.
    pub(crate) async fn connect_small(server: &Server, buffer_bytes: usize) -> Outcome<Self> {
        Self::connect_to(server, "/ws/mux", buffer_bytes).await
    }

    /// A connection to the pi-server face.
    pub(crate) async fn connect_pi(server: &Server) -> Outcome<Self> {
        Self::connect_to(server, "/ws/pi", BUFFER_BYTES).await
    }

    /// A connection to any address of the server.
    pub(crate) async fn connect_to(server: &Server, path: &str, buffer_bytes: usize) -> Outcome<Self> {
        let stream = TcpStream::connect(&server.address).await?;
        stream.set_nodelay(true)?;
        let buffer = vec![0; buffer_bytes];
        let mut client = Client { stream, buffer, start: 0, end: 0, received: 0, last_id: 0 };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Authorization: Bearer {}\r\n\r\n",
            server.address, server.token
        );
        client.stream.write_all(request.as_bytes()).await?;
        loop {
            client.fill().await?;
            if let Some(end) = memchr::memmem::find(&client.buffer[..client.end], b"\r\n\r\n") {
                if !client.buffer.starts_with(b"HTTP/1.1 101") {
                    return failed(String::from_utf8_lossy(&client.buffer[..end]).into_owned());
                }
                client.start = end + 4;
                client.received = (client.end - client.start) as u64;
                return Ok(client);
            }
        }
    }

    /// Sends one text frame. The mask is zero, so the text goes out as it is.
    pub(crate) async fn send(&mut self, text: &str) -> io::Result<()> {
        let mut frame = Vec::with_capacity(text.len() + 14);
        put_frame(&mut frame, OPCODE_TEXT, text.as_bytes());
        self.stream.write_all(&frame).await
    }

    /// Sends frames that are rendered already.
    pub(crate) async fn send_frames(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await
    }

    /// Waits for bytes once and shows every text frame that is complete.
    pub(crate) async fn read(&mut self, mut on_frame: impl FnMut(&[u8])) -> Outcome<()> {
        self.read_all(|is_text, frame| {
            if is_text {
                on_frame(frame)
            }
        })
        .await
    }

    /// The same with binary frames too.
    pub(crate) async fn read_all(&mut self, mut on_frame: impl FnMut(bool, &[u8])) -> Outcome<()> {
        self.take_frames(&mut on_frame).await?;
        self.received += self.fill().await? as u64;
        self.take_frames(&mut on_frame).await
    }

    async fn take_frames(&mut self, on_frame: &mut impl FnMut(bool, &[u8])) -> Outcome<()> {
        let mut pings = 0;
        while let Some((opcode, header, length)) = head(&self.buffer[self.start..self.end]) {
            if self.end - self.start < header + length {
                let whole = header + length;
                if whole > self.buffer.len() {
                    self.buffer.resize(whole.next_power_of_two(), 0);
                }
                break;
            }
            let payload = self.start + header;
            match opcode {
                OPCODE_TEXT => on_frame(true, &self.buffer[payload..payload + length]),
                OPCODE_BINARY => on_frame(false, &self.buffer[payload..payload + length]),
                OPCODE_PING => pings += 1,
                OPCODE_CLOSE => return failed("the server closed the connection"),
                _ => {}
            }
            self.start = payload + length;
        }
        for _ in 0..pings {
            let mut frame = Vec::new();
            put_frame(&mut frame, OPCODE_PONG, b"");
            self.stream.write_all(&frame).await?;
        }
        Ok(())
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end += read;
        Ok(read)
    }

    /// Sends a command of the mux and waits for its answer; other frames are shown on the way.
    pub(crate) async fn call_with(
        &mut self,
        session_id: &str,
        cmd: &str,
        rest: Value,
        mut on_frame: impl FnMut(&[u8]),
    ) -> Outcome<Value> {
        self.last_id += 1;
        let id = format!("c{}", self.last_id);
        let mut command = json!({"channel": "agent", "id": id, "cmd": cmd});
        if let (Some(command), Some(rest)) = (command.as_object_mut(), rest.as_object()) {
            command.extend(rest.clone());
            if !session_id.is_empty() {
                command.insert("session_id".to_owned(), session_id.into());
            }
        }
        self.send(&command.to_string()).await?;
        let mark = format!("\"event\":\"response\",\"id\":\"{id}\"");
        let mut found = None;
        while found.is_none() {
            self.read(|frame| {
                let head = &frame[..frame.len().min(64)];
                if memchr::memmem::find(head, mark.as_bytes()).is_some() {
                    found = Some(serde_json::from_slice::<Value>(frame));
                } else {
                    on_frame(frame);
                }
            })
            .await?;
        }
        let Some(answer) = found else { return failed("no answer") };
        let mut answer = answer?;
        if answer["success"] != true {
            return failed(format!("{cmd} failed: {}", answer["error"]));
        }
        Ok(answer["data"].take())
    }

    pub(crate) async fn call(&mut self, session_id: &str, cmd: &str, rest: Value) -> Outcome<Value> {
        self.call_with(session_id, cmd, rest, |_| {}).await
    }

    /// A new session; this client is attached to it.
    pub(crate) async fn create(&mut self, harness: &str) -> Outcome<String> {
        let config = json!({"config": {"harness": harness, "cwd": "/tmp"}});
        let data = self.call("", "session.create", config).await?;
        Ok(data["session_id"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn attach(&mut self, session_id: &str) -> Outcome<()> {
        self.call(session_id, "session.attach", json!({})).await.map(|_| ())
    }

    /// Starts a script at the agent of `session_id`; without one, at the child of a raw forwarder.
    pub(crate) async fn prompt(&mut self, session_id: Option<&str>, message: &str) -> Outcome<()> {
        let prompt = match session_id {
            // No id: the answer is then just one more frame.
            Some(session_id) => json!({"channel": "agent", "session_id": session_id, "cmd": "prompt",
                "message": message}),
            None => json!({"type": "prompt", "id": "p", "message": message}),
        };
        Ok(self.send(&prompt.to_string()).await?)
    }
}

/// Writes a client's frame, with a mask of zeros.
pub(crate) fn put_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// Opcode, header bytes and payload bytes of the frame that starts here.
fn head(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let opcode = bytes.first()? & 0x0f;
    match bytes.get(1)? & 0x7f {
        126 => {
            let length = bytes.get(2..4)?;
            Some((opcode, 4, usize::from(u16::from_be_bytes([length[0], length[1]]))))
        }
        127 => {
            let length: [u8; 8] = bytes.get(2..10)?.try_into().ok()?;
            Some((opcode, 10, usize::try_from(u64::from_be_bytes(length)).ok()?))
        }
        length => Some((opcode, 2, usize::from(length))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_lengths_are_read_and_partial_ones_wait() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let mut frame = Vec::new();
            put_frame(&mut frame, OPCODE_TEXT, &vec![b'x'; length]);
            // A server's frame has no mask: neither its bit nor its four bytes.
            frame[1] &= 0x7f;
            let header = frame.len() - 4 - length;
            assert_eq!(head(&frame), Some((OPCODE_TEXT, header, length)));
            assert_eq!(head(&frame[..header - 1]), None);
        }
    }
}
