//! A session in the store: written with every commit, read after a restart.
//!
//! The row holds what records do not say: the configuration, the agent's own names, inputs that no agent has read.
//! Fields are only added to its JSON, and a row of an older version is read with defaults.

use std::path::{Path, PathBuf};

use qd_core::session::{
    AcceptedPrompt, Allowance, Session, SessionIdentity, SessionMemory, StoredQuestion, UndeliveredInput,
};
use qd_store::{RunnerSession, SessionCounters};
use qd_wire::command::SessionConfig;
use qd_wire::data::{ModelRef, QueueState, SessionStatus, WorktreeState};
use qd_wire::run::{RunState, is_terminal};
use qd_wire::{CodedError, ErrorCode};
use serde::{Deserialize, Serialize};

use super::actor::SessionActor;
use crate::config::RunnerConfig;
use crate::driver::StartRequest;
use crate::services::check_directory;

/// A session read back from the store.
pub(crate) struct RestoredSession {
    pub(super) session: Session,
    pub(super) config: SessionConfig,
    pub(super) created_at: i64,
    /// What the store has; the session may know more already.
    pub(super) stored: SessionMemory,
    /// It was working when we died.
    pub(super) was_working: bool,
    /// It had an agent when we stopped, or its turn was cut off with inputs that wait.
    pub(super) may_resume: bool,
    pub(super) open_questions: Vec<StoredQuestion>,
}

/// What only the harness understands, and what it last said of itself.
#[derive(Default, Serialize, Deserialize)]
struct NativeState {
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    session_file: Option<String>,
    #[serde(default)]
    model: Option<ModelRef>,
    /// In the harness's own words.
    #[serde(default)]
    native_model: Option<serde_json::Value>,
    #[serde(default)]
    thinking_level: Option<String>,
    #[serde(default)]
    is_file_written: bool,
    /// Inputs that no agent has read.
    #[serde(default)]
    waiting: Vec<UndeliveredInput>,
    /// What waits goes ahead of the next prompt and starts no turn by itself, as after an abort.
    #[serde(default)]
    waits_for_prompt: bool,
    /// On its way to the agent when this was stored; nobody can know whether it has arrived.
    #[serde(default)]
    delivering: Option<UndeliveredInput>,
    /// Promised to their senders, so they must survive until the conversation shows them.
    #[serde(default)]
    accepted: Vec<AcceptedPrompt>,
    #[serde(default)]
    // Version 0.1.0 stored `allowed_tools`, which were for everybody. They are not read.
    allowances: Vec<Allowance>,
    /// Of a program in a terminal.
    #[serde(default)]
    run: Option<Box<RunState>>,
    #[serde(default)]
    branch: Option<String>,
    #[serde(default)]
    worktree: Option<WorktreeState>,
}

pub(super) fn new_session(
    runner: &RunnerConfig,
    session_id: &str,
    config: &SessionConfig,
    created_at: i64,
) -> Session {
    let identity = identity(runner, session_id, config, created_at);
    Session::new(identity, SessionMemory::default(), SessionStatus::Starting)
}

pub(super) fn session_row(actor: &SessionActor, now: i64) -> RunnerSession {
    let memory = actor.session.memory();
    let native = NativeState {
        session_id: memory.native_session_id.clone(),
        session_file: memory.native_session_file.clone(),
        model: memory.model.clone(),
        native_model: memory.native_model.clone(),
        thinking_level: memory.thinking_level.clone(),
        is_file_written: memory.is_native_file_written,
        waiting: actor.session.waiting_inputs(),
        waits_for_prompt: memory.waits_for_prompt,
        delivering: memory.delivering.clone(),
        accepted: stored_prompts(actor),
        allowances: memory.allowances.clone(),
        run: memory.run.clone(),
        branch: memory.branch.clone(),
        worktree: actor.session.identity().worktree.clone(),
    };
    RunnerSession {
        session_id: actor.session.identity().session_id.clone(),
        config_json: serde_json::to_string(&actor.config).unwrap_or_default(),
        native_json: serde_json::to_string(&native).unwrap_or_default(),
        version: memory.version,
        next_seq: memory.last_seq + 1,
        next_idx: memory.next_idx,
        state: stored_status(actor).to_owned(),
        title: memory.title.clone(),
        created_at: actor.created_at,
        updated_at: now,
        extra_json: None,
    }
}

