#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::*;

fn start(program: &str, argument: &str) -> (Child, i32, OwnedFd) {
    let child = Command::new(program).arg(argument).stdin(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let handle = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    (child, pid, handle)
}

#[test]
fn whoever_is_not_below_us_is_outside() {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let parent = getppid().unwrap();
    let handle = pidfd_open(parent, PidfdFlags::empty()).unwrap();
    assert_eq!(identify(parent.as_raw_nonzero().get(), Some(&handle)), ClientOrigin::Outside);
    assert_eq!(identify(own, None), ClientOrigin::Outside);
}

#[test]
fn whoever_is_below_a_guard_is_in_its_session() {
    // It stands for a guard: what counts is that it is our child, and what it was started for.
    let (mut child, pid, handle) = start("sleep", "60");
    assert_eq!(identify(pid, Some(&handle)), ClientOrigin::Unknown, "a child that is no guard");
    let entry = guard_table::GuardEntry::add(pid, "s1");
    assert_eq!(identify(pid, Some(&handle)), ClientOrigin::InSession("s1".into()));
    assert_eq!(identify(pid, None), ClientOrigin::InSession("s1".into()), "without a handle");
    drop(entry);
    let _entry = guard_table::GuardEntry::add(pid, "");
    assert_eq!(identify(pid, Some(&handle)), ClientOrigin::Unknown, "a guard of no session");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Its number may be anybody's by now: here that of a living process outside.
#[test]
fn whoever_has_ended_is_nobody() {
    let (mut child, pid, handle) = start("true", "");
    let _entry = guard_table::GuardEntry::add(pid, "s1");
    // Ended, and not reaped.
    while !has_ended(&handle) {
        std::thread::yield_now();
    }
    assert_eq!(identify(pid, Some(&handle)), ClientOrigin::Unknown);
    assert_eq!(identify(pid, None), ClientOrigin::Unknown);
    child.wait().unwrap();
    assert_eq!(identify(pid, Some(&handle)), ClientOrigin::Unknown);
    assert_eq!(identify(pid, None), ClientOrigin::Unknown);
    let outside = getppid().unwrap().as_raw_nonzero().get();
    assert_eq!(identify(outside, Some(&handle)), ClientOrigin::Unknown, "a number that was given again");
}
