//! A program in a terminal: what it writes, what is on its screen, and what its screen asks.
//!
//! The screen is kept as unread text and drawn only when somebody looks, when the program has been quiet for a moment
//! and may be asking something, or when too much is unread.

mod ending;
pub(crate) mod input;
pub(crate) mod input_hash;

use qd_core::command_queue::QueueInput;
use qd_core::session::RunStart;
use qd_core::terminal::{QuestionRules, Screen, ScreenRequest};
use qd_wire::command::SessionAttachParams;
use qd_wire::data::AttachData;
use qd_wire::event::Event;
use qd_wire::run::{PermissionSource, RunResizeParams, TERMINAL_HARNESS, TerminalSnapshot, is_terminal};
use qd_wire::{CodedError, ErrorCode, EventEnvelope, EventPayload};

use self::input::TypedLine;
use super::actor::SessionActor;
use super::agent::agent_state::AgentState;
use super::commands::admission::AdmittedCommand;
use crate::clock::now_ms;
use crate::driver::{AgentFailure, TerminalHandle};
use crate::text::random_id;

/// The screen is looked at when the program has been quiet for this long.
const QUIET_MS: i64 = 300;

/// While it asks something it is looked at this often also when the program is never quiet: somebody may be about to
/// answer.
const ASKED_LOOK_MS: i64 = 1_000;

/// What a program has checked out shows this long after it is quiet, at the latest.
const BRANCH_MS: i64 = 2_000;

/// Records from which a screen is drawn again after a restart.
const REDRAW_RECORDS_MAX: usize = 200;

/// Where the spool is full, it is looked this often whether the program may go on.
const HELD_BACK_MS: i64 = 100;

/// What the actor knows of a program besides its records.
#[derive(Default)]
pub(super) struct TerminalRun {
    screen: Option<Box<Screen>>,
    /// What was on the screen of a program that has ended: as text it takes a hundredth of what the screen did.
    last_screen: Option<Box<TerminalSnapshot>>,
    /// When the screen is looked at for questions.
    look_at: Option<i64>,
    /// Since when the screen may have changed without a look at it.
    unseen_since: Option<i64>,
    /// The last look found that a secret is asked for.
    pub(super) is_secret_asked: bool,
    /// What is being typed by keys.
    pub(super) line: TypedLine,
    /// Commands whose keys were written and which are answered with the echo.
    pub(super) typed: Vec<AdmittedCommand>,
    /// When a program that was asked to end is killed.
    pub(super) kill_at: Option<i64>,
    /// The last input or output.
    pub(super) active_at: i64,
    /// When what is left of a terminal goes.
    pub(super) delete_at: Option<i64>,
    /// When it was last looked what is checked out.
    branch_at: i64,
}

impl TerminalRun {
    /// The program has ended: there is nothing to look at any more, and nobody to kill.
    pub(super) fn program_ended(&mut self) {
        self.look_at = None;
        self.unseen_since = None;
        self.kill_at = None;
        self.is_secret_asked = false;
        self.line = TypedLine::default();
        if let Some(mut screen) = self.screen.take() {
            // The number is filled in when somebody asks: records may still follow the end of the program.
            let mut snapshot = screen.snapshot(0);
            snapshot.scrollback.shrink_to_fit();
            snapshot.screen.shrink_to_fit();
            self.last_screen = Some(Box::new(snapshot));
        }
    }
}

impl SessionActor {
    /// Whether the session is a program in a terminal.
    pub(super) fn is_run(&self) -> bool {
        is_terminal(&self.config.harness)
    }

