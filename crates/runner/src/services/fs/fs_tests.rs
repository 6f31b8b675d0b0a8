//! Reading, listing, trees and facts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use qd_wire::ErrorCode;
use qd_wire::service::{FsReadData, FsTreeNode};
use serde_json::{Value, json};

use super::fixture::{Fixture, SECRET, assert_refused, at_once, call, words};
use super::*;
use crate::services::call::ServiceResult;
use crate::services::root::Root;

fn read_page(root: &Root, path: &str, offset: u64, length: Option<u64>) -> ServiceResult<FsReadData> {
    call(root, read, json!({ "path": path, "offset": offset, "length": length }))
}

#[test]
fn a_small_file_is_read_whole_with_its_hash() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "hello");
    let data = read_page(&fixture.root, "a.txt", 0, None).unwrap();
    assert_eq!(
        (data.content.as_str(), data.size, data.truncated, data.next_offset),
        ("hello", 5, false, None)
    );
    assert_eq!(data.hash.unwrap(), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert!(data.modified_at > 0);
    fixture.put("empty", "");
    let data = read_page(&fixture.root, "empty", 0, None).unwrap();
    assert_eq!((data.content.as_str(), data.size, data.truncated), ("", 0, false));
}

#[test]
fn hole_20_pages_of_text_are_cut_between_characters() {
    let fixture = Fixture::new();
    // 3 bytes each, so that 1 MiB ends inside one.
    let text = "中".repeat(700_000);
    fixture.put("long.txt", &text);
    let mut joined = String::new();
    let mut offset = 0;
    let mut pages = 0;
    loop {
        let data = read_page(&fixture.root, "long.txt", offset, None).unwrap();
        assert!(data.content.len() <= 1 << 20);
        assert_eq!(data.offset, offset);
        joined.push_str(&data.content);
        pages += 1;
        match data.next_offset {
            Some(next) => {
                assert!(data.truncated && data.hash.is_none());
                offset = next;
            }
            None => break,
        }
    }
    assert!(joined == text, "the pages are not the file");
    assert_eq!(pages, 3);
    // Less than a character is asked for, and it comes whole.
    fixture.put("mixed", "a€😀é");
    let mut joined = String::new();
    let mut offset = 0;
    while let Some(next) = {
        let data = read_page(&fixture.root, "mixed", offset, Some(1)).unwrap();
        joined.push_str(&data.content);
        data.next_offset
    } {
        assert!(next > offset);
        offset = next;
    }
    assert_eq!(joined, "a€😀é");
    let inside = read_page(&fixture.root, "mixed", 2, None);
    assert_refused(ErrorCode::InvalidRequest, "inside a character", inside);
}

#[test]
fn what_is_not_utf8_is_said_and_can_be_read_as_base64() {
    let fixture = Fixture::new();
    let bytes: Vec<u8> = (0..=255).collect();
    fixture.put("binary", &bytes);
    fixture.put("cut", "中".as_bytes().get(..2).unwrap());
    assert_eq!(words(read_page(&fixture.root, "binary", 0, None)), "file is not valid utf-8");
    assert_eq!(words(read_page(&fixture.root, "cut", 0, None)), "file is not valid utf-8");
    fixture.put("continuation", [0x80; 64]);
    assert_eq!(words(read_page(&fixture.root, "continuation", 0, Some(10))), "file is not valid utf-8");
    let page = json!({ "path": "binary", "offset": 100, "length": 50, "encoding": "base64" });
    let data = fixture.call(read, page).unwrap();
    assert_eq!(from_base64(&data.content).unwrap(), bytes.get(100..150).unwrap());
    assert_eq!((data.size, data.next_offset, data.truncated), (256, Some(150), true));
    let after = read_page(&fixture.root, "binary", 9999, None).unwrap();
    assert_eq!((after.content.as_str(), after.truncated, after.size), ("", false, 256));
}

