use std::path::Path;

use super::*;

fn load_with(
    file: &str,
    environment: &[(&str, &str)],
    flags: UpFlags,
) -> Result<Settings, crate::error::CliError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qd.toml");
    std::fs::write(&path, file).unwrap();
    let mut variables: Vec<(&str, &str)> = vec![("HOME", "/home/x")];
    variables.extend_from_slice(environment);
    load(&environment_of(&variables), Some(&path), CommonFlags::default(), flags)
}

fn environment_of(variables: &[(&str, &str)]) -> Environment {
    match variables {
        [] => Environment::default(),
        [a] => [*a].into(),
        [a, b] => [*a, *b].into(),
        [a, b, c] => [*a, *b, *c].into(),
        more => panic!("add a row for {} variables", more.len()),
    }
}

fn listen(value: &str) -> UpFlags {
    UpFlags { listen: Some(value.to_owned()), ..UpFlags::default() }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = "listen = \"file:1\"\n";
    let environment = [("QD_LISTEN", "environment:1")];
    assert_eq!(load_with("", &[], UpFlags::default()).unwrap().listen, "127.0.0.1:7433");
    assert_eq!(load_with(file, &[], UpFlags::default()).unwrap().listen, "file:1");
    assert_eq!(load_with(file, &environment, UpFlags::default()).unwrap().listen, "environment:1");
    assert_eq!(load_with(file, &environment, listen("flag:1")).unwrap().listen, "flag:1");
}

#[test]
fn every_setting_can_come_from_the_file() {
    let file = r#"
        data_dir = "~/deck"
        url = "http://127.0.0.1:1"
        token = "t"
        log_level = "debug"
        listen = "127.0.0.1:0"
        allowed_hosts = ["deck.example"]
        pi_command = "node '/opt/my pi/cli.js'"
        runner_id = "desk"
        max_sessions = 7
    "#;
    let rows = file.lines().filter(|line| line.contains('=')).count();
    assert_eq!(rows, SETTINGS.len(), "a setting is missing here");
    let settings = load_with(file, &[], UpFlags::default()).unwrap();
    assert_eq!(settings.data_dir, Path::new("/home/x/deck"));
    assert_eq!(settings.pi_command.as_slice(), ["node", "/opt/my pi/cli.js"]);
    assert_eq!(settings.allowed_hosts.names(), ["deck.example"]);
    assert_eq!((settings.max_sessions, settings.log_level), (7, LogLevel::Debug));
}

#[test]
fn mistakes_are_named() {
    let unknown = load_with("lisen = \"x\"\n", &[], UpFlags::default()).unwrap_err();
    assert!(unknown.message.contains("lisen"), "{unknown}");
    let number = load_with("", &[("QD_MAX_SESSIONS", "many")], UpFlags::default()).unwrap_err();
    assert!(number.message.contains("QD_MAX_SESSIONS"), "{number}");
    for file in
        ["max_sessions = 0", "runner_id = \"two words\"", "runner_id = \"\"", "pi_command = \"'open\""]
    {
        assert!(load_with(file, &[], UpFlags::default()).is_err(), "{file}");
    }
    let missing = load(
        &[("HOME", "/x")].into(),
        Some(Path::new("/no/such.toml")),
        CommonFlags::default(),
        UpFlags::default(),
    );
    assert!(missing.unwrap_err().message.contains("/no/such.toml"));
    let homeless =
        load(&Environment::default(), None, CommonFlags::default(), UpFlags::default()).unwrap_err();
    assert!(homeless.hint.unwrap().contains("--data-dir"));
}

#[test]
fn the_data_directory_follows_xdg() {
    let settings = |variables: &[(&str, &str)]| {
        load(&environment_of(variables), None, CommonFlags::default(), UpFlags::default()).unwrap().data_dir
    };
    assert_eq!(settings(&[("HOME", "/h")]), Path::new("/h/.local/share/qd"));
    assert_eq!(settings(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Path::new("/d/qd"));
    assert_eq!(settings(&[("HOME", "/h"), ("XDG_DATA_HOME", "relative")]), Path::new("/h/.local/share/qd"));
}

#[test]
fn words_are_split_as_a_shell_would() {
    let cases: [(&str, Result<&[&str], ()>); 6] = [
        ("pi", Ok(&["pi"])),
        ("  node  a\\ b 'c d' \"e 'f'\" '' ", Ok(&["node", "a b", "c d", "e 'f'", ""])),
        ("x\"y\"z", Ok(&["xyz"])),
        ("'open", Err(())),
        ("end\\", Err(())),
        ("   ", Err(())),
    ];
    for (text, expected) in cases {
        let words: Result<Words, String> = text.parse();
        assert_eq!(
            words.as_ref().map(Words::as_slice).map_err(|_| ()),
            expected
                .map(|words| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
                .as_deref()
                .map_err(|_| ()),
            "{text}"
        );
    }
}
