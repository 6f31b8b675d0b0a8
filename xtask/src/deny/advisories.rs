//! Known defects of packages: a copy of what the RustSec database says of those in our lock files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use toml::Value;

use super::config::{parse, strings};
use super::version::{Version, is_in};
use crate::failure::{Failure, read};
use crate::tree::root;

/// The copy.
pub(super) const FILE: &str = "xtask/advisories.toml";

const ADVICE: &str = "mend the file, or make it anew with `cargo xtask deny --update CLONE`";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    title: String,
    /// Versions in which it is mended.
    patched: Vec<String>,
    /// Versions that never had it.
    unaffected: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Advisories(Vec<Advisory>);

impl Advisories {
    pub(super) fn read(text: &str) -> Result<Advisories, Failure> {
        let file = parse(FILE, text)?;
        let rows = file.get("advisory").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let advisories = rows.iter().map(|row| {
            let word = |field: &str| row.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let advisory = Advisory {
                id: word("id"),
                package: word("package"),
                date: word("date"),
                title: word("title"),
                patched: strings(row.get("patched")),
                unaffected: strings(row.get("unaffected")),
            };
            let ranges = advisory.patched.iter().chain(&advisory.unaffected);
            let zero = Version::parse("0.0.0");
            let wrong =
                ranges.clone().find(|range| zero.as_ref().and_then(|zero| is_in(zero, range)).is_none());
            match wrong {
                Some(range) => {
                    Err(Failure::new(format!("{FILE}: {} has the range `{range}`", advisory.id), ADVICE))
                }
                None if advisory.id.is_empty() || advisory.package.is_empty() => {
                    Err(Failure::new(format!("{FILE}: an advisory without id or package: {row}"), ADVICE))
                }
                None => Ok(advisory),
            }
        });
        advisories.collect::<Result<_, _>>().map(Advisories)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn newest(&self) -> &str {
        self.0.iter().map(|advisory| &*advisory.date).max().unwrap_or("no day")
    }

    /// What is known of this version of a package and not ignored.
    pub(super) fn of(&self, package: &str, version: &str, ignored: &[String]) -> Vec<String> {
        let advisories = self.0.iter().filter(|advisory| advisory.package == package);
        let open = advisories.filter(|advisory| !ignored.contains(&advisory.id) && advisory.affects(version));
        open.map(|advisory| {
            let Advisory { id, title, patched, .. } = advisory;
            let mended = if patched.is_empty() { "no version".to_owned() } else { patched.join(" or ") };
            format!("{package} {version} has {id}: {title}; mended in {mended}")
        })
        .collect()
    }

    /// An advisory that is ignored but unknown is a mistake of the hand.
    pub(super) fn check_ignored(&self, ignored: &[String]) -> Vec<String> {
        let unknown = ignored.iter().filter(|id| !self.0.iter().any(|advisory| advisory.id == **id));
        unknown.map(|id| format!("deny.toml ignores {id}, which {FILE} does not have")).collect()
    }
}

impl Advisory {
    /// A version that cannot be read counts as affected, so that somebody looks.
    fn affects(&self, version: &str) -> bool {
        let Some(version) = Version::parse(version) else { return true };
        let mut safe = self.patched.iter().chain(&self.unaffected);
        !safe.any(|range| is_in(&version, range) == Some(true))
    }
}

/// Makes the copy anew from a clone of the database, for the packages of these names.
pub(super) fn update(clone: &Path, names: &BTreeSet<String>) -> Result<(), Failure> {
    let crates = clone.join("crates");
    if !crates.is_dir() {
        let error = format!("{} has no folder crates", clone.display());
        return Err(Failure::new(error, "clone RustSec's advisory-db and name its folder"));
    }
    let mut advisories = Vec::new();
    for name in names {
        // Most packages have none.
        let Ok(files) = std::fs::read_dir(crates.join(name)) else { continue };
        let mut files: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
            advisories.extend(from_markdown(&read(file)?)?);
        }
    }
    let text = written(&advisories);
    // What was written is read again before it replaces the old copy.
    Advisories::read(&text)?;
    let path = root().join(FILE);
    std::fs::write(&path, text).map_err(|error| {
        Failure::new(format!("cannot write {}: {error}", path.display()), "check the file")
    })?;
    println!("{} advisories are in {FILE}", advisories.len());
    Ok(())
}

/// A file of the database: a block of TOML, then the title. `None` for one that was withdrawn.
fn from_markdown(text: &str) -> Result<Option<Advisory>, Failure> {
    let block = text.split_once("```toml").and_then(|(_, rest)| rest.split_once("```"));
    let Some((head, rest)) = block else {
        return Err(Failure::new("a file of the database has no block of TOML", "check the clone"));
    };
    let head = parse("a file of the database", head)?;
    let at = |section: &str, field: &str| head.get(section).and_then(|section| section.get(field)).cloned();
    if at("advisory", "withdrawn").is_some() {
        return Ok(None);
    }
    let word =
        |field: &str| at("advisory", field).and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    let title = rest.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    Ok(Some(Advisory {
        id: word("id"),
        package: word("package"),
        date: word("date"),
        title: title.trim().to_owned(),
        patched: strings(at("versions", "patched").as_ref()),
        unaffected: strings(at("versions", "unaffected").as_ref()),
    }))
}

fn written(advisories: &[Advisory]) -> String {
    let mut out = "# What the RustSec database says of packages in our lock files, in short. Make it anew with\n\
                   # `cargo xtask deny --update CLONE`, where CLONE is a clone of github.com/rustsec/advisory-db.\n"
        .to_owned();
    for Advisory { id, package, date, title, patched, unaffected } in advisories {
        let list = |ranges: &[String]| Value::from(ranges.to_vec()).to_string();
        let text = |text: &str| Value::from(text).to_string();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n[[advisory]]\nid = {}\npackage = {}\ndate = {}\ntitle = {}\npatched = {}\nunaffected = {}\n",
            text(id),
            text(package),
            text(date),
            text(title),
            list(patched),
            list(unaffected)
        );
    }
    out
}

#[cfg(test)]
#[path = "advisories_tests.rs"]
mod tests;