#[test]
fn hole_16_a_fifo_is_refused_at_once() {
    let fixture = Fixture::new();
    fixture.fifo("pipe");
    fixture.link("pipe", "link-to-pipe");
    let listener = std::os::unix::net::UnixListener::bind(fixture.at("socket")).unwrap();
    at_once(move || {
        for path in ["pipe", "link-to-pipe", "socket"] {
            assert_eq!(words(read_page(&fixture.root, path, 0, None)), "path is not a regular file");
            let data = fixture.call(stat, json!({ "path": path, "hash": true })).unwrap();
            assert!(data.exists && !data.is_file && data.hash.is_none());
        }
        let listed = fixture.call(list, json!({})).unwrap();
        assert_eq!(listed.total, 3);
        let tree = fixture.call(tree, json!({})).unwrap();
        assert_eq!(tree.entries.iter().filter(|node| node.kind == "other").count(), 2);
    });
    drop(listener);
}

#[test]
fn a_device_is_not_opened() {
    let fixture = Fixture::new();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.at("socket")).unwrap();
    let mut names = vec!["socket"];
    // Only root may make one, so that nobody else has any but those of /dev.
    let (mode, zero) = (rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::makedev(1, 5));
    let kind = rustix::fs::FileType::CharacterDevice;
    if rustix::fs::mknodat(rustix::fs::CWD, fixture.at("zero"), kind, mode, zero).is_ok() {
        names.push("zero");
    }
    for name in names {
        assert_eq!(words(read_page(&fixture.root, name, 0, None)), "path is not a regular file");
        let params = json!({ "path": name, "content": "" });
        assert_eq!(words(call(&fixture.root, write, params)), "path is not a regular file");
    }
}

#[test]
fn a_cancelled_call_ends() {
    let fixture = Fixture::new();
    fixture.put("dir/a.txt", "x");
    fixture.assert_cancelled(read, json!({ "path": "dir/a.txt" }));
    fixture.assert_cancelled(stat, json!({ "path": "dir/a.txt", "hash": true }));
    fixture.assert_cancelled(list, json!({}));
    fixture.assert_cancelled(tree, json!({}));
}

#[test]
fn lists_are_sorted_and_paged() {
    let fixture = Fixture::new();
    for name in ["b.txt", "A.txt", "c.txt", ".hidden", "Zdir/x", "adir/x"] {
        fixture.put(name, "12345");
    }
    fixture.link("Zdir", "link-dir");
    fixture.link("../outside/canary", "link-out");
    let names = |params: Value| -> Vec<String> {
        fixture.call(list, params).unwrap().entries.into_iter().map(|entry| entry.name).collect()
    };
    let all = ["adir", "link-dir", "Zdir", "A.txt", "b.txt", "c.txt", "link-out"];
    assert_eq!(names(json!({})), all);
    let hidden = names(json!({ "include_hidden": true }));
    assert_eq!(hidden.get(3).unwrap(), ".hidden");
    let data = fixture.call(list, json!({ "offset": 2, "limit": 3 })).unwrap();
    assert_eq!((data.total, data.truncated, data.next_offset), (7, true, Some(5)));
    let data = fixture.call(list, json!({ "offset": 5, "limit": 3 })).unwrap();
    assert_eq!((data.entries.len(), data.truncated, data.next_offset), (2, false, None));
    let [c, out] = data.entries.as_slice() else { panic!("two") };
    assert_eq!((c.size_bytes, c.is_symlink, c.is_dir), (Some(5), false, false));
    assert_eq!((out.size_bytes, out.is_symlink, out.is_dir), (None, true, false));
    assert_eq!(words(fixture.call(list, json!({ "path": "b.txt" }))), "path is not a directory");
    assert_eq!(words(fixture.call(list, json!({ "path": "link-out" }))), "path escapes run cwd");
    assert_eq!(fixture.call(list, json!({ "path": "link-dir" })).unwrap().total, 1);
}

