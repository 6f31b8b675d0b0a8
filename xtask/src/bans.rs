//! Who may depend on whom: the architecture invariants as facts of the build.

use std::collections::BTreeSet;

use crate::failure::{Failure, output_of, read};
use crate::tree::root;

/// More packages than this in the lock file is a decision to be made aloud.
const LOCK_PACKAGES_MAX: usize = 350;

const WIRE: &[&str] = &["qd-wire-derive", "qd-wire"];

/// The crates of the workspace that each crate may use, directly or not.
const INTERNAL: &[(&str, &[&str])] = &[
    ("qd-wire-derive", &[]),
    ("qd-wire", &["qd-wire-derive"]),
    ("qd-core", WIRE),
    ("qd-store", WIRE),
    ("qd-link", WIRE),
    ("qd-runner", &["qd-wire-derive", "qd-wire", "qd-core", "qd-seal", "qd-store", "qd-link"]),
    ("qd-hub", &["qd-wire-derive", "qd-wire", "qd-core", "qd-store", "qd-link"]),
    (
        "qd",
        &["qd-wire-derive", "qd-wire", "qd-core", "qd-seal", "qd-store", "qd-link", "qd-runner", "qd-hub"],
    ),
];

/// Packages that must be nowhere in the tree of a crate, and why.
const NEVER: &[(&str, &[&str], &str)] = &[
    (
        "qd-core",
        &[
            "tokio",
            "mio",
            "socket2",
            "futures-util",
            "async-io",
            "rusqlite",
            "libsqlite3-sys",
            "axum",
            "hyper",
            "tungstenite",
            "tokio-tungstenite",
            "rustix",
            "nix",
            "tempfile",
            "getrandom",
            "rand",
            "tracing",
        ],
        "the core is pure: no I/O, no async, no clock, no randomness",
    ),
    ("qd-store", &["axum", "hyper", "tungstenite"], "storage knows no transport"),
    ("qd-link", &["rusqlite", "axum"], "the link moves lines and keeps none"),
    ("qd-hub", &["pty-process"], "the hub never runs an agent"),
];

/// Packages that only one of our crates may use itself.
const ONLY_BY: &[(&str, &str, &str)] = &[("rusqlite", "qd-store", "only the store opens databases")];

/// The only direct dependencies of a crate.
const DIRECT_ONLY: &[(&str, &[&str], &str)] = &[(
    "qd-wire",
    &["serde", "serde_json", "serde_path_to_error", "serde_with", "schemars", "ts-rs", "qd-wire-derive"],
    "types depend on what describes them only",
)];

pub(crate) fn run() -> Result<(), Failure> {
    let mut errors = Vec::new();
    for (package, allowed) in INTERNAL {
        errors.extend(check_internal(package, &dependencies(package, &[])?, allowed));
    }
    for (package, banned, reason) in NEVER {
        errors.extend(check_never(package, &dependencies(package, &[])?, banned, reason));
    }
    for (package, _) in INTERNAL {
        errors.extend(check_only_by(package, &dependencies(package, &["--depth", "1"])?));
    }
    for (package, allowed, reason) in DIRECT_ONLY {
        errors.extend(check_direct(package, &dependencies(package, &["--depth", "1"])?, allowed, reason));
    }
    let lock = read(&root().join("Cargo.lock"))?;
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    if packages > LOCK_PACKAGES_MAX {
        errors.push(format!("Cargo.lock holds {packages} packages, at most {LOCK_PACKAGES_MAX}"));
    }
    println!("{packages} packages in Cargo.lock, at most {LOCK_PACKAGES_MAX}");
    let advice = "take the dependency out, or change the rule in xtask/src with an ADR that says why";
    Failure::unless_empty("bans", &errors, advice)
}

/// The names of what a package is built from; tests and build scripts of others do not count.
fn dependencies(package: &str, more: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let mut arguments =
        vec!["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    arguments.extend(more);
    let listing = output_of("cargo", &arguments)?;
    let names = listing.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    Ok(names.filter(|name| *name != package).map(str::to_owned).collect())
}

fn check_internal(package: &str, dependencies: &BTreeSet<String>, allowed: &[&str]) -> Vec<String> {
    let ours = dependencies.iter().filter(|name| name.starts_with("qd-") || *name == "qd");
    ours.filter(|name| !allowed.contains(&name.as_str()))
        .map(|name| format!("{package} must not depend on {name}; it may use {allowed:?}"))
        .collect()
}

fn check_never(package: &str, dependencies: &BTreeSet<String>, banned: &[&str], reason: &str) -> Vec<String> {
    let found = banned.iter().filter(|name| dependencies.contains(**name));
    found
        .map(|name| {
            format!("{package} must not depend on {name} ({reason}); see `cargo tree -p {package} -i {name}`")
        })
        .collect()
}

fn check_only_by(package: &str, direct: &BTreeSet<String>) -> Vec<String> {
    let of_others = ONLY_BY.iter().filter(|(library, user, _)| *user != package && direct.contains(*library));
    of_others
        .map(|(library, user, reason)| format!("{package} must not use {library}: {user} does ({reason})"))
        .collect()
}

fn check_direct(
    package: &str,
    dependencies: &BTreeSet<String>,
    allowed: &[&str],
    reason: &str,
) -> Vec<String> {
    let found = dependencies.iter().filter(|name| !allowed.contains(&name.as_str()));
    found.map(|name| format!("{package} must not use {name} ({reason})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_rule_can_fail() {
        assert_eq!(
            check_internal("qd-hub", &names(&["qd-core", "serde"]), &["qd-core"]),
            Vec::<String>::new()
        );
        assert_eq!(check_internal("qd-hub", &names(&["qd-runner", "qd-seal"]), &["qd-core"]).len(), 2);
        assert_eq!(check_never("qd-core", &names(&["tokio", "serde"]), &["tokio"], "pure").len(), 1);
        assert_eq!(check_never("qd-core", &names(&["tokio-like"]), &["tokio"], "pure"), Vec::<String>::new());
        assert_eq!(check_only_by("qd-hub", &names(&["rusqlite", "bytes"])).len(), 1);
        assert_eq!(check_only_by("qd-store", &names(&["rusqlite"])), Vec::<String>::new());
        assert_eq!(check_direct("qd-wire", &names(&["serde", "bytes"]), &["serde"], "types").len(), 1);
    }
}
