//! `terminal`: a session whose program is a shell, seen as bytes. It is shared by whoever opens it, and goes on when
//! they leave; each gets the screen first, and again whenever it could not keep up.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use qd_core::record::SessionKind;
use qd_wire::channel::{Place, TerminalCommand, TerminalEvent};
use qd_wire::data::AttachData;
use qd_wire::data::SessionState;
use qd_wire::mux::{ServerFrame, TerminalClientFrame, TerminalFrame};
use qd_wire::run::{TERMINAL_HARNESS, TerminalSnapshot};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::access::random_text;
use crate::ask::{Answered, Asker, ask};
use crate::connection::{Mail, Mailbox, Outgoing};
use crate::frame;
use crate::registry::{Hub, SessionEntry};
use crate::ring::{Subscription, Taken};

/// Terminals one connection has open at a time.
const TERMINALS_MAX: usize = 64;
/// Output that may wait for a client; the rest waits in the session's ring.
const BACKLOG_BYTES_MAX: usize = 256 << 10;
/// How often it is looked whether a slow client has taken something.
const ROOM_POLL: Duration = Duration::from_millis(5);
const NAME_BYTES: usize = 8;

/// The terminals a connection has open.
#[derive(Clone, Default)]
pub(crate) struct Terminals(Arc<Mutex<HashMap<String, CancellationToken>>>);

impl Terminals {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over; the terminals go on without it.
    pub(crate) fn end(&self) {
        for (_, left) in self.lock().drain() {
            left.cancel();
        }
    }
}

/// Acts on one frame of the channel.
pub(crate) fn handle(
    hub: &Arc<Hub>,
    mailbox: &Arc<Mailbox>,
    asker: &Asker,
    terminals: &Terminals,
    text: &str,
) {
    let TerminalClientFrame { id, place, command, .. } = match serde_json::from_str(text) {
        Ok(frame) => frame,
        Err(error) => {
            let id = serde_json::from_str::<Value>(text).ok().and_then(|value| value.get("id").cloned());
            let error = format!("The frame cannot be read: {error}");
            return mailbox.put(Mail::Frames(error_frame(id, None, &error)));
        }
    };
    let desk = Desk { hub: Arc::clone(hub), mailbox: Arc::clone(mailbox), asker: asker.clone(), id };
    match command {
        TerminalCommand::Open { terminal_id, cols, rows } => {
            desk.open(terminals, place, terminal_id, (cols, rows));
        }
        TerminalCommand::Input { terminal_id, data } => {
            let command =
                json!({"cmd": "run.stdin", "session_id": terminal_id, "text": data, "actor": "web"});
            desk.pass(terminal_id, &command);
        }
        TerminalCommand::Resize { terminal_id, cols, rows } => {
            let command = json!({"cmd": "run.resize", "session_id": terminal_id, "cols": cols, "rows": rows});
            desk.pass(terminal_id, &command);
        }
        TerminalCommand::Close { terminal_id } => {
            let command = json!({"cmd": "session.close", "session_id": terminal_id});
            desk.pass(terminal_id, &command);
        }
        TerminalCommand::Leave { terminal_id } => {
            if let Some(left) = terminals.lock().remove(&terminal_id) {
                left.cancel();
            }
        }
    }
}

/// One frame's asker.
#[derive(Clone)]
struct Desk {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
    asker: Asker,
    id: Option<Value>,
}

impl Desk {
    fn say(&self, id: Option<Value>, event: TerminalEvent) {
        self.mailbox.put(Mail::Frames(event_frame(id, event)));
    }

    fn fail(&self, terminal_id: Option<String>, error: &str) {
        self.mailbox.put(Mail::Frames(error_frame(self.id.clone(), terminal_id, error)));
    }

    /// A command of which only a failure is told.
    fn pass(&self, terminal_id: String, command: &Value) {
        let desk = self.clone();
        let on_answer = Box::new(move |_: &Arc<Hub>, answered: Answered| {
            if !answered.success {
                desk.fail(Some(terminal_id), &reason(&answered));
            }
        });
        ask(&self.hub, &self.asker, &command.to_string(), on_answer);
    }

    fn open(self, terminals: &Terminals, place: Place, terminal_id: Option<String>, size: (u16, u16)) {
        if terminals.lock().len() >= TERMINALS_MAX {
            let error = format!("This connection has {TERMINALS_MAX} terminals open, the most it may");
            return self.fail(terminal_id, &error);
        }
        let wanted = terminal_id.or_else(|| self.run_named(&place));
        if let Some(session) = wanted.as_deref().and_then(|wanted| self.hub.session(wanted)) {
            let join = Join {
                desk: self,
                terminals: terminals.clone(),
                session_id: session.id.to_string(),
                joined: true,
            };
            return join.attach();
        }
        let Some(random) = random_text(NAME_BYTES) else {
            return self.fail(None, "The system has no randomness; try again");
        };
        let session_id = wanted.unwrap_or_else(|| format!("terminal-{random}"));
        let join = Join { desk: self, terminals: terminals.clone(), session_id, joined: false };
        match place.session_id.filter(|_| place.workspace_path.is_none()) {
            Some(beside) => join.create_beside(&beside, size),
            None => join.create(place.workspace_path, place.runner_id, size),
        }
    }

