//! The guard of tests that run programs.

use std::path::Path;

use qd_runner::process::GuardCommand;

pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_qd-guard-test");

/// Programs have a home of their own: what a login shell does in a person's may take long, and leave a lock behind when
/// it is killed.
pub(crate) fn with_home(home: &Path) -> GuardCommand {
    let home = format!("HOME={}", home.display());
    GuardCommand { program: "/usr/bin/env".into(), args: [&home, HELPER, "guard"].map(Into::into).to_vec() }
}
