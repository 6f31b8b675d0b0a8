//! The agent's process: starting, ready, gone.
//!
//! An agent may end at any moment, and clients must never be left with something open. So `gone` closes messages,
//! tools, questions and the turn, in this order, before it says how the agent ended.

use std::collections::HashSet;

use qd_wire::ErrorCode;
use qd_wire::data::{ModelRef, SessionStatus};
use qd_wire::event::{AgentPhase, Event, NotifyLevel};

use super::queue_edit::HeldImages;
use super::turn::agent_error;
use super::{Session, StoredQuestion};
use crate::agent::NativeMessage;
use crate::event_writer::EventWriter;

/// The status text of supervision.
const HEALTH_STATUS: &str = "qd.health";

/// What an agent says of itself when it is ready, or when asked again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFacts {
    pub model: Option<ModelRef>,
    pub thinking_level: Option<String>,
    pub title: Option<String>,
    pub native_session_id: Option<String>,
    pub native_session_file: Option<String>,
    /// The file is there; agents write it with the first answer.
    pub is_native_file_written: bool,
    pub auto_compaction: Option<bool>,
    /// The model in the agent's own words.
    pub native_model: Option<serde_json::Value>,
}

/// An agent that has come up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadyAgent {
    pub facts: AgentFacts,
    pub conversation: Vec<NativeMessage>,
}

/// Why there is no agent process any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEnd {
    /// A person closed the session.
    Closed { reason: String },
    /// We stopped it (restart, shutdown); the next prompt starts it again.
    Stopped,
    /// It hung, and we killed it to start it again.
    Hung { error: String },
    /// It died, or never came up.
    Died { error: String },
}

impl Session {
    /// A process is being started.
    pub fn starting(&mut self, now: i64, out: &mut EventWriter) {
        self.set_phase(now, AgentPhase::Initializing, None, out);
        self.status = SessionStatus::Starting;
        self.error = None;
    }

    /// The agent is up and waits for input. `conversation` is all the agent has of it; messages in `known` are
    /// ours already.
    pub fn ready(
        &mut self,
        now: i64,
        resumed: bool,
        up: ReadyAgent,
        known: &HashSet<String>,
        out: &mut EventWriter,
    ) {
        let event = Event::SessionCreated {
            resumed,
            harness: self.identity.harness.clone(),
            cwd: self.identity.cwd.clone(),
            capabilities: Some(self.identity.capabilities.clone()),
        };
        self.emit(now, &event, out);
        self.learn(now, up.facts, out);
        self.complete_conversation(now, up.conversation, known, out);
        self.error = None;
        self.go_idle(now, None, out);
    }

    /// Notices what changed without an event: model, thinking level, name, conversation file.
    pub fn learn(&mut self, now: i64, facts: AgentFacts, out: &mut EventWriter) {
        if let Some(model) = facts.model {
            self.model_changed(now, model, out);
        }
        if facts.native_model.is_some() {
            self.memory.native_model = facts.native_model;
        }
        if let Some(level) = facts.thinking_level {
            self.thinking_level_changed(now, level, out);
        }
        if let Some(title) = facts.title {
            self.title_changed(now, title, out);
        }
        if facts.auto_compaction.is_some() {
            self.auto_compaction = facts.auto_compaction;
        }
        let moved =
            facts.native_session_id.is_some() && facts.native_session_id != self.memory.native_session_id;
        let renamed = facts.native_session_file.is_some()
            && facts.native_session_file != self.memory.native_session_file;
        if let Some(native_session_id) = facts.native_session_id
            && (moved || renamed)
        {
            self.memory.is_native_file_written = false;
            self.memory.native_session_id = Some(native_session_id.clone());
            self.memory.native_session_file.clone_from(&facts.native_session_file);
            let native_session_file = facts.native_session_file;
            self.emit(now, &Event::SessionNativeChanged { native_session_id, native_session_file }, out);
        }
        self.memory.is_native_file_written |= facts.is_native_file_written;
    }

    /// The conversation's file is there; if it is ever missing, the conversation is.
    pub fn native_file_written(&mut self) {
        self.memory.is_native_file_written = true;
    }

