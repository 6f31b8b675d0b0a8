//! `git.diff`: a page of what changed, and the list of files it touches.

use qd_wire::service::{GitDiffData, GitDiffFile, GitDiffParams};
use serde_json::json;

use super::program::{Git, GitContext, failure};
use super::{relative, revision};
use crate::services::call::{CallOutput, CallResult, ServiceResult};

/// Bytes of a page without a limit, and at most.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Repositories that are left out of a diff of untracked files, by their names.
const NESTED_REPOSITORIES_MAX: usize = 1000;

/// Files listed with a page.
const FILES_MAX: usize = 20_000;

pub(super) async fn diff(git: &Git, params: &GitDiffParams) -> CallResult {
    let staged = params.staged == Some(true);
    if staged && params.untracked == Some(true) {
        refuse!(InvalidRequest, "'staged' and 'untracked' exclude each other: the index knows its files");
    }
    let path = params.path.as_deref().map_or(Ok("."), relative)?;
    let base = match &params.base {
        Some(base) => Some(commit(git, base).await?),
        None => None,
    };
    if params.untracked == Some(true) {
        add_untracked(git, path).await?;
    }
    let mut options = vec!["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--relative"];
    // The repository's own .gitmodules beats the configuration, but not these.
    options.extend(["--ignore-submodules=dirty", "--submodule=short"]);
    if staged {
        options.push("--cached");
    }
    let paths = git.pathspecs(path);
    let paths = paths.iter().map(String::as_str);
    let tail: Vec<&str> = base.as_deref().into_iter().chain(["--"]).chain(paths).collect();

    let offset = params.offset.unwrap_or(0);
    let limit = params.limit.map_or(PAGE_BYTES, |limit| usize::try_from(limit).unwrap_or(PAGE_BYTES_MAX));
    let mut page = DiffPage::new(offset, limit.clamp(1, PAGE_BYTES_MAX));
    let whole: Vec<&str> = options.iter().chain(&tail).copied().collect();
    let (code, complaint) = git.stream(&whole, &GitContext::default(), |piece| page.take(piece)).await?;
    if code != 0 {
        return Err(failure(&complaint, code));
    }
    let counts: Vec<&str> = options.iter().chain(&["--numstat", "-z"]).chain(&tail).copied().collect();
    let counted = git.output(&counts, &GitContext::default()).await?.check()?;
    let (files, has_more_files) = files(&counted);

    let (stdout, next_offset) = page.cut();
    let truncated = next_offset.is_some() || has_more_files;
    let data = GitDiffData { stdout, truncated, next_offset, total_bytes: page.total, files };
    CallOutput::new(data, |data| {
        json!({ "bytes": data.stdout.len(), "total_bytes": data.total_bytes, "files": data.files.len(),
                "truncated": data.truncated })
    })
}

/// The id of a commit by any of its names.
pub(super) async fn commit(git: &Git, name: &str) -> ServiceResult<String> {
    let named = format!("{}^{{commit}}", revision(name)?);
    let arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", &named];
    let output = git.output(&arguments, &GitContext::default()).await?;
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.code != 0 || id.is_empty() {
        refuse!(InvalidRequest, "'{name}' is not the name of a commit or branch here");
    }
    Ok(id)
}

/// Reads `--numstat -z`, and whether there were more files than are listed.
fn files(raw: &[u8]) -> (Vec<GitDiffFile>, bool) {
    let text = String::from_utf8_lossy(raw);
    let mut entries = text.split('\0');
    let mut files = Vec::new();
    while let Some(entry) = entries.next().filter(|entry| !entry.is_empty()) {
        let mut parts = entry.splitn(3, '\t');
        let (added, removed, path) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        let (path, from) = if path.is_empty() {
            // A renamed file: its old name and its new one follow.
            let from = entries.next().map(str::to_owned);
            (entries.next().unwrap_or_default().to_owned(), from)
        } else {
            (path.to_owned(), None)
        };
        if files.len() >= FILES_MAX {
            return (files, true);
        }
        files.push(GitDiffFile { path, from, added: number(added), removed: number(removed) });
    }
    (files, false)
}

/// A page of a longer text, which is counted to its end.
pub(super) struct DiffPage {
    offset: u64,
    limit: usize,
    bytes: Vec<u8>,
    pub(super) total: u64,
}

impl DiffPage {
    pub(super) fn new(offset: u64, limit: usize) -> DiffPage {
        DiffPage { offset, limit, bytes: Vec::new(), total: 0 }
    }

    /// True asks for more: the text is read to its end, because its whole length is part of the answer.
    pub(super) fn take(&mut self, piece: &[u8]) -> bool {
        let skipped = usize::try_from(self.offset.saturating_sub(self.total)).unwrap_or(usize::MAX);
        self.total += piece.len() as u64;
        let rest = piece.get(skipped..).unwrap_or_default();
        let room = self.limit - self.bytes.len();
        self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
        true
    }

    /// The page, cut at the end of a line if there is more, and where the next begins.
    pub(super) fn cut(&mut self) -> (String, Option<u64>) {
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        if end < self.total {
            // A line longer than a page is cut between characters, if there are some.
            let line_end = memchr::memrchr(b'\n', &self.bytes).map(|at| at + 1);
            let length = line_end.unwrap_or_else(|| before_character(&self.bytes));
            self.bytes.truncate(length);
        }
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        let next = (end < self.total).then_some(end);
        (String::from_utf8_lossy(&self.bytes).into_owned(), next)
    }
}

/// The length without a character that is not whole.
fn before_character(bytes: &[u8]) -> usize {
    let is_inner = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let tail = bytes.iter().rev().take(3).take_while(|byte| is_inner(byte)).count();
    let start = bytes.len().saturating_sub(tail + 1);
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.error_len().is_none() && start > 0 => start,
        _ => bytes.len(),
    }
}

/// Makes the index also know the files git does not; it is a copy, and the real one is not touched. With an intent to
/// add, a file counts as known but empty, so that its diff is its whole content.
async fn add_untracked(git: &Git, path: &str) -> ServiceResult<()> {
    let paths = git.pathspecs(path);
    let mut list = vec!["ls-files", "--others", "--exclude-standard", "-z", "--"];
    list.extend(paths.iter().map(String::as_str));
    let found = git.output(&list, &GitContext::default()).await?.check()?;
    // Repositories in the repository are left out: git would read their git directories, which were not checked.
    let nested = found.split(|byte| *byte == 0).filter(|name| name.ends_with(b"/"));
    let mut excluded = Vec::new();
    for name in nested {
        let Ok(name) = std::str::from_utf8(name) else {
            refuse!(Unsupported, "the name of a repository in the repository is not UTF-8");
        };
        excluded.push(format!(":(exclude,literal){}", name.trim_end_matches('/')));
    }
    if excluded.len() > NESTED_REPOSITORIES_MAX {
        refuse!(TooLarge, "there are too many repositories in the repository; name a path to ask about less");
    }
    let mut add = vec!["add", "--intent-to-add", "--"];
    add.extend(paths.iter().chain(&excluded).map(String::as_str));
    let output = git.output(&add, &GitContext::default()).await?;
    // A deleted path is nothing to add, and its diff is there all the same.
    if output.code != 0 && !output.complaint.contains("did not match any files") {
        output.check()?;
    }
    Ok(())
}
