//! A session followed on a terminal: what happens is shown, questions are answered, lines and Ctrl-C are passed
//! on. `qd run` and `qd attach` are this with different ends.
//!
//! One loop for all ways to watch: `qd run` (one prompt, then the end), `qd attach` (a person types) and a pipe. They
//! differ mostly in when the loop ends and in whether lines are prompts.

mod open_questions;
mod stdin;

use qd_link::client::{Attachment, AttachmentUpdate, CallError, ClientRequest};
use qd_wire::command::{NoParams, PromptParams, StreamingBehavior};
use qd_wire::data::{AttachData, Resume, SessionStatus};
use qd_wire::event::AgentPhase;
use qd_wire::message::{Message, Role, StopReason};
use qd_wire::{Command, CommandResponse, Event, EventEnvelope, EventPayload};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::client::sessions::is_busy;
use crate::clock;
use crate::error::{CliError, Result, session_refusal};
use crate::output::render::Renderer;
use crate::output::{Output, harmless};
use open_questions::{AskingMode, OpenQuestions, TypedAnswer};
pub(crate) use stdin::{StdinLines, stdin_is_terminal, stdin_lines};

/// Messages of the past shown when attaching.
const HISTORY_MESSAGES_MAX: usize = 20;

/// How the conversation ended for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConversationEnd {
    /// The agent is idle; how the last turn ended.
    Idle(Option<StopReason>),
    /// The person left; the session goes on.
    Detached,
    /// The session was closed.
    Closed,
    /// Input from a pipe is over, and not everything it said could be done.
    Troubled,
}

/// What differs between `run` and `attach`.
pub(crate) struct FollowOptions {
    /// Ends when the turn of the first prompt ends.
    pub(crate) one_turn: bool,
    pub(crate) quiet: bool,
    /// Lines that a person types, or a pipe delivers.
    pub(crate) lines: Option<StdinLines>,
    /// The lines are typed by a person, who can be asked.
    pub(crate) interactive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallPurpose {
    Prompt,
    Abort,
    Answer,
}

type FinishedCall = (CallPurpose, ClientRequest, Result<CommandResponse, CallError>);

pub(crate) struct Conversation<'a> {
    output: &'a Output,
    attachment: Attachment,
    options: FollowOptions,
    renderer: Renderer,
    client_name: String,
    prompts: u64,
    questions: OpenQuestions,
    calls: JoinSet<FinishedCall>,
    interrupts: Signal,
    /// Prompts of ours that the agent has not read yet: the end of a turn is not theirs.
    unread: usize,
    /// Prompts whose answer was lost with the connection; their key lets them run at most once.
    unanswered: Vec<(CallPurpose, ClientRequest)>,
    busy: bool,
    /// Something of the turn we wait for was seen, so the next idle is its end.
    turn_seen: bool,
    attached_before: bool,
    abort_asked: bool,
    input_ended: bool,
    /// The connection is lost, and the person was told.
    lost: bool,
    /// Something failed; a pipe learns it at the end.
    troubled: bool,
    ending: Option<ConversationEnd>,
}

enum ConversationWake {
    Update(Box<AttachmentUpdate>),
    Finished(Box<FinishedCall>),
    Line(Option<String>),
    Interrupt,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(output: &'a Output, attachment: Attachment, options: FollowOptions) -> Result<Self> {
        let client_name = format!("cli-{}", clock::random_hex(6)?);
        let renderer = output.renderer().quiet(options.quiet);
        // What a person typed stands on the terminal already; what a pipe said does not.
        let typed = options.interactive || options.one_turn;
        let renderer = if typed { renderer.own_client(&client_name) } else { renderer };
        Ok(Conversation {
            output,
            attachment,
            options,
            renderer,
            client_name,
            prompts: 0,
            questions: OpenQuestions::default(),
            calls: JoinSet::new(),
            interrupts: signal(SignalKind::interrupt())?,
            unread: 0,
            unanswered: Vec::new(),
            busy: false,
            turn_seen: false,
            attached_before: false,
            abort_asked: false,
            input_ended: false,
            lost: false,
            troubled: false,
            ending: None,
        })
    }

