//! `qd runner`: other machines join the hub, run its sessions, and are looked after.

pub(crate) mod config;
mod invite;
mod join;
mod keys;
mod link_state;
mod list;
mod membership;
mod revoke;
mod start;
mod start_target;
mod status;

use crate::arguments::RunnerCommand;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::{Environment, RunnerFlags, Settings};
pub(crate) use invite::address_of_this_machine;
pub(crate) use join::hostname;
pub(crate) use link_state::LinkState;
pub(crate) use membership::Membership;

/// The flags a subcommand brings along.
pub(crate) fn flags(command: &mut RunnerCommand) -> RunnerFlags {
    match command {
        RunnerCommand::Join(arguments) => std::mem::take(&mut arguments.flags),
        RunnerCommand::Start(arguments) => std::mem::take(&mut arguments.flags),
        RunnerCommand::Invite(_)
        | RunnerCommand::List
        | RunnerCommand::Status
        | RunnerCommand::Rotate(_)
        | RunnerCommand::Revoke(_) => RunnerFlags::default(),
    }
}

/// Runs a subcommand to its end.
pub(crate) fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    command: RunnerCommand,
) -> Result<()> {
    if settings.local && !matches!(command, RunnerCommand::List | RunnerCommand::Status) {
        return Err(CliError::usage(
            "--local does not apply here: the command needs the hub, or is local anyway",
        ));
    }
    match command {
        RunnerCommand::Join(arguments) => {
            let membership = crate::block_on(join::run(settings, environment, output, &arguments))?;
            match arguments.no_start {
                true => Ok(()),
                false => start::run(settings, environment, output, membership, None, false),
            }
        }
        RunnerCommand::Start(arguments) => {
            let (membership, host_token) = start_target::start_target(settings, &arguments)?;
            start::run(settings, environment, output, membership, host_token, arguments.ready_json)
        }
        RunnerCommand::Invite(arguments) => crate::block_on(invite::run(settings, output, &arguments)),
        RunnerCommand::List => crate::block_on(list::run(settings, output)),
        RunnerCommand::Status => crate::block_on(status::run(settings, output)),
        RunnerCommand::Rotate(arguments) => {
            crate::block_on(revoke::rotate(settings, output, &arguments.name))
        }
        RunnerCommand::Revoke(arguments) => crate::block_on(revoke::revoke(settings, output, &arguments)),
    }
}
