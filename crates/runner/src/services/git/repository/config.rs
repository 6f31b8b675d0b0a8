//! A repository's configuration as far as it is harmless. Git never sees the rest: what a configuration can name
//! (filters, hooks, helpers, other files) is somebody else's, and much of it is run.

use qd_wire::ErrorCode;

use crate::services::call::{ServiceError, ServiceResult};

/// Yes or no, as they are written.
const SWITCHES: [&str; 7] = [
    "filemode",
    "ignorecase",
    "precomposeunicode",
    "symlinks",
    "trustctime",
    "sparsecheckout",
    "sparsecheckoutcone",
];

/// Words that these settings may have.
const WORDS: [(&str, &[&str]); 3] = [
    ("autocrlf", &["true", "false", "input"]),
    ("eol", &["lf", "crlf", "native"]),
    ("checkstat", &["default", "minimal"]),
];

/// Extensions that say nothing about how the repository is read.
const IGNORED_EXTENSIONS: [&str; 7] = [
    "noop",
    "noop-v1",
    "partialclone",
    "preciousobjects",
    "worktreeconfig",
    "relativeworktrees",
    "compatobjectformat",
];

/// What is taken over from a repository's configuration.
#[derive(Debug, Default)]
pub(in crate::services::git) struct RepositoryConfig {
    entries: Vec<ConfigEntry>,
    pub(in crate::services::git) is_bare: bool,
    pub(in crate::services::git) is_sha256: bool,
    pub(in crate::services::git) is_reftable: bool,
}

/// One setting: `section.subsection.key`, section and key in small letters.
#[derive(Debug, PartialEq, Eq)]
struct ConfigEntry {
    section: String,
    subsection: Option<Vec<u8>>,
    key: String,
    /// Nothing is "true".
    value: Option<Vec<u8>>,
}

impl RepositoryConfig {
    /// Reads the configuration that all worktrees share, and that of this one, which comes second.
    pub(super) fn read(shared: &[u8], own: &[u8]) -> ServiceResult<RepositoryConfig> {
        let mut entries = parse(shared);
        let worktree_config = entries.iter().rev().find(|entry| entry.is("extensions", "worktreeconfig"));
        let has_own = worktree_config.is_some_and(|entry| entry.switch() == Some(true));
        if has_own {
            entries.extend(parse(own));
        }
        let mut config = RepositoryConfig { entries, ..RepositoryConfig::default() };
        config.check_format()?;
        config.is_bare = config.switch("core", "bare").unwrap_or(false);
        Ok(config)
    }

    /// What git must know to read the repository at all. What it would refuse is refused here, in our words.
    fn check_format(&mut self) -> ServiceResult<()> {
        let version = self.last("core", "repositoryformatversion").and_then(|entry| entry.value.as_deref());
        if !matches!(version, None | Some(b"0" | b"1")) {
            refuse!(
                Unsupported,
                "the repository has a format that is newer than this version of Quarterdeck"
            );
        }
        let is_old = version != Some(b"1");
        let (mut is_sha256, mut is_reftable) = (false, false);
        for entry in self.entries.iter().filter(|entry| entry.section == "extensions") {
            let value = entry.value.as_deref().unwrap_or_default();
            match (&*entry.key, value) {
                ("objectformat", b"sha1") | ("refstorage", b"files") => {}
                ("objectformat", b"sha256") => is_sha256 = true,
                ("refstorage", b"reftable") => is_reftable = true,
                (key, _) if IGNORED_EXTENSIONS.contains(&key) || is_old => {}
                (key, _) => return Err(unknown_extension(key)),
            }
        }
        (self.is_sha256, self.is_reftable) = (is_sha256, is_reftable);
        Ok(())
    }

    /// The configuration for git, with the upstream of this branch.
    pub(in crate::services::git) fn harmless(&self, branch: Option<&[u8]>) -> Vec<u8> {
        let version = u8::from(self.is_sha256 || self.is_reftable);
        let mut text =
            format!("[core]\n\trepositoryformatversion = {version}\n\tbare = false\n").into_bytes();
        for name in SWITCHES {
            if let Some(value) = self.switch("core", name) {
                text.extend(format!("\t{name} = {value}\n").bytes());
            }
        }
        for (name, words) in WORDS {
            let value = self.last("core", name).map(|entry| entry.value.as_deref().unwrap_or(b"true"));
            let word = words.iter().find(|word| value.is_some_and(|value| value == word.as_bytes()));
            if let Some(word) = word {
                text.extend(format!("\t{name} = {word}\n").bytes());
            }
        }
        if self.is_sha256 || self.is_reftable {
            text.extend_from_slice(b"[extensions]\n");
        }
        if self.is_sha256 {
            text.extend_from_slice(b"\tobjectformat = sha256\n");
        }
        if self.is_reftable {
            text.extend_from_slice(b"\trefstorage = reftable\n");
        }
        self.add_upstream(branch, &mut text);
        text
    }

