//! `qd logs`.
//!
//! With `-f`, the snapshot of the attach has the newest messages only; what is older is asked for page by page,
//! backwards, until enough is there.

use qd_link::client::{AttachStart, Attachment, AttachmentUpdate, ClientRequest, Frame, MuxClient};
use qd_wire::command::GetMessagesParams;
use qd_wire::data::MessagesData;
use qd_wire::message::Message;
use qd_wire::run::is_terminal;
use qd_wire::{Command, Event, EventEnvelope, EventPayload, InputRequest};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::LogsArguments;
use crate::client::connection;
use crate::client::questions;
use crate::client::terminal;
use crate::error::Result;
use crate::output::render::Renderer;
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Messages asked for at one time.
const PAGE_MESSAGES: u64 = 200;

/// Shows the conversation so far, and with `-f` what follows.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: LogsArguments) -> Result<()> {
    let (connection, session_id) =
        connection::connect_to(settings, output, arguments.session.as_deref()).await?;
    if is_terminal(&connection.session_state(&session_id).await?.harness) {
        let attachment = connection.attach(AttachStart::Attach { session_id, after: Some(0) }).await?;
        return terminal::print_run(output, attachment, arguments.follow).await;
    }
    let mut view = LogView { output, renderer: output.renderer(), shown_questions: Vec::new() };
    if !arguments.follow {
        let messages = history(&connection.client, &session_id, arguments.last, None).await?;
        let is_cut = arguments.last.is_none() && messages.first().is_some_and(|first| first.idx > 0);
        // A runner alone answers from the records it still has, so its history may begin in the middle.
        if is_cut && connection.is_local() {
            output.note("older messages are only at the hub\n");
        }
        for message in messages {
            view.message(&message)?;
        }
        if !output.json {
            let pending = connection.session_state(&session_id).await?.pending_input;
            output.out(&questions::questions_text(&pending, &session_id, output.style))?;
        }
        return Ok(());
    }
    let attachment = connection.attach(AttachStart::Attach { session_id, after: None }).await?;
    view.follow(attachment, arguments.last).await
}

/// The last `count` messages before `before`, oldest first.
async fn history(
    client: &MuxClient,
    session_id: &str,
    count: Option<u64>,
    mut before: Option<u64>,
) -> Result<Vec<Message>> {
    let mut pages: Vec<Vec<Message>> = Vec::new();
    let mut missing = count.unwrap_or(u64::MAX);
    // Pages come newest first, so reading stops as soon as enough is there.
    while missing > 0 && before != Some(0) {
        let params = GetMessagesParams { before, limit: Some(PAGE_MESSAGES.min(missing)) };
        let page: MessagesData =
            client.query(&ClientRequest::session(session_id, Command::GetMessages(params))).await?;
        missing = missing.saturating_sub(page.messages.len() as u64);
        let finished = page.messages.is_empty() || page.before.is_none();
        before = page.before;
        pages.push(page.messages);
        if finished {
            break;
        }
    }
    Ok(pages.into_iter().rev().flatten().collect())
}

struct LogView<'a> {
    output: &'a Output,
    renderer: Renderer,
    /// Open questions on the screen; the server bounds how many a session may have.
    shown_questions: Vec<String>,
}

impl LogView<'_> {
    async fn follow(mut self, mut attachment: Attachment, last: Option<u64>) -> Result<()> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let (mut attached_before, mut lost) = (false, false);
        loop {
            let update = tokio::select! {
                update = attachment.next() => update?,
                _ = interrupts.recv() => return Ok(()),
            };
            match update {
                AttachmentUpdate::Attached(attach) => {
                    let newest = attach.messages.unwrap_or_default();
                    if !attached_before {
                        self.older(&attachment, &newest, last).await?;
                    }
                    for message in &newest[left_out(newest.len(), last, attached_before)..] {
                        self.message(message)?;
                    }
                    attached_before = true;
                    if std::mem::take(&mut lost) {
                        self.output.note("reconnected\n");
                    }
                    self.questions(&attach.pending_input, attachment.session_id())?;
                }
                AttachmentUpdate::Event { event, frame } => self.event(&event, frame.as_ref())?,
                AttachmentUpdate::System(_) => {}
                AttachmentUpdate::Disconnected { reason, .. } => {
                    self.renderer.end_line();
                    self.output.rendered(&mut self.renderer)?;
                    // One line for each outage; the tries in between are no news.
                    if !std::mem::replace(&mut lost, true) {
                        self.output.note(&format!("connection lost ({}); reconnecting\n", harmless(&reason)));
                    }
                }
            }
        }
    }

    fn event(&mut self, event: &EventEnvelope, frame: Option<&Frame>) -> Result<()> {
        if self.output.json {
            return self.output.event_line(event, frame);
        }
        let EventPayload::Known(known) = &event.payload else { return Ok(()) };
        self.renderer.event(event);
        self.output.rendered(&mut self.renderer)?;
        match known {
            Event::AgentInputNeeded { request } => {
                self.questions(std::slice::from_ref(request), &event.session_id)
            }
            Event::AgentInputResolved { request_id, user_id, answer, .. } => {
                self.shown_questions.retain(|shown| shown != request_id);
                if let Some(answer) = answer {
                    self.renderer.question_answer(user_id.as_deref(), answer);
                }
                self.output.rendered(&mut self.renderer)
            }
            _ => Ok(()),
        }
    }

    /// Shows the questions that are not on the screen yet.
    fn questions(&mut self, pending: &[InputRequest], session_id: &str) -> Result<()> {
        for request in pending {
            if self.output.json || self.shown_questions.iter().any(|shown| shown == request.request_id()) {
                continue;
            }
            self.shown_questions.push(request.request_id().to_owned());
            self.renderer.end_line();
            self.output.rendered(&mut self.renderer)?;
            self.output.out(&questions::questions_text(
                std::slice::from_ref(request),
                session_id,
                self.output.style,
            ))?;
        }
        Ok(())
    }

    /// What the snapshot of the attach leaves out.
    async fn older(&mut self, attachment: &Attachment, newest: &[Message], last: Option<u64>) -> Result<()> {
        let Some(client) = attachment.client() else { return Ok(()) };
        let missing = last.map(|last| last.saturating_sub(newest.len() as u64));
        let Some(before) = newest.first().map(|message| message.idx) else { return Ok(()) };
        for message in history(client, attachment.session_id(), missing, Some(before)).await? {
            self.message(&message)?;
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<()> {
        if self.output.json {
            return self.output.json_line(message);
        }
        self.renderer.message(message);
        self.output.rendered(&mut self.renderer)
    }
}

/// How many messages of a snapshot are not shown. The limit is of the history: what was missed while the connection
/// was lost is shown whole.
fn left_out(count: usize, last: Option<u64>, attached_before: bool) -> usize {
    let limit = last.filter(|_| !attached_before).and_then(|last| usize::try_from(last).ok());
    count.saturating_sub(limit.unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_of_the_history_and_not_of_what_was_missed() {
        assert_eq!(left_out(5, Some(2), false), 3);
        assert_eq!(left_out(5, Some(0), false), 5);
        assert_eq!(left_out(1, Some(2), false), 0);
        assert_eq!(left_out(5, None, false), 0);
        assert_eq!(left_out(5, Some(2), true), 0);
    }
}
