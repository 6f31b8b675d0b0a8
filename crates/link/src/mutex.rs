//! The locks of hub, runner and link: a panic cannot poison them.

use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// A mutex whose `lock` always succeeds. A task that panics while it holds the lock fails alone, with the error
/// its own panic causes; the value is left between two statements and everybody else keeps working, where a
/// poisoned mutex would end every connection and session that shares it.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panic_under_the_lock_leaves_the_value_usable() {
        let shared = Arc::new((Mutex::new(1), RwLock::new(1)));
        let panics = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let (mut first, mut second) = (panics.0.lock(), panics.1.write());
            (*first, *second) = (2, 2);
            panic!("under the lock");
        });
        assert!(thread.join().is_err());
        assert_eq!((*shared.0.lock(), *shared.1.read()), (2, 2));
    }
}
