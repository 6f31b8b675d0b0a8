//! What a sender may do, beyond what the table of commands says.

use qd_wire::command_table::Permission;
use qd_wire::people::Role;
use qd_wire::run::{GatePolicy, is_terminal};
use qd_wire::{CodedError, ErrorCode};

use super::Command;
use crate::access::principals::Rights;
use crate::sessions::session::SessionEntry;

/// Refuses what the sender may not do. A session that is a run or a terminal needs the right to run commands too,
/// and only an owner makes one in which nobody is asked.
pub(super) fn check_permission(rights: Rights, command: &Command<'_>) -> Result<(), CodedError> {
    rights.check(command.called, command.spec.permission)?;
    // Read as its runner reads it, so that nothing gets past in another form; what cannot be read is its to refuse.
    let Some(config) = command.config() else { return Ok(()) };
    if is_terminal(&config.harness) {
        rights.check(command.called, Permission::Shell)?;
    }
    if config.gate == Some(GatePolicy::Open) && rights.role != Role::Owner {
        return Err(ErrorCode::PermissionDenied.with(format!(
            "Permission denied: only an owner opens the gate of a session, and this access has the role {}; leave \
             'gate' out, or ask an owner",
            rights.role.as_str()
        )));
    }
    Ok(())
}

/// Refuses what would run commands in a terminal, if the sender may not run commands.
pub(super) fn check_terminal(
    rights: Rights,
    command: &Command<'_>,
    session: &SessionEntry,
) -> Result<(), CodedError> {
    if command.spec.runs_program() && session.may_be_shell() {
        return rights.check(command.called, Permission::Shell);
    }
    Ok(())
}
