//! Passwords: hashed with argon2id, on threads that may block, and few at a time.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use qd_wire::ErrorCode;
use tokio::sync::Semaphore;

/// OWASP's parameters: 19 MiB, twice, on one thread.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// What a stored hash may ask for; ours asks for less, and nobody else writes the table.
const MEMORY_KIB_MAX: u32 = 64 * 1024;
const PASSES_MAX: u32 = 16;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// Hashes at a time: their memory is all that logins ever take.
const AT_A_TIME_MAX: usize = 2;
/// Those that wait for their turn; at some 50 ms each the last waits about a second.
const WAITING_MAX: usize = 32;
/// The allocator keeps blocks up to 32 MiB for later once it has seen one of their size go, and gives greater ones back
/// to the system. So more is asked for than is used; what is not used is never touched and costs nothing.
const ALLOCATED_BLOCKS: usize = 33 * 1024;
/// Nobody's: the work for a name that nobody has is the same as for one that somebody has.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$cXVhcnRlcmRlY2stbm9ib2R5$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The shortest password, in characters.
pub(crate) const PASSWORD_CHARS_MIN: usize = 8;
/// The longest, in bytes: nobody types more, and hashing takes them all.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;

/// Where hashes are made.
pub(crate) struct Hasher {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Hasher {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_A_TIME_MAX)),
            places: Arc::new(Semaphore::new(AT_A_TIME_MAX + WAITING_MAX)),
        }
    }
}

/// Why there is no hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("Too many logins at a time; try again in a moment")]
    Busy,
    #[error("The system has no randomness; try again")]
    NoRandomness,
    #[error("The password cannot be hashed: {0}")]
    Failed(String),
}

impl HashError {
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            HashError::Busy | HashError::NoRandomness => ErrorCode::Busy,
            HashError::Failed(_) => ErrorCode::Internal,
        }
    }
}

impl Hasher {
    /// The text to store.
    pub(crate) async fn hash(&self, password: String) -> Result<String, HashError> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|_| HashError::NoRandomness)?;
        self.run(move || Phc { memory_kib: MEMORY_KIB, passes: PASSES, salt: salt.to_vec() }.text(&password))
            .await
    }

    /// Whether this is the password of a stored text; for nobody's, which is `None`, it takes as long and is false.
    pub(crate) async fn is_password(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, HashError> {
        let is_somebodys = stored.is_some();
        let stored = stored.unwrap_or_else(|| NOBODYS.to_owned());
        let matches = self
            .run(move || {
                let (phc, hash) = Phc::parse(&stored)
                    .ok_or_else(|| HashError::Failed("the stored hash is damaged".to_owned()))?;
                let found = phc.hash(&password)?;
                Ok(found.iter().zip(&hash).fold(0, |difference, (left, right)| difference | (left ^ right))
                    == 0)
            })
            .await?;
        Ok(matches && is_somebodys)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HashError> + Send + 'static,
    ) -> Result<T, HashError> {
        // Without a place nobody waits: a flood of logins is refused at once instead of growing a queue.
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| HashError::Busy)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| HashError::Busy)?;
        // Nothing stops a hash that has begun. It keeps its turn also when nobody waits for it any more, so that clients
        // that hang up do not get more hashes at a time than others.
        let work = move || {
            let _held = (place, turn);
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| HashError::Failed(error.to_string()))?
    }
}

/// What is beside the hash in its text.
struct Phc {
    memory_kib: u32,
    passes: u32,
    salt: Vec<u8>,
}

