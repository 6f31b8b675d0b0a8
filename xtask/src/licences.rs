//! Every package we build from has a licence that lets us ship under ours, and comes from the registry.

use serde_json::Value;

use crate::failure::{Failure, output_of};

/// Licences that ask for no more than their text.
const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "BSL-1.0",
    "CC0-1.0",
    "Unlicense",
    "Unicode-3.0",
];

pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let text = output_of("cargo", &["metadata", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("cargo metadata: {error}"), "run `cargo metadata` by hand"))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(packages.iter().filter_map(check_package).collect())
}

fn check_package(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("a package without a name");
    if let Some(source) = package["source"].as_str()
        && !source.starts_with("registry+")
    {
        return Some(format!("{name} comes from {source}, not from the registry"));
    }
    match package["license"].as_str() {
        None => Some(format!("{name} names no licence")),
        Some(licence) if !is_allowed(licence) => Some(format!("{name} has the licence `{licence}`")),
        Some(_) => None,
    }
}

/// Reads an SPDX expression: `AND` binds closer than `OR`, brackets group, `/` is an old spelling of `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(words: &mut &[&str]) -> bool {
    let mut allowed = both(words);
    while let ["OR", tail @ ..] = *words {
        *words = tail;
        allowed |= both(words);
    }
    allowed
}

fn both(words: &mut &[&str]) -> bool {
    let mut allowed = one(words);
    while let ["AND", tail @ ..] = *words {
        *words = tail;
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut &[&str]) -> bool {
    match *words {
        ["(", tail @ ..] => {
            *words = tail;
            let allowed = either(words);
            if let [")", tail @ ..] = *words {
                *words = tail;
            }
            allowed
        }
        [licence, "WITH", exception, tail @ ..] => {
            *words = tail;
            ALLOWED.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, tail @ ..] => {
            *words = tail;
            ALLOWED.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), expected, "{expression}");
        }
    }
}
