//! One app's connection in the run protocol: subscriptions, commands, and pages of the log for an app that is behind.
//! Translating is the work of `core/view/run`; here is only what needs a connection, the hub or the store.
//!
//! An app follows all runs through one feed. One that falls behind does not hold the feed back: it reads what it
//! missed from the log, a page at a time, and joins the feed again where the pages end.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_core::record::Record;
use qd_core::view::run::answer as view;
use qd_core::view::run::request::{self, AppRequest, CommandTarget, RunCommand, RunRefusal, RunSubscription};
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::StoreError;
use qd_wire::run_protocol::MessageDirection;
use qd_wire::{CodedError, ErrorCode, JsonObject, command_table};
use tokio::time::Duration;

use super::RunFrames;
use super::feed::{FeedSubscription, MissingEvents, SUBSCRIPTIONS_MAX};
use crate::access::principals::Principal;
use crate::command::ask::{CommandAnswer, CommandSender, ask, cancel_asked};
use crate::command::{self, Command as CanonicalCommand, ReadyCommand};
use crate::connection::{ConnectionHandler, ConnectionMail, HandlerContext, Mailbox, StoreReadDone, frame};
use crate::hub::Hub;

/// One page of the log.
/// Both bounds together keep one page small, whether a run has many tiny records or a few large ones.
const PAGE_ROWS_MAX: usize = 1000;
const PAGE_BYTES_MAX: usize = 256 << 10;
/// A page that could not be read is tried again after this.
const RETRY: Duration = Duration::from_secs(2);

pub(super) const UNKNOWN_RUN: &str = "unknown run_id";
pub(super) const UNKNOWN_HOST: &str = "unknown host_id";
pub(super) const HOST_OFFLINE: &str = "host offline";
const HOST_LOST: &str = "host offline: it went away before it answered, and nobody knows what it has done";

/// Speaks the document with one app.
pub(super) struct AppHandler {
    hub: Arc<Hub>,
    number: u64,
    follower: FeedSubscription,
    calls: Arc<AppCalls>,
    /// The page that is being read, with its number.
    reading: Option<(u64, MissingEvents)>,
    last_reading: u64,
    /// The log could not be read; it is tried again later.
    is_pausing: bool,
}

/// What an app has asked for and waits for.
struct AppCalls {
    asker: CommandSender,
    mailbox: Arc<Mailbox>,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    last: u64,
    /// Services that are taken back when the app goes. Gated ones are not: who approves them may be somebody else.
    open: HashMap<u64, Option<u64>>,
}

impl AppHandler {
    /// Follows all runs from now on. `None` when nobody is let in.
    pub(super) fn new(hub: &Arc<Hub>, principal: &Principal) -> Option<(Self, Arc<Mailbox>)> {
        let (limits, face) = (&hub.config.limits, &hub.faces.run);
        let added = face.connections.add("a", principal, limits.connections_max, limits.mail_bounds());
        let (number, mailbox) = added.ok()?;
        let asker = mailbox.asker.clone();
        let calls = AppCalls { asker, mailbox: Arc::clone(&mailbox), state: Mutex::default() };
        let handler = Self {
            hub: Arc::clone(hub),
            number,
            follower: face.feed.join(Arc::clone(&mailbox)),
            calls: Arc::new(calls),
            reading: None,
            last_reading: 0,
            is_pausing: false,
        };
        Some((handler, mailbox))
    }

    fn act(&mut self, context: &mut HandlerContext<'_>, text: &str) -> Result<(), RunRefusal> {
        match request::read(text)? {
            AppRequest::Ignored => {}
            AppRequest::Subscribe(subscribe) => self.subscribe(context.hub, &subscribe)?,
            AppRequest::Unsubscribe(run_id) => {
                self.follower.change_filter(|filter| filter.remove(run_id.as_deref()));
            }
            AppRequest::Command(command) => self.command(context, *command)?,
        }
        Ok(())
    }

