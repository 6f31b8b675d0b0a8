//! Making, moving, copying and removing files and directories. Links are moved, copied and removed themselves; what
//! they lead to is left alone.
//!
//! A copy is made under a temporary name and renamed, so that it appears whole. A replaced directory goes aside and
//! comes back if the new one cannot take its place.

use qd_wire::service::{FsCreateDirectoryParams, FsDeleteParams, FsDoneData, FsMoveParams};
use qd_wire::{CodedError, ErrorCode};
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::temp::{rename_new, sync_dir, temp_name};
use super::tree_copy::TreeWork;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::own_data::identity;
use crate::services::root::{DIRECTORY_MODE, NameInDir, RelativePath, Root, failure, file_type};

/// Makes a directory, and those it is in if asked.
pub(crate) fn create_directory(
    root: &Root,
    params: &FsCreateDirectoryParams,
    cancel: &Cancellation,
) -> ServiceResult<FsDoneData> {
    let path = RelativePath::parse(&params.path)?;
    cancel.check()?;
    let count = if params.create_parents == Some(true) {
        root.create_dirs(&path)?
    } else {
        let place = root.place(&path)?.ok_or_else(|| exists(&params.path))?;
        match rustix::fs::mkdirat(&place.dir, &place.name, DIRECTORY_MODE) {
            Ok(()) => 1,
            Err(Errno::EXIST) => return Err(exists(&params.path)),
            Err(error) => return Err(failure(error)),
        }
    };
    Ok(FsDoneData { path: Some(params.path.clone()), count, ..FsDoneData::default() })
}

