//! The guards that run, and whose programs are below each: so a process is known by its parents.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use qd_link::mutex::Mutex;

/// By process id. All runners of this process together: their guards are children of the same parent.
static GUARDS: Mutex<BTreeMap<i32, Arc<str>>> = Mutex::new(BTreeMap::new());

/// A guard in the table, for as long as this lives.
#[derive(Debug)]
pub(crate) struct GuardEntry(i32);

impl GuardEntry {
    /// `session_id` is empty for a program of no session.
    #[cfg(test)]
    pub(crate) fn add(pid: i32, session_id: &str) -> GuardEntry {
        GUARDS.lock().insert(pid, session_id.into());
        GuardEntry(pid)
    }
}

/// Starts a guard, which is in the table from its first moment on.
pub(crate) fn start<T>(
    session_id: &str,
    start: impl FnOnce() -> io::Result<T>,
    pid_of: impl FnOnce(&T) -> Option<i32>,
) -> io::Result<(T, Option<GuardEntry>)> {
    let mut guards = GUARDS.lock();
    let started = start()?;
    let entry = pid_of(&started).map(|pid| {
        guards.insert(pid, session_id.into());
        GuardEntry(pid)
    });
    Ok((started, entry))
}

/// Looks at the process ids of all guards, of which none starts or is forgotten meanwhile.
pub(crate) fn with_all<T>(look: impl FnOnce(&dyn Fn(i32) -> bool) -> T) -> T {
    let guards = GUARDS.lock();
    look(&|pid| guards.contains_key(&pid))
}

impl Drop for GuardEntry {
    fn drop(&mut self) {
        GUARDS.lock().remove(&self.0);
    }
}

/// The session whose programs a guard holds; empty for none. None if the process is no guard.
pub(crate) fn session_of(pid: i32) -> Option<Arc<str>> {
    GUARDS.lock().get(&pid).cloned()
}
