//! What is known of a foreign host's run, from its records alone: so it is the same after every restart.

use std::collections::{BTreeMap, HashSet, VecDeque};

use qd_wire::InputRequest;
use qd_wire::data::{AttachData, QueueState, Resume, SessionState, SessionStatus};
use qd_wire::event::{Event, EventPayload};
use qd_wire::run::{Awaiting, PTY_HARNESS, RunState, TerminalSnapshot};

/// The events that say something of a run beside its output; a book is made anew by reading these.
pub const FOREIGN_RUN_EVENTS: &[&str] = &[
    "session.created",
    "run.started",
    "run.resized",
    "run.awaiting_input",
    "run.input",
    "run.exited",
    "agent.input_needed",
    "agent.input_resolved",
    "tool.result",
];

/// Questions of one run that may be open at once; the oldest is forgotten for a newer one.
const QUESTIONS_MAX: usize = 64;
/// Inputs of one run that are recognised when they come again; the host has them all.
const INPUTS_MAX: usize = 4096;

/// One run.
#[derive(Debug, Default)]
pub struct ForeignRun {
    /// The last record that was read.
    pub seq: u64,
    run: RunState,
    cwd: Option<String>,
    created_at: Option<i64>,
    questions: Vec<InputRequest>,
    /// The records of the open questions, by their names.
    asked_seqs: BTreeMap<String, u64>,
    inputs: HashSet<String>,
    inputs_in_order: VecDeque<String>,
    has_exited: bool,
}

impl ForeignRun {
    /// A run of which only this is known: that it is over, with this record.
    pub fn ended(seq: u64) -> Self {
        ForeignRun { seq, has_exited: true, ..ForeignRun::default() }
    }

    /// Reads a record. An older one than the last changes nothing.
    pub fn read(&mut self, ts: i64, seq: u64, event: &EventPayload) {
        if seq <= self.seq {
            return;
        }
        self.seq = seq;
        self.created_at.get_or_insert(ts);
        if let EventPayload::Known(event) = event {
            self.read_known(ts, seq, event);
        }
    }

