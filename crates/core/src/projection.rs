//! One session as it looks from outside: status, open questions, turn, the line in lists, what it has cost. Lists,
//! pushes, the run view and what is told of a session whose runner is away are all made from this, and none of them
//! folds events of its own.
//!
//! Events are read once ([`read`]), when they come; what they say is applied once, when they are stored and published.

mod change;
mod line;

use std::sync::Arc;

use qd_wire::data::{SessionStatus, SessionSummary};
use qd_wire::event::AgentPhase;
use qd_wire::input::InputRequest;
use qd_wire::run::is_terminal;

pub use change::{PendingQuestion, ProjectionChange, ResolvedQuestion, SessionDescription, is_telling, read};
pub use line::LinePatch;

/// Questions of one session that are kept; more are only counted.
const QUESTIONS_MAX: usize = 64;
/// What lists show of a question.
const TITLE_CHARACTERS_MAX: usize = 200;

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventMoment {
    /// The number of the event if it is a record.
    pub seq: Option<u64>,
    /// The time of the event; unix milliseconds.
    pub ts: i64,
    /// Our own time; unix milliseconds.
    pub now: i64,
    /// What the runner has said of the session since takes it in: only what lasts is of interest.
    pub is_past: bool,
}

/// What a change has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectionUpdate {
    pub news: ListUrgency,
    /// The status was another one before.
    pub is_new_status: bool,
    /// A turn has ended; when it began, by our own time.
    pub ended_turn: Option<i64>,
}

/// How soon those who look at lists should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ListUrgency {
    #[default]
    None,
    /// Together with what else changes soon.
    Soon,
    /// At once: a person may have to do something.
    Now,
}

/// What is known of the program, or the agent, as a run. Known only from a session's first record on, or from its log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSummary {
    pub tool: Option<String>,
    pub command: Option<String>,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub exit_code: Option<i32>,
}

/// A session as it looks from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    status: SessionStatus,
    /// Its line in lists, without what is of now only.
    line: SessionSummary,
    phase: Option<AgentPhase>,
    working_since: Option<i64>,
    /// When the turn under way began.
    turn_began: Option<i64>,
    /// The oldest first.
    questions: Vec<PendingQuestion>,
    /// Those that are not kept.
    more_questions: usize,
    run: Option<RunSummary>,
    /// Questions that the log says are open, of a session whose runner has not said anything since.
    logged_questions: Vec<PendingQuestion>,
}

impl Default for Projection {
    fn default() -> Self {
        Self {
            status: SessionStatus::Starting,
            line: SessionSummary::default(),
            phase: None,
            working_since: None,
            turn_began: None,
            questions: Vec::new(),
            more_questions: 0,
            run: None,
            logged_questions: Vec::new(),
        }
    }
}

impl Projection {
    /// A session that was stored: its agent does not run.
    pub fn stored(line: SessionSummary, is_closed: bool) -> Self {
        let status = if is_closed { SessionStatus::Closed } else { SessionStatus::Dormant };
        Self { status, line, ..Self::default() }
    }

    pub fn status(&self) -> SessionStatus {
        self.status
    }

    /// True if that is news.
    pub fn set_status(&mut self, status: SessionStatus) -> bool {
        std::mem::replace(&mut self.status, status) != status
    }

    /// How many questions wait for a person.
    pub fn question_count(&self) -> usize {
        self.questions.len() + self.more_questions
    }

    /// The questions that wait for a person, the oldest first, as far as they are kept and of a known kind.
    pub fn open_questions(&self) -> impl Iterator<Item = &InputRequest> {
        self.questions.iter().filter_map(|question| question.request.as_deref())
    }

    /// Its line in lists, with what is of now only where it can be known.
    pub fn summary(&self, is_away: bool) -> SessionSummary {
        let mut summary = self.line.clone();
        self.show_now(&mut summary, is_away);
        summary
    }

    /// Completes a line with what is of now only.
    pub fn show_now(&self, summary: &mut SessionSummary, is_away: bool) {
        let state = if is_away { "offline" } else { self.status.as_str() };
        state.clone_into(&mut summary.state);
        summary.pending_input_count = self.question_count() as u64;
        let oldest = self.questions.first();
        summary.pending_title = oldest.map(|question| one_line(&question.title, TITLE_CHARACTERS_MAX));
        if !is_away {
            summary.phase = self.phase;
            summary.working_since = self.working_since;
        }
    }

    /// What is stored of its line.
    pub fn line(&self) -> &SessionSummary {
        &self.line
    }

    /// What its messages have cost.
    pub fn set_usage(&mut self, tokens: Option<u64>, cost_usd: Option<f64>) {
        self.line.tokens = tokens;
        self.line.cost_usd = cost_usd;
    }

    /// Whether a turn is under way.
    pub fn is_in_turn(&self) -> bool {
        self.turn_began.is_some()
    }

    /// Ends the turn under way, and says when it began.
    pub fn end_turn(&mut self) -> Option<i64> {
        self.turn_began.take()
    }

