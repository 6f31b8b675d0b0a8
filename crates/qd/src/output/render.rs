//! Events and messages as text for a terminal. Pure: what happened goes in, text comes out.
//!
//! Everything that an agent or a server wrote is made harmless here before it reaches a terminal: control characters
//! could otherwise move the cursor, change titles or hide text.

mod tool;

use std::collections::BTreeMap;

use qd_wire::event::NotifyLevel;
use qd_wire::message::{KnownPart, Message, Part, Role, StopReason};
use qd_wire::{Event, EventEnvelope, EventPayload};

use crate::output::{Style, duration, harmless, one_line};
use tool::RunningTools;

const NOTE_CHARACTERS_MAX: usize = 200;

/// Said below a message that no agent has shown to have read.
const INTERRUPTED: &str = "[interrupted: the agent stopped before it showed that it had read this; send it again if it still matters]";

/// Text for stdout and stderr, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) out: String,
    pub(crate) err: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Text,
    Thinking,
    Other,
}

/// What was written so far, as far as the next text depends on it.
pub(crate) struct Renderer {
    style: Style,
    error_style: Style,
    /// Only the answer's text.
    quiet: bool,
    /// Messages with a client id that begins so are ours; the person typed them here.
    own_client: Option<String>,
    section: Section,
    at_line_start: bool,
    /// Characters already shown of the message being generated, by content index.
    shown: BTreeMap<u32, usize>,
    shown_message: String,
    tools: RunningTools,
    rendered: Rendered,
}

impl Renderer {
    pub(crate) fn new(style: Style) -> Renderer {
        Renderer {
            style,
            error_style: style,
            quiet: false,
            own_client: None,
            section: Section::Other,
            at_line_start: true,
            shown: BTreeMap::new(),
            shown_message: String::new(),
            tools: RunningTools::default(),
            rendered: Rendered::default(),
        }
    }

    /// The style of what goes to stderr, where it differs.
    pub(crate) fn error_style(mut self, style: Style) -> Renderer {
        self.error_style = style;
        self
    }

    pub(crate) fn quiet(mut self, quiet: bool) -> Renderer {
        self.quiet = quiet;
        self
    }

    pub(crate) fn own_client(mut self, prefix: &str) -> Renderer {
        self.own_client = Some(prefix.to_owned());
        self
    }

    /// Takes what is to be written now.
    pub(crate) fn take(&mut self) -> Rendered {
        std::mem::take(&mut self.rendered)
    }

    /// One event as it happens.
    pub(crate) fn event(&mut self, envelope: &EventEnvelope) {
        let EventPayload::Known(event) = &envelope.payload else { return };
        match event {
            Event::TextDelta { message_id, delta, content_index, .. } => {
                self.count_shown(message_id, *content_index, delta);
                self.text(delta);
            }
            Event::ThinkingDelta { message_id, delta, content_index, .. } => {
                self.count_shown(message_id, *content_index, delta);
                self.thinking(delta);
            }
            Event::MessageEnd { message } => self.finished_message(message),
            Event::ToolStart { tool_call_id, name, input } => {
                self.tool_start(tool_call_id, name, input.as_ref(), Some(envelope.ts));
            }
            Event::ToolEnd { tool_call_id, name, output, is_error, duration_ms } => {
                let measured = self.tools.elapsed_ms(tool_call_id, envelope.ts);
                self.tool_end(tool_call_id, name, Some(output), *is_error, duration_ms.or(measured));
            }
            Event::AgentIdle { reason, .. } => self.idle(*reason),
            other => self.notice_of(other),
        }
    }

    /// One message of the past, whole.
    pub(crate) fn message(&mut self, message: &Message) {
        match message.role {
            Role::User => self.user(message),
            Role::Assistant => self.assistant(message, true),
            Role::Tool => self.tool_message(message),
            Role::System => self.note(&format!("[system] {}", message.flattened_text())),
        }
        self.end_line();
    }

    /// What somebody answered to a question of the agent, whole.
    pub(crate) fn question_answer(&mut self, user_id: Option<&str>, answer: &str) {
        if self.quiet {
            return;
        }
        self.note(&user_id.map_or_else(|| "answered:".to_owned(), |user| format!("answered by {user}:")));
        for line in harmless(answer).lines() {
            let line = self.style.bold(&format!("> {line}"));
            self.push_line(&line);
        }
    }

    /// A line of its own that is neither answer nor error.
    pub(crate) fn note(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        self.end_line();
        let line = self.style.dim(&one_line(text, NOTE_CHARACTERS_MAX));
        self.push_line(&line);
    }

    /// A line on stderr.
    pub(crate) fn error(&mut self, text: &str) {
        self.end_line();
        let text = harmless(text);
        let line = format!("{} {}\n", self.error_style.red("error:"), text.trim_end());
        self.rendered.err.push_str(&line);
    }

    /// Text for stderr that is made for a terminal already.
    pub(crate) fn aside(&mut self, text: &str) {
        self.end_line();
        self.rendered.err.push_str(text);
    }

    /// Ends the line that is open, if any.
    pub(crate) fn end_line(&mut self) {
        if !self.at_line_start {
            self.rendered.out.push('\n');
            self.at_line_start = true;
        }
        // Whatever comes next is not the result of the tool whose line was open.
        self.tools.close_line();
        self.section = Section::Other;
    }

    fn text(&mut self, delta: &str) {
        self.enter(Section::Text);
        self.push(&harmless(delta));
    }

