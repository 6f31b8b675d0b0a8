//! Real runner processes, joined as a person would join them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::text;
use crate::error::{Outcome, failed};
use crate::process::Server;

/// Runners that start at the same time.
const AT_ONCE: usize = 10;

/// The processes; ended when dropped.
pub(super) struct Runners {
    names: Vec<String>,
    children: Vec<Child>,
    _directory: tempfile::TempDir,
}

impl Runners {
    pub(super) async fn start(program: &Path, hub: &Server, count: usize) -> Outcome<Runners> {
        let directory = tempfile::tempdir()?;
        let mut runners = Runners { names: Vec::new(), children: Vec::new(), _directory: directory };
        let names: Vec<String> = (0..count).map(|number| format!("r{number}")).collect();
        for group in names.chunks(AT_ONCE) {
            let mut starting = Vec::new();
            for name in group {
                let home = runners._directory.path().join(name);
                join(program, hub, name, &home)?;
                let mut command = qd(program, &home);
                command.args(["runner", "start", "--ready-json"]).stdout(Stdio::piped());
                starting.push(command.spawn()?);
            }
            for mut child in starting {
                let mut line = String::new();
                if let Some(stdout) = child.stdout.take() {
                    BufReader::new(stdout).read_line(&mut line)?;
                }
                runners.children.push(child);
                if serde_json::from_str::<Value>(&line).is_err() {
                    return failed(format!("a runner did not start; its first line was: {line}"));
                }
            }
            runners.names.extend_from_slice(group);
        }
        Ok(runners)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        let numbers: Vec<String> = self.children.iter().map(|child| child.id().to_string()).collect();
        // A runner that has ended already cannot be asked to.
        let _ = Command::new("kill").args(&numbers).stderr(Stdio::null()).status();
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn qd(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("HOME", home)
        .env("QD_DATA_DIR", home.join("data"))
        .env("QD_RUNNER_SOCKET", "off")
        .env_remove("PI_CODING_AGENT_DIR")
        .stdin(Stdio::null());
    command
}

fn join(program: &Path, hub: &Server, name: &str, home: &PathBuf) -> Outcome<()> {
    std::fs::create_dir_all(home)?;
    let url = format!("http://{}", hub.address);
    let invite = qd(program, home)
        .args(["runner", "invite", "--json", "--url", &url, "--token", &hub.token])
        .output()?;
    let invite: Value = serde_json::from_slice(&invite.stdout)
        .map_err(|error| format!("no invitation: {error}: {}", String::from_utf8_lossy(&invite.stderr)))?;
    let code = text(&invite, "code")?;
    let joined = qd(program, home)
        .args(["runner", "join", &url, "--code", &code, "--name", name, "--no-start"])
        .output()?;
    if !joined.status.success() {
        return failed(format!("{name} could not join: {}", String::from_utf8_lossy(&joined.stderr)));
    }
    Ok(())
}