/// Gives a file or a directory another name, in this directory or in another.
pub(crate) fn rename(root: &Root, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<FsDoneData> {
    let ends = MovePaths::open(root, params, cancel)?;
    let count = match ends.rename() {
        Err(Errno::XDEV) => ends.move_across(params, cancel)?,
        Err(Errno::EXIST) if !ends.overwrite => return Err(exists(&params.to)),
        // The system renames over a thing of the same kind only, and over a directory only if it is empty.
        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => {
            ends.replace(&ends.from)?;
            1
        }
        done => done.map(|()| 1).map_err(failure)?,
    };
    // The new name first: after a power cut a file with two names is better than one with none.
    sync_dir(&ends.to.dir)?;
    sync_dir(&ends.from.dir)?;
    Ok(done(params, count))
}

/// Copies a file, or a directory with all that is in it. The copy appears whole.
pub(crate) fn copy(root: &Root, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<FsDoneData> {
    let ends = MovePaths::open(root, params, cancel)?;
    let count = ends.copy(params, &mut TreeWork::new(cancel, false))?;
    sync_dir(&ends.to.dir)?;
    Ok(done(params, count))
}

/// Removes a file, a link, an empty directory, or a directory with all that is in it if asked.
pub(crate) fn delete(
    root: &Root,
    params: &FsDeleteParams,
    cancel: &Cancellation,
) -> ServiceResult<FsDoneData> {
    let path = RelativePath::parse(&params.path)?;
    let place = root
        .parent_of_whole(&path)?
        .ok_or_else(|| ServiceError::invalid("the root itself cannot be deleted"))?;
    cancel.check()?;
    let mut work = TreeWork::new(cancel, false);
    if params.recursive == Some(true) {
        work.delete(&place.dir, &place.name)?;
    } else {
        let stat = place.stat()?.ok_or_else(|| failure(Errno::NOENT))?;
        let flags = match file_type(&stat) {
            FileType::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        rustix::fs::unlinkat(&place.dir, &place.name, flags).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST => ServiceError::coded(
                ErrorCode::Conflict,
                "the directory is not empty: ask with recursive to delete all that is in it",
            ),
            error => failure(error),
        })?;
        work.count = 1;
    }
    Ok(FsDoneData { path: Some(params.path.clone()), count: work.count, ..FsDoneData::default() })
}

/// Where something is and where it is to be.
struct MovePaths {
    from: NameInDir,
    to: NameInDir,
    overwrite: bool,
}

impl MovePaths {
    fn open(root: &Root, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<MovePaths> {
        let (from, to) = (RelativePath::parse(&params.from)?, RelativePath::parse(&params.to)?);
        let refused = || ServiceError::invalid("the root itself can be neither moved, copied nor replaced");
        let overwrite = params.overwrite == Some(true);
        let from_place = root.parent_of_whole(&from)?.ok_or_else(refused)?;
        if from_place.stat()?.is_none() {
            return Err(failure(Errno::NOENT));
        }
        // The target would be removed with the source in it.
        if overwrite && from != to && from.as_path().starts_with(to.as_path()) {
            refuse!(
                InvalidRequest,
                "a directory cannot be replaced by one of its own files: choose another `to`"
            );
        }
        cancel.check()?;
        root.create_parents(&to, params.create_parents)?;
        let to_place = root.parent_of_whole(&to)?.ok_or_else(refused)?;
        Ok(MovePaths { from: from_place, to: to_place, overwrite })
    }

    fn rename(&self) -> Result<(), Errno> {
        let MovePaths { from, to, overwrite } = self;
        if !overwrite {
            // Most file systems check and rename in one step. A look first would lose a race against whoever else
            // writes there.
            return rename_new(&from.dir, &from.name, &to.dir, &to.name);
        }
        if let (Ok(Some(source)), Ok(Some(target))) = (from.stat(), to.stat())
            && is_same(&source, &target)
        {
            // Two names of one file: for the system a renaming would then be nothing to do, and both would stay.
            let is_same_name =
                from.name == to.name && is_same(&rustix::fs::fstat(&from.dir)?, &rustix::fs::fstat(&to.dir)?);
            return match is_same_name || file_type(&source) == FileType::Directory {
                true => Ok(()),
                false => rustix::fs::unlinkat(&from.dir, &from.name, AtFlags::empty()),
            };
        }
        rustix::fs::renameat(&from.dir, &from.name, &to.dir, &to.name)
    }

    /// Moves to another file system, where nothing can be renamed to.
    fn move_across(&self, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<u64> {
        let count = self.copy(params, &mut TreeWork::new(cancel, true))?;
        sync_dir(&self.to.dir)?;
        // The copy is in its place and on the disk: from here on the move is finished even if it is cancelled.
        TreeWork::new(&Cancellation::default(), true).delete(&self.from.dir, &self.from.name)?;
        Ok(count)
    }

    /// Copies to a name nobody knows, and then puts the copy in its place.
    fn copy(&self, params: &FsMoveParams, work: &mut TreeWork<'_>) -> ServiceResult<u64> {
        if !self.overwrite && self.to.stat()?.is_some() {
            return Err(exists(&params.to));
        }
        let temp = NameInDir { dir: self.to.dir.try_clone().map_err(failure)?, name: temp_name()? };
        let placed = work
            .copy((&self.from.dir, &self.from.name), (&temp.dir, &temp.name))
            .and_then(|()| self.place_copy(&temp, params));
        if let Err(error) = placed {
            remove_temp(&temp);
            return Err(error);
        }
        Ok(work.count)
    }

    fn place_copy(&self, temp: &NameInDir, params: &FsMoveParams) -> ServiceResult<()> {
        let MovePaths { to, overwrite, .. } = self;
        if !overwrite {
            return rename_new(&temp.dir, &temp.name, &to.dir, &to.name).map_err(|error| match error {
                Errno::EXIST => exists(&params.to),
                error => failure(error),
            });
        }
        match rustix::fs::renameat(&temp.dir, &temp.name, &to.dir, &to.name) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => self.replace(temp),
            done => done.map_err(failure),
        }
    }

    /// Puts something where a directory is, or a directory where something is, which cannot be done in one step: the
    /// old one goes aside, comes back if the new one cannot come, and is removed when it has.
    fn replace(&self, new: &NameInDir) -> ServiceResult<()> {
        let to = &self.to;
        let aside = NameInDir { dir: to.dir.try_clone().map_err(failure)?, name: temp_name()? };
        // Never over something: in between anybody may have made something of this name.
        rename_new(&to.dir, &to.name, &aside.dir, &aside.name).map_err(failure)?;
        if let Err(error) = rename_new(&new.dir, &new.name, &to.dir, &to.name) {
            return Err(match rename_new(&aside.dir, &aside.name, &to.dir, &to.name) {
                Ok(()) => failure(error),
                Err(_) => CodedError::from(failure(error))
                    .reworded(|error| {
                        format!("{error}; what was there is now called {}", aside.name.to_string_lossy())
                    })
                    .into(),
            });
        }
        TreeWork::new(&Cancellation::default(), false).delete(&aside.dir, &aside.name).map_err(|error| {
            let name = aside.name.to_string_lossy();
            ServiceError::coded(
                ErrorCode::Failed,
                format!("done, but what was there is left as {name}: {error}"),
            )
        })
    }
}

/// Removes what a failed copy has left, cancelled or not.
fn remove_temp(temp: &NameInDir) {
    let is_there = !matches!(temp.stat(), Ok(None));
    if is_there
        && let Err(error) = TreeWork::new(&Cancellation::default(), false).delete(&temp.dir, &temp.name)
    {
        tracing::warn!(name = ?temp.name, %error, "what a failed copy left could not be removed; remove it by hand");
    }
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    identity(a) == identity(b)
}

fn exists(path: &str) -> ServiceError {
    ServiceError::coded(
        ErrorCode::AlreadyExists,
        format!("there is something at {path} already: choose another path, or delete it first"),
    )
}

fn done(params: &FsMoveParams, count: u64) -> FsDoneData {
    FsDoneData { path: None, from: Some(params.from.clone()), to: Some(params.to.clone()), count }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
