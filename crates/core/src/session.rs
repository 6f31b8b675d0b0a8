//! The session machine of Part 7: what an agent does goes in, canonical events come out.
//!
//! It is the one authority on a session: it numbers records, names messages, knows the state, holds the open
//! questions and the message being generated. It never reads a clock; callers pass the time.

mod agent_events;
mod answer_text;
mod assembly;
mod attach;
mod conversation;
mod conversation_move;
mod event_form;
mod gate;
mod inputs;
mod interview;
mod lifecycle;
mod questions;
mod run;
mod turn;

use std::collections::{BTreeMap, VecDeque};

use qd_wire::data::{ModelRef, QueueState, RunningTool, SessionState, SessionStatus, WorktreeState};
use qd_wire::event::{AgentPhase, Event};
use qd_wire::run::{PermissionDetails, PermissionSource, RunState};
use qd_wire::{EventPayload, Message};
use serde_json::Value;

pub use accepted_prompts::{AcceptedPrompt, PromptTurn};
pub use answer_text::ANSWER_CHARACTERS_MAX;
pub use assembly::MessageAssembly;
pub use conversation_move::QueueFate;
pub use event_form::{ConversationChange, EventForm};
pub use gate::{Allowance, GateError};
pub use lifecycle::{AgentEnd, AgentFacts, ReadyAgent};
pub use questions::{AnswerError, OpenQuestion, SettledAnswer, StoredQuestion};
pub use queue_edit::QueueEdit;
pub use run::{RunInputNote, RunStart};
pub use undelivered_inputs::UndeliveredInput;

use crate::event_writer::{EventFront, EventWriter};
use crate::health::SessionActivity;
use crate::ids::MessageIds;
use crate::terminal::ScreenQuestion;
use conversation_move::ConversationMove;
use inputs::{accepted_prompts, queue_edit, undelivered_inputs};
use queue_edit::{HeldImages, QueueReads, QueueRecall};
use turn::Turn;

/// Prompts that the agent may have and has not shown; more are refused until it has. Each is kept until then, so that none
/// is lost with the agent.
pub const UNSHOWN_PROMPTS_MAX: usize = 1024;

/// Who the session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    pub session_id: String,
    pub runner_id: String,
    pub harness: String,
    pub cwd: Option<String>,
    pub capabilities: Vec<String>,
    /// Unix milliseconds.
    pub created_at: i64,
    /// The worktree that was made for it, in which it works.
    pub worktree: Option<WorktreeState>,
}

/// What a session remembers across restarts, besides its records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionMemory {
    pub last_seq: u64,
    pub next_idx: u64,
    pub version: u64,
    pub title: Option<String>,
    pub model: Option<ModelRef>,
    /// The model in the agent's own words.
    pub native_model: Option<Value>,
    pub thinking_level: Option<String>,
    pub native_session_id: Option<String>,
    pub native_session_file: Option<String>,
    /// The conversation's file has been there: without it the conversation cannot go on.
    pub is_native_file_written: bool,
    /// Inputs the agent has accepted and not yet read.
    pub queue: QueueState,
    /// Inputs an earlier agent had accepted and not read; the next agent gets them, in this order.
    pub kept: Vec<UndeliveredInput>,
    /// What waits was left over by a turn that is over (agents leave it there after an abort): it goes ahead of the
    /// next prompt, and starts no turn by itself. Otherwise its turn was cut off, and the next agent goes on with it.
    pub waits_for_prompt: bool,
    /// A kept input on its way to the agent: it may or may not have arrived.
    pub delivering: Option<UndeliveredInput>,
    /// Prompts the agent has said yes to and not shown yet: neither in its queue nor in the conversation.
    pub accepted: Vec<AcceptedPrompt>,
    /// What passes the gate unasked for as long as the session lives.
    pub allowances: Vec<Allowance>,
    /// Of a program in a terminal.
    pub run: Option<Box<RunState>>,
    /// What is checked out where it works.
    pub branch: Option<String>,
}