    fn read_known(&mut self, ts: i64, seq: u64, event: &Event) {
        match event {
            Event::RunStarted { tool, cwd, command, pid, cols, rows } => {
                let (tool, command, started_at) = (tool.clone(), command.clone(), Some(ts));
                let (pid, cols, rows) = (*pid, *cols, *rows);
                let run = RunState { tool, command, pid, cols, rows, started_at, ..RunState::default() };
                self.started(cwd, run);
            }
            Event::RunResized { cols, rows } => (self.run.cols, self.run.rows) = (*cols, *rows),
            Event::RunAwaitingInput { reason, prompt, request_id } => {
                let (reason, prompt, request_id) = (*reason, prompt.clone(), request_id.clone());
                self.run.awaiting = Some(Awaiting { reason, prompt, request_id });
            }
            Event::RunInput { input_id, .. } => {
                // What is approved at a prompt is typed, under the question's own name.
                self.settle(input_id);
                self.run.awaiting = None;
                self.note_input(input_id);
            }
            Event::RunExited { exit_code, signal, .. } => {
                self.exited(ts);
                self.run.exit_code = Some(*exit_code);
                self.run.signal = *signal;
            }
            Event::AgentInputNeeded { request } => self.ask(seq, request.clone()),
            // The document's host says nothing when a gated call is decided; its result tells.
            Event::AgentInputResolved { request_id, .. } | Event::ServiceResult { request_id, .. } => {
                self.settle(request_id);
            }
            Event::SessionCreated { .. }
            | Event::SessionClosed { .. }
            | Event::SessionHeartbeat { .. }
            | Event::SessionTitleChanged { .. }
            | Event::SessionBranchChanged { .. }
            | Event::SessionNativeChanged { .. }
            | Event::SessionResync { .. }
            | Event::AgentIdle { .. }
            | Event::AgentWorking { .. }
            | Event::AgentError { .. }
            | Event::MessageStart { .. }
            | Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolCallStart { .. }
            | Event::ToolCallDelta { .. }
            | Event::ToolCallEnd { .. }
            | Event::MessageEnd { .. }
            | Event::StreamDone { .. }
            | Event::ToolStart { .. }
            | Event::ToolProgress { .. }
            | Event::ToolEnd { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::CompactStart { .. }
            | Event::CompactEnd { .. }
            | Event::ModelChanged { .. }
            | Event::ThinkingLevelChanged { .. }
            | Event::QueueChanged { .. }
            | Event::Notify { .. }
            | Event::Status { .. }
            | Event::RunOutput { .. }
            | Event::ServiceCall { .. }
            | Event::Messages { .. }
            | Event::Persisted { .. }
            | Event::DelegateStart { .. }
            | Event::DelegateDelta { .. }
            | Event::DelegateEnd { .. }
            | Event::DelegateError { .. }
            | Event::Progress { .. }
            | Event::Response(_) => {}
        }
    }

    fn started(&mut self, cwd: &str, run: RunState) {
        self.has_exited = false;
        self.cwd = Some(cwd.to_owned());
        self.run = run;
    }

    fn exited(&mut self, ts: i64) {
        self.has_exited = true;
        self.questions.clear();
        self.asked_seqs.clear();
        self.run.awaiting = None;
        self.run.exited_at = Some(ts);
    }

    /// The open question of this name.
    pub fn question(&self, request_id: &str) -> Option<&InputRequest> {
        self.questions.iter().find(|question| question.request_id() == request_id)
    }

    pub fn questions(&self) -> &[InputRequest] {
        &self.questions
    }

    /// The record that asks an open question.
    pub fn asked_seq(&self, request_id: &str) -> Option<u64> {
        self.asked_seqs.get(request_id).copied()
    }

    /// A question is decided. True if it was open.
    pub fn settle(&mut self, request_id: &str) -> bool {
        let before = self.questions.len();
        self.asked_seqs.remove(request_id);
        self.questions.retain(|question| question.request_id() != request_id);
        let awaits_it = |awaiting: &Awaiting| awaiting.request_id.as_deref() == Some(request_id);
        if self.run.awaiting.as_ref().is_some_and(awaits_it) {
            self.run.awaiting = None;
        }
        self.questions.len() < before
    }

    /// The terminal was told to have another size; the host need not say so.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        (self.run.cols, self.run.rows) = (cols, rows);
    }

    /// The terminal's columns and rows.
    pub fn size(&self) -> (u16, u16) {
        (self.run.cols.max(1), self.run.rows.max(1))
    }

    pub fn has_exited(&self) -> bool {
        self.has_exited
    }

    /// Whether the host has recorded an input of this name.
    pub fn has_input(&self, input_id: &str) -> bool {
        self.inputs.contains(input_id)
    }

    pub fn status(&self) -> SessionStatus {
        if self.has_exited { SessionStatus::Closed } else { SessionStatus::Working }
    }

    pub fn state(&self, run_id: &str, host_id: &str) -> SessionState {
        SessionState {
            session_id: run_id.to_owned(),
            runner_id: host_id.to_owned(),
            harness: PTY_HARNESS.to_owned(),
            status: self.status(),
            phase: None,
            detail: None,
            cwd: self.cwd.clone(),
            title: None,
            model: None,
            thinking_level: None,
            auto_compaction: None,
            auto_retry: None,
            session_version: 0,
            seq: self.seq,
            message_count: 0,
            queue: QueueState::default(),
            pending_input: self.questions.clone(),
            status_texts: BTreeMap::new(),
            native_session_id: None,
            native_session_file: None,
            error: None,
            capabilities: Vec::new(),
            unknown_events: None,
            process: None,
            created_at: self.created_at,
            native_model: None,
            run: Some(Box::new(self.run.clone())),
            branch: None,
            worktree: None,
        }
    }

