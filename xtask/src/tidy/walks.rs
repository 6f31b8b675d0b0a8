//! The walks of `ARCHITECTURE.md`: each hop names a function that exists.
//!
//! Under `## Six walks` each walk is a `###` heading and a numbered list; a hop begins with a code span
//! `path/to/file.rs:function` or `path/to/file.rs:Type::function`.

use crate::failure::{Failure, read};
use crate::tree::root;

const PAGE: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Six walks";
const WALKS: usize = 6;
/// More hops than this nobody follows.
const HOPS_MAX: usize = 12;

/// What is wrong with them.
pub(crate) fn check() -> Result<Vec<String>, Failure> {
    let page = read(&root().join(PAGE))?;
    Ok(check_page(&page, |path| std::fs::read_to_string(root().join(path)).ok()))
}

fn check_page(page: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let Some((_, section)) = page.split_once(&format!("\n{SECTION}\n")) else {
        return vec![format!("{PAGE}: the section `{SECTION}` is missing")];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut errors = Vec::new();
    let walks: Vec<&str> = section.split("\n### ").skip(1).collect();
    if walks.len() != WALKS {
        errors.push(format!("{PAGE}: {} walks, not {WALKS}", walks.len()));
    }
    for walk in walks {
        let title = walk.lines().next().unwrap_or_default();
        let hops: Vec<&str> = walk.lines().filter_map(hop).collect();
        if hops.is_empty() || hops.len() > HOPS_MAX {
            errors.push(format!("{PAGE}: '{title}' has {} hops, not 1 to {HOPS_MAX}", hops.len()));
        }
        errors.extend(hops.into_iter().filter_map(|hop| check_hop(title, hop, &source)));
    }
    errors
}

/// The text of a numbered line.
fn hop(line: &str) -> Option<&str> {
    let (number, text) = line.trim_start().split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

fn check_hop(title: &str, hop: &str, source: impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = hop.strip_prefix('`').and_then(|rest| rest.split_once('`'));
    let Some((path, function)) = named.and_then(|(named, _)| named.split_once(':')) else {
        return Some(format!("{PAGE}: '{title}': a hop begins with `path:function`, not with: {hop}"));
    };
    let Some(text) = source(path) else {
        return Some(format!("{PAGE}: '{title}': there is no file {path}"));
    };
    let name = function.rsplit("::").next().unwrap_or(function);
    let is_there = ["(", "<"].iter().any(|next| text.contains(&format!("fn {name}{next}")));
    (!is_there).then(|| format!("{PAGE}: '{title}': {path} has no function {function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: usize) {
        let source = |path: &str| (path == "a.rs").then(|| "fn go() {}\nasync fn take<T>() {}".to_owned());
        let found = check_page(page, source);
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn hops_are_functions_that_exist() {
        let walk = "### One\n\n1. `a.rs:go` starts.\n2. `a.rs:Type::take` goes on.\n\n";
        let page = |walks: &str| format!("# X\n\n{SECTION}\n\n{walks}## After\n\n1. no hop\n");
        check(&page(&walk.repeat(6)), 0);
        check(&page(&walk.repeat(5)), 1);
        check("# X\n", 1);
        for wrong in ["1. `b.rs:go` x\n", "1. `a.rs:stop` x\n", "1. go on\n", "no list\n"] {
            check(&page(&format!("{}### Two\n\n{wrong}\n", walk.repeat(5))), 1);
        }
        let long = format!("### Long\n\n{}\n", "1. `a.rs:go` x\n".repeat(13));
        check(&page(&format!("{}{long}", walk.repeat(5))), 1);
    }
}
