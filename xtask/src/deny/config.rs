//! `deny.toml`, as far as we check it.

use toml::Value;

use crate::failure::Failure;

const ADVICE: &str = "mend the file; its format is cargo-deny's";

/// A package that must not be there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ban {
    pub(super) name: String,
    pub(super) reason: String,
    /// Packages that may use it all the same.
    pub(super) wrappers: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) licences: Vec<String>,
    /// By package, what it may have beside those.
    pub(super) exceptions: Vec<(String, Vec<String>)>,
    pub(super) bans: Vec<Ban>,
    /// `name@version`.
    pub(super) skipped: Vec<String>,
    /// Ids of advisories.
    pub(super) ignored: Vec<String>,
}

impl Config {
    pub(super) fn read(text: &str) -> Result<Config, Failure> {
        let file = parse("deny.toml", text)?;
        let at =
            |section: &str, field: &str| file.get(section).and_then(|section| section.get(field)).cloned();
        let rows =
            |section, field| at(section, field).and_then(|rows| rows.as_array().cloned()).unwrap_or_default();
        for (section, field) in
            [("sources", "unknown-registry"), ("sources", "unknown-git"), ("bans", "multiple-versions")]
        {
            if at(section, field).as_ref().and_then(Value::as_str) != Some("deny") {
                return Err(Failure::new(format!("deny.toml: {section}.{field} is not \"deny\""), ADVICE));
            }
        }
        let each = |section, field, read: fn(&Value) -> Result<String, Failure>| {
            rows(section, field)
                .iter()
                .map(|row| reason(row).and_then(|_| read(row)))
                .collect::<Result<Vec<_>, _>>()
        };
        let ban = |row: &Value| {
            Ok(Ban { name: name(row)?, reason: reason(row)?, wrappers: strings(row.get("wrappers")) })
        };
        let exception = |row: &Value| Ok((name(row)?, strings(row.get("allow"))));
        Ok(Config {
            licences: strings(at("licenses", "allow").as_ref()),
            exceptions: rows("licenses", "exceptions")
                .iter()
                .map(exception)
                .collect::<Result<_, Failure>>()?,
            bans: rows("bans", "deny").iter().map(ban).collect::<Result<_, Failure>>()?,
            skipped: each("bans", "skip", name)?,
            ignored: each("advisories", "ignore", |row| word(row, "id"))?,
        })
    }
}

pub(super) fn parse(file: &str, text: &str) -> Result<Value, Failure> {
    text.parse::<toml::Table>()
        .map(Value::Table)
        .map_err(|error| Failure::new(format!("{file}: {error}"), "mend the file; it must be TOML"))
}

/// The strings of a list; nothing for no list.
pub(super) fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn name(row: &Value) -> Result<String, Failure> {
    word(row, "crate")
}

/// An exception without a reason is one that nobody dares to take out again.
fn reason(row: &Value) -> Result<String, Failure> {
    word(row, "reason")
}

fn word(row: &Value, field: &str) -> Result<String, Failure> {
    let found = row.get(field).and_then(Value::as_str).filter(|word| !word.is_empty());
    found.map(str::to_owned).ok_or_else(|| Failure::new(format!("deny.toml: `{row}` has no {field}"), ADVICE))
}
