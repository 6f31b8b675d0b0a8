//! A root with a directory beside it that nobody may reach.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use qd_wire::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::Root;

/// What the secret file outside says; it must never be in an answer.
pub(in crate::services) const SECRET: &str = "TOP-SECRET-d41d8cd98f00b204";

pub(in crate::services) struct Fixture {
    _temp: TempDir,
    pub(in crate::services) root: Root,
    pub(in crate::services) outside: PathBuf,
}

impl Fixture {
    pub(in crate::services) fn new() -> Fixture {
        // In memory where that is possible: thousands of writes are synced here.
        let memory = Path::new("/dev/shm");
        let temp = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        let base = temp.path().canonicalize().unwrap();
        let outside = base.join("outside");
        fs::create_dir_all(outside.join("canary/deep")).unwrap();
        fs::write(outside.join("secret.txt"), SECRET).unwrap();
        fs::write(outside.join("only-outside.txt"), SECRET).unwrap();
        fs::write(outside.join("canary/bird"), "alive").unwrap();
        fs::write(outside.join("canary/deep/bird"), "alive too").unwrap();
        fs::create_dir(base.join("root")).unwrap();
        let root = Root::open(&base.join("root")).unwrap();
        Fixture { _temp: temp, root, outside }
    }

    /// Calls a service in the root.
    pub(in crate::services) fn call<P: Serialize + DeserializeOwned, T>(
        &self,
        service: Service<P, T>,
        params: Value,
    ) -> ServiceResult<T> {
        call(&self.root, service, params)
    }

    /// A service that is cancelled says so and does nothing.
    #[track_caller]
    pub(in crate::services) fn assert_cancelled<P: Serialize + DeserializeOwned, T: std::fmt::Debug>(
        &self,
        service: Service<P, T>,
        params: Value,
    ) {
        let cancel = Cancellation::default();
        cancel.cancel();
        assert_eq!(service(&self.root, &parsed(params), &cancel).unwrap_err(), ServiceError::Cancelled);
    }

    /// A path in the root.
    pub(in crate::services) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(in crate::services) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), content).unwrap();
    }

    pub(in crate::services) fn link(&self, target: impl AsRef<Path>, path: &str) {
        symlink(target, self.at(path)).unwrap();
    }

    pub(in crate::services) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub(in crate::services) fn fifo(&self, path: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, self.at(path), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    /// All names in the root, links not followed.
    pub(in crate::services) fn names(&self) -> Vec<String> {
        let mut lines = Vec::new();
        describe(self.root.path(), self.root.path(), &mut lines);
        lines.into_iter().map(|line| line.0).collect()
    }

    /// All there is outside, to compare.
    pub(in crate::services) fn outside_state(&self) -> Vec<(String, u32, Vec<u8>)> {
        let mut lines = Vec::new();
        describe(&self.outside, &self.outside, &mut lines);
        // And beside it, where nothing is but the two directories.
        let beside = fs::read_dir(self.outside.parent().unwrap()).unwrap().count();
        lines.push((format!("{beside} beside"), 0, Vec::new()));
        lines
    }
}

/// A function of one service.
type Service<P, T> = fn(&Root, &P, &Cancellation) -> ServiceResult<T>;

/// Calls a service that nobody cancels.
pub(in crate::services) fn call<P: Serialize + DeserializeOwned, T>(
    root: &Root,
    service: Service<P, T>,
    params: Value,
) -> ServiceResult<T> {
    service(root, &parsed(params), &Cancellation::default())
}

/// Parameters as a client sends them. A name that the service does not know is a slip of the test.
pub(in crate::services) fn parsed<P: Serialize + DeserializeOwned>(params: Value) -> P {
    let parsed: P = serde_json::from_value(params.clone()).unwrap();
    let known = serde_json::to_value(&parsed).unwrap();
    for (name, value) in params.as_object().unwrap() {
        assert!(value.is_null() || known.get(name).is_some(), "no parameter is called {name}: {params}");
    }
    parsed
}

fn describe(base: &Path, path: &Path, lines: &mut Vec<(String, u32, Vec<u8>)>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let metadata = fs::symlink_metadata(&entry).unwrap();
        let content = match () {
            () if metadata.is_file() => fs::read(&entry).unwrap(),
            () if metadata.is_symlink() => fs::read_link(&entry).unwrap().as_os_str().as_bytes().to_vec(),
            () => Vec::new(),
        };
        let name = entry.strip_prefix(base).unwrap().to_string_lossy().into_owned();
        lines.push((name, metadata.mode(), content));
        if metadata.is_dir() {
            describe(base, &entry, lines);
        }
    }
}

/// Runs something that must not wait for anybody. A thread that does is left behind and the test fails.
pub(in crate::services) fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(20)).expect("it waits for somebody")
}

/// The words of an error that has this code.
pub(in crate::services) fn refused_as<T: std::fmt::Debug>(
    code: ErrorCode,
    result: ServiceResult<T>,
) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    error.to_string()
}

/// The words of an error.
pub(in crate::services) fn words<T: std::fmt::Debug>(result: ServiceResult<T>) -> String {
    result.unwrap_err().to_string()
}

/// An error has this code, and these words in it.
#[track_caller]
pub(in crate::services) fn assert_refused<T: std::fmt::Debug>(
    code: ErrorCode,
    part: &str,
    result: ServiceResult<T>,
) {
    let error = refused_as(code, result);
    assert!(error.contains(part), "{error}");
}
