//! Whether a command may be done, and by whom. Clients and faces come through here, so each rule is checked once, in one
//! order: access, permission, conditions, dependencies, session, terminal, parameters.

use std::sync::Arc;

use qd_wire::command_table::{Answerer, BARRIER, CommandClass, CommandName, Lane, Permission};
use qd_wire::{CodedError, ErrorCode, SYSTEM_SESSION};

use super::route::{Destination, NoRoute, route};
use super::{Command, CommandSubject};
use crate::access::principals::{Rights, check_revoked};
use crate::command::ask::CommandSender;
use crate::command::finished_commands::FinishedCommands;
use crate::command::head::check_length;
use crate::command::pending::PendingKind;
use crate::command::reply::ReplyTo;
use crate::hub::Hub;
use crate::sessions::reads::{HubCommand, HubRead};
use crate::sessions::session::SessionEntry;

/// Bytes of what is searched for.
const SEARCH_QUERY_BYTES_MAX: usize = 4 << 10;

/// Where a command comes from.
pub(super) enum CommandOrigin<'a> {
    /// A connection, which may name commands and follow sessions.
    Client {
        finished: &'a FinishedCommands,
        /// The client's own name for the command.
        name: Option<&'a str>,
    },
    /// A face of the hub, which is answered and follows nothing.
    Face,
}

/// A command that may be done.
pub(super) struct AdmittedCommand<'a> {
    pub(super) command: Command<'a>,
    pub(super) session: Option<Arc<SessionEntry>>,
    pub(super) work: CommandWork,
}

/// Who does it.
pub(super) enum CommandWork {
    /// The connection stops following a session, which need not be there any more.
    Detach,
    /// The hub takes back another command of the connection.
    Cancel,
    /// The hub, from its copies.
    Hub(HubRead),
    /// A runner; and what is to be done with its answer.
    Runner(PendingKind),
}

/// Says who does the command, or why it is refused.
pub(super) fn admit<'a>(
    hub: &Hub,
    asker: &CommandSender,
    origin: &CommandOrigin<'_>,
    mut command: Command<'a>,
) -> Result<AdmittedCommand<'a>, CodedError> {
    let spec = command.spec;
    check_revoked(&asker.revoked)?;
    check_permission(asker.rights, &command)?;
    command.fields.check_conditions()?;
    check_names(&command)?;
    if let CommandOrigin::Client { finished, name } = origin {
        if let Some(name) = name {
            finished.settle(name, &mut command.depends_on)?;
        }
        if spec.class == CommandClass::Detach && command.session_id().is_some() && !command.has_conditions() {
            return Ok(AdmittedCommand { command, session: None, work: CommandWork::Detach });
        }
        if spec.class == CommandClass::Cancel {
            return Ok(AdmittedCommand { command, session: None, work: CommandWork::Cancel });
        }
    }
    let session = find_session(hub, &command)?;
    if let Some(session) = &session {
        check_terminal(asker.rights, &command, session)?;
    }
    let work = match spec.answerer {
        Answerer::Hub => CommandWork::Hub(hub_read(&command)?),
        Answerer::Runner => CommandWork::Runner(pending_kind(&command, origin)?),
    };
    Ok(AdmittedCommand { command, session, work })
}

/// Refuses what the sender may not do. The runner checks the same.
fn check_permission(rights: Rights, command: &Command<'_>) -> Result<(), CodedError> {
    rights.check(command.called, command.spec.permission)?;
    // Read as its runner reads it, so that nothing gets past in another form; what cannot be read is its to refuse.
    command.config().map_or(Ok(()), |config| rights.check_config(command.called, &config))
}

/// Refuses what would run commands in a terminal, if the sender may not run commands.
fn check_terminal(rights: Rights, command: &Command<'_>, session: &SessionEntry) -> Result<(), CodedError> {
    if command.spec.runs_program() && session.may_be_shell() {
        return rights.check(command.called, Permission::Shell);
    }
    Ok(())
}