    /// The answer to an attach; `terminal` for a client that has no use for the records after its cursor.
    pub fn attach(&self, run_id: &str, host_id: &str, terminal: Option<TerminalSnapshot>) -> AttachData {
        let seq = terminal.as_ref().map_or(self.seq, |terminal| terminal.seq);
        AttachData {
            resume: if terminal.is_some() { Resume::Gap } else { Resume::Ok },
            seq,
            replay_until: None,
            state: self.state(run_id, host_id),
            pending_input: self.questions.clone(),
            partial: None,
            messages: None,
            terminal: terminal.map(Box::new),
        }
    }

    fn ask(&mut self, seq: u64, request: InputRequest) {
        self.settle(request.request_id());
        if self.questions.len() >= QUESTIONS_MAX {
            let forgotten = self.questions.remove(0);
            self.asked_seqs.remove(forgotten.request_id());
        }
        self.asked_seqs.insert(request.request_id().to_owned(), seq);
        self.questions.push(request);
    }

    fn note_input(&mut self, input_id: &str) {
        if self.inputs.insert(input_id.to_owned()) {
            self.inputs_in_order.push_back(input_id.to_owned());
        }
        if self.inputs.len() > INPUTS_MAX
            && let Some(oldest) = self.inputs_in_order.pop_front()
        {
            self.inputs.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::event::record;
    use super::*;

    fn book(events: &[(&str, serde_json::Value)]) -> ForeignRun {
        let mut book = ForeignRun::default();
        for (number, (kind, data)) in events.iter().enumerate() {
            book.read(1000, number as u64 + 1, &record(kind, data.clone()).0);
        }
        book
    }

    #[test]
    fn hole_24_the_names_of_inputs_are_bounded() {
        let mut book = ForeignRun::default();
        let last = INPUTS_MAX as u64 + 100;
        for seq in 1..=last {
            book.read(1000, seq, &record("run.input", json!({"input_id": format!("i{seq}")})).0);
        }
        assert_eq!((book.inputs.len(), book.inputs_in_order.len()), (INPUTS_MAX, INPUTS_MAX));
        assert!(book.has_input(&format!("i{last}")) && !book.has_input("i1"), "the oldest are forgotten");
    }

    #[test]
    fn hole_17_open_questions_are_known_from_the_records_alone() {
        let started = ("run.started", json!({"tool": "bash", "cwd": "/w", "command": "bash"}));
        let asked =
            ("run.permission_requested", json!({"request_id": "q1", "prompt": "go?", "approve_text": "y\n"}));
        let gated = (
            "run.permission_requested",
            json!({"request_id": "q2", "prompt": "w?", "op_tool": "rpc.fs.write"}),
        );
        let waiting = ("run.awaiting_input", json!({"reason": "prompt", "request_id": "q1"}));
        let mut events = vec![started, asked, gated, waiting];
        let open = book(&events);
        assert!(open.question("q1").is_some() && open.question("q2").is_some());
        let state = open.state("r", "h");
        assert_eq!((state.status, state.pending_input.len(), state.seq), (SessionStatus::Working, 2, 4));
        assert_eq!(state.run.unwrap().awaiting.unwrap().request_id.as_deref(), Some("q1"));
        events.push(("run.input", json!({"input_id": "q1", "actor": "web"})));
        events.push(("tool.result", json!({"request_id": "q2", "tool": "rpc.fs.write", "ok": true})));
        let answered = book(&events);
        assert!(answered.questions().is_empty() && answered.has_input("q1"));
        assert_eq!(answered.state("r", "h").run.unwrap().awaiting, None);
        events.push(("run.permission_requested", json!({"request_id": "q3"})));
        events.push(("run.exited", json!({"exit_code": 0})));
        let over = book(&events);
        assert!(over.questions().is_empty() && over.has_exited());
    }
}