#[test]
fn a_tree_has_a_depth_and_does_not_follow_links() {
    let fixture = Fixture::new();
    fixture.put("a/b/c/d.txt", "1234");
    fixture.put(".git/config", "");
    fixture.link("../a", "a/up");
    fixture.link("../outside", "out");
    let data = fixture.call(tree, json!({})).unwrap();
    assert_eq!((data.total_entries, data.truncated, data.visited_nodes), (2, false, 4));
    let a = data.entries.first().unwrap();
    let [b, up] = a.children.as_deref().unwrap() else { panic!("two") };
    assert_eq!((b.path.as_str(), b.kind.as_str(), b.children.is_none()), ("a/b", "directory", true));
    assert_eq!((up.kind.as_str(), up.children.is_none()), ("symlink", true));
    let deep = fixture.call(tree, json!({ "depth": 99, "include_hidden": true })).unwrap();
    let text = serde_json::to_string(&deep).unwrap();
    assert!(text.contains("a/b/c/d.txt") && text.contains(".git/config"));
    assert!(!text.contains("canary") && !text.contains("secret"));
    let data = fixture.call(tree, json!({ "depth": 0, "limit": 1 })).unwrap();
    assert_eq!((data.entries.len(), data.next_offset, data.truncated), (1, Some(1), true));
    assert!(data.entries.first().unwrap().children.is_none());
}

#[test]
fn a_tree_that_is_too_large_says_so() {
    let fixture = Fixture::new();
    for dir in 0..3 {
        fs::create_dir(fixture.at(&format!("d{dir}"))).unwrap();
        for file in 0..9000 {
            fs::write(fixture.at(&format!("d{dir}/{file}")), "").unwrap();
        }
    }
    let data = fixture.call(tree, json!({})).unwrap();
    assert_eq!((data.truncated, data.stop_reason.as_deref()), (true, Some("max_nodes")));
    assert!(data.visited_nodes <= 20_000);
    let told: Vec<usize> =
        data.entries.iter().map(|node| node.children.as_ref().map_or(0, Vec::len)).collect();
    assert_eq!(told, [9000, 9000, 0], "each directory has all its children or none");
    let rest: &FsTreeNode = data.entries.last().unwrap();
    assert_eq!(fixture.call(tree, json!({ "path": rest.path })).unwrap().total_entries, 9000);
}

#[test]
fn facts_about_a_path() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "hello");
    fs::set_permissions(fixture.at("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    fixture.link("a.txt", "link");
    fixture.link("../outside/secret.txt", "out");
    fixture.link("nowhere", "dangling");
    let facts = |path: &str| fixture.call(stat, json!({ "path": path, "hash": true })).unwrap();
    let file = facts("a.txt");
    assert_eq!(
        (file.exists, file.is_file, file.is_symlink, file.size, file.mode),
        (true, true, false, 5, 0o640)
    );
    assert!(file.hash.unwrap().starts_with("2cf24dba") && file.modified_at > 0);
    let link = facts("link");
    assert_eq!((link.is_file, link.is_symlink, link.size), (true, true, 5));
    for path in ["out", "dangling"] {
        let link = facts(path);
        assert_eq!(
            (link.exists, link.is_file, link.is_symlink, link.hash),
            (true, false, true, None),
            "{path}"
        );
        assert_ne!(link.size, SECRET.len() as u64);
    }
    for path in ["missing", "missing/deeper", "a.txt/deeper"] {
        assert!(!facts(path).exists, "{path}");
    }
    assert!(facts(".").is_dir);
}

#[test]
fn a_path_that_is_not_there_is_named_with_its_directory() {
    let fixture = Fixture::new();
    let root = fixture.root.path().display().to_string();
    let missing = words(fixture.call(read, json!({ "path": "notes/plan.md" })));
    assert_eq!(missing, format!("bad path: notes/plan.md: No such file or directory in {root}"));
    let missing = words(fixture.call(rename, json!({ "from": "a.md", "to": "b.md" })));
    assert_eq!(missing, format!("bad path: a.md -> b.md: No such file or directory in {root}"));
}