    fn thinking(&mut self, delta: &str) {
        if self.quiet || delta.is_empty() {
            return;
        }
        self.enter(Section::Thinking);
        let text = harmless(delta);
        let ends_line = text.ends_with('\n');
        let styled = self.style.dim(&text);
        self.push(&styled);
        self.at_line_start = ends_line;
    }

    fn enter(&mut self, section: Section) {
        if self.section != section {
            self.end_line();
            self.section = section;
        }
    }

    fn push(&mut self, text: &str) {
        if let Some(last) = text.chars().next_back() {
            self.rendered.out.push_str(text);
            self.at_line_start = last == '\n';
        }
    }

    fn push_line(&mut self, line: &str) {
        self.rendered.out.push_str(line);
        self.rendered.out.push('\n');
        self.at_line_start = true;
    }

    /// Notes how much of a message was streamed. Deltas may be lost, and the finished message fills in the rest.
    fn count_shown(&mut self, message_id: &str, index: u32, delta: &str) {
        if self.shown_message != message_id {
            self.shown_message = message_id.to_owned();
            self.shown.clear();
        }
        *self.shown.entry(index).or_insert(0) += delta.chars().count();
    }

    /// The end of a message that was streamed, wholly or in part.
    fn finished_message(&mut self, message: &Message) {
        match message.role {
            Role::User => {
                let own = match (&self.own_client, &message.client_id) {
                    (Some(prefix), Some(client_id)) => client_id.starts_with(prefix.as_str()),
                    _ => false,
                };
                if !own {
                    self.user(message);
                } else if message.interrupted == Some(true) {
                    self.note(INTERRUPTED);
                }
            }
            Role::Assistant => self.assistant(message, false),
            // The tool's end said it already.
            Role::Tool => {}
            Role::System => self.note(&format!("[system] {}", message.flattened_text())),
        }
    }

    fn user(&mut self, message: &Message) {
        if self.quiet {
            return;
        }
        self.end_line();
        for line in harmless(&message.flattened_text()).lines() {
            let line = self.style.bold(&format!("> {line}"));
            self.push_line(&line);
        }
        if message.interrupted == Some(true) {
            self.note(INTERRUPTED);
        }
    }

    fn assistant(&mut self, message: &Message, past: bool) {
        let shown =
            if self.shown_message == message.id { std::mem::take(&mut self.shown) } else { BTreeMap::new() };
        for (index, part) in message.parts.iter().enumerate() {
            let seen = u32::try_from(index).ok().and_then(|index| shown.get(&index)).copied().unwrap_or(0);
            let Part::Known(part) = part else { continue };
            match part {
                KnownPart::Text { text, .. } => {
                    let rest: String = text.chars().skip(seen).collect();
                    if !rest.is_empty() {
                        self.text(&rest);
                    }
                }
                KnownPart::Thinking { text, .. } => {
                    let rest: String = text.chars().skip(seen).collect();
                    self.thinking(&rest);
                }
                // A live tool call was shown when it started.
                KnownPart::ToolCall { tool_call_id, name, input, .. } if past => {
                    self.tool_start(tool_call_id, name, input.as_ref(), None);
                }
                _ => {}
            }
        }
        if past && message.stop_reason == Some(StopReason::Error) {
            let reason = message.metadata.as_ref().and_then(|metadata| metadata.get("error")?.as_str());
            self.error(reason.unwrap_or("the answer failed"));
        }
        if past && message.stop_reason == Some(StopReason::Aborted) {
            self.note("aborted");
        }
    }

    fn idle(&mut self, reason: Option<StopReason>) {
        self.end_line();
        match reason {
            Some(StopReason::Aborted) => self.note("aborted"),
            Some(StopReason::Length) => self.note("the answer was cut: the model's limit is reached"),
            Some(StopReason::Error | StopReason::Stop | StopReason::ToolUse) | None => {}
        }
    }

    fn notice_of(&mut self, event: &Event) {
        match event {
            Event::AgentError { error, .. } => self.error(error),
            Event::Notify { level: NotifyLevel::Error, message } => self.error(message),
            Event::Notify { level: NotifyLevel::Warning, message } => {
                self.note(&format!("warning: {message}"))
            }
            Event::Notify { level: NotifyLevel::Info, message } => self.note(message),
            Event::RetryStart { attempt, max_attempts, delay_ms, error } => {
                self.note(&format!("retry {attempt}/{max_attempts} in {}: {error}", duration(*delay_ms)))
            }
            Event::RetryEnd { success: false, final_error: Some(error), .. } => {
                self.note(&format!("gave up retrying: {error}"));
            }
            Event::CompactStart { reason } => self.note(&format!("compacting the conversation ({reason})")),
            Event::CompactEnd { success: false, error, .. } => {
                let reason = error.as_deref().unwrap_or("no reason given");
                self.note(&format!("compaction failed: {reason}"));
            }
            Event::ModelChanged { provider, model_id } => self.note(&format!("model: {provider}/{model_id}")),
            Event::ThinkingLevelChanged { level } => self.note(&format!("thinking level: {level}")),
            Event::SessionTitleChanged { title } => self.note(&format!("title: {title}")),
            Event::SessionBranchChanged { branch: Some(branch) } => self.note(&format!("branch: {branch}")),
            Event::SessionNativeChanged { .. } => self.note("the agent moved to another conversation"),
            Event::SessionClosed { reason } => {
                self.note(&format!(
                    "session closed{}",
                    reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()
                ));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "render/tests.rs"]
mod tests;
