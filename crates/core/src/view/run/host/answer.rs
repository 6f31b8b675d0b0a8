//! A foreign host's `rpc.response` as the answer of a canonical command. The document gives errors no codes, so this
//! is the one place that reads the sentences of foreign hosts.

use qd_wire::service::{
    BashData, FsEntry, FsListData, FsMatch, FsReadData, FsSearchData, FsWriteData, GitDiffData, GitFile,
    GitStatusData, HostDependency, HostInfoData, HostLogsData, HostTool,
};
use qd_wire::{CodedError, ErrorCode};
use serde::Serialize;
use serde_json::{Value, json};

/// The data of the canonical answer to what was asked as `rpc_type`; an error is the host's own, or says what is wrong
/// with its answer.
pub fn data(rpc_type: &str, ok: bool, result: &Value, error: Option<&str>) -> Result<Value, CodedError> {
    if !ok {
        let error = error.filter(|error| !error.is_empty()).unwrap_or("The host gave no reason");
        return failed_bash(rpc_type, error).ok_or_else(|| code_of(error).with(error));
    }
    if !result.is_object() {
        return Err(ErrorCode::Failed.with(format!("The host answered '{rpc_type}' without a result")));
    }
    Ok(match rpc_type {
        "rpc.fs.read" => read(result),
        "rpc.fs.search" => search(result),
        "rpc.fs.list" => list(result),
        "rpc.fs.write" => to_json(&FsWriteData {
            path: text(result, "path"),
            bytes_written: number(result, "bytes_written"),
            // The document's hosts tell no hash. A made-up one would later be taken for a condition.
            hash: String::new(),
            truncated: flag(result, "truncated"),
        }),
        // Sizes are those of what arrived: hosts do not say how much they have cut off.
        "rpc.bash" => to_json(&BashData {
            stdout_bytes: text(result, "stdout").len() as u64,
            stderr_bytes: text(result, "stderr").len() as u64,
            stdout: text(result, "stdout"),
            stderr: text(result, "stderr"),
            exit_code: exit_code(result),
            truncated: flag(result, "truncated"),
            ..BashData::default()
        }),
        "rpc.git.status" => status(result),
        "rpc.git.diff" => to_json(&GitDiffData {
            total_bytes: text(result, "stdout").len() as u64,
            stdout: text(result, "stdout"),
            truncated: flag(result, "truncated"),
            ..GitDiffData::default()
        }),
        "rpc.run.stop" => json!({ "signal": text(result, "signal") }),
        "rpc.host.info" | "rpc.host.doctor" | "rpc.host.capabilities" => info(result),
        "rpc.host.logs.tail" => to_json(&HostLogsData {
            path: text(result, "path"),
            text: text(result, "text"),
            truncated: flag(result, "truncated"),
        }),
        _ => result.clone(),
    })
}

/// The code of what a host of the document says went wrong.
/// Whole sentences are compared, except where the document lets a reason follow; any other text is only a failure.
fn code_of(error: &str) -> ErrorCode {
    match error {
        "unknown run_id" | "run not found" => ErrorCode::SessionNotFound,
        "unknown rpc type" => ErrorCode::Unsupported,
        "timeout" => ErrorCode::TimedOut,
        _ if error == "denied" || error.starts_with("denied:") => ErrorCode::Denied,
        _ if error.starts_with("missing ") => ErrorCode::InvalidRequest,
        _ => ErrorCode::Failed,
    }
}

/// The run that `rpc.run.start` has started.
pub fn started_run(run_id: Option<&str>, result: &Value) -> Option<String> {
    let named = result.get("run_id").and_then(Value::as_str).or(run_id);
    named.filter(|run_id| !run_id.is_empty()).map(str::to_owned)
}

