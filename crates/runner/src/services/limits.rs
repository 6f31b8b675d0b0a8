//! How many calls work at once: for the whole runner, and for each session, so that one cannot starve the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use qd_wire::command_table::CommandClass;
use qd_wire::{Command, ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call::{Cancel, ServiceError};

/// Calls that wait for their turn, of the whole runner and of one session; more are refused.
const WAITING_MAX: usize = 256;
const WAITING_PER_SESSION_MAX: usize = 64;

/// Calls of a kind; what takes long must not take the place of what does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Quick,
    /// Shell commands.
    Shell,
    /// `fs.watch`.
    Watch,
}

impl Kind {
    pub(super) fn of(command: &Command) -> Kind {
        match command.spec().class {
            CommandClass::Execute => Kind::Shell,
            CommandClass::Watch => Kind::Watch,
            _ => Kind::Quick,
        }
    }

    /// At once in the whole runner, and in one session.
    fn bounds(self) -> (usize, usize) {
        match self {
            Kind::Quick => (64, 16),
            Kind::Shell => (32, 8),
            Kind::Watch => (64, 16),
        }
    }
}

/// The places of a runner.
pub(super) struct Limits {
    /// In the order of the kinds.
    all: [Arc<Semaphore>; 3],
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<(Kind, String), Arc<Semaphore>>,
    waiting: BTreeMap<String, usize>,
}

/// A place to work in, given back on drop.
pub(super) struct Place {
    /// Given back before the drop of the place looks whether the session needs its semaphore any more.
    permits: Option<[OwnedSemaphorePermit; 2]>,
    key: (Kind, String),
    state: Arc<Mutex<State>>,
}

impl Default for Limits {
    fn default() -> Self {
        let kinds = [Kind::Quick, Kind::Shell, Kind::Watch];
        let all = kinds.map(|kind| Arc::new(Semaphore::new(kind.bounds().0)));
        Limits { all, state: Arc::default() }
    }
}

impl Limits {
    /// Waits for a place. `scope` is the session, or the empty text for calls without one.
    pub(super) async fn take(&self, kind: Kind, scope: &str, cancel: &Cancel) -> Result<Place, ServiceError> {
        let key = (kind, scope.to_owned());
        let own = {
            let mut state = lock(&self.state);
            let own = || Arc::new(Semaphore::new(kind.bounds().1));
            Arc::clone(state.sessions.entry(key.clone()).or_insert_with(own))
        };
        // Made first, so that the session's semaphore is forgotten whatever happens.
        let mut place = Place { permits: None, key, state: Arc::clone(&self.state) };
        let all = Arc::clone(&self.all[kind as usize]);
        if let (Ok(first), Ok(second)) =
            (Arc::clone(&own).try_acquire_owned(), Arc::clone(&all).try_acquire_owned())
        {
            place.permits = Some([first, second]);
            return Ok(place);
        }
        let _waiting = Waiting::enter(&self.state, scope)?;
        let permits = async {
            let first = own.acquire_owned().await.ok()?;
            Some([first, all.acquire_owned().await.ok()?])
        };
        tokio::select! {
            permits = permits => place.permits = permits,
            () = cancel.cancelled() => return Err(ServiceError::Cancelled),
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permits = None;
        let mut state = lock(&self.state);
        let is_unused = state.sessions.get(&self.key).is_some_and(|own| Arc::strong_count(own) == 1);
        if is_unused {
            state.sessions.remove(&self.key);
        }
    }
}

/// A place in the queue.
struct Waiting {
    state: Arc<Mutex<State>>,
    scope: String,
}

impl Waiting {
    fn enter(state: &Arc<Mutex<State>>, scope: &str) -> Result<Waiting, ServiceError> {
        let mut locked = lock(state);
        let all: usize = locked.waiting.values().sum();
        let own = locked.waiting.get(scope).copied().unwrap_or_default();
        if all >= WAITING_MAX || own >= WAITING_PER_SESSION_MAX {
            return Err(ServiceError::coded(
                ErrorCode::Busy,
                "The runner is busy: too many service calls wait for their turn. Please retry.",
            ));
        }
        locked.waiting.insert(scope.to_owned(), own + 1);
        Ok(Waiting { state: Arc::clone(state), scope: scope.to_owned() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        match state.waiting.get_mut(&self.scope) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(state.waiting.remove(&self.scope)),
        }
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_session_cannot_take_the_places_of_others() {
        let limits = Arc::new(Limits::default());
        let cancel = Cancel::default();
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(limits.take(Kind::Quick, "a", &cancel).await.unwrap());
        }
        assert!(limits.take(Kind::Quick, "b", &cancel).await.is_ok());
        // Shell commands have places of their own.
        assert!(limits.take(Kind::Shell, "a", &cancel).await.is_ok());
        let mut queue = Vec::new();
        for _ in 0..WAITING_PER_SESSION_MAX {
            let (limits, cancel) = (Arc::clone(&limits), cancel.clone());
            queue.push(tokio::spawn(async move { limits.take(Kind::Quick, "a", &cancel).await.is_ok() }));
        }
        while lock(&limits.state).waiting.get("a") != Some(&WAITING_PER_SESSION_MAX) {
            tokio::task::yield_now().await;
        }
        let error = limits.take(Kind::Quick, "a", &cancel).await.err().unwrap();
        assert!(error.to_string().contains("busy"), "{error}");
        drop(held);
        for one in queue {
            assert!(one.await.unwrap());
        }
        assert!(lock(&limits.state).sessions.is_empty());
    }

    #[tokio::test]
    async fn a_call_that_waits_can_be_cancelled() {
        let limits = Limits::default();
        let cancel = Cancel::default();
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(limits.take(Kind::Shell, "a", &cancel).await.unwrap());
        }
        let waiting = limits.take(Kind::Shell, "a", &cancel);
        let cancelled = async { cancel.cancel() };
        let (waited, ()) = tokio::join!(waiting, cancelled);
        assert_eq!(waited.err(), Some(ServiceError::Cancelled));
    }
}
