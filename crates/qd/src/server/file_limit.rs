//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Room for every connection that the hub's own bounds allow (`connections_max` and the slots of two listeners), and
/// for databases, agents and files. Not more: agents inherit the limit, and some programs close every number up to it
/// when they start others.
const OPEN_FILES_WANTED: u64 = 32_768;
/// Below this the process runs out of files before the hub's bounds are reached.
const OPEN_FILES_MIN: u64 = 4096;

/// Raises the limit as far as it is wanted and allowed. Most systems start programs with 1024.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let (current, allowed) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let raised = OPEN_FILES_WANTED.min(allowed).max(current);
    if raised > current {
        let wanted = Rlimit { current: Some(raised), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, wanted) {
            tracing::warn!(%error, current, "the limit of open files cannot be raised");
            return;
        }
    }
    if raised < OPEN_FILES_MIN {
        tracing::warn!(
            limit = raised,
            "this process may have few files and connections open; raise the limit ('ulimit -n', or LimitNOFILE= of its service)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        raise();
        let after = getrlimit(Resource::Nofile);
        let or_all = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        assert_eq!(after.maximum, before.maximum);
        assert!(or_all(after.current) >= or_all(before.current));
        assert!(or_all(after.current) >= OPEN_FILES_WANTED.min(or_all(before.maximum)));
    }
}
