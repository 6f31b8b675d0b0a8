//! `git.status`: what git knows of the directory, read from its own format for programs.

use qd_wire::service::{GitFile, GitStatusData};
use serde_json::json;

use super::program::{Git, GitContext};
use crate::services::call::{CallOutput, CallResult};

/// Files of one answer; a repository with more has a directory that should be ignored.
const FILES_MAX: usize = 20_000;

/// Bytes of the text for people.
const TEXT_BYTES_MAX: usize = 1 << 20;

pub(super) async fn status(git: &Git) -> CallResult {
    let paths = git.pathspecs(".");
    let mut arguments = vec![
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=all",
        // To find out whether a submodule is dirty, git would run once more inside it. Said here, because the
        // repository's own .gitmodules beats the configuration.
        "--ignore-submodules=dirty",
        "--",
    ];
    arguments.extend(paths.iter().map(String::as_str));
    let raw = git.output(&arguments, &GitContext::default()).await?.check()?;
    // Git names paths from the top of the repository, which may be above the directory of the session.
    let prefix = git.repository.prefix.to_string_lossy();
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let mut data = parse(&raw, &prefix);
    // A second run for people: the text of the first is for programs, and git has no way to print both.
    let mut plain = vec!["status", "--porcelain=v1", "-b", "--ignore-submodules=dirty", "--"];
    plain.extend(paths.iter().map(String::as_str));
    let text = git.output(&plain, &GitContext::default()).await?.check()?;
    let text = String::from_utf8_lossy(&text);
    data.stdout = match text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)) {
        Some(beginning) if beginning.len() < text.len() => {
            data.truncated = true;
            let end = beginning.rfind('\n').map_or(0, |end| end + 1);
            beginning[..end].to_owned()
        }
        _ => text.into_owned(),
    };
    CallOutput::new(
        data,
        |data| json!({ "branch": data.branch, "count": data.files.len(), "truncated": data.truncated }),
    )
}

/// Reads `--porcelain=v2 --branch -z`; paths are made relative to the root.
pub(super) fn parse(raw: &[u8], prefix: &str) -> GitStatusData {
    let mut data = GitStatusData::default();
    let text = String::from_utf8_lossy(raw);
    let mut entries = text.split('\0');
    let own = |path: &str| path.strip_prefix(prefix).unwrap_or(path).to_owned();
    while let Some(entry) = entries.next() {
        let file = match entry.as_bytes().first() {
            Some(b'#') => {
                header(&entry[1..], &mut data);
                continue;
            }
            Some(b'1') => changed(entry, 8).map(|(letters, path)| file(letters, own(path), None)),
            // A renamed file's old name is an entry of its own.
            Some(b'2') => changed(entry, 9).map(|(letters, path)| {
                let from = entries.next().map(own);
                file(letters, own(path), from)
            }),
            Some(b'u') => changed(entry, 10)
                .map(|(letters, path)| GitFile { conflicted: true, ..file(letters, own(path), None) }),
            Some(b'?') => entry.get(2..).map(|path| file("??", own(path), None)),
            _ => None,
        };
        let Some(file) = file else { continue };
        if data.files.len() >= FILES_MAX {
            data.truncated = true;
            break;
        }
        data.files.push(file);
    }
    data
}

fn header(line: &str, data: &mut GitStatusData) {
    let line = line.trim_start();
    if let Some(head) = line.strip_prefix("branch.oid ") {
        data.head = Some(head.to_owned()).filter(|head| head != "(initial)");
    } else if let Some(branch) = line.strip_prefix("branch.head ") {
        data.branch = Some(branch.to_owned()).filter(|branch| branch != "(detached)");
    } else if let Some(upstream) = line.strip_prefix("branch.upstream ") {
        data.upstream = Some(upstream.to_owned());
    } else if let Some((ahead, behind)) = line.strip_prefix("branch.ab ").and_then(|ab| ab.split_once(' ')) {
        data.ahead = ahead.trim_start_matches('+').parse().ok();
        data.behind = behind.trim_start_matches('-').parse().ok();
    }
}

/// The two letters of an entry, and its path after this many fields.
fn changed(entry: &str, fields: usize) -> Option<(&str, &str)> {
    let mut parts = entry.splitn(fields + 1, ' ');
    let letters = parts.nth(1)?;
    Some((letters, parts.nth(fields - 2)?))
}

fn file(letters: &str, path: String, from: Option<String>) -> GitFile {
    let letter = |at: usize| letters.get(at..=at).unwrap_or(".").to_owned();
    let staged = if letters == "??" { ".".to_owned() } else { letter(0) };
    GitFile { path, from, staged, unstaged: letter(1), conflicted: false }
}
