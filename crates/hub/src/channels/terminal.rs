//! `terminal`: a session whose program is a shell, seen as bytes. It is shared by whoever opens it, and goes on when
//! they leave; each gets the screen first, and again whenever it could not keep up.
//!
//! Input and resizing are commands of the session like any other, so permissions and the audit log apply to them. The
//! output has a form of its own: frames with bytes, made once for all watchers of a session.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use qd_core::record::{Record, SessionKind};
use qd_wire::channel::{ChannelScope, TerminalCommand, TerminalEvent};
use qd_wire::command_table::CommandName;
use qd_wire::data::{AttachData, SessionState};
use qd_wire::mux::{ServerFrame, TerminalClientFrame, TerminalFrame};
use qd_wire::run::{TERMINAL_HARNESS, TerminalSnapshot};
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::read_frame;
use crate::access::authenticate::random_text;
use crate::command::Command;
use crate::command::ask::{CommandAnswer, ask};
use crate::command::reply::server_frame;
use crate::connection::{ConnectionMail, HandlerContext, Mailbox};
use crate::hub::Hub;
use crate::sessions::published::PublishedEvents;
use crate::sessions::ring::{SubscriberView, Subscription, TakenEvents, TerminalChunk};
use crate::sessions::session::SessionEntry;

/// Terminals one connection has open at a time.
const TERMINALS_MAX: usize = 64;
const NAME_BYTES: usize = 8;

/// The terminals a connection watches. Their frames are made once in the ring of each session, for all who watch; here
/// is where this client is in them.
#[derive(Default)]
pub(crate) struct WatchedTerminals(Vec<WatchedTerminal>);

/// One of them.
struct WatchedTerminal {
    join: TerminalJoin,
    entry: Arc<SessionEntry>,
    /// `None` while the screen is asked for again, because the client has missed something.
    subscription: Option<Subscription>,
    is_lagged: bool,
}

/// A terminal was opened, or its screen has come again.
pub(crate) struct TerminalOpened {
    /// That it is open, and the whole screen.
    pub(crate) frames: Bytes,
    watched: WatchedTerminal,
}

impl WatchedTerminals {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Watches a terminal from its new place on.
    pub(crate) fn watch(&mut self, context: &mut HandlerContext<'_>, opened: TerminalOpened) {
        let TerminalOpened { frames, watched } = opened;
        let is_known = self.0.iter().any(|other| other.join.session_id == watched.join.session_id);
        if watched.join.is_again && !is_known {
            // The client has left meanwhile.
            return;
        }
        self.leave(&watched.join.session_id);
        context.send_queue.push(frames);
        self.0.push(watched);
    }

    /// The terminal goes on without this client.
    fn leave(&mut self, session_id: &str) {
        self.0.retain(|watched| watched.join.session_id != session_id);
    }

    /// Takes what is new on the screens, as far as there is room. Says whether that changed anything.
    pub(crate) fn take(&mut self, context: &mut HandlerContext<'_>) -> bool {
        let before = context.send_queue.bytes();
        let mut has_progress = false;
        self.0.retain_mut(|watched| {
            let (is_left, has_changed) = watched.take(context);
            has_progress |= has_changed;
            !is_left
        });
        if self.0.len() > 1 {
            // The next round starts with another one, so that a loud one does not silence the others.
            self.0.rotate_left(1);
        }
        has_progress || context.send_queue.bytes() > before
    }
}

impl WatchedTerminal {
    /// Takes what is new. Says whether the terminal is over, and whether its place has changed.
    fn take(&mut self, context: &mut HandlerContext<'_>) -> (bool, bool) {
        if self.is_lagged && context.send_queue.is_empty() {
            // The screen says all that was missed; joining again brings it.
            self.is_lagged = false;
            self.subscription = None;
            self.join.again().attach();
        }
        let Some(subscription) = self.subscription.as_mut().filter(|_| !self.is_lagged) else {
            return (false, false);
        };
        if !subscription.is_ready() {
            return (self.entry.is_over(), false);
        }
        if context.send_queue.is_full() {
            return (false, false);
        }
        match subscription.take(context.send_queue) {
            // Whoever has taken the last of a deleted session leaves in the next round.
            TakenEvents::All | TakenEvents::Some => (false, self.entry.is_over()),
            TakenEvents::Ended => (true, true),
            TakenEvents::Lagged => {
                self.is_lagged = true;
                (false, true)
            }
        }
    }
}

