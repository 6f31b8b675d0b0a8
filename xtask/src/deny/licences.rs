//! Every package we build from has a licence that lets us ship under ours.

use serde_json::Value;

use super::config::Config;

/// What is wrong with the packages that `cargo metadata` lists.
pub(super) fn check(metadata: &Value, config: &Config) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages.iter().filter_map(|package| check_package(package, config)).collect()
}

fn check_package(package: &Value, config: &Config) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("a package without a name");
    let mut allowed: Vec<&str> = config.licences.iter().map(String::as_str).collect();
    let own = config.exceptions.iter().filter(|(excepted, _)| excepted == name);
    allowed.extend(own.flat_map(|(_, licences)| licences).map(String::as_str));
    match package["license"].as_str() {
        // Ours, which nobody gets but as part of the whole.
        None if package["source"].is_null() => None,
        None => Some(format!("{name} names no licence")),
        Some(licence) if !is_allowed(licence, &allowed) => {
            Some(format!("{name} has the licence `{licence}`"))
        }
        Some(_) => None,
    }
}

/// Reads an SPDX expression: `AND` binds closer than `OR`, brackets group, `/` is an old spelling of `OR`.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, allowed) && rest.is_empty()
}

fn either(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut is_allowed = both(words, allowed);
    while let ["OR", tail @ ..] = *words {
        *words = tail;
        is_allowed |= both(words, allowed);
    }
    is_allowed
}

fn both(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut is_allowed = one(words, allowed);
    while let ["AND", tail @ ..] = *words {
        *words = tail;
        is_allowed &= one(words, allowed);
    }
    is_allowed
}

fn one(words: &mut &[&str], allowed: &[&str]) -> bool {
    match *words {
        ["(", tail @ ..] => {
            *words = tail;
            let is_allowed = either(words, allowed);
            if let [")", tail @ ..] = *words {
                *words = tail;
            }
            is_allowed
        }
        [licence, "WITH", exception, tail @ ..] => {
            *words = tail;
            allowed.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, tail @ ..] => {
            *words = tail;
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
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
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn a_package_may_have_what_is_allowed_to_it_alone() {
        let config =
            Config::read(&crate::failure::read(&crate::tree::root().join("deny.toml")).unwrap()).unwrap();
        let package = |name: &str, licence: Option<&str>| {
            serde_json::json!({"packages": [{"name": name,
            "license": licence, "source": "registry+x"}]})
        };
        assert_eq!(
            check(&package("libfuzzer-sys", Some("(MIT OR Apache-2.0) AND NCSA")), &config),
            Vec::<String>::new()
        );
        assert_eq!(check(&package("other", Some("(MIT OR Apache-2.0) AND NCSA")), &config).len(), 1);
        assert_eq!(check(&package("other", Some("GPL-3.0-only")), &config).len(), 1);
        assert_eq!(check(&package("other", None), &config).len(), 1);
    }
}
