//! The committed TypeScript and JSON Schema are those of the types.

use std::path::Path;

use qd_wire::codegen;

#[test]
fn generated_files_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for artefact in codegen::artefacts().expect("the artefacts can be made") {
        let committed = std::fs::read_to_string(root.join(artefact.path)).unwrap_or_default();
        assert!(committed == artefact.text, "{} is stale; run `cargo xtask codegen`", artefact.path);
    }
}

#[test]
fn tables_of_the_documentation_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for table in codegen::page_tables().expect("the tables can be made") {
        let page = std::fs::read_to_string(root.join(table.page)).expect("the page is there");
        let fresh = table.insert_into(&page).expect("the page has the markers");
        assert!(
            page == fresh,
            "the table {} of {} is stale; run `cargo xtask codegen`",
            table.name,
            table.page
        );
    }
}

/// The tables of parameters and answers are written by people.
#[test]
fn the_documentation_explains_no_command_that_does_not_exist() {
    let page = include_str!("../../../../docs/protocol.md");
    let (_, section) = page.split_once("<!-- /commands -->").expect("the table of commands");
    let section = section.split("\n### ").next().unwrap_or_default();
    let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names: Vec<&str> =
        first_cells.flat_map(|cell| cell.split(", ").map(|name| name.trim_matches('`'))).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(qd_wire::command_table::spec(name).is_some(), "there is no command '{name}'");
    }
}

#[test]
fn generated_typescript_has_only_what_json_has() {
    let artefacts = codegen::artefacts().expect("the artefacts can be made");
    let typescript =
        &artefacts.iter().find(|artefact| artefact.path.ends_with("canonical.ts")).expect("TypeScript").text;
    for banned in ["bigint", ": any", "JsonValue"] {
        assert!(!typescript.contains(banned), "{banned}");
    }
    for name in ["ClientFrame", "ServerFrame", "EventEnvelope", "Message", "Part", "Command", "LinkLine"] {
        assert!(typescript.contains(&format!("export type {name} =")), "{name} is not exported");
    }
}
