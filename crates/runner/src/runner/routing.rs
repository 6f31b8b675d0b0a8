//! Which session a command goes to, and the answers of the runner itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qd_core::encoding::base36;
use qd_core::event_writer::{EventFront, EventWriter, ResponseLine};
use qd_core::ids::check_session_id;
use qd_core::ledger::{LedgerVerdict, Submission};
use qd_link::backoff::random;
use qd_wire::command::SessionConfig;
use qd_wire::command_table::{BARRIER, CommandClass, CommandHead, Lane, TAKE_BACK, class_of, spec};
use qd_wire::people::{Rights, Role};
use qd_wire::{CodedError, Command, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::{LinkCommand, RunnerTask};
use crate::clock::now_ms;
use crate::services::{self, SessionWorktree};
use crate::session::{
    IncomingCommand, RunnerContext, SessionEnded, SessionInput, check_cwd_of, settle_directory, spawn_new,
};
use crate::submissions::{WaitOwner, WaitResult, plain_outcome};

/// Who speaks at the runner's own socket.
pub(crate) const OWNER: &str = "owner";

impl RunnerTask {
    pub(super) fn session_ended(&self, ended: SessionEnded) {
        let SessionEnded { session_id, creations } = ended;
        // A new session may have taken the name already.
        let mut sessions = self.shared.hub_delivery.mailboxes.lock();
        if sessions.get(&session_id).is_some_and(mpsc::Sender::is_closed) {
            sessions.remove(&session_id);
        }
        drop(sessions);
        for incoming in creations {
            self.create(Some(session_id.clone()), incoming);
        }
    }

    pub(super) fn take_command(&self, command: &LinkCommand) {
        let Ok(text) = std::str::from_utf8(&command.line) else { return };
        match serde_json::from_str::<CommandHead<'_>>(text) {
            Ok(head) => {
                let incoming = incoming(&self.shared, command, &head);
                let session_id = head.session_id.map(Cow::into_owned);
                let row = spec(&incoming.cmd);
                // The hub has asked the same. But what is done here is ours to answer for.
                let denied = row.and_then(|row| incoming.rights.check(row.name, row.permission).err());
                if let Some(error) = denied {
                    return self.respond(session_id.as_deref().unwrap_or_default(), &incoming, Err(&error));
                }
                // Services do not wait in the lanes of their session: a file can be read while the agent works.
                if row.is_some_and(|row| row.lane == Lane::Service) {
                    return services::call(&self.shared, session_id, incoming);
                }
                self.route(session_id, incoming);
            }
            Err(error) => self.refuse_unreadable(text, command, &error.to_string()),
        }
    }

    /// Every command gets an answer, also one whose envelope has wrong types.
    fn refuse_unreadable(&self, text: &str, command: &LinkCommand, error: &str) {
        #[derive(serde::Deserialize)]
        struct CommandAddress<'a> {
            #[serde(borrow)]
            cmd: Option<Cow<'a, str>>,
            #[serde(borrow)]
            id: Option<&'a serde_json::value::RawValue>,
            #[serde(borrow)]
            session_id: Option<Cow<'a, str>>,
        }
        let Ok(CommandAddress { cmd, id, session_id }) = serde_json::from_str::<CommandAddress<'_>>(text)
        else {
            tracing::warn!(error, "a command came that cannot be answered");
            return;
        };
        let head = CommandHead { cmd, id, ..CommandHead::default() };
        let incoming = incoming(&self.shared, command, &head);
        let error = CodedError::invalid(format!("Invalid '{}': {error}", incoming.cmd));
        self.respond(session_id.as_deref().unwrap_or_default(), &incoming, Err(&error));
    }

    fn route(&self, session_id: Option<String>, incoming: IncomingCommand) {
        // With a version it is about one session, which is the only one that knows its version.
        if incoming.cmd == BARRIER && incoming.if_session_version.is_none() {
            return self.barrier(incoming);
        }
        if incoming.cmd == TAKE_BACK.name && self.cancel_service(&incoming) {
            return self.respond(session_id.as_deref().unwrap_or_default(), &incoming, Ok(()));
        }
        let class = class_of(&incoming.cmd);
        if class == CommandClass::Runner {
            return self.answer_for_runner(incoming);
        }
        if class == CommandClass::Create {
            return self.create(session_id, incoming);
        }
        let session_id = session_id.unwrap_or_default();
        let sender = self.shared.hub_delivery.mailboxes.lock().get(&session_id).cloned();
        match sender {
            Some(sender) => self.forward(&sender, &session_id, incoming),
            // What is not there need not be ended.
            None if incoming.cmd == TAKE_BACK.name => self.respond(&session_id, &incoming, Ok(())),
            None => {
                let mut error = CodedError::session_not_found(&session_id);
                if let Some(version) = incoming.if_session_version {
                    error.message.push_str(&format!(" for if_session_version={version}"));
                }
                self.respond(&session_id, &incoming, Err(&error));
            }
        }
    }

    fn create(&self, session_id: Option<String>, incoming: IncomingCommand) {
        let session_id = match session_id.filter(|id| !id.is_empty() && id != qd_wire::SYSTEM_SESSION) {
            Some(id) => id,
            None => mint_session_id(&incoming),
        };
        if let Err(error) = check_session_id(&session_id) {
            return self.respond(&session_id, &incoming, Err(&error.into()));
        }
        let mut incoming = incoming;
        let params = match Command::parse(&incoming.cmd, incoming.text()) {
            Ok(Command::SessionCreate(params)) => params,
            Ok(_) => return,
            Err(error) => return self.respond(&session_id, &incoming, Err(&error.into())),
        };
        if let Err(error) = incoming.rights.check_config(&incoming.cmd, &params.config) {
            return self.respond(&session_id, &incoming, Err(&error));
        }
        if params.check_only == Some(true) {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                let checked = check_only(&shared, &session_id, params.config, incoming.rights).await;
                respond(&shared, &session_id, &incoming, checked.as_ref().map(|()| None));
            });
            return;
        }
        let known = self.shared.hub_delivery.mailboxes.lock().get(&session_id).cloned();
        if let Some(sender) = known {
            // To the session that has the name, also for a create: only its actor knows whether this is a repeat.
            match sender.try_send(SessionInput::Command(Box::new(incoming))) {
                Ok(()) => return,
                // It has just ended: the name is free.
                Err(mpsc::error::TrySendError::Closed(SessionInput::Command(unsent))) => incoming = *unsent,
                Err(error) => return self.unsent(&session_id, error),
            }
        }
        let sender = spawn_new(&self.shared, &session_id, params.config, incoming.rights);
        self.shared.hub_delivery.mailboxes.lock().insert(session_id.clone(), sender.clone());
        // First of all its creation: a session that has none is over at once.
        self.forward(&sender, &session_id, incoming);
        // The hub may have asked to watch it before it was there.
        self.shared.hub_delivery.post_watch_state(&session_id);
    }

    fn forward(&self, sender: &mpsc::Sender<SessionInput>, session_id: &str, incoming: IncomingCommand) {
        if let Err(error) = sender.try_send(SessionInput::Command(Box::new(incoming))) {
            self.unsent(session_id, error);
        }
    }

    /// Answers for a session that did not take a command.
    fn unsent(&self, session_id: &str, error: mpsc::error::TrySendError<SessionInput>) {
        let reason = match &error {
            mpsc::error::TrySendError::Full(_) => {
                ErrorCode::Busy.with("The session is busy: too many commands wait for it. Please retry.")
            }
            mpsc::error::TrySendError::Closed(_) => CodedError::session_not_found(session_id),
        };
        if let SessionInput::Command(incoming) = error.into_inner() {
            self.respond(session_id, &incoming, Err(&reason));
        }
    }

    /// Ends a service call by the id of its command; false if that is not what is wanted, or there is none.
    fn cancel_service(&self, incoming: &IncomingCommand) -> bool {
        #[derive(serde::Deserialize)]
        struct TakeBackParameters {
            target: String,
            /// Whoever asked wants it gone, also a question that waits for a person. Without it the asker may only
            /// have lost its connection, and the question stays.
            #[serde(default)]
            withdraw: bool,
        }
        let Ok(TakeBackParameters { target, withdraw }) = serde_json::from_str(incoming.text()) else {
            return false;
        };
        self.shared.services.cancel(incoming.origin, &target, withdraw)
    }

    /// Succeeds when everything the command depends on has.
    ///
    /// This wait is not one of the queue machine in `qd-core`: such a queue belongs to the actor of one session, and a
    /// barrier belongs to none. What it waits for may be commands of several sessions, of sessions that are not there
    /// yet, or service calls. The ledger, which is pure and sees them all, says when it is over; only the clock is here.
    fn barrier(&self, incoming: IncomingCommand) {
        // A barrier is never repeated by a key.
        let submission = Submission { key: None, fingerprint: [0; 32], ..incoming.submission("") };
        let (sender, receiver) = oneshot::channel();
        let verdict = self.shared.submissions.submit(now_ms(), submission, || WaitOwner::Once(sender));
        let shared = Arc::clone(&self.shared);
        match verdict {
            LedgerVerdict::Run => finish_barrier(&shared, &incoming, Ok(())),
            LedgerVerdict::Reject(rejection) => respond(&shared, "", &incoming, Err(&rejection.into())),
            LedgerVerdict::Wait | LedgerVerdict::Join | LedgerVerdict::Replay(_) => {
                tokio::spawn(async move {
                    let waited = tokio::time::timeout(Duration::from_secs(30), receiver).await;
                    let result = match waited {
                        Ok(Ok(WaitResult::Ready | WaitResult::Joined(_))) => Ok(()),
                        Ok(Ok(WaitResult::Failed(rejection))) => Err(rejection.into()),
                        Ok(Err(_)) | Err(_) => {
                            Err(ErrorCode::TimedOut.with("Dependencies timed out after 30000ms"))
                        }
                    };
                    finish_barrier(&shared, &incoming, result);
                });
            }
        }
    }

    fn respond(&self, session_id: &str, incoming: &IncomingCommand, result: Result<(), &CodedError>) {
        respond(&self.shared, session_id, incoming, result.map(|()| None));
    }
}

