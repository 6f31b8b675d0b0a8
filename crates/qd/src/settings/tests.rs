use std::path::Path;

use super::*;

fn load_with(file: &str, environment: &[(&str, &str)], flags: UpFlags) -> Result<Settings> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qd.toml");
    std::fs::write(&path, file).unwrap();
    let variables = [("HOME", "/home/x")].into_iter().chain(environment.iter().copied());
    load(&variables.collect(), Some(&path), Flags { up: flags, ..Flags::default() })
}

/// The settings without a file, with these variables.
fn load_from(variables: &[(&str, &str)], program: Program) -> Settings {
    load(&variables.iter().copied().collect(), None, Flags { program, ..Flags::default() }).unwrap()
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

/// A line for each setting there is.
const EVERY_SETTING: &str = r#"
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
        pi_server_port = 3141
        pi_rate_per_minute = 0
        pi_global_rate_per_minute = 5000
        pi_ui_rate_per_minute = 61
        pi_message_bytes_max = 1000
        pi_connections_max = 10
        pi_sessions_max = 12
        pi_pending_max = 13
        pi_in_flight_max = 14
        pi_in_flight_per_principal_max = 11
        pi_outcomes_max = 15
        pi_outcome_bytes_max = 16000
        pi_idempotency_minutes = 17
        pi_dependency_wait_seconds = 18
        pi_work_timeout_seconds = 19
        pi_read_timeout_seconds = 20
        pi_backlog_bytes_max = 21000
        insecure_no_auth = true
        question_timeout_seconds = 22
        agent_idle_stop_minutes = 23
        circuit_breakers = "off"
        breaker_failures = 24
        breaker_window_seconds = 25
        breaker_recovery_seconds = 26
        bash_breaker_failures = 27
        bash_breaker_failures_all = 28
        bash_breaker_window_seconds = 29
        log_file = "~/qd.log"
        login_hours = 30
        audit_days = 31
        push_contact = "mailto:ada@example.org"
        push_done_seconds = 35
        push_loopback = "on"
        workspace_roots = ["~/src", "/srv"]
        gate_skip_roles = ["operator"]
        gate_timeout_minutes = 32
        agent_environment = ["SSH_AUTH_SOCK", "MINE_*"]
        run_kill_seconds = 33
        terminal_idle_minutes = 34
    "#;

fn check_people_and_services(settings: &Settings) {
    assert_eq!(settings.log_file.as_deref(), Some(Path::new("/home/x/qd.log")));
    assert_eq!(settings.login_life.as_secs(), 30 * 3600);
    assert_eq!(settings.audit_life.map(|life| life.as_secs()), Some(31 * 24 * 3600));
    assert_eq!(settings.push.contact, "mailto:ada@example.org");
    assert_eq!((settings.push.done_after.as_secs(), settings.push.allow_loopback), (35, true));
    let services = &settings.services;
    assert_eq!(services.workspace_roots, [Path::new("/home/x/src"), Path::new("/srv")]);
    assert_eq!(services.gate_skip_roles, [qd_wire::people::Role::Operator]);
    assert_eq!(services.gate_timeout.map(|timeout| timeout.as_secs()), Some(32 * 60));
    assert_eq!(settings.agent_environment, ["SSH_AUTH_SOCK", "MINE_*"]);
    assert_eq!(settings.runs.kill_after.as_secs(), 33);
    assert_eq!(settings.runs.terminal_idle.map(|idle| idle.as_secs()), Some(34 * 60));
}

#[test]
fn every_setting_can_come_from_the_file() {
    let file = EVERY_SETTING;
    let rows = file.lines().filter(|line| line.contains('=')).count();
    assert_eq!(rows, SETTINGS.len() + command_settings().count(), "a setting is missing here");
    let settings = load_with(file, &[], UpFlags::default()).unwrap();
    assert_eq!(settings.data_dir, Path::new("/home/x/deck"));
    check_people_and_services(&settings);
    assert_eq!(settings.harnesses.find("pi").unwrap().settings.command, ["node", "/opt/my pi/cli.js"]);
    assert_eq!(settings.allowed_hosts.0, ["deck.example"]);
    assert_eq!((settings.max_sessions, settings.log_level), (7, LogLevel::Debug));
    assert_eq!(settings.runner_sockets, [Path::new("/home/x/run/qd.sock")]);
    assert_eq!((settings.tls, settings.resume), (Tls::On, Resume::AtStart));
    assert_eq!(settings.tls_files, Some(("/home/x/cert.pem".into(), "/key.pem".into())));
    assert_eq!(settings.spool_bytes_max, 2 << 20);
    assert_eq!(settings.hang_restart, Some(Duration::from_secs(60)));
    pi_settings_are_as_written(&settings);
}

#[track_caller]
fn pi_settings_are_as_written(settings: &Settings) {
    let seconds = Duration::from_secs;
    let face = &settings.pi;
    assert_eq!(settings.pi_server_port, Some(3141));
    assert_eq!((face.rate_per_minute, face.global_rate_per_minute, face.ui_rate_per_minute), (0, 5000, 61));
    assert_eq!((face.message_bytes_max, face.connections_max, face.sessions_max), (1000, 10, 12));
    assert_eq!((face.pending_max, face.in_flight_max, face.outcomes_max), (13, 14, 15));
    assert_eq!(face.in_flight_per_principal_max, 11);
    assert_eq!((face.outcome_bytes_max, face.backlog_bytes_max), (16_000, 21_000));
    assert_eq!((face.key_life, face.dependency_wait), (seconds(17 * 60), seconds(18)));
    assert_eq!((face.work_timeout, face.read_timeout), (seconds(19), seconds(20)));
    assert!(face.insecure_no_auth);
    assert_eq!(settings.question_timeout, Some(seconds(22)));
    assert_eq!(settings.agent_idle_stop, Some(seconds(23 * 60)));
    let breakers = settings.breakers;
    assert!(!breakers.enabled);
    assert_eq!((breakers.provider.threshold, breakers.provider.window_ms), (24, 25_000));
    assert_eq!((breakers.bash_session.threshold, breakers.bash_all.threshold), (27, 28));
    assert_eq!((breakers.bash_session.window_ms, breakers.bash_all.window_ms), (29_000, 29_000));
    assert_eq!((breakers.provider.recovery_ms, breakers.bash_all.recovery_ms), (26_000, 26_000));
}

#[test]
fn the_pi_server_of_its_own_has_its_own_defaults() {
    let home = [("HOME", "/h")];
    let (up, own) = (load_from(&home, Program::Qd), load_from(&home, Program::PiServer));
    assert_eq!((up.question_timeout, own.question_timeout), (None, Some(Duration::from_secs(60))));
    assert_eq!(own.data_dir, Path::new("/h/.local/share/qd/pi-server"));
    assert_eq!(own.runner_sockets, [Path::new("/h/.local/share/qd/pi-server/qd-runner.sock")]);
    let variables = [("HOME", "/h"), ("QD_DATA_DIR", "/d"), ("QD_QUESTION_TIMEOUT_SECONDS", "off")];
    let named = load_from(&variables, Program::PiServer);
    assert_eq!((named.data_dir.as_path(), named.question_timeout), (Path::new("/d"), None));
    assert_eq!((up.agent_idle_stop, up.pi_server_port, up.pi.insecure_no_auth), (None, None, false));
    assert_eq!(up.breakers, BreakerConfig::default());
}

/// The table's words for a default are those of the code.
#[test]
fn the_defaults_that_are_documented_are_in_force() {
    let told = |name: &str| SETTINGS.iter().find(|setting| setting.name == name).unwrap().default;
    let settings = load_with("", &[], UpFlags::default()).unwrap();
    let (face, breakers) = (&settings.pi, &settings.breakers);
    let seconds = |duration: Duration| duration.as_secs().to_string();
    for (name, value) in [
        ("pi_rate_per_minute", face.rate_per_minute.to_string()),
        ("pi_global_rate_per_minute", face.global_rate_per_minute.to_string()),
        ("pi_ui_rate_per_minute", face.ui_rate_per_minute.to_string()),
        ("pi_message_bytes_max", face.message_bytes_max.to_string()),
        ("pi_connections_max", face.connections_max.to_string()),
        ("pi_sessions_max", face.sessions_max.to_string()),
        ("pi_pending_max", face.pending_max.to_string()),
        ("pi_in_flight_max", face.in_flight_max.to_string()),
        ("pi_in_flight_per_principal_max", face.in_flight_per_principal_max.to_string()),
        ("pi_outcomes_max", face.outcomes_max.to_string()),
        ("pi_outcome_bytes_max", face.outcome_bytes_max.to_string()),
        ("pi_idempotency_minutes", (face.key_life.as_secs() / 60).to_string()),
        ("pi_dependency_wait_seconds", seconds(face.dependency_wait)),
        ("pi_work_timeout_seconds", seconds(face.work_timeout)),
        ("pi_read_timeout_seconds", seconds(face.read_timeout)),
        ("pi_backlog_bytes_max", face.backlog_bytes_max.to_string()),
        ("breaker_failures", breakers.provider.threshold.to_string()),
        ("breaker_window_seconds", (breakers.provider.window_ms / 1000).to_string()),
        ("breaker_recovery_seconds", (breakers.provider.recovery_ms / 1000).to_string()),
        ("bash_breaker_failures", breakers.bash_session.threshold.to_string()),
        ("bash_breaker_failures_all", breakers.bash_all.threshold.to_string()),
        ("bash_breaker_window_seconds", (breakers.bash_session.window_ms / 1000).to_string()),
    ] {
        assert_eq!(told(name), value, "{name}");
    }
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
        "pi_server_port = 70000",
        "pi_pending_max = 0",
        "pi_message_bytes_max = 99999999999",
        "pi_idempotency_minutes = 0",
        "question_timeout_seconds = 0",
        "agent_idle_stop_minutes = 99999999",
        "circuit_breakers = \"maybe\"",
        "breaker_failures = 0",
        "insecure_no_auth = \"yes\"",
    ] {
        assert!(load_with(file, &[], UpFlags::default()).is_err(), "{file}");
    }
    let home = [("HOME", "/x")].into_iter().collect();
    let missing = load(&home, Some(Path::new("/no/such.toml")), Flags::default());
    assert!(missing.unwrap_err().message.contains("/no/such.toml"));
    let homeless = load(&Environment::default(), None, Flags::default()).unwrap_err();
    assert!(homeless.hint.unwrap().contains("--data-dir"));
}

#[test]
fn the_data_directory_follows_xdg() {
    let settings = |variables: &[(&str, &str)]| load_from(variables, Program::Qd).data_dir;
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
        let expected = expected.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(words.map(|words| words.0).map_err(|_| ()), expected, "{text}");
    }
}

#[test]
fn the_socket_is_in_the_runtime_directory_and_else_beside_the_data() {
    let runtime = tempfile::tempdir().unwrap();
    let path = runtime.path().to_str().unwrap();
    let sockets = |variables: &[(&str, &str)]| load_from(variables, Program::Qd).runner_sockets;
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

#[test]
fn variables_of_agents_are_names() {
    let names = |text: &str| text.parse::<VariableList>().map(|names| names.0);
    assert_eq!(names("A_1, B*,,*").unwrap(), ["A_1", "B*", "*"]);
    assert!(names("").unwrap().is_empty());
    for bad in ["A=1", "A B", "*A", "A**", "Ä", "-"] {
        assert!(names(bad).unwrap_err().contains("is not the name of a variable"), "{bad}");
    }
    let error = load_with("agent_environment = [\"A=1\"]", &[], UpFlags::default()).unwrap_err();
    assert!(error.message.contains("'A=1'"), "{}", error.message);
}
