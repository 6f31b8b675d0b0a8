//! Starts a pi process for a session.
//!
//! pi is given its conversation, directories and extensions explicitly, because what it would find by itself depends
//! on the user's own setup.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use qd_core::ids::{further_session_name, plain_session_name};
use qd_link::mutex::Mutex;

use super::Pi;
use super::error::{ConversationError, PiStartError};
use super::file_claim::FileClaim;
use super::handle::PiConversation;
use super::private_home;
use super::session_files::{CheckedFile, check_below};
use crate::config::RunnerConfig;
use crate::driver::{HarnessSettings, StartRequest};
use crate::process::{AgentProcess, Environment, Privileges, SpawnSpec};

/// Our extension, written beside the agents' directories at start.
const BRIDGE: &str = include_str!("../../../../../extensions/qd-bridge.ts");

/// The name under which pi reports it when it fails.
pub(super) const BRIDGE_FILE: &str = "qd-bridge.ts";

/// A pi that runs.
pub(super) struct LaunchedPi {
    pub(super) process: AgentProcess,
    pub(super) place: PiConversation,
    pub(super) warnings: Vec<String>,
}

/// Whether the program that starts pi can be found.
pub(super) fn is_installed(command: &[String]) -> bool {
    let Some(program) = command.first() else { return false };
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Starts pi as the notes recommend: private directories, our own session id, explicit extensions only.
pub(super) async fn launch(
    runner: &RunnerConfig,
    settings: &HarnessSettings,
    request: &StartRequest,
) -> Result<LaunchedPi, PiStartError> {
    let user_dir = &settings.user_dir;
    let session_dir = runner.session_dir(&request.session_id);
    let home = private_home::prepare(&session_dir, user_dir).map_err(PiStartError::PrivateDirectory)?;
    let sessions = private_home::session_directory(user_dir, &request.cwd);
    fs::create_dir_all(&sessions).map_err(PiStartError::SessionDirectory)?;
    let conversation = conversation(user_dir, request, &sessions)?;
    // Before pi starts: two of them on one file would silently split the conversation.
    let claim = conversation.path().map(|path| FileClaim::take(path, &request.session_id)).transpose();
    let claim = claim.map_err(ConversationError::from)?;
    let mut warnings = Vec::new();
    let bridge = match write_bridge(&runner.data_dir) {
        Ok(_) if !request.bridge => None,
        Ok(path) => Some(path),
        Err(error) => {
            warnings
                .push(format!("The bridge extension could not be written ({error}); phases are less fine"));
            None
        }
    };
    let mut program: Vec<OsString> = settings.command.iter().map(OsString::from).collect();
    program.extend(["--mode", "rpc", "--session-dir"].map(OsString::from));
    program.push(sessions.clone().into_os_string());
    let resumes = conversation.path().is_some() && request.native_session_id.is_some();
    program.extend(match (&conversation, conversation.path()) {
        (ChosenConversation::New(id), _) => ["--session-id".into(), OsString::from(id)],
        (_, path) => ["--session".into(), path.unwrap_or(Path::new("")).into()],
    });
    // What runs in a session is what its configuration names, not what happens to be installed for the user.
    program.extend(["--no-extensions", "--no-approve"].map(OsString::from));
    let own = bridge.into_iter().map(PathBuf::into_os_string);
    for extension in own.chain(request.config.extensions.iter().map(OsString::from)) {
        program.push("-e".into());
        program.push(extension);
    }
    // A conversation that goes on has its own model and level in its file.
    if !resumes {
        program.extend(model_arguments(request));
    }
    let spawn = SpawnSpec {
        program,
        cwd: request.cwd.clone(),
        environment: environment(runner, &home),
        guard: runner.guard.clone(),
        config: runner.process.clone(),
        privileges: Privileges::Fixed,
        session_id: request.session_id.clone(),
    };
    let process = spawn.start().await?;
    let place = PiConversation {
        session_id: request.session_id.clone(),
        cwd: request.cwd.clone(),
        is_known: request.native_session_id.is_some(),
        user_dir: user_dir.clone(),
        sessions,
        temp_dir: home.temp_dir,
        claim: Mutex::new(claim),
        checked: Mutex::new(match conversation {
            ChosenConversation::Named(checked) => Some(checked),
            ChosenConversation::Own(_) | ChosenConversation::New(_) => None,
        }),
    };
    Ok(LaunchedPi { process, place, warnings })
}

enum ChosenConversation {
    /// The file the session had.
    Own(PathBuf),
    /// A file that a client named.
    Named(CheckedFile),
    /// pi's own id of it.
    New(String),
}

impl ChosenConversation {
    fn path(&self) -> Option<&Path> {
        match self {
            ChosenConversation::Own(path) => Some(path),
            ChosenConversation::Named(checked) => Some(checked.path()),
            ChosenConversation::New(_) => None,
        }
    }
}

/// Which conversation: the one it had, the one the client named, or a new one under our id.
fn conversation(
    user_dir: &Path,
    request: &StartRequest,
    sessions: &Path,
) -> Result<ChosenConversation, ConversationError> {
    if let Some(file) = &request.native_session_file
        && Path::new(file).is_file()
    {
        return Ok(ChosenConversation::Own(file.into()));
    }
    if request.is_native_file_written {
        // pi would begin an empty conversation under the old name.
        let file = request.native_session_file.clone().unwrap_or_default();
        return Err(ConversationError::FileGone { file });
    }
    if let Some(id) = &request.native_session_id {
        return Ok(ChosenConversation::New(id.clone()));
    }
    match &request.config.continue_session {
        Some(named) => find_session(named, user_dir, sessions).map(ChosenConversation::Named),
        None => free_id(&request.session_id, sessions).map(ChosenConversation::New),
    }
}

/// Our id for pi to use. A deleted session leaves its file behind, and pi would go on with that one under the same id.
/// No other session ever gets one of these names, so those that have no file yet need not be known.
fn free_id(session_id: &str, sessions: &Path) -> Result<String, ConversationError> {
    let name = plain_session_name(session_id);
    let entries = list(sessions)?;
    let taken: HashSet<String> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let id = id_of_file(&file)?;
            id.ends_with(&*name).then(|| id.to_owned())
        })
        .collect();
    let is_free = |id: &String| !taken.contains(id);
    let further = (2_u64..).map(|number| further_session_name(&name, number));
    let mut names = std::iter::once(name.clone().into_owned()).chain(further);
    names.find(is_free).ok_or_else(|| ConversationError::NoFreeName { session_id: session_id.to_owned() })
}