    /// It as a run, with the questions that nobody has answered; `None` if its past is not known.
    pub fn run(&self) -> Option<(RunSummary, Vec<Arc<InputRequest>>)> {
        let run = self.run.clone()?;
        let questions = self.questions.iter().chain(&self.logged_questions);
        Some((run, questions.filter_map(|question| question.request.clone()).collect()))
    }

    /// Takes over what was read of it in its log, up to the last record that it has.
    pub fn learn_past(&mut self, past: Projection) {
        self.run = Some(past.run.unwrap_or_default());
        if self.questions.is_empty() {
            self.logged_questions = past.questions;
        }
    }

    /// Takes in what an event says.
    pub fn apply(&mut self, change: &ProjectionChange, moment: EventMoment) -> ProjectionUpdate {
        if moment.seq == Some(1) {
            self.run.get_or_insert_default();
        }
        self.fold_run(change, moment.ts);
        if moment.is_past && change.is_of_a_moment() {
            return ProjectionUpdate::default();
        }
        let patch = LinePatch::of(change);
        let line = self.patch_line(&patch);
        let applied = self.apply_now(change, &patch, moment);
        ProjectionUpdate { news: applied.news.max(line), ..applied }
    }

    /// Takes in what is of now: all but the fields of the line that a patch sets.
    fn apply_now(
        &mut self,
        change: &ProjectionChange,
        patch: &LinePatch,
        moment: EventMoment,
    ) -> ProjectionUpdate {
        match change {
            ProjectionChange::Created { .. } => self.create(moment),
            ProjectionChange::Started { .. } => self.start(moment),
            ProjectionChange::Exited { .. } | ProjectionChange::Idle { .. } => self.rest(patch),
            ProjectionChange::Closed => {
                self.drop_questions();
                self.rest(patch)
            }
            ProjectionChange::Working(phase) => self.work(*phase, moment.now),
            ProjectionChange::Failed { .. } if moment.is_past => ProjectionUpdate::default(),
            ProjectionChange::Failed { .. } => {
                self.drop_questions();
                self.rest(patch)
            }
            ProjectionChange::Asked(question) => {
                if self.questions.len() < QUESTIONS_MAX {
                    self.questions.push(question.clone());
                } else {
                    self.more_questions += 1;
                }
                ProjectionUpdate { news: ListUrgency::Now, ..ProjectionUpdate::default() }
            }
            ProjectionChange::Answered(answered) => {
                if !self.settle(&answered.request_id) {
                    self.more_questions = self.more_questions.saturating_sub(1);
                }
                ProjectionUpdate { news: ListUrgency::Now, ..ProjectionUpdate::default() }
            }
            ProjectionChange::Acted { request_id } => {
                let news = if self.settle(request_id) { ListUrgency::Now } else { ListUrgency::None };
                ProjectionUpdate { news, ..ProjectionUpdate::default() }
            }
            ProjectionChange::Titled(_)
            | ProjectionChange::ModelChanged { .. }
            | ProjectionChange::BranchChanged(_) => ProjectionUpdate::default(),
            ProjectionChange::Said { text, count } => {
                if let Some(text) = text {
                    self.line.last_text = Some(text.clone()).filter(|text| !text.is_empty());
                }
                self.line.message_count = *count;
                ProjectionUpdate { news: ListUrgency::Soon, ..ProjectionUpdate::default() }
            }
            ProjectionChange::Described(description) => self.describe(description, moment.now),
        }
    }

    /// Sets the fields of the line. That its agent runs is told as such, so harness and directory are no news.
    fn patch_line(&mut self, patch: &LinePatch) -> ListUrgency {
        let line = &mut self.line;
        if let Some(harness) = &patch.harness {
            harness.clone_into(&mut line.harness);
        }
        set(&mut line.cwd, patch.cwd.as_deref());
        let fields = [
            (&mut line.title, &patch.title),
            (&mut line.provider, &patch.provider),
            (&mut line.model, &patch.model),
            (&mut line.branch, &patch.branch),
            (&mut line.error, &patch.error),
            (&mut line.run_tool, &patch.run_tool),
        ];
        fields.into_iter().map(|(field, value)| set(field, value.as_deref())).max().unwrap_or_default()
    }

    fn create(&mut self, moment: EventMoment) -> ProjectionUpdate {
        if moment.seq == Some(1) {
            self.line.created_at = moment.ts;
        }
        let is_stopped = matches!(self.status, SessionStatus::Starting | SessionStatus::Failed);
        let is_new_status = is_stopped && self.set_status(SessionStatus::Idle);
        ProjectionUpdate { is_new_status, ..ProjectionUpdate::default() }
    }

    fn start(&mut self, moment: EventMoment) -> ProjectionUpdate {
        if moment.is_past {
            return ProjectionUpdate::default();
        }
        if moment.seq == Some(1) {
            // The run of a foreign host, which was created just now.
            self.turn_began.get_or_insert(moment.now);
            return ProjectionUpdate::default();
        }
        self.work(None, moment.now)
    }