impl Phc {
    fn text(&self, password: &str) -> Result<String, HashError> {
        let hash = self.hash(password)?;
        let (salt, hash) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(hash));
        let Phc { memory_kib, passes, .. } = self;
        Ok(format!("$argon2id$v=19$m={memory_kib},t={passes},p={LANES}${salt}${hash}"))
    }

    fn parse(text: &str) -> Option<(Phc, [u8; HASH_BYTES])> {
        let rest = text.strip_prefix("$argon2id$v=19$m=")?;
        let mut fields = rest.split('$');
        let (memory_kib, times) = fields.next()?.split_once(",t=")?;
        let passes = times.strip_suffix(",p=1")?.parse().ok().filter(|passes| *passes <= PASSES_MAX)?;
        let memory_kib = memory_kib.parse().ok().filter(|kib| *kib <= MEMORY_KIB_MAX)?;
        let salt = STANDARD_NO_PAD.decode(fields.next()?).ok()?;
        let hash = STANDARD_NO_PAD.decode(fields.next()?).ok()?.try_into().ok()?;
        fields.next().is_none().then_some((Phc { memory_kib, passes, salt }, hash))
    }

    fn hash(&self, password: &str) -> Result<[u8; HASH_BYTES], HashError> {
        let params = Params::new(self.memory_kib, self.passes, LANES, Some(HASH_BYTES))
            .map_err(|error| HashError::Failed(error.to_string()))?;
        let mut memory = Vec::with_capacity(params.block_count().max(ALLOCATED_BLOCKS));
        memory.resize(params.block_count(), Block::new());
        let mut hash = [0; HASH_BYTES];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(password.as_bytes(), &self.salt, &mut hash, &mut memory)
            .map_err(|error| HashError::Failed(error.to_string()))?;
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other() {
        let hasher = Hasher::default();
        let stored = hasher.hash("correct horse".to_owned()).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(!stored.contains("horse"));
        assert_ne!(stored, hasher.hash("correct horse".to_owned()).await.unwrap(), "salted");
        let is = async |password: &str, stored: Option<&str>| {
            hasher.is_password(password.to_owned(), stored.map(str::to_owned)).await
        };
        assert_eq!(is("correct horse", Some(&stored)).await, Ok(true));
        assert_eq!(is("Correct horse", Some(&stored)).await, Ok(false));
        assert_eq!(is("correct horse", None).await, Ok(false));
        assert!(is("correct horse", Some("$argon2id$nonsense")).await.is_err());
    }

    /// A vector of the reference implementation (`argon2 -id -t 2 -m 16 -p 1 -l 32`).
    #[test]
    fn hashes_are_those_of_others() {
        let phc = Phc { memory_kib: 65_536, passes: 2, salt: b"somesalt".to_vec() };
        let hash = phc.hash("password").unwrap();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7");
    }

    /// Whatever was taken for hashes is given back: a hub that nobody logs in to is as small as before.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn memory_is_given_back() {
        let resident_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let hasher = Hasher::default();
        // The first one brings in the pages of the code, which stay.
        hasher.hash("correct horse".to_owned()).await.unwrap();
        let before = resident_kib();
        for _ in 0..3 {
            let (one, other) = tokio::join!(
                hasher.hash("correct horse".to_owned()),
                hasher.hash("battery staple".to_owned())
            );
            assert!(one.is_ok() && other.is_ok());
        }
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 4096, "{grown} KiB are still held");
    }

    #[tokio::test]
    async fn a_hash_keeps_its_turn_when_nobody_waits_for_it_any_more() {
        let hasher = Hasher::default();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let mut hash = Box::pin(hasher.run(move || {
            // An error is the end as well.
            let _ended = wait.recv();
            Ok(())
        }));
        assert!(futures_util::poll!(&mut hash).is_pending());
        drop(hash);
        assert_eq!((hasher.turns.available_permits(), hasher.places.available_permits()), (1, 33));
        drop(end);
        let all = Arc::clone(&hasher.turns).acquire_many_owned(2);
        assert!(tokio::time::timeout(std::time::Duration::from_secs(20), all).await.is_ok());
    }

    #[tokio::test]
    async fn who_comes_when_all_places_are_taken_is_told_so() {
        let hasher = Hasher::default();
        let _all = hasher.places.acquire_many(34).await.unwrap();
        assert_eq!(hasher.hash("correct horse".to_owned()).await, Err(HashError::Busy));
    }
}