    /// Gives the session a prompt; while the agent works it steers.
    pub(crate) fn prompt(&mut self, message: String) {
        self.prompts += 1;
        let key = format!("{}-{}", self.client_name, self.prompts);
        let params = PromptParams {
            message,
            images: None,
            // The agent may begin to work between typing and sending; without this the prompt would be refused then.
            streaming_behavior: Some(StreamingBehavior::Steer),
            client_id: Some(key.clone()),
        };
        let request = ClientRequest::session(self.attachment.session_id(), Command::Prompt(params))
            .idempotency_key(key);
        self.busy = true;
        self.unread += 1;
        self.send(CallPurpose::Prompt, request);
    }

    /// Whoever reads from a pipe waits until each of its lines was read.
    fn is_piped(&self) -> bool {
        !self.options.one_turn && !self.options.interactive
    }

    /// A message of the conversation may be a prompt of ours that was read. One that a template made longer is not
    /// known as ours, but it is nobody else's either.
    fn count_read(&mut self, message: &Message) {
        let is_ours = message.client_id.as_ref().is_none_or(|id| id.starts_with(&self.client_name));
        if message.role == Role::User && is_ours {
            self.unread = self.unread.saturating_sub(1);
        }
    }

    /// Follows the session to its end.
    pub(crate) async fn follow(mut self) -> Result<ConversationEnd> {
        loop {
            self.output.rendered(&mut self.renderer)?;
            if let Some(ending) = self.ending {
                let troubled = self.is_piped() && self.troubled && ending != ConversationEnd::Detached;
                return Ok(if troubled { ConversationEnd::Troubled } else { ending });
            }
            match self.wake().await? {
                ConversationWake::Update(update) => self.take_update(*update)?,
                ConversationWake::Finished(finished) => self.take_finished(*finished)?,
                ConversationWake::Line(line) => self.take_line(line),
                ConversationWake::Interrupt => self.interrupt(),
            }
        }
    }

    async fn wake(&mut self) -> Result<ConversationWake> {
        // A pipe that has ended is ready for ever and would keep this loop spinning.
        let lines = self.options.lines.as_mut().filter(|_| !self.input_ended);
        tokio::select! {
            // A fast stream must not keep a person from being heard.
            biased;
            Some(()) = self.interrupts.recv() => Ok(ConversationWake::Interrupt),
            Some(finished) = self.calls.join_next() => match finished {
                Ok(finished) => Ok(ConversationWake::Finished(Box::new(finished))),
                Err(error) => Err(CliError::failed(format!("a call failed: {error}"))),
            },
            line = stdin::next_line(lines) => Ok(ConversationWake::Line(line)),
            update = self.attachment.next() => Ok(ConversationWake::Update(Box::new(update?))),
        }
    }

    fn take_update(&mut self, update: AttachmentUpdate) -> Result<()> {
        match update {
            AttachmentUpdate::Attached(attach) => self.take_attach(&attach),
            AttachmentUpdate::Event { event, frame } => {
                if self.output.json {
                    self.output.event_line(&event, frame.as_ref())?;
                }
                self.take_event(&event);
                Ok(())
            }
            AttachmentUpdate::System(_) => Ok(()),
            AttachmentUpdate::Disconnected { reason, .. } => {
                self.renderer.end_line();
                // One line for each outage; the tries in between are no news.
                if !std::mem::replace(&mut self.lost, true) {
                    self.notice(&format!("connection lost ({reason}); reconnecting"));
                }
                Ok(())
            }
        }
    }

