use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use qd_wire::command::SessionConfig;

fn request(run: RunConfig) -> StartRequest {
    StartRequest {
        session_id: "s".into(),
        config: SessionConfig { harness: "pty".into(), run: Some(run), ..SessionConfig::default() },
        cwd: "/".into(),
        native_session_id: None,
        native_session_file: None,
        is_native_file_written: false,
        bridge: false,
    }
}

fn script(folder: &Path, text: &str) {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("codex");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_shim_is_never_what_it_stands_for() {
    let folder = tempfile::tempdir().unwrap();
    let (shims, programs) = (folder.path().join("shims"), folder.path().join("programs"));
    script(&shims, "#!/bin/sh\n# quarterdeck-shim\nexec qd run -- codex\n");
    let path = std::env::join_paths([&shims, &programs]).unwrap();
    let set = vec![("PATH".into(), path)];
    let environment = Environment { inherit: InheritedVariables::Nothing, remove: Vec::new(), set };
    let run = RunConfig { argv: vec!["codex".into(), "a b".into()], ..RunConfig::default() };
    let error = program(&request(run.clone()), &environment).unwrap_err();
    assert_eq!(error.to_string(), "codex binary not found in PATH: codex");
    script(&programs, "#!/bin/sh\n");
    let found = program(&request(run), &environment).unwrap();
    assert_eq!(found.argv, [programs.join("codex").into_os_string(), "a b".into()]);
    assert_eq!((found.tool.as_str(), found.command.as_str()), ("codex", "codex 'a b'"));
}

#[test]
fn a_run_is_named_after_its_program() {
    for (cmd, tool) in [("FOO=1 /usr/bin/claude --x", "claude"), ("seq 1 2", "seq"), ("/", "run")] {
        assert_eq!(tool_of(cmd), tool, "{cmd}");
    }
    let run = RunConfig { cmd: Some("true && false".into()), ..RunConfig::default() };
    let found = program(&request(run), &Environment::default()).unwrap();
    assert_eq!((found.tool.as_str(), found.command.as_str()), ("true", "true && false"));
    assert_eq!(found.argv[1..], ["-lc", "true && false"]);
}
