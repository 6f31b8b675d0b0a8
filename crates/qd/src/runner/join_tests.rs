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
    crate::settings::test_settings(Flags::default())
}

fn found(words: &[&str], code: &str) -> Result<String> {
    let (url, fingerprint) = address(&settings(), &arguments(words), &InviteCode::read(code)?)?;
    Ok(format!("{url} {}", fingerprint.is_some()))
}

#[test]
fn a_code_carries_the_certificate() {
    let whole = InviteCode::read(&format!(" -abc_9.{FINGERPRINT}\n")).unwrap();
    assert_eq!((whole.secret.as_str(), whole.fingerprint.as_deref()), ("-abc_9", Some(FINGERPRINT)));
    assert_eq!(InviteCode::read("abc").unwrap().fingerprint, None);
    for damaged in ["", "a b", "abc.", "abc.00", ".00", "äbc"] {
        assert!(
            InviteCode::read(damaged).unwrap_err().hint.unwrap().contains("qd runner invite"),
            "{damaged}"
        );
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
    assert!(prepare(joined.unconfirmed(), "desk").key != first.key, "a new membership has a new key");
    let again = Membership { attempt: Some(Box::new(first.clone())), ..joined };
    assert!(prepare(again.unconfirmed(), "desk").key == first.key);
}

#[test]
fn the_directory_of_a_hub_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(refuse_hub_dir(directory.path()).is_ok());
    std::fs::write(directory.path().join("hub.db"), "").unwrap();
    assert!(refuse_hub_dir(directory.path()).unwrap_err().hint.unwrap().contains("--data-dir"));
}

/// A data directory with sessions in it, and with this text as its membership.
fn data_dir(text: Option<&str>) -> (tempfile::TempDir, Settings) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("runner.db"), "sessions").unwrap();
    std::fs::write(directory.path().join("runner.db-wal"), "more").unwrap();
    if let Some(text) = text {
        let path = Membership::path(directory.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let settings = Settings { data_dir: directory.path().to_owned(), ..settings() };
    (directory, settings)
}

fn membership(url: &str, joined: bool) -> Membership {
    let url = ServerUrl::parse(url).unwrap();
    Membership { joined, ..prepare(None, &url, "desk".into(), None, false).unwrap() }
}

fn text(membership: &Membership) -> String {
    serde_json::to_string(membership).unwrap()
}

#[test]
fn only_the_hub_that_was_confirmed_keeps_its_sessions() {
    let (old, new) = (membership("https://old", true), membership("https://new", false));
    let unanswered = Membership { attempt: Some(Box::new(new.clone())), ..old.clone() };
    let rejoin = membership("https://old", false);
    for (stored, joining, keeps) in [
        (Some(text(&old)), &new, false),
        (Some(text(&unanswered)), &new, false),
        (Some("{".to_owned()), &new, false),
        (None, &new, false),
        (Some(text(&unanswered)), &rejoin, true),
    ] {
        let (directory, settings) = data_dir(stored.as_deref());
        let before = StoredMembership::read(directory.path(), true).unwrap();
        let output = Output::new(true, &Environment::default());
        let confirmed = confirm(&settings, &output, before.confirmed(), joining.clone()).unwrap();
        let at = |name: &str| directory.path().join(name).exists();
        assert_eq!((at("runner.db"), at("runner.db-wal")), (keeps, keeps), "{stored:?}");
        let read = Membership::joined(directory.path()).map_err(|error| error.to_string()).unwrap();
        assert!(read == confirmed && read.attempt.is_none() && read.url == joining.url);
        let names: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("runner.db.before-"))
            .collect();
        assert_eq!(names.len(), if keeps { 0 } else { 2 }, "{names:?}");
        assert!(keeps || names.iter().any(|name| name.ends_with("-wal")), "still one database: {names:?}");
    }
}

#[test]
fn what_was_there_counts_until_the_hub_says_yes_and_comes_back_when_it_says_no() {
    let (old, new) = (membership("https://old", true), membership("https://new", false));
    for stored in [Some(text(&old)), Some("{".to_owned()), None] {
        let (directory, _) = data_dir(stored.as_deref());
        let before = StoredMembership::read(directory.path(), true).unwrap();
        before.with_attempt(&new).write(directory.path()).unwrap();
        let read = Membership::read(directory.path()).map_err(|error| error.to_string()).unwrap().unwrap();
        assert!(read.unconfirmed() == Some(&new));
        assert_eq!(read.joined, before.confirmed().is_some());
        assert!(!read.joined || (&read.url, &read.key) == (&old.url, &old.key));
        before.restore(directory.path()).unwrap();
        assert_eq!(std::fs::read_to_string(Membership::path(directory.path())).ok(), stored);
    }
}
