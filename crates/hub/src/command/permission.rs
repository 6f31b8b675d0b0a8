//! What a sender may do, beyond what the table of commands says.

use qd_wire::command::SessionConfig;
use qd_wire::command_table::{CommandSpec, Permission};
use qd_wire::people::Role;
use qd_wire::run::{GatePolicy, is_terminal};
use qd_wire::{CodedError, ErrorCode};

use super::CREATE;
use crate::envelope::Parsed;
use crate::principals::Rights;
use crate::registry::SessionEntry;

/// What makes the program of a terminal run commands: typing into it, and starting it again.
const SHELL_IN_TERMINALS: [&str; 6] =
    ["run.input", "run.stdin", "prompt", "steer", "follow_up", "session.restart"];

/// Refuses what the sender may not do. A session that is a run or a terminal needs the right to run commands too,
/// and only an owner makes one in which nobody is asked.
pub(super) fn check_permission(
    rights: Rights,
    spec: &CommandSpec,
    parsed: &Parsed<'_>,
) -> Result<(), CodedError> {
    rights.check(spec.name, spec.permission)?;
    let config = parsed.fields.get("config").filter(|_| spec.name == CREATE);
    // Read as its runner reads it, so that nothing gets past in another form; what cannot be read is its to refuse.
    let config = config.and_then(|config| serde_json::from_str::<SessionConfig>(config.get()).ok());
    let Some(config) = config else { return Ok(()) };
    if is_terminal(&config.harness) {
        rights.check(spec.name, Permission::Shell)?;
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
pub(crate) fn check_terminal(
    rights: Rights,
    spec: &CommandSpec,
    session: &SessionEntry,
) -> Result<(), CodedError> {
    if session.may_be_shell() && SHELL_IN_TERMINALS.contains(&spec.name) {
        return rights.check(spec.name, Permission::Shell);
    }
    Ok(())
}