    fn take_attach(&mut self, attach: &AttachData) -> Result<()> {
        if self.output.json {
            // As the server's own frame would look, so that every line is one of the protocol.
            let (session_id, runner_id) = (&attach.state.session_id, &attach.state.runner_id);
            self.output
                .json_line(&json!({"channel": "agent", "event": "response", "session_id": session_id,
                "runner_id": runner_id, "cmd": "session.attach", "success": true, "data": attach}))?;
        }
        if std::mem::take(&mut self.lost) {
            self.notice("reconnected");
        }
        let working = is_busy(attach.state.status);
        let messages = attach.messages.as_deref().unwrap_or_default();
        let skipped =
            if self.attached_before { 0 } else { messages.len().saturating_sub(HISTORY_MESSAGES_MAX) };
        for message in &messages[skipped..] {
            self.renderer.message(message);
            // What was there before we came cannot be ours.
            if self.attached_before {
                self.count_read(message);
            }
        }
        // With a list of messages nothing that was missed follows; without one everything does.
        let missed_the_end = self.attached_before
            && self.busy
            && !working
            && attach.resume == Resume::Gap
            && attach.messages.is_some();
        if !self.attached_before {
            self.busy |= working;
        }
        self.attached_before = true;
        if let Some(error) = &attach.state.error {
            self.renderer.error(error);
        }
        if attach.state.status == SessionStatus::Offline {
            let runner_id = &attach.state.runner_id;
            self.notice(&format!(
                "{runner_id} is offline; this is what it had sent, and more comes when it is back"
            ));
        }
        for (purpose, request) in std::mem::take(&mut self.unanswered) {
            self.send(purpose, request);
        }
        let text = self.questions.replace(&attach.pending_input, self.attachment.session_id(), self.asking());
        self.notice_text(&text);
        if missed_the_end && self.calls.is_empty() {
            let reason = messages.iter().rev().find_map(|message| message.stop_reason);
            self.turn_ended(reason);
        }
        self.end_with_input();
        Ok(())
    }

    fn take_event(&mut self, envelope: &EventEnvelope) {
        self.renderer.event(envelope);
        let EventPayload::Known(event) = &envelope.payload else { return };
        match event {
            Event::AgentIdle { reason, .. } if reason.is_some() || self.turn_seen => self.turn_ended(*reason),
            // An agent that comes up is idle before it reads the prompt it was started for.
            Event::AgentWorking { phase: AgentPhase::Initializing, .. } => self.busy = true,
            Event::AgentWorking { .. } | Event::ToolStart { .. } | Event::MessageStart { .. } => {
                self.busy = true;
                self.turn_seen = true;
            }
            Event::AgentError { recoverable, .. } => {
                self.turn_seen = true;
                self.troubled |= !recoverable;
            }
            Event::AgentInputNeeded { request } => {
                let text = self.questions.ask(request, self.attachment.session_id(), self.asking());
                self.notice_text(&text);
            }
            Event::AgentInputResolved { request_id, outcome, answer, .. } => {
                let text = self.questions.resolved(request_id, *outcome, answer.as_deref(), self.asking());
                self.notice_text(&text);
            }
            Event::MessageEnd { message, .. } => self.count_read(message),
            Event::SessionClosed { .. } => self.ending = Some(ConversationEnd::Closed),
            _ => {}
        }
    }

    fn turn_ended(&mut self, reason: Option<StopReason>) {
        let failed = matches!(reason, Some(StopReason::Error | StopReason::Aborted));
        // A prompt that came just after the turn's end has a turn of its own.
        self.busy = self.is_piped() && self.unread > 0 && !failed;
        self.turn_seen = false;
        self.abort_asked = false;
        self.troubled |= failed;
        if self.options.one_turn || (self.input_ended && !self.busy) {
            self.ending = Some(ConversationEnd::Idle(reason));
        }
    }