/// The document's way to say that a command failed: with us that is an answer like any other.
fn failed_bash(rpc_type: &str, error: &str) -> Option<Value> {
    let rest = error.strip_prefix("bash exited with code ").filter(|_| rpc_type == "rpc.bash")?;
    let (code, stderr) = rest.split_once(": ").unwrap_or((rest, ""));
    let exit_code = Some(code.trim().parse().ok()?);
    let (stderr, stderr_bytes) = (stderr.to_owned(), stderr.len() as u64);
    // The original throws stdout away.
    Some(to_json(&BashData { exit_code, stderr, stderr_bytes, truncated: true, ..BashData::default() }))
}

fn read(result: &Value) -> Value {
    let content = text(result, "content");
    to_json(&FsReadData {
        path: text(result, "path"),
        size: content.len() as u64,
        content,
        truncated: flag(result, "truncated"),
        ..FsReadData::default()
    })
}

fn search(result: &Value) -> Value {
    let hit = |hit: &Value| FsMatch {
        path: text(hit, "path"),
        line: number(hit, "line"),
        column: number(hit, "column"),
        text: text(hit, "text"),
    };
    let matches = items(result, "matches").iter().map(hit).collect();
    to_json(&FsSearchData { matches, truncated: flag(result, "truncated"), ..FsSearchData::default() })
}

fn list(result: &Value) -> Value {
    let entry = |entry: &Value| FsEntry {
        name: text(entry, "name"),
        is_dir: flag(entry, "is_dir"),
        size_bytes: entry.get("size_bytes").and_then(Value::as_u64),
        ..FsEntry::default()
    };
    let entries: Vec<FsEntry> = items(result, "entries").iter().map(entry).collect();
    to_json(&FsListData {
        path: text(result, "path"),
        total: entries.len() as u64,
        entries,
        truncated: flag(result, "truncated"),
        next_offset: None,
    })
}

/// `git status --porcelain=v1 -b`, as far as its lines say it.
fn status(result: &Value) -> Value {
    let stdout = text(result, "stdout");
    let mut data = GitStatusData { truncated: flag(result, "truncated"), ..GitStatusData::default() };
    for line in stdout.lines() {
        if let Some(branch) = line.strip_prefix("## ") {
            let names = branch.split(" [").next().unwrap_or_default();
            let (branch, upstream) =
                names.split_once("...").map_or((names, None), |(one, other)| (one, Some(other)));
            data.branch = Some(branch.to_owned());
            data.upstream = upstream.map(str::to_owned);
        } else if let (Some(letters), Some(path)) = (line.get(..2), line.get(3..)) {
            data.files.push(file(letters, path));
        }
    }
    data.stdout = stdout;
    to_json(&data)
}

fn file(letters: &str, path: &str) -> GitFile {
    let letter = |place: usize| letters[place..=place].replace(' ', ".");
    let (from, path) = path.split_once(" -> ").map_or((None, path), |(from, to)| (Some(from.to_owned()), to));
    let conflicted = letters.contains('U') || letters == "AA" || letters == "DD";
    // A letter that is no ASCII is none of git's.
    if !letters.is_ascii() {
        return GitFile { path: path.to_owned(), ..GitFile::default() };
    }
    GitFile { path: path.to_owned(), from, staged: letter(0), unstaged: letter(1), conflicted }
}

fn info(result: &Value) -> Value {
    let tool = |tool: &Value| HostTool {
        tool: text(tool, "tool"),
        bin: optional(tool, "bin"),
        ok: flag(tool, "ok"),
        error: optional(tool, "error"),
    };
    let dependency =
        |dependency: &Value| HostDependency { name: text(dependency, "name"), ok: flag(dependency, "ok") };
    let dependencies = result.get("deps").map(|_| items(result, "deps").iter().map(dependency).collect());
    let names = |name: &str| {
        let words = items(result, name).iter().filter_map(Value::as_str).map(str::to_owned);
        result.get(name).map(|_| words.collect::<Vec<_>>())
    };
    to_json(&HostInfoData {
        host_id: text(result, "host_id"),
        pid: u32::try_from(number(result, "pid")).unwrap_or(0),
        os: text(result, "os"),
        arch: text(result, "arch"),
        version: text(result, "version"),
        hostname: text(result, "hostname"),
        tools: items(result, "tools").iter().map(tool).collect(),
        deps: dependencies,
        bin_map: result.get("bin_map").cloned(),
        server_base_url: optional(result, "server_base_url"),
        local_unix_socket: optional(result, "local_unix_socket"),
        spool_db_path: optional(result, "spool_db_path"),
        log_path: optional(result, "log_path"),
        supported_rpc: names("supported_rpc"),
        harnesses: None,
        workspace_roots: None,
    })
}