    fn subscribe(&self, hub: &Hub, subscribe: &RunSubscription) -> Result<(), RunRefusal> {
        let refusal = |error: CodedError| RunRefusal {
            error: Box::new(error),
            about: Some("run.subscribe".to_owned()),
            run_id: Some(subscribe.run_id.clone()),
            request_id: None,
            input_id: None,
        };
        let entry = hub.session(&subscribe.run_id).ok_or_else(|| refusal(unknown_run()))?;
        let RunSubscription { include_output, replace, since_seq, .. } = *subscribe;
        let added = self.follower.change_filter(|filter| filter.add(&entry.id, include_output, replace));
        if added == Some(false) {
            return Err(refusal(ErrorCode::LimitReached.with(format!(
                "a connection may have {SUBSCRIPTIONS_MAX} subscriptions; unsubscribe from one first"
            ))));
        }
        if let Some(since_seq) = since_seq {
            self.follower.replay(&entry, since_seq);
        }
        Ok(())
    }

    fn command(&self, context: &HandlerContext<'_>, command: RunCommand) -> Result<(), RunRefusal> {
        let hub = context.hub;
        let (ready, runner_id) =
            prepare(hub, &self.calls.asker, &command).map_err(|error| command.refusal(error))?;
        let in_flight_max = hub.config.limits.in_flight_max;
        if !context.mailbox.try_begin_command(in_flight_max, false) {
            let error = format!("too many commands in flight on this connection (max {in_flight_max})");
            return Err(command.refusal(ErrorCode::TooManyInFlight.with(error)));
        }
        send(hub, &self.calls, command, ready, runner_id);
        Ok(())
    }

    /// Reads the next page of the log for a run in which the app is behind.
    fn start_reading(&mut self, context: &HandlerContext<'_>) {
        if self.reading.is_some() || self.is_pausing || context.send_queue.is_full() {
            return;
        }
        let Some(missing) = self.follower.missing() else { return };
        self.last_reading += 1;
        let generation = self.last_reading;
        let (hub, mailbox) = (Arc::clone(context.hub), Arc::clone(context.mailbox));
        let (entry, after, turn) = (Arc::clone(&missing.entry), missing.after, missing.turn);
        let wanted = MissingEvents { entry, after, turn, filter: missing.filter.clone() };
        self.reading = Some((generation, missing));
        context.hub.tasks.spawn(async move {
            let done = match page(&hub, &wanted).await {
                // An empty page has nothing that could be between two numbers.
                Ok(LogPage { frames, next, is_end }) => {
                    let until = if is_end { next } else { u64::MAX };
                    StoreReadDone::Replayed { generation, frames, next, until }
                }
                Err(error) => {
                    tracing::error!(session = %wanted.entry.id, %error, "an app cannot be told what it missed");
                    StoreReadDone::Failed { generation, after: wanted.after }
                }
            };
            mailbox.put(ConnectionMail::StoreReadDone(Box::new(done)));
        });
    }

    fn on_page(&mut self, context: &mut HandlerContext<'_>, done: StoreReadDone) {
        let generation = match &done {
            StoreReadDone::Replayed { generation, .. } | StoreReadDone::Failed { generation, .. } => {
                *generation
            }
            StoreReadDone::Frames(_) | StoreReadDone::ReadFailed { .. } | StoreReadDone::Attached(_) => {
                return;
            }
        };
        let Some((_, missing)) = self.reading.take_if(|(number, _)| *number == generation) else { return };
        if let StoreReadDone::Replayed { frames, next, until, .. } = done {
            if self.follower.has_read(&missing, next, next == until) {
                context.send_queue.push(frames);
            }
            return;
        }
        // The app stays where it is and reads the same page again later; a store that is busy is no reason to skip
        // events.
        self.is_pausing = true;
        // Weak, so that a connection that ends meanwhile is not kept in memory by its own timer.
        let mailbox = Arc::downgrade(context.mailbox);
        tokio::spawn(async move {
            tokio::time::sleep(RETRY).await;
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.put(ConnectionMail::ResyncNow { generation });
            }
        });
    }
}

impl ConnectionHandler for AppHandler {
    const TAKES_BINARY: bool = true;

    fn message_bytes_max(hub: &Hub) -> usize {
        hub.config.limits.message_bytes_max
    }

