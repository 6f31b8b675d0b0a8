//! The git directory that git works with: one of our own, made for a call and removed after it. It has copies of what
//! was checked and a configuration of harmless settings; only the objects are read where they are.
//!
//! So nothing that a repository's configuration, hooks or links say can reach git, whatever it is called, and nothing
//! can be exchanged between our look and git's.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use qd_core::encoding::hex;
use qd_wire::ErrorCode;

use super::repository::index::{self, INDEX_BYTES_MAX};
use super::repository::references::{self, Reference, References};
use super::repository::{Repository, config::RepositoryConfig, file_in, not_read, read_in};
use crate::services::call::{ServiceError, ServiceResult};
use crate::services::root::failure;

/// Bytes of a file with patterns.
const PATTERNS_BYTES_MAX: u64 = 4 << 20;

/// Bytes of one table of references in the newer form.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// What the file says where the real HEAD is in the tables.
const HEAD_OF_REFTABLE: &[u8] = b"refs/heads/.invalid";

/// Where an interrupted merge and the like stand; their names can be asked for.
const FURTHER_HEADS: [&str; 4] = ["MERGE_HEAD", "ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"];

/// A directory of ours, with all that is in it.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
}

/// What git is told of a repository besides its files.
#[derive(Debug)]
pub(super) struct PrivateGit {
    dir: PrivateDir,
    pub(super) head: Reference,
    pub(super) references: References,
    config: Vec<u8>,
}

impl PrivateDir {
    fn create() -> ServiceResult<PrivateDir> {
        let mut seed = [0u8; 16];
        getrandom::fill(&mut seed)
            .map_err(|error| ServiceError::coded(ErrorCode::Failed, error.to_string()))?;
        let path = std::env::temp_dir().join(format!("qd-git-{}", hex(&seed)));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot_be_made)?;
        let dir = PrivateDir { path };
        for below in ["refs", "objects/info", "info"] {
            std::fs::create_dir_all(dir.path.join(below)).map_err(cannot_be_made)?;
        }
        Ok(dir)
    }

    fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> ServiceResult<()> {
        std::fs::write(self.path.join(name), bytes).map_err(cannot_be_made)
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "a private git directory could not be removed");
        }
    }
}

fn cannot_be_made(error: std::io::Error) -> ServiceError {
    ServiceError::coded(ErrorCode::Failed, format!("the temporary directory for git cannot be made: {error}"))
}

impl PrivateGit {
    /// Copies what git may know. `settings` are those of the runner's user, which are added.
    pub(super) fn of(
        repository: &Repository,
        config: &RepositoryConfig,
        settings: &[u8],
    ) -> ServiceResult<PrivateGit> {
        let dir = PrivateDir::create()?;
        let (head, references) = if config.is_reftable {
            copy_reftable(repository, &dir)?;
            (Reference::Symbolic(HEAD_OF_REFTABLE.to_vec()), References::default())
        } else {
            (references::head_of(&repository.own)?, References::read(repository)?)
        };
        // The repository's own settings come last, so that they win as they do in git.
        let config_text = [settings, &config.harmless(head.branch())[..]].concat();
        dir.write("config", &config_text)?;
        dir.write("HEAD", &head.line())?;
        add_objects(&dir, repository)?;
        if !config.is_reftable {
            dir.write("packed-refs", &references.packed())?;
            add_symbolic(&dir, &references);
        }
        for name in FURTHER_HEADS {
            if let Some(id) = references::object_in(&repository.own, name)? {
                dir.write(name, format!("{id}\n").as_bytes())?;
            }
        }
        if let Some(shallow) = references::shallow(&repository.common)? {
            dir.write("shallow", &shallow)?;
        }
        for (folder, name) in [
            (&repository.common, "exclude"),
            (&repository.common, "attributes"),
            (&repository.own, "sparse-checkout"),
        ] {
            let Some(info) = folder.folder("info")? else { continue };
            if let Some(patterns) = read_in(&info, OsStr::new(name), PATTERNS_BYTES_MAX)? {
                dir.write(Path::new("info").join(name), &patterns)?;
            }
        }
        copy_index(repository, config, &dir)?;
        Ok(PrivateGit { dir, head, references, config: config_text })
    }

