use std::path::Path;

use qd_wire::ErrorCode;

use super::*;
use crate::services::fs::fixture::{Fixture, refused_as, words};

fn parse_error(path: &str, expected: &str) {
    assert_eq!(words(RelativePath::parse(path)), expected, "{path:?}");
}

#[test]
fn paths_are_refused_by_their_text_alone() {
    parse_error("", "missing path");
    parse_error("/", "path must be relative");
    parse_error("/etc/passwd", "path must be relative");
    parse_error("//a", "path must be relative");
    parse_error("..", "path contains ..");
    parse_error("a/../b", "path contains ..");
    parse_error("a/..", "path contains ..");
    parse_error("../", "path contains ..");
    parse_error("a\0b", "invalid path");
    parse_error("a//b", "invalid path");
    parse_error("a//", "invalid path");
    parse_error(&"x".repeat(256), "invalid path");
    parse_error(&format!("ok/{}", "ä".repeat(128)), "invalid path");
    parse_error(&"a/".repeat(2049), "invalid path");
}

#[test]
fn paths_are_cleaned_of_dots() {
    for (path, expected) in [
        (".", ""),
        ("./", ""),
        ("././.", ""),
        ("./a", "a"),
        ("a/./b/", "a/b"),
        ("...", "..."),
        ("．．/a", "．．/a"),
        ("a\\..\\b", "a\\..\\b"),
        ("~", "~"),
        (" ", " "),
    ] {
        assert_eq!(RelativePath::parse(path).unwrap().as_path(), Path::new(expected), "{path:?}");
    }
    assert!(RelativePath::parse_or_root(None).unwrap().is_root());
    assert!(RelativePath::parse_or_root(Some("")).unwrap().is_root());
    assert!(RelativePath::parse(&"x".repeat(255)).is_ok());
}

#[test]
fn links_are_followed_only_if_they_stay_inside() {
    let fixture = Fixture::new();
    fixture.put("dir/file.txt", "inside");
    fixture.link("dir/file.txt", "relative");
    fixture.link(fixture.at("dir/file.txt"), "absolute");
    fixture.link(fixture.at("dir"), "absolute-dir");
    fixture.link(fixture.root.path(), "absolute-root");
    fixture.link("../outside/secret.txt", "out");
    fixture.link(fixture.outside.join("secret.txt"), "absolute-out");
    fixture.link("../root/dir/file.txt", "out-and-back");
    fixture.link("loop", "loop");
    let open = |path: &str| fixture.root.open_file(&RelativePath::parse(path).unwrap());
    for path in
        ["relative", "absolute", "absolute-dir/file.txt", "absolute-root/dir/file.txt", "out-and-back"]
    {
        assert!(open(path).is_ok(), "{path}");
    }
    for path in ["out", "absolute-out"] {
        assert_eq!(words(open(path)), "path escapes run cwd", "{path}");
    }
    assert!(words(open("loop")).starts_with("bad path: "), "{}", words(open("loop")));
    assert_eq!(words(open("dir")), "path is a directory");
    assert_eq!(words(open("dir/file.txt/")), "path is a directory");
    assert_eq!(
        refused_as(ErrorCode::NotFound, open("missing")),
        "bad path: No such file or directory (os error 2)"
    );
    let dir = |path: &str| fixture.root.open_dir(&RelativePath::parse(path).unwrap());
    assert_eq!(words(dir("dir/file.txt")), "path is not a directory");
    assert!(dir("absolute-root").is_ok());
}

#[test]
fn the_root_must_be_a_directory() {
    let fixture = Fixture::new();
    assert!(words(Root::open(&fixture.outside.join("secret.txt"))).starts_with("bad path: "));
    assert!(
        refused_as(ErrorCode::NotFound, Root::open(Path::new("/no/such/directory")))
            .starts_with("bad path: ")
    );
}

#[test]
fn missing_directories_are_made_beneath_the_root_only() {
    let fixture = Fixture::new();
    fixture.link("../outside/canary", "out");
    fixture.link("../outside/new", "dangling");
    fixture.put("file", "");
    let before = fixture.outside_state();
    let create = |path: &str| fixture.root.create_dirs(&RelativePath::parse(path).unwrap());
    assert_eq!(create("a/b/c").unwrap(), 3);
    assert_eq!(create("a/b/d").unwrap(), 1);
    assert_eq!(create("a/b").unwrap(), 0);
    assert_eq!(words(create("out/x")), "path escapes run cwd");
    assert_eq!(words(create("dangling/x")), "path escapes run cwd");
    assert!(refused_as(ErrorCode::NotFound, create("file/x")).starts_with("bad path: "));
    assert_eq!(fixture.outside_state(), before);
}