    /// The document has no greeting.
    fn greet(&mut self, _context: &mut HandlerContext<'_>) {}

    fn on_text(&mut self, context: &mut HandlerContext<'_>, text: &str) {
        if let Err(refusal) = self.act(context, text) {
            context.send_queue.push(text_frame(&view::refused(now_ms(), &refusal)));
        }
    }

    fn complaint(&self, error: &str) -> Bytes {
        text_frame(&view::complaint(now_ms(), &CodedError::invalid(error)))
    }

    fn take_events(&mut self, context: &mut HandlerContext<'_>) -> bool {
        self.follower.take(context.send_queue)
    }

    fn on_mail(&mut self, context: &mut HandlerContext<'_>, mail: ConnectionMail) {
        match mail {
            ConnectionMail::StoreReadDone(done) => self.on_page(context, *done),
            ConnectionMail::ResyncNow { .. } => self.is_pausing = false,
            // The connection has dealt with them, or they are of other speakers.
            ConnectionMail::Frames(_)
            | ConnectionMail::Pieces(_)
            | ConnectionMail::Attached(_)
            | ConnectionMail::Run(_)
            | ConnectionMail::Terminal(_)
            | ConnectionMail::ResyncFailed { .. }
            | ConnectionMail::Close { .. } => {}
        }
    }

    // A page that was read, or the end of a pause, lets the next one begin.
    fn after_mail(&mut self, context: &mut HandlerContext<'_>) {
        self.start_reading(context);
    }
}

impl Drop for AppHandler {
    fn drop(&mut self) {
        self.hub.faces.run.connections.remove(self.number);
        // Collected before any is cancelled: cancelling answers, and the answer takes the same lock.
        let open: Vec<u64> = self.calls.state.lock().open.drain().filter_map(|(_, number)| number).collect();
        open.into_iter().for_each(|number| cancel_asked(&self.hub, number));
    }
}

impl AppCalls {
    /// Taken before the command is sent: its answer may come on another thread before `send_ready` returns, and then
    /// finds the ticket to end.
    fn begin_call(&self) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let ticket = state.last;
        state.open.insert(ticket, None);
        ticket
    }

    fn end(&self, ticket: u64) {
        self.state.lock().open.remove(&ticket);
    }
}

/// A page in the document's words, and how far it goes.
struct LogPage {
    frames: Bytes,
    next: u64,
    /// There is no more in the log.
    is_end: bool,
}

/// Reads what comes next: one page at a time, and only while the app takes what it gets.
async fn page(hub: &Hub, missing: &MissingEvents) -> Result<LogPage, StoreError> {
    let MissingEvents { entry, after, filter, .. } = missing;
    if entry.is_over() {
        // It was deleted, and who has its name now is another.
        return Ok(LogPage { frames: Bytes::new(), next: *after, is_end: true });
    }
    let rows = hub.store.records_after(&entry.id, *after, PAGE_ROWS_MAX, PAGE_BYTES_MAX).await?;
    let mut events = RunFrames::with_capacity(rows.iter().map(|(_, body)| body.len()).sum());
    for (_, body) in &rows {
        if let Some(record) = std::str::from_utf8(body).ok().and_then(Record::parse) {
            events.push(entry.kind(), &record);
        }
    }
    let frames = events.into_frames(|class| filter.wants(&entry.id, class));
    let next = rows.last().map_or(*after, |(seq, _)| *seq);
    Ok(LogPage { frames, next, is_end: rows.is_empty() })
}

/// A command that its runner can be asked now; what speaks against it is told in the words of the document.
pub(super) fn prepare(
    hub: &Hub,
    asker: &CommandSender,
    command: &RunCommand,
) -> Result<(ReadyCommand<'static>, Arc<str>), CodedError> {
    let canonical = canonical(hub, command, command.parameters.clone())?;
    let ready = command::prepare(hub, asker, canonical).map_err(in_documents_words)?;
    let runner_id = ready.runner_id().map(Arc::clone);
    Ok((ready, runner_id.ok_or_else(|| ErrorCode::Unsupported.with("unknown type"))?))
}