/// The prompts whose acceptance was told and that the conversation does not show yet.
fn stored_prompts(actor: &SessionActor) -> Vec<AcceptedPrompt> {
    #[cfg(feature = "planted-bugs")]
    if actor.shared.config.planted_bug == Some(crate::PlantedBug::AcceptedNotStored) {
        return Vec::new();
    }
    actor.session.memory().accepted.clone()
}

/// A session whose agent we stop with ourselves is stored as it was: the next start may take it up again.
pub(super) fn stored_status(actor: &SessionActor) -> &'static str {
    let status = if actor.agent.was_up_at_shutdown { SessionStatus::Idle } else { actor.session.status() };
    status.as_str()
}

/// The part of the row that changes all the time.
pub(super) fn counters(actor: &SessionActor, now: i64) -> SessionCounters {
    let memory = actor.session.memory();
    SessionCounters {
        version: memory.version,
        next_seq: memory.last_seq + 1,
        next_idx: memory.next_idx,
        state: stored_status(actor).to_owned(),
        updated_at: now,
    }
}

/// Why a stored session cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error("its configuration: {0}")]
    Config(serde_json::Error),
    #[error("what the agent said of itself: {0}")]
    Native(serde_json::Error),
}

/// Rebuilds a session; its agent is not running.
pub(crate) fn restore(
    runner: &RunnerConfig,
    row: RunnerSession,
    open_questions: Vec<StoredQuestion>,
) -> Result<RestoredSession, RestoreError> {
    let config: SessionConfig = serde_json::from_str(&row.config_json).map_err(RestoreError::Config)?;
    let native: NativeState = serde_json::from_str(&row.native_json).map_err(RestoreError::Native)?;
    let stored = SessionMemory {
        last_seq: row.next_seq.saturating_sub(1),
        next_idx: row.next_idx,
        version: row.version,
        title: row.title,
        model: native.model,
        native_model: native.native_model,
        thinking_level: native.thinking_level,
        native_session_id: native.session_id,
        native_session_file: native.session_file,
        is_native_file_written: native.is_file_written,
        // The queue was in the agent's memory and ended with it; what we must deliver of it is in `kept`.
        queue: QueueState::default(),
        kept: native.waiting,
        waits_for_prompt: native.waits_for_prompt,
        delivering: native.delivering,
        accepted: native.accepted,
        allowances: native.allowances,
        run: native.run,
        branch: native.branch,
    };
    let memory = stored.clone();
    let is = |status: SessionStatus| row.state == status.as_str();
    let status = if is(SessionStatus::Closed) { SessionStatus::Closed } else { SessionStatus::Dormant };
    // A program in a terminal ended with its runner, and never comes back by itself.
    let is_run = is_terminal(&config.harness);
    let was_working = is(SessionStatus::Working) && !is_run;
    let had_agent = was_working || is(SessionStatus::Idle) || is(SessionStatus::Starting);
    // One that failed waits for a person: it may well fail again, and with it every start of the runner.
    let is_over = status == SessionStatus::Closed || is(SessionStatus::Failed);
    let has_work = !memory.kept.is_empty() && !memory.waits_for_prompt;
    let may_resume = !is_run && (had_agent || (has_work && !is_over));
    let mut identity = identity(runner, &row.session_id, &config, row.created_at);
    identity.worktree = native.worktree;
    let session = Session::new(identity, memory, status);
    let created_at = row.created_at;
    Ok(RestoredSession { session, config, created_at, stored, was_working, may_resume, open_questions })
}