/// How the message list changed, for the runner's index of known messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageIndexChange {
    Add {
        idx: u64,
        message_id: String,
    },
    /// The conversation was replaced: forget everything before.
    Clear,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    identity: SessionIdentity,
    memory: SessionMemory,
    front: EventFront,
    ids: MessageIds,
    status: SessionStatus,
    phase: Option<AgentPhase>,
    detail: Option<String>,
    turn: Option<Turn>,
    /// A compaction outside any turn, asked for by a person.
    compacting_alone: bool,
    assembly: Option<MessageAssembly>,
    tools: Vec<RunningTool>,
    questions: Vec<OpenQuestion>,
    settled_questions: VecDeque<String>,
    /// Questions there was no place for; the agent must hear that nobody will answer.
    refused_questions: Vec<String>,
    status_texts: BTreeMap<String, String>,
    auto_compaction: Option<bool>,
    auto_retry: Option<bool>,
    error: Option<String>,
    expected_prompts: VecDeque<ExpectedPrompt>,
    /// Messages of the last turn that came under a text nobody sent, and that no prompt has been matched with: a prompt
    /// whose yes is heard only now may be one of them.
    unclaimed_inputs: usize,
    /// Prompts an agent had when it ended, whose answers may still be on their way to us.
    unanswered_prompts: Vec<AcceptedPrompt>,
    /// The command by which a kept input is on its way.
    delivering_token: Option<u64>,
    /// The agent is on its way to another conversation.
    moving: Option<ConversationMove>,
    index_changes: Vec<MessageIndexChange>,
    unknown_events: u64,
    turns: u64,
    /// Somebody watches, and is told the events in this form too.
    watch: Option<Box<dyn EventForm>>,
    /// Questions stay open this long at most.
    question_timeout_ms: Option<u64>,
    /// What the open question of a terminal's screen was made from.
    screen_question: Option<ScreenQuestion>,
    /// Calls whose time at the gate is over, until somebody takes them.
    timed_out_gates: Vec<(String, PermissionDetails)>,
    /// The records of questions that are settled, until somebody asks for them.
    settled_records: Vec<u64>,
    /// Images of prompts that the agent has and has not read, by the prompts' commands.
    images: HeldImages,
    /// What has left the agent's queue, and what of it was read.
    reads: QueueReads,
    /// The queue is another than was told last.
    is_queue_untold: bool,
    /// The agent is asked to give back its queue. Until it has, what it says of it is noted and no more: should we end
    /// now, what was in the queue is not lost.
    emptying: Option<QueueRecall>,
}

/// A prompt on its way into the agent; found again when it comes back as a user message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedPrompt {
    /// The command it came by, to forget it when it fails.
    pub token: u64,
    pub text: String,
    pub client_id: Option<String>,
    pub user_id: Option<String>,
    /// It is to be read before the agent's next step, not after its turn.
    pub is_steering: bool,
    /// How many images came with it; an agent's queue has only its text.
    pub image_count: usize,
}

impl Session {
    /// A session without a running agent.
    pub fn new(identity: SessionIdentity, memory: SessionMemory, status: SessionStatus) -> Self {
        Session {
            front: EventFront::new(&identity.session_id, &identity.runner_id),
            identity,
            memory,
            ids: MessageIds::default(),
            status,
            phase: None,
            detail: None,
            turn: None,
            compacting_alone: false,
            assembly: None,
            tools: Vec::new(),
            questions: Vec::new(),
            settled_questions: VecDeque::new(),
            refused_questions: Vec::new(),
            status_texts: BTreeMap::new(),
            auto_compaction: None,
            auto_retry: None,
            error: None,
            expected_prompts: VecDeque::new(),
            unclaimed_inputs: 0,
            unanswered_prompts: Vec::new(),
            delivering_token: None,
            moving: None,
            index_changes: Vec::new(),
            unknown_events: 0,
            turns: 0,
            watch: None,
            question_timeout_ms: None,
            screen_question: None,
            timed_out_gates: Vec::new(),
            settled_records: Vec::new(),
            images: HeldImages::default(),
            reads: QueueReads::default(),
            is_queue_untold: false,
            emptying: None,
        }
    }

    pub fn identity(&self) -> &SessionIdentity {
        &self.identity
    }

    /// A worktree was made for the session, and it works there: before anything of it is told.
    pub fn works_in(&mut self, cwd: String, worktree: WorktreeState) {
        self.identity.cwd = Some(cwd);
        self.identity.worktree = Some(worktree);
    }

    pub fn memory(&self) -> &SessionMemory {
        &self.memory
    }

    pub fn front(&self) -> &EventFront {
        &self.front
    }

