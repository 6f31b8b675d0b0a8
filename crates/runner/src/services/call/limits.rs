//! How many calls work at once: for the whole runner, and for each session, so that one cannot starve the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use qd_link::mutex::Mutex;
use qd_wire::Command;
use qd_wire::command_table::CommandClass;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Cancellation, ServiceError, ServiceResult};

/// Calls that wait for their turn, of the whole runner and of one session; more are refused.
const WAITING_MAX: usize = 256;
const WAITING_PER_SESSION_MAX: usize = 64;

/// Calls of a kind; what takes long must not take the place of what does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallKind {
    Quick,
    /// Shell commands.
    Shell,
    /// `fs.watch`.
    Watch,
}

impl CallKind {
    pub(crate) fn of(command: &Command) -> CallKind {
        match command.spec().class {
            CommandClass::Execute => CallKind::Shell,
            CommandClass::Watch => CallKind::Watch,
            _ => CallKind::Quick,
        }
    }

    /// At once in the whole runner, and in one session.
    fn bounds(self) -> (usize, usize) {
        match self {
            CallKind::Quick => (64, 16),
            CallKind::Shell => (32, 8),
            CallKind::Watch => (64, 16),
        }
    }
}

/// The places of a runner.
pub(crate) struct CallLimits {
    /// In the order of the kinds.
    runner_slots: [Arc<Semaphore>; 3],
    state: Arc<Mutex<LimitState>>,
}

#[derive(Default)]
struct LimitState {
    sessions: BTreeMap<(CallKind, String), Arc<Semaphore>>,
    waiting: BTreeMap<String, usize>,
}

/// A place to work in, given back on drop.
pub(crate) struct CallPermit {
    /// Given back before the drop of the place looks whether the session needs its semaphore any more.
    permits: Option<[OwnedSemaphorePermit; 2]>,
    key: (CallKind, String),
    state: Arc<Mutex<LimitState>>,
}

impl Default for CallLimits {
    fn default() -> Self {
        let kinds = [CallKind::Quick, CallKind::Shell, CallKind::Watch];
        let runner_slots = kinds.map(|kind| Arc::new(Semaphore::new(kind.bounds().0)));
        CallLimits { runner_slots, state: Arc::default() }
    }
}

impl CallLimits {
    /// Waits for a place. `scope` is the session, or the empty text for calls without one.
    pub(crate) async fn take(
        &self,
        kind: CallKind,
        scope: &str,
        cancel: &Cancellation,
    ) -> ServiceResult<CallPermit> {
        let key = (kind, scope.to_owned());
        let session_slots = {
            let mut state = self.state.lock();
            let session_slots = || Arc::new(Semaphore::new(kind.bounds().1));
            Arc::clone(state.sessions.entry(key.clone()).or_insert_with(session_slots))
        };
        // Made first, so that the session's semaphore is forgotten whatever happens.
        let mut permit = CallPermit { permits: None, key, state: Arc::clone(&self.state) };
        let runner_slots = Arc::clone(&self.runner_slots[kind as usize]);
        // The usual way, without entering the queue. If only one of the two is free it is given back at once.
        if let (Ok(first), Ok(second)) =
            (Arc::clone(&session_slots).try_acquire_owned(), Arc::clone(&runner_slots).try_acquire_owned())
        {
            permit.permits = Some([first, second]);
            return Ok(permit);
        }
        let _waiting = WaitingCall::enter(&self.state, scope)?;
        let permits = async {
            // The session's place first: a session at its limit must not hold places of the runner while it waits.
            let first = session_slots.acquire_owned().await.ok()?;
            Some([first, runner_slots.acquire_owned().await.ok()?])
        };
        tokio::select! {
            permits = permits => permit.permits = permits,
            () = cancel.cancelled() => return Err(ServiceError::Cancelled),
        }
        Ok(permit)
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.permits = None;
        let mut state = self.state.lock();
        let is_unused =
            state.sessions.get(&self.key).is_some_and(|session_slots| Arc::strong_count(session_slots) == 1);
        if is_unused {
            state.sessions.remove(&self.key);
        }
    }
}

/// A place in the queue.
struct WaitingCall {
    state: Arc<Mutex<LimitState>>,
    scope: String,
}

impl WaitingCall {
    fn enter(state: &Arc<Mutex<LimitState>>, scope: &str) -> ServiceResult<WaitingCall> {
        let mut locked = state.lock();
        let runner_slots: usize = locked.waiting.values().sum();
        let session_slots = locked.waiting.get(scope).copied().unwrap_or_default();
        if runner_slots >= WAITING_MAX || session_slots >= WAITING_PER_SESSION_MAX {
            refuse!(Busy, "The runner is busy: too many service calls wait for their turn. Please retry.");
        }
        locked.waiting.insert(scope.to_owned(), session_slots + 1);
        Ok(WaitingCall { state: Arc::clone(state), scope: scope.to_owned() })
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        match state.waiting.get_mut(&self.scope) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(state.waiting.remove(&self.scope)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_session_cannot_take_the_places_of_others() {
        let limits = Arc::new(CallLimits::default());
        let cancel = Cancellation::default();
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(limits.take(CallKind::Quick, "a", &cancel).await.unwrap());
        }
        assert!(limits.take(CallKind::Quick, "b", &cancel).await.is_ok());
        // Shell commands have places of their own.
        assert!(limits.take(CallKind::Shell, "a", &cancel).await.is_ok());
        let mut queue = Vec::new();
        for _ in 0..WAITING_PER_SESSION_MAX {
            let (limits, cancel) = (Arc::clone(&limits), cancel.clone());
            queue.push(tokio::spawn(async move { limits.take(CallKind::Quick, "a", &cancel).await.is_ok() }));
        }
        while limits.state.lock().waiting.get("a") != Some(&WAITING_PER_SESSION_MAX) {
            tokio::task::yield_now().await;
        }
        let error = limits.take(CallKind::Quick, "a", &cancel).await.err().unwrap();
        assert!(error.to_string().contains("busy"), "{error}");
        drop(held);
        for one in queue {
            assert!(one.await.unwrap());
        }
        assert!(limits.state.lock().sessions.is_empty());
    }

    #[tokio::test]
    async fn a_call_that_waits_can_be_cancelled() {
        let limits = CallLimits::default();
        let cancel = Cancellation::default();
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(limits.take(CallKind::Shell, "a", &cancel).await.unwrap());
        }
        let waiting = limits.take(CallKind::Shell, "a", &cancel);
        let cancelled = async { cancel.cancel() };
        let (waited, ()) = tokio::join!(waiting, cancelled);
        assert_eq!(waited.err(), Some(ServiceError::Cancelled));
    }
}
