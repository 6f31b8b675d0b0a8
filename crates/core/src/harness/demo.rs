//! The demo agent: scripted, needs no program, no account and no model. A newcomer sees a living session, and
//! tests get every kind of event on demand. The first word of a prompt picks the script.
//!
//! Its events come in the order of a real agent, and are the same for the same prompts and clock, so that tests can
//! pin them.

mod scripts;

use std::collections::VecDeque;

use qd_wire::data::{CommandsData, QueueState, SlashCommand};
use qd_wire::message::Role;
use qd_wire::{CodedError, ErrorCode};

use crate::agent::{AgentEvent, QuestionAnswer, WhenBusy};
pub use scripts::LONG_MAX;
use scripts::{SCRIPTS, Step};

/// Deltas of `/long` given out per step of the clock.
const LONG_BURST: u64 = 64;

/// Prompts that may wait while the demo works.
const QUEUE_MAX: usize = 64;

/// A pure machine: prompts and time in, events out.
#[derive(Debug, Default)]
pub struct DemoAgent {
    steps: VecDeque<Step>,
    steering: VecDeque<String>,
    follow_up: VecDeque<String>,
    working: bool,
    /// Nothing happens before this moment.
    wake_at: i64,
    /// The question that must be answered first.
    question: Option<String>,
    /// Message times are made from this, so that no two are equal.
    last_time: i64,
    last_answer: Option<String>,
    pub stats: DemoStats,
}

/// What `get_stats` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DemoStats {
    pub prompts: u64,
    pub answers: u64,
    pub tool_calls: u64,
}

/// Why the demo does not take a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DemoError {
    #[error("The demo agent's queue is full ({QUEUE_MAX} prompts)")]
    QueueFull,
    #[error("The agent is working; say whether to steer or to follow up")]
    Busy,
}

impl DemoError {
    pub const fn code(self) -> ErrorCode {
        match self {
            DemoError::QueueFull => ErrorCode::Busy,
            DemoError::Busy => ErrorCode::AgentBusy,
        }
    }
}

impl From<DemoError> for CodedError {
    fn from(error: DemoError) -> Self {
        error.code().with(error.to_string())
    }
}

impl DemoAgent {
    /// Takes a prompt; while the demo works it needs to know where to put it.
    pub fn prompt(
        &mut self,
        now: i64,
        message: String,
        when_busy: Option<WhenBusy>,
        out: &mut Vec<AgentEvent>,
    ) -> Result<(), DemoError> {
        if !self.working {
            self.begin(now, &message);
            return Ok(());
        }
        if self.steering.len() + self.follow_up.len() >= QUEUE_MAX {
            return Err(DemoError::QueueFull);
        }
        match when_busy {
            None => return Err(DemoError::Busy),
            Some(WhenBusy::Steer) => self.steering.push_back(message),
            Some(WhenBusy::FollowUp) => self.follow_up.push_back(message),
        }
        out.push(self.queue_changed());
        Ok(())
    }

    /// Stops the turn; what waits in the queue stays there until the next prompt.
    pub fn abort(&mut self, out: &mut Vec<AgentEvent>) {
        if self.working {
            self.steps.clear();
            self.question = None;
            self.working = false;
            out.push(AgentEvent::TurnSettled { aborted: true });
        }
    }

    /// Empties the queue; what was in it is the asker's.
    pub fn clear_queue(&mut self, out: &mut Vec<AgentEvent>) -> QueueState {
        let (steering, follow_up) = (self.steering.drain(..).collect(), self.follow_up.drain(..).collect());
        out.push(self.queue_changed());
        QueueState { steering, follow_up }
    }

    /// Goes on after the question was answered.
    pub fn answer(&mut self, now: i64, request_id: &str, answer: &QuestionAnswer) {
        if self.question.as_deref() != Some(request_id) {
            return;
        }
        self.question = None;
        let text = match answer {
            QuestionAnswer::Value(value) => format!("You chose {value}. A good choice."),
            QuestionAnswer::Confirmed(true) => "You said yes.".to_owned(),
            QuestionAnswer::Confirmed(false) => "You said no.".to_owned(),
            QuestionAnswer::Responses(responses) => format!("You answered {} questions.", responses.len()),
            QuestionAnswer::TimedOut => "Nobody answered in time.".to_owned(),
            QuestionAnswer::Cancelled => "You would rather not say. That is fine too.".to_owned(),
        };
        let time = self.next_time(now);
        scripts::say(&mut self.steps, time, &text);
    }

    /// The text of the last answer that has one.
    pub fn last_answer(&self) -> Option<&str> {
        self.last_answer.as_deref()
    }

    /// When the demo wants to go on; `None` while it waits for a person.
    pub fn next_wake(&self) -> Option<i64> {
        (self.working && self.question.is_none()).then_some(self.wake_at)
    }

    /// Does what is due.
    pub fn advance(&mut self, now: i64, out: &mut Vec<AgentEvent>) {
        while self.working && self.question.is_none() && self.wake_at <= now {
            let Some(step) = self.steps.pop_front() else {
                self.next_prompt(now, out);
                continue;
            };
            match step {
                Step::Event(event) => self.give(*event, out),
                Step::Pause { ms } => self.wake_at = now + ms,
                Step::Long { next, count } => {
                    let end = (next + LONG_BURST).min(count);
                    out.extend((next..end).map(scripts::long_delta));
                    if end < count {
                        self.steps.push_front(Step::Long { next: end, count });
                        self.wake_at = now + 1;
                    }
                }
            }
        }
    }

    fn give(&mut self, event: AgentEvent, out: &mut Vec<AgentEvent>) {
        // The demo only counts and remembers; what is not named here passes through.
        if let AgentEvent::InputNeeded(request) = &event {
            self.question = Some(request.request_id().to_owned());
        }
        if let AgentEvent::MessageEnded(message) = &event
            && message.head.role == Role::Assistant
        {
            self.last_answer = scripts::text_of(message).or_else(|| self.last_answer.take());
        }
        self.stats.tool_calls += u64::from(matches!(event, AgentEvent::ToolStarted { .. }));
        self.stats.answers += u64::from(matches!(event, AgentEvent::StreamDone { .. }));
        out.push(event);
    }

    fn begin(&mut self, now: i64, message: &str) {
        self.stats.prompts += 1;
        self.working = true;
        self.wake_at = now;
        self.steps.push_back(Step::event(AgentEvent::TurnStarted));
        let time = self.next_time(now);
        scripts::compile(&mut self.steps, time, message);
        self.last_time = time + scripts::TIMES_PER_SCRIPT;
    }

    fn next_prompt(&mut self, now: i64, out: &mut Vec<AgentEvent>) {
        match self.steering.pop_front().or_else(|| self.follow_up.pop_front()) {
            Some(message) => {
                out.push(self.queue_changed());
                self.begin(now, &message);
            }
            None => {
                self.working = false;
                out.push(AgentEvent::TurnSettled { aborted: false });
            }
        }
    }

    fn next_time(&mut self, now: i64) -> i64 {
        self.last_time = now.max(self.last_time + 1);
        self.last_time
    }

    fn queue_changed(&self) -> AgentEvent {
        AgentEvent::QueueChanged(QueueState {
            steering: self.steering.iter().cloned().collect(),
            follow_up: self.follow_up.iter().cloned().collect(),
        })
    }
}

/// The scripts, as slash commands.
pub fn commands() -> CommandsData {
    let commands = SCRIPTS.iter().map(|script| SlashCommand {
        name: script.name.to_owned(),
        description: Some(script.description.to_owned()),
        source: Some("demo".to_owned()),
    });
    CommandsData { commands: commands.collect() }
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
