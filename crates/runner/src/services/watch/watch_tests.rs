use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use qd_wire::ErrorCode;

use super::*;
use crate::services::fs::fixture::{Fixture, refused_as, words};

/// How long anything may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(20);

struct WatchFixture {
    cancel: Cancellation,
    reports: Receiver<FsChanges>,
    thread: JoinHandle<ServiceResult<()>>,
}

/// Watches in another thread; returns when the watch stands.
fn watch_all(fixture: &Fixture, params: FsWatchParams) -> WatchFixture {
    let cancel = Cancellation::default();
    let (sender, reports) = channel();
    let (path, own) = (fixture.root.path().to_owned(), cancel.clone());
    let thread = std::thread::spawn(move || {
        let root = Root::open(&path)?;
        watch(&root, &params, &own, &mut |changes| drop(sender.send(changes)))
    });
    let first = reports.recv_timeout(WAIT_MAX).unwrap();
    assert_eq!(first, FsChanges::default());
    WatchFixture { cancel, reports, thread }
}

impl WatchFixture {
    /// Waits until all these were told, as `change path` or `change path/`.
    fn expect(&self, expected: &[&str]) -> Vec<String> {
        let deadline = clock::monotonic_now() + WAIT_MAX;
        let mut told: Vec<String> = Vec::new();
        while !expected.iter().all(|wanted| told.iter().any(|change| change == wanted)) {
            let left = deadline.saturating_duration_since(clock::monotonic_now());
            let report =
                self.reports.recv_timeout(left).unwrap_or_else(|_| panic!("{expected:?}, not {told:?}"));
            assert!(report.changes.len() <= CHANGES_MAX);
            told.extend(report.changes.into_iter().map(|change| {
                format!("{} {}{}", change.change, change.path, if change.is_dir { "/" } else { "" })
            }));
        }
        told
    }

    fn end(self) -> ServiceResult<()> {
        self.cancel.cancel();
        self.thread.join().unwrap()
    }
}

#[test]
fn changes_are_told() {
    let fixture = Fixture::new();
    fixture.put("old.txt", "1");
    fixture.put("sub/deep/file", "1");
    let watching = watch_all(&fixture, FsWatchParams::default());
    fixture.put("new.txt", "1");
    watching.expect(&["created new.txt"]);
    fixture.put("old.txt", "22");
    fixture.put("sub/deep/file", "22");
    watching.expect(&["modified old.txt", "modified sub/deep/file"]);
    fs::remove_file(fixture.at("old.txt")).unwrap();
    watching.expect(&["deleted old.txt"]);
    // A new directory is watched too, and what came before it was is told.
    fixture.put("made/inner/a", "1");
    watching.expect(&["created made/", "created made/inner/", "created made/inner/a"]);
    fixture.put("made/inner/b", "1");
    watching.expect(&["created made/inner/b"]);
    fs::rename(fixture.at("made"), fixture.at("moved")).unwrap();
    watching.expect(&["deleted made/", "created moved/", "created moved/inner/a"]);
    fixture.put("moved/inner/c", "1");
    watching.expect(&["created moved/inner/c"]);
    fs::remove_dir_all(fixture.at("moved")).unwrap();
    watching.expect(&["deleted moved/"]);
    watching.end().unwrap();
}

#[test]
fn hidden_paths_are_told_only_if_asked() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at(".git")).unwrap();
    let watching = watch_all(&fixture, FsWatchParams::default());
    let all = watch_all(&fixture, FsWatchParams { include_hidden: Some(true), ..FsWatchParams::default() });
    fixture.put(".git/index", "1");
    fixture.put(".env", "1");
    fixture.put("z", "1");
    all.expect(&["created .git/index", "created .env", "created z"]);
    let told = watching.expect(&["created z"]);
    assert!(!told.iter().any(|change| change.contains(" .")), "{told:?}");
    watching.end().unwrap();
    all.end().unwrap();
}

#[test]
fn links_are_not_followed() {
    let fixture = Fixture::new();
    fixture.link("../outside", "out");
    let watching = watch_all(&fixture, FsWatchParams::default());
    fixture.link("../outside/canary", "out-later");
    watching.expect(&["created out-later"]);
    fs::write(fixture.outside.join("canary/noise"), "1").unwrap();
    fs::write(fixture.outside.join("noise"), "1").unwrap();
    fixture.put("z", "1");
    let told = watching.expect(&["created z"]);
    assert_eq!(told, ["created z"]);
    watching.end().unwrap();
    let out = FsWatchParams { path: Some("out".into()), ..FsWatchParams::default() };
    let refused = watch(&fixture.root, &out, &Cancellation::default(), &mut |_| {});
    assert_eq!(words(refused), "path escapes run cwd");
}

#[test]
fn many_changes_overflow_and_say_so() {
    let fixture = Fixture::new();
    let watching = watch_all(&fixture, FsWatchParams::default());
    for number in 0..2000 {
        fixture.put(&format!("f{number}"), "1");
    }
    let mut overflow = false;
    while !overflow {
        let report = watching.reports.recv_timeout(WAIT_MAX).unwrap();
        assert!(report.changes.len() <= CHANGES_MAX);
        overflow |= report.overflow;
    }
    // It goes on afterwards.
    let deadline = clock::monotonic_now() + WAIT_MAX;
    let is_told = |report: FsChanges| report.changes.iter().any(|change| change.path.starts_with("later"));
    for number in 0.. {
        assert!(clock::monotonic_now() < deadline);
        fixture.put(&format!("later{number}"), "1");
        if watching.reports.recv_timeout(CANCEL_CHECK).is_ok_and(is_told) {
            break;
        }
    }
    watching.end().unwrap();
}

#[test]
fn paths_are_told_from_the_root_also_through_a_link() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.at("real/sub")).unwrap();
    fixture.link("real", "link");
    let watching =
        watch_all(&fixture, FsWatchParams { path: Some("link/sub".into()), ..FsWatchParams::default() });
    fixture.put("real/sub/f", "1");
    watching.expect(&["created link/sub/f"]);
    fs::remove_dir_all(fixture.at("real/sub")).unwrap();
    let ended = watching.thread.join().unwrap();
    assert_eq!(
        refused_as(ErrorCode::NotFound, ended),
        "the watched directory was deleted or moved: watch another one"
    );
}

#[test]
fn the_number_of_directories_has_a_bound() {
    let fixture = Fixture::new();
    for number in 0..5 {
        fs::create_dir(fixture.at(&format!("d{number}"))).unwrap();
    }
    let root = RelativePath::parse(".").unwrap();
    let (watcher, _events) = start(Arc::default()).unwrap();
    let mut directories = WatchedDirectories::new(&fixture.root, root.clone(), watcher, false).unwrap();
    directories.max = 5;
    assert_eq!(
        refused_as(ErrorCode::LimitReached, directories.watch_all(&Cancellation::default())),
        "more than 5 directories: watch a sub-directory instead"
    );
    let (watcher, _events) = start(Arc::default()).unwrap();
    let mut directories = WatchedDirectories::new(&fixture.root, root, watcher, false).unwrap();
    directories.max = 6;
    directories.watch_all(&Cancellation::default()).unwrap();
    fixture.put("file", "");
    let file = FsWatchParams { path: Some("file".into()), ..FsWatchParams::default() };
    assert_eq!(
        words(watch(&fixture.root, &file, &Cancellation::default(), &mut |_| {})),
        "path is not a directory"
    );
}
