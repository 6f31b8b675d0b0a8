//! The one way in which this folder takes a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock also after a panic: what is behind these locks is whole at every step, and no step leaves a connection
/// in a transaction. `qd-link` has a mutex that cannot be poisoned for the crates above; the store may not depend on it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
