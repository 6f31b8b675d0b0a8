//! Commands sent as fast as they are answered, over one or several connections.

use std::time::Instant;

use futures_util::future::try_join_all;
use memchr::memmem::find;

use super::percentile;
use crate::client::{Client, put_frame};
use crate::clock;
use crate::error::Outcome;
use crate::process::Server;

/// How commands are sent.
pub(super) struct CommandLoad {
    pub(super) protocol: CommandProtocol,
    pub(super) connections: usize,
    /// Commands under way on each connection.
    pub(super) depth: usize,
    /// Commands in all.
    pub(super) count: usize,
}

/// What is spoken.
#[derive(Clone, Copy)]
pub(super) enum CommandProtocol {
    Mux,
    PiServer,
}

pub(super) struct RoundTrips {
    pub(super) rate: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) cpu: f64,
}

impl CommandProtocol {
    async fn connect(self, server: &Server) -> Outcome<Client> {
        match self {
            CommandProtocol::Mux => Client::connect(server).await,
            CommandProtocol::PiServer => Client::connect_pi(server).await,
        }
    }

    fn command(self, session: &str, id: &str) -> String {
        match self {
            CommandProtocol::Mux => {
                format!(r#"{{"channel":"agent","id":"{id}","session_id":"{session}","cmd":"get_state"}}"#)
            }
            CommandProtocol::PiServer => {
                format!(r#"{{"type":"get_state","id":"{id}","sessionId":"{session}"}}"#)
            }
        }
    }

    /// The number of the command this frame answers.
    fn answered(self, frame: &[u8], prefix: &str) -> Option<usize> {
        let head = match self {
            // An echo sends back what it got, so every frame with an id counts.
            CommandProtocol::Mux => frame,
            CommandProtocol::PiServer => frame.strip_prefix(b"{\"type\":\"response\"")?,
        };
        let head = &head[..head.len().min(80)];
        let rest = &head[find(head, b"\"id\":\"")? + 6..];
        std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()?.strip_prefix(prefix)?.parse().ok()
    }
}

impl CommandLoad {
    pub(super) async fn run(&self, server: &Server, session: &str) -> Outcome<RoundTrips> {
        let mut clients = Vec::new();
        for number in 0..self.connections {
            let mut client = self.protocol.connect(server).await?;
            self.send_commands(&mut client, session, &format!("w{number}-"), self.depth * 20).await?;
            clients.push(client);
        }
        let cpu = server.cpu_seconds()?;
        let start = clock::now();
        let share = self.count / self.connections;
        let sending = clients.iter_mut().enumerate().map(|(number, client)| {
            let prefix = format!("m{number}-");
            async move { self.send_commands(client, session, &prefix, share).await }
        });
        let mut times: Vec<u64> = try_join_all(sending).await?.concat();
        let seconds = start.elapsed().as_secs_f64();
        let cpu = server.cpu_seconds()? - cpu;
        times.sort_unstable();
        Ok(RoundTrips {
            rate: times.len() as f64 / seconds,
            p50: percentile(&times, 0.5) / 1000.0,
            p99: percentile(&times, 0.99) / 1000.0,
            cpu: cpu * 1e6 / times.len() as f64,
        })
    }

    /// Keeps `depth` commands under way until `count` are answered; gives the nanoseconds of each.
    async fn send_commands(
        &self,
        client: &mut Client,
        session: &str,
        prefix: &str,
        count: usize,
    ) -> Outcome<Vec<u64>> {
        let mut sent: Vec<Instant> = Vec::with_capacity(count);
        let mut times = Vec::with_capacity(count);
        let mut frames = Vec::new();
        while times.len() < count {
            frames.clear();
            let now = clock::now();
            while sent.len() < count && sent.len() - times.len() < self.depth {
                let text = self.protocol.command(session, &format!("{prefix}{}", sent.len()));
                put_frame(&mut frames, 1, text.as_bytes());
                sent.push(now);
            }
            if !frames.is_empty() {
                client.send_frames(&frames).await?;
            }
            client
                .read(|frame| {
                    if let Some(start) = self.protocol.answered(frame, prefix).and_then(|id| sent.get(id)) {
                        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
                    }
                })
                .await?;
        }
        Ok(times)
    }
}
