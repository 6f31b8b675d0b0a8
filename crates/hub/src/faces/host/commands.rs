//! From the hub to a host: commands as messages of the document, acks, and what the adapter answers itself.

use std::sync::Arc;

use bytes::Bytes;
use qd_core::encoding::hex;
use qd_core::projection::PendingQuestion;
use qd_core::view::run::host::foreign_run::ForeignRun;
use qd_core::view::run::host::request::{HostCommand, HostPlan, SentNote, plan};
use qd_link::clock::now_ms;
use qd_link::memory::LinkReceiver;
use qd_wire::command_table::{CommandClass, CommandHead, class_of, spec};
use qd_wire::data::RunnerSessionsData;
use qd_wire::link::LinkLine;
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::adapter::{EventGate, HostAdapter, HostCall, LinkCommand, RequestedRun};
use super::inputs::INPUTS_MAX;
use crate::access::audit;
use crate::sessions::reads;

/// Calls that a host may have to answer at once.
const CALLS_MAX: usize = 1024;
/// Runs that were asked for under a key and are remembered, on one connection.
const STARTS_MAX: usize = 256;
/// Calls without a limit of their own that nobody has to be asked for.
const CALL_MS: i64 = 60_000;
/// The hub's own limit of an input is over before it is forgotten here.
const INPUT_GRACE_MS: i64 = 1000;
/// Ids of the hub's own orders to delete; it has done so itself.
const DELETION_ID: &str = "bury:";

#[derive(Deserialize)]
struct CommandType<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

/// The one field of a cancel that matters here: the id of the command that is taken back.
#[derive(Deserialize)]
struct CancelledCommand {
    target: String,
}

