//! The tools, their schemas, and how answers read.
//!
//! A tool is one command of the runner and a row of this table. Descriptions and results are read by a model: they
//! are short, and what is missing from a result is said in it.

use qd_wire::service::{
    BashData, FsListData, FsReadData, FsSearchData, FsWriteData, GitDiffData, GitStatusData,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An answer as the agent reads it; an error as well.
type Text = fn(&Value) -> Result<String, String>;

/// One tool.
pub(super) struct ToolSpec {
    pub(super) name: &'static str,
    description: &'static str,
    /// The command it is.
    pub(super) cmd: &'static str,
    /// Told to the MCP client, which may ask a person before it calls a tool that changes something.
    is_read_only: bool,
    /// Name, type, description; those that must be there first.
    properties: &'static [(&'static str, &'static str, &'static str)],
    /// How many of the properties, from the first on, must be there.
    required: usize,
    pub(super) text: Text,
}

static TOOLS: [ToolSpec; 7] = [
    ToolSpec {
        name: "fs_read",
        description: "Read a text file. Long files come in pages: go on with `offset`.",
        cmd: "fs.read",
        is_read_only: true,
        properties: &[
            ("path", "string", "Relative to the session's directory"),
            ("offset", "integer", "The first byte; 0 without it"),
            ("length", "integer", "Bytes at most"),
        ],
        required: 1,
        text: read,
    },
    ToolSpec {
        name: "fs_search",
        description: "Search the files of a directory for a text or a regular expression. Ignored files are left out.",
        cmd: "fs.search",
        is_read_only: true,
        properties: &[
            ("query", "string", "What to look for"),
            ("path", "string", "A directory or file to look in"),
            ("regex", "boolean", "The query is a regular expression"),
            ("case_sensitive", "boolean", "Without it, capitals count only if the query has some"),
            ("include_hidden", "boolean", "Also files that begin with a dot"),
            ("globs", "array", "Files whose path matches (`*.rs`); a leading `!` excludes"),
            ("limit", "integer", "Lines at most; 200 without it"),
        ],
        required: 1,
        text: search,
    },
    ToolSpec {
        name: "fs_list",
        description: "List a directory.",
        cmd: "fs.list",
        is_read_only: true,
        properties: &[
            ("path", "string", "Relative to the session's directory, which it is without it"),
            ("include_hidden", "boolean", "Also files that begin with a dot"),
            ("offset", "integer", "Entries to skip"),
            ("limit", "integer", "Entries at most; 500 without it"),
        ],
        required: 0,
        text: list,
    },
    ToolSpec {
        name: "git_status",
        description: "What git says of the session's directory.",
        cmd: "git.status",
        is_read_only: true,
        properties: &[],
        required: 0,
        text: status,
    },
    ToolSpec {
        name: "git_diff",
        description: "What has changed, as a diff. Long diffs come in pages: go on with `offset`.",
        cmd: "git.diff",
        is_read_only: true,
        properties: &[
            ("path", "string", "Only this file or directory; a deleted one will do"),
            ("staged", "boolean", "What the index has against the last commit"),
            ("untracked", "boolean", "Also files that git does not know yet"),
            ("base", "string", "Against this commit or branch"),
            ("offset", "integer", "Bytes of the diff to skip"),
        ],
        required: 0,
        text: diff,
    },
    ToolSpec {
        name: "fs_write",
        description: "Write a whole file, after a person has approved it.",
        cmd: "fs.write",
        is_read_only: false,
        properties: &[
            ("path", "string", "Relative to the session's directory"),
            ("content", "string", "All that shall be in the file"),
            ("create_parents", "boolean", "Make the directories on the way"),
            (
                "expected_hash",
                "string",
                "Only if the file has this SHA-256 now; empty: only if there is none",
            ),
        ],
        required: 2,
        text: written,
    },
    ToolSpec {
        name: "bash",
        description: "Run a command with `bash -lc` in the session's directory, after a person has approved it.",
        cmd: "host.bash",
        is_read_only: false,
        properties: &[
            ("command", "string", "The command line"),
            ("timeout_ms", "integer", "Ended after this many milliseconds; 10 minutes without it"),
            ("stdin", "string", "What the command reads"),
        ],
        required: 1,
        text: bash,
    },
];

/// All of them, as a client sees them.
pub(super) fn all() -> Vec<Tool> {
    TOOLS.iter().map(ToolSpec::describe).collect()
}

pub(super) fn find(name: &str) -> Option<&'static ToolSpec> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl ToolSpec {
    fn describe(&self) -> Tool {
        let property = |(name, kind, description): &(&str, &str, &str)| {
            let mut schema = json!({ "type": kind, "description": description });
            if *kind == "array" {
                schema["items"] = json!({ "type": "string" });
            }
            ((*name).to_owned(), schema)
        };
        let properties: JsonObject = self.properties.iter().map(property).collect();
        let required: Vec<&str> = self.properties[..self.required].iter().map(|(name, ..)| *name).collect();
        let schema = JsonObject::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(properties)),
            ("required".to_owned(), json!(required)),
            // A client that checks the schema refuses early what `parameters` would refuse anyway.
            ("additionalProperties".to_owned(), json!(false)),
        ]);
        let annotations = ToolAnnotations::new().read_only(self.is_read_only).destructive(!self.is_read_only);
        Tool::new(self.name, self.description, schema).with_annotations(annotations)
    }

    /// The arguments, if they are the tool's own: anything else could say where and as whom a command is done.
    pub(super) fn parameters(&self, arguments: JsonObject) -> Result<JsonObject, String> {
        let is_known = |name: &String| self.properties.iter().any(|(known, ..)| known == name);
        if let Some(unknown) = arguments.keys().find(|name| !is_known(name)) {
            return Err(format!("'{}' has no argument '{unknown}'", self.name));
        }
        let missing =
            self.properties[..self.required].iter().find(|(name, ..)| !arguments.contains_key(*name));
        match missing {
            Some((name, ..)) => Err(format!("'{}' needs the argument '{name}'", self.name)),
            None => Ok(arguments),
        }
    }
}

