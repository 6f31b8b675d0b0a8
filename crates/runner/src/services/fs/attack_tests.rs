//! Thousands of hostile paths, and directories that become links while calls run: nothing outside the root is ever read
//! or changed.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qd_wire::service::FsUploadParams;
use rustix::fs::RenameFlags;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::fixture::{Fixture, SECRET, call};
use super::*;
use crate::services::call::{Cancellation, ServiceResult};
use crate::services::root::Root;
use crate::services::search::search;

/// Paths of the generated attack.
const PATHS: u64 = 10_000;

/// After so many the tree is planted anew, because the attacks destroy it.
const PLANTING: u64 = 40;

/// Rounds of the race, each of more than a hundred calls: about two seconds.
const RACES: u64 = 80;

/// Numbers that are the same in every run.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn next(&mut self) -> u64 {
        // xorshift64*, good enough to mix names.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &'a [String]) -> &'a str {
        &from[self.below(from.len())]
    }
}

/// Names that are there, and names of what is outside.
#[rustfmt::skip]
const PLANTED: [&str; 29] = [
    "dir", "sub", "file.txt", "out", "out-file", "abs-out", "abs-file", "dangling", "abs-dangling", "loop-a", "loop-b",
    "chain-1", "chain-9", "up", "up-up", "in", "abs-in", "proc", "self-out", "secret.txt", "canary", "bird", "deep",
    "created", "outside", "root", "etc", "passwd", "cwd",
];

/// Names that lead up, or only look so to somebody.
#[rustfmt::skip]
const ODD: [&str; 50] = [
    "..", "..", "..", ".", "", "...", "....", ".. ", " ..", "..\u{200b}", "．．", "‥", "。。", "․․", "..\\", "..\\..",
    "\\..\\..\\outside", "C:\\", "\u{202e}txt.terces", "e\u{301}", "\u{301}", "\u{feff}..", "%2e%2e", "%2e%2e%2f",
    "..%00", "..;", "~", "~root", "$HOME", "`id`", "-rf", "--", "*", "\n", "\r\n..", "\t", "a\0b", "\0", "..\0",
    "\u{1F3F4}\u{E0067}", "مرحبا", "中文", "con", "aux.txt", "\u{7f}", "\\\\server\\share", "\u{ff0f}etc", "／",
    "..\u{2215}..", "..\u{2044}..",
];

fn names(fixture: &Fixture) -> Vec<String> {
    let mut names: Vec<String> =
        PLANTED.iter().chain(&PLANTED).chain(&ODD).map(|name| (*name).to_owned()).collect();
    names.push("x".repeat(255));
    names.push("x".repeat(256));
    names.push("長".repeat(90));
    names.push(fixture.outside.display().to_string());
    names.push(fixture.outside.join("secret.txt").display().to_string());
    names.push(format!("../{}", fixture.outside.file_name().unwrap().to_string_lossy()));
    names
}

/// A tree full of ways out.
fn plant(fixture: &Fixture) {
    for entry in fs::read_dir(fixture.root.path()).unwrap() {
        let path = entry.unwrap().path();
        let removed = if fs::symlink_metadata(&path).unwrap().is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.unwrap();
    }
    fixture.put("file.txt", "inside");
    fixture.put("dir/sub/file.txt", "inside");
    fixture.put("dir/sub/deep/bird", "inside");
    fixture.put("sub/dir/file.txt", "inside");
    let links = [
        ("../outside", "out"),
        ("../outside/secret.txt", "out-file"),
        ("../outside/created", "dangling"),
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
        ("dir/sub", "in"),
        ("..", "up"),
        ("../..", "up-up"),
        ("/proc/self/root", "proc"),
        ("../root/../outside/secret.txt", "self-out"),
        ("../../outside", "dir/out"),
        ("../../outside/created", "dir/dangling"),
        ("../../../outside", "dir/sub/out"),
        ("../../../outside/canary", "dir/sub/canary"),
        ("../out", "sub/up"),
        ("../out/secret.txt", "sub/secret.txt"),
    ];
    for (target, path) in links {
        fixture.link(target, path);
    }
    fixture.link(&fixture.outside, "abs-out");
    fixture.link(fixture.outside.join("secret.txt"), "abs-file");
    fixture.link(fixture.outside.join("created"), "abs-dangling");
    fixture.link(fixture.at("dir"), "abs-in");
    for number in 1..9 {
        fixture.link(format!("chain-{}", number + 1), &format!("chain-{number}"));
    }
    fixture.link("../outside", "chain-9");
}