/// Acts on one frame of the channel.
pub(crate) fn handle(hub: &Arc<Hub>, mailbox: &Arc<Mailbox>, terminals: &mut WatchedTerminals, text: &str) {
    let TerminalClientFrame { id, place, command, .. } = match read_frame(text) {
        Ok(frame) => frame,
        Err((id, error)) => return mailbox.send(error_frame(id, None, error)),
    };
    let request = TerminalRequest { hub: Arc::clone(hub), mailbox: Arc::clone(mailbox), id };
    match command {
        TerminalCommand::Open { terminal_id, cols, rows } => {
            request.open(terminals, place, terminal_id, (cols, rows));
        }
        TerminalCommand::Input { terminal_id, data } => {
            let command = Command::new(CommandName::RunStdin).with("text", data).with("actor", "web");
            request.pass(terminal_id, command);
        }
        TerminalCommand::Resize { terminal_id, cols, rows } => {
            let command = Command::new(CommandName::RunResize).with("cols", cols).with("rows", rows);
            request.pass(terminal_id, command);
        }
        TerminalCommand::Close { terminal_id } => {
            request.pass(terminal_id, Command::new(CommandName::SessionClose));
        }
        TerminalCommand::Leave { terminal_id } => {
            terminals.leave(&terminal_id);
        }
    }
}

/// One frame's asker.
#[derive(Clone)]
struct TerminalRequest {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    id: Option<Value>,
}

impl TerminalRequest {
    fn fail(&self, terminal_id: Option<String>, error: CodedError) {
        self.mailbox.send(error_frame(self.id.clone(), terminal_id, error));
    }

    fn ask(self, command: Command<'_>, then: impl FnOnce(&Arc<Hub>, CommandAnswer) + Send + 'static) {
        ask(&self.hub, &self.mailbox.asker, command, then);
    }

    /// A command of which only a failure is told.
    fn pass(self, terminal_id: String, command: Command<'_>) {
        let command = command.on(terminal_id.clone());
        self.clone().ask(command, move |_, answer| {
            if !answer.success {
                self.fail(Some(terminal_id), answer.reason());
            }
        });
    }

    fn open(
        self,
        terminals: &WatchedTerminals,
        place: ChannelScope,
        terminal_id: Option<String>,
        size: (u16, u16),
    ) {
        if terminals.0.len() >= TERMINALS_MAX {
            let error = format!("This connection has {TERMINALS_MAX} terminals open, the most it may");
            return self.fail(terminal_id, ErrorCode::LimitReached.with(error));
        }
        let wanted = terminal_id.or_else(|| self.run_named(&place));
        if let Some(session) = wanted.as_deref().and_then(|wanted| self.hub.session(wanted)) {
            let session_id = session.id.to_string();
            return TerminalJoin { request: self, session_id, joined: true, is_again: false }.attach();
        }
        let Some(random) = random_text(NAME_BYTES) else {
            return self.fail(None, ErrorCode::Internal.with("The system gave no random bytes; try again"));
        };
        let session_id = wanted.unwrap_or_else(|| format!("terminal-{random}"));
        let join = TerminalJoin { request: self, session_id, joined: false, is_again: false };
        match place.session_id.filter(|_| place.workspace_path.is_none()) {
            Some(beside) => join.create_beside(&beside, size),
            None => join.create(place.workspace_path, place.runner_id, size),
        }
    }

    /// A run is a terminal too; of any other session the terminal is a new one beside it.
    fn run_named(&self, place: &ChannelScope) -> Option<String> {
        let session = self.hub.session(place.session_id.as_deref()?)?;
        (session.kind() == SessionKind::Terminal).then(|| session.id.to_string())
    }
}

/// Somebody on the way to a terminal.
struct TerminalJoin {
    request: TerminalRequest,
    session_id: String,
    /// Whether the terminal existed before this client asked for it.
    joined: bool,
    /// It was there, and has missed something.
    is_again: bool,
}

impl TerminalJoin {
    /// In the directory of another session, on its machine.
    fn create_beside(self, beside: &str, size: (u16, u16)) {
        let command = Command::new(CommandName::GetState).on(beside);
        self.request.clone().ask(command, move |_, answer| match answer.read::<SessionState>() {
            Ok(state) => self.create(state.cwd, Some(state.runner_id), size),
            Err(error) => self.request.fail(None, error),
        });
    }

    fn create(self, cwd: Option<String>, runner_id: Option<String>, size: (u16, u16)) {
        let mut config = json!({"harness": TERMINAL_HARNESS, "run": {"cols": size.0, "rows": size.1}});
        if let Some(cwd) = cwd {
            config["cwd"] = json!(cwd);
        }
        let command = Command::new(CommandName::SessionCreate).on(self.session_id.clone()).at_if(runner_id);
        let command = command.with("config", config);
        let mut join = self;
        join.request.clone().ask(command, move |hub, answer| {
            // Somebody else may have opened it in the meantime: it is one terminal for both.
            join.joined = !answer.success;
            if answer.success || hub.session(&join.session_id).is_some() {
                join.attach();
            } else {
                join.request.fail(Some(join.session_id.clone()), answer.reason());
            }
        });
    }

    /// Asks for the screen. The answer comes in the order of the session's events: what follows it is new.
    fn attach(self) {
        let command = Command::new(CommandName::SessionAttach).on(self.session_id.clone());
        self.request.clone().ask(command, move |hub, answer| {
            match snapshot_of(&answer).and_then(|snapshot| Ok((self.entry(hub)?, snapshot))) {
                Ok((entry, snapshot)) => self.follow(entry, &snapshot),
                Err(error) => self.request.fail(Some(self.session_id.clone()), error),
            }
        });
    }

