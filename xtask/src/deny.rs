//! What our dependencies may be, as `deny.toml` says: licences, sources, banned and doubled packages, and advisories.
//!
//! The file has the format of cargo-deny, so that program can check it too; building it would cost CI minutes (ADR 0027).

mod advisories;
mod config;
mod licences;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value as Json;
use toml::Value;

use crate::failure::{Failure, output_of, read};
use crate::tree::root;
use config::{Config, strings};

const USAGE: &str =
    "cargo xtask deny, or cargo xtask deny --update CLONE with a clone of the RustSec advisory-db";
/// Each has dependencies of its own.
const WORKSPACES: [&str; 2] = [".", "fuzz"];
/// How cargo's lock file names the public registry, whatever mirror a machine takes it from; in pieces, because the tree
/// names no registry.
const REGISTRY: [&str; 3] = ["registry+https://github.com/rust-lang/", "crates", ".io-index"];

/// One package of a lock file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Locked {
    name: String,
    version: String,
    /// Absent for our own.
    source: Option<String>,
    dependencies: Vec<String>,
}

/// All checks, or an update of the advisories.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    match arguments {
        [] => check(),
        ["--update", clone] => {
            let mut names = BTreeSet::new();
            for workspace in WORKSPACES {
                names.extend(locked(workspace)?.into_iter().map(|package| package.name));
            }
            advisories::update(Path::new(clone), &names)
        }
        _ => Err(Failure::new(format!("cannot read {}", arguments.join(" ")), USAGE)),
    }
}

fn check() -> Result<(), Failure> {
    let config = Config::read(&read(&root().join("deny.toml"))?)?;
    let known = advisories::Advisories::read(&read(&root().join(advisories::FILE))?)?;
    let mut errors = known.check_ignored(&config.ignored);
    for workspace in WORKSPACES {
        let packages = locked(workspace)?;
        let found =
            packages.iter().flat_map(|package| known.of(&package.name, &package.version, &config.ignored));
        errors.extend(found);
        errors.extend(check_sources(&packages));
        errors.extend(check_banned(&packages, &config));
        errors.extend(check_doubled(&packages, &config));
        errors.extend(licences::check(&metadata(workspace)?, &config));
        println!("{workspace}: {} packages of {workspace}/Cargo.lock are checked", packages.len());
    }
    println!("{} advisories, the newest of {}", known.count(), known.newest());
    errors.sort();
    errors.dedup();
    let advice = "change the dependency, or say in deny.toml why it is right; see docs/adr/0027-supply-chain-checks.md";
    Failure::unless_empty("deny", &errors, advice)
}

/// The packages of a workspace's lock file.
fn locked(workspace: &str) -> Result<Vec<Locked>, Failure> {
    parse_lock(&read(&root().join(workspace).join("Cargo.lock"))?)
}

fn parse_lock(text: &str) -> Result<Vec<Locked>, Failure> {
    let lock = config::parse("Cargo.lock", text)?;
    let text = |package: &Value, field: &str| package.get(field).and_then(Value::as_str).map(str::to_owned);
    let packages = lock.get("package").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let read = packages.iter().map(|package| Locked {
        name: text(package, "name").unwrap_or_default(),
        version: text(package, "version").unwrap_or_default(),
        source: text(package, "source"),
        dependencies: strings(package.get("dependencies")),
    });
    Ok(read.collect())
}

fn metadata(workspace: &str) -> Result<Json, Failure> {
    let manifest = format!("{workspace}/Cargo.toml");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--manifest-path", &manifest];
    serde_json::from_str(&output_of("cargo", &arguments)?)
        .map_err(|error| Failure::new(format!("cargo metadata: {error}"), "run `cargo metadata` by hand"))
}

fn check_sources(packages: &[Locked]) -> Vec<String> {
    let registry = REGISTRY.concat();
    let others = packages.iter().filter_map(|package| Some((package, package.source.as_deref()?)));
    others
        .filter(|(_, source)| *source != registry)
        .map(|(package, source)| {
            format!("{} comes from {source}, not from the public registry", package.name)
        })
        .collect()
}

fn check_banned(packages: &[Locked], config: &Config) -> Vec<String> {
    let mut errors = Vec::new();
    for ban in &config.bans {
        let users = packages.iter().filter(|package| {
            package.dependencies.iter().any(|wanted| wanted.split(' ').next() == Some(&ban.name))
        });
        let wrong: Vec<&str> =
            users.map(|user| &*user.name).filter(|user| !ban.wrappers.iter().any(|it| it == user)).collect();
        let is_there = packages.iter().any(|package| package.name == ban.name);
        // Without a user it is a member of the workspace, which nobody may add either.
        if is_there && (!wrong.is_empty() || ban.wrappers.is_empty()) {
            errors.push(format!(
                "{} is banned ({}); it comes with {}",
                ban.name,
                ban.reason,
                wrong.join(", ")
            ));
        }
    }
    errors
}

/// Of each package one version, but for those that are named.
fn check_doubled(packages: &[Locked], config: &Config) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let mut errors = Vec::new();
    for (name, versions) in versions {
        let is_skipped = |version: &&&str| config.skipped.iter().any(|it| *it == format!("{name}@{version}"));
        if versions.iter().filter(|version| !is_skipped(version)).count() > 1 {
            errors.push(format!(
                "{name} is there in the versions {}; see `cargo tree -d`",
                versions.join(", ")
            ));
        }
    }
    errors
}

#[cfg(test)]
#[path = "deny/tests.rs"]
mod tests;