/// The canonical command with these parameters and the address of `command`.
fn canonical(
    hub: &Hub,
    command: &RunCommand,
    parameters: JsonObject,
) -> Result<CanonicalCommand<'static>, CodedError> {
    let spec = command_table::spec(command.canonical())
        .ok_or_else(|| ErrorCode::UnknownCommand.with("unknown type"))?;
    let canonical = CanonicalCommand::of(spec).called(command.spec.name).with_all(parameters);
    let runner_id = match &command.to {
        CommandTarget::Run(run_id) => {
            return Ok(canonical.on_session(&hub.session(run_id).ok_or_else(unknown_run)?));
        }
        CommandTarget::HostOfRun(run_id) => {
            hub.session(run_id).ok_or_else(unknown_run)?.runner_id.to_string()
        }
        CommandTarget::Host(host_id) => host_id.clone(),
    };
    // A session that is to be is named by its runner.
    let canonical = if command.creates_session() { canonical } else { canonical.on_system() };
    Ok(canonical.at(runner_id))
}

fn unknown_run() -> CodedError {
    ErrorCode::SessionNotFound.with(UNKNOWN_RUN)
}

#[allow(clippy::wildcard_enum_match_arm)] // The document has no other words of its own.
fn in_documents_words(error: CodedError) -> CodedError {
    match error.code {
        ErrorCode::SessionNotFound => unknown_run(),
        ErrorCode::RunnerNotFound => ErrorCode::RunnerNotFound.with(UNKNOWN_HOST),
        ErrorCode::RunnerOffline => ErrorCode::RunnerOffline.with(HOST_OFFLINE),
        _ => error,
    }
}

/// Asks the runner; what it answers goes to this app alone.
fn send(
    hub: &Arc<Hub>,
    calls: &Arc<AppCalls>,
    command: RunCommand,
    ready: ReadyCommand<'_>,
    runner_id: Arc<str>,
) {
    let ticket = calls.begin_call();
    let is_gated = command.spec.gated;
    let on_answer = {
        let calls = Arc::clone(calls);
        Box::new(move |hub: &Arc<Hub>, answer: CommandAnswer| {
            calls.end(ticket);
            on_answer(hub, &calls, &command, &runner_id, answer);
        })
    };
    let number = command::send_ready(hub, &calls.asker, ready, on_answer);
    // A ticket that is gone was answered already; noting its number would leave it open for ever.
    if let Some(place) = calls.state.lock().open.get_mut(&ticket) {
        *place = number.filter(|_| !is_gated);
    }
}

fn on_answer(
    hub: &Arc<Hub>,
    calls: &Arc<AppCalls>,
    command: &RunCommand,
    runner_id: &Arc<str>,
    answered: CommandAnswer,
) {
    if command.spec.way == MessageDirection::Rpc {
        let answer = view::RunAnswer {
            success: answered.success,
            data: answered.data.as_ref().map(|data| data.get()),
            error: if answered.link_lost { Some(HOST_LOST) } else { answered.error.as_deref() },
            code: answered.code,
            session_id: answered.session_id.as_deref(),
            runner_id: Some(runner_id),
        };
        return finish(calls, Some(view::response(now_ms(), command, &answer)));
    }
    if answered.success {
        return finish(calls, None);
    }
    let error = answered.reason();
    let error = if answered.link_lost { error.code.with(HOST_LOST) } else { error };
    let refused = text_of_refusal(command, error);
    // A question that is no yes or no cannot be denied, only left unanswered. If that fails too, the app is told why
    // the denial failed.
    let other = command.otherwise.clone().and_then(|other| canonical(hub, command, other).ok());
    let Some(other) = other else { return finish(calls, Some(refused)) };
    let last = Arc::clone(calls);
    ask(hub, &calls.asker, other, move |_, answer| {
        finish(&last, (!answer.success).then_some(refused));
    });
}

fn text_of_refusal(command: &RunCommand, error: CodedError) -> String {
    view::refused(now_ms(), &command.refusal(error))
}

fn finish(calls: &AppCalls, text: Option<String>) {
    calls.mailbox.end_command(false);
    if let Some(text) = text {
        calls.mailbox.send(text_frame(&text));
    }
}

fn text_frame(text: &str) -> Bytes {
    frame::text(text.as_bytes())
}
