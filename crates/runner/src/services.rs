//! Services of the machine: files, search, git, shell, facts about the host.
//!
//! Each call is a task of its own, bounded in number and time and cancellable; what blocks does so on threads for that.
//! Calls in a session are recorded there, and some ask a person first. Nothing here waits for a session's agent.
//! A call without a session leaves a line in the log, and no record: there is no session to keep it.

mod call;
mod config;
mod fs;
pub(crate) mod git;
mod host;
mod root;
mod search;
mod watch;

use std::sync::Arc;

use qd_wire::Command;
use qd_wire::run::PermissionDetails;

pub(crate) use call::directory::is_within;
pub use config::ServiceConfig;
pub(crate) use git::SessionWorktree;

use crate::runner::respond;
use crate::session::{GateAnswer, IncomingCommand, RunnerContext};
use call::Call;
use call::limits::CallLimits;
use call::running_calls::RunningCalls;
pub(crate) use root::kernel_files::check_directory;
use root::own_data;

/// The service calls of a runner.
#[derive(Default)]
pub(crate) struct Services {
    calls: RunningCalls,
    limits: CallLimits,
    uploads: fs::UploadTable,
    own_directory: own_data::OwnDirectory,
}

/// Begins a call; its answer comes when it has one.
pub(crate) fn call(shared: &Arc<RunnerContext>, session_id: Option<String>, incoming: IncomingCommand) {
    let session_id = session_id.filter(|id| !id.is_empty() && id != qd_wire::SYSTEM_SESSION);
    let name = session_id.clone().unwrap_or_default();
    let command = match Command::parse(&incoming.cmd, incoming.text()) {
        Ok(command) => command,
        Err(error) => return respond(shared, &name, &incoming, Err(&error.into())),
    };
    let registration = match shared.services.calls.register(shared, &incoming, &command) {
        Ok(registration) => registration,
        Err(error) => return respond(shared, &name, &incoming, Err(&error)),
    };
    match Call::new(shared, session_id, incoming, command) {
        Ok(call) => drop(tokio::spawn(call.run(registration))),
        Err(refused) => respond(shared, &name, &refused.0, Err(&refused.1)),
    }
}

/// A person has decided about a call whose asker did not live to hear it: the runner has been restarted since. It is
/// done or not, and recorded.
pub(crate) fn resume(
    shared: &Arc<RunnerContext>,
    session_id: &str,
    request_id: &str,
    details: PermissionDetails,
    answer: GateAnswer,
) {
    match Call::resumed(shared, session_id, request_id, details) {
        Ok(call) => drop(tokio::spawn(call.run_decided(answer))),
        Err(error) => tracing::error!(session_id, request_id, %error, "a call that waited cannot be done"),
    }
}

impl Services {
    /// Where the runner's own data lies, which no call may touch.
    fn own_data(&self, shared: &RunnerContext) -> Result<own_data::OwnData, call::ServiceError> {
        self.own_directory.locate(&shared.config.data_dir)
    }

    /// Removes what is left of uploads that were given up.
    pub(crate) fn expire_uploads(&self, now: i64) {
        self.uploads.expire(now);
    }

    /// Ends a call by the id of its command. Whether there was one.
    pub(crate) fn cancel(&self, origin: u64, target: &str, withdraw: bool) -> bool {
        self.calls.cancel(origin, target, withdraw)
    }

    /// A client at the runner's own socket has gone. What it asked for is not wanted any more, except for what changes
    /// files and has begun, and what waits for a person, who may well say yes.
    pub(crate) fn origin_gone(&self, origin: u64) {
        self.calls.gone(origin, true);
    }

    /// The link to the hub is gone: whoever asked may still be there, but cannot be told anything.
    pub(crate) fn link_gone(&self, origin: u64) {
        self.calls.gone(origin, false);
    }
}
