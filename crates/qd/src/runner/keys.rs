//! The key of a running runner, and its change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qd_link::runner::RunnerKeys;
use qd_runner::{KeyError, KeyKeeper};

use super::membership::{Membership, key_hash, new_key};

/// Keeps the keys in memory and on disk; the disk first.
pub(super) struct KeyFile {
    data_dir: PathBuf,
    membership: Mutex<Membership>,
}

impl KeyFile {
    pub(super) fn new(data_dir: PathBuf, membership: Membership) -> Arc<KeyFile> {
        Arc::new(KeyFile { data_dir, membership: Mutex::new(membership) })
    }

    /// The keys to show the hub: the one in use, and the next one whose acceptance may have been lost on the way.
    pub(super) fn keys(self: &Arc<KeyFile>) -> RunnerKeys {
        let file = Arc::clone(self);
        Arc::new(move || {
            let membership = file.lock();
            std::iter::once(membership.key.clone()).chain(membership.next_key.clone()).collect()
        })
    }

    fn change(&self, change: impl FnOnce(&mut Membership)) -> Result<(), KeyError> {
        let mut membership = self.lock();
        let mut changed = membership.clone();
        change(&mut changed);
        changed.write(&self.data_dir).map_err(|error| KeyError::NotStored(error.into()))?;
        // Only after the disk has it. A key that is in use but not stored would lock the runner out after a crash.
        *membership = changed;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyKeeper for KeyFile {
    fn make_next(&self) -> Result<String, KeyError> {
        // Asked twice, the runner tells the same key twice.
        if let Some(next) = &self.lock().next_key {
            return Ok(key_hash(next));
        }
        let next = new_key().map_err(|error| KeyError::NotMade(error.into()))?;
        let hash = key_hash(&next);
        self.change(|membership| membership.next_key = Some(next))?;
        Ok(hash)
    }

    fn promote(&self, hash: &str) -> Result<(), KeyError> {
        let next = self.lock().next_key.clone().filter(|next| key_hash(next).eq_ignore_ascii_case(hash));
        // Told twice, or of a key that is in use already: nothing to do.
        let Some(next) = next else { return Ok(()) };
        self.change(|membership| {
            membership.key = next;
            membership.next_key = None;
        })
    }

    fn pending(&self) -> Option<String> {
        self.lock().next_key.as_deref().map(key_hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_on_disk_before_the_hub_hears_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let membership = Membership {
            url: "https://deck.example".into(),
            runner_id: "desk".into(),
            key: "old".into(),
            joined: true,
            ..Membership::default()
        };
        let file = KeyFile::new(directory.path().to_owned(), membership);
        let keys = file.keys();
        assert_eq!(keys(), ["old"]);
        assert_eq!(file.pending(), None);
        let hash = file.make_next().unwrap();
        assert_eq!(file.make_next().unwrap(), hash, "asked twice it is the same");
        let stored = || Membership::joined(directory.path()).map_err(|error| error.to_string()).unwrap();
        let next = stored().next_key.unwrap();
        assert_eq!((key_hash(&next), keys()), (hash.clone(), vec!["old".to_owned(), next.clone()]));
        file.promote("another").unwrap();
        assert_eq!(keys().len(), 2);
        let restarted = KeyFile::new(directory.path().to_owned(), stored());
        assert_eq!((file.pending(), restarted.pending()), (Some(hash.clone()), Some(hash.clone())));
        file.promote(&hash.to_uppercase()).unwrap();
        file.promote(&hash).unwrap();
        assert!(keys() == [next.as_str()]);
        assert_eq!(file.pending(), None);
        assert!(stored().key == next && stored().next_key.is_none());
    }
}