/// A client's names were measured when its frame was read; those a face has from elsewhere are no longer.
fn check_names(command: &Command<'_>) -> Result<(), CodedError> {
    command.session_id().map_or(Ok(()), |session_id| check_length("session_id", session_id))?;
    command.runner_id.as_deref().map_or(Ok(()), |runner_id| check_length("runner_id", runner_id))
}

/// The session a command is about, where it has to be there.
fn find_session(hub: &Hub, command: &Command<'_>) -> Result<Option<Arc<SessionEntry>>, CodedError> {
    let spec = command.spec;
    let (session_id, session) = match &command.session {
        CommandSubject::Nothing if spec.needs_session => {
            return Err(CodedError::invalid(format!("'{}' needs a session_id", spec.name)));
        }
        CommandSubject::Nothing => return Ok(None),
        CommandSubject::Named(session_id) => (&**session_id, hub.session(session_id)),
        CommandSubject::Known(session) => (&*session.id, Some(Arc::clone(session))),
    };
    if spec.class == CommandClass::Create {
        check_name(hub, session_id, session.as_deref(), command.runner_id.as_deref())?;
    }
    // A service may do without a session, but not with one that is not there.
    let is_service = spec.lane == Lane::Service && session_id != SYSTEM_SESSION;
    if !spec.needs_session && !is_service {
        return Ok(session);
    }
    let session = session.ok_or_else(|| CodedError::session_not_found(session_id))?;
    match &command.runner_id {
        Some(named) if **named != *session.runner_id => Err(ErrorCode::WrongRunner
            .with(format!("Session {session_id} is on runner {}, not on {named}", session.runner_id))),
        _ => Ok(Some(session)),
    }
}

/// A session never moves, so its name is not free on another runner; nor while its runner has yet to delete it.
fn check_name(
    hub: &Hub,
    session_id: &str,
    session: Option<&SessionEntry>,
    runner_id: Option<&str>,
) -> Result<(), CodedError> {
    if let Some(session) = session
        && let Some(named) = runner_id.filter(|named| *named != &*session.runner_id)
    {
        let owner = &session.runner_id;
        return Err(ErrorCode::SessionExists.with(format!(
            "Session {session_id} lives on runner {owner} and cannot be created on {named}; delete it first, or take another name"
        )));
    }
    match hub.deleted_on(session_id) {
        Some(owner) => Err(ErrorCode::Conflict.with(format!(
            "Session {session_id} was deleted while runner {owner} was away; its name is free when {owner} has come back"
        ))),
        None => Ok(()),
    }
}

/// What the hub looks up for a command that it answers itself.
#[allow(clippy::wildcard_enum_match_arm)] // The hub answers these itself; any other is refused by its name.
fn hub_read(command: &Command<'_>) -> Result<HubRead, CodedError> {
    match command.spec.command {
        Some(CommandName::GetMessages) => Ok(HubRead::Messages(command.parameters()?)),
        Some(CommandName::ListSessions) => Ok(HubRead::Sessions),
        Some(CommandName::SessionDetach) => Ok(HubRead::Detach),
        Some(CommandName::GetRunners) => Ok(HubRead::Runners),
        Some(CommandName::Search) => search(command),
        _ => Err(ErrorCode::Unsupported.with(format!("'{}' is not served by this hub", command.spec.name))),
    }
}

fn search(command: &Command<'_>) -> Result<HubRead, CodedError> {
    let params: Box<qd_wire::command::SearchParams> = Box::new(command.parameters()?);
    if params.query.len() > SEARCH_QUERY_BYTES_MAX {
        return Err(
            ErrorCode::TooLarge.with(format!("The query is longer than {SEARCH_QUERY_BYTES_MAX} bytes"))
        );
    }
    let session_id = command.session_id().filter(|id| *id != SYSTEM_SESSION);
    Ok(HubRead::Search { params, session_id: session_id.map(str::to_owned) })
}

