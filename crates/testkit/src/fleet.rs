//! Other machines: `qd runner` in worlds of their own, joined to a running hub.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use qd_link::mutex::Mutex;
use serde_json::Value;
use tokio::process::Child;

use crate::qd::{Qd, Sandbox, end, start};

/// A running `qd runner start`. Killed when dropped.
pub struct Machine {
    sandbox: Sandbox,
    child: Child,
    ready: Value,
    stderr: Arc<Mutex<String>>,
}

impl Sandbox {
    /// Runs `qd runner start` on what has been joined, until it says that it is ready.
    pub async fn runner(self) -> Machine {
        let (child, ready, stderr) = start(&self, &["runner", "start", "--ready-json"]).await;
        Machine { sandbox: self, child, ready, stderr }
    }

    /// Joins a hub with a code, without starting.
    pub async fn join(&self, url: &str, code: &str, name: &str) -> Output {
        self.run(&["runner", "join", url, "--code", code, "--name", name, "--no-start"]).await
    }

    /// Where the runner of this sandbox keeps its membership.
    pub fn membership_path(&self) -> PathBuf {
        self.data_dir().join("runner/hub.json")
    }

    /// The membership as it is on the disk.
    pub fn membership(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.membership_path()).unwrap()).unwrap()
    }
}

impl Qd {
    /// Makes a code for a runner: the whole answer of `qd runner invite`.
    pub async fn invite(&self) -> Value {
        let output = self.cli(&["runner", "invite", "--json"]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Another machine that has joined this hub under this name, and runs.
    pub async fn machine(&self, sandbox: Sandbox, name: &str) -> Machine {
        let invite = self.invite().await;
        let output = sandbox.join(self.url(), invite["code"].as_str().unwrap(), name).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        sandbox.runner().await
    }
}

impl Machine {
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The line it printed when it was ready.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    pub fn socket(&self) -> &Path {
        Path::new(self.ready["socket"].as_str().unwrap())
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("the runner runs")).unwrap()
    }

    /// What it has written to stderr.
    pub fn stderr(&self) -> String {
        self.stderr.lock().clone()
    }

    /// Runs `qd` on this machine.
    pub async fn cli(&self, arguments: &[&str]) -> Output {
        self.sandbox.run(arguments).await
    }

    /// SIGKILL, as the kernel does it when memory is short.
    pub async fn kill9(mut self) -> Sandbox {
        self.child.kill().await.unwrap();
        self.sandbox
    }

    /// SIGTERM: it must end by itself, in time and with success.
    pub async fn terminate(mut self) -> Sandbox {
        let status = end(&mut self.child).await;
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", self.stderr());
        self.sandbox
    }
}
