//! Tells what changes in a directory and in those below it. Links are not followed.
//!
//! Each directory is watched by itself, so that hidden ones cost nothing and their number has a bound. What changed is
//! looked at by handle before it is told. The first report is empty: from then on nothing is missed.

mod directories;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use notify::event::{ModifyKind, RemoveKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher};
use qd_wire::service::{FsChange, FsChanges, FsWatchParams};
use rustix::fs::FileType;

use self::directories::WatchedDirectories;
use super::call::{Cancellation, ServiceError, ServiceResult};
use super::root::{RelativePath, Root, file_type};
use crate::clock;

/// Changes that come so close together are told together.
const DEBOUNCE: Duration = Duration::from_millis(150);

/// How soon a cancelled watch ends.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Changes of one report; whoever is told of more looks again anyway.
const CHANGES_MAX: usize = 256;

/// The system's events that wait to be looked at.
const EVENTS_MAX: usize = 4096;

/// Paths that changed since the last report.
const PATHS_MAX: usize = 4096;

/// Watches until it is cancelled, which is no error. One that cannot go on says why.
pub(crate) fn watch(
    root: &Root,
    params: &FsWatchParams,
    cancel: &Cancellation,
    tell: &mut dyn FnMut(FsChanges),
) -> ServiceResult<()> {
    let path = RelativePath::parse_or_root(params.path.as_deref())?;
    let missed = Arc::new(AtomicBool::new(false));
    let (watcher, events) = start(missed.clone())?;
    let include_hidden = params.include_hidden == Some(true);
    let mut directories = WatchedDirectories::new(root, path, watcher, include_hidden)?;
    let found = directories.watch_all(cancel);
    if let Err(ServiceError::Cancelled) = found {
        return Ok(());
    }
    found?;
    tell(FsChanges::default());
    loop {
        let mut pending = PendingChanges::default();
        if !collect(&events, &directories, &mut pending, cancel)? {
            return Ok(());
        }
        pending.overflow |= missed.swap(false, Ordering::AcqRel);
        let changes = match pending.settle(&mut directories, cancel) {
            Err(ServiceError::Cancelled) => return Ok(()),
            changes => changes?,
        };
        if changes.overflow || !changes.changes.is_empty() {
            tell(changes);
        }
    }
}

/// A watcher of nothing yet, and its events that matter. Those that find no room are marked as missed.
fn start(missed: Arc<AtomicBool>) -> ServiceResult<(RecommendedWatcher, Receiver<Event>)> {
    let (sender, events) = sync_channel(EVENTS_MAX);
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let is_told = match event {
            // Reading changes nothing, and the other half of a renaming is told by itself.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => true,
            Ok(event) if event.need_rescan() => false,
            Ok(event) => sender.try_send(event).is_ok(),
            Err(_) => false,
        };
        if !is_told {
            missed.store(true, Ordering::Release);
        }
    });
    watcher.map(|watcher| (watcher, events)).map_err(directories::watch_failure)
}

/// Waits for something to happen, and then until it has been quiet or long enough. False when cancelled.
fn collect(
    events: &Receiver<Event>,
    directories: &WatchedDirectories<'_>,
    pending: &mut PendingChanges,
    cancel: &Cancellation,
) -> ServiceResult<bool> {
    let mut until = None;
    loop {
        if cancel.is_cancelled() {
            return Ok(false);
        }
        let now = clock::monotonic_now();
        let wait = match until {
            Some(until) if now >= until => return Ok(true),
            Some(until) => CANCEL_CHECK.min(until - now),
            None => CANCEL_CHECK,
        };
        match events.recv_timeout(wait) {
            Ok(event) => {
                pending.note(directories, event)?;
                until.get_or_insert(clock::monotonic_now() + DEBOUNCE);
            }
            // What was missed is told even if nothing else comes.
            Err(RecvTimeoutError::Timeout) => {
                until.get_or_insert(now + DEBOUNCE);
            }
            Err(RecvTimeoutError::Disconnected) => {
                refuse!(Failed, "the system stopped reporting changes: watch again");
            }
        }
    }
}

/// What happened to a path since the last report.
#[derive(Debug, Clone, Copy)]
struct PathChange {
    /// It was not there before.
    is_new: bool,
    was_dir: bool,
}

/// What happened since the last report, by the path from the watched directory.
#[derive(Debug, Default)]
struct PendingChanges {
    paths: BTreeMap<PathBuf, PathChange>,
    overflow: bool,
}

impl PendingChanges {
    fn note(&mut self, directories: &WatchedDirectories<'_>, event: Event) -> ServiceResult<()> {
        let is_new = match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) | EventKind::Access(_) => return Ok(()),
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => true,
            _ => false,
        };
        let is_gone = matches!(
            event.kind,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
        );
        let was_dir = event.kind == EventKind::Remove(RemoveKind::Folder);
        for path in event.paths {
            let Some(path) = directories.relative(&path) else { continue };
            if path.as_os_str().is_empty() {
                if is_gone {
                    refuse!(NotFound, "the watched directory was deleted or moved: watch another one");
                }
                continue;
            }
            let was_dir = was_dir || directories.has(path);
            self.add(path, PathChange { is_new, was_dir });
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, seen: PathChange) {
        if let Some(known) = self.paths.get_mut(path) {
            known.was_dir |= seen.was_dir;
        } else if self.paths.len() < PATHS_MAX {
            self.paths.insert(path.to_owned(), seen);
        } else {
            self.overflow = true;
        }
    }

    /// Looks at what is there now, watches new directories, and says what changed.
    fn settle(
        mut self,
        directories: &mut WatchedDirectories<'_>,
        cancel: &Cancellation,
    ) -> ServiceResult<FsChanges> {
        let noted: Vec<(PathBuf, PathChange)> =
            self.paths.iter().map(|(path, seen)| (path.clone(), *seen)).collect();
        for (path, seen) in noted {
            cancel.check()?;
            if seen.was_dir {
                directories.remove(&path);
            }
            // Its contents may have come before it was watched.
            for inside in directories.add(&path, cancel)? {
                self.add(&inside, PathChange { is_new: !seen.was_dir, was_dir: false });
            }
        }
        let mut report = FsChanges { changes: Vec::new(), overflow: self.overflow };
        for (path, seen) in self.paths {
            cancel.check()?;
            let now = directories.stat(&path);
            let change = match (&now, seen.is_new) {
                (Some(_), true) => "created",
                (Some(_), false) => "modified",
                (None, false) => "deleted",
                // It came and went.
                (None, true) => continue,
            };
            if report.changes.len() >= CHANGES_MAX {
                report.overflow = true;
                break;
            }
            let is_dir = now.map_or(seen.was_dir, |stat| file_type(&stat) == FileType::Directory);
            report.changes.push(FsChange {
                change: change.to_owned(),
                path: directories.shown(&path),
                is_dir,
            });
        }
        Ok(report)
    }
}

#[cfg(test)]
#[path = "watch/watch_tests.rs"]
mod tests;