    fn take_finished(&mut self, (purpose, request, result): FinishedCall) -> Result<()> {
        let response = match result {
            Ok(response) => response,
            // A prompt has a key, so it can be sent again. An abort or an answer may mean something else by then.
            Err(CallError::Closed(_)) if purpose == CallPurpose::Prompt => {
                self.unanswered.push((purpose, request));
                return Ok(());
            }
            Err(CallError::Closed(_)) => {
                self.notice("the connection was lost before the answer came; try again");
                self.abort_asked = false;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if response.success {
            // A command of an extension may be done without any turn; then no idle will come.
            let disposition = response.data.as_ref().and_then(|data| data.get("disposition"));
            if purpose == CallPurpose::Prompt
                && !self.turn_seen
                && disposition.is_some_and(|word| word == "handled")
            {
                self.unread = self.unread.saturating_sub(1);
                self.turn_ended(None);
            }
            return Ok(());
        }
        self.troubled = true;
        if purpose == CallPurpose::Prompt {
            self.unread = self.unread.saturating_sub(1);
        }
        let error = session_refusal(self.attachment.session_id(), response);
        if purpose == CallPurpose::Prompt && self.options.one_turn {
            return Err(error);
        }
        self.notice_text(&error.to_human());
        if purpose == CallPurpose::Prompt && !self.turn_seen {
            self.busy = false;
            self.end_with_input();
        }
        Ok(())
    }

    fn take_line(&mut self, line: Option<String>) {
        let Some(line) = line else {
            self.input_ended = true;
            if self.options.interactive {
                if !self.options.one_turn {
                    self.ending = Some(ConversationEnd::Detached);
                }
            } else {
                self.end_with_input();
            }
            return;
        };
        // The line was typed as an answer to a question that somebody else has answered since; it must not become a
        // prompt.
        if let Some(text) = self.questions.take_overtaken(&line) {
            self.notice_text(&harmless(&text));
            return;
        }
        if self.questions.is_waiting() {
            match self.questions.answer(&line) {
                Ok(TypedAnswer::Answer(params)) => {
                    let request =
                        ClientRequest::session(self.attachment.session_id(), Command::InputResponse(*params));
                    self.send(CallPurpose::Answer, request);
                }
                Ok(TypedAnswer::Next(text)) => self.notice_text(&text),
                Err(text) => {
                    self.troubled = true;
                    self.notice_text(&text);
                }
            }
            return;
        }
        if line.trim().is_empty() {
            return;
        }
        if self.options.one_turn {
            let text = format!(
                "no question waits; steer the agent with `qd steer {} …`",
                self.attachment.session_id()
            );
            self.notice(&text);
        } else {
            self.prompt(line);
        }
    }

    /// Input from a pipe is over: nothing more will be said, so an idle agent is the end. Whether it is idle is known
    /// only when we are attached; an input that is over before that has still to see the conversation.
    fn end_with_input(&mut self) {
        if self.input_ended && self.attached_before && !self.busy && !self.options.one_turn {
            self.ending = Some(ConversationEnd::Idle(None));
        }
    }

    fn interrupt(&mut self) {
        self.renderer.end_line();
        // The second Ctrl-C leaves, so that an agent that does not obey cannot hold the terminal.
        if !self.busy || self.abort_asked {
            self.ending = Some(ConversationEnd::Detached);
            return;
        }
        self.abort_asked = true;
        self.notice("aborting the turn; Ctrl-C again leaves the session running");
        let request = ClientRequest::session(self.attachment.session_id(), Command::Abort(NoParams {}));
        self.send(CallPurpose::Abort, request);
    }

    fn send(&mut self, purpose: CallPurpose, request: ClientRequest) {
        let Some(client) = self.attachment.client().cloned() else {
            if purpose == CallPurpose::Prompt {
                self.unanswered.push((purpose, request));
            } else {
                self.notice("not sent: the connection is lost at the moment");
            }
            return;
        };
        // Beside the loop: the answer to a prompt may take as long as its turn, and events must be shown meanwhile.
        self.calls.spawn(async move {
            let result = client.call(&request).await;
            (purpose, request, result)
        });
    }

    fn asking(&self) -> AskingMode {
        AskingMode { interactive: self.options.interactive, style: self.output.error_style }
    }

    fn notice(&mut self, text: &str) {
        self.notice_text(&format!("{}\n", self.output.error_style.dim(&harmless(text))));
    }

    /// As [`Self::notice`], for text that is made for a terminal already.
    fn notice_text(&mut self, text: &str) {
        if self.output.json {
            self.output.note(text);
        } else if !text.is_empty() {
            self.renderer.aside(text);
        }
    }
}
