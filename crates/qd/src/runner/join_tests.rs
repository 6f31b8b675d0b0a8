use super::*;
use crate::arguments::{Cli, Command, RunnerCommand};
use crate::settings::Flags;
use clap::Parser;

const FINGERPRINT: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn arguments(words: &[&str]) -> JoinArguments {
    let cli = Cli::try_parse_from([&["qd", "runner", "join"], words].concat()).unwrap();
    let Command::Runner(runner) = cli.command else { panic!("not runner") };
    let RunnerCommand::Join(join) = runner.command else { panic!("not join") };
    *join
}

fn settings() -> Settings {
    crate::settings::load(&[("HOME", "/h")].into(), None, Flags::default()).unwrap()
}

fn found(words: &[&str], code: &str) -> Result<String, CliError> {
    let (url, fingerprint) = address(&settings(), &arguments(words), &Code::read(code)?)?;
    Ok(format!("{url} {}", fingerprint.is_some()))
}

#[test]
fn a_code_carries_the_certificate() {
    let whole = Code::read(&format!(" -abc_9.{FINGERPRINT}\n")).unwrap();
    assert_eq!((whole.secret.as_str(), whole.fingerprint.as_deref()), ("-abc_9", Some(FINGERPRINT)));
    assert_eq!(Code::read("abc").unwrap().fingerprint, None);
    for damaged in ["", "a b", "abc.", "abc.00", ".00", "äbc"] {
        assert!(Code::read(damaged).unwrap_err().hint.unwrap().contains("qd runner invite"), "{damaged}");
    }
}

#[test]
fn a_code_may_begin_with_a_dash() {
    assert_eq!(arguments(&["https://x", "--code", "-abc"]).code.as_deref(), Some("-abc"));
}

#[test]
fn nothing_unencrypted_leaves_the_machine_without_a_word() {
    let code = format!("abc.{FINGERPRINT}");
    assert_eq!(found(&["http://127.0.0.1:1"], "abc").unwrap(), "http://127.0.0.1:1 false");
    assert_eq!(found(&["https://10.0.0.5:7"], &code).unwrap(), "https://10.0.0.5:7 true");
    assert_eq!(found(&["10.0.0.5:7"], &code).unwrap(), "https://10.0.0.5:7 true");
    let plain = found(&["http://10.0.0.5:7"], "abc").unwrap_err();
    assert!(plain.message.contains("encrypt") && plain.hint.unwrap().contains("--allow-plain"));
    assert_eq!(found(&["ws://10.0.0.5:7", "--allow-plain"], "abc").unwrap(), "http://10.0.0.5:7 false");
    let mixed = found(&["http://10.0.0.5:7", "--allow-plain"], &code).unwrap_err();
    assert!(mixed.hint.unwrap().contains("https://10.0.0.5:7"));
}

#[test]
fn a_lost_answer_is_asked_for_with_the_same_key() {
    let url = ServerUrl::parse("https://deck.example").unwrap();
    let prepare =
        |before: Option<&Membership>, name: &str| prepare(before, &url, name.into(), None, false).unwrap();
    let first = prepare(None, "desk");
    assert!(prepare(Some(&first), "desk") == first);
    assert!(prepare(Some(&first), "other").key != first.key);
    let joined = Membership { joined: true, ..first.clone() };
    assert!(prepare(Some(&joined), "desk").key != first.key, "a new membership has a new key");
}

#[test]
fn the_directory_of_a_hub_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(refuse_hub_dir(directory.path()).is_ok());
    std::fs::write(directory.path().join("hub.db"), "").unwrap();
    assert!(refuse_hub_dir(directory.path()).unwrap_err().hint.unwrap().contains("--data-dir"));
}

#[test]
fn another_hub_does_not_get_the_sessions_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("runner.db"), "sessions").unwrap();
    let output = Output::new(true, &Environment::default());
    set_sessions_aside(directory.path(), &output).unwrap();
    assert!(!directory.path().join("runner.db").exists());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
