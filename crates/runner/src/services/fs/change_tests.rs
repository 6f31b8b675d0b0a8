use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};

use super::*;
use crate::services::fs::fixture::{Fixture, assert_refused, at_once, parsed, refused_as, words};

fn never() -> Cancellation {
    Cancellation::default()
}

fn params(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to })
}

fn over(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to, "overwrite": true })
}

/// A directory with all that a careless copy loses.
fn plant(fixture: &Fixture) {
    fixture.put("dir/.git/config", "dot");
    fixture.put("dir/.env", "dot too");
    fixture.put("dir/run.sh", "run");
    fixture.put("dir/sub/deep.txt", "deep");
    fs::create_dir(fixture.at("dir/empty")).unwrap();
    fixture.link("sub/deep.txt", "dir/inside-link");
    fixture.link("../../outside/secret.txt", "dir/outside-link");
    fs::set_permissions(fixture.at("dir/run.sh"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(fixture.at("dir/sub"), fs::Permissions::from_mode(0o710)).unwrap();
}

fn check_planted(fixture: &Fixture, at: &str) {
    let path = |name: &str| format!("{at}/{name}");
    assert_eq!(fixture.text(&path(".git/config")), "dot");
    assert_eq!(fixture.text(&path(".env")), "dot too");
    assert_eq!(fixture.text(&path("sub/deep.txt")), "deep");
    assert!(fixture.at(&path("empty")).is_dir());
    assert_eq!(fs::metadata(fixture.at(&path("run.sh"))).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(fixture.at(&path("sub"))).unwrap().mode() & 0o7777, 0o710);
    let target = |name: &str| fs::read_link(fixture.at(&path(name))).unwrap().to_string_lossy().into_owned();
    assert_eq!(target("inside-link"), "sub/deep.txt");
    assert_eq!(target("outside-link"), "../../outside/secret.txt");
}

#[test]
fn directories_are_made() {
    let fixture = Fixture::new();
    let create = |path: &str, create_parents| {
        fixture.call(create_directory, json!({ "path": path, "create_parents": create_parents }))
    };
    assert_eq!(create("a", None).unwrap().count, 1);
    assert_refused(ErrorCode::AlreadyExists, "something at a already", create("a", None));
    assert_refused(ErrorCode::AlreadyExists, "already", create(".", None));
    assert!(refused_as(ErrorCode::NotFound, create("x/y", None)).starts_with("bad path: No such file"));
    assert_eq!(create("x/y/z", Some(true)).unwrap().count, 3);
    assert_eq!(create("x/y/z", Some(true)).unwrap().count, 0);
    fixture.put("file", "");
    assert!(create("file", Some(true)).is_err());
    fixture.link("../outside/new", "dangling");
    let before = fixture.outside_state();
    assert!(create("dangling", None).is_err() && create("dangling", Some(true)).is_err());
    assert_eq!(fixture.outside_state(), before);
}

#[test]
fn a_move_is_a_rename_and_loses_nothing() {
    let fixture = Fixture::new();
    plant(&fixture);
    let number = fs::metadata(fixture.at("dir/sub/deep.txt")).unwrap().ino();
    fixture.call(rename, params("dir", "renamed")).unwrap();
    check_planted(&fixture, "renamed");
    assert_eq!(fs::metadata(fixture.at("renamed/sub/deep.txt")).unwrap().ino(), number);
    let to_new = json!({ "from": "renamed", "to": "p/q/moved", "create_parents": true });
    fixture.call(rename, to_new).unwrap();
    check_planted(&fixture, "p/q/moved");
    assert!(!fixture.at("dir").exists() && !fixture.at("renamed").exists());
}

#[test]
fn a_move_to_another_device_loses_nothing() {
    let fixture = Fixture::new();
    plant(&fixture);
    let modified = |path: &str| fs::symlink_metadata(fixture.at(path)).unwrap().mtime_nsec();
    let names = ["sub/deep.txt", "sub", "inside-link", "empty"];
    let before: Vec<i64> = names.iter().map(|name| modified(&format!("dir/{name}"))).collect();
    let params = parsed(params("dir", "moved"));
    let ends = MovePaths::open(&fixture.root, &params, &never()).unwrap();
    assert_eq!(ends.move_across(&params, &never()).unwrap(), 10);
    check_planted(&fixture, "moved");
    let after: Vec<i64> = names.iter().map(|name| modified(&format!("moved/{name}"))).collect();
    assert_eq!(after, before, "times are kept");
    assert!(!fixture.at("dir").exists());
    assert!(!fixture.names().iter().any(|name| name.ends_with(".tmp")));
}

#[test]
fn nothing_is_overwritten_unless_asked() {
    let fixture = Fixture::new();
    for operation in [rename, copy] {
        fixture.put("a", "new");
        fixture.put("b", "old");
        let error = refused_as(ErrorCode::AlreadyExists, fixture.call(operation, params("a", "b")));
        assert!(error.contains("something at b already"), "{error}");
        assert_eq!((fixture.text("a"), fixture.text("b")), ("new".into(), "old".into()));
        fixture.call(operation, over("a", "b")).unwrap();
        assert_eq!(fixture.text("b"), "new");
    }
    // A link that leads out, or nowhere, is something too; what it leads to is not touched.
    fixture.link("../outside/secret.txt", "out");
    fixture.link("../outside/created", "dangling");
    let before = fixture.outside_state();
    for operation in [rename, copy] {
        for to in ["out", "dangling"] {
            fixture.put("a", "new");
            assert!(fixture.call(operation, params("a", to)).is_err());
        }
    }
    fixture.call(copy, over("a", "dangling")).unwrap();
    fixture.call(rename, over("a", "out")).unwrap();
    assert_eq!((fixture.text("dangling"), fixture.text("out")), ("new".into(), "new".into()));
    assert_eq!(fixture.outside_state(), before);
}

#[test]
fn directories_are_replaced_whole_if_asked() {
    let fixture = Fixture::new();
    for (operation, name) in [(rename as fn(&_, &_, &_) -> _, "renamed"), (copy, "copied")] {
        let at = |path: &str| format!("{name}/{path}");
        fixture.put(&at("new/n"), "new");
        fixture.put(&at("old/o"), "old");
        fixture.put(&at("file"), "file");
        fixture.call(operation, over(&at("new"), &at("old"))).unwrap();
        assert_eq!(fixture.text(&at("old/n")), "new");
        assert!(!fixture.at(&at("old/o")).exists());
        fixture.call(operation, over(&at("old"), &at("file"))).unwrap();
        assert_eq!(fixture.text(&at("file/n")), "new");
        fixture.put(&at("plain"), "plain");
        fixture.call(operation, over(&at("plain"), &at("file"))).unwrap();
        assert_eq!(fixture.text(&at("file")), "plain");
    }
    assert!(!fixture.names().iter().any(|name| name.ends_with(".tmp")));
}

#[test]
fn odd_ends_are_refused() {
    let fixture = Fixture::new();
    fixture.put("a/b/c", "content");
    for operation in [rename, copy] {
        assert!(fixture.call(operation, params("a", "a/inside")).is_err());
        assert!(fixture.call(operation, over("a/b", "a")).is_err());
        assert!(fixture.call(operation, params("a/b", "a")).is_err());
        assert_refused(ErrorCode::InvalidRequest, "root itself", fixture.call(operation, params(".", "x")));
        assert!(fixture.call(operation, over("a", ".")).is_err());
        assert_refused(ErrorCode::InvalidRequest, "root itself", fixture.call(operation, params("a", ".")));
        assert!(
            refused_as(ErrorCode::NotFound, fixture.call(operation, params("missing", "x")))
                .starts_with("bad path: No such")
        );
        assert_eq!(words(fixture.call(operation, params("../x", "y"))), "path contains ..");
        assert_eq!(words(fixture.call(operation, params("a", "/y"))), "path must be relative");
    }
    assert_eq!(fixture.names(), ["a", "a/b", "a/b/c"]);
    // Onto itself, and onto another name of itself.
    fixture.call(rename, over("a/b/c", "a/b/c")).unwrap();
    assert_eq!(fixture.text("a/b/c"), "content");
    fs::hard_link(fixture.at("a/b/c"), fixture.at("twin")).unwrap();
    fixture.call(rename, over("a/b/c", "twin")).unwrap();
    assert_eq!(fixture.names(), ["a", "a/b", "twin"]);
}

#[test]
fn a_copy_has_all_and_follows_no_link() {
    let fixture = Fixture::new();
    plant(&fixture);
    assert_eq!(fixture.call(copy, params("dir", "copy")).unwrap().count, 10);
    check_planted(&fixture, "dir");
    check_planted(&fixture, "copy");
    fixture.call(copy, params("dir/outside-link", "link-copy")).unwrap();
    assert!(fs::symlink_metadata(fixture.at("link-copy")).unwrap().is_symlink());
    assert!(!fixture.names().iter().any(|name| name.ends_with(".tmp")));
}

#[test]
fn hole_16_pipes_are_copied_as_pipes() {
    let fixture = Fixture::new();
    fixture.put("dir/file", "x");
    fixture.fifo("dir/pipe");
    at_once(move || {
        fixture.call(copy, params("dir", "copy")).unwrap();
        let kind = fs::symlink_metadata(fixture.at("copy/pipe")).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    });
}

#[test]
fn cancelled_work_leaves_nothing_behind() {
    let fixture = Fixture::new();
    plant(&fixture);
    let before = fixture.names();
    fixture.assert_cancelled(copy, params("dir", "copy"));
    fixture.assert_cancelled(rename, params("dir", "x"));
    fixture.assert_cancelled(delete, json!({ "path": "dir", "recursive": true }));
    // In the middle of it.
    let cancel = never();
    let copying = parsed(params("dir", "copy"));
    let ends = MovePaths::open(&fixture.root, &copying, &cancel).unwrap();
    cancel.cancel();
    let stopped = ends.copy(&copying, &mut TreeWork::new(&cancel, false));
    assert_eq!(stopped.unwrap_err(), ServiceError::Cancelled);
    assert_eq!(fixture.names(), before);
}

#[test]
fn deleting_follows_no_link_and_spares_the_root() {
    let fixture = Fixture::new();
    plant(&fixture);
    fixture.link("../outside", "out");
    fixture.link("dir", "in");
    let before = fixture.outside_state();
    let remove =
        |path: &str, recursive| fixture.call(delete, json!({ "path": path, "recursive": recursive }));
    for path in [".", "./"] {
        assert_refused(ErrorCode::InvalidRequest, "root itself", remove(path, Some(true)));
    }
    assert_refused(ErrorCode::Conflict, "recursive", remove("dir", None));
    assert_eq!(remove("dir/empty", None).unwrap().count, 1);
    assert!(refused_as(ErrorCode::NotFound, remove("missing", None)).starts_with("bad path: No such"));
    assert!(words(remove("missing", Some(true))).starts_with("bad path: No such"));
    assert_eq!(words(remove("out/canary", Some(true))), "path escapes run cwd");
    assert_eq!(remove("out/", Some(true)).unwrap().count, 1);
    assert_eq!(remove("in", Some(true)).unwrap().count, 1);
    assert_eq!(fixture.text("dir/.env"), "dot too");
    assert_eq!(remove("dir", Some(true)).unwrap().count, 9);
    assert!(fixture.names().is_empty());
    assert_eq!(fixture.outside_state(), before);
}

#[test]
fn trees_that_are_too_deep_are_refused() {
    let fixture = Fixture::new();
    let deep = format!("top/{}", vec!["d"; 300].join("/"));
    fs::create_dir_all(fixture.at(&deep)).unwrap();
    assert_refused(ErrorCode::LimitReached, "levels deep", fixture.call(copy, params("top", "copy")));
    assert!(!fixture.at("copy").exists());
    let all = json!({ "path": "top", "recursive": true });
    assert_refused(ErrorCode::LimitReached, "levels deep", fixture.call(delete, all));
}
