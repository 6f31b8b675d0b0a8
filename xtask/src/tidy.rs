//! Rules about the text of the tree that neither the compiler nor clippy knows.

mod folders;
mod harness_names;
mod walks;

use std::path::Path;

use crate::failure::{Failure, read};
use crate::tree::{files, root};

/// A file longer than this does more than one job.
const FILE_LINES_MAX: usize = 800;
/// From here on a file is listed, so that it is cut before it has to be.
const FILE_LINES_WARN: usize = 500;

/// Words that must not be in Rust code, in pieces so that this file does not contain them.
const BANNED_WORDS: &[(&[&str], &str)] = &[
    (&["to", "do!"], "write the code or an issue"),
    (&["unimple", "mented!"], "write the code, or return an error that says so"),
    (&["db", "g!"], "use tracing"),
    (&["unbounded", "_channel"], "every queue has a bound"),
    (&["#[ig", "nore"], "a test that does not run proves nothing; fix or delete it"),
];

/// Registries are named by the tools' configuration, never by us; in pieces for the same reason.
const REGISTRY_HOSTS: &[&[&str]] = &[
    &["crates", ".io"],
    &["npm", "js.org"],
    &["npm", "js.com"],
    &["yarn", "pkg.com"],
    &["py", "pi.org"],
    &["python", "hosted.org"],
    &["deb", ".debian.org"],
];

/// Libraries that one folder of the product's code may name, and that folder.
const ONE_FOLDER: &[(&str, &str)] = &[("rusqlite", "crates/store/src/sqlite")];

/// Cargo writes its registry's name into its lock files; nobody chose it and nobody can leave it out.
const HOST_EXEMPT: &str = "Cargo.lock";

pub(crate) fn run() -> Result<(), Failure> {
    let all = files()?;
    let (mut errors, mut warnings) = folders::check(&all);
    for file in all {
        // Pictures and other binary files have no lines to check.
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        errors.extend(check_text(&file, &text));
        let lines = text.lines().count();
        if is_source(&file) && lines > FILE_LINES_MAX {
            errors.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", file.display()));
        } else if is_source(&file) && lines > FILE_LINES_WARN {
            warnings.push(format!("{}: {lines} lines, better under {FILE_LINES_WARN}", file.display()));
        }
    }
    errors.extend(check_crates()?);
    errors.extend(harness_names::check()?);
    errors.extend(walks::check()?);
    for warning in &warnings {
        println!("warning: {warning}");
    }
    Failure::unless_empty(
        "tidy",
        &errors,
        "mend each line above; the rules are in xtask/src/tidy.rs and tidy/",
    )
}

/// Files that people write and read; generated ones may be long.
fn is_source(file: &Path) -> bool {
    let written = file.extension().is_some_and(|extension| {
        ["rs", "ts", "js", "mjs", "svelte", "css", "sh"].iter().any(|it| extension == *it)
    });
    written && !file.iter().any(|part| part == "generated")
}

fn check_text(file: &Path, text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{}:{}", file.display(), number + 1);
        for (pieces, reason) in BANNED_WORDS.iter().filter(|_| is_rust) {
            let word = pieces.concat();
            if line.contains(&word) {
                errors.push(format!("{}: `{word}`: {reason}", place()));
            }
        }
        for (library, folder) in ONE_FOLDER.iter().filter(|_| is_rust && is_of_product(file)) {
            if line.contains(library) && !file.starts_with(folder) {
                errors.push(format!("{}: `{library}` is named outside of {folder}", place()));
            }
        }
        if file.file_name().is_some_and(|name| name == HOST_EXEMPT) {
            continue;
        }
        for host in REGISTRY_HOSTS.iter().map(|pieces| pieces.concat()) {
            if line.contains(&host) {
                errors.push(format!("{}: names the registry host `{host}`; name the package only", place()));
            }
        }
    }
    errors
}

/// What is built into the binary, and its unit tests; tests beside it may look into files with other means.
fn is_of_product(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_str());
    parts.next() == Some(Some("crates")) && parts.nth(1) == Some(Some("src"))
}

/// Every crate says what lives in it, and stands behind the lint wall.
fn check_crates() -> Result<Vec<String>, Failure> {
    let mut errors = Vec::new();
    let manifests =
        files()?.into_iter().filter(|file| file.file_name().is_some_and(|name| name == "Cargo.toml"));
    for manifest in manifests.filter(|file| file != Path::new("Cargo.toml")) {
        let folder = manifest.parent().unwrap_or(Path::new(""));
        let text = read(&root().join(&manifest))?;
        // A workspace of its own (the fuzz targets) cannot inherit our lints.
        if !text.contains("[workspace]") && !text.contains("[lints]\nworkspace = true") {
            errors.push(format!("{}: lacks `[lints] workspace = true`", manifest.display()));
        }
        for head in ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name)) {
            let path = root().join(&head);
            if path.is_file() && !read(&path)?.starts_with("//!") {
                errors.push(format!(
                    "{}: begins without `//!`, what lives here and what may not",
                    head.display()
                ));
            }
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expected: usize) {
        let found = check_text(Path::new(file), text);
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn banned_words_are_found_in_rust_only() {
        for (pieces, _) in BANNED_WORDS {
            let line = format!("fn f() {{ {} }}", pieces.concat());
            check("crates/a/src/lib.rs", &line, 1);
            check("docs/a.md", &line, 0);
        }
    }

    #[test]
    fn registry_hosts_are_found_everywhere_but_in_the_lock_file() {
        for pieces in REGISTRY_HOSTS {
            let line = format!("see https://{}/x", pieces.concat());
            check("docs/a.md", &line, 1);
            check("crates/a/src/lib.rs", &line, 1);
            check("Cargo.lock", &line, 0);
            check("fuzz/Cargo.lock", &line, 0);
            check("tests/agents/package-lock.json", &line, 1);
        }
    }

    #[test]
    fn a_library_of_one_folder_is_found_elsewhere() {
        for (library, folder) in ONE_FOLDER {
            let line = format!("use {library}::Connection;");
            check("crates/store/src/error.rs", &line, 1);
            check("crates/hub/src/sessions/reads/away.rs", &line, 1);
            check(&format!("{folder}/engine.rs"), &line, 0);
            check(&format!("{folder}_like/engine.rs"), &line, 1);
            check("crates/store/tests/sqlite.rs", &line, 0);
            check("docs/adr/0002.md", &line, 0);
        }
    }

    #[test]
    fn generated_files_may_be_long() {
        assert!(is_source(Path::new("crates/a/src/lib.rs")));
        assert!(!is_source(Path::new("clients/typescript/src/generated/canonical.ts")));
        assert!(is_source(Path::new("web/src/App.svelte")));
        assert!(!is_source(Path::new("docs/protocol.md")));
    }
}
