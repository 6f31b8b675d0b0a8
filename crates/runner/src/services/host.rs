//! Facts about this machine: what runs here, what is installed, what the log says.
//!
//! Programs are looked up with every question: they are installed and removed while a runner runs.

pub(crate) mod bash;

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use qd_core::terminal::known_tools;
use qd_wire::ErrorCode;
use qd_wire::command::Command;
use qd_wire::service::{HostDependency, HostInfoData, HostLogsData, HostLogsParams, HostTool};
use serde_json::json;

use super::call::{CallOutput, CallResult, ServiceError, ServiceResult};
use crate::process::program_lookup::find_program;
use crate::session::RunnerContext;

/// Programs the services need.
const DEPENDENCIES: [&str; 2] = ["git", "bash"];

// The defaults and bounds are the run document's.
const LINES: u64 = 200;
const LINES_MAX: u64 = 2000;
const LOG_BYTES: u64 = 200_000;
const LOG_BYTES_MAX: u64 = 2_000_000;

/// Answers a question about the host.
pub(super) fn answer(shared: &RunnerContext, command: &Command) -> CallResult {
    let data = match command {
        Command::HostLogs(params) => {
            let data = logs(shared.config.services.log_path.as_deref(), params)?;
            return CallOutput::new(
                data,
                |data| json!({ "path": data.path, "bytes": data.text.len(), "truncated": data.truncated }),
            );
        }
        Command::HostDoctor(_) => doctor(shared),
        Command::HostCapabilities(_) => capabilities(shared),
        _ => info(shared),
    };
    CallOutput::new(data, |data| json!({ "tools": data.tools.len() }))
}

fn doctor(shared: &RunnerContext) -> HostInfoData {
    // The document's hosts look programs up in this file first; clients of theirs ask for it.
    let path = shared.config.data_dir.join("bin-map.json");
    let found = std::fs::metadata(&path).ok();
    let mode = found.as_ref().map(|found| format!("{:o}", found.mode() & 0o777));
    let bin_map = json!({ "path": path, "exists": found.is_some(), "mode": mode });
    HostInfoData { deps: Some(dependencies()), bin_map: Some(bin_map), ..info(shared) }
}

fn info(shared: &RunnerContext) -> HostInfoData {
    let folders = path_folders();
    HostInfoData {
        host_id: shared.config.runner_id.clone(),
        pid: std::process::id(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        version: shared.config.version.clone(),
        hostname: shared.config.hostname.clone(),
        tools: known_tools().iter().map(|tool| look_up(tool, &folders)).collect(),
        ..HostInfoData::default()
    }
}

fn capabilities(shared: &RunnerContext) -> HostInfoData {
    let config = &shared.config;
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let rpc = qd_wire::run_protocol::rpc_names().map(str::to_owned).collect();
    HostInfoData {
        deps: Some(dependencies()),
        server_base_url: config.services.server_base_url.clone(),
        local_unix_socket: config.local_socket.as_ref().map(text),
        spool_db_path: Some(text(&config.data_dir.join("runner.db"))),
        log_path: config.services.log_path.as_ref().map(text),
        supported_rpc: Some(rpc),
        harnesses: Some(config.harnesses.installed()),
        workspace_roots: Some(config.services.workspace_roots.iter().map(text).collect()),
        ..info(shared)
    }
}

fn dependencies() -> Vec<HostDependency> {
    let folders = path_folders();
    let is_there = |name: &str| find_program(name, folders.iter().cloned()).is_some();
    DEPENDENCIES.iter().map(|name| HostDependency { name: (*name).to_owned(), ok: is_there(name) }).collect()
}

/// Where programs are looked for.
fn path_folders() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

fn look_up(tool: &str, folders: &[PathBuf]) -> HostTool {
    let bin = find_program(tool, folders.iter().cloned()).map(|path| path.to_string_lossy().into_owned());
    let error = bin.is_none().then(|| format!("{tool} binary not found in PATH: {tool}"));
    HostTool { tool: tool.to_owned(), ok: bin.is_some(), bin, error }
}

/// The last lines of the log; only the end of the file is read.
pub(super) fn logs(path: Option<&Path>, params: &HostLogsParams) -> ServiceResult<HostLogsData> {
    let lines = check("lines", params.lines.unwrap_or(LINES), LINES_MAX)?;
    let max_bytes = check("max_bytes", params.max_bytes.unwrap_or(LOG_BYTES), LOG_BYTES_MAX)?;
    let Some(path) = path else {
        return Err(ServiceError::coded(
            ErrorCode::Unsupported,
            "This runner logs to no file: set log_file (QD_LOG_FILE) and restart it \
             (HOSTD_LOG_PATH is not set on this host)",
        ));
    };
    let unreadable = |error: std::io::Error| {
        let reason = format!("failed to read log file: {}: {error}", path.display());
        ServiceError::coded(ErrorCode::of_io(&error), reason)
    };
    // A log path that is a named pipe would block the thread until somebody writes; it is refused below.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file =
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(ServiceError::NotAFile);
    }
    let start = found.len().saturating_sub(max_bytes);
    // One byte more tells whether the first line is whole.
    let before = start.saturating_sub(1);
    file.seek(SeekFrom::Start(before)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(max_bytes + (start - before)).read_to_end(&mut bytes).map_err(unreadable)?;
    let mut truncated = start > 0;
    let mut tail = &bytes[..];
    if start > 0 {
        tail = match memchr::memchr(b'\n', tail) {
            Some(end) => &tail[end + 1..],
            // One line longer than all that may be told: its end.
            None => &tail[1..],
        };
    }
    let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', tail.strip_suffix(b"\n").unwrap_or(tail)).collect();
    if let Some(cut) = (ends.len() + 1).checked_sub(wanted).filter(|surplus| *surplus > 0)
        && let Some(end) = ends.get(cut - 1)
    {
        tail = &tail[end + 1..];
        truncated = true;
    }
    let text = String::from_utf8_lossy(tail).into_owned();
    Ok(HostLogsData { path: path.to_string_lossy().into_owned(), text, truncated })
}

fn check(name: &str, value: u64, max: u64) -> ServiceResult<u64> {
    if value == 0 || value > max {
        refuse!(InvalidRequest, "{name}: Must be 1 to {max}");
    }
    Ok(value)
}

#[cfg(test)]
#[path = "host/host_tests.rs"]
mod tests;
