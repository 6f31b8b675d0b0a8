//! Generic code names no harness: one is two folders and a row in the runner's table.
//!
//! What counts is code (also the texts in it), not comments and not tests. The names are those of the folders, so a
//! new harness is covered as soon as it is there.

use std::collections::BTreeSet;
use std::path::Path;

use crate::failure::{Failure, read};
use crate::tree::{files, root};

const CODECS: &str = "crates/core/src/harness/";
const DRIVERS: &str = "crates/runner/src/driver/";

/// Where a harness may be named besides its own folders.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/core/src/harness.rs", "lists the codecs"),
    ("crates/runner/src/driver.rs", "lists the drivers"),
    ("crates/runner/src/driver/harness_table.rs", "has a row for each"),
    ("crates/testkit/", "tests only"),
    ("crates/wire/src/faces/pi_server", "a face that has its name from a harness"),
    ("crates/core/src/view/pi_server", "the same face"),
];

/// Where names like `pi_connections` and `PiFlags` are that face's. These crates know no driver: what would name the
/// harness here is its quoted name or a path.
const FACE_FOLDERS: &[&str] = &["crates/hub/src/", "crates/qd/src/"];

/// The harness that gave the face its name.
const FACE_NAME: &str = "pi";

/// Words of the face that has its name from a harness; in any spelling.
const FACE_WORDS: &[&str] = &["pi_server", "PiServer", "PI_SERVER", "pi-server", "/ws/pi"];

/// Every place where generic code names a harness.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let files = files()?;
    let texts: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
    let names = names(&texts);
    if names.is_empty() {
        return Ok(vec![format!("{CODECS} and {DRIVERS} have no harness in common: were they moved?")]);
    }
    let mut errors = Vec::new();
    for file in texts.into_iter().filter(|file| is_generic(file, &names)) {
        let text = read(&root().join(file))?;
        let is_face = FACE_FOLDERS.iter().any(|folder| file.starts_with(folder));
        for (line, name) in named(&text, &names, is_face) {
            errors.push(format!(
                "{file}:{line}: generic code names the harness '{name}'; use a hook of its driver"
            ));
        }
    }
    Ok(errors)
}

/// The harnesses there are: those with a codec and a driver.
fn names(files: &[&str]) -> BTreeSet<String> {
    let below = |folder: &str| -> BTreeSet<String> {
        let names = files.iter().filter_map(|file| file.strip_prefix(folder)?.split(['/', '.']).next());
        names.map(str::to_owned).collect()
    };
    below(CODECS).intersection(&below(DRIVERS)).cloned().collect()
}

fn is_generic(file: &str, names: &BTreeSet<String>) -> bool {
    let is_code = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
    let name = Path::new(file).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let is_test = name == "tests" || name.ends_with("_tests") || file.contains("_tests/");
    let is_own = |folder: &str| {
        let below = file.strip_prefix(folder).and_then(|below| below.split(['/', '.']).next());
        below.is_some_and(|below| names.contains(below))
    };
    is_code
        && !is_test
        && !is_own(CODECS)
        && !is_own(DRIVERS)
        && !ALLOWED.iter().any(|(allowed, _)| file.starts_with(allowed))
}

/// Lines (from 1) of code that name a harness. A module of tests is the end of a file's code.
fn named(text: &str, names: &BTreeSet<String>, is_face: bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_after_cfg_test = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if is_after_cfg_test && trimmed.starts_with("mod ") && trimmed.ends_with('{') {
            break;
        }
        is_after_cfg_test = trimmed == "#[cfg(test)]";
        let code =
            FACE_WORDS.iter().fold(without_comment(line).to_owned(), |code, word| code.replace(word, " "));
        let words = code.split(|letter: char| !letter.is_ascii_alphanumeric()).flat_map(segments);
        let is_named = |word: &String| {
            names.contains(word) && !(is_face && word == FACE_NAME && !names_harness(&code, word))
        };
        found.extend(words.filter(is_named).map(|word| (number + 1, word)));
    }
    found
}

