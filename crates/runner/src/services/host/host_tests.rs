use std::os::unix::fs::PermissionsExt;

use super::*;

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn our_own_stand_ins_and_what_is_no_program_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folders: Vec<PathBuf> = ["a", "b", "c"].iter().map(|name| folder.path().join(name)).collect();
    folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    write(
        &folders[0].join("codex"),
        &format!("#!/bin/sh\n# {}\nexec qd run -- codex\n", crate::process::program_lookup::SHIM_MARKER),
        0o755,
    );
    write(&folders[1].join("codex"), "no program", 0o644);
    write(&folders[2].join("codex"), "#!/bin/sh\n", 0o755);
    assert_eq!(find_program("codex", folders.iter().cloned()), Some(folders[2].join("codex")));
    assert_eq!(look_up("gemini", &folders).error.as_deref(), Some("gemini binary not found in PATH: gemini"));
}

fn tail(path: &Path, lines: u64, max_bytes: u64) -> (String, bool) {
    let params =
        HostLogsParams { lines: Some(lines), max_bytes: Some(max_bytes), ..HostLogsParams::default() };
    let data = logs(Some(path), &params).unwrap();
    (data.text, data.truncated)
}

#[test]
fn only_whole_lines_of_the_end_of_the_log_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qd.log");
    write(&path, "eins\nzwei\ndrei\n", 0o600);
    for (lines, bytes, expected, is_cut) in [
        (10, 100, "eins\nzwei\ndrei\n", false),
        (3, 100, "eins\nzwei\ndrei\n", false),
        (2, 100, "zwei\ndrei\n", true),
        (1, 100, "drei\n", true),
        // The cut falls on the beginning of a line, or inside one.
        (10, 10, "zwei\ndrei\n", true),
        (10, 9, "drei\n", true),
        (10, 15, "eins\nzwei\ndrei\n", false),
    ] {
        assert_eq!(tail(&path, lines, bytes), (expected.to_owned(), is_cut), "{lines} {bytes}");
    }
    write(&path, &"é".repeat(50), 0o600);
    let (text, is_cut) = tail(&path, 5, 20);
    assert!(is_cut && text.ends_with("éé"), "{text}");
}

#[test]
fn a_log_that_is_not_there_is_an_error_that_says_what_to_do() {
    let params = HostLogsParams::default();
    let error = logs(None, &params).unwrap_err().to_string();
    assert!(
        error.contains("HOSTD_LOG_PATH is not set on this host") && error.contains("log_file"),
        "{error}"
    );
    let error = logs(Some(Path::new("/nowhere/x.log")), &params).unwrap_err().to_string();
    assert!(error.starts_with("failed to read log file: /nowhere/x.log"), "{error}");
    let fifo = tempfile::tempdir().unwrap();
    let path = fifo.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(logs(Some(&path), &params).unwrap_err(), ServiceError::NotAFile);
    let params = HostLogsParams { lines: Some(2001), ..HostLogsParams::default() };
    assert!(logs(None, &params).unwrap_err().to_string().starts_with("lines: Must be"));
}