/// A session file by path, or by pi's own session id. pi itself would silently start an empty one.
pub(super) fn find_session(
    named: &str,
    user_dir: &Path,
    sessions: &Path,
) -> Result<CheckedFile, ConversationError> {
    let is_path = named.contains(['/', '\0']) || named.starts_with('~');
    if is_path || named.ends_with(".jsonl") || named.ends_with(".json") {
        return Ok(check_below(user_dir, named)?);
    }
    let entries = list(sessions)?;
    for entry in entries.flatten() {
        if entry.file_name().to_str().and_then(id_of_file) == Some(named) {
            return Ok(check_below(user_dir, &entry.path().to_string_lossy())?);
        }
    }
    Err(ConversationError::NotFound { named: named.to_owned(), directory: sessions.to_owned() })
}

fn list(directory: &Path) -> Result<fs::ReadDir, ConversationError> {
    let unlisted = |source| ConversationError::Unlisted { directory: directory.to_owned(), source };
    fs::read_dir(directory).map_err(unlisted)
}

/// pi's own id of the conversation in a file of this name: all after the time in front.
fn id_of_file(name: &str) -> Option<&str> {
    name.strip_suffix(".jsonl")?.split_once('_').map(|(_, id)| id)
}

/// Model and thinking level as the client wished.
fn model_arguments(request: &StartRequest) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(model) = &request.config.model {
        if let Some(provider) = &request.config.provider {
            arguments.extend(["--provider".into(), provider.into()]);
        }
        arguments.extend(["--model".into(), model.into()]);
    }
    if let Some(level) = &request.config.thinking_level {
        arguments.extend(["--thinking".into(), level.into()]);
    }
    arguments
}

