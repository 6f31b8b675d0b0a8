//! The gate before calls that change files or run commands: who passes unasked, and the question for the others.

use qd_core::session::Allowance;
use qd_wire::command::Command;
use qd_wire::command_table::{CommandClass, class_of};
use qd_wire::people::Rights;
use qd_wire::run::{AwaitingReason, GatePolicy, PermissionDetails, PermissionSource};
use qd_wire::service::ServiceScope;
use qd_wire::{InputRequest, JsonObject};
use serde_json::Value;

use super::audit::{parameters, tool_name};
use super::{ServiceError, ServiceResult};
use crate::services::config::ServiceConfig;
use crate::services::fs::StagedUpload;
use crate::session::ServiceFacts;
use crate::text::shorten;

/// A command longer than this is not asked about: it is stored and shown whole.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Characters of the summary of what is asked for.
const SUMMARY_CHARACTERS_MAX: usize = 80;

/// Whether a person may have to be asked before this call.
pub(crate) fn is_gated(command: &Command) -> bool {
    match command {
        // The pieces before the last are kept under a temporary name beside the file, which they do not change.
        Command::FsUpload(params) => params.last == Some(true) && params.abort != Some(true),
        command => command.spec().is_gated(),
    }
}

/// Whether a call writes to the disk, gated or not.
pub(crate) fn changes_files(command: &Command) -> bool {
    command.spec().is_gated()
}

/// What a permission for the session is for.
pub(crate) fn op_tool(cmd: &str) -> String {
    if class_of(cmd) == CommandClass::Execute { "bash".to_owned() } else { tool_name(cmd) }
}

/// Who wants to pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GateRequest<'a> {
    /// The operation, and for whom a person could have allowed it.
    pub(crate) wanted: &'a Allowance,
    pub(crate) rights: Rights,
    pub(crate) ask: AskWish,
}

/// Whether the caller wants a person to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskWish {
    /// It does not say.
    None,
    /// Unless a person has allowed it for the session.
    UnlessAllowed,
    Always,
}

impl AskWish {
    pub(crate) fn of(scope: &ServiceScope) -> Self {
        match (scope.ask, scope.ask_unless_allowed) {
            (Some(true), Some(true)) => AskWish::UnlessAllowed,
            (Some(true), _) => AskWish::Always,
            _ => AskWish::None,
        }
    }
}

/// Whether a person must be asked. Without a session there is nobody to ask: then it is an error.
pub(crate) fn must_ask(
    config: &ServiceConfig,
    facts: Option<&ServiceFacts>,
    applicant: GateRequest<'_>,
) -> ServiceResult<bool> {
    let may_skip = applicant.ask == AskWish::None && config.skips_gate(applicant.rights);
    let Some(facts) = facts else {
        if may_skip {
            return Ok(false);
        }
        return Err(ServiceError::DeniedBecause(format!(
            "'{}' needs approval, and without a session there is nobody to ask; name a session_id",
            applicant.wanted.op_tool
        )));
    };
    // Who wants a person to be asked gets that in every session, whatever was allowed there.
    if applicant.ask == AskWish::Always {
        return Ok(true);
    }
    if facts.allowances.contains(applicant.wanted) {
        return Ok(false);
    }
    Ok(match facts.gate.unwrap_or(GatePolicy::Roles) {
        GatePolicy::Open => applicant.ask != AskWish::None,
        GatePolicy::Ask => true,
        GatePolicy::Roles => !may_skip,
    })
}

/// Who asks for what.
pub(crate) struct GateQuestion<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) cmd: &'a str,
    pub(crate) command: &'a Command,
    /// The command as it came.
    pub(crate) text: &'a str,
    pub(crate) principal: &'a str,
    pub(crate) actor: &'a str,
    /// The whole content of an upload, of which the command has only the last piece.
    pub(crate) staged: Option<&'a StagedUpload>,
}

/// The question before a call, with all that a person must know and all that is needed to do it later.
pub(crate) fn question(config: &ServiceConfig, asked: &GateQuestion<'_>) -> ServiceResult<InputRequest> {
    if asked.text.len() > COMMAND_BYTES_MAX {
        refuse!(
            TooLarge,
            "The command is too long to ask a person about it (max {} KiB); send long contents with fs.upload",
            COMMAND_BYTES_MAX >> 10
        );
    }
    let op_tool = op_tool(asked.cmd);
    let mut arguments = parameters(asked.command);
    if let Some(staged) = asked.staged {
        for name in ["data", "offset", "last"] {
            arguments.remove(name);
        }
        arguments.insert("bytes".to_owned(), staged.bytes.into());
        arguments.insert("sha256".to_owned(), staged.sha256.clone().into());
        arguments.insert("preview".to_owned(), staged.preview.clone().into());
    }
    let summary = summary(asked.command, &arguments);
    let details = PermissionDetails {
        source: PermissionSource::Gate,
        reason: AwaitingReason::Permission,
        op_tool: Some(op_tool.clone()),
        op_args: Some(Value::Object(arguments)),
        op_args_summary: Some(summary.clone()),
        approve_text: Some(String::new()),
        deny_text: Some(String::new()),
        choices: Vec::new(),
        command: Some(asked.text.to_owned()),
        principal: Some(asked.principal.to_owned()),
        actor: Some(asked.actor.to_owned()),
    };
    let metadata = serde_json::to_value(&details)?;
    let timeout = config.gate_timeout.and_then(|limit| u64::try_from(limit.as_millis()).ok());
    Ok(InputRequest::Permission {
        request_id: asked.request_id.to_owned(),
        title: format!("Approve {op_tool}: {summary}"),
        description: Some(format!("{} ({}) asks for it", asked.principal, asked.actor)),
        metadata: Some(metadata),
        timeout,
    })
}

/// What it is about, in a few words.
fn summary(command: &Command, arguments: &JsonObject) -> String {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let long = match command {
        Command::HostBash(params) => params.command.clone(),
        Command::FsUpload(params) => match arguments.get("bytes") {
            Some(bytes) => format!("{} ({bytes} bytes)", params.path),
            None => params.path.clone(),
        },
        Command::FsWrite(params) => format!("{} ({} bytes)", params.path, params.content.len()),
        Command::FsRename(params) | Command::FsMove(params) | Command::FsCopy(params) => {
            format!("{} → {}", params.from, params.to)
        }
        _ => text("path").to_owned(),
    };
    shorten(&long, SUMMARY_CHARACTERS_MAX)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