    /// The process is gone: everything open is closed, and everybody is told how.
    pub fn gone(&mut self, now: i64, gone: AgentEnd, out: &mut EventWriter) {
        let was_busy = self.turn.is_some() || self.status == SessionStatus::Working;
        if self.turn.is_some() || !self.memory.accepted.is_empty() {
            self.show_cut_off(now, out);
        }
        self.close_open_work(now, "The agent stopped before the tool did", out);
        self.withdraw_questions(now, out);
        self.turn = None;
        self.compacting_alone = false;
        self.phase = None;
        self.detail = None;
        if self.status_texts.contains_key(HEALTH_STATUS) {
            self.health_text(now, None, out);
        }
        self.status_texts.clear();
        self.moving = None;
        self.delivery_lost(now, out);
        self.expected_are_unanswered();
        self.accepted_lost(now, out);
        self.emptying = None;
        self.keep_queue();
        self.expected_prompts.clear();
        self.images = HeldImages::default();
        match gone {
            AgentEnd::Closed { reason } => {
                self.lose_kept(now, out);
                if was_busy {
                    self.emit_idle(now, Some(qd_wire::StopReason::Aborted), out);
                }
                self.status = SessionStatus::Closed;
                self.emit(now, &Event::SessionClosed { reason: Some(reason) }, out);
            }
            AgentEnd::Stopped => {
                if was_busy {
                    self.emit_idle(now, Some(qd_wire::StopReason::Aborted), out);
                }
                self.status = SessionStatus::Dormant;
            }
            AgentEnd::Hung { error } => {
                self.status = SessionStatus::Dormant;
                self.emit(now, &agent_error(ErrorCode::AgentHung, error, true), out);
                if was_busy {
                    self.emit_idle(now, Some(qd_wire::StopReason::Error), out);
                }
            }
            AgentEnd::Died { error } => {
                self.status = SessionStatus::Failed;
                self.error = Some(error.clone());
                self.emit(now, &agent_error(ErrorCode::AgentGone, error, false), out);
                self.emit_idle(now, was_busy.then_some(qd_wire::StopReason::Error), out);
            }
        }
        self.tell_queue(now, out);
    }

    /// We were killed and know how the session stood then: say what became of everything that was under way.
    pub fn interrupted(
        &mut self,
        now: i64,
        was_working: bool,
        open_questions: Vec<StoredQuestion>,
        out: &mut EventWriter,
    ) {
        for StoredQuestion { request, asked_seq } in open_questions {
            let event = Event::AgentInputResolved {
                request_id: request.request_id().to_owned(),
                outcome: Some(qd_wire::input::InputOutcome::Withdrawn),
                user_id: None,
                decision: None,
                actor: None,
                asked_seq,
                answer: None,
            };
            self.settled_records.extend(asked_seq);
            self.emit(now, &event, out);
        }
        self.delivery_lost(now, out);
        self.accepted_lost(now, out);
        self.keep_queue();
        if was_working {
            let error = "Quarterdeck stopped while the agent was working; what it had not finished is lost. \
                         Send a prompt to go on."
                .to_owned();
            self.emit(now, &agent_error(ErrorCode::Interrupted, error, true), out);
            self.emit_idle(now, Some(qd_wire::StopReason::Aborted), out);
        }
    }

    /// A command was cut off, so nobody can know whether it took effect; a person must.
    pub fn cut_off(&mut self, now: i64, cmd: &str, beginning: &str, out: &mut EventWriter) {
        let what = if beginning.is_empty() { format!("'{cmd}'") } else { format!("'{cmd}' ({beginning})") };
        let message = format!(
            "{what} was cut off: it may or may not have run. Look at the session, and send it again if it is missing."
        );
        self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
    }

    /// Something a person should know of this session; kept in its history.
    pub fn notify(&mut self, now: i64, level: NotifyLevel, message: String, out: &mut EventWriter) {
        self.emit(now, &Event::Notify { level, message }, out);
    }

    /// What supervision has to say, under its own key.
    pub fn health_text(&mut self, now: i64, text: Option<String>, out: &mut EventWriter) {
        self.status_text(now, HEALTH_STATUS.to_owned(), text, out);
    }
}

impl Session {
    /// Figures of the agent's process; live, never stored.
    pub fn heartbeat(&mut self, now: i64, process: qd_wire::data::ProcessStats, out: &mut EventWriter) {
        self.emit(now, &Event::SessionHeartbeat { process }, out);
    }
}
