use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::*;

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"native-1","timestamp":"2026-11-15T06:04:59.214Z","cwd":"/work"}"#;

const DANGEROUS: &str = "sessionPath contains potentially dangerous path components";
const RELATIVE: &str = "sessionPath must be an absolute path";
const WRONG_NAME: &str = "sessionPath must point to a .jsonl or .json session file";
const ELSEWHERE: &str = "sessionPath must be under an allowed session directory (e.g. ~/.pi/agent/sessions/ or a project's .pi/sessions/)";
const MISSING: &str = "sessionPath must point to an existing session file";

/// A user's pi directory with sessions, a project with its own, and a place that is none of ours.
struct SessionFileFixture {
    root: tempfile::TempDir,
}

impl SessionFileFixture {
    fn new() -> SessionFileFixture {
        let world = SessionFileFixture { root: tempfile::tempdir().unwrap() };
        for directory in ["user/sessions/--work--", "project/.pi/sessions", "secret"] {
            fs::create_dir_all(world.path(directory)).unwrap();
        }
        for file in ["user/sessions/--work--/a.jsonl", "project/.pi/sessions/b.json", "secret/c.jsonl"] {
            fs::write(world.path(file), format!("{HEADER}\n")).unwrap();
        }
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn check(&self, path: impl AsRef<Path>) -> Result<CheckedFile, SessionFileError> {
        check_below(&self.path("user"), path.as_ref().to_str().unwrap())
    }

    fn refused(&self, path: impl AsRef<Path>) -> String {
        self.check(path).unwrap_err().to_string()
    }

    fn list(&self) -> Vec<StoredSession> {
        let settings = HarnessSettings { user_dir: self.path("user"), ..HarnessSettings::default() };
        let mut sessions = PiFiles.list(&settings, &[]);
        // Ancestors of the directory the tests run in may have sessions of their own.
        sessions.retain(|session| Path::new(&session.path).starts_with(self.root.path()));
        sessions
    }
}

#[test]
fn files_where_sessions_are_kept_are_opened() {
    let world = SessionFileFixture::new();
    for file in ["user/sessions/--work--/a.jsonl", "project/.pi/sessions/b.json"] {
        let checked = world.check(world.path(file)).unwrap();
        assert_eq!(checked.cwd(), "/work");
        assert!(checked.is_still_there());
    }
}

#[test]
fn every_other_path_is_refused() {
    let world = SessionFileFixture::new();
    let sessions = world.path("user/sessions");
    fs::create_dir(sessions.join("dir.jsonl")).unwrap();
    fs::write(sessions.join("text.jsonl"), "hello\n").unwrap();
    fs::write(sessions.join("empty.jsonl"), "").unwrap();
    fs::write(sessions.join("huge.jsonl"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(sessions.join("notes.txt"), HEADER).unwrap();
    let below = |name: &str| sessions.join(name).display().to_string();
    let cases = [
        (below("../../secret/c.jsonl"), DANGEROUS),
        (below("--work--/../--work--/a.jsonl"), DANGEROUS),
        ("~/.pi/agent/sessions/a.jsonl".to_owned(), DANGEROUS),
        (below("a\0.jsonl"), DANGEROUS),
        ("sessions/a.jsonl".to_owned(), RELATIVE),
        (String::new(), RELATIVE),
        (below("notes.txt"), WRONG_NAME),
        (below("--work--"), WRONG_NAME),
        (world.path("secret/c.jsonl").display().to_string(), ELSEWHERE),
        ("/etc/passwd.jsonl".to_owned(), ELSEWHERE),
        (world.path("user/sessions.jsonl").display().to_string(), ELSEWHERE),
        (world.path("user/auth.json").display().to_string(), ELSEWHERE),
        ("/.pi/sessions.jsonl".to_owned(), ELSEWHERE),
        (below("none.jsonl"), MISSING),
        (below("none/none.jsonl"), MISSING),
        (below("dir.jsonl"), MISSING),
        (below("text.jsonl"), MISSING),
        (below("empty.jsonl"), MISSING),
        (below("huge.jsonl"), MISSING),
    ];
    for (path, expected) in cases {
        assert_eq!(world.refused(&path), expected, "{path:?}");
    }
}

#[test]
fn no_link_leads_out() {
    let world = SessionFileFixture::new();
    let (sessions, project) = (world.path("user/sessions"), world.path("project/.pi/sessions"));
    symlink(world.path("secret/c.jsonl"), sessions.join("file.jsonl")).unwrap();
    symlink(sessions.join("--work--/a.jsonl"), sessions.join("inside.jsonl")).unwrap();
    symlink(world.path("secret"), sessions.join("dir")).unwrap();
    symlink("../../../secret", project.join("climb")).unwrap();
    symlink("--work--", sessions.join("same")).unwrap();
    assert_eq!(world.refused(sessions.join("file.jsonl")), MISSING);
    assert_eq!(
        world.refused(sessions.join("inside.jsonl")),
        MISSING,
        "a link is not a file, wherever it leads"
    );
    assert_eq!(world.refused(sessions.join("dir/c.jsonl")), ELSEWHERE);
    assert_eq!(world.refused(project.join("climb/c.jsonl")), ELSEWHERE);
    world.check(sessions.join("same/a.jsonl")).unwrap();
    // A project whose session directory is a link to a place outside it.
    fs::create_dir_all(world.path("trap/.pi")).unwrap();
    symlink(world.path("secret"), world.path("trap/.pi/sessions")).unwrap();
    assert_eq!(world.refused(world.path("trap/.pi/sessions/c.jsonl")), ELSEWHERE);
}

#[test]
fn a_pipe_does_not_hold_anybody_up() {
    let world = SessionFileFixture::new();
    let pipe = world.path("user/sessions/pipe.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(world.refused(&pipe), MISSING);
    assert!(world.list().iter().all(|session| !session.path.ends_with("pipe.jsonl")));
}

#[test]
fn an_exchanged_file_is_noticed() {
    let world = SessionFileFixture::new();
    let path = world.path("user/sessions/--work--/a.jsonl");
    let checked = world.check(&path).unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{}\n").unwrap();
    assert!(checked.is_still_there(), "it may grow");
    fs::remove_file(&path).unwrap();
    fs::write(&path, HEADER).unwrap();
    assert!(!checked.is_still_there());
    fs::remove_file(&path).unwrap();
    symlink(world.path("secret/c.jsonl"), &path).unwrap();
    assert!(!checked.is_still_there());
}

fn message(id: &str, parent: &str, text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":"{parent}","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

#[test]
fn stored_sessions_are_listed_with_what_they_say() {
    let world = SessionFileFixture::new();
    let file = world.path("user/sessions/--work--/a.jsonl");
    let long = "x".repeat(3 << 20);
    let lines = [
        HEADER.to_owned(),
        r#"{"type":"model_change","id":"a0","parentId":null,"provider":"p","modelId":"m"}"#.to_owned(),
        r#"{"type":"thinking_level_change","id":"a1","parentId":"a0","thinkingLevel":"low"}"#.to_owned(),
        message("a2", "a1", &long),
        "{broken".to_owned(),
        message("a3", "a2", "short"),
        r#"{"type":"session_info","id":"a4","parentId":"a3","name":"My session"}"#.to_owned(),
        r#"{"type":"message","id":"a5","par"#.to_owned(),
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    fs::write(world.path("user/sessions/--work--/notes.jsonl"), "not a session\n").unwrap();
    fs::write(world.path("user/sessions/--work--/zeros.jsonl"), vec![0; 4 << 20]).unwrap();
    symlink(world.path("secret"), world.path("user/sessions/link")).unwrap();
    for _ in 0..2 {
        let sessions = world.list();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let StoredSession { message_count, created_at, exists, loaded, .. } = sessions[0];
        assert_eq!((message_count, created_at, exists, loaded), (2, 1_794_722_699_214, true, false));
        assert_eq!((sessions[0].session_id.as_str(), sessions[0].cwd.as_str()), ("native-1", "/work"));
        assert_eq!(sessions[0].title.as_deref(), Some("My session"));
        assert_eq!(
            (sessions[0].model.as_deref(), sessions[0].thinking_level.as_deref()),
            (Some("m"), Some("low"))
        );
    }
    // A file that has grown is read again.
    let mut more = fs::OpenOptions::new().append(true).open(&file).unwrap();
    writeln!(more, "\n{}", message("a6", "a4", "more")).unwrap();
    assert_eq!(world.list()[0].message_count, 3);
}