/// A hostile path.
fn generate(numbers: &mut SeededNumbers, names: &[String]) -> String {
    let mut path = String::new();
    if numbers.below(12) == 0 {
        path.push('/');
    }
    if numbers.below(6) == 0 {
        path.push_str("./");
    }
    for part in 0..=numbers.below(6) {
        if part > 0 {
            path.push_str(["/", "/", "/", "/", "/", "//", "/./", "/../"][numbers.below(8)]);
        }
        path.push_str(numbers.pick(names));
    }
    match numbers.below(12) {
        0 => path.push('/'),
        1 => path.push_str("/."),
        2 => path.push_str("/secret.txt"),
        3 => path.push_str("/created"),
        4 => path = format!("{}/{path}", "d/".repeat(2048)),
        _ => {}
    }
    path
}

/// What a call said, whatever it was.
struct AttackLog<'a> {
    secret_hash: &'a str,
    answered: u64,
    refused: u64,
}

impl AttackLog<'_> {
    fn check<T: Serialize>(&mut self, what: &str, path: &str, result: ServiceResult<T>) {
        let text = match result {
            Ok(data) => {
                self.answered += 1;
                serde_json::to_string(&data).unwrap()
            }
            Err(error) => {
                self.refused += 1;
                error.to_string()
            }
        };
        // Names that a client sent come back; those that only the outside has are told by nobody.
        let is_told = |word: &str| text.contains(word) && !path.contains(word);
        let is_leak = text.contains(SECRET)
            || text.contains(&super::to_base64(SECRET.as_bytes()))
            || text.contains(self.secret_hash)
            || text.contains("alive")
            || is_told("only-outside");
        assert!(!is_leak, "{what} of {path:?} said {text}");
    }
}

/// Every operation there is with one path.
fn attack(root: &Root, uploads: &UploadTable, path: &str, number: u64, said: &mut AttackLog<'_>) {
    for encoding in ["text", "base64"] {
        said.check("read", path, call(root, read, json!({ "path": path, "encoding": encoding })));
    }
    said.check("stat", path, call(root, stat, json!({ "path": path, "hash": true })));
    said.check("list", path, call(root, list, json!({ "path": path, "include_hidden": true })));
    said.check("tree", path, call(root, tree, json!({ "path": path, "depth": 8 })));
    let query = json!({ "query": "SECRET", "path": path, "include_hidden": true });
    said.check("search", path, call(root, search, query));
    change(root, uploads, path, number, said);
}

fn change(root: &Root, uploads: &UploadTable, path: &str, number: u64, said: &mut AttackLog<'_>) {
    let create_parents = number.is_multiple_of(2);
    let file = json!({ "path": path, "content": "ATTACK", "create_parents": create_parents });
    said.check("write", path, call(root, write, file));
    for (what, offset, last, abort) in
        [("upload", 0, false, false), ("upload", 8, true, false), ("abort", 0, false, true)]
    {
        let params = FsUploadParams {
            upload_id: number.to_string(),
            path: path.into(),
            offset,
            data: super::to_base64(b"UPLOADED"),
            last: Some(last),
            abort: Some(abort),
            create_parents: Some(create_parents),
            ..FsUploadParams::default()
        };
        let never = Cancellation::default();
        said.check(what, path, upload(uploads, root, &params, UploadSender::default(), &never));
    }
    let directory = json!({ "path": path, "create_parents": create_parents });
    said.check("create_directory", path, call(root, create_directory, directory));
    let overwrite = number.is_multiple_of(3);
    let ends = |from: &str, to: &str| json!({ "from": from, "to": to, "overwrite": overwrite, "create_parents": create_parents });
    let (copied, moved) = (format!("copy-{number}"), format!("moved-{number}"));
    said.check("copy from", path, call(root, copy, ends(path, &copied)));
    said.check("copy to", path, call(root, copy, ends("file.txt", path)));
    said.check("copy to", path, call(root, copy, ends("out", path)));
    said.check("rename from", path, call(root, rename, ends(path, &moved)));
    said.check("rename to", path, call(root, rename, ends(&moved, path)));
    said.check("read copy", path, call(root, read, json!({ "path": copied })));
    said.check("delete", path, call(root, delete, json!({ "path": path, "recursive": create_parents })));
}

