//! Where a repository keeps its objects, and the directories of others that it borrows from (alternates).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::{GitFolder, named_path, not_read, read_in, shown};
use crate::services::call::ServiceResult;
use crate::services::root::failure;
use crate::services::root::own_data::OwnData;

/// Directories that borrow from one another; git follows five.
const DEPTH_MAX: usize = 5;

/// Entries of all of them together. Git packs loose objects long before.
const ENTRIES_MAX: usize = 2_000_000;

/// Bytes of a list of alternates.
const LIST_BYTES_MAX: u64 = 64 * 1024;

/// Directories beneath one of objects: `info/commit-graphs` is the deepest.
const NESTED_MAX: usize = 3;

/// Where objects may be borrowed from.
pub(in crate::services::git) struct AllowedPlaces<'a> {
    pub(in crate::services::git) directories: Vec<PathBuf>,
    pub(in crate::services::git) own_data: &'a OwnData,
}

/// Checks that no link or device among the objects leads elsewhere, and that others are only borrowed from where that
/// is allowed. Returns the directories besides the repository's own.
pub(in crate::services::git) fn check(
    common: &GitFolder,
    places: &AllowedPlaces<'_>,
) -> ServiceResult<Vec<PathBuf>> {
    let Some(dir) = common.folder("objects")? else {
        return Err(not_read("it has no directory of objects"));
    };
    let mut walk = ObjectsWalk { places, entries: 0, seen: HashSet::new(), borrowed: Vec::new() };
    walk.check(&dir, &common.path.join("objects"), 0)?;
    Ok(walk.borrowed)
}

struct ObjectsWalk<'a> {
    places: &'a AllowedPlaces<'a>,
    entries: usize,
    seen: HashSet<PathBuf>,
    borrowed: Vec<PathBuf>,
}

impl ObjectsWalk<'_> {
    fn check(&mut self, dir: &Dir, path: &Path, depth: usize) -> ServiceResult<()> {
        self.check_entries(dir, 0)?;
        let Some(info) = super::folder_in(dir, OsStr::new("info"))? else { return Ok(()) };
        let Some(list) = read_in(&info, OsStr::new("alternates"), LIST_BYTES_MAX)? else { return Ok(()) };
        for line in list.split(|byte| *byte == b'\n') {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            self.borrow_from(line, path, depth)?;
        }
        Ok(())
    }

    fn borrow_from(&mut self, line: &[u8], path: &Path, depth: usize) -> ServiceResult<()> {
        if depth >= DEPTH_MAX {
            return Err(not_read("it borrows objects through too many repositories"));
        }
        // Written as a text in quotes it could mean something else to git than to us.
        if line[0] == b'"' || named_path(line)?.as_os_str().as_bytes() != line {
            return Err(not_read("its list of alternates has a line that Quarterdeck does not understand"));
        }
        // One that is not there is no error for git either.
        let Ok(named) = path.join(OsStr::from_bytes(line)).canonicalize() else { return Ok(()) };
        if !self.places.directories.iter().any(|allowed| named.starts_with(allowed)) {
            return Err(not_read(
                "it borrows objects (objects/info/alternates) from a directory outside of the session's directory and \
                 the runner's workspace_roots",
            ));
        }
        if !self.seen.insert(named.clone()) {
            return Ok(());
        }
        let dir = Dir::open_ambient_dir(&named, ambient_authority()).map_err(failure)?;
        self.places.own_data.check(&dir, None)?;
        self.check(&dir, &named, depth + 1)?;
        self.borrowed.push(named);
        Ok(())
    }

    fn check_entries(&mut self, dir: &Dir, nested: usize) -> ServiceResult<()> {
        for entry in dir.entries().map_err(failure)? {
            let entry = entry.map_err(failure)?;
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(not_read("it has too many loose objects; run `git gc` in it"));
            }
            let kind = entry.file_type().map_err(failure)?;
            if kind.is_dir() && nested < NESTED_MAX {
                let below = super::folder_in(dir, &entry.file_name())?;
                below.map_or(Ok(()), |below| self.check_entries(&below, nested + 1))?;
            } else if !kind.is_file() {
                let name = shown(&entry.file_name());
                return Err(not_read(format_args!("{name} among its objects is a link or no regular file")));
            }
        }
        Ok(())
    }
}
