//! A parrot at work: what would be `runner/driver/parrot`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use qd_core::agent::{AgentEvent, AgentRequest};
use qd_core::harness::{Codec, Decoded};
use qd_core::session::ReadyAgent;
use qd_runner::RunnerConfig;
use qd_runner::driver::{
    AgentDriver, AgentFailure, AgentHandle, AgentProgress, AgentResult, BoxFuture, CommandSetting, Driver,
    DriverHandle, Harness, HarnessSettings, PendingReply, PendingRequests, PromptDisposition, SentRequest,
    StartRequest,
};
use qd_runner::process::line_reader::{LINE_BYTES_MAX, LineReader};
use qd_runner::process::{AgentProcess, AgentStdin, CloseMode, Environment, Privileges, SpawnSpec};
use qd_wire::data::{ProcessStats, QueueState};
use qd_wire::{CodedError, ErrorCode};
use serde_json::Value;
use tokio::process::ChildStdout;

use super::codec::{ParrotCodec, waiting};

/// The row of the table.
pub(crate) struct Parrot;

impl Harness for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn capabilities(&self) -> &'static [&'static str] {
        &["follow_up"]
    }

    fn start<'a>(
        &'a self,
        runner: &'a RunnerConfig,
        settings: &'a HarnessSettings,
        request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>> {
        Box::pin(async move {
            let spawn = SpawnSpec {
                program: settings.command.iter().map(Into::into).collect(),
                cwd: request.cwd,
                environment: Environment::default(),
                guard: runner.guard.clone(),
                config: runner.process.clone(),
                privileges: Privileges::Fixed,
                session_id: request.session_id,
            };
            let mut process = spawn.start().await?;
            let stdout = process.take_stdout().unwrap();
            let handle = ParrotHandle {
                stdin: process.stdin().clone(),
                requests: PendingRequests::default(),
                counter: Arc::default(),
            };
            let reader = LineReader::new(stdout, LINE_BYTES_MAX);
            Ok(Box::new(ParrotDriver { process, reader, codec: ParrotCodec, handle }) as Driver)
        })
    }

    fn is_installed(&self, settings: &HarnessSettings) -> bool {
        !settings.command.is_empty()
    }

    fn install_advice(&self) -> &'static str {
        "buy one"
    }

    fn command_setting(&self) -> Option<CommandSetting> {
        let help = "How to start the parrot";
        Some(CommandSetting {
            name: "parrot_command",
            flag: "parrot-command",
            env: "QD_PARROT",
            default: "parrot",
            help,
        })
    }
}

struct ParrotDriver {
    process: AgentProcess,
    reader: LineReader<ChildStdout>,
    codec: ParrotCodec,
    handle: ParrotHandle,
}

impl AgentDriver for ParrotDriver {
    fn poll_next(&mut self, context: &mut Context<'_>, events: &mut Vec<AgentEvent>) -> Poll<AgentProgress> {
        if !matches!(ready!(self.reader.poll_fill(context)), Ok(true)) {
            let error = "The parrot has flown".to_owned();
            self.handle.requests.fail_all(&error);
            return Poll::Ready(AgentProgress::Gone { error });
        }
        let mut decoded = Vec::new();
        while let Some(line) = self.reader.next_line() {
            self.codec.decode(line.unwrap(), 0, &mut decoded);
        }
        for decoded in decoded {
            match decoded {
                Decoded::Event(event) => events.push(event),
                Decoded::Reply(reply) => self.handle.requests.answer(&reply.id.unwrap(), reply.result),
                Decoded::Private(never) => match never {},
                Decoded::Malformed { error, preview } => panic!("{error}: {preview}"),
            }
        }
        Poll::Ready(AgentProgress::Events)
    }

    fn handle(&self) -> DriverHandle {
        Arc::new(self.handle.clone())
    }

    fn close(self: Box<Self>, how: CloseMode) -> BoxFuture<'static, ()> {
        self.handle.requests.fail_all("The session was closed before the parrot answered");
        Box::pin(async move {
            self.process.close(how).await;
        })
    }

    fn stats(&self) -> Option<ProcessStats> {
        let pid = u32::try_from(self.process.pid()).ok();
        Some(ProcessStats { alive: self.process.stats().alive, pid, ..ProcessStats::default() })
    }
}

#[derive(Clone)]
struct ParrotHandle {
    stdin: AgentStdin,
    requests: PendingRequests,
    counter: Arc<AtomicU64>,
}

impl ParrotHandle {
    fn send(&self, request: &AgentRequest) -> AgentResult<PendingReply> {
        let id = self.counter.fetch_add(1, Ordering::Relaxed).to_string();
        let unsupported = || {
            AgentFailure::refused(ErrorCode::Unsupported.with(format!("parrots cannot do this: {request:?}")))
        };
        let line = ParrotCodec.encode(&id, request).map_err(|_| unsupported())?;
        let pending = self.requests.expect(id)?;
        self.stdin
            .try_send(Bytes::from(line))
            .map_err(|error| AgentFailure::refused(ErrorCode::InputFull.with(error.to_string())))?;
        Ok(pending)
    }
}

impl AgentHandle for ParrotHandle {
    fn harness(&self) -> &'static str {
        "parrot"
    }

    fn send_request(&self, request: AgentRequest) -> AgentResult<SentRequest> {
        self.send(&request).map(|pending| SentRequest::new(pending.reply()))
    }

    fn send_without_reply(&self, request: AgentRequest) -> AgentResult<()> {
        self.send(&request).map(drop)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<ReadyAgent, CodedError>> {
        Box::pin(async {
            self.send(&AgentRequest::GetState)?.reply().await?;
            Ok(ReadyAgent::default())
        })
    }

    fn disposition<'a>(
        &'a self,
        reply: &'a Value,
        _is_command: bool,
        _busy: bool,
    ) -> BoxFuture<'a, PromptDisposition> {
        let disposition =
            if reply["queued"] == true { PromptDisposition::Queued } else { PromptDisposition::Started };
        Box::pin(std::future::ready(disposition))
    }

    fn reclaim_queue(&self) -> AgentResult<BoxFuture<'static, Result<QueueState, AgentFailure>>> {
        let asked = self.send(&AgentRequest::ClearQueue)?;
        Ok(Box::pin(async { asked.reply().await.map(|reply| waiting(&reply["texts"])) }))
    }
}