/// The same on threads that may block: it looks at files, which must not hold up the commands of other sessions.
async fn check_only(
    shared: &Arc<RunnerContext>,
    session_id: &str,
    mut config: SessionConfig,
    rights: Rights,
) -> Result<(), CodedError> {
    let (checked, of_config) = (Arc::clone(shared), config.clone());
    let checking = tokio::task::spawn_blocking(move || check_create(&checked, &of_config));
    checking.await.map_err(|error| ErrorCode::Internal.with(error.to_string()))??;
    settle_directory(shared, rights, &mut config).await?;
    if let Some(worktree) = &config.worktree {
        SessionWorktree::plan(shared, session_id, config.cwd.as_deref(), worktree).await.map(drop)?;
    }
    Ok(())
}

/// Whether a session with this configuration could be created now, by all that can be known without starting it.
fn check_create(shared: &RunnerContext, config: &SessionConfig) -> Result<(), CodedError> {
    let runner = &shared.config;
    runner.harnesses.check(&config.harness)?;
    check_cwd_of(config)?;
    runner.harnesses.check_continued(&config.harness, config.continue_session.as_deref())?;
    shared.check_spool_room()?;
    let max = runner.max_sessions;
    if shared.agents.load(Ordering::Acquire) >= max {
        return Err(CodedError::session_limit(max));
    }
    Ok(())
}

