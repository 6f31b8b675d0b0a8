use std::fs;

use super::*;
use crate::services::fs::fixture::{Fixture, SECRET, at_once, words};

fn never() -> Cancellation {
    Cancellation::default()
}

fn params(query: &str) -> FsSearchParams {
    FsSearchParams { query: query.into(), ..FsSearchParams::default() }
}

fn find(fixture: &Fixture, params: &FsSearchParams) -> Vec<String> {
    let data = search(&fixture.root, params, &never()).unwrap();
    data.matches
        .into_iter()
        .map(|hit| format!("{}:{}:{}:{}", hit.path, hit.line, hit.column, hit.text))
        .collect()
}

fn paths(fixture: &Fixture, params: &FsSearchParams) -> Vec<String> {
    search(&fixture.root, params, &never()).unwrap().matches.into_iter().map(|hit| hit.path).collect()
}

#[test]
fn lines_are_found_in_the_order_of_the_paths() {
    let fixture = Fixture::new();
    fixture.put("b.txt", "nothing\nneedle here\r\nä needle needle\n");
    fixture.put("a/z.txt", "needle");
    fixture.put("a/b/c.txt", "a needle");
    let data = search(&fixture.root, &params("needle"), &never()).unwrap();
    assert_eq!((data.files_searched, data.truncated, data.next), (3, false, None));
    assert_eq!(
        find(&fixture, &params("needle")),
        [
            "a/b/c.txt:1:3:a needle",
            "a/z.txt:1:1:needle",
            "b.txt:2:1:needle here",
            "b.txt:3:3:ä needle needle"
        ]
    );
    assert_eq!(find(&fixture, &FsSearchParams { path: Some("a/b".into()), ..params("needle") }).len(), 1);
    assert_eq!(find(&fixture, &FsSearchParams { path: Some("b.txt".into()), ..params("needle") }).len(), 2);
    assert!(find(&fixture, &params("absent")).is_empty());
}

#[test]
fn a_query_is_text_or_an_expression_and_capitals_are_smart() {
    let fixture = Fixture::new();
    fixture.put("f", "a.b\naxb\nHello\nhello\r\n");
    let lines = |params: &FsSearchParams| -> Vec<u64> {
        search(&fixture.root, params, &never()).unwrap().matches.iter().map(|hit| hit.line).collect()
    };
    assert_eq!(lines(&params("a.b")), [1]);
    assert_eq!(lines(&FsSearchParams { regex: Some(true), ..params("a.b") }), [1, 2]);
    assert_eq!(lines(&FsSearchParams { regex: Some(true), ..params("^hello$") }), [3, 4]);
    assert_eq!(lines(&params("hello")), [3, 4]);
    assert_eq!(lines(&params("Hello")), [3]);
    assert_eq!(lines(&FsSearchParams { case_sensitive: Some(false), ..params("HELLO") }), [3, 4]);
    assert_eq!(lines(&FsSearchParams { case_sensitive: Some(true), ..params("hello") }), [4]);
    let bad = FsSearchParams { regex: Some(true), ..params("a(") };
    assert!(words(search(&fixture.root, &bad, &never())).contains("not a valid regular expression"));
    let huge = FsSearchParams { regex: Some(true), ..params(r"(\pL{1000}){1000}") };
    assert!(words(search(&fixture.root, &huge, &never())).contains("not a valid regular expression"));
    assert_eq!(words(search(&fixture.root, &params(""), &never())), "missing q");
    assert!(words(search(&fixture.root, &params("a\nb"), &never())).contains("more than one line"));
    assert!(words(search(&fixture.root, &params(&"x".repeat(5000)), &never())).contains("4096"));
}

#[test]
fn hole_04_a_query_is_never_an_argument() {
    let fixture = Fixture::new();
    let file = format!("--file={}", fixture.outside.join("secret.txt").display());
    let queries = ["-e", "--", "--pre=sh", "-f/etc/passwd", "--files", "--help", &file];
    fixture.put("f", queries.join("\n"));
    for query in queries {
        for regex in [None, Some(true)] {
            let params = FsSearchParams { regex, ..params(query) };
            let text = match search(&fixture.root, &params, &never()) {
                Ok(data) => {
                    assert!(!data.matches.is_empty(), "{query} is in the file");
                    serde_json::to_string(&data).unwrap()
                }
                Err(error) => error.to_string(),
            };
            assert!(!text.contains(SECRET) && !text.contains("root:"), "{text}");
        }
    }
}

#[test]
fn ignored_hidden_and_binary_files_are_left_out() {
    let fixture = Fixture::new();
    fixture.put(".gitignore", "*.log\n/build/\n!keep.log\n");
    fixture.put(".git/info/exclude", "excluded\n");
    fixture.put(".git/needle", "needle");
    fixture.put("sub/.gitignore", "!important.log\nlocal\n");
    fixture.put("sub/.ignore", "searchers\n");
    for name in [
        "a.txt",
        "a.log",
        "keep.log",
        "build/x",
        "sub/build/x",
        "sub/important.log",
        "sub/other.log",
        "sub/local",
        "local",
        "excluded",
        "sub/searchers",
        ".hidden",
        ".config/x",
    ] {
        fixture.put(name, "needle");
    }
    fixture.put("binary", b"needle\n\0\nneedle");
    let expected = ["a.txt", "keep.log", "local", "sub/build/x", "sub/important.log"];
    assert_eq!(paths(&fixture, &params("needle")), expected);
    // What is said above the searched directory counts too.
    let below = FsSearchParams { path: Some("sub".into()), ..params("needle") };
    assert_eq!(paths(&fixture, &below), ["sub/build/x", "sub/important.log"]);
    let hidden = FsSearchParams { include_hidden: Some(true), ..params("needle") };
    assert_eq!(paths(&fixture, &hidden).get(..2).unwrap(), [".config/x", ".hidden"]);
    assert!(!paths(&fixture, &hidden).iter().any(|path| path.starts_with(".git/")));
}

