//! The conversation as a web page in the session's directory. pi writes wherever it is told, so it writes into its
//! private directory, and we put the page where it belongs, by handle.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use qd_core::agent::AgentRequest;
use qd_wire::{CodedError, ErrorCode};
use serde_json::json;

use super::PiHandle;
use super::handle::PiConversation;
use crate::driver::{AgentFailure, ExecuteResult, ExecutedCommand};

/// Exports the conversation to `wanted` or to a name of our own, below the session's directory.
pub(super) async fn export(handle: &PiHandle, wanted: Option<&str>) -> ExecuteResult {
    let place = handle.place();
    let target = match wanted {
        Some(wanted) => below(&place.cwd, wanted).map_err(|error| CodedError::invalid(error.to_string()))?,
        None => default_name(
            handle.request(AgentRequest::GetState).await?.get("sessionFile").and_then(|f| f.as_str()),
        ),
    };
    let page = place.temp_dir.join(format!("{}.html", handle.fresh_id("export-")));
    let output_path = Some(page.to_string_lossy().into_owned());
    handle.request(AgentRequest::ExportHtml { output_path }).await?;
    let path = place.cwd.join(&target);
    let copy = tokio::task::spawn_blocking({
        let (cwd, page) = (place.cwd.clone(), page.clone());
        move || {
            let result = put(&cwd, &target, &page);
            (result, std::fs::remove_file(&page))
        }
    });
    let (result, removed) = copy.await.map_err(|error| ErrorCode::Internal.with(error.to_string()))?;
    if let Err(error) = removed {
        tracing::warn!(page = %page.display(), %error, "an exported page could not be removed");
    }
    result.map_err(|error| refusal(place, &path, &error))?;
    Ok(ExecutedCommand::with_data(json!({ "path": path })))
}

/// Why a page cannot be written where a client wants it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum OutputPathError {
    #[error("outputPath must be within the session's directory {}; give a path relative to it", .cwd.display())]
    Outside { cwd: PathBuf },
    #[error("outputPath must name a file")]
    NoFile,
}

/// The path below the session's directory that a client means.
fn below(cwd: &Path, wanted: &str) -> Result<PathBuf, OutputPathError> {
    let outside = || OutputPathError::Outside { cwd: cwd.to_owned() };
    if wanted.contains('\0') || wanted.starts_with('~') {
        return Err(outside());
    }
    let path = Path::new(wanted);
    let real = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let relative = match path.strip_prefix(cwd).or_else(|_| path.strip_prefix(&real)) {
        Ok(relative) => relative,
        Err(_) if path.is_absolute() => return Err(outside()),
        Err(_) => path,
    };
    let mut target = PathBuf::new();
    for component in relative.components() {
        match component {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    if target.as_os_str().is_empty() || wanted.ends_with('/') {
        return Err(OutputPathError::NoFile);
    }
    Ok(target)
}

/// pi's own name for the page.
fn default_name(session_file: Option<&str>) -> PathBuf {
    let stem = session_file.and_then(|file| Path::new(file).file_stem()).map(|stem| stem.to_string_lossy());
    format!("pi-session-{}.html", stem.as_deref().unwrap_or("export")).into()
}

/// Copies the page to its place. Whatever was there is replaced as a whole; a link is replaced, not followed.
fn put(cwd: &Path, target: &Path, page: &Path) -> io::Result<()> {
    let mut source = File::open(page)?;
    let root = Dir::open_ambient_dir(cwd, ambient_authority())?;
    let directory = match target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => root.open_dir(parent)?,
        None => root,
    };
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let fresh = format!(".{}.{}", page.file_stem().unwrap_or_default().to_string_lossy(), std::process::id());
    let mut file = directory.open_with(&fresh, OpenOptions::new().write(true).create_new(true))?;
    let result = io::copy(&mut source, &mut file).and_then(|_| directory.rename(&fresh, &directory, name));
    if result.is_err() {
        // The first error is the one to tell.
        let _ = directory.remove_file(&fresh);
    }
    result
}

fn refusal(place: &PiConversation, path: &Path, error: &io::Error) -> AgentFailure {
    let code = ErrorCode::of_io(error);
    let error = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{} cannot be written ({error}); outputPath must be within the session's directory {}",
            path.display(),
            place.cwd.display()
        ),
        io::ErrorKind::NotFound => {
            format!("{} cannot be written: its directory does not exist; make it first", path.display())
        }
        _ => format!("{} cannot be written: {error}", path.display()),
    };
    AgentFailure::refused(code.with(error))
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
