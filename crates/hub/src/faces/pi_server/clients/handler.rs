//! One client's connection in the pi-server protocol: from a frame to a submission. What becomes of it is decided by
//! `core/view/pi_server/admission` and done in `commands`.

use std::sync::Arc;

use bytes::Bytes;
use qd_core::view::pi_server::admission::PiServerSubmission;
use qd_core::view::pi_server::request::{self, PiServerRequest};
use qd_link::clock::now_ms;
use qd_wire::command_table::Lane;
use qd_wire::pi_server::{Command, PROTOCOL_VERSION, ServerReady};
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access::principals::Principal;
use crate::connection::{ConnectionHandler, HandlerContext, Mailbox};
use crate::faces::pi_server::PiServer;
use crate::faces::pi_server::clients::client::{PiClient, caught_up_bytes_max};
use crate::faces::pi_server::commands::lifecycle::{self, CommandHeading};
use crate::faces::pi_server::commands::pending_commands::CommandJob;
use crate::faces::pi_server::counters::PiCounters;
use crate::hub::Hub;

/// A message that is greater than the bound is refused and the connection stays; one that is so many times greater
/// is not even read.
const MESSAGE_FACTOR_MAX: usize = 10;
const SHUTTING_DOWN: &str = "Server is shutting down";
const REVOKED: &str = "Access token revoked";
/// An `id` of a message that is too great is repeated up to this.
const ECHOED_ID_BYTES_MAX: usize = 1024;

/// Speaks the document on one connection.
pub(crate) struct PiHandler {
    number: u64,
    client: Arc<PiClient>,
}

impl PiHandler {
    /// `is_stdio` is for the connection that carries the standard input and output of the process.
    pub(crate) fn new(
        hub: &Hub,
        principal: &Principal,
        (number, mailbox): (u64, &Arc<Mailbox>),
        is_stdio: bool,
    ) -> Self {
        let place = if is_stdio { "transport" } else { "connection" };
        let backlog_bytes_max = hub.faces.pi_server.config.backlog_bytes_max;
        Self { number, client: PiClient::new(principal, Arc::clone(mailbox), place, backlog_bytes_max) }
    }
}

impl ConnectionHandler for PiHandler {
    const TAKES_BINARY: bool = true;

    fn message_bytes_max(hub: &Hub) -> usize {
        hub.faces.pi_server.config.message_bytes_max.saturating_mul(MESSAGE_FACTOR_MAX)
    }

    fn greet(&mut self, context: &mut HandlerContext<'_>) {
        let server = &context.hub.faces.pi_server;
        context.send_queue.push(server.ready.clone());
        // After the greeting is queued, so that no lifecycle message of a command comes before `server_ready`.
        server.pending.lock().add_client(Arc::clone(&self.client));
    }

    fn on_text(&mut self, context: &mut HandlerContext<'_>, text: &str) {
        context.hub.faces.pi_server.take(context.hub, &self.client, text);
    }

    fn complaint(&self, error: &str) -> Bytes {
        lifecycle::refusal(None, "unknown", &CodedError::invalid(error))
    }

    fn drained_bytes_max(hub: &Hub) -> usize {
        caught_up_bytes_max(hub.faces.pi_server.config.backlog_bytes_max)
    }

    fn drained(&mut self, context: &mut HandlerContext<'_>) {
        context.hub.faces.pi_server.drained(context.hub, &self.client);
    }

    fn on_end(&mut self, hub: &Hub) {
        hub.faces.pi_server.pending.lock().remove_client(&self.client);
        hub.faces.pi_server.followers.remove_client(hub, &self.client);
        hub.faces.pi_server.connections.open.remove(self.number);
    }
}

/// Says nothing: for a connection that is one too many and closes at once.
pub(crate) struct RejectingHandler;

impl ConnectionHandler for RejectingHandler {
    const TAKES_BINARY: bool = true;

    fn message_bytes_max(_hub: &Hub) -> usize {
        0
    }

