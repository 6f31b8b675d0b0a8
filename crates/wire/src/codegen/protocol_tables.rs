//! The tables of `docs/protocol.md`: commands, events and error codes, made from the types so that the page cannot be
//! wrong about them. Each stands between `<!-- name -->` and `<!-- /name -->`.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::word;
use crate::event::Event;
use crate::{command_table, error};

/// One table of a page.
pub struct PageTable {
    pub page: &'static str,
    /// The name in the two markers.
    pub name: &'static str,
    head: &'static str,
    /// The first column names what a row is about.
    rows: Vec<Vec<String>>,
    /// The last column is written by people on the page; the types only say it where the page does not.
    keeps_last_column: bool,
}

impl PageTable {
    /// The page with this table between its markers.
    pub fn insert_into(&self, text: &str) -> Result<String, String> {
        let (open, close) = (format!("<!-- {} -->\n", self.name), format!("<!-- /{} -->", self.name));
        let missing = || format!("{} lacks the markers {} and {close}", self.page, open.trim_end());
        let (before, rest) = text.split_once(&open).ok_or_else(missing)?;
        let (table, after) = rest.split_once(&close).ok_or_else(missing)?;
        let written: BTreeMap<&str, &str> =
            table.lines().filter(|_| self.keeps_last_column).filter_map(first_and_last_cell).collect();
        let line = format!("|{}\n", "---|".repeat(self.head.matches('|').count() - 1));
        let mut text = format!("{before}{open}{}\n{line}", self.head);
        for row in &self.rows {
            let mut cells = row.clone();
            if let (Some(last), Some(words)) = (cells.last_mut(), written.get(row[0].as_str())) {
                *last = (*words).to_owned();
            }
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        Ok(text + &close + after)
    }
}

/// A row of the page is recognised by its first cell, which is how texts survive when rows are added or sorted.
fn first_and_last_cell(line: &str) -> Option<(&str, &str)> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (first, rest) = inner.split_once(" | ")?;
    Some((first, rest.rsplit(" | ").next()?))
}

/// All of them.
pub fn page_tables() -> Result<Vec<PageTable>, String> {
    let page = "docs/protocol.md";
    Ok(vec![
        PageTable {
            page,
            name: "commands",
            head: "| command | permission | lane | raises the version | time limit | answered by |",
            rows: commands()?,
            keeps_last_column: false,
        },
        PageTable {
            page,
            name: "events",
            head: "| event | kind | meaning |",
            rows: events()?,
            keeps_last_column: true,
        },
        PageTable {
            page,
            name: "errors",
            head: "| code | HTTP | exit | retry | meaning |",
            rows: errors(),
            keeps_last_column: false,
        },
    ])
}

fn commands() -> Result<Vec<Vec<String>>, String> {
    let row = |spec: &command_table::CommandSpec| {
        let limit = spec.timeout_ms.map_or_else(|| "–".to_owned(), |limit| format!("{} s", limit / 1000));
        Ok(vec![
            format!("`{}`", spec.name),
            word(&spec.permission)?.replace('"', ""),
            word(&spec.lane)?.replace('"', ""),
            if spec.mutating { "yes" } else { "no" }.to_owned(),
            limit,
            word(&spec.answerer)?.replace('"', ""),
        ])
    };
    command_table::COMMANDS.iter().map(row).collect()
}

fn events() -> Result<Vec<Vec<String>>, String> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Event>();
    let schema = serde_json::to_value(schema).map_err(|error| error.to_string())?;
    let row = |variant: &Value| {
        let name = variant["properties"]["event"]["const"].as_str().unwrap_or_default();
        // Whether an event is a record is a method of its type, so the row needs a value to ask.
        let event: Event =
            serde_json::from_value(sample(&schema, variant)).map_err(|error| format!("{name}: {error}"))?;
        let kind = if event.is_record() { "record" } else { "live" };
        let meaning = variant["description"].as_str().unwrap_or_default().replace('\n', " ");
        Ok(vec![format!("`{name}`"), kind.to_owned(), meaning])
    };
    schema["oneOf"].as_array().into_iter().flatten().map(row).collect()
}

/// The smallest value that fits a schema; what its fields say does not matter.
fn sample(root: &Value, schema: &Value) -> Value {
    if let Some(constant) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return constant.clone();
    }
    if let Some(first) = ["oneOf", "anyOf", "allOf"].iter().find_map(|list| schema[list].get(0)) {
        return sample(root, first);
    }
    // A schema may have fields of its own beside a reference, and a value must fit both.
    let target = schema["$ref"].as_str().and_then(|name| root.pointer(name.strip_prefix('#')?));
    let mut object = match target.map(|target| sample(root, target)) {
        Some(Value::Object(object)) => object,
        Some(other) => return other,
        None => Map::new(),
    };
    match schema["type"].as_str().or_else(|| schema["type"].get(0)?.as_str()) {
        Some("string") => Value::from(""),
        Some("integer" | "number") => Value::from(0),
        Some("boolean") => Value::from(false),
        Some("array") => Value::from(Vec::<Value>::new()),
        Some("null") => Value::Null,
        _ => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                object.insert(name.to_owned(), sample(root, &schema["properties"][name]));
            }
            Value::Object(object)
        }
    }
}

fn errors() -> Vec<Vec<String>> {
    let row = |spec: &error::ErrorSpec| {
        let retry = if spec.retry { "yes" } else { "" };
        let numbers = [spec.http_status.to_string(), spec.exit_code.to_string(), retry.to_owned()];
        let code = format!("`{}`", spec.code);
        std::iter::once(code).chain(numbers).chain([spec.about.to_owned()]).collect()
    };
    error::ERRORS.iter().map(row).collect()
}