fn data<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("The answer cannot be read: {error}"))
}

/// Says where a page goes on.
fn with_rest(mut text: String, next_offset: Option<u64>, total: u64) -> String {
    if let Some(next) = next_offset {
        text.push_str(&format!("\n[{total} in all; go on with offset {next}]"));
    }
    text
}

fn read(value: &Value) -> Result<String, String> {
    let data: FsReadData = data(value)?;
    Ok(with_rest(data.content, data.next_offset, data.size))
}

fn search(value: &Value) -> Result<String, String> {
    let data: FsSearchData = data(value)?;
    let line =
        |hit: &qd_wire::service::FsMatch| format!("{}:{}:{}: {}\n", hit.path, hit.line, hit.column, hit.text);
    let mut text: String = data.matches.iter().map(line).collect();
    if data.matches.is_empty() {
        text.push_str("Nothing found.\n");
    }
    if data.truncated {
        text.push_str("[there is more; narrow the search or raise `limit`]\n");
    }
    Ok(text)
}

fn list(value: &Value) -> Result<String, String> {
    let data: FsListData = data(value)?;
    let line = |entry: &qd_wire::service::FsEntry| {
        let slash = if entry.is_dir { "/" } else { "" };
        let size = entry.size_bytes.map(|size| format!("  {size}")).unwrap_or_default();
        format!("{}{slash}{size}\n", entry.name)
    };
    Ok(with_rest(data.entries.iter().map(line).collect(), data.next_offset, data.total))
}

fn status(value: &Value) -> Result<String, String> {
    let data: GitStatusData = data(value)?;
    Ok(data.stdout)
}

fn diff(value: &Value) -> Result<String, String> {
    let data: GitDiffData = data(value)?;
    let text = if data.total_bytes == 0 { "Nothing has changed.".to_owned() } else { data.stdout };
    Ok(with_rest(text, data.next_offset, data.total_bytes))
}

fn written(value: &Value) -> Result<String, String> {
    let data: FsWriteData = data(value)?;
    Ok(format!("Wrote {} bytes to {} (SHA-256 {})", data.bytes_written, data.path, data.hash))
}

/// A command that failed is an error, with all it has said.
fn bash(value: &Value) -> Result<String, String> {
    let data: BashData = data(value)?;
    let mut text = data.stdout;
    if !data.stderr.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[stderr]\n{}", data.stderr));
    }
    if data.truncated {
        let bytes = data.stdout_bytes + data.stderr_bytes;
        // At the front, where the gap is; an agent must not take the rest for everything.
        text.insert_str(0, &format!("[the beginning is left out; {bytes} bytes in all]\n"));
    }
    let end = match (data.timed_out, data.cancelled, data.exit_code, data.signal) {
        (true, ..) => "timed out".to_owned(),
        (_, true, ..) => "cancelled".to_owned(),
        (_, _, Some(0), _) => return Ok(text),
        (_, _, Some(code), _) => format!("exit code {code}"),
        (_, _, None, Some(signal)) => format!("ended by signal {signal}"),
        (_, _, None, None) => "ended, nobody knows how".to_owned(),
    };
    Err(format!("{text}\n[{end}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_arguments_of_the_schema_reach_a_command() {
        let write = find("fs_write").unwrap();
        let arguments = |value: Value| value.as_object().unwrap().clone();
        assert!(write.parameters(arguments(json!({ "path": "a", "content": "b" }))).is_ok());
        for (name, value) in [
            ("ask", json!(false)),
            ("session_id", json!("other")),
            ("root", json!("/")),
            ("user_role", json!("owner")),
        ] {
            let mut sent = arguments(json!({ "path": "a", "content": "b" }));
            sent.insert(name.to_owned(), value);
            assert!(write.parameters(sent).unwrap_err().contains(name));
        }
        assert!(write.parameters(arguments(json!({ "path": "a" }))).unwrap_err().contains("content"));
        assert!(find("mcp__relay__bash").is_none() && find("relay.bash").is_none());
    }

    #[test]
    fn a_failing_command_is_an_error_with_all_it_said() {
        let value = json!({ "stdout": "out", "stderr": "err\n", "exit_code": 2, "timed_out": false, "cancelled": false,
                            "truncated": false, "stdout_bytes": 3, "stderr_bytes": 4, "duration_ms": 1 });
        assert_eq!(bash(&value).unwrap_err(), "out\n[stderr]\nerr\n\n[exit code 2]");
    }
}
