//! Hashes of what was typed. Of a text that could be guessed the plain one would give it away, so it is keyed with a
//! secret of this runner, which is in a file of its own and never leaves the machine.

use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use qd_core::encoding::hex;

/// The block size of SHA-256, which the keyed form is made of.
const BLOCK_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
const KEY_FILE: &str = "input.key";

/// The runner's secret, read or made when it is first needed.
#[derive(Debug)]
pub(crate) struct InputHashKey {
    path: PathBuf,
    key: OnceLock<[u8; KEY_BYTES]>,
}

impl InputHashKey {
    pub(crate) fn new(data_dir: &Path) -> Self {
        InputHashKey { path: data_dir.join(KEY_FILE), key: OnceLock::new() }
    }

    /// HMAC-SHA-256 in hex.
    pub(crate) fn keyed(&self, text: &str) -> String {
        let key = self.key.get_or_init(|| {
            read_or_make(&self.path).unwrap_or_else(|error| {
                tracing::error!(path = %self.path.display(), %error, "there is no key for hashes of inputs; one is made \
                    for this run of the runner only");
                random()
            })
        });
        let mut inner = [0x36_u8; BLOCK_BYTES];
        let mut outer = [0x5c_u8; BLOCK_BYTES];
        for (place, byte) in key.iter().enumerate() {
            inner[place] ^= byte;
            outer[place] ^= byte;
        }
        let digest = Sha256::new().chain_update(inner).chain_update(text).finalize();
        hex(&Sha256::new().chain_update(outer).chain_update(digest).finalize())
    }
}

/// SHA-256 in hex.
pub(crate) fn plain(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn read_or_make(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut key = [0; KEY_BYTES];
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => {
            key = random();
            file.write_all(&key)?;
            file.sync_all()?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::File::open(path)?.read_exact(&mut key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

fn random() -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    if getrandom::fill(&mut key).is_err() {
        // Rather a key that is hard to guess than none.
        key = Sha256::digest(format!("{}{}", crate::clock::now_ms(), std::process::id())).into();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let hash = InputHashKey::new(folder.path()).keyed("hunter2");
        assert_eq!(InputHashKey::new(folder.path()).keyed("hunter2"), hash);
        assert_ne!(hash, plain("hunter2"));
        let mode = std::fs::metadata(folder.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn hashes_are_the_known_ones() {
        assert_eq!(plain("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        // RFC 4231, case 2, with its key filled up with zeros.
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(b"Jefe");
        let known = InputHashKey { path: PathBuf::new(), key: OnceLock::from(key) };
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(known.keyed("what do ya want for nothing?"), expected);
    }
}
