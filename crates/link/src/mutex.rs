//! The mutex of hub, runner and link: one that a panic cannot poison.

use std::sync::{self, MutexGuard, PoisonError};

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_panic_under_the_lock_leaves_the_value_usable() {
        let shared = Arc::new(Mutex::new(1));
        let panics = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut value = panics.lock();
            *value = 2;
            panic!("under the lock");
        });
        assert!(thread.join().is_err());
        assert_eq!(*shared.lock(), 2);
    }
}