/// Whether a client may name this directory for a new session. What has no code of its own is in the words of the
/// pi-server document, whose clients compare them.
fn check_cwd(cwd: &str) -> Result<(), CodedError> {
    const CHARACTERS_MAX: usize = 4096;
    if cwd.trim().is_empty() {
        refuse!(InvalidRequest, "CWD must be a non-empty string");
    }
    if cwd.chars().count() > CHARACTERS_MAX {
        refuse!(InvalidRequest, "CWD too long (max 4096 characters)");
    }
    if cwd.contains('\0') || cwd.starts_with('~') {
        refuse!(InvalidRequest, "CWD contains potentially dangerous path components");
    }
    if !Path::new(cwd).is_absolute() {
        refuse!(InvalidRequest, "CWD must be an absolute path");
    }
    match std::fs::metadata(cwd) {
        // From there a service would read the memory of this process, and the keys of all others.
        Ok(found) if found.is_dir() => check_directory(Path::new(cwd)),
        Ok(_) => Err(CodedError::invalid("CWD must point to an existing directory")),
        Err(error) => Err(match ErrorCode::of_io(&error) {
            // The pi-server face says this in its document's words, by the code.
            code @ ErrorCode::NotFound => code
                .with(format!("There is no directory {cwd} on this machine; create it, or choose another")),
            code => code.with("CWD could not be resolved"),
        }),
    }
}

/// Whether a session may be created where its configuration says; of a run in the words of the run document.
pub(crate) fn check_cwd_of(config: &SessionConfig) -> Result<(), CodedError> {
    let Some(cwd) = config.cwd.as_deref() else { return Ok(()) };
    if is_terminal(&config.harness) && Path::new(cwd).is_absolute() {
        check_run_cwd(Path::new(cwd))?;
    }
    check_cwd(cwd)
}

fn check_run_cwd(cwd: &Path) -> Result<(), CodedError> {
    match std::fs::metadata(cwd) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CodedError::invalid(format!("run cwd is not a directory: {}", cwd.display()))),
        Err(_) => Err(ErrorCode::NotFound.with(format!("run cwd does not exist: {}", cwd.display()))),
    }
}

/// What the driver needs to start this session's agent; a missing directory is a clear error.
pub(super) fn start_request(
    session: &Session,
    config: &SessionConfig,
    bridge: bool,
) -> Result<StartRequest, CodedError> {
    let cwd = PathBuf::from(session.identity().cwd.clone().unwrap_or_else(|| "/".to_owned()));
    if !cwd.is_absolute() {
        refuse!(InvalidRequest, "cwd: Must be an absolute path, not '{}'", cwd.display());
    }
    if is_terminal(&config.harness) {
        check_run_cwd(&cwd)?;
    }
    if !cwd.is_dir() {
        let runner_id = &session.identity().runner_id;
        return Err(ErrorCode::NotFound.with(format!(
            "cwd: There is no directory '{}' on runner {runner_id}; name one it has",
            cwd.display()
        )));
    }
    let memory = session.memory();
    Ok(StartRequest {
        session_id: session.identity().session_id.clone(),
        config: config.clone(),
        cwd,
        native_session_id: memory.native_session_id.clone(),
        native_session_file: memory.native_session_file.clone(),
        is_native_file_written: memory.is_native_file_written,
        bridge,
    })
}

fn identity(
    runner: &RunnerConfig,
    session_id: &str,
    config: &SessionConfig,
    created_at: i64,
) -> SessionIdentity {
    SessionIdentity {
        session_id: session_id.to_owned(),
        runner_id: runner.runner_id.clone(),
        harness: config.harness.clone(),
        cwd: Some(config.cwd.clone().unwrap_or_else(|| home_of(runner))),
        capabilities: runner.harnesses.capabilities(&config.harness),
        created_at,
        worktree: None,
    }
}

/// Without a directory a session works where the user's files are.
pub(super) fn home_of(runner: &RunnerConfig) -> String {
    let home = runner.default_cwd.as_deref().unwrap_or(Path::new("/"));
    home.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were for everybody; who they were meant for is not known.
    #[test]
    fn allowances_of_earlier_versions_are_forgotten() {
        let native: NativeState = serde_json::from_str(r#"{"allowed_tools":["bash"]}"#).unwrap();
        assert_eq!(native.allowances, []);
    }
}
