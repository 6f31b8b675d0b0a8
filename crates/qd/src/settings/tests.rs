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
    load(&environment_of(&variables), Some(&path), Flags { up: flags, ..Flags::default() })
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
        fingerprint = "aa"
        runner_socket = "~/run/qd.sock"
        log_level = "debug"
        listen = "127.0.0.1:0"
        tls = "on"
        tls_cert = "~/cert.pem"
        tls_key = "/key.pem"
        allowed_hosts = ["deck.example"]
        runner_timeout = 5
        runner_id = "desk"
        pi_command = "node '/opt/my pi/cli.js'"
        max_sessions = 7
        spool_max_mib = 2
        resume = "at-start"
        hang_warning = 10
        hang_restart = 60
        probe_interval = 11
    "#;
    let rows = file.lines().filter(|line| line.contains('=')).count();
    assert_eq!(rows, SETTINGS.len(), "a setting is missing here");
    let settings = load_with(file, &[], UpFlags::default()).unwrap();
    assert_eq!(settings.data_dir, Path::new("/home/x/deck"));
    assert_eq!(settings.pi_command.as_slice(), ["node", "/opt/my pi/cli.js"]);
    assert_eq!(settings.allowed_hosts.names(), ["deck.example"]);
    assert_eq!((settings.max_sessions, settings.log_level), (7, LogLevel::Debug));
    assert_eq!(settings.runner_sockets, [Path::new("/home/x/run/qd.sock")]);
    assert_eq!((settings.tls, settings.resume), (Tls::On, Resume::AtStart));
    assert_eq!(settings.tls_files, Some(("/home/x/cert.pem".into(), "/key.pem".into())));
    assert_eq!(settings.spool_bytes_max, 2 << 20);
    assert_eq!(settings.hang_restart, Some(Duration::from_secs(60)));
}

#[test]
fn mistakes_are_named() {
    let unknown = load_with("lisen = \"x\"\n", &[], UpFlags::default()).unwrap_err();
    assert!(unknown.message.contains("lisen"), "{unknown}");
    let number = load_with("", &[("QD_MAX_SESSIONS", "many")], UpFlags::default()).unwrap_err();
    assert!(number.message.contains("QD_MAX_SESSIONS"), "{number}");
    for file in [
        "max_sessions = 0",
        "runner_id = \"two words\"",
        "runner_id = \"\"",
        "pi_command = \"'open\"",
        "tls = \"maybe\"",
        "tls_cert = \"/only/one.pem\"",
        "resume = \"never\"",
        "hang_restart = \"soon\"",
        "hang_restart = 0",
        "runner_timeout = 0",
        "spool_max_mib = 0",
        "spool_max_mib = 99999999",
    ] {
        assert!(load_with(file, &[], UpFlags::default()).is_err(), "{file}");
    }
    let missing = load(&[("HOME", "/x")].into(), Some(Path::new("/no/such.toml")), Flags::default());
    assert!(missing.unwrap_err().message.contains("/no/such.toml"));
    let homeless = load(&Environment::default(), None, Flags::default()).unwrap_err();
    assert!(homeless.hint.unwrap().contains("--data-dir"));
}

#[test]
fn the_data_directory_follows_xdg() {
    let settings = |variables: &[(&str, &str)]| {
        load(&environment_of(variables), None, Flags::default()).unwrap().data_dir
    };
    assert_eq!(settings(&[("HOME", "/h")]), Path::new("/h/.local/share/qd"));
    assert_eq!(settings(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]), Path::new("/d/qd"));
    assert_eq!(settings(&[("HOME", "/h"), ("XDG_DATA_HOME", "relative")]), Path::new("/h/.local/share/qd"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(settings(&[("HOME", "/h"), ("QD_DATA_DIR", "deck")]), here.join("deck"));
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

#[test]
fn the_socket_is_in_the_runtime_directory_and_else_beside_the_data() {
    let runtime = tempfile::tempdir().unwrap();
    let path = runtime.path().to_str().unwrap();
    let sockets = |variables: &[(&str, &str)]| {
        load(&environment_of(variables), None, Flags::default()).unwrap().runner_sockets
    };
    let beside = Path::new("/h/.local/share/qd/qd-runner.sock");
    assert_eq!(sockets(&[("HOME", "/h")]), [beside]);
    assert_eq!(
        sockets(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", path)]),
        [&*runtime.path().join("qd-runner.sock"), beside]
    );
    assert_eq!(sockets(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/no/such/directory")]), [beside]);
    assert_eq!(sockets(&[("HOME", "/h"), ("QD_RUNNER_SOCKET", "/s")]), [Path::new("/s")]);
    assert!(sockets(&[("HOME", "/h"), ("QD_RUNNER_SOCKET", "off")]).is_empty());
}

#[test]
fn the_name_of_a_machine_becomes_that_of_a_runner() {
    for (hostname, runner_id) in
        [("desk", "desk"), ("ada's desk.lan", "ada-s-desk.lan"), ("", "runner"), ("été", "-t-")]
    {
        assert_eq!(runner_id_of_hostname(hostname), runner_id);
        assert!(checked_runner_id(runner_id.to_owned()).is_ok());
    }
    assert_eq!(runner_id_of_hostname(&"x".repeat(300)).len(), 64);
}