fn incoming(shared: &RunnerContext, command: &LinkCommand, head: &CommandHead<'_>) -> IncomingCommand {
    let owned = |text: &Option<Cow<'_, str>>| text.as_ref().map(|text| text.to_string());
    let link_id: String = head.id.and_then(|id| serde_json::from_str(id.get()).ok()).unwrap_or_default();
    // A local client cannot choose who it is: what it writes into these fields is not looked at.
    let (principal, connection, client_command_id) = if command.is_local {
        let own_id = Some(link_id.clone()).filter(|id| !id.is_empty());
        // Nor can a program in a session be who has started it.
        let principal = command.within.as_ref().map_or(OWNER.to_owned(), |own| format!("agent:{own}"));
        (principal, format!("local{}", command.origin), own_id)
    } else {
        let connection = owned(&head.connection_id).unwrap_or_default();
        (owned(&head.user_id).unwrap_or_default(), connection, owned(&head.client_command_id))
    };
    IncomingCommand {
        token: shared.submissions.token(),
        origin: command.origin,
        is_local: command.is_local,
        link_id,
        cmd: owned(&head.cmd).unwrap_or_default(),
        line: command.line.clone(),
        principal,
        rights: match &command.within {
            Some(_) => Rights::of(Role::Operator),
            None if command.is_local => Rights::ALL,
            None => head.rights(),
        },
        connection,
        client_command_id,
        idempotency_key: owned(&head.idempotency_key),
        depends_on: head.depends_on.clone().unwrap_or_default(),
        if_session_version: head.if_session_version,
        native: head.native == Some(true),
        when_idle: head.when_idle == Some(true),
    }
}

/// A new id; with a key it is made from the key, so that a repeated create finds its session.
fn mint_session_id(incoming: &IncomingCommand) -> String {
    let number = match &incoming.idempotency_key {
        Some(key) => {
            let named = serde_json::json!([incoming.principal, key]).to_string();
            let mut seed = [0u8; 8];
            seed.copy_from_slice(&qd_core::ledger::fingerprint(&named)[..8]);
            u64::from_le_bytes(seed)
        }
        None => random(),
    };
    format!("s{}", base36(number >> 12))
}

fn finish_barrier(shared: &RunnerContext, incoming: &IncomingCommand, result: Result<(), CodedError>) {
    let outcome = plain_outcome(&incoming.cmd, result.clone().map(|()| None));
    shared.submissions.finish(now_ms(), incoming.token, &outcome);
    respond(shared, "", incoming, result.as_ref().map(|()| None));
}

/// An answer of the runner itself.
pub(crate) fn respond(
    shared: &RunnerContext,
    session_id: &str,
    incoming: &IncomingCommand,
    result: Result<Option<&str>, &CodedError>,
) {
    respond_with(shared, session_id, &incoming.response(result));
}

/// The same with all it can say.
pub(crate) fn respond_with(shared: &RunnerContext, session_id: &str, response: &ResponseLine<'_>) {
    let mut out = EventWriter::default();
    out.response(&EventFront::new(session_id, &shared.config.runner_id), now_ms(), response);
    shared.hub_delivery.send_line(response.origin, out.take().bytes.into());
}
