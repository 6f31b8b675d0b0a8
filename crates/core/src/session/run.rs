//! Programs in terminals: what one does becomes records, and its state is here.
//!
//! A run has no messages: its history is output, inputs and questions, as records. Whoever attaches without a good
//! cursor gets the screen instead of the past.

use qd_wire::InputRequest;
use qd_wire::data::{AttachData, Resume, SessionStatus};
use qd_wire::event::Event;
use qd_wire::run::{Awaiting, PermissionDetails, PermissionSource, RunState, TerminalSnapshot};

use super::Session;
use crate::event_writer::EventWriter;
use crate::terminal::{ScreenQuestion, ScreenRequest};

/// A program that has been started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStart {
    pub tool: String,
    /// The command line, for people.
    pub command: String,
    pub cwd: String,
    pub pid: Option<u32>,
    pub cols: u16,
    pub rows: u16,
}

/// An input that was written to the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunInputNote {
    pub actor: String,
    pub input_id: String,
    pub text_redacted: String,
    pub text_sha256: String,
    pub user_id: Option<String>,
}

impl Session {
    /// What is known of the program; there since its first start, for ever.
    pub fn run_state(&self) -> Option<&RunState> {
        self.memory.run.as_deref()
    }

    /// Whether the program is there.
    pub fn is_run_up(&self) -> bool {
        self.run_state().is_some_and(|run| run.started_at.is_some() && run.exited_at.is_none())
    }

    /// The program runs. The first start begins the session's records; a later one is the same command again.
    pub fn run_started(&mut self, now: i64, start: RunStart, out: &mut EventWriter) {
        if self.memory.run.is_none() {
            let event = Event::SessionCreated {
                resumed: false,
                harness: self.identity.harness.clone(),
                cwd: self.identity.cwd.clone(),
                capabilities: Some(self.identity.capabilities.clone()),
            };
            self.emit(now, &event, out);
        }
        let RunStart { tool, command, cwd, pid, cols, rows } = start;
        self.memory.run = Some(Box::new(RunState {
            tool: tool.clone(),
            command: command.clone(),
            pid,
            cols,
            rows,
            started_at: Some(now),
            ..RunState::default()
        }));
        self.status = SessionStatus::Working;
        self.phase = None;
        self.detail = None;
        self.error = None;
        self.emit(now, &Event::RunStarted { tool, cwd, command, pid, cols, rows }, out);
    }

    /// What the program wrote: one record, written by hand because everything a program says goes through here.
    pub fn run_output(&mut self, now: i64, text: &str, out: &mut EventWriter) {
        if text.is_empty() {
            return;
        }
        debug_assert!(self.is_run_up(), "output comes between the start and the exit of a program");
        let seq = self.next_seq();
        out.run_output(&self.front, now, seq, text);
    }

    /// The terminal has another size; the same size again is no news.
    pub fn run_resized(&mut self, now: i64, cols: u16, rows: u16, out: &mut EventWriter) {
        let Some(run) = self.memory.run.as_deref_mut() else { return };
        if (run.cols, run.rows) == (cols, rows) {
            return;
        }
        (run.cols, run.rows) = (cols, rows);
        self.emit(now, &Event::RunResized { cols, rows }, out);
    }

    /// An input was written to the program: what its screen asked is answered by it, or is no question any more.
    pub fn run_input(&mut self, now: i64, note: RunInputNote, out: &mut EventWriter) {
        let RunInputNote { actor, input_id, text_redacted, text_sha256, user_id } = note;
        self.emit(now, &Event::RunInput { actor, input_id, text_redacted, text_sha256, user_id }, out);
        self.run_screen_question(now, None, out);
    }

    /// Whether a question of the screen is open.
    pub fn is_screen_asking(&self) -> bool {
        self.questions.iter().any(|open| open.source == PermissionSource::Screen)
    }