    /// A run is a terminal too; of any other session the terminal is a new one beside it.
    fn run_named(&self, place: &Place) -> Option<String> {
        let session = self.hub.session(place.session_id.as_deref()?)?;
        (session.kind() == SessionKind::Terminal).then(|| session.id.to_string())
    }
}

/// Somebody on the way to a terminal.
struct Join {
    desk: Desk,
    terminals: Terminals,
    session_id: String,
    joined: bool,
}

impl Join {
    /// In the directory of another session, on its machine.
    fn create_beside(self, beside: &str, size: (u16, u16)) {
        let command = json!({"cmd": "get_state", "session_id": beside}).to_string();
        let (hub, asker) = (Arc::clone(&self.desk.hub), self.desk.asker.clone());
        let on_answer = Box::new(move |_: &Arc<Hub>, answered: Answered| {
            let text = answered.data.as_ref().map_or("null", |data| data.get());
            match serde_json::from_str::<SessionState>(text) {
                Ok(state) if answered.success => self.create(state.cwd, Some(state.runner_id), size),
                _ => self.desk.fail(None, &reason(&answered)),
            }
        });
        ask(&hub, &asker, &command, on_answer);
    }

    fn create(self, cwd: Option<String>, runner_id: Option<String>, size: (u16, u16)) {
        let mut config = json!({"harness": TERMINAL_HARNESS, "run": {"cols": size.0, "rows": size.1}});
        if let Some(cwd) = cwd {
            config["cwd"] = json!(cwd);
        }
        let mut command = json!({"cmd": "session.create", "session_id": self.session_id, "config": config});
        if let Some(runner_id) = runner_id {
            command["runner_id"] = json!(runner_id);
        }
        let (hub, asker) = (Arc::clone(&self.desk.hub), self.desk.asker.clone());
        let mut join = self;
        let on_answer = Box::new(move |hub: &Arc<Hub>, answered: Answered| {
            // Somebody else may have opened it in the meantime: it is one terminal for both.
            join.joined = !answered.success;
            if answered.success || hub.session(&join.session_id).is_some() {
                join.attach();
            } else {
                join.desk.fail(Some(join.session_id.clone()), &reason(&answered));
            }
        });
        ask(&hub, &asker, &command.to_string(), on_answer);
    }

    /// Asks for the screen. The answer comes in the order of the session's events: what follows it is new.
    fn attach(self) {
        let command = json!({"cmd": "session.attach", "session_id": self.session_id}).to_string();
        let (hub, asker) = (Arc::clone(&self.desk.hub), self.desk.asker.clone());
        let on_answer = Box::new(move |hub: &Arc<Hub>, answered: Answered| {
            match snapshot_of(&answered).and_then(|snapshot| Ok((self.entry(hub)?, snapshot))) {
                Ok((entry, snapshot)) => self.follow(entry, &snapshot),
                Err(error) => self.desk.fail(Some(self.session_id.clone()), &error),
            }
        });
        ask(&hub, &asker, &command, on_answer);
    }

    fn entry(&self, hub: &Hub) -> Result<Arc<SessionEntry>, String> {
        hub.session(&self.session_id).ok_or_else(|| format!("Terminal {} is gone", self.session_id))
    }

    fn follow(self, entry: Arc<SessionEntry>, snapshot: &TerminalSnapshot) {
        // A mailbox of its own: the ring wakes whoever reads from it.
        let signal = Mailbox::nobody();
        let subscription = entry.ring.subscribe(Arc::clone(&signal));
        let left = CancellationToken::new();
        if let Some(before) = self.terminals.lock().insert(self.session_id.clone(), left.clone()) {
            before.cancel();
        }
        let terminal_id = self.session_id.clone();
        let (cols, rows) = (snapshot.cols, snapshot.rows);
        let opened = TerminalEvent::Opened { terminal_id, cols, rows, joined: self.joined };
        self.desk.say(self.desk.id.clone(), opened);
        let seen = snapshot.seq;
        let follower = Follower { join: self, entry, signal, subscription, seen };
        follower.show(snapshot);
        let tasks = follower.join.desk.hub.tasks.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = left.cancelled() => {}
                () = follower.run() => {}
            }
        });
    }
}