/// What is to be done with the runner's answer.
fn pending_kind(command: &Command<'_>, origin: &CommandOrigin<'_>) -> Result<PendingKind, CodedError> {
    Ok(match (command.spec.class, origin) {
        (CommandClass::Attach, _) => PendingKind::Attach { after: command.after()? },
        (CommandClass::Create, _) if !command.is_check_only() => PendingKind::Create,
        (CommandClass::Delete, _) => PendingKind::Delete,
        // A face that asks where a session stands follows it already, or is about to: what came before is told before.
        (CommandClass::State | CommandClass::Close, CommandOrigin::Face) => PendingKind::InOrder,
        // Answers to these are passed on as they come.
        (
            CommandClass::Create
            | CommandClass::Detach
            | CommandClass::Close
            | CommandClass::Restart
            | CommandClass::State
            | CommandClass::Input
            | CommandClass::Typing
            | CommandClass::Stop
            | CommandClass::Abort
            | CommandClass::Cancel
            | CommandClass::Switch
            | CommandClass::Navigate
            | CommandClass::Change
            | CommandClass::Execute
            | CommandClass::Watch
            | CommandClass::Runner
            | CommandClass::Other,
            _,
        ) => PendingKind::Plain,
    })
}

/// What the hub does with an admitted command.
pub(super) enum CommandStep {
    /// It answers at once.
    Answer(HubCommand),
    /// It asks a runner to do `cmd`, which is not always what was asked for.
    Ask { kind: PendingKind, cmd: &'static str },
}

impl CommandStep {
    /// `None` for what a connection does by itself.
    pub(super) fn of(
        work: CommandWork,
        command: &Command<'_>,
        reply: impl FnOnce() -> ReplyTo,
    ) -> Option<Self> {
        match work {
            CommandWork::Detach | CommandWork::Cancel => None,
            CommandWork::Hub(read) if !command.has_conditions() => {
                Some(CommandStep::Answer(HubCommand { reply: reply(), read }))
            }
            // Only the runner knows whether the conditions are met.
            CommandWork::Hub(read) => {
                let kind = PendingKind::Barrier(Box::new(HubCommand { reply: reply(), read }));
                Some(CommandStep::Ask { kind, cmd: BARRIER })
            }
            CommandWork::Runner(kind) => Some(CommandStep::Ask { kind, cmd: command.spec.name }),
        }
    }
}

/// The way of a command that a runner is to be asked.
pub(super) enum RunnerRoute {
    To(Destination),
    Away {
        error: CodedError,
        /// The runner that it needs; `None` for any that will do.
        wanted: Option<Arc<str>>,
        /// What the hub can do meanwhile.
        from_copies: Option<HubRead>,
    },
}

/// Finds the runner of a command, or what can be done without it.
pub(super) fn find_way(
    hub: &Hub,
    asker: &CommandSender,
    command: &Command<'_>,
    session: Option<&Arc<SessionEntry>>,
    kind: &PendingKind,
) -> Result<RunnerRoute, CodedError> {
    match route(hub, command, session) {
        Ok(destination) => Ok(RunnerRoute::To(destination)),
        Err(NoRoute::Never(error)) => Err(error),
        Err(NoRoute::Away { error, wanted }) => {
            let from_copies = from_copies(asker, command, kind, session);
            Ok(RunnerRoute::Away { error, wanted, from_copies })
        }
    }
}

/// What the hub can do for a session whose runner is away.
fn from_copies(
    asker: &CommandSender,
    command: &Command<'_>,
    kind: &PendingKind,
    session: Option<&Arc<SessionEntry>>,
) -> Option<HubRead> {
    let session = Arc::clone(session.filter(|_| !command.has_conditions())?);
    match *kind {
        PendingKind::Attach { after } => Some(HubRead::AwayAttach { session, after }),
        PendingKind::Delete => Some(HubRead::Bury { session, by: Arc::clone(&asker.principal) }),
        PendingKind::Plain | PendingKind::InOrder if command.spec.class == CommandClass::State => {
            Some(HubRead::AwayState(session))
        }
        PendingKind::Plain
        | PendingKind::InOrder
        | PendingKind::Create
        | PendingKind::Barrier(_)
        | PendingKind::Resync { .. }
        | PendingKind::ResyncAll => None,
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
