//! Branches, tags and HEAD, read from git's files by our own code. A line that is none of git's is never shown: the
//! file could be anybody's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use cap_std::fs::Dir;

use super::{GitFolder, Repository, file_in, folder_in, not_read, read_in, shown};
use crate::services::call::ServiceResult;
use crate::services::root::failure;

/// Bytes of the file with all references, some 100 each.
const PACKED_BYTES_MAX: u64 = 256 << 20;

/// Bytes of one reference.
const REFERENCE_BYTES_MAX: u64 = 8192;

/// References in files of their own.
const LOOSE_MAX: usize = 500_000;

/// Directories in one another.
const DEPTH_MAX: usize = 64;

/// References followed for one name, as many as git follows.
const SYMBOLIC_MAX: usize = 5;

/// References that each worktree has for itself.
const OF_ONE_WORKTREE: [&[u8]; 3] = [b"refs/bisect", b"refs/worktree", b"refs/rewritten"];

/// What a reference holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::services::git) enum Reference {
    /// The id of a commit, or of another object.
    Object(String),
    /// The name of another reference.
    Symbolic(Vec<u8>),
}

/// All references of a repository by their names.
#[derive(Debug, Default)]
pub(in crate::services::git) struct References {
    pub(in crate::services::git) all: BTreeMap<Vec<u8>, Reference>,
}

impl Reference {
    /// Reads a file with one reference.
    pub(in crate::services::git) fn parse(text: &[u8]) -> Option<Reference> {
        let text = text.trim_ascii();
        if let Some(name) = text.strip_prefix(b"ref:") {
            let name = name.trim_ascii();
            return is_name(name).then(|| Reference::Symbolic(name.to_owned()));
        }
        object_id(text).map(Reference::Object)
    }

    /// The file for git.
    pub(in crate::services::git) fn line(&self) -> Vec<u8> {
        match self {
            Reference::Object(id) => format!("{id}\n").into_bytes(),
            Reference::Symbolic(name) => [b"ref: ", &name[..], b"\n"].concat(),
        }
    }

    /// The branch that it names.
    pub(in crate::services::git) fn branch(&self) -> Option<&[u8]> {
        match self {
            Reference::Symbolic(name) => name.strip_prefix(b"refs/heads/"),
            Reference::Object(_) => None,
        }
    }
}

impl References {
    pub(in crate::services::git) fn read(repository: &Repository) -> ServiceResult<References> {
        let mut references = References::default();
        if let Some(packed) = repository.common.read("packed-refs", PACKED_BYTES_MAX)? {
            references.add_packed(&packed)?;
        }
        let Some(loose) = repository.common.folder("refs")? else {
            return Err(not_read("it has no directory of references"));
        };
        references.add_loose(&loose, b"refs".to_vec(), 0)?;
        if repository.linked_id.is_some() {
            let is_of_another = |name: &[u8]| OF_ONE_WORKTREE.iter().any(|own| name.starts_with(own));
            references.all.retain(|name, _| !is_of_another(name));
            if let Some(own) = repository.own.folder("refs")? {
                references.add_loose(&own, b"refs".to_vec(), 0)?;
            }
        }
        Ok(references)
    }

    /// The object that a reference leads to.
    pub(in crate::services::git) fn object<'a>(&'a self, reference: &'a Reference) -> Option<&'a str> {
        let mut reference = reference;
        for _ in 0..SYMBOLIC_MAX {
            match reference {
                Reference::Object(id) => return Some(id),
                Reference::Symbolic(name) => reference = self.all.get(name)?,
            }
        }
        None
    }

    /// All of them that hold an object, as one file for git.
    pub(in crate::services::git) fn packed(&self) -> Vec<u8> {
        let mut text = b"# pack-refs with: sorted \n".to_vec();
        for (name, reference) in &self.all {
            if let Reference::Object(id) = reference {
                text.extend_from_slice(id.as_bytes());
                text.push(b' ');
                text.extend_from_slice(name);
                text.push(b'\n');
            }
        }
        text
    }

    fn add_packed(&mut self, text: &[u8]) -> ServiceResult<()> {
        for line in text.split(|byte| *byte == b'\n') {
            // A tag's own object follows it; git finds it again.
            if matches!(line.first(), None | Some(b'#' | b'^')) {
                continue;
            }
            let space = memchr::memchr(b' ', line);
            let parts = space.and_then(|at| Some((object_id(&line[..at])?, &line[at + 1..])));
            match parts {
                Some((id, name)) if is_name(name) => {
                    self.all.insert(name.to_owned(), Reference::Object(id));
                }
                _ => return Err(not_read("its file packed-refs has a line that is none of git's")),
            }
        }
        Ok(())
    }