    /// Whether the program is to wait: it is heard when it is ready, and while its records can be kept.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_run() && (self.agent.state != AgentState::Ready || self.shared.check_spool_room().is_err())
    }

    /// The program that runs, or why there is none.
    pub(super) fn run_handle(&self) -> Result<TerminalHandle, CodedError> {
        if !self.is_run() {
            return Err(ErrorCode::Unsupported.with(format!(
                "Session '{}' is an agent and no program in a terminal; send it a prompt",
                self.session.identity().session_id
            )));
        }
        let driver = self.agent.driver.as_ref().filter(|_| self.agent.state == AgentState::Ready);
        match driver.and_then(|driver| driver.handle().terminal().cloned()) {
            Some(handle) => Ok(handle),
            None => Err(ErrorCode::RunEnded.with(format!(
                "The run '{}' has ended; session.restart starts it again",
                self.session.identity().session_id
            ))),
        }
    }

    /// The program runs: from here on the session exists.
    pub(super) fn run_prepared(&mut self, start: RunStart) {
        let now = now_ms();
        self.exists = true;
        self.agent.state = AgentState::Ready;
        let screen = Box::new(Screen::new(start.cols, start.rows));
        self.run = TerminalRun { screen: Some(screen), active_at: now, ..TerminalRun::default() };
        self.session.run_started(now, start, &mut self.out);
        self.update_branch();
        if let Some(title) = self.config.title.clone().filter(|_| self.session.memory().title.is_none()) {
            self.session.title_changed(now, title, &mut self.out);
        }
        self.agent.health.ready(now);
        self.notify_queue(QueueInput::AgentReady);
    }

    /// The program wrote this.
    pub(super) fn run_output(&mut self, texts: Vec<String>) {
        let now = now_ms();
        for text in texts {
            self.session.run_output(now, &text, &mut self.out);
            if let Some(screen) = &mut self.run.screen {
                // Not drawn here: most output is never looked at.
                screen.push(&text);
            }
        }
        self.run_active(now);
    }

    /// Something happened in the terminal: it is not idle, and what it asks shows when it is quiet again.
    pub(super) fn run_active(&mut self, now: i64) {
        self.run.active_at = now;
        // Kept from the first change on: a question whose program is never quiet is looked at all the same.
        let unseen_since = *self.run.unseen_since.get_or_insert(now);
        let at_quiet = now + QUIET_MS;
        let is_asked = self.session.is_screen_asking();
        self.run.look_at = Some(if is_asked { at_quiet.min(unseen_since + ASKED_LOOK_MS) } else { at_quiet });
    }

    /// Takes what the program has written already and nobody has looked at.
    pub(super) fn take_available_output(&mut self) {
        if self.is_held_back() {
            return;
        }
        if let Some(driver) = &mut self.agent.driver {
            let texts = driver.take_available_output();
            if !texts.is_empty() {
                self.run_output(texts);
            }
        }
    }

    /// Whether this is a question of a screen that may have changed since it was looked at.
    pub(super) fn is_screen_stale(&self, request_id: &str) -> bool {
        let mut open = self.session.open_questions();
        let question = open.find(|question| question.request.request_id() == request_id);
        self.run.unseen_since.is_some()
            && question.is_some_and(|question| question.source == PermissionSource::Screen)
    }

    pub(super) fn run_resize(&mut self, admitted: AdmittedCommand, params: RunResizeParams) {
        let RunResizeParams { cols, rows } = params;
        // The terminal first: what the program then draws is recorded after the new size.
        let resized = self.run_handle().and_then(|handle| handle.resize(cols, rows));
        if let Err(error) = resized {
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        let now = now_ms();
        self.session.run_resized(now, cols, rows, &mut self.out);
        if let Some(screen) = &mut self.run.screen {
            screen.resize(cols, rows);
        }
        // Started again, it has the size people look at it with.
        let run = self.config.run.get_or_insert_default();
        (run.cols, run.rows) = (Some(cols), Some(rows));
        self.run_active(now);
        self.finish(admitted, Ok(None));
    }

    pub(super) async fn run_screen(&mut self, admitted: AdmittedCommand) {
        if !self.is_run() {
            if let Err(error) = self.run_handle() {
                self.finish(admitted, Err(error.into()));
            }
            return;
        }
        let snapshot = self.snapshot().await;
        self.answer_with(admitted, &snapshot);
    }

    /// The answer to `session.attach`: who has no good cursor gets the screen of a run instead of its past.
    pub(super) async fn attach(&mut self, admitted: AdmittedCommand, params: &SessionAttachParams) {
        let mut attach = self.attach_data(params.after).await;
        if admitted.incoming.is_local && self.is_run() && attach.terminal.is_none() {
            // Of what the hub has there may be no records left here; whoever replays them decides.
            attach.terminal = Some(Box::new(self.snapshot().await));
        }
        self.answer_with(admitted, &attach);
    }

    pub(super) async fn attach_data(&mut self, after: Option<u64>) -> AttachData {
        if !self.is_run() || !self.session.needs_snapshot(after) {
            return self.session.attach(after);
        }
        let snapshot = self.snapshot().await;
        self.session.attach_run(after, snapshot)
    }

    /// Tells everybody how the session stands.
    pub(super) async fn resync(&mut self) {
        if self.is_run() {
            let snapshot = self.snapshot().await;
            self.session.resync_run(now_ms(), snapshot, &mut self.out);
        } else {
            self.session.resync(now_ms(), &mut self.out);
        }
    }

    /// The screen as of the last record. After a restart it is drawn again from what the store has.
    async fn snapshot(&mut self) -> TerminalSnapshot {
        let seq = self.session.memory().last_seq;
        if let Some(last) = &self.run.last_screen {
            return TerminalSnapshot { seq, ..(**last).clone() };
        }
        // This runner has not seen the program run: its output is only in the store.
        if self.run.screen.is_none() {
            let (cols, rows) =
                self.session.run_state().map_or((80, 24), |run| (run.cols.max(2), run.rows.max(1)));
            let mut screen = Box::new(Screen::new(cols, rows));
            let session_id = &self.session.identity().session_id;
            match self.shared.store.tail(session_id, REDRAW_RECORDS_MAX).await {
                Ok(lines) => lines.iter().for_each(|(_, line)| redraw(&mut screen, line)),
                Err(error) => tracing::warn!(%error, session_id, "a screen could not be drawn again"),
            }
            self.run.screen = Some(screen);
        }
        self.run.screen.as_mut().map(|screen| screen.snapshot(seq)).unwrap_or_default()
    }

    /// When something is to be done for the program.
    pub(super) fn run_deadline(&self) -> Option<i64> {
        if !self.is_run() {
            return None;
        }
        let held_back =
            (self.agent.state == AgentState::Ready && self.is_held_back()).then(|| now_ms() + HELD_BACK_MS);
        [self.run.look_at, self.run.kill_at, self.run.delete_at, self.terminal_idle_at(), held_back]
            .into_iter()
            .flatten()
            .min()
    }

    /// A terminal that nobody uses ends.
    fn terminal_idle_at(&self) -> Option<i64> {
        // A run that somebody started is never ended for being idle: it may work in silence for hours.
        let is_open = self.config.harness == TERMINAL_HARNESS && self.agent.state == AgentState::Ready;
        let limit = self.shared.config.runs.terminal_idle.filter(|_| is_open)?;
        self.run.active_at.checked_add(i64::try_from(limit.as_millis()).ok()?)
    }

    pub(super) async fn run_timers(&mut self, now: i64) {
        let is_due = |at: Option<i64>| at.is_some_and(|at| at <= now);
        if is_due(self.run.look_at) {
            self.update_screen_question(now);
        }
        if is_due(self.run.kill_at) {
            self.run.kill_at = None;
            if let Ok(handle) = self.run_handle() {
                handle.signal(qd_wire::run::RunSignal::Kill);
            }
        }
        if is_due(self.terminal_idle_at()) {
            self.end_run("The terminal was closed: nobody used it for a long time").await;
        }
        if is_due(self.run.delete_at) {
            self.delete_terminal().await;
        }
    }

    /// Asks what the screen asks, or withdraws what it does not ask any more.
    pub(super) fn update_screen_question(&mut self, now: i64) {
        self.run.look_at = None;
        self.run.unseen_since = None;
        // It reads files of the repository, so not at every look.
        if now >= self.run.branch_at + BRANCH_MS {
            self.run.branch_at = now;
            self.update_branch();
        }
        let Ok(handle) = self.run_handle() else { return };
        let Some(run) = self.session.run_state() else { return };
        let Some(screen) = &mut self.run.screen else { return };
        let question = screen.question(QuestionRules::for_tool(&run.tool), handle.input_mode().is_hidden);
        self.run.is_secret_asked =
            question.as_ref().is_some_and(|asked| asked.request == ScreenRequest::Text { secret: true });
        let question = question.map(|question| (question, random_id("q")));
        self.session.run_screen_question(now, question, &mut self.out);
    }
}

/// Draws what one record says.
fn redraw(screen: &mut Screen, line: &[u8]) {
    // Other records, and lines that nobody can read, show nothing.
    let Ok(envelope) = serde_json::from_slice::<EventEnvelope>(line) else { return };
    match envelope.payload {
        EventPayload::Known(Event::RunOutput { text, .. }) => screen.push(&text),
        EventPayload::Known(Event::RunResized { cols, rows } | Event::RunStarted { cols, rows, .. }) => {
            screen.resize(cols, rows);
        }
        _ => {}
    }
}