    fn entry(&self, hub: &Hub) -> Result<Arc<SessionEntry>, CodedError> {
        hub.session(&self.session_id).ok_or_else(|| {
            ErrorCode::SessionNotFound.with(format!("Terminal {} has ended; open a new one", self.session_id))
        })
    }

    fn follow(self, entry: Arc<SessionEntry>, snapshot: &TerminalSnapshot) {
        let mailbox = Arc::clone(&self.request.mailbox);
        // What the snapshot shows already is skipped by its `seq`, or it would be printed twice.
        let view = SubscriberView::Terminal { seen: snapshot.seq };
        let subscription = Some(entry.ring.subscribe_as(view, Arc::clone(&mailbox)));
        let terminal_id = self.session_id.clone();
        let (cols, rows) = (snapshot.cols, snapshot.rows);
        let opened = TerminalEvent::Opened { terminal_id, cols, rows, joined: self.joined };
        let screen = [snapshot.scrollback.as_bytes(), snapshot.screen.as_bytes()].concat();
        let frames = [
            event_frame(self.request.id.clone(), opened),
            // `reset` makes the client clear its screen first; after a lag it still shows the old one.
            event_frame(None, output(&self.session_id, &screen, Some(true))),
        ];
        let watched = WatchedTerminal { join: self, entry, subscription, is_lagged: false };
        mailbox.put(ConnectionMail::Terminal(Box::new(TerminalOpened {
            frames: frames.concat().into(),
            watched,
        })));
    }

    /// The same for one who has missed something.
    fn again(&self) -> TerminalJoin {
        let (request, session_id) = (self.request.clone(), self.session_id.clone());
        TerminalJoin { request, session_id, joined: true, is_again: true }
    }
}

/// Records of a session as they change its screen.
pub(crate) fn show(published: PublishedEvents<'_>) -> TerminalChunk {
    let mut screen = ScreenFrames {
        terminal_id: &published.entry.id,
        out: BytesMut::new(),
        text: String::new(),
        is_end: false,
    };
    published.records().for_each(|record| screen.show(&record));
    screen.flush();
    TerminalChunk { frames: screen.out.freeze(), is_end: screen.is_end }
}

/// Frames for a screen, as they are collected.
struct ScreenFrames<'a> {
    terminal_id: &'a str,
    out: BytesMut,
    /// Output that is not in a frame yet.
    text: String,
    is_end: bool,
}

#[derive(Deserialize)]
struct TerminalOutput {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct TerminalSize {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

#[derive(Deserialize)]
struct TerminalExit {
    exit_code: Option<i32>,
    signal: Option<i32>,
}

impl ScreenFrames<'_> {
    fn show(&mut self, record: &Record<'_>) {
        match &*record.event {
            // Collected over records: programs print in small pieces, and one frame for all of them is cheaper.
            "run.output" => {
                if let Some(TerminalOutput { text }) = record.read() {
                    self.text.push_str(&text);
                }
            }
            "run.resized" => {
                if let Some(TerminalSize { cols, rows }) = record.read() {
                    let terminal_id = self.terminal_id.to_owned();
                    self.push(TerminalEvent::Resized { terminal_id, cols, rows });
                }
            }
            "run.exited" => {
                let exited = record.read::<TerminalExit>();
                let exit_code = exited.as_ref().and_then(|exited| exited.exit_code).unwrap_or(-1);
                let signal = exited.and_then(|exited| exited.signal);
                let terminal_id = self.terminal_id.to_owned();
                self.push(TerminalEvent::Exit { terminal_id, exit_code, signal });
                self.is_end = true;
            }
            _ => {}
        }
    }

    fn push(&mut self, event: TerminalEvent) {
        // Output before a resize was printed for the old size, so it goes first.
        self.flush();
        self.out.extend_from_slice(&event_frame(None, event));
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            let event = output(self.terminal_id, self.text.as_bytes(), None);
            self.text.clear();
            self.out.extend_from_slice(&event_frame(None, event));
        }
    }
}

fn output(terminal_id: &str, bytes: &[u8], reset: Option<bool>) -> TerminalEvent {
    let terminal_id = terminal_id.to_owned();
    TerminalEvent::Output { terminal_id, data_base64: STANDARD.encode(bytes), reset }
}

fn snapshot_of(answer: &CommandAnswer) -> Result<TerminalSnapshot, CodedError> {
    let attached: AttachData = answer.read()?;
    let snapshot = attached.terminal.map(|terminal| *terminal);
    snapshot
        .ok_or_else(|| ErrorCode::Unsupported.with("This session has no terminal, or its runner is offline"))
}

fn error_frame(id: Option<Value>, terminal_id: Option<String>, error: CodedError) -> Bytes {
    event_frame(id, TerminalEvent::Error { terminal_id, error: error.message, code: Some(error.code) })
}

fn event_frame(id: Option<Value>, event: TerminalEvent) -> Bytes {
    server_frame(&ServerFrame::Terminal(TerminalFrame { id, event }))
}
