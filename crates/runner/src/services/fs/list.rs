//! What is in a directory, and in those below it.
//!
//! A directory is read whole and sorted before a page is cut from it, so that pages fit together as long as nothing
//! changes in between.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::Dir;
use qd_wire::service::{FsEntry, FsListData, FsListParams, FsTreeData, FsTreeNode, FsTreeParams};
use rustix::fs::{FileType, Stat};

use super::entries::{DirEntry, entries};
use super::modified_ms;
use crate::clock;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::{RelativePath, Root, open_dir_in, stat_in};

const LIST_ENTRIES_DEFAULT: u64 = 500;
const TREE_ENTRIES_DEFAULT: u64 = 1000;

/// Entries of one answer.
const PAGE_ENTRIES_MAX: u64 = 5000;

/// Nodes of one tree: as many as a person can look through, and an answer of a few megabytes.
const TREE_NODES_MAX: u64 = 20_000;

/// How long a tree is looked for; what was found until then is the answer.
const TREE_TIME_MAX: Duration = Duration::from_secs(3);

const TREE_DEPTH_DEFAULT: u32 = 2;
const TREE_DEPTH_MAX: u32 = 8;

/// A page of a directory: directories first, then by name.
pub(crate) fn list(root: &Root, params: &FsListParams, cancel: &Cancellation) -> ServiceResult<FsListData> {
    let path = RelativePath::parse_or_root(params.path.as_deref())?;
    let dir = root.open_dir(&path)?;
    let sorted = sorted(root, path.as_path(), &dir, params.include_hidden == Some(true), cancel)?;
    let (page, next_offset) = page(&sorted, params.offset, params.limit.unwrap_or(LIST_ENTRIES_DEFAULT));
    let mut listed = Vec::with_capacity(page.len());
    for SortedEntry { entry, is_dir, .. } in page {
        cancel.check()?;
        // What was removed in the meantime is listed without its facts.
        let stat = stat_in(&dir, &entry.name).ok();
        listed.push(FsEntry {
            name: entry.shown_name(),
            is_dir: *is_dir,
            is_symlink: entry.kind == FileType::Symlink,
            size_bytes: stat.as_ref().filter(|_| entry.kind == FileType::RegularFile).map(size),
            modified_at: stat.as_ref().map(modified_ms),
        });
    }
    Ok(FsListData {
        path: params.path.clone().unwrap_or_else(|| ".".to_owned()),
        entries: listed,
        total: sorted.len() as u64,
        truncated: next_offset.is_some(),
        next_offset,
    })
}

/// A directory and those below it. Links are not followed. Where the tree is not whole because it was too large or
/// took too long, it says so; each directory is then told with all its children or with none.
pub(crate) fn tree(root: &Root, params: &FsTreeParams, cancel: &Cancellation) -> ServiceResult<FsTreeData> {
    let path = RelativePath::parse_or_root(params.path.as_deref())?;
    let dir = root.open_dir(&path)?;
    let depth = params.depth.unwrap_or(TREE_DEPTH_DEFAULT).clamp(1, TREE_DEPTH_MAX);
    let include_hidden = params.include_hidden == Some(true);
    let started = clock::monotonic_now();
    let sorted = sorted(root, path.as_path(), &dir, include_hidden, cancel)?;
    let (page, next_offset) = page(&sorted, params.offset, params.limit.unwrap_or(TREE_ENTRIES_DEFAULT));
    let mut budget =
        TreeBudget { root, include_hidden, cancel, visited: page.len() as u64, started, stop_reason: None };
    let mut nodes: Vec<FsTreeNode> = page.iter().map(|it| node(&dir, path.as_path(), &it.entry)).collect();
    budget.fill(&dir, page, &mut nodes, depth - 1)?;
    Ok(FsTreeData {
        path: params.path.clone().unwrap_or_else(|| ".".to_owned()),
        entries: nodes,
        truncated: next_offset.is_some() || budget.stop_reason.is_some(),
        stop_reason: budget.stop_reason.map(str::to_owned),
        visited_nodes: budget.visited,
        elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        next_offset,
        total_entries: sorted.len() as u64,
    })
}

