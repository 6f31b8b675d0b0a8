//! The data directory in the middle of a root, with links to it and with other names.

use std::fs;

use serde_json::json;

use super::*;
use crate::services::fs as files;
use crate::services::fs::fixture::{Fixture, SECRET, call, words};
use crate::services::root::Root;
use crate::services::search::search;

const REFUSED: &str = "path is Quarterdeck's own data";

struct OwnDataFixture {
    fixture: Fixture,
    own: OwnDirectory,
    root: Root,
}

fn world() -> OwnDataFixture {
    let fixture = Fixture::new();
    fixture.put("home/data/owner.token", SECRET);
    fixture.put("home/data/agents/a/key", SECRET);
    fixture.put("home/notes.txt", "nothing secret");
    fixture.link("home/data", "link");
    fixture.link(fixture.at("home/data"), "absolute");
    fixture.link("home/data/owner.token", "token");
    fixture.link("../link/agents", "home/around");
    let own = OwnDirectory::default();
    let root = open(&own, &fixture, "").unwrap();
    OwnDataFixture { fixture, own, root }
}

fn open(own: &OwnDirectory, fixture: &Fixture, path: &str) -> ServiceResult<Root> {
    Root::open_apart_from(own.locate(&fixture.at("home/data"))?, &fixture.at(path))
}

/// Every way to name something of it.
const PATHS: [&str; 11] = [
    "home/data",
    "home/data/",
    "home/data/owner.token",
    "home/data/agents/a/key",
    "home/data/new",
    "link/owner.token",
    "link/agents/a",
    "absolute/owner.token",
    "absolute/new",
    "home/around/a/key",
    "home/around/a/new",
];

fn check_all(root: &Root, path: &str) {
    let out = json!({ "from": path, "to": "stolen" });
    let to = json!({ "from": "home/notes.txt", "to": path, "overwrite": true });
    let said = [
        words(call(root, files::read, json!({ "path": path }))),
        words(call(root, files::stat, json!({ "path": path }))),
        words(call(root, files::list, json!({ "path": path }))),
        words(call(root, files::tree, json!({ "path": path }))),
        words(call(root, search, json!({ "query": "S", "path": path }))),
        words(call(root, files::write, json!({ "path": path, "content": "", "create_parents": true }))),
        words(call(root, files::create_directory, json!({ "path": path, "create_parents": true }))),
        words(call(root, files::delete, json!({ "path": path, "recursive": true }))),
        words(call(root, files::rename, out.clone())),
        words(call(root, files::copy, out)),
        words(call(root, files::copy, to.clone())),
        words(call(root, files::rename, to)),
    ];
    for said in said {
        // What is not there may be told as that.
        let words = [REFUSED, "path is a directory", "path escapes run cwd"];
        let is_refused = words.contains(&&*said) || said.contains(": No such");
        assert!(is_refused, "{path}: {said}");
    }
}

#[test]
fn own_data_is_reached_by_no_path() {
    let world = world();
    for path in PATHS {
        check_all(&world.root, path);
    }
    for path in ["token", "link/owner.token", "home/data/owner.token"] {
        assert_eq!(words(call(&world.root, files::read, json!({ "path": path }))), REFUSED, "{path}");
    }
    // Nor by a root in it, nor by what it is in.
    for path in ["home/data", "home/data/agents", "link", "home/around"] {
        assert_eq!(words(open(&world.own, &world.fixture, path)), REFUSED, "{path}");
    }
    let delete = json!({ "path": "home", "recursive": true });
    assert_eq!(words(call(&world.root, files::delete, delete)), REFUSED);
    let copy = json!({ "from": "home", "to": "copied" });
    assert_eq!(words(call(&world.root, files::copy, copy.clone())), REFUSED);
    assert_eq!(words(call(&world.root, files::rename, copy)), REFUSED);
    assert_eq!(world.fixture.text("home/data/owner.token"), SECRET);
    assert_eq!(world.fixture.text("home/data/agents/a/key"), SECRET);
    assert!(!world.fixture.names().iter().any(|name| name.contains("new") || name.contains("stolen")));
}

#[test]
fn own_data_is_skipped_where_all_is_told() {
    let world = world();
    let listed = call(&world.root, files::list, json!({ "path": "home" })).unwrap();
    let names: Vec<String> = listed.entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["around", "notes.txt"]);
    let tree = call(&world.root, files::tree, json!({ "depth": 8, "include_hidden": true })).unwrap();
    let told = serde_json::to_string(&tree).unwrap();
    assert!(
        told.contains("notes.txt") && !told.contains("owner.token") && !told.contains("agents"),
        "{told}"
    );
    let found = call(&world.root, search, json!({ "query": "secret", "include_hidden": true })).unwrap();
    let paths: Vec<&str> = found.matches.iter().map(|found| &*found.path).collect();
    assert_eq!(paths, ["home/notes.txt"]);
}

#[test]
fn own_data_stays_known_under_another_name() {
    let world = world();
    fs::rename(world.fixture.at("home/data"), world.fixture.at("moved")).unwrap();
    let root = open(&world.own, &world.fixture, "").unwrap();
    for path in ["moved", "moved/owner.token", "moved/agents/a/key"] {
        check_all(&root, path);
    }
    assert_eq!(world.fixture.text("moved/owner.token"), SECRET);
}