    fn add_loose(&mut self, dir: &Dir, name: Vec<u8>, depth: usize) -> ServiceResult<()> {
        for entry in dir.entries().map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let (file_name, kind) = (entry.file_name(), entry.file_type().map_err(failure)?);
            let name = [&name[..], b"/", file_name.as_bytes()].concat();
            if self.all.len() > LOOSE_MAX || depth > DEPTH_MAX {
                return Err(not_read("it has too many references"));
            }
            if kind.is_dir() {
                let below = folder_in(dir, &file_name)?;
                below.map_or(Ok(()), |below| self.add_loose(&below, name, depth + 1))?;
                continue;
            }
            if !kind.is_file() {
                let name = shown(&OsString::from_vec(name));
                return Err(not_read(format_args!("its reference {name} is a link or no regular file")));
            }
            // Git's locks and whatever else lies there are none; nor are broken ones.
            if is_name(&name)
                && let Some(text) = read_in(dir, &file_name, REFERENCE_BYTES_MAX)?
                && let Some(reference) = Reference::parse(&text)
            {
                self.all.insert(name, reference);
            }
        }
        Ok(())
    }
}

/// What is checked out in a worktree.
pub(in crate::services::git) fn head_of(own: &GitFolder) -> ServiceResult<Reference> {
    head_in(&own.dir)?.ok_or_else(|| not_read("its file HEAD is damaged"))
}

/// The same where it may be missing or damaged.
pub(in crate::services::git) fn head_in(dir: &Dir) -> ServiceResult<Option<Reference>> {
    let Some(text) = read_in(dir, OsStr::new("HEAD"), REFERENCE_BYTES_MAX)? else { return Ok(None) };
    Ok(Reference::parse(&text))
}

/// The first object in one of git's further files, such as `MERGE_HEAD`.
pub(in crate::services::git) fn object_in(own: &GitFolder, name: &str) -> ServiceResult<Option<String>> {
    let text = own.read(name, REFERENCE_BYTES_MAX)?.unwrap_or_default();
    Ok(text.split(|byte| *byte == b'\n').next().and_then(object_id))
}

/// The commits whose parents a shallow clone does not have.
pub(in crate::services::git) fn shallow(common: &GitFolder) -> ServiceResult<Option<Vec<u8>>> {
    if file_in(&common.dir, OsStr::new("shallow"))?.is_none() {
        return Ok(None);
    }
    let text = common.read("shallow", PACKED_BYTES_MAX)?.unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    if lines.clone().all(|line| object_id(line).is_some()) {
        Ok(Some(text.clone()))
    } else {
        Err(not_read("its file shallow has a line that is none of git's"))
    }
}

/// The id of an object, written out.
fn object_id(text: &[u8]) -> Option<String> {
    let is_id = matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit);
    is_id.then(|| String::from_utf8_lossy(text).to_ascii_lowercase())
}

/// Whether git would take this for the full name of a reference.
pub(in crate::services::git) fn is_name(name: &[u8]) -> bool {
    let is_bad_byte =
        |byte: &u8| *byte <= b' ' || matches!(byte, 0x7f | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\');
    let is_bad_part = |part: &[u8]| part.is_empty() || part[0] == b'.' || part.ends_with(b".lock");
    let has = |text: &[u8]| memchr::memmem::find(name, text).is_some();
    name.starts_with(b"refs/")
        && !name.iter().any(is_bad_byte)
        && !name.split(|byte| *byte == b'/').any(is_bad_part)
        && !has(b"..")
        && !has(b"@{")
        && !name.ends_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_secrets_are_none() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(Reference::parse(id.as_bytes()), Some(Reference::Object(id.to_owned())));
        let branch = Reference::parse(b"ref: refs/heads/fix/a-b\n").unwrap();
        assert_eq!(branch.branch(), Some(&b"fix/a-b"[..]));
        assert_eq!(branch.line(), b"ref: refs/heads/fix/a-b\n");
        for bad in [
            "",
            "hunter2",
            "ref: /etc/passwd",
            "ref: refs/../../x",
            "ref: refs/heads/a b",
            "ref: refs/h/x.lock",
        ] {
            assert_eq!(Reference::parse(bad.as_bytes()), None, "{bad}");
        }
        let mut references = References::default();
        references
            .add_packed(format!("# pack-refs with: peeled\n{id} refs/tags/v1\n^{id}\n").as_bytes())
            .unwrap();
        assert_eq!(references.packed(), format!("# pack-refs with: sorted \n{id} refs/tags/v1\n").as_bytes());
        let error = references.add_packed(b"TOP-SECRET\n").unwrap_err().to_string();
        assert!(error.contains("packed-refs") && !error.contains("SECRET"), "{error}");
        references.all.insert(b"refs/heads/loop".to_vec(), Reference::Symbolic(b"refs/heads/loop".to_vec()));
        assert_eq!(references.object(&Reference::Symbolic(b"refs/heads/loop".to_vec())), None);
        assert_eq!(references.object(&Reference::Symbolic(b"refs/tags/v1".to_vec())), Some(id));
    }
}