fn exit_code(result: &Value) -> Option<i32> {
    result.get("exit_code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok())
}

/// Foreign hosts are not checked against a schema: what is missing or of another kind counts as empty.
fn text(value: &Value, name: &str) -> String {
    optional(value, name).unwrap_or_default()
}

fn optional(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn to_json(data: &impl Serialize) -> Value {
    // Types of ours with text keys only: they can always be written.
    serde_json::to_value(data).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_document_become_canonical_answers() {
        let listed = json!({"path": ".", "entries": [{"name": "a", "is_dir": false, "size_bytes": 3}, {"name": "d", "is_dir": true, "size_bytes": null}], "truncated": false});
        let answer = data("rpc.fs.list", true, &listed, None).unwrap();
        let typed: FsListData = serde_json::from_value(answer).unwrap();
        assert_eq!((typed.total, typed.entries[0].size_bytes, typed.entries[1].is_dir), (2, Some(3), true));
        let stdout = "## main...origin/main [ahead 1]\n M src/a.rs\nR  old -> new\n?? x\nUU c\n";
        let answer =
            data("rpc.git.status", true, &json!({"stdout": stdout, "truncated": false}), None).unwrap();
        let typed: GitStatusData = serde_json::from_value(answer).unwrap();
        assert_eq!((typed.branch.as_deref(), typed.upstream.as_deref()), (Some("main"), Some("origin/main")));
        assert_eq!(
            (&*typed.files[0].staged, &*typed.files[0].unstaged, &*typed.files[0].path),
            (".", "M", "src/a.rs")
        );
        assert_eq!((typed.files[1].from.as_deref(), &*typed.files[1].path), (Some("old"), "new"));
        assert!(typed.files[3].conflicted && typed.stdout == stdout);
    }

    #[test]
    fn errors_are_the_hosts_own_and_a_failed_command_is_an_answer() {
        assert_eq!(
            data("rpc.fs.read", false, &Value::Null, Some("missing path")),
            Err(ErrorCode::InvalidRequest.with("missing path"))
        );
        assert!(data("rpc.fs.read", false, &Value::Null, None).is_err());
        assert!(data("rpc.fs.read", true, &json!([]), None).is_err());
        let answer = data("rpc.bash", false, &Value::Null, Some("bash exited with code 3: oh: no")).unwrap();
        assert_eq!((&answer["exit_code"], &answer["stderr"]), (&json!(3), &json!("oh: no")));
        assert_eq!(
            data("rpc.bash", false, &Value::Null, Some("denied")),
            Err(ErrorCode::Denied.with("denied"))
        );
        assert_eq!(started_run(Some("e"), &json!({"run_id": "r"})).as_deref(), Some("r"));
        assert_eq!(started_run(Some("e"), &json!({})).as_deref(), Some("e"));
    }

    #[test]
    fn odd_results_break_nothing() {
        for kind in
            ["rpc.fs.read", "rpc.fs.search", "rpc.fs.list", "rpc.git.status", "rpc.host.info", "rpc.bash"]
        {
            data(
                kind,
                true,
                &json!({"stdout": "é→ x\n\n  ", "matches": [1], "entries": {}, "deps": 5}),
                None,
            )
            .unwrap();
        }
    }
}