    fn greet(&mut self, _context: &mut HandlerContext<'_>) {}

    fn on_text(&mut self, _context: &mut HandlerContext<'_>, _text: &str) {}

    fn complaint(&self, _error: &str) -> Bytes {
        Bytes::new()
    }

    fn on_end(&mut self, hub: &Hub) {
        hub.faces.pi_server.connections.note_turned_away_gone();
    }
}

/// The `id` of a message that is not read otherwise.
fn id_of(text: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct MessageId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let id = serde_json::from_str::<MessageId<'_>>(text).ok()?.id?;
    let is_short = id.get().len() <= ECHOED_ID_BYTES_MAX;
    is_short.then(|| serde_json::from_str(id.get()).ok()).flatten()
}

/// The first frame of every connection.
pub(crate) fn ready(server_version: &str, transports: &[String]) -> Bytes {
    let ready = ServerReady {
        server_version: server_version.to_owned(),
        protocol_version: PROTOCOL_VERSION.to_owned(),
        transports: transports.to_vec(),
    };
    lifecycle::message("server_ready", &lifecycle::json(&ready))
}

impl PiServer {
    /// One message of a client.
    fn take(&self, hub: &Arc<Hub>, client: &Arc<PiClient>, text: &str) {
        let max = self.config.message_bytes_max;
        if text.len() > max {
            PiCounters::count(&self.counters.message_size);
            let error = format!("Message size {} exceeds limit {max}", text.len());
            let error = ErrorCode::TooLarge.with(error).with_limit(max);
            return client.put(lifecycle::refusal(id_of(text).as_ref(), "unknown", &error));
        }
        // Read and checked before the pending commands are locked: that is most of the work.
        match request::read(text) {
            Ok(request) => self.admit(hub, client, Arc::from(request), text.len()),
            Err(invalid) => {
                let is_stopping = self.pending.lock().is_stopping();
                let error = match is_stopping {
                    true => ErrorCode::ShuttingDown.with(SHUTTING_DOWN),
                    false => CodedError::invalid(invalid.error.as_str()),
                };
                client.put(lifecycle::refusal(invalid.id.as_ref(), &invalid.command, &error));
            }
        }
    }

    fn admit(&self, hub: &Arc<Hub>, client: &Arc<PiClient>, request: Arc<PiServerRequest>, bytes: usize) {
        let refuse = |error: &CodedError| {
            let id = request.envelope.id.as_deref().map(Value::from);
            client.put(lifecycle::refusal(id.as_ref(), request.spec.name, error));
        };
        // Before anything is registered: a refused command leaves no trace that a later one could run into.
        if let Err(error) = client.asker.rights.check(request.spec.name, request.spec.permission) {
            return refuse(&error);
        }
        let session_id: Option<Arc<str>> = match &request.session_id {
            Some(session_id) => Some(Arc::from(&**session_id)),
            // The session that will be created has a lane of its own from the start.
            None if request.spec.lane == Lane::Session => Some(self.mint_session_id()),
            None => None,
        };
        // As much as possible is done before the pending commands are locked.
        let heading = request.envelope.id.as_deref().map(|id| CommandHeading::new(&request, id));
        let mut submission = self.submission(client, &request, session_id.as_deref());
        let mut pending = self.pending.lock();
        // With the lock held. Whoever stops or revokes takes the same lock, so no command slips in after that.
        if pending.is_stopping() || client.is_revoked() {
            drop(pending);
            return refuse(&match client.is_revoked() {
                true => ErrorCode::PermissionDenied.with(REVOKED),
                false => ErrorCode::ShuttingDown.with(SHUTTING_DOWN),
            });
        }
        if !client.try_begin_command(self.config.pending_max, bytes) {
            drop(pending);
            PiCounters::count(&self.counters.pending_limit);
            let max = self.config.pending_max;
            let error = format!("Too many pending commands for this {} (max {max})", client.place);
            return refuse(&ErrorCode::TooManyInFlight.with(error).with_limit(max));
        }
        let token = pending.next_token();
        submission.token = token;
        // A read that nobody can name is stored nowhere and is not told to the runner as one to do once.
        if heading.is_some() || submission.key.is_some() || request.spec.mutating {
            submission.uid = format!("{}-{token:010x}", self.uid_prefix).into();
        }
        let anonymous = || CommandHeading::new(&request, &format!("anon:{}:{token}", self.started_at));
        let heading = heading.unwrap_or_else(anonymous);
        let job = CommandJob {
            token,
            uid: Arc::clone(&submission.uid),
            is_taken_up_again: false,
            request: Arc::clone(&request),
            session_id,
            client: Arc::clone(client),
            bytes,
        };
        let todo = pending.submit(now_ms(), submission, job, heading);
        drop(pending);
        self.run(hub, todo);
    }

    /// What the machine of admission looks at, without the names it gets when it is submitted.
    fn submission(
        &self,
        client: &PiClient,
        request: &PiServerRequest,
        session_id: Option<&str>,
    ) -> PiServerSubmission {
        let envelope = &request.envelope;
        PiServerSubmission {
            token: 0,
            principal: Arc::clone(client.identity()),
            spec: request.spec,
            id: envelope.id.clone(),
            key: envelope.idempotency_key.clone(),
            session_id: session_id.map(str::to_owned),
            names_session: request.session_id.is_some(),
            depends_on: envelope.depends_on.clone().unwrap_or_default(),
            if_session_version: envelope.if_session_version,
            fingerprint: request.fingerprint,
            timeout_ms: self.timeout_ms(request.spec.timeout_ms),
            uid: Arc::clone(&self.no_uid),
            frees_lane: may_ask_a_person(&request.command),
        }
    }

    /// A time limit of the table, as the settings want it.
    pub(crate) fn timeout_ms(&self, of_table: Option<u64>) -> Option<u64> {
        let limit =
            if of_table? <= READ_TIMEOUT_MS { self.config.read_timeout } else { self.config.work_timeout };
        Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    }

    /// A client has read nearly everything: it is told what it missed.
    fn drained(&self, hub: &Arc<Hub>, client: &Arc<PiClient>) {
        if !client.take_behind() {
            return;
        }
        // Lifecycle messages are written with this lock held, so the notice of what was missed comes before what is
        // new.
        let pending = self.pending.lock();
        client.send_missed();
        drop(pending);
        for resync in self.followers.catch_up(client) {
            self.resync(hub, resync);
        }
    }
}

/// Time limits of the table up to this are those of reads.
const READ_TIMEOUT_MS: u64 = 30_000;

/// A command of an extension is answered when its handler returns, and that may wait for a dialog.
fn may_ask_a_person(command: &Command) -> bool {
    matches!(command, Command::Prompt(prompt) if prompt.message.starts_with('/'))
}
