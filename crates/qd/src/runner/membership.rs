//! Which hub this machine has joined, and the key that proves it: `runner/hub.json` in the data directory.
//!
//! The file may hold two memberships and two keys at a time, because the answer to a join or a rotation can be lost:
//! what is confirmed counts, and what was asked for is kept until it is known.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qd_core::encoding::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{CliError, Result};
use crate::private_files;

/// 256 bits: nobody guesses them.
const KEY_BYTES: usize = 32;

/// The membership as it is stored. It is a secret: no `Debug`, and 0600 on disk.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) url: String,
    pub(crate) runner_id: String,
    pub(crate) key: String,
    /// Made when the hub asked for a new key; counts once the hub has seen it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_key: Option<String>,
    /// The hub's certificate, as the code told it; without one the authorities of the system decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// The person has accepted that nothing is encrypted.
    #[serde(default)]
    pub(crate) allow_plain: bool,
    /// The hub has said yes. Written before it is asked, so that a lost answer can be asked for again.
    pub(crate) joined: bool,
    /// Another membership that was asked for and not confirmed. This one counts until it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<Box<Membership>>,
}

impl Membership {
    pub(crate) fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("runner").join("hub.json")
    }

    /// What is stored; `None` when this machine has not tried to join any hub.
    pub(crate) fn read(data_dir: &Path) -> Result<Option<Membership>> {
        let path = Self::path(data_dir);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(CliError::cannot("read", &path, &error)
                    .hint("fix its owner and permissions, or join again with --force"));
            }
        };
        let membership = serde_json::from_str(&text).map_err(|error| {
            CliError::failed(format!("{} is damaged: {error}", path.display()))
                .hint("join again: qd runner join URL --force")
        })?;
        Ok(Some(membership))
    }

    /// What the hub was asked for without an answer so far.
    pub(crate) fn unconfirmed(&self) -> Option<&Membership> {
        if self.joined { self.attempt.as_deref() } else { Some(self) }
    }

    /// What to type to be let in again by the same hub.
    pub(crate) fn rejoin_command(&self) -> String {
        format!("qd runner join {} --force --name {} --code CODE", self.url, self.runner_id)
    }

    /// The membership to run with.
    pub(crate) fn joined(data_dir: &Path) -> Result<Membership> {
        match Self::read(data_dir)? {
            Some(membership) if membership.joined => Ok(membership),
            Some(membership) => {
                Err(CliError::failed(format!("joining {} was started but never confirmed", membership.url))
                    .hint(format!("run again: qd runner join {}", membership.url)))
            }
            None => Err(CliError::failed(format!(
                "this machine has joined no hub (there is no {})",
                Self::path(data_dir).display()
            ))
            .hint("run `qd runner invite` on the hub's machine; it prints the command for this one")),
        }
    }

    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let path = Self::path(data_dir);
        let explain = |error: std::io::Error| {
            CliError::cannot("write", &path, &error)
                .hint("the key must be stored; fix the data directory or use another one with --data-dir")
        };
        private_files::make_private_dir(data_dir).map_err(explain)?;
        private_files::make_private_dir(path.parent().unwrap_or(data_dir)).map_err(explain)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| CliError::failed(error.to_string()))?;
        private_files::write_private(&path, &text).map_err(explain)
    }
}

/// A new key.
pub(crate) fn new_key() -> Result<String> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What the hub keeps of a key.
pub(crate) fn key_hash(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn membership(joined: bool) -> Membership {
        Membership {
            url: "https://deck.example".into(),
            runner_id: "desk".into(),
            key: new_key().unwrap(),
            fingerprint: Some("aa".into()),
            joined,
            ..Membership::default()
        }
    }

    #[test]
    fn a_membership_is_kept_privately() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        assert!(Membership::read(&data_dir).unwrap().is_none());
        let mine = membership(true);
        mine.write(&data_dir).unwrap();
        assert!(Membership::joined(&data_dir).is_ok_and(|read| read == mine));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&Membership::path(&data_dir)), 0o600);
        assert_eq!((mode(&data_dir.join("runner")), mode(&data_dir)), (0o700, 0o700));
    }

    #[test]
    fn what_is_missing_or_damaged_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let error = |data_dir: &Path| Membership::joined(data_dir).err().unwrap();
        assert!(error(directory.path()).hint.unwrap().contains("qd runner invite"));
        membership(false).write(directory.path()).unwrap();
        assert!(error(directory.path()).hint.unwrap().contains("qd runner join https://deck.example"));
        std::fs::write(Membership::path(directory.path()), "{").unwrap();
        let damaged = error(directory.path());
        assert!(damaged.message.contains("damaged") && damaged.hint.unwrap().contains("--force"));
    }

    #[test]
    fn keys_are_long_and_different_and_known_by_their_hash() {
        let (one, two) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 43);
        assert_eq!(key_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
