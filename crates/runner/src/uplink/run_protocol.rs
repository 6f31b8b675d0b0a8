//! A server that others wrote for the run document, in the place of the hub (`qd runner start --protocol run`).
//!
//! It is reached as a hub is: something that can be connected to, again and again. Behind the connection stands a
//! bridge that plays the hub towards the runner, so spool, window, order and resuming are the same as for a hub; the
//! translation itself is pure (`qd_core::view::run::host::server_connection`).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_core::view::run::host::server_connection::{ServerConnection, TranslatedLines};
use qd_link::host::HostDialer;
use qd_link::memory::{LinkEnd, LinkReceiver, LinkSender, pair};
use qd_link::mutex::Mutex;
use qd_link::runner::{ConnectFailure, ConnectFuture, HubConnector};
use qd_store::RunnerStore;
use qd_wire::link::LinkLine;
use tokio::sync::mpsc;

use crate::clock::now_ms;

/// Messages to the server that are no records and wait for their turn; a server that asks for more than it reads is
/// not answered any more.
const REPLIES_MAX: usize = 1024;

/// How the runner reaches such a server; give it to the runner as [`crate::Uplink::Dial`].
#[derive(Clone)]
pub struct RunServer {
    dialer: HostDialer,
    store: RunnerStore,
    /// How far the server has each run. `None` before the store was asked.
    acked: Arc<Mutex<Option<HashMap<String, u64>>>>,
}

impl RunServer {
    /// The store is the runner's own; its `runner_id` must be the dialer's `host_id`.
    pub fn new(dialer: HostDialer, store: RunnerStore) -> RunServer {
        RunServer { dialer, store, acked: Arc::default() }
    }
}

impl HubConnector for RunServer {
    fn connect(&self) -> ConnectFuture {
        let server = self.clone();
        Box::pin(async move { server.attempt().await })
    }
}

impl RunServer {
    async fn attempt(&self) -> Result<LinkEnd, ConnectFailure> {
        if self.acked.lock().is_none() {
            let acked = self.store.acked_seqs().await.map_err(|error| ConnectFailure {
                reason: format!("the runner cannot read what was acknowledged: {error}"),
                is_refusal: false,
                code: None,
            })?;
            self.acked.lock().get_or_insert_with(|| acked.into_iter().collect());
        }
        let socket = self.dialer.connect().await?;
        let (runner_end, own_end) = pair();
        tokio::spawn(self.clone().bridge(own_end, socket));
        Ok(runner_end)
    }

    /// Carries what both sides say until one of them is gone. When this returns both are.
    async fn bridge(self, runner: LinkEnd, server: LinkEnd) {
        let LinkEnd { sender: to_runner, receiver: mut from_runner } = runner;
        let LinkEnd { sender: to_server, receiver: from_server } = server;
        let Some(outgoing) = self.introduce(&to_runner, &mut from_runner).await else { return };
        let bridge = RunServerBridge { outgoing: Mutex::new(outgoing), server: self, to_runner, to_server };
        let (replies, answers) = mpsc::channel(REPLIES_MAX);
        tokio::select! {
            () = bridge.read_runner(from_runner, answers) => {}
            () = bridge.read_server(from_server, replies) => {}
        }
    }

    /// Takes the runner's hello and welcomes it.
    async fn introduce(
        &self,
        runner: &LinkSender,
        from_runner: &mut LinkReceiver,
    ) -> Option<ServerConnection> {
        let block = from_runner.recv().await?;
        let first = block.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let Ok(LinkLine::Hello(hello)) = serde_json::from_slice(first) else {
            tracing::error!("the runner's own hello cannot be read");
            return None;
        };
        let (outgoing, welcome) = {
            let acked = self.acked.lock();
            ServerConnection::welcome(&hello, acked.as_ref().unwrap_or(&HashMap::new()))
        };
        let mut line = serde_json::to_vec(&LinkLine::Welcome(welcome)).ok()?;
        line.push(b'\n');
        runner.send(line.into()).await.ok()?;
        Some(outgoing)
    }
}

/// One connection.
struct RunServerBridge {
    outgoing: Mutex<ServerConnection>,
    server: RunServer,
    to_runner: LinkSender,
    to_server: LinkSender,
}

impl RunServerBridge {
    /// Sends the server what the runner says, and what it is answered beside.
    async fn read_runner(&self, mut runner: LinkReceiver, mut answers: mpsc::Receiver<String>) {
        loop {
            tokio::select! {
                block = runner.recv() => {
                    let Some(block) = block else { return };
                    for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                        let Ok(line) = std::str::from_utf8(line) else { continue };
                        let outcome = self.outgoing.lock().line(now_ms(), line);
                        if self.send(outcome).await.is_none() {
                            return;
                        }
                    }
                }
                Some(message) = answers.recv() => {
                    if self.to_server.send(message.into()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Does what the server says. It is read whether or not it reads itself: both sending much must not stop both.
    async fn read_server(&self, mut server: LinkReceiver, replies: mpsc::Sender<String>) {
        while let Some(block) = server.recv().await {
            let Ok(text) = std::str::from_utf8(&block) else { continue };
            let TranslatedLines { to_server, to_runner, acked } =
                self.outgoing.lock().message(now_ms(), text.trim_end());
            if let Some((run_id, seq)) = acked {
                self.server.acked.lock().get_or_insert_default().insert(run_id, seq);
            }
            for message in to_server {
                if replies.try_send(message).is_err() {
                    tracing::warn!("the server asks more than it reads and is not answered");
                }
            }
            if !to_runner.is_empty() && self.to_runner.send(to_runner.into()).await.is_err() {
                return;
            }
        }
    }

    async fn send(&self, outcome: TranslatedLines) -> Option<()> {
        for message in outcome.to_server {
            self.to_server.send(Bytes::from(message)).await.ok()?;
        }
        if !outcome.to_runner.is_empty() {
            self.to_runner.send(outcome.to_runner.into()).await.ok()?;
        }
        Some(())
    }
}
