use std::path::Path;

use qd_wire::data::StoredSession;
use qd_wire::{CodedError, ErrorCode};

use super::*;
use crate::driver::{BoxFuture, Driver, Harness, HarnessSettings, StartRequest, StoredConversations};

/// A harness that keeps its conversations as empty files in one directory.
struct FileHarness;

impl Harness for FileHarness {
    fn name(&self) -> &'static str {
        "files"
    }

    fn capabilities(&self) -> &'static [&'static str] {
        &[]
    }

    fn start<'a>(
        &'a self,
        _runner: &'a crate::RunnerConfig,
        _settings: &'a HarnessSettings,
        _request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>> {
        Box::pin(std::future::ready(Err(ErrorCode::Unsupported.with("only files"))))
    }

    fn stored(&self) -> Option<&dyn StoredConversations> {
        Some(self)
    }
}

impl StoredConversations for FileHarness {
    fn list(&self, settings: &HarnessSettings, workplaces: &[PathBuf]) -> Vec<StoredSession> {
        let directories = std::iter::once(&settings.user_dir).chain(workplaces);
        let files = directories.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
        let stored = files.zip(1..).map(|(entry, modified_at)| StoredSession {
            session_id: "native".to_owned(),
            path: entry.path().display().to_string(),
            modified_at,
            exists: true,
            ..StoredSession::default()
        });
        stored.collect()
    }

    fn check(&self, _settings: &HarnessSettings, _named: &str) -> Result<(), CodedError> {
        Ok(())
    }

    fn cwd_of(&self, _settings: &HarnessSettings, _named: &str) -> Option<String> {
        None
    }
}

#[test]
fn sessions_of_this_runner_are_known_by_their_names() {
    let world = tempfile::tempdir().unwrap();
    for directory in ["user", "project"] {
        std::fs::create_dir(world.path().join(directory)).unwrap();
    }
    for file in ["user/a", "project/b"] {
        std::fs::write(world.path().join(file), "").unwrap();
    }
    let known = |session_id: &str, file: &str, loaded: bool| {
        let path = world.path().join(file);
        let stored = StoredSession {
            session_id: session_id.to_owned(),
            path: path.display().to_string(),
            cwd: world.path().join("project").display().to_string(),
            loaded,
            ..StoredSession::default()
        };
        KnownSession { file: Some(path), stored }
    };
    let settings = HarnessSettings { user_dir: world.path().join("user"), ..HarnessSettings::default() };
    let harnesses = Harnesses::new(&[&FileHarness], |_| settings.clone());
    let sessions = list_now(
        &harnesses,
        vec![
            known("ours", "user/a", true),
            known("young", "user/new", true),
            known("gone", "user/old", false),
        ],
    );
    assert!(sessions.iter().all(|session| Path::new(&session.path).starts_with(world.path())));
    let mut names: Vec<(&str, bool, bool)> =
        sessions.iter().map(|s| (s.session_id.as_str(), s.exists, s.loaded)).collect();
    names.sort_unstable();
    // The file in the directory where all three work is listed once.
    assert_eq!(names, [("native", true, false), ("ours", true, true), ("young", false, true)]);
    assert!(sessions.is_sorted_by(|a, b| a.modified_at >= b.modified_at), "newest first");
}