#[test]
fn hole_03_ten_thousand_hostile_paths_never_leave_the_root() {
    let fixture = Fixture::new();
    let before = fixture.outside_state();
    let secret_hash = hex(&Sha256::digest(SECRET.as_bytes()));
    let mut said = AttackLog { secret_hash: &secret_hash, answered: 0, refused: 0 };
    let names = names(&fixture);
    let mut numbers = SeededNumbers(0x5eed_0000_0001);
    let uploads = UploadTable::default();
    for number in 0..PATHS {
        if number.is_multiple_of(PLANTING) {
            plant(&fixture);
        }
        let path = generate(&mut numbers, &names);
        attack(&fixture.root, &uploads, &path, number, &mut said);
        if number % PLANTING == PLANTING - 1 {
            assert_eq!(fixture.outside_state(), before, "after {number} paths, the last of them {path:?}");
        }
    }
    assert_eq!(fixture.outside_state(), before);
    // An attack that is always refused, or never, tests nothing.
    assert!(
        said.answered > PATHS && said.refused > PATHS,
        "{} answered, {} refused",
        said.answered,
        said.refused
    );
}

#[test]
fn a_directory_that_becomes_a_link_during_calls_never_leads_out() {
    let fixture = Fixture::new();
    let before = fixture.outside_state();
    let secret_hash = hex(&Sha256::digest(SECRET.as_bytes()));
    let mut said = AttackLog { secret_hash: &secret_hash, answered: 0, refused: 0 };
    fixture.put("swap/file.txt", "inside");
    fixture.link("../outside", "swap-link");
    let ended = AtomicBool::new(false);
    let swaps = AtomicU64::new(0);
    let (from, to) = (fixture.at("swap"), fixture.at("swap-link"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &from, cwd, &to, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Whatever happens here, the other thread must end.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let uploads = UploadTable::default();
            for number in 0..RACES {
                race(&fixture, &uploads, number, &mut said);
            }
        }));
        ended.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(fixture.outside_state(), before);
    let swaps = swaps.load(Ordering::Relaxed);
    assert!(swaps > 1000, "only {swaps} swaps");
    assert!(
        said.answered > 1000 && said.refused > 1000,
        "{} answered, {} refused",
        said.answered,
        said.refused
    );
}

/// The operations that could be led astray, on names that both sides of the link have.
fn race(fixture: &Fixture, uploads: &UploadTable, number: u64, said: &mut AttackLog<'_>) {
    for name in ["secret.txt", "canary", "canary/bird", "canary/deep", "created"] {
        let path = format!("swap/{name}");
        let root = &fixture.root;
        // Both the directory and the link have these names, so that every call has something to find.
        let parents = json!({ "path": "swap/canary/deep", "create_parents": true });
        said.check("prepare", &path, call(root, create_directory, parents));
        for file in ["swap/secret.txt", "swap/canary/bird", "swap/canary/deep/bird"] {
            said.check("prepare", &path, call(root, write, json!({ "path": file, "content": "inside" })));
        }
        attack(root, uploads, &path, number, said);
        for leftover in [format!("copy-{number}"), format!("moved-{number}")] {
            said.check("tidy", &path, call(root, delete, json!({ "path": leftover, "recursive": true })));
        }
    }
    // The walks from the root pass the directory too.
    attack_walks(&fixture.root, said);
}

fn attack_walks(root: &Root, said: &mut AttackLog<'_>) {
    said.check("tree", "", call(root, tree, json!({ "depth": 8 })));
    said.check("search", "", call(root, search, json!({ "query": "SECRET" })));
    said.check("copy", "", call(root, copy, json!({ "from": "swap", "to": "copied" })));
    said.check("read", "", call(root, read, json!({ "path": "copied/secret.txt" })));
    said.check("delete", "", call(root, delete, json!({ "path": "copied", "recursive": true })));
}