impl HostAdapter {
    /// Does what the hub says until it is gone, or has said why it serves this connection no more; `rest` came with
    /// its welcome.
    pub(super) async fn read_hub(
        self: &Arc<Self>,
        mut hub: LinkReceiver,
        rest: Bytes,
    ) -> Result<String, CodedError> {
        let mut block = rest;
        loop {
            for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                match self.line(line).await {
                    Ok(answer) if answer.is_empty() => {}
                    Ok(answer) => {
                        if self.link.send(answer.into()).await.is_err() {
                            return Ok("the hub is gone".to_owned());
                        }
                    }
                    Err(reason) => return Err(reason),
                }
            }
            block = match hub.recv().await {
                Some(block) => block,
                None => return Ok("the hub ended it".to_owned()),
            };
        }
    }

    /// Does what a line of the hub says; gives what is to be answered, or why the link is over.
    async fn line(self: &Arc<Self>, line: &[u8]) -> Result<Vec<u8>, CodedError> {
        let Ok(text) = std::str::from_utf8(line) else { return Ok(Vec::new()) };
        // A command need not name a session.
        if serde_json::from_str::<CommandType<'_>>(text).is_ok_and(|line| line.kind == "command") {
            return Ok(self.command(text).await);
        }
        match serde_json::from_str::<LinkLine>(text) {
            Ok(LinkLine::Ack { session_id, seq }) => self.committed(&session_id, seq),
            Ok(LinkLine::SessionRefused(refused)) => {
                let run_id = &refused.session_id;
                if let Some(run) = self.state.lock().runs.get_mut(run_id) {
                    run.gate = EventGate::Refused;
                }
                self.refused(run_id, &refused.reason);
            }
            Ok(LinkLine::Refused { reason, code }) => {
                let reason = code.unwrap_or(ErrorCode::Conflict).with(reason);
                self.out.error(None, None, &reason);
                return Err(reason);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(host = %self.host_id, %error, "a line of the hub cannot be read"),
        }
        Ok(Vec::new())
    }

    /// The hub has committed events of a run.
    fn committed(&self, run_id: &str, seq: u64) {
        self.out.acks(|acks, now| acks.committed(now, run_id, seq));
        // The hub counts questions by what their records say, and hosts do not say when one is over.
        let state = self.state.lock();
        let Some(book) = state.runs.get(run_id).and_then(|run| run.book.as_ref()) else { return };
        if let Some(entry) = self.hub.session(run_id).filter(|_| book.seq <= seq) {
            entry.projection().set_questions(book.questions().iter().map(PendingQuestion::from).collect());
        }
    }

    async fn command(self: &Arc<Self>, text: &str) -> Vec<u8> {
        let Ok(head) = serde_json::from_str::<CommandHead<'_>>(text) else {
            tracing::warn!(host = %self.host_id, "a command of the hub cannot be read");
            return Vec::new();
        };
        let id: String = head.id.and_then(|id| serde_json::from_str(id.get()).ok()).unwrap_or_default();
        let run_id =
            head.session_id.as_deref().filter(|id| *id != qd_wire::SYSTEM_SESSION).map(str::to_owned);
        let asker = LinkCommand { id, cmd: head.cmd.as_deref().unwrap_or_default().to_owned(), run_id };
        // The host keeps its copy of a deleted run, since the document has no word for deleting. `EventGate::Deleted`
        // drops what it still sends.
        if asker.id.starts_with(DELETION_ID) {
            return Vec::new();
        }
        let class = class_of(&asker.cmd);
        if class == CommandClass::Cancel {
            return self.cancel(text);
        }
        // Refused and not ignored: a client that sends a condition relies on it.
        let has_conditions =
            head.if_session_version.is_some() || head.depends_on.is_some_and(|list| !list.is_empty());
        if has_conditions {
            let error = ErrorCode::Unsupported
                .with(format!("Host {} speaks the run protocol, which has no conditions", self.host_id));
            return self.response(&asker, Err(&error));
        }
        if let (Some(key), CommandClass::Create) = (&head.idempotency_key, class)
            && let Some(answer) =
                self.started_before(&asker, head.user_id.as_deref().unwrap_or_default(), key)
        {
            return answer;
        }
        let carried_out = self.carry_out(&asker, text).await;
        carried_out.unwrap_or_else(|error| self.response(&asker, Err(&error)))
    }

    /// The answer to a run that was asked for under the same key before.
    fn started_before(&self, asker: &LinkCommand, principal: &str, key: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let start = state.starts.iter().find(|start| start.principal == principal && start.key == key)?;
        Some(match &start.run_id {
            Some(run_id) => self.run_started(&state, asker, Some(run_id.clone())),
            None => {
                let error = ErrorCode::Busy.with("The host is starting this run already; ask again");
                self.response(asker, Err(&error))
            }
        })
    }

    /// Nobody waits for an answer any more.
    fn cancel(&self, text: &str) -> Vec<u8> {
        let Ok(CancelledCommand { target }) = serde_json::from_str(text) else { return Vec::new() };
        let mut state = self.state.lock();
        let found = state.calls.iter().find(|(_, call)| call.asker.id == target).map(|(id, _)| id.clone());
        let Some(call) = found.and_then(|id| state.calls.remove(&id)) else { return Vec::new() };
        let error = "Cancelled; the host was not told, since the run protocol has no word for it";
        self.response(&call.asker, Err(&ErrorCode::Cancelled.with(error)))
    }

    async fn carry_out(self: &Arc<Self>, asker: &LinkCommand, text: &str) -> Result<Vec<u8>, CodedError> {
        let run_id = asker.run_id.clone();
        let fresh_id = fresh_id();
        let planned = {
            let state = self.state.lock();
            let run = run_id.as_ref().and_then(|run_id| state.runs.get(run_id));
            let ended = ForeignRun::ended(0);
            let book = run.map(|run| run.book.as_ref().unwrap_or(&ended));
            plan(&HostCommand {
                host_id: &self.host_id,
                run_id: run_id.as_deref(),
                cmd: &asker.cmd,
                text,
                fresh_id: &fresh_id,
                book,
            })?
        };
        let run_id = run_id.unwrap_or_default();
        match planned {
            HostPlan::Answer(data) => Ok(self.response(asker, Ok(data))),
            HostPlan::Tell { kind, data, answer, then } => {
                self.out.send(kind, Some(&run_id), data)?;
                let mut block = self.response(asker, Ok(answer));
                if let Some(decided) = self.then(&run_id, then, text) {
                    // Whoever reads that it is decided may rely on it, so it is stored before.
                    self.note_decided(&run_id, &decided).await;
                    block.extend(decided);
                }
                Ok(block)
            }
            HostPlan::Input { input_id, data } => self.input(asker, &run_id, input_id, data),
            HostPlan::Call { kind, request_id, data } => {
                if class_of(&asker.cmd) == CommandClass::Create {
                    self.note_start(text, &request_id);
                }
                self.call(asker, kind, request_id, data)
            }
            HostPlan::Attach { after } => Ok(self.attach(asker.clone(), &run_id, after)),
            HostPlan::State => Ok(self.state_of(asker.clone(), &run_id)),
            HostPlan::Sessions => Ok(self.sessions(asker)),
            HostPlan::Delete => Ok(self.delete(asker.clone(), &run_id)),
        }
    }

    /// What follows from a message that has no answer; gives the event of a decision.
    fn then(&self, run_id: &str, then: SentNote, text: &str) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        let book = state.runs.get_mut(run_id)?.book.as_mut()?;
        match then {
            SentNote::Nothing => None,
            SentNote::Resized { cols, rows } => {
                book.resize(cols, rows);
                None
            }
            SentNote::Decided { request_id, decision, actor } => {
                let asked_seq = book.asked_seq(&request_id);
                book.settle(&request_id);
                let user_id =
                    serde_json::from_str::<CommandHead<'_>>(text).ok().and_then(|head| head.user_id);
                // The document's host does not record decisions. Whoever follows the run is told at once, and who
                // decided stays in the audit.
                let by = (user_id.map(Into::into), Some(decision), actor);
                Some(self.resolved_line(run_id, request_id, asked_seq, by))
            }
        }
    }

    /// Stores a decision that no record tells of in the audit, and tells the faces.
    async fn note_decided(&self, run_id: &str, line: &[u8]) {
        let Some(entry) = self.hub.session(run_id) else { return };
        if let Some(mut row) = audit::of_record("agent.input_resolved", now_ms(), line) {
            row.session_id = Some(entry.id.to_string());
            row.runner_id = Some(self.host_id.to_string());
            self.hub.put_audit(*row).await;
        }
        let (hub, line) = (Arc::clone(&self.hub), line.to_vec());
        self.hub.tasks.spawn(async move { hub.faces.unrecorded(&hub, &entry, &line).await });
    }

    /// The answer comes with the host's record of the input, because the document does not confirm inputs otherwise.
    fn input(
        &self,
        asker: &LinkCommand,
        run_id: &str,
        input_id: String,
        data: Value,
    ) -> Result<Vec<u8>, CodedError> {
        // Held while it is sent: the host's record may come at once, and must find the input that waits for it.
        let mut state = self.state.lock();
        if state.inputs.is_full() {
            let error =
                format!("Host {} has not confirmed {INPUTS_MAX} inputs; try again later", self.host_id);
            return Err(ErrorCode::Busy.with(error));
        }
        self.out.send("run.send_input", Some(run_id), data)?;
        let deadline = now_ms() + self.input_limit(&asker.cmd) + INPUT_GRACE_MS;
        state.inputs.add(run_id, input_id, asker.clone(), deadline);
        Ok(Vec::new())
    }

    /// How long the hub waits for such an input, in milliseconds.
    fn input_limit(&self, cmd: &str) -> i64 {
        let limit = self.hub.config.limits.command_timeout.map(|limit| limit.as_millis());
        let limit = limit.or_else(|| spec(cmd).and_then(|row| row.timeout_ms).map(u128::from));
        limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(CALL_MS)
    }

    fn call(
        &self,
        asker: &LinkCommand,
        kind: &'static str,
        request_id: String,
        mut data: Value,
    ) -> Result<Vec<u8>, CodedError> {
        let mut state = self.state.lock();
        if state.calls.len() >= CALLS_MAX {
            let error = format!("Host {} has {CALLS_MAX} calls to answer; try again later", self.host_id);
            return Err(ErrorCode::Busy.with(error));
        }
        // Two askers may have thought of the same name; only one of them can use it.
        let request_id = if state.calls.contains_key(&request_id) { fresh_id() } else { request_id };
        data["request_id"] = json!(request_id);
        let is_gated = qd_wire::run_protocol::spec(kind).is_some_and(|row| row.gated);
        let limit =
            spec(&asker.cmd).and_then(|row| row.timeout_ms).and_then(|limit| i64::try_from(limit).ok());
        // Where the table has no limit, a gated call waits as long as a person needs to decide.
        let deadline = limit.or((!is_gated).then_some(CALL_MS)).map(|limit| now_ms() + limit);
        self.out.send(kind, asker.run_id.as_deref(), data)?;
        state.calls.insert(request_id, HostCall { asker: asker.clone(), kind, deadline });
        Ok(Vec::new())
    }

    /// Noted before the host is asked. If the answer comes late, the same key still finds the run it started.
    fn note_start(&self, text: &str, request_id: &str) {
        let Ok(head) = serde_json::from_str::<CommandHead<'_>>(text) else { return };
        let Some(key) = head.idempotency_key else { return };
        let mut state = self.state.lock();
        if state.starts.len() >= STARTS_MAX {
            state.starts.pop_front();
        }
        state.starts.push_back(RequestedRun {
            principal: head.user_id.unwrap_or_default().into_owned(),
            key: key.into_owned(),
            request_id: request_id.to_owned(),
            run_id: None,
        });
    }

    fn attach(self: &Arc<Self>, asker: LinkCommand, run_id: &str, after: Option<u64>) -> Vec<u8> {
        let size = {
            let state = self.state.lock();
            let Some(run) = state.runs.get(run_id).filter(|run| run.gate == EventGate::Open) else {
                return self.response(&asker, Err(&not_found(run_id)));
            };
            match &run.book {
                Some(book) if after.is_some_and(|after| after <= book.seq) => {
                    let data = book.attach(run_id, &self.host_id, None);
                    return self.response(&asker, Ok(serde_json::to_value(data).ok()));
                }
                Some(book) => Some(book.size()),
                None => None,
            }
        };
        let (adapter, run_id) = (Arc::clone(self), run_id.to_owned());
        self.hub.tasks.spawn(async move {
            let answer = match adapter.attach_data(&run_id, after, size).await {
                Ok(data) => adapter.response(&asker, Ok(Some(data))),
                Err(error) => adapter.response(&asker, Err(&error)),
            };
            adapter.send_later(answer).await;
        });
        Vec::new()
    }

    async fn attach_data(
        self: &Arc<Self>,
        run_id: &str,
        after: Option<u64>,
        size: Option<(u16, u16)>,
    ) -> Result<Value, CodedError> {
        let size = match size {
            Some(size) => size,
            None => self.load(run_id).await?,
        };
        let screen = self.screen(run_id, size).await?;
        let state = self.state.lock();
        let book =
            state.runs.get(run_id).and_then(|run| run.book.as_ref()).ok_or_else(|| not_found(run_id))?;
        // Events may have come while the screen was made. A cursor that they have reached needs the records after it,
        // and no screen.
        let screen = Some(screen).filter(|_| after.is_none_or(|after| after > book.seq));
        Ok(serde_json::to_value(book.attach(run_id, &self.host_id, screen)).unwrap_or_default())
    }

    /// Reads the book of a run that ended before this connection; gives its size.
    async fn load(&self, run_id: &str) -> Result<(u16, u16), CodedError> {
        let mut book = ForeignRun::default();
        let committed = self.hub.session(run_id).map_or(0, |entry| entry.committed_seq());
        let read = self.read_on(run_id, &mut book).await;
        read.map_err(|error| reads::unreadable(&error))?;
        book.seq = book.seq.max(committed);
        let mut state = self.state.lock();
        let run = state.runs.get_mut(run_id).ok_or_else(|| not_found(run_id))?;
        // Another command may have read the same book meanwhile; the first one stays, since events are applied to it.
        Ok(run.book.get_or_insert(book).size())
    }

    fn state_of(self: &Arc<Self>, asker: LinkCommand, run_id: &str) -> Vec<u8> {
        let state = self.state.lock();
        let Some(run) = state.runs.get(run_id).filter(|run| run.gate == EventGate::Open) else {
            return self.response(&asker, Err(&not_found(run_id)));
        };
        if let Some(book) = &run.book {
            return self.response(&asker, Ok(serde_json::to_value(book.state(run_id, &self.host_id)).ok()));
        }
        let (adapter, run_id) = (Arc::clone(self), run_id.to_owned());
        self.hub.tasks.spawn(async move {
            let loaded = adapter.load(&run_id).await;
            let answer = match loaded {
                Ok(_) => adapter.state_of(asker, &run_id),
                Err(error) => adapter.response(&asker, Err(&error)),
            };
            adapter.send_later(answer).await;
        });
        Vec::new()
    }

    /// The runs that go on.
    fn sessions(&self, asker: &LinkCommand) -> Vec<u8> {
        let state = self.state.lock();
        let alive = state.runs.iter().filter_map(|(run_id, run)| {
            let book = run.book.as_ref().filter(|book| run.gate == EventGate::Open && !book.has_exited())?;
            Some(book.state(run_id, &self.host_id))
        });
        let data = RunnerSessionsData { sessions: alive.collect() };
        self.response(asker, Ok(serde_json::to_value(data).ok()))
    }

    /// Deletes a run here and stops it there. A tombstone stays, since the host goes on sending what it has.
    fn delete(self: &Arc<Self>, asker: LinkCommand, run_id: &str) -> Vec<u8> {
        let Some(entry) = self.hub.session(run_id) else {
            return self.response(&asker, Err(&not_found(run_id)));
        };
        if let Some(run) = self.state.lock().runs.get_mut(run_id) {
            let is_alive = run.book.as_ref().is_some_and(|book| !book.has_exited());
            if is_alive
                && let Err(error) = self.out.send("run.stop", Some(run_id), json!({ "signal": "kill" }))
            {
                return self.response(&asker, Err(&error));
            }
            // Closed before the store is asked, so that events which come meanwhile do not create the run again.
            run.gate = EventGate::Deleted;
        }
        let adapter = Arc::clone(self);
        self.hub.tasks.spawn(async move {
            let deleted = reads::delete_while_away(&adapter.hub, &entry).await;
            if deleted.is_err()
                && let Some(run) = adapter.state.lock().runs.get_mut(&*entry.id)
            {
                run.gate = EventGate::Open;
            }
            let answer = adapter.response(&asker, deleted.as_ref().map(|()| None));
            adapter.send_later(answer).await;
        });
        Vec::new()
    }

    async fn send_later(&self, answer: Vec<u8>) {
        if !answer.is_empty() && self.link.send(answer.into()).await.is_err() {
            tracing::debug!(host = %self.host_id, "an answer comes after the end of its link");
        }
    }
}

fn not_found(run_id: &str) -> CodedError {
    CodedError::session_not_found(run_id)
}

/// A new identity in the form the document wants (UUID, version 4).
fn fresh_id() -> String {
    let mut bytes = [0u8; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // The time tells calls apart as long as there is one at a time.
        tracing::error!(%error, "the system has no randomness");
        bytes[..8].copy_from_slice(&now_ms().to_be_bytes());
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
