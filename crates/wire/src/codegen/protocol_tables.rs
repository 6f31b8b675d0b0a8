//! The tables of `docs/protocol.md`: commands, events and error codes, made from the types so that the page cannot be
//! wrong about them. Each stands between `<!-- name -->` and `<!-- /name -->`.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use ts_rs::Config;

use super::{answers, word};
use crate::event::Event;
use crate::{Command, command_table, error};

/// One table of a page.
pub struct PageTable {
    pub page: &'static str,
    /// The name in the two markers.
    pub name: &'static str,
    pub text: String,
}

impl PageTable {
    /// The page with this table between its markers.
    pub fn insert_into(&self, text: &str) -> Result<String, String> {
        let (open, close) = (format!("<!-- {} -->\n", self.name), format!("<!-- /{} -->", self.name));
        let missing = || format!("{} lacks the markers {} and {close}", self.page, open.trim_end());
        let (before, rest) = text.split_once(&open).ok_or_else(missing)?;
        let (_, after) = rest.split_once(&close).ok_or_else(missing)?;
        Ok(format!("{before}{open}{}{close}{after}", self.text))
    }
}

/// All of them.
pub fn page_tables() -> Result<Vec<PageTable>, String> {
    let page = "docs/protocol.md";
    Ok(vec![
        PageTable { page, name: "commands", text: commands()? },
        PageTable { page, name: "events", text: events()? },
        PageTable { page, name: "errors", text: errors() },
    ])
}

fn commands() -> Result<String, String> {
    let config = Config::default().with_large_int("number");
    let schema = Schema::of::<Command>()?;
    let mut text = String::from(
        "| command | parameters | answer | permission | lane | class | mutates |\n|---|---|---|---|---|---|---|\n",
    );
    for (spec, variant) in command_table::COMMANDS.iter().zip(schema.variants()) {
        let name = variant["properties"]["cmd"]["const"].as_str().unwrap_or_default();
        if name != spec.name {
            return Err(format!("the schema has '{name}' where the table has '{}'", spec.name));
        }
        let data = answers::data_type(&config, spec.name);
        let answer =
            if data == "unknown" { "–".to_owned() } else { format!("`{}`", data.replace('|', "\\|")) };
        let [permission, lane, class] = [word(&spec.permission)?, word(&spec.lane)?, word(&spec.class)?]
            .map(|word| word.replace('"', ""));
        let mutates = if spec.mutating { "yes" } else { "" };
        let fields = schema.fields(variant, "cmd");
        text.push_str(&format!(
            "| `{name}` | {fields} | {answer} | {permission} | {lane} | {class} | {mutates} |\n"
        ));
    }
    Ok(text)
}

fn events() -> Result<String, String> {
    let schema = Schema::of::<Event>()?;
    let mut text = String::from("| event | kind | fields | meaning |\n|---|---|---|---|\n");
    for variant in schema.variants() {
        let name = variant["properties"]["event"]["const"].as_str().unwrap_or_default();
        let sample = schema.sample(variant);
        let event: Event = serde_json::from_value(sample).map_err(|error| format!("{name}: {error}"))?;
        let kind = if event.is_record() { "record" } else { "live" };
        let meaning = variant["description"].as_str().unwrap_or_default().replace('\n', " ");
        text.push_str(&format!("| `{name}` | {kind} | {} | {meaning} |\n", schema.fields(variant, "event")));
    }
    Ok(text)
}

fn errors() -> String {
    let mut text = String::from("| code | HTTP | exit | retry | meaning |\n|---|---|---|---|---|\n");
    for spec in error::ERRORS {
        let retry = if spec.retry { "yes" } else { "" };
        let (code, status, exit, meaning) = (spec.code, spec.http_status, spec.exit_code, spec.about);
        text.push_str(&format!("| `{code}` | {status} | {exit} | {retry} | {meaning} |\n"));
    }
    text
}

/// The JSON Schema of an enum that is told apart by a tag.
struct Schema(Value);

impl Schema {
    fn of<T: schemars::JsonSchema>() -> Result<Schema, String> {
        let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
        serde_json::to_value(schema).map(Schema).map_err(|error| error.to_string())
    }

    fn variants(&self) -> impl Iterator<Item = &Value> {
        self.0["oneOf"].as_array().into_iter().flatten()
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> Option<&'a Value> {
        self.0.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
    }

    /// The names of the fields, those that may be left out with a question mark.
    fn fields(&self, variant: &Value, tag: &str) -> String {
        let mut names = Vec::new();
        for schema in [Some(variant), self.resolve(variant)].into_iter().flatten() {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for name in
                schema["properties"].as_object().into_iter().flat_map(Map::keys).filter(|name| *name != tag)
            {
                let mark = if required.contains(&Value::from(name.as_str())) { "" } else { "?" };
                names.push(format!("`{name}{mark}`"));
            }
        }
        if names.is_empty() { "–".to_owned() } else { names.join(", ") }
    }

    /// The smallest value that fits; what its fields say does not matter.
    fn sample(&self, schema: &Value) -> Value {
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        for list in ["enum", "oneOf", "anyOf", "allOf"] {
            if let Some(first) = schema[list].get(0) {
                return if list == "enum" { first.clone() } else { self.sample(first) };
            }
        }
        let mut object = match self.resolve(schema).map(|target| self.sample(target)) {
            Some(Value::Object(object)) => object,
            Some(other) => return other,
            None => Map::new(),
        };
        let kind = schema["type"].as_str().or_else(|| schema["type"].get(0)?.as_str());
        match kind {
            Some("string") => Value::from(""),
            Some("integer" | "number") => Value::from(0),
            Some("boolean") => Value::from(false),
            Some("array") => Value::from(Vec::<Value>::new()),
            Some("null") => Value::Null,
            _ => {
                for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    object.insert(name.to_owned(), self.sample(&schema["properties"][name]));
                }
                Value::Object(object)
            }
        }
    }
}
