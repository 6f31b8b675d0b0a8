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
fn generated_typescript_has_only_what_json_has() {
    let artefacts = codegen::artefacts().expect("the artefacts can be made");
    let typescript =
        &artefacts.iter().find(|artefact| artefact.path.ends_with(".ts")).expect("TypeScript").text;
    for banned in ["bigint", ": any", "JsonValue"] {
        assert!(!typescript.contains(banned), "{banned}");
    }
    for name in ["ClientFrame", "ServerFrame", "EventEnvelope", "Message", "Part", "Command", "LinkLine"] {
        assert!(typescript.contains(&format!("export type {name} =")), "{name} is not exported");
    }
}