    /// Where git's references are the repository's own, so that a branch can be made or removed.
    pub(super) fn for_references(&self, repository: &Repository) -> ServiceResult<PrivateGit> {
        let dir = PrivateDir::create()?;
        dir.write("config", &self.config)?;
        dir.write("HEAD", &self.head.line())?;
        add_objects(&dir, repository)?;
        std::fs::remove_dir(dir.path.join("refs")).map_err(cannot_be_made)?;
        // Not the log of references: git would follow links there.
        for name in ["refs", "packed-refs"] {
            let own = repository.common.path.join(name);
            // What is in them was checked. That they are no links is looked at once more.
            match own.symlink_metadata() {
                Ok(found) if found.is_symlink() => {
                    return Err(not_read(format_args!("git's {name} is a link")));
                }
                Ok(_) => std::os::unix::fs::symlink(&own, dir.path.join(name)).map_err(cannot_be_made)?,
                Err(_) => {}
            }
        }
        Ok(PrivateGit {
            dir,
            head: self.head.clone(),
            references: References::default(),
            config: self.config.clone(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir.path
    }
}

/// New objects, which a diff of untracked files makes, are ours; the repository's are only read.
fn add_objects(dir: &PrivateDir, repository: &Repository) -> ServiceResult<()> {
    let mut line = repository.common.path.join("objects").into_os_string().into_vec();
    if line.contains(&b'\n') {
        return Err(not_read("the name of its directory has more than one line"));
    }
    line.push(b'\n');
    dir.write("objects/info/alternates", &line)
}

/// References that name others have files of their own. Those that cannot be written are left out.
fn add_symbolic(dir: &PrivateDir, references: &References) {
    for (name, reference) in &references.all {
        if let Reference::Symbolic(_) = reference {
            let path = dir.path.join(OsStr::from_bytes(name));
            let parent = path.parent().unwrap_or(&dir.path);
            let written =
                std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, reference.line()));
            if let Err(error) = written {
                tracing::debug!(%error, "a symbolic reference is left out");
            }
        }
    }
}

fn copy_index(repository: &Repository, config: &RepositoryConfig, dir: &PrivateDir) -> ServiceResult<()> {
    let hash_bytes = if config.is_sha256 { 32 } else { 20 };
    let mut names = vec![OsString::from("index")];
    // An index may be split: what seldom changes has a file of its own.
    for entry in repository.own.dir.entries().map_err(failure)? {
        let name = entry.map_err(failure)?.file_name();
        if name.as_bytes().starts_with(b"sharedindex.") {
            names.push(name);
        }
    }
    for name in names {
        let Some(file) = file_in(&repository.own.dir, &name)? else { continue };
        let modified = file.metadata()?.modified()?;
        let mut bytes = Vec::new();
        file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > INDEX_BYTES_MAX {
            return Err(not_read("its index is too large"));
        }
        index::prepare(&mut bytes, hash_bytes)?;
        dir.write(&name, &bytes)?;
        // Git reads again what changed in the second in which the index was written; it knows that by this time.
        let copy =
            std::fs::OpenOptions::new().write(true).open(dir.path.join(&name)).map_err(cannot_be_made)?;
        copy.set_modified(modified).map_err(cannot_be_made)?;
    }
    Ok(())
}

/// The newer form of references: a few files in one directory, which only git reads.
fn copy_reftable(repository: &Repository, dir: &PrivateDir) -> ServiceResult<()> {
    if repository.linked_id.is_some() {
        refuse!(
            Unsupported,
            "Quarterdeck does not work in linked worktrees of repositories with reftable yet"
        );
    }
    let Some(tables) = repository.common.folder("reftable")? else {
        return Err(not_read("it has no directory of references"));
    };
    std::fs::create_dir(dir.path.join("reftable")).map_err(cannot_be_made)?;
    for entry in tables.entries().map_err(failure)? {
        let name = entry.map_err(failure)?.file_name();
        if let Some(bytes) = read_in(&tables, &name, TABLE_BYTES_MAX)? {
            dir.write(Path::new("reftable").join(&name), &bytes)?;
        }
    }
    Ok(())
}