/// Whether a harness is named as one: by its whole quoted name, or by the path to its code.
fn names_harness(code: &str, name: &str) -> bool {
    [format!("\"{name}\""), format!("harness::{name}"), format!("driver::{name}")]
        .iter()
        .any(|spelling| code.contains(spelling.as_str()))
}

/// The line without a comment; `//` after a colon is part of an address.
fn without_comment(line: &str) -> &str {
    let mut from = 0;
    while let Some(place) = line[from..].find("//").map(|place| place + from) {
        if !line[..place].ends_with(':') {
            return &line[..place];
        }
        from = place + 2;
    }
    line
}

/// `PiHandle` as `pi` and `handle`; `PI` as `pi`.
fn segments(word: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut was_lower = true;
    for letter in word.chars() {
        if parts.is_empty() || (letter.is_ascii_uppercase() && was_lower) {
            parts.push(String::new());
        }
        was_lower = !letter.is_ascii_uppercase();
        if let Some(part) = parts.last_mut() {
            part.push(letter.to_ascii_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harnesses() -> BTreeSet<String> {
        names(&[
            "crates/core/src/harness/pi.rs",
            "crates/core/src/harness/pi/decode.rs",
            "crates/core/src/harness/lines.rs",
            "crates/runner/src/driver/pi/launch.rs",
            "crates/runner/src/driver/harness_table.rs",
        ])
    }

    #[test]
    fn what_has_a_codec_and_a_driver_is_a_harness() {
        assert_eq!(harnesses(), BTreeSet::from(["pi".to_owned()]));
    }

    #[test]
    fn code_that_names_one_is_found_and_nothing_else() {
        let bad = [
            "if harness == \"pi\" {",
            "use qd_core::harness::pi::encode;",
            "Driver::Pi(driver) => driver,",
            "const PI_VERSION: &str = \"1\";",
            "let at = \"https://pi.example\"; fn pi_command() {}",
            "struct PiHandle;",
        ];
        for line in bad {
            assert!(!named(line, &harnesses(), false).is_empty(), "{line}");
        }
        let good = [
            "// pi loses a prompt that comes too early.",
            "    /// As pi does.",
            "let piece = spin(PID); Epic::pick();",
            "use qd_wire::pi_server::FaceEvent; PiServerConfig::default();",
            "help = \"at /ws/pi, or the port of pi-server\"",
            "#[cfg(test)]\nmod tests {\n    const PI: &str = \"pi\";",
        ];
        for line in good {
            assert_eq!(named(line, &harnesses(), false), [], "{line}");
        }
        assert_eq!(named("a\nb(\"pi\")", &harnesses(), false), [(2, "pi".to_owned())]);
    }

    #[test]
    fn a_face_may_have_the_name_but_the_harness_is_still_found() {
        for line in ["hub.pi_connections.close();", "pi: PiFlags,", "\"pi_pending_max\""] {
            assert_eq!(named(line, &harnesses(), true), [], "{line}");
        }
        for line in ["if row.harness == \"pi\" {", "use qd_runner::driver::pi::Pi;"] {
            assert!(!named(line, &harnesses(), true).is_empty(), "{line}");
        }
    }

    #[test]
    fn folders_of_harnesses_faces_and_tests_are_left_out() {
        for file in [
            "crates/runner/src/driver/pi/launch.rs",
            "crates/core/src/harness/pi.rs",
            "crates/core/src/view/pi_server/watch.rs",
            "crates/runner/src/runner/stored_sessions_tests.rs",
            "crates/runner/tests/runner/pi_server.rs",
            "docs/pi.md",
        ] {
            assert!(!is_generic(file, &harnesses()), "{file}");
        }
        for file in
            ["crates/runner/src/session/commands/queue_edit.rs", "crates/runner/src/driver/harness.rs"]
        {
            assert!(is_generic(file, &harnesses()), "{file}");
        }
    }
}
