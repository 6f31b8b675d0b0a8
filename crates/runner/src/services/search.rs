//! Searching the contents of files with ripgrep's libraries. The query is data for a matcher, never an argument of a
//! program. Directories are walked and files opened by handle beneath the root; links are not followed.
//!
//! Both the time and the size of a page are bounded, and a page that ends early says where to go on. So a search
//! through a huge tree is many short calls.

mod hits;
mod ignored;
mod walk;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use qd_wire::service::{FsMatch, FsSearchData, FsSearchParams, SearchPlace};

use self::hits::HitCollector;
use self::walk::{FileWalk, FoundFile};
use super::call::{Cancellation, ServiceError, ServiceResult};
use super::root::{RelativePath, Root};
use crate::clock;

const HITS_DEFAULT: u64 = 200;

/// Hits of one page.
const HITS_MAX: u64 = 2000;

/// Bytes of a query, which is compiled before anything is bounded by it.
const QUERY_BYTES_MAX: usize = 4096;

/// Globs of one search.
const GLOBS_MAX: usize = 100;

/// Bytes that a compiled expression may take; ripgrep allows ten times that, for one person's own machine.
const EXPRESSION_BYTES_MAX: usize = 10 << 20;

/// Bytes of a line that is searched; a file with a longer one is data rather than text.
const LINE_BYTES_MAX: usize = 32 << 20;

/// How long a page takes at most; then it ends where it is, and the next one goes on from there.
const PAGE_TIME_MAX: Duration = Duration::from_secs(20);

/// A line after all lines, which a JavaScript number can hold.
const LINE_END: u64 = (1 << 53) - 1;

/// A page of hits, in the order of the paths.
pub(crate) fn search(
    root: &Root,
    params: &FsSearchParams,
    cancel: &Cancellation,
) -> ServiceResult<FsSearchData> {
    search_within(root, params, cancel, PAGE_TIME_MAX)
}

fn search_within(
    root: &Root,
    params: &FsSearchParams,
    cancel: &Cancellation,
    time: Duration,
) -> ServiceResult<FsSearchData> {
    let path = RelativePath::parse_or_root(params.path.as_deref())?;
    let after = params.after.clone().map(|after| (PathBuf::from(after.path), after.line));
    let limit = params.limit.unwrap_or(HITS_DEFAULT).clamp(1, HITS_MAX);
    let mut page = SearchPage {
        matcher: matcher(params)?,
        searcher: searcher(),
        cancel,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        after,
        deadline: clock::monotonic_now() + time,
        data: FsSearchData::default(),
    };
    let mut walk = FileWalk::new(
        root,
        cancel,
        globs(params)?,
        params.include_hidden == Some(true),
        page.after.as_ref().map(|it| &*it.0),
    );
    // A path may name one file.
    if !path.is_root() && root.metadata(&path)?.is_file() {
        page.file(path.as_path(), root.open_file(&path)?)?;
        return Ok(page.data);
    }
    walk.walk(&path, &mut |found| page.found(found))?;
    Ok(page.data)
}

/// The page that is being filled.
struct SearchPage<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    cancel: &'a Cancellation,
    limit: usize,
    after: Option<(PathBuf, u64)>,
    deadline: Instant,
    data: FsSearchData,
}

impl SearchPage<'_> {
    /// Searches a file that was found. Says whether to go on.
    fn found(&mut self, found: FoundFile<'_>) -> ServiceResult<bool> {
        // One that is gone, not ours to read, or no regular file any more has no lines.
        let Ok(file) = found.open() else { return Ok(true) };
        if !self.file(found.path, file)? {
            return Ok(false);
        }
        // The file that the last page ended with does not count, so that every page gets further.
        let is_known = self.after.as_ref().is_some_and(|after| after.0 == found.path);
        if is_known || clock::monotonic_now() < self.deadline {
            return Ok(true);
        }
        self.data.truncated = true;
        self.data.next = Some(SearchPlace { path: shown(found.path), line: LINE_END });
        Ok(false)
    }

    /// Searches a file. Says whether the page has room for more.
    fn file(&mut self, path: &Path, file: File) -> ServiceResult<bool> {
        self.cancel.check()?;
        let after = self.after.as_ref().filter(|after| after.0 == path).map_or(0, |after| after.1);
        let room = self.limit - self.data.matches.len();
        // One more than there is room for shows that there is more.
        let mut hits = HitCollector::new(&self.matcher, after, room + 1);
        self.data.files_searched += 1;
        if let Err(error) = self.searcher.search_reader(
            &self.matcher,
            CancellableFile { file, cancel: self.cancel },
            &mut hits,
        ) {
            self.cancel.check()?;
            // A line that is too long, or a disk that fails: what was found until there counts.
            tracing::debug!(path = %path.display(), %error, "a file could not be searched to its end");
        }
        let path = shown(path);
        for hit in hits.into_found() {
            if self.data.matches.len() == self.limit {
                self.data.truncated = true;
                let last = self.data.matches.last();
                self.data.next = last.map(|last| SearchPlace { path: last.path.clone(), line: last.line });
                return Ok(false);
            }
            self.data.matches.push(FsMatch {
                path: path.clone(),
                line: hit.line,
                column: hit.column,
                text: hit.text,
            });
        }
        Ok(true)
    }
}

/// A file that ends when the call is cancelled.
struct CancellableFile<'a> {
    file: File,
    cancel: &'a Cancellation,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.file.read(buffer)
    }
}

fn matcher(params: &FsSearchParams) -> ServiceResult<RegexMatcher> {
    if params.query.is_empty() {
        return Err(ServiceError::Missing("q"));
    }
    if params.query.len() > QUERY_BYTES_MAX {
        refuse!(InvalidRequest, "the query has more than {QUERY_BYTES_MAX} bytes");
    }
    if params.query.contains('\n') {
        refuse!(InvalidRequest, "the query has more than one line: search for one of them");
    }
    let is_regex = params.regex == Some(true);
    RegexMatcherBuilder::new()
        .fixed_strings(!is_regex)
        .case_smart(params.case_sensitive.is_none())
        .case_insensitive(params.case_sensitive == Some(false))
        .crlf(true)
        .multi_line(true)
        .size_limit(EXPRESSION_BYTES_MAX)
        .dfa_size_limit(EXPRESSION_BYTES_MAX)
        .build(&params.query)
        .map_err(|error| {
            ServiceError::invalid(format!("the query is not a valid regular expression: {error}"))
        })
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .build()
}

fn globs(params: &FsSearchParams) -> ServiceResult<Override> {
    let globs = params.globs.as_deref().unwrap_or_default();
    if globs.len() > GLOBS_MAX {
        refuse!(InvalidRequest, "a search takes at most {GLOBS_MAX} globs: use fewer");
    }
    let bad = |error| ServiceError::invalid(format!("a glob is not valid: {error}"));
    let mut builder = OverrideBuilder::new("");
    for glob in globs {
        if glob.len() > QUERY_BYTES_MAX {
            refuse!(InvalidRequest, "a glob has more than {QUERY_BYTES_MAX} bytes");
        }
        builder.add(glob).map_err(bad)?;
    }
    builder.build().map_err(bad)
}

/// As the wire has it.
fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "search/search_tests.rs"]
mod tests;