#[test]
fn globs_narrow_the_search() {
    let fixture = Fixture::new();
    for name in ["a.rs", "b.ts", "src/c.rs", "src/gen/d.rs", ".hidden.rs"] {
        fixture.put(name, "needle");
    }
    let globs = |globs: &[&str]| {
        let globs = Some(globs.iter().map(|glob| (*glob).to_owned()).collect());
        paths(&fixture, &FsSearchParams { globs, ..params("needle") })
    };
    assert_eq!(globs(&["*.rs"]), ["a.rs", "src/c.rs", "src/gen/d.rs"]);
    assert_eq!(globs(&["*.rs", "!src/gen/**"]), ["a.rs", "src/c.rs"]);
    assert_eq!(globs(&["!*.rs"]), ["b.ts"]);
    assert_eq!(globs(&["src/*.rs"]), ["src/c.rs"]);
    let bad = FsSearchParams { globs: Some(vec!["[".into()]), ..params("needle") };
    assert!(words(search(&fixture.root, &bad, &never())).contains("glob"));
}

#[test]
fn pages_go_on_where_the_last_one_ended() {
    let fixture = Fixture::new();
    for name in ["a", "b/a", "b/b/c", "b-", "b.txt", "c/d", "z"] {
        fixture.put(name, "needle\nno\nneedle needle\nneedle\n");
    }
    let all = find(&fixture, &params("needle"));
    assert_eq!(all.len(), 21);
    for limit in [1, 2, 3, 4, 20, 21] {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = FsSearchParams { limit: Some(limit), after: after.clone(), ..params("needle") };
            let data = search(&fixture.root, &page, &never()).unwrap();
            assert!(data.matches.len() as u64 <= limit);
            assert_eq!(data.truncated, data.next.is_some());
            found.extend(find(&fixture, &page));
            after = data.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "limit {limit}");
    }
    // One that has taken too long ends after the file it is at, and goes on with the next one.
    let mut found = Vec::new();
    let mut after: Option<SearchPlace> = None;
    loop {
        let page = FsSearchParams { after: after.clone(), ..params("needle") };
        let data = search_within(&fixture.root, &page, &never(), Duration::ZERO).unwrap();
        found.extend(data.matches.into_iter().map(|hit| hit.path));
        after = match data.next {
            Some(next) => Some(serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap()),
            None => break,
        };
    }
    assert_eq!(found, paths(&fixture, &params("needle")));
}

#[test]
fn long_lines_are_cut_around_the_hit() {
    let fixture = Fixture::new();
    fixture.put("long", format!("{}needle{}", "中".repeat(5000), "文".repeat(5000)));
    fixture.put("short", format!("needle{}", "x".repeat(394)));
    let data = search(&fixture.root, &params("needle"), &never()).unwrap();
    let [long, short] = data.matches.as_slice() else { panic!("two") };
    assert_eq!((long.column, long.text.chars().count()), (5001, 402));
    assert!(long.text.starts_with("…中") && long.text.ends_with("文…") && long.text.contains("中needle文"));
    assert_eq!(short.text.len(), 400);
    fixture.put("long", [b"\xff\xfe\xfa ".as_slice(), b"needle \xff"].concat());
    let lossy = find(&fixture, &FsSearchParams { path: Some("long".into()), ..params("needle") });
    assert!(lossy.iter().all(|hit| hit.contains("needle")), "{lossy:?}");
}

#[test]
fn links_are_not_followed() {
    let fixture = Fixture::new();
    fixture.put("real/f", "needle");
    fixture.link("real", "link");
    fixture.link("real/f", "file-link");
    fixture.link("../outside", "out");
    fixture.link(fixture.outside.join("secret.txt"), "secret");
    fixture.link(fixture.outside.join("secret.txt"), ".gitignore");
    assert_eq!(paths(&fixture, &params("needle")), ["real/f"]);
    let hidden = FsSearchParams { include_hidden: Some(true), ..params("TOP-SECRET") };
    assert!(find(&fixture, &hidden).is_empty());
    for path in ["out", "secret"] {
        let params = FsSearchParams { path: Some(path.into()), ..params("TOP-SECRET") };
        assert_eq!(words(search(&fixture.root, &params, &never())), "path escapes run cwd");
    }
}

#[test]
fn hole_16_pipes_are_not_opened() {
    let fixture = Fixture::new();
    fixture.fifo("pipe");
    fs::create_dir(fixture.at("sub")).unwrap();
    fixture.fifo("sub/.gitignore");
    fixture.fifo(".ignore");
    fixture.put("f", "needle");
    at_once(move || {
        let hidden = FsSearchParams { include_hidden: Some(true), ..params("needle") };
        assert_eq!(paths(&fixture, &hidden), ["f"]);
        let pipe = FsSearchParams { path: Some("pipe".into()), ..params("needle") };
        assert_eq!(words(search(&fixture.root, &pipe, &never())), "path is not a directory");
    });
}

#[test]
fn a_cancelled_search_ends() {
    let fixture = Fixture::new();
    fixture.put("f", "needle");
    let cancel = never();
    cancel.cancel();
    assert_eq!(search(&fixture.root, &params("needle"), &cancel).unwrap_err(), ServiceError::Cancelled);
    let until = CancellableFile { file: fs::File::open(fixture.at("f")).unwrap(), cancel: &cancel };
    assert!(io::read_to_string(until).is_err(), "also in the middle of a file");
}