    pub fn status(&self) -> SessionStatus {
        self.status
    }

    /// Whether a turn runs (or a compaction, which excludes prompts just the same).
    pub fn is_working(&self) -> bool {
        self.status == SessionStatus::Working
    }

    /// What the agent does, for those who watch over it.
    pub fn activity(&self) -> SessionActivity<'_> {
        SessionActivity {
            is_busy: self.is_working(),
            phase: self.phase,
            tools: &self.tools,
            // A call at the gate is not the agent's: it works on.
            has_questions: self.questions.iter().any(|open| open.source != PermissionSource::Gate),
        }
    }

    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What the message list did since the last call.
    pub fn take_index_changes(&mut self) -> Vec<MessageIndexChange> {
        std::mem::take(&mut self.index_changes)
    }

    /// A mutation succeeded: the version rises by one.
    pub fn bump_version(&mut self) -> u64 {
        self.memory.version += 1;
        self.memory.version
    }

    pub fn set_auto_compaction(&mut self, enabled: bool) {
        self.auto_compaction = Some(enabled);
    }

    pub fn set_auto_retry(&mut self, enabled: bool) {
        self.auto_retry = Some(enabled);
    }

    /// Remembers a prompt so that its user message carries the client's own id.
    pub fn expect_prompt(&mut self, prompt: ExpectedPrompt) {
        self.expected_prompts.push_back(prompt);
    }

    /// Whether the agent may be given one more prompt.
    pub fn has_room_for_prompt(&self) -> bool {
        self.expected_prompts.len() < UNSHOWN_PROMPTS_MAX && self.memory.accepted.len() < UNSHOWN_PROMPTS_MAX
    }

    /// The prompt will not become a message.
    pub fn forget_prompt(&mut self, token: u64) {
        self.memory.accepted.retain(|accepted| accepted.token != token);
        self.expected_prompts.retain(|prompt| prompt.token != token);
        self.unanswered_prompts.retain(|prompt| prompt.token != token);
    }

    /// How many turns have begun since the start of this process.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Everything `get_state` tells.
    pub fn state(&self) -> SessionState {
        SessionState {
            session_id: self.identity.session_id.clone(),
            runner_id: self.identity.runner_id.clone(),
            harness: self.identity.harness.clone(),
            status: self.status,
            phase: self.phase,
            detail: self.detail.clone(),
            cwd: self.identity.cwd.clone(),
            title: self.memory.title.clone(),
            model: self.memory.model.clone(),
            thinking_level: self.memory.thinking_level.clone(),
            auto_compaction: self.auto_compaction,
            auto_retry: self.auto_retry,
            session_version: self.memory.version,
            seq: self.memory.last_seq,
            message_count: self.memory.next_idx,
            queue: self.whole_queue(),
            pending_input: self.questions.iter().map(|question| question.request.clone()).collect(),
            status_texts: self.status_texts.clone(),
            native_session_id: self.memory.native_session_id.clone(),
            native_session_file: self.memory.native_session_file.clone(),
            error: self.error.clone(),
            capabilities: self.identity.capabilities.clone(),
            unknown_events: (self.unknown_events > 0).then_some(self.unknown_events),
            process: None,
            created_at: Some(self.identity.created_at),
            native_model: self.memory.native_model.clone(),
            run: self.memory.run.clone(),
            branch: self.memory.branch.clone(),
            worktree: self.identity.worktree.clone(),
        }
    }

    fn emit(&mut self, now: i64, event: &Event, out: &mut EventWriter) {
        let seq = event.is_record().then(|| self.next_seq());
        out.known(&self.front, now, seq, event);
    }

    fn emit_payload(&mut self, now: i64, payload: &EventPayload, out: &mut EventWriter) {
        let seq = payload.is_record().then(|| self.next_seq());
        out.event(&self.front, now, seq, payload);
    }

    fn next_seq(&mut self) -> u64 {
        self.memory.last_seq += 1;
        self.memory.last_seq
    }

    /// Gives a finished message its place and announces it.
    fn append_message(&mut self, now: i64, mut message: Message, out: &mut EventWriter) {
        message.idx = self.memory.next_idx;
        self.memory.next_idx += 1;
        self.index_changes.push(MessageIndexChange::Add { idx: message.idx, message_id: message.id.clone() });
        self.emit(now, &Event::MessageEnd { message }, out);
    }
}