    /// Where a branch comes from: git counts how far it is from there. No address is taken over.
    fn add_upstream(&self, branch: Option<&[u8]>, text: &mut Vec<u8>) {
        let Some(branch) = branch else { return };
        let of_branch = |key| self.of("branch", branch, key).next_back();
        let (Some(remote), Some(merge)) = (of_branch("remote"), of_branch("merge")) else { return };
        let fetches: Vec<&[u8]> = self.of("remote", remote, "fetch").collect();
        if [branch, remote, merge].iter().chain(&fetches).any(|value| !can_be_written(value)) {
            return;
        }
        add_section("branch", branch, text);
        add_value("remote", remote, text);
        add_value("merge", merge, text);
        add_section("remote", remote, text);
        for fetch in fetches {
            add_value("fetch", fetch, text);
        }
    }

    fn of<'a>(
        &'a self,
        section: &'a str,
        subsection: &'a [u8],
        key: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + 'a {
        let is_meant = move |entry: &&ConfigEntry| {
            entry.section == section && entry.key == key && entry.subsection.as_deref() == Some(subsection)
        };
        self.entries.iter().filter(is_meant).filter_map(|entry| entry.value.as_deref())
    }

    fn last(&self, section: &str, key: &str) -> Option<&ConfigEntry> {
        self.entries.iter().rev().find(|entry| entry.is(section, key))
    }

    fn switch(&self, section: &str, key: &str) -> Option<bool> {
        self.last(section, key).and_then(ConfigEntry::switch)
    }
}

impl ConfigEntry {
    fn is(&self, section: &str, key: &str) -> bool {
        self.section == section && self.subsection.is_none() && self.key == key
    }

    fn switch(&self) -> Option<bool> {
        let Some(value) = &self.value else { return Some(true) };
        match &*value.to_ascii_lowercase() {
            b"true" | b"yes" | b"on" | b"1" => Some(true),
            b"false" | b"no" | b"off" | b"0" | b"" => Some(false),
            _ => None,
        }
    }
}

fn unknown_extension(key: &str) -> ServiceError {
    let key: String = key.chars().filter(|character| !character.is_control()).take(64).collect();
    ServiceError::coded(
        ErrorCode::Unsupported,
        format!("the repository needs the git extension '{key}', which Quarterdeck does not know"),
    )
}

/// The worktree that a configuration names.
pub(super) fn worktree_of(text: &[u8]) -> Option<Vec<u8>> {
    parse(text).into_iter().rev().find(|entry| entry.is("core", "worktree"))?.value
}

/// Whether a value can stand in quotes.
pub(in crate::services::git) fn can_be_written(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| !matches!(byte, b'\n' | b'\r' | b'\0'))
}

fn add_section(section: &str, subsection: &[u8], text: &mut Vec<u8>) {
    text.extend(format!("[{section} ").bytes());
    add_quoted(subsection, text);
    text.extend_from_slice(b"]\n");
}

/// Adds a setting to a configuration for git; the value can be written, as was checked.
pub(in crate::services::git) fn add_value(key: &str, value: &[u8], text: &mut Vec<u8>) {
    text.extend(format!("\t{key} = ").bytes());
    add_quoted(value, text);
    text.push(b'\n');
}

