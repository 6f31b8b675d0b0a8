//! What the tests share: a runner with the test as its hub, the hub's side of a link, and runs.

pub(crate) mod hub_link;
pub(crate) mod runner_fixture;
pub(crate) mod runs;

use std::path::Path;
use std::time::Duration;

use qd_runner::process::GuardCommand;

pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_qd-guard-test");

/// Far more than anything here takes, on any machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// The guard of programs that have a home of their own: what a login shell does in a person's may take long, and leave a
/// lock behind when it is killed.
pub(crate) fn guard_with_home(home: &Path) -> GuardCommand {
    let home = format!("HOME={}", home.display());
    GuardCommand { program: "/usr/bin/env".into(), args: [&home, HELPER, "guard"].map(Into::into).to_vec() }
}
