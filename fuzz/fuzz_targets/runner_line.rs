//! Any lines as those of a program at the runner's local socket, or of the hub: each is a command that the table has,
//! with parameters that mean the same when they are written and read again, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_fuzz::json::is_exact;
use qd_wire::Command;
use qd_wire::command_table::{CommandHead, class_of, spec};
use qd_wire::link::LinkCommand;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        drop(serde_json::from_str::<LinkCommand>(text));
        let Ok(head) = serde_json::from_str::<CommandHead<'_>>(text) else { continue };
        if let Some(id) = head.id {
            drop(serde_json::from_str::<String>(id.get()));
        }
        let Some(cmd) = head.cmd.as_deref() else { continue };
        let Some(row) = spec(cmd) else {
            assert!(Command::parse(cmd, text).is_err(), "a command that the table does not have: {cmd}");
            continue;
        };
        assert_eq!((row.name, row.class), (cmd, class_of(cmd)));
        check_parameters(cmd, text);
    }
});

fn check_parameters(cmd: &str, text: &str) {
    let Ok(command) = Command::parse(cmd, text) else { return };
    assert_eq!(command.spec().name, cmd);
    let written = serde_json::to_string(&command).expect("what was read can be written");
    assert!(!written.contains('\n'), "a command is one line");
    let again = Command::parse(cmd, &written).unwrap_or_else(|error| panic!("{error}: {written}"));
    if is_exact(text) {
        assert_eq!(command, again);
    }
}