fn add_quoted(value: &[u8], text: &mut Vec<u8>) {
    text.push(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

/// Reads git's form of configuration. What is not understood is left out, and so are includes: nothing else is opened.
fn parse(text: &[u8]) -> Vec<ConfigEntry> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut entries = Vec::new();
    let mut section: Option<SectionName> = None;
    let mut lines = text.split(|byte| *byte == b'\n');
    while let Some(line) = lines.next() {
        let mut line = line.trim_ascii().to_vec();
        // A line that ends with a backslash goes on.
        while line.last() == Some(&b'\\') {
            line.pop();
            let Some(next) = lines.next() else { break };
            line.extend_from_slice(next.trim_ascii_end());
        }
        let mut rest = &line[..];
        if rest.first() == Some(&b'[') {
            let Some((found, after)) = section_header(&rest[1..]) else {
                section = None;
                continue;
            };
            section = Some(found);
            rest = after.trim_ascii_start();
        }
        let Some((section, subsection)) = &section else { continue };
        let key_length =
            rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
        let (key, rest) = rest.split_at(key_length);
        let Some(key) = std::str::from_utf8(key).ok().filter(|key| !key.is_empty()) else { continue };
        let value = match rest.trim_ascii_start() {
            [b'=', value @ ..] => Some(value_of(value)),
            [] | [b'#' | b';', ..] => None,
            _ => continue,
        };
        entries.push(ConfigEntry {
            section: section.clone(),
            subsection: subsection.clone(),
            key: key.to_ascii_lowercase(),
            value,
        });
    }
    entries
}

/// The name of a section and of its part.
type SectionName = (String, Option<Vec<u8>>);

/// The name in brackets, and what follows them.
fn section_header(text: &[u8]) -> Option<(SectionName, &[u8])> {
    let length =
        text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')).count();
    let (name, rest) = text.split_at(length);
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    let rest = rest.trim_ascii_start();
    if let Some(after) = rest.strip_prefix(b"]") {
        return Some(((name, None), after));
    }
    let (mut subsection, mut bytes) = (Vec::new(), rest.strip_prefix(b"\"")?.iter());
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => subsection.push(*bytes.next()?),
            byte => subsection.push(*byte),
        }
    }
    let after = bytes.as_slice().strip_prefix(b"]")?;
    Some(((name, Some(subsection)), after))
}

/// A value without its quotes and comment.
fn value_of(text: &[u8]) -> Vec<u8> {
    let (mut value, mut kept, mut is_quoted) = (Vec::new(), 0, false);
    let mut bytes = text.trim_ascii().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'#' | b';' if !is_quoted => break,
            b'\\' => match bytes.next() {
                Some(b'n') => value.push(b'\n'),
                Some(b't') => value.push(b'\t'),
                Some(byte) => value.push(*byte),
                None => {}
            },
            byte => value.push(*byte),
        }
        if is_quoted || !byte.is_ascii_whitespace() {
            kept = value.len();
        }
    }
    value.truncate(kept);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_harmless_is_taken_over() {
        let hostile = b"[core]\n fsmonitor = evil\n AutoCRLF = input # comment\n\tfileMode\n pager = evil\n\
            hooksPath=evil\n worktree = \"../a b\" \n eol = evil\n[filter \"\"]\nclean=evil\n[include]\npath=/x\n\
            [branch \"a\\\"b\"] remote = origin\n merge = refs/heads/\\\nmain\n[remote \"origin\"]\nurl = ext::evil\n\
            fetch = +refs/heads/*:refs/remotes/origin/*\nuploadpack = evil\n[diff \"\xff\"]\ncommand = evil\n";
        let config = RepositoryConfig::read(hostile, b"[core]\nsparseCheckout = true\n").unwrap();
        let text = config.harmless(Some(b"a\"b"));
        let expected = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfilemode = true\n\tautocrlf = input\n\
            [branch \"a\\\"b\"]\n\tremote = \"origin\"\n\tmerge = \"refs/heads/main\"\n[remote \"origin\"]\n\
            \tfetch = \"+refs/heads/*:refs/remotes/origin/*\"\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(worktree_of(hostile).unwrap(), b"../a b");
        assert!(!config.is_bare);
    }

    #[test]
    fn formats_that_are_not_known_are_refused() {
        let read = |text: &str| RepositoryConfig::read(text.as_bytes(), b"").map_err(|error| error.code());
        assert_eq!(read("[core]\nrepositoryformatversion = 7\n").unwrap_err(), ErrorCode::Unsupported);
        let extension = "[core]\nrepositoryformatversion = 1\n[extensions]\nfuture = x\n";
        assert_eq!(read(extension).unwrap_err(), ErrorCode::Unsupported);
        let known =
            "[core]\nrepositoryformatversion = 1\nbare\n[extensions]\nobjectFormat = sha256\nnoop=1\n";
        let config = read(known).unwrap();
        assert!(config.is_sha256 && config.is_bare && !config.is_reftable);
        for odd in ["[", "[core", "[core \"", "[core \"\\", "]\n=\n", "[core]\nbare = \"\\", "\\\n\\"] {
            assert!(!read(odd).unwrap().is_bare, "{odd}");
        }
    }
}
