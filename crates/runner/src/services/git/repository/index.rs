//! Git's index: the paths in it are checked, because git opens whatever they name, and submodules are marked as
//! unchanged, because git would read their git directories.

use super::not_read;
use crate::services::call::{ServiceError, ServiceResult};

/// Bytes of an index; that of a million files has some 150 MiB.
pub(in crate::services::git) const INDEX_BYTES_MAX: u64 = 512 << 20;

/// The signature, the version and the number of entries.
const HEADER_BYTES: usize = 12;

/// Times, device, number, mode, owner and size of a file.
const STAT_BYTES: usize = 40;

/// Where the mode is among those.
const MODE_AT: usize = 24;

const TYPE_MASK: u32 = 0o170_000;
const TYPE_SUBMODULE: u32 = 0o160_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

/// The file is taken for unchanged without a look (`git update-index --assume-unchanged`).
const FLAG_ASSUME_UNCHANGED: u16 = 0x8000;

/// More flags follow.
const FLAG_EXTENDED: u16 = 0x4000;

/// The part of the flags that is the length of the name; all bits for a longer one.
const NAME_LENGTH_MASK: u16 = 0x0fff;

/// Checks an index and prepares it for git. An index without content is none.
pub(in crate::services::git) fn prepare(bytes: &mut [u8], hash_bytes: usize) -> ServiceResult<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut walk = IndexWalk { bytes, at: 0, hash_bytes, version: 0, name: Vec::new() };
    walk.all().unwrap_or_else(|| Err(damaged()))
}

fn damaged() -> ServiceError {
    not_read("its index is damaged or of a version that Quarterdeck does not know")
}

/// A place in an index.
struct IndexWalk<'a> {
    bytes: &'a mut [u8],
    at: usize,
    hash_bytes: usize,
    version: u32,
    /// Of the last entry; the next one of version 4 begins with a part of it.
    name: Vec<u8>,
}

impl IndexWalk<'_> {
    /// `None` where the bytes end too early.
    fn all(&mut self) -> Option<ServiceResult<()>> {
        if self.bytes.get(..4)? != b"DIRC" {
            return None;
        }
        self.version = self.number(4)?;
        let count = self.number(8)?;
        if !(2..=4).contains(&self.version) {
            return None;
        }
        self.at = HEADER_BYTES;
        for _ in 0..count {
            let mode = self.entry()?;
            if !is_path_inside(&self.name, mode & TYPE_MASK == TYPE_DIRECTORY) {
                return Some(Err(not_read("its index names files outside of the worktree")));
            }
        }
        Some(Ok(()))
    }

    /// Reads an entry: its name, and its mode.
    fn entry(&mut self) -> Option<u32> {
        let begin = self.at;
        let mode = self.number(begin.checked_add(MODE_AT)?)?;
        let flags_at = begin.checked_add(STAT_BYTES + self.hash_bytes)?;
        let mut flags = u16::from_be_bytes(self.bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
        if mode & TYPE_MASK == TYPE_SUBMODULE {
            flags |= FLAG_ASSUME_UNCHANGED;
            self.bytes.get_mut(flags_at..flags_at + 2)?.copy_from_slice(&flags.to_be_bytes());
        }
        let has_more_flags = self.version >= 3 && flags & FLAG_EXTENDED != 0;
        self.at = flags_at + if has_more_flags { 4 } else { 2 };
        if self.version == 4 {
            let dropped = self.variable_number()?;
            let kept = self.name.len().checked_sub(dropped)?;
            self.name.truncate(kept);
        } else {
            self.name.clear();
        }
        let rest = self.bytes.get(self.at..)?;
        let length = memchr::memchr(0, rest)?;
        self.name.extend_from_slice(rest.get(..length)?);
        // Git takes this number at its word, so it must be true.
        let told = usize::from(flags & NAME_LENGTH_MASK);
        if told != self.name.len().min(usize::from(NAME_LENGTH_MASK)) {
            return None;
        }
        self.at += length;
        // Older versions fill up with zeros to a multiple of eight, at least one.
        self.at += if self.version == 4 { 1 } else { 8 - (self.at - begin) % 8 };
        Some(mode)
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    /// A number of seven bits per byte, as git writes them.
    fn variable_number(&mut self) -> Option<usize> {
        let mut value = 0usize;
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value = value.checked_add(usize::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            value = value.checked_add(1)?.checked_mul(128)?;
        }
    }
}

/// Whether a path stays in the worktree and out of git's directory. Directories (of a sparse index) end with a slash. In
/// a split index an entry without a name stands for one of the shared file; elsewhere it names nothing that can be opened.
fn is_path_inside(path: &[u8], is_directory: bool) -> bool {
    if path.is_empty() {
        return true;
    }
    let path = if is_directory { path.strip_suffix(b"/").unwrap_or(path) } else { path };
    let is_bad = |part: &[u8]| {
        matches!(part, b"" | b"." | b"..") || part.eq_ignore_ascii_case(b".git") || part.contains(&0)
    };
    !path.split(|byte| *byte == b'/').any(is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: u32, name: &str, version: u32, dropped: u8) -> Vec<u8> {
        let mut bytes = vec![0; STAT_BYTES + 20];
        bytes[MODE_AT..MODE_AT + 4].copy_from_slice(&mode.to_be_bytes());
        bytes.extend((name.len() as u16).to_be_bytes());
        if version == 4 {
            bytes.push(dropped);
        }
        bytes.extend(name.bytes());
        let padding = if version == 4 { 1 } else { 8 - bytes.len() % 8 };
        bytes.extend(vec![0; padding]);
        bytes
    }

    fn index(version: u32, entries: &[Vec<u8>]) -> Vec<u8> {
        let head = [b"DIRC", &version.to_be_bytes()[..], &(entries.len() as u32).to_be_bytes()].concat();
        [head, entries.concat(), vec![0; 20]].concat()
    }

    #[test]
    fn submodules_are_marked_and_paths_that_lead_out_are_refused() {
        for version in [2, 3, 4] {
            let entries = [entry(0o100_644, "a", version, 0), entry(TYPE_SUBMODULE, "sub", version, 1)];
            let mut bytes = index(version, &entries);
            let before = bytes.clone();
            prepare(&mut bytes, 20).unwrap();
            let changed: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != before[*at]).collect();
            assert_eq!(changed, [HEADER_BYTES + entries[0].len() + STAT_BYTES + 20], "version {version}");
            for name in ["../x", "/etc/passwd", "a/../b", ".git/config", "a/.GIT/x", "a//b", "./a", "a/"] {
                let mut bytes = index(version, &[entry(0o100_644, name, version, 0)]);
                assert!(prepare(&mut bytes, 20).is_err(), "{name} in version {version}");
            }
        }
        let mut sparse = index(3, &[entry(TYPE_DIRECTORY, "deep/", 3, 0)]);
        prepare(&mut sparse, 20).unwrap();
    }

    #[test]
    fn damaged_ones_are_refused() {
        let whole = index(2, &[entry(0o100_644, "some/name", 2, 0)]);
        for length in 1..whole.len() - 20 {
            // The last entry may lack zeros at its end.
            let is_cut = prepare(&mut whole[..length].to_vec(), 20).is_err();
            assert!(is_cut || length > HEADER_BYTES + STAT_BYTES + 22 + "some/name".len(), "{length}");
        }
        let mut lying = whole;
        lying[HEADER_BYTES + STAT_BYTES + 21] = 4;
        assert!(prepare(&mut lying, 20).is_err(), "the length of the name is not true");
        assert!(prepare(&mut index(5, &[]), 20).is_err());
        prepare(&mut [], 20).unwrap();
    }
}
