//! `qd logs`.

use qd_link::client::{Attachment, MuxClient, Request, Start, Update};
use qd_wire::command::GetMessagesParams;
use qd_wire::data::MessagesData;
use qd_wire::message::Message;
use qd_wire::{Command, EventPayload};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::LogsArguments;
use crate::clock;
use crate::error::CliError;
use crate::output::Output;
use crate::render::Renderer;
use crate::server;
use crate::settings::Settings;

/// Messages asked for at one time.
const PAGE_MESSAGES: u64 = 200;

/// Shows the conversation so far, and with `-f` what follows.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: LogsArguments,
) -> Result<(), CliError> {
    let options = server::locate(settings)?;
    let (client, frames) = MuxClient::connect_with(&options).await?;
    let session_id = server::resolve_session(&client, arguments.session.as_deref()).await?;
    let mut view = View { output, renderer: Renderer::new(output.style) };
    if !arguments.follow {
        for message in history(&client, &session_id, arguments.last, None).await? {
            view.message(&message)?;
        }
        return Ok(());
    }
    let start = Start::Attach { session_id, after: None };
    let attachment =
        Attachment::open_on(options, client, frames, start, Box::new(clock::random_number)).await?;
    view.follow(attachment, arguments.last).await
}

/// The last `count` messages before `before`, oldest first.
async fn history(
    client: &MuxClient,
    session_id: &str,
    count: Option<u64>,
    mut before: Option<u64>,
) -> Result<Vec<Message>, CliError> {
    let mut pages: Vec<Vec<Message>> = Vec::new();
    let mut missing = count.unwrap_or(u64::MAX);
    while missing > 0 && before != Some(0) {
        let params = GetMessagesParams { before, limit: Some(PAGE_MESSAGES.min(missing)) };
        let page: MessagesData =
            client.query(&Request::session(session_id, Command::GetMessages(params))).await?;
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

struct View<'a> {
    output: &'a Output,
    renderer: Renderer,
}

impl View<'_> {
    async fn follow(mut self, mut attachment: Attachment, last: Option<u64>) -> Result<(), CliError> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut attached_before = false;
        loop {
            let update = tokio::select! {
                update = attachment.next() => update?,
                _ = interrupts.recv() => return Ok(()),
            };
            match update {
                Update::Attached(attach) => {
                    let newest = attach.messages.unwrap_or_default();
                    if !attached_before {
                        self.older(&attachment, &newest, last).await?;
                    }
                    attached_before = true;
                    let limit = usize::try_from(last.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
                    for message in &newest[newest.len().saturating_sub(limit)..] {
                        self.message(message)?;
                    }
                }
                Update::Event { event, frame } => {
                    if self.output.json {
                        match frame {
                            Some(frame) => self.output.out(&format!("{}\n", frame.text()))?,
                            None => self.output.json_line(&event)?,
                        }
                    } else if let EventPayload::Known(_) = &event.payload {
                        self.renderer.event(&event);
                        self.write()?;
                    }
                }
                Update::System(_) => {}
                Update::Disconnected { reason, .. } => {
                    self.output.note(&format!("connection lost ({reason})\n"))
                }
            }
        }
    }

    /// What the snapshot of the attach leaves out.
    async fn older(
        &mut self,
        attachment: &Attachment,
        newest: &[Message],
        last: Option<u64>,
    ) -> Result<(), CliError> {
        let Some(client) = attachment.client() else { return Ok(()) };
        let missing = last.map(|last| last.saturating_sub(newest.len() as u64));
        let Some(before) = newest.first().map(|message| message.idx) else { return Ok(()) };
        for message in history(client, attachment.session_id(), missing, Some(before)).await? {
            self.message(&message)?;
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), CliError> {
        if self.output.json {
            return self.output.json_line(message);
        }
        self.renderer.message(message);
        self.write()
    }

    fn write(&mut self) -> Result<(), CliError> {
        let rendered = self.renderer.take();
        if !rendered.err.is_empty() {
            self.output.out(&rendered.out)?;
            self.output.note(&rendered.err);
            return Ok(());
        }
        self.output.out(&rendered.out)
    }
}