    fn work(&mut self, phase: Option<AgentPhase>, now: i64) -> ProjectionUpdate {
        let has_moved = self.working_since.is_none() || self.phase != phase;
        self.working_since.get_or_insert(now);
        self.turn_began.get_or_insert(now);
        self.phase = phase;
        let is_new_status = self.set_status(SessionStatus::Working);
        let news = match (is_new_status, has_moved) {
            (true, _) => ListUrgency::Now,
            (false, true) => ListUrgency::Soon,
            (false, false) => ListUrgency::None,
        };
        ProjectionUpdate { news, is_new_status, ended_turn: None }
    }

    /// The agent does not work.
    fn rest(&mut self, patch: &LinePatch) -> ProjectionUpdate {
        self.working_since = None;
        self.phase = None;
        let ended_turn = self.turn_began.take();
        let is_new_status = self.set_status(patch.status_after(self.status));
        let news = if is_new_status { ListUrgency::Now } else { ListUrgency::None };
        ProjectionUpdate { news, is_new_status, ended_turn }
    }

    /// The runner says how it stands. The turn is left to who knows whether its end was told.
    fn describe(&mut self, description: &SessionDescription, now: i64) -> ProjectionUpdate {
        let SessionDescription { status, phase, questions, .. } = description;
        if *status == SessionStatus::Working {
            self.work(*phase, now);
        } else {
            self.working_since = None;
            self.phase = None;
        }
        self.set_questions(questions.clone());
        let is_new_status = self.set_status(*status);
        let news = if is_new_status { ListUrgency::Now } else { ListUrgency::None };
        ProjectionUpdate { news, is_new_status, ended_turn: None }
    }

    /// The questions that wait, the oldest first.
    pub fn set_questions(&mut self, questions: Vec<PendingQuestion>) {
        let count = questions.len();
        self.questions = questions;
        self.questions.truncate(QUESTIONS_MAX);
        self.more_questions = count - self.questions.len();
        self.logged_questions = Vec::new();
    }

    fn drop_questions(&mut self) {
        self.set_questions(Vec::new());
    }

    /// A question waits no more. False if it was not known.
    pub fn settle(&mut self, request_id: &str) -> bool {
        let before = self.questions.len();
        self.questions.retain(|question| question.request_id != request_id);
        self.logged_questions.retain(|question| question.request_id != request_id);
        self.questions.len() < before
    }

    /// What is known of it as a run of which only some records were read, and the questions of another such.
    pub fn with_questions_of(self, other: Projection) -> Projection {
        Projection { questions: other.questions, ..self }
    }

    fn fold_run(&mut self, change: &ProjectionChange, ts: i64) {
        let Some(run) = &mut self.run else { return };
        match change {
            ProjectionChange::Started { tool, command } => run.start(ts, tool.clone(), command.clone()),
            ProjectionChange::Created { harness, .. } => {
                if !is_terminal(harness) {
                    run.start(ts, Some(harness.clone()), Some(harness.clone()));
                }
            }
            ProjectionChange::Exited { exit_code } => run.end(ts, exit_code.unwrap_or(-1)),
            ProjectionChange::Closed => {
                if run.ended_at.is_none() {
                    run.end(ts, 0);
                }
            }
            ProjectionChange::Working(_)
            | ProjectionChange::Idle { .. }
            | ProjectionChange::Failed { .. }
            | ProjectionChange::Asked(_)
            | ProjectionChange::Answered(_)
            | ProjectionChange::Acted { .. }
            | ProjectionChange::Titled(_)
            | ProjectionChange::ModelChanged { .. }
            | ProjectionChange::BranchChanged(_)
            | ProjectionChange::Said { .. }
            | ProjectionChange::Described(_) => {}
        }
    }
}

impl RunSummary {
    fn start(&mut self, ts: i64, tool: Option<String>, command: Option<String>) {
        *self =
            RunSummary { tool, command, started_at: self.started_at.or(Some(ts)), ..RunSummary::default() };
    }

    fn end(&mut self, ts: i64, exit_code: i32) {
        self.ended_at = Some(ts);
        self.exit_code = Some(exit_code);
    }
}

/// Sets a field of the line if there is something to set; an empty text for none.
fn set(field: &mut Option<String>, value: Option<&str>) -> ListUrgency {
    let Some(value) = value else { return ListUrgency::None };
    let value = Some(value).filter(|value| !value.is_empty());
    if field.as_deref() == value {
        return ListUrgency::None;
    }
    *field = value.map(str::to_owned);
    ListUrgency::Now
}

/// The beginning of a text on one line, without what could disturb it: control characters, and those that turn the
/// direction of writing.
pub fn one_line(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        let word = word.chars().filter(|character| !is_disturbing(*character));
        let mut is_first = true;
        for character in word {
            if count + 1 >= characters_max {
                line.push('…');
                return line;
            }
            if std::mem::take(&mut is_first) && !line.is_empty() {
                line.push(' ');
                count += 1;
            }
            line.push(character);
            count += 1;
        }
    }
    line
}

fn is_disturbing(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
#[path = "projection/tests.rs"]
mod tests;
