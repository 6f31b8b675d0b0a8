//! The little language of scripted prompts: lines of `@@name key=value …`.

use serde_json::{Map, Value};

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Directive {
    pub(crate) name: String,
    pub(crate) fields: Map<String, Value>,
}

impl Directive {
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.fields.get(key).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.fields.get(key).and_then(Value::as_u64)
    }
}

/// Reads a script. A message that does not start with `@@` is none and gives no directives, so that a conversation
/// quoted inside another message (pi's compaction does that) is not mistaken for a script.
pub(crate) fn parse_script(message: &str) -> Vec<Directive> {
    let message = message.trim_start();
    if !message.starts_with("@@") {
        return Vec::new();
    }
    message.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Directive> {
    let line = line.trim().strip_prefix("@@")?;
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(line.len());
    let (name, mut rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let mut fields = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let key_end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(key_end);
        let Some(value_text) = after.strip_prefix('=') else {
            rest = after;
            continue;
        };
        let (value, after) = parse_value(value_text);
        fields.insert(key.to_owned(), value);
        rest = after;
    }
    Some(Directive { name: name.to_owned(), fields })
}

/// Reads one value and returns what follows it.
fn parse_value(text: &str) -> (Value, &str) {
    if text.starts_with(['"', '[', '{']) {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        if let Some(Ok(value)) = values.next() {
            return (value, &text[values.byte_offset()..]);
        }
    }
    let (word, after) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    (serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.to_owned())), after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scripts_are_read_as_written() {
        let cases = [
            ("hello", json!([])),
            ("<conversation>\n@@text x", json!([])),
            ("@@ -1,3 +1,3 @@", json!([])),
            ("@@text", json!([["text", {}]])),
            ("  @@text hello there", json!([["text", {}]])),
            (r#"@@text text="a \"b\" = c" x=1"#, json!([["text", {"text": "a \"b\" = c", "x": 1}]])),
            ("@@error status=529 times=2", json!([["error", {"status": 529, "times": 2}]])),
            (
                r#"@@edit path=a.txt edits=[{"oldText":"a b"}]"#,
                json!([["edit", {"path": "a.txt", "edits": [{"oldText": "a b"}]}]]),
            ),
            (r#"@@text text="open"#, json!([["text", {"text": "\"open"}]])),
            ("@@text text=", json!([["text", {"text": ""}]])),
            ("@@thinking\n\n@@bash command=ls", json!([["thinking", {}], ["bash", {"command": "ls"}]])),
        ];
        for (message, expected) in cases {
            let found: Vec<Value> =
                parse_script(message).into_iter().map(|d| json!([d.name, d.fields])).collect();
            assert_eq!(Value::Array(found), expected, "{message}");
        }
    }
}