/// Somebody who watches a terminal.
struct Follower {
    join: Join,
    entry: Arc<SessionEntry>,
    signal: Arc<Mailbox>,
    subscription: Subscription,
    /// The last record that is shown.
    seen: u64,
}

/// What is read of an event.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
    seq: Option<u64>,
    #[serde(borrow, default)]
    text: std::borrow::Cow<'a, str>,
    cols: Option<u16>,
    rows: Option<u16>,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

impl Follower {
    /// The whole screen, on an empty one.
    fn show(&self, snapshot: &TerminalSnapshot) {
        let bytes = [snapshot.scrollback.as_bytes(), snapshot.screen.as_bytes()].concat();
        self.output(&bytes, Some(true));
    }

    fn output(&self, bytes: &[u8], reset: Option<bool>) {
        let terminal_id = self.join.session_id.clone();
        let event = TerminalEvent::Output { terminal_id, data_base64: STANDARD.encode(bytes), reset };
        self.join.desk.say(None, event);
    }

    async fn run(mut self) {
        let mut out = Outgoing::default();
        loop {
            poll_fn(|cx| {
                self.signal.register(cx.waker());
                if self.subscription.is_ready() || self.entry.is_over() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            if self.join.desk.mailbox.is_closed() {
                return;
            }
            let taken = self.subscription.take(&mut out);
            let is_over = self.tell(&out.take_all());
            if is_over || (self.entry.is_over() && taken == Taken::All && !self.subscription.is_ready()) {
                self.join.terminals.lock().remove(&self.join.session_id);
                return;
            }
            if taken == Taken::Lagged {
                // The screen says all that was missed; joining anew brings it.
                return Join { joined: true, ..self.join }.attach();
            }
            while self.join.desk.mailbox.held_bytes() > BACKLOG_BYTES_MAX {
                tokio::time::sleep(ROOM_POLL).await;
            }
        }
    }

    /// Tells what frames of the session mean here; true when the terminal has ended.
    fn tell(&mut self, frames: &[Bytes]) -> bool {
        let mut bytes = Vec::new();
        let mut is_over = false;
        for mut rest in frames.iter().map(|frames| &frames[..]) {
            while let Some((frame, payload)) = frame::split_text(rest) {
                rest = &rest[frame.len()..];
                let Ok(shown) = serde_json::from_slice::<Shown<'_>>(payload) else { continue };
                let Some(seq) = shown.seq.filter(|seq| *seq > self.seen) else { continue };
                self.seen = seq;
                let terminal_id = self.join.session_id.clone();
                match &*shown.event {
                    "run.output" => bytes.extend_from_slice(shown.text.as_bytes()),
                    "run.resized" => {
                        self.flush(&mut bytes);
                        let (cols, rows) = (shown.cols.unwrap_or(0), shown.rows.unwrap_or(0));
                        self.join.desk.say(None, TerminalEvent::Resized { terminal_id, cols, rows });
                    }
                    "run.exited" => {
                        self.flush(&mut bytes);
                        let exit_code = shown.exit_code.unwrap_or(-1);
                        let event = TerminalEvent::Exit { terminal_id, exit_code, signal: shown.signal };
                        self.join.desk.say(None, event);
                        is_over = true;
                    }
                    _ => {}
                }
            }
        }
        self.flush(&mut bytes);
        is_over
    }

    fn flush(&self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.output(bytes, None);
            bytes.clear();
        }
    }
}

fn snapshot_of(answered: &Answered) -> Result<TerminalSnapshot, String> {
    if !answered.success {
        return Err(reason(answered));
    }
    let text = answered.data.as_ref().map_or("null", |data| data.get());
    let attached: AttachData =
        serde_json::from_str(text).map_err(|error| format!("The runner's answer cannot be read: {error}"))?;
    let snapshot = attached.terminal.map(|terminal| *terminal);
    snapshot.ok_or_else(|| "This session has no terminal, or its runner is away".to_owned())
}

fn reason(answered: &Answered) -> String {
    answered.error.clone().unwrap_or_else(|| "The runner gave no reason".to_owned())
}

fn error_frame(id: Option<Value>, terminal_id: Option<String>, error: &str) -> Bytes {
    event_frame(id, TerminalEvent::Error { terminal_id, error: error.to_owned() })
}

fn event_frame(id: Option<Value>, event: TerminalEvent) -> Bytes {
    match serde_json::to_vec(&ServerFrame::Terminal(TerminalFrame { id, event })) {
        Ok(text) => frame::text(&text),
        Err(error) => {
            tracing::error!(%error, "a frame of the terminal channel cannot be written");
            Bytes::new()
        }
    }
}