    /// What the screen asks now: asked when it is news, kept when it is the same, withdrawn when it is gone. The
    /// identity is used for a new question only.
    pub fn run_screen_question(
        &mut self,
        now: i64,
        question: Option<(ScreenQuestion, String)>,
        out: &mut EventWriter,
    ) {
        let Some((question, request_id)) = question else {
            self.screen_question = None;
            self.clear_awaiting();
            return self.withdraw_from(now, PermissionSource::Screen, out);
        };
        if self.is_screen_asking() && self.screen_question.as_ref() == Some(&question) {
            return;
        }
        self.withdraw_from(now, PermissionSource::Screen, out);
        if !self.is_run_up() {
            return;
        }
        let (reason, prompt) = (question.reason, Some(question.prompt.clone()));
        let (request, details) = question_request(&question, &request_id);
        let is_secret = question.request == ScreenRequest::Text { secret: true };
        self.ask_screen(now, request, details, is_secret, out);
        self.screen_question = Some(question);
        let request_id = Some(request_id);
        if let Some(run) = self.memory.run.as_deref_mut() {
            run.awaiting = Some(Awaiting { reason, prompt: prompt.clone(), request_id: request_id.clone() });
        }
        self.emit(now, &Event::RunAwaitingInput { reason, prompt, request_id }, out);
    }

    /// The program has ended and everything it wrote has been recorded. What it asked is withdrawn first, so that this
    /// is the last record of it. A second end of the same program changes nothing.
    pub fn run_exited(
        &mut self,
        now: i64,
        exit_code: i32,
        signal: Option<i32>,
        error: Option<String>,
        out: &mut EventWriter,
    ) {
        if self.run_state().is_some_and(|run| run.exited_at.is_some()) {
            return;
        }
        self.run_screen_question(now, None, out);
        self.withdraw_questions(now, out);
        let run = self.memory.run.get_or_insert_default();
        run.exited_at = Some(now);
        run.exit_code = Some(exit_code);
        run.signal = signal;
        run.pid = None;
        run.awaiting = None;
        self.status = SessionStatus::Closed;
        self.phase = None;
        self.detail = None;
        self.error.clone_from(&error);
        self.emit(now, &Event::RunExited { exit_code, signal, error }, out);
    }

    /// Whether a client that comes with this cursor needs the screen; else its records follow.
    pub fn needs_snapshot(&self, after: Option<u64>) -> bool {
        after.is_none_or(|after| after > self.memory.last_seq)
    }

    /// The answer to `session.attach` of a run: who has no good cursor gets the screen instead of the past.
    pub fn attach_run(&self, after: Option<u64>, snapshot: TerminalSnapshot) -> AttachData {
        let mut attach = self.attach(after);
        if self.needs_snapshot(after) {
            attach.resume = Resume::Gap;
            attach.terminal = Some(Box::new(snapshot));
        }
        attach
    }

    /// Tells everybody how the run stands, after live events were lost on the way.
    pub fn resync_run(&mut self, now: i64, snapshot: TerminalSnapshot, out: &mut EventWriter) {
        let mut attach = self.attach_run(None, snapshot);
        attach.replay_until = Some(attach.seq);
        self.emit(now, &Event::SessionResync { attach: Box::new(attach) }, out);
    }

    /// A call of a service in this session: `tool.call` before it, `tool.result` after it.
    pub fn service_event(&mut self, now: i64, event: Event, out: &mut EventWriter) {
        debug_assert!(matches!(&event, Event::ServiceCall { .. } | Event::ServiceResult { .. }));
        self.emit(now, &event, out);
    }

    pub(super) fn clear_awaiting(&mut self) {
        if let Some(run) = self.memory.run.as_deref_mut() {
            run.awaiting = None;
        }
    }
}

/// The question in the words of every other one. What is typed for each answer is in the details, which a client sees
/// where the question has a place for them.
fn question_request(question: &ScreenQuestion, request_id: &str) -> (InputRequest, PermissionDetails) {
    let mut details = PermissionDetails {
        source: PermissionSource::Screen,
        reason: question.reason,
        ..PermissionDetails::default()
    };
    let (request_id, title) = (request_id.to_owned(), question.prompt.clone());
    let request = match &question.request {
        ScreenRequest::Permission { approve_text, deny_text, choices } => {
            details.approve_text = Some(approve_text.clone());
            details.deny_text = Some(deny_text.clone());
            details.choices.clone_from(choices);
            let metadata = serde_json::to_value(&details).ok();
            InputRequest::Permission { request_id, title, description: None, metadata, timeout: None }
        }
        ScreenRequest::Choice { choices } => {
            details.choices.clone_from(choices);
            let options = choices.iter().map(|choice| choice.label.clone()).collect();
            InputRequest::Select { request_id, title, options, timeout: None }
        }
        ScreenRequest::Text { secret: _ } => {
            InputRequest::Input { request_id, title, placeholder: None, timeout: None }
        }
    };
    (request, details)
}
