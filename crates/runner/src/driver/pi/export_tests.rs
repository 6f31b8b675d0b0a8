use std::fs;
use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_path_stays_below_the_directory() {
    let cwd = Path::new("/nowhere/work");
    for (wanted, expected) in [
        ("a.html", "a.html"),
        ("./b/a.html", "b/a.html"),
        ("/nowhere/work/c/a.html", "c/a.html"),
        ("a..b", "a..b"),
    ] {
        assert_eq!(below(cwd, wanted).as_deref(), Ok(Path::new(expected)));
    }
    for wanted in
        ["../a", "b/../../a", "/etc/passwd", "/nowhere/work2/a", "~/a", "a\0b", "/nowhere/work/../a"]
    {
        assert_eq!(below(cwd, wanted), Err(OutputPathError::Outside { cwd: cwd.to_owned() }), "{wanted:?}");
    }
    for wanted in ["", ".", "/nowhere/work", "b/"] {
        assert!(below(cwd, wanted).is_err(), "{wanted:?}");
    }
    assert_eq!(default_name(Some("/s/x_1.jsonl")), Path::new("pi-session-x_1.html"));
}

#[test]
fn no_link_leads_out() {
    let root = tempfile::tempdir().unwrap();
    let (cwd, out, page) = (root.path().join("work"), root.path().join("out"), root.path().join("p.html"));
    for directory in [&cwd, &out, &cwd.join("sub")] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(&page, "page").unwrap();
    fs::write(out.join("victim"), "safe").unwrap();
    symlink(&out, cwd.join("link")).unwrap();
    symlink(out.join("victim"), cwd.join("file")).unwrap();
    symlink("sub", cwd.join("inside")).unwrap();
    let error = put(&cwd, Path::new("link/a.html"), &page).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(put(&cwd, Path::new("none/a.html"), &page).is_err());
    assert!(put(&cwd, Path::new("sub"), &page).is_err(), "a directory is not replaced");
    put(&cwd, Path::new("file"), &page).unwrap();
    put(&cwd, Path::new("inside/a.html"), &page).unwrap();
    assert_eq!(fs::read_to_string(out.join("victim")).unwrap(), "safe");
    assert_eq!(fs::read_to_string(cwd.join("file")).unwrap(), "page");
    assert_eq!(fs::read_to_string(cwd.join("sub/a.html")).unwrap(), "page");
    let left: Vec<_> = fs::read_dir(&cwd).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 4, "nothing half done is left: {left:?}");
}
