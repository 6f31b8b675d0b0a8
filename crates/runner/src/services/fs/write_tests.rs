use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Barrier;

use super::*;
use crate::services::fs::fixture::{Fixture, at_once, words};

fn never() -> Cancellation {
    Cancellation::default()
}

fn params(path: &str, content: &str) -> FsWriteParams {
    FsWriteParams { path: path.into(), content: content.into(), ..FsWriteParams::default() }
}

fn hash_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_mode() {
    let fixture = Fixture::new();
    let data = write(&fixture.root, &params("new.txt", "hello"), &never()).unwrap();
    assert_eq!((data.bytes_written, data.truncated, data.hash), (5, false, hash_of("hello")));
    fixture.put("tool.sh", "old");
    fs::set_permissions(fixture.at("tool.sh"), fs::Permissions::from_mode(0o4750)).unwrap();
    let number = fs::metadata(fixture.at("tool.sh")).unwrap().ino();
    let open = fs::File::open(fixture.at("tool.sh")).unwrap();
    write(&fixture.root, &params("tool.sh", "new"), &never()).unwrap();
    let now = fs::metadata(fixture.at("tool.sh")).unwrap();
    assert_eq!(now.mode() & 0o7777, 0o750, "rights are kept, running as another user is not");
    assert_ne!(now.ino(), number, "it was renamed into place");
    assert_eq!(std::io::read_to_string(open).unwrap(), "old", "whoever reads the old file reads it whole");
    assert_eq!(fixture.names(), ["new.txt", "tool.sh"], "no temporary file is left");
}

#[test]
fn base64_and_parents() {
    let fixture = Fixture::new();
    let binary = FsWriteParams {
        encoding: Some(Encoding::Base64),
        create_parents: Some(true),
        ..params("a/b/c.bin", "AP+A")
    };
    write(&fixture.root, &binary, &never()).unwrap();
    assert_eq!(fs::read(fixture.at("a/b/c.bin")).unwrap(), [0, 255, 128]);
    assert_eq!(
        words(write(&fixture.root, &params("x/y.txt", ""), &never())),
        "bad path: No such file or directory (os error 2)"
    );
    let bad = FsWriteParams { encoding: Some(Encoding::Base64), ..params("bad", "%%%") };
    assert!(words(write(&fixture.root, &bad, &never())).contains("not valid base64"));
    assert!(!fixture.at("bad").exists() && !fixture.at("x").exists());
}

#[test]
fn a_directory_is_not_written() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.at("dir")).unwrap();
    fixture.link("dir", "link");
    for path in ["dir", "dir/", ".", "new/", "link"] {
        assert_eq!(
            words(write(&fixture.root, &params(path, "x"), &never())),
            "path is a directory",
            "{path}"
        );
    }
    assert_eq!(fixture.names(), ["dir", "link"]);
}

#[test]
fn hole_03_a_dangling_symlink_creates_nothing_outside() {
    let fixture = Fixture::new();
    fixture.link("../outside/created.txt", "relative");
    fixture.link(fixture.outside.join("created.txt"), "absolute");
    fixture.link("../outside/secret.txt", "existing");
    fixture.link("relative", "chain");
    fixture.link("../outside", "dir");
    let before = fixture.outside_state();
    for path in ["relative", "absolute", "existing", "chain", "dir/created.txt", "dir/new/created.txt"] {
        for create_parents in [None, Some(true)] {
            let params = FsWriteParams { create_parents, ..params(path, "written") };
            assert_eq!(words(write(&fixture.root, &params, &never())), "path escapes run cwd", "{path}");
        }
    }
    assert_eq!(fixture.outside_state(), before);
}

#[test]
fn links_that_stay_inside_are_written_through() {
    let fixture = Fixture::new();
    fixture.put("dir/target.txt", "old");
    fixture.link("dir/target.txt", "link");
    fixture.link("dir/later.txt", "dangling");
    fixture.link(fixture.at("dir/absolute.txt"), "absolute");
    fixture.link("loop", "loop");
    for (path, target) in [("link", "target"), ("dangling", "later"), ("absolute", "absolute")] {
        write(&fixture.root, &params(path, "new"), &never()).unwrap();
        assert_eq!(fixture.text(&format!("dir/{target}.txt")), "new");
        assert!(fs::symlink_metadata(fixture.at(path)).unwrap().is_symlink(), "{path} is still a link");
    }
    assert!(words(write(&fixture.root, &params("loop", "x"), &never())).starts_with("bad path: "));
}

#[test]
fn hole_16_a_fifo_is_not_written() {
    let fixture = Fixture::new();
    fixture.fifo("pipe");
    at_once(move || {
        assert_eq!(words(write(&fixture.root, &params("pipe", "x"), &never())), "path is not a regular file");
        let guarded = FsWriteParams { expected_hash: Some("00".into()), ..params("pipe", "x") };
        assert_eq!(words(write(&fixture.root, &guarded, &never())), "path is not a regular file");
    });
}

#[test]
fn hole_21_a_write_that_is_too_large_is_an_error_and_the_file_stays() {
    let fixture = Fixture::new();
    fixture.put("big", "as it was");
    let content = "x".repeat(WRITE_BYTES_MAX + 1);
    let error = words(write(&fixture.root, &params("big", &content), &never()));
    assert!(error.contains("32 MiB") && error.contains("fs.upload"), "{error}");
    assert_eq!(fixture.text("big"), "as it was");
    // The run document's limit of 1 MiB is no limit here: all of it arrives.
    let content = "é".repeat(1 << 20);
    write(&fixture.root, &params("big", &content), &never()).unwrap();
    assert!(fixture.text("big") == content);
}

#[test]
fn the_expected_hash_guards_what_others_wrote() {
    let fixture = Fixture::new();
    let guarded = |content: &str, expected: &str| {
        let params = FsWriteParams { expected_hash: Some(expected.into()), ..params("a.txt", content) };
        write(&fixture.root, &params, &never())
    };
    assert!(words(guarded("x", &hash_of("one"))).contains("there is none now"));
    guarded("one", "").unwrap();
    let error = words(guarded("two", ""));
    assert!(error.contains(&hash_of("one")), "{error}");
    let error = words(guarded("two", &hash_of("other")));
    assert!(error.contains(&hash_of("one")), "{error}");
    assert_eq!(fixture.text("a.txt"), "one");
    guarded("two", &hash_of("one").to_uppercase()).unwrap();
    assert_eq!(fixture.text("a.txt"), "two");
    assert_eq!(fixture.names(), ["a.txt"]);
}

#[test]
fn of_many_writers_that_expect_the_same_one_wins() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "0");
    for round in 0..20 {
        let expected = hash_of(&fixture.text("a.txt"));
        let barrier = Barrier::new(8);
        let (root, barrier, expected) = (&fixture.root, &barrier, &expected);
        let won = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    scope.spawn(move || {
                        let params = FsWriteParams {
                            expected_hash: Some(expected.clone()),
                            ..params("a.txt", &format!("{round} {writer}"))
                        };
                        barrier.wait();
                        write(root, &params, &never()).is_ok()
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).filter(|is_ok| *is_ok).count()
        });
        assert_eq!(won, 1);
    }
}

#[test]
fn a_cancelled_write_changes_nothing() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "old");
    let cancel = never();
    cancel.cancel();
    assert_eq!(write(&fixture.root, &params("a.txt", "new"), &cancel).unwrap_err(), ServiceError::Cancelled);
    assert_eq!(fixture.text("a.txt"), "old");
    assert_eq!(fixture.names(), ["a.txt"]);
}
