//! The data directory in the middle of a root, with links to it and with other names.

use std::fs;

use qd_wire::service::*;

use super::*;
use crate::services::call::Cancellation;
use crate::services::fs as files;
use crate::services::fs::fixture::{Fixture, SECRET, words};
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
    let never = &Cancellation::default();
    let path = || path.to_owned();
    let query = FsSearchParams { query: "S".into(), path: Some(path()), ..Default::default() };
    let write = FsWriteParams { path: path(), create_parents: Some(true), ..Default::default() };
    let make = FsCreateDirectoryParams { path: path(), create_parents: Some(true), ..Default::default() };
    let delete = FsDeleteParams { path: path(), recursive: Some(true), ..Default::default() };
    let out = FsMoveParams { from: path(), to: "stolen".into(), ..Default::default() };
    let to = FsMoveParams {
        from: "home/notes.txt".into(),
        to: path(),
        overwrite: Some(true),
        ..Default::default()
    };
    let said = [
        words(files::read(root, &FsReadParams { path: path(), ..Default::default() }, never)),
        words(files::stat(root, &FsStatParams { path: path(), ..Default::default() }, never)),
        words(files::list(root, &FsListParams { path: Some(path()), ..Default::default() }, never)),
        words(files::tree(root, &FsTreeParams { path: Some(path()), ..Default::default() }, never)),
        words(search(root, &query, never)),
        words(files::write(root, &write, never)),
        words(files::create_directory(root, &make, never)),
        words(files::delete(root, &delete, never)),
        words(files::rename(root, &out, never)),
        words(files::copy(root, &out, never)),
        words(files::copy(root, &to, never)),
        words(files::rename(root, &to, never)),
    ];
    for said in said {
        // What is not there may be told as that.
        let words = [REFUSED, "path is a directory", "path escapes run cwd"];
        let is_refused = words.contains(&&*said) || said.starts_with("bad path: No such");
        assert!(is_refused, "{}: {said}", path());
    }
}

#[test]
fn own_data_is_reached_by_no_path() {
    let world = world();
    for path in PATHS {
        check_all(&world.root, path);
    }
    let never = &Cancellation::default();
    for path in ["token", "link/owner.token", "home/data/owner.token"] {
        let read = FsReadParams { path: path.into(), ..FsReadParams::default() };
        assert_eq!(words(files::read(&world.root, &read, never)), REFUSED, "{path}");
    }
    // Nor by a root in it, nor by what it is in.
    for path in ["home/data", "home/data/agents", "link", "home/around"] {
        assert_eq!(words(open(&world.own, &world.fixture, path)), REFUSED, "{path}");
    }
    let delete = FsDeleteParams { path: "home".into(), recursive: Some(true), ..Default::default() };
    assert_eq!(words(files::delete(&world.root, &delete, never)), REFUSED);
    let copy = FsMoveParams { from: "home".into(), to: "copied".into(), ..Default::default() };
    assert_eq!(words(files::copy(&world.root, &copy, never)), REFUSED);
    assert_eq!(words(files::rename(&world.root, &copy, never)), REFUSED);
    assert_eq!(world.fixture.text("home/data/owner.token"), SECRET);
    assert_eq!(world.fixture.text("home/data/agents/a/key"), SECRET);
    assert!(!world.fixture.names().iter().any(|name| name.contains("new") || name.contains("stolen")));
}

#[test]
fn own_data_is_skipped_where_all_is_told() {
    let world = world();
    let never = &Cancellation::default();
    let list = FsListParams { path: Some("home".into()), ..FsListParams::default() };
    let names: Vec<String> =
        files::list(&world.root, &list, never).unwrap().entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["around", "notes.txt"]);
    let tree = FsTreeParams { depth: Some(8), include_hidden: Some(true), ..FsTreeParams::default() };
    let told = serde_json::to_string(&files::tree(&world.root, &tree, never).unwrap()).unwrap();
    assert!(
        told.contains("notes.txt") && !told.contains("owner.token") && !told.contains("agents"),
        "{told}"
    );
    let query = FsSearchParams { query: "secret".into(), include_hidden: Some(true), ..Default::default() };
    let found = search(&world.root, &query, never).unwrap();
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
