//! Any text as a message of an app of the run protocol: a canonical command that can be read, is for what the message
//! named, and claims nothing that is the hub's to say; or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::view::run::request::{AppRequest, CommandTarget, RunCommand, read, read_input};
use qd_wire::Command;
use qd_wire::command_table::CommandHead;

const RUNNER: &str = "the-runner";

fuzz_target!(|text: &str| {
    match read(text) {
        Ok(AppRequest::Command(command)) => check(&command),
        Ok(AppRequest::Subscribe(subscribe)) => assert!(!subscribe.run_id.is_empty()),
        Ok(AppRequest::Unsubscribe(_) | AppRequest::Ignored) => {}
        Err(refusal) => {
            assert!(!refusal.error.message.is_empty());
            let data = refusal.data();
            assert_eq!(data.about, refusal.about);
            serde_json::to_string(&data).expect("a refusal can be written");
            assert!(
                refusal.rpc().is_none_or(|(_, request_id)| refusal.request_id.as_deref() == Some(request_id))
            );
        }
    }
    if let Ok(command) = read_input("run-1", text.as_bytes()) {
        assert_eq!(command.to, CommandTarget::Run("run-1".to_owned()));
        check(&command);
    }
});

fn check(command: &RunCommand) {
    for text in [Some(command.text(RUNNER)), command.other_text(RUNNER)].into_iter().flatten() {
        assert!(!text.contains('\n'));
        let head: CommandHead<'_> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(head.cmd.as_deref(), Some(command.canonical()));
        let session_id = head.session_id.as_deref();
        match &command.to {
            CommandTarget::Run(run_id) => assert_eq!(session_id, Some(&**run_id)),
            CommandTarget::HostOfRun(_) | CommandTarget::Host(_) => {
                assert_eq!(head.runner_id.as_deref(), Some(RUNNER));
                let expected = if command.creates_session() { None } else { Some(qd_wire::SYSTEM_SESSION) };
                assert_eq!(session_id, expected);
            }
        }
        assert!(head.user_id.is_none() && head.user_role.is_none() && head.connection_id.is_none(), "{text}");
        assert!(head.client_command_id.is_none() && head.depends_on.is_none() && head.id.is_none(), "{text}");
        let parsed = Command::parse(command.canonical(), &text);
        parsed.unwrap_or_else(|error| panic!("{error}: {text}"));
    }
}
