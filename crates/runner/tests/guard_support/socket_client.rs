//! Programs of a session at the runner's own socket: one that asks, and one that hides who it is.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

use serde_json::Value;

/// As many as the runner serves at once: whoever comes then waits to be looked at.
const HELD: usize = 64;

/// Sends the lines of stdin, and prints the answers until each has one.
pub(crate) fn ask(socket: &str) -> ExitCode {
    let mut requests = String::new();
    let sent = UnixStream::connect(socket).and_then(|stream| {
        std::io::stdin().read_to_string(&mut requests)?;
        (&stream).write_all(requests.as_bytes())?;
        Ok(stream)
    });
    let Ok(stream) = sent else { return ExitCode::FAILURE };
    print_answers(stream, requests.lines().count());
    ExitCode::SUCCESS
}

/// Connects and ends; what has its connection then waits until nobody can tell any more who that was.
pub(crate) fn attack(socket: &str) -> ExitCode {
    let connect = || UnixStream::connect(socket).ok();
    let mut held: Vec<UnixStream> = std::iter::repeat_with(connect).take(HELD).flatten().collect();
    held.extend(connect());
    let mut child = Command::new("/proc/self/exe");
    child.args(["socket-orphan".to_owned(), std::process::id().to_string()]);
    for stream in &held {
        if rustix::io::fcntl_setfd(stream.as_fd(), rustix::io::FdFlags::empty()).is_err() {
            return ExitCode::FAILURE;
        }
        child.arg(stream.as_raw_fd().to_string());
    }
    match child.spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The rest of the attack, in a process that has never connected.
#[allow(clippy::print_stdout, unsafe_code, reason = "a test helper talks by its stdout")]
pub(crate) fn orphan(args: &[String]) -> ExitCode {
    let Some((parent, streams)) = args.split_first() else { return ExitCode::FAILURE };
    // Gone altogether: also whoever waits for it has heard of its end.
    let parent = std::path::Path::new("/proc").join(parent);
    while parent.exists() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // SAFETY: the process that started this one has left these descriptors open for it and nobody else.
    let own = |fd: RawFd| unsafe { OwnedFd::from_raw_fd(fd) };
    let mut streams: Vec<UnixStream> =
        streams.iter().filter_map(|fd| fd.parse().ok()).map(own).map(UnixStream::from).collect();
    let last = streams.pop();
    // Now there is room, and the last one is looked at.
    drop(streams);
    if let Some(stream) = last {
        let create = r#"{"type":"command","id":"a","cmd":"session.create","session_id":"stolen","config":{"harness":"demo"}}"#;
        let _closed = (&stream).write_all(format!("{create}\n").as_bytes());
        print_answers(stream, 1);
    }
    println!("the attack is over");
    ExitCode::SUCCESS
}

/// Prints what is answered until each of so many has its answer, or there is nothing more.
#[allow(clippy::print_stdout, reason = "a test helper talks by its stdout")]
fn print_answers(stream: UnixStream, mut open: usize) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        if answer["type"] == "response" || answer["type"] == "error" {
            println!("{line}");
            open -= 1;
        }
        if open == 0 {
            return;
        }
    }
}
