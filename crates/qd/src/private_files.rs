//! Private files and directories: readable by their owner only, written whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
/// What only the owner may read and write.
pub(crate) const SECRET_MODE: u32 = 0o600;

/// Creates the directory where it is missing, and closes it to others.
pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// Opens a file for more lines; a new one is readable by its owner only.
pub(crate) fn append_private(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).mode(SECRET_MODE).open(path)
}

/// Writes a file that readers see whole or not at all, before and after a power cut.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(ErrorKind::InvalidInput, "no file is named"));
    };
    let temporary = directory.join(format!(".{}.new", name.to_string_lossy()));
    // A file that a crash left behind may have another mode, and `create_new` refuses to reuse it.
    match std::fs::remove_file(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(SECRET_MODE).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    // The rename is in the directory, which has to reach the disk as well.
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_replaces_the_old_one_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("deep/er");
        make_private_dir(&place).unwrap();
        let path = place.join("secret.json");
        std::fs::write(place.join(".secret.json.new"), "left over from a crash").unwrap();
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&place)), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    }
}