fn environment(runner: &RunnerConfig, home: &private_home::PrivateHome) -> Environment {
    let set = |name: &str, value: &Path| (OsString::from(name), value.as_os_str().to_owned());
    let compile_cache = runner.data_dir.join("cache").join("node");
    let mut set = vec![
        set("PI_CODING_AGENT_DIR", &home.agent_dir),
        set("TMPDIR", &home.temp_dir),
        // One cache for all: it is worth 100 ms of every start.
        set("NODE_COMPILE_CACHE", &compile_cache),
        ("PI_OFFLINE".into(), "1".into()),
        ("PI_TELEMETRY".into(), "0".into()),
        ("PI_SKIP_VERSION_CHECK".into(), "1".into()),
    ];
    // A session's place is ours to choose, and whose dialogs run out of time too.
    let remove = ["PI_CODING_AGENT_SESSION_DIR", "QD_UI_TIMEOUT_ERRORS", "QD_UI_TIMEOUT_MS"];
    if let Some(limit) = runner.question_timeout {
        // Our extension makes errors of dialogs that run out of time.
        set.push(("QD_UI_TIMEOUT_ERRORS".into(), "1".into()));
        set.push(("QD_UI_TIMEOUT_MS".into(), limit.as_millis().to_string().into()));
    }
    Environment { inherit: runner.inherited_by(&Pi), remove: remove.map(Into::into).to_vec(), set }
}

fn write_bridge(data_dir: &Path) -> io::Result<PathBuf> {
    let directory = data_dir.join("extensions");
    fs::create_dir_all(&directory)?;
    let path = directory.join(BRIDGE_FILE);
    let current = fs::read_to_string(&path).unwrap_or_default();
    if current != BRIDGE {
        // Renamed into place, so that an agent starting now never reads half of it.
        let fresh = directory.join(format!(".qd-bridge.{}.ts", std::process::id()));
        fs::write(&fresh, BRIDGE)?;
        fs::rename(&fresh, &path)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_found_by_its_whole_id_or_its_whole_path() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions").join("here");
        fs::create_dir_all(&sessions).unwrap();
        let write = |name: &str| {
            let header =
                r#"{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}"#;
            fs::write(sessions.join(name), format!("{header}\n")).unwrap();
        };
        write("2026-01-01T00-00-00-000Z_my_chat.jsonl");
        let find = |named: &str| {
            let found = find_session(named, folder.path(), &sessions);
            let name = |file: CheckedFile| file.path().file_name().unwrap().to_str().unwrap().to_owned();
            found.map(name).map_err(|error| error.to_string())
        };
        assert!(find("chat").unwrap_err().contains("There is no pi session 'chat'"));
        assert_eq!(find("my_chat").unwrap(), "2026-01-01T00-00-00-000Z_my_chat.jsonl");
        write("2026-01-02T00-00-00-000Z_chat.jsonl");
        assert_eq!(find("chat").unwrap(), "2026-01-02T00-00-00-000Z_chat.jsonl");
        // This is how the pi-server face writes a word where only a path may be.
        assert_eq!(find("./chat").unwrap_err(), "sessionPath must be an absolute path");
    }

    #[test]
    fn a_name_that_is_used_again_is_one_no_other_session_has() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path();
        assert_eq!(free_id("s", sessions).unwrap(), "s");
        for name in ["s", "other"] {
            fs::write(sessions.join(format!("2026_{name}.jsonl")), "").unwrap();
        }
        // Session "s-2" may run, or wait to be used again, without a file.
        let again = free_id("s", sessions).unwrap();
        assert_eq!((again.as_str(), free_id(&again, sessions).unwrap() == again), ("qd-id-2-s", false));
        fs::write(sessions.join(format!("2026_{again}.jsonl")), "").unwrap();
        assert_eq!(free_id("s", sessions).unwrap(), "qd-id-3-s");
    }
}
