//! A folder with many files hides what belongs together: it is split by topic before it gets that far.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// More files than this nobody takes in from a listing.
const FOLDER_FILES_MAX: usize = 18;
/// From here on a folder is listed, so that it is split before it has to be.
const FOLDER_FILES_WARN: usize = 15;

/// Folders that may be large: nobody looks for code in them, or their files are numbered. A folder's path ends so.
const MAY_BE_LARGE: &[(&str, &str)] = &[
    ("snapshots", "written by insta, one for each case"),
    ("fixtures/pi/0.87.1", "recorded traffic, one file for each scenario"),
    ("fixtures/pi/1.5.0", "recorded traffic, one file for each scenario"),
    ("corpus", "inputs from which a fuzzer starts, one in each file"),
    ("terminal/questions/screens", "recorded screens, one file for each question"),
    ("docs/adr", "numbered, and listed in their own index"),
];

/// Folders with too many files, and those that are about to have them.
pub(super) fn check(files: &[PathBuf]) -> (Vec<String>, Vec<String>) {
    let mut errors = Vec::new();
    let mut warnings = Vec::new();
    for (folder, count) in counts(files) {
        let line = |limit: &str| format!("{}: {count} files, {limit}", folder.display());
        if count > FOLDER_FILES_MAX {
            errors.push(line(&format!("at most {FOLDER_FILES_MAX}; group them by topic in sub-folders")));
        } else if count > FOLDER_FILES_WARN {
            warnings.push(line(&format!("better not over {FOLDER_FILES_WARN}")));
        }
    }
    (errors, warnings)
}

/// How many files lie in each folder itself, without those that may be large.
fn counts(files: &[PathBuf]) -> BTreeMap<&Path, usize> {
    let mut counts = BTreeMap::new();
    for folder in files.iter().filter_map(|file| file.parent()) {
        if !MAY_BE_LARGE.iter().any(|(ending, _)| folder.ends_with(ending)) {
            *counts.entry(folder).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(folder: &str, count: usize) -> Vec<PathBuf> {
        (0..count).map(|number| Path::new(folder).join(format!("{number}.rs"))).collect()
    }

    #[test]
    fn a_folder_is_listed_before_it_is_refused() {
        for (count, errors, warnings) in [(15, 0, 0), (16, 0, 1), (18, 0, 1), (19, 1, 0)] {
            let (failed, listed) = check(&many("crates/a/src", count));
            assert_eq!((failed.len(), listed.len()), (errors, warnings), "{count}");
        }
    }

    #[test]
    fn files_of_sub_folders_do_not_count() {
        let mut files = many("crates/a/src", 10);
        files.extend(many("crates/a/src/topic", 10));
        assert_eq!(check(&files), (Vec::new(), Vec::new()));
    }

    #[test]
    fn only_the_listed_folders_may_be_large() {
        assert_eq!(check(&many("crates/a/tests/snapshots", 100)), (Vec::new(), Vec::new()));
        assert_eq!(check(&many("crates/a/tests/snapshots_of_old", 100)).0.len(), 1);
    }
}
