//! Any text as a frame of `/ws/mux` or a body of the REST API: hub and runner read the same command for the same session
//! on the same runner, or one of them refuses it. The runner can read whatever the hub passes on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_fuzz::command::{FrameHead, is_object, read_body, read_frame};
use qd_fuzz::json::is_json;
use qd_wire::command_table::{Command, CommandHead, spec};
use qd_wire::mux::{FilesClientFrame, SystemClientFrame, TerminalClientFrame};
use serde_json::Value;

fuzz_target!(|text: &str| {
    if is_object(text) {
        assert!(is_json(text), "the hub reads what is no JSON");
        if let Err(error) = serde_json::from_str::<Value>(text) {
            // The runner reads whole values: what is too deep for it must have been refused.
            assert!(!error.to_string().contains("recursion"), "{error}");
        }
    }
    for head in [read_frame(text), read_body(text)].into_iter().flatten() {
        check(text, &head);
    }
    // The other channels are read by their types.
    drop(serde_json::from_str::<FilesClientFrame>(text));
    drop(serde_json::from_str::<TerminalClientFrame>(text));
    drop(serde_json::from_str::<SystemClientFrame>(text));
});

fn check(text: &str, head: &FrameHead) {
    for name in [Some(&head.cmd), head.session_id.as_ref(), head.runner_id.as_ref()].into_iter().flatten() {
        assert!(name.len() <= 256, "names are short");
    }
    // What it says of itself is not for the runner to believe, so a frame that says it wrong is no frame there.
    let Ok(read) = serde_json::from_str::<CommandHead<'_>>(text) else { return };
    assert_eq!(read.cmd.as_deref(), Some(&*head.cmd));
    assert_eq!(read.session_id.as_deref(), head.session_id.as_deref());
    assert_eq!(read.runner_id.as_deref(), head.runner_id.as_deref());
    assert_eq!(read.depends_on.unwrap_or_default(), head.depends_on);
    if let Some(row) = spec(&head.cmd)
        && let Ok(command) = Command::parse(row.name, text)
    {
        assert_eq!(command.spec().name, row.name);
    }
}