/// What a tree may still cost.
struct TreeBudget<'a> {
    root: &'a Root,
    include_hidden: bool,
    cancel: &'a Cancellation,
    visited: u64,
    started: std::time::Instant,
    stop_reason: Option<&'static str>,
}

impl TreeBudget<'_> {
    /// Gives the nodes of a directory their children.
    fn fill(
        &mut self,
        dir: &Dir,
        page: &[SortedEntry],
        nodes: &mut [FsTreeNode],
        depth: u32,
    ) -> ServiceResult<()> {
        if depth == 0 {
            return Ok(());
        }
        for (SortedEntry { entry, .. }, node) in page.iter().zip(nodes) {
            self.cancel.check()?;
            if entry.kind != FileType::Directory {
                continue;
            }
            if self.started.elapsed() >= TREE_TIME_MAX {
                self.stop_reason.get_or_insert("timeout");
                return Ok(());
            }
            // One that is gone, or not ours to read, has no children to tell.
            let Ok(below) = open_dir_in(dir, &entry.name) else { continue };
            if self.root.is_own_data(&below) {
                continue;
            }
            let path = PathBuf::from(&node.path);
            let children = match sorted(self.root, &path, &below, self.include_hidden, self.cancel) {
                Err(ServiceError::Cancelled) => return Err(ServiceError::Cancelled),
                Err(_) => continue,
                Ok(children) => children,
            };
            if self.visited + children.len() as u64 > TREE_NODES_MAX {
                self.stop_reason.get_or_insert("max_nodes");
                continue;
            }
            self.visited += children.len() as u64;
            let mut nodes: Vec<FsTreeNode> =
                children.iter().map(|child| self::node(&below, &path, &child.entry)).collect();
            self.fill(&below, &children, &mut nodes, depth - 1)?;
            node.children = Some(nodes);
        }
        Ok(())
    }
}

/// An entry with what it is sorted by.
struct SortedEntry {
    /// A directory, or a link to one beneath the root.
    is_dir: bool,
    folded: String,
    entry: DirEntry,
}

fn sorted(
    root: &Root,
    path: &Path,
    dir: &Dir,
    include_hidden: bool,
    cancel: &Cancellation,
) -> ServiceResult<Vec<SortedEntry>> {
    let mut sorted = Vec::new();
    let mut found = entries(dir, cancel)?;
    root.hide_own_data(dir, &mut found);
    for entry in found {
        cancel.check()?;
        if entry.is_hidden() && !include_hidden {
            continue;
        }
        let is_dir = match entry.kind {
            FileType::Directory => true,
            FileType::Symlink => root.metadata_at(&path.join(&entry.name)).is_ok_and(|found| found.is_dir()),
            _ => false,
        };
        sorted.push(SortedEntry { is_dir, folded: entry.shown_name().to_lowercase(), entry });
    }
    sorted.sort_unstable_by(|a, b| {
        b.is_dir
            .cmp(&a.is_dir)
            .then_with(|| a.folded.cmp(&b.folded))
            .then_with(|| a.entry.name.cmp(&b.entry.name))
    });
    Ok(sorted)
}

/// A page, and where the next one begins.
fn page(sorted: &[SortedEntry], offset: Option<u64>, limit: u64) -> (&[SortedEntry], Option<u64>) {
    let limit = usize::try_from(limit.clamp(1, PAGE_ENTRIES_MAX)).unwrap_or(usize::MAX);
    let offset = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX).min(sorted.len());
    let end = offset.saturating_add(limit).min(sorted.len());
    (sorted.get(offset..end).unwrap_or_default(), (end < sorted.len()).then_some(end as u64))
}

fn node(dir: &Dir, parent: &Path, entry: &DirEntry) -> FsTreeNode {
    let kind = match entry.kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "other",
    };
    let stat = stat_in(dir, &entry.name).ok();
    FsTreeNode {
        name: entry.shown_name(),
        path: parent.join(&entry.name).to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        size: stat.as_ref().filter(|_| entry.kind == FileType::RegularFile).map(size),
        modified: stat.as_ref().map(|stat| modified_ms(stat).div_euclid(1000)),
        children: None,
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
