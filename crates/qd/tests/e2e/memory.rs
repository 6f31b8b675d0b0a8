//! What other programs can read of a running server's memory.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use qd_testkit::process::eventually;

/// Bytes of memory that are looked at together.
const WINDOW_BYTES: usize = 1 << 20;

/// A server that has said that it is ready, and that nobody has talked to. Killed when dropped.
struct Server {
    child: Child,
    token: String,
    data: PathBuf,
}

impl Server {
    /// Starts it on this directory, as this user.
    fn start(arguments: &[&str], directory: &Path, user: u32) -> std::io::Result<Server> {
        let data = directory.join("data");
        let mut command = Command::new(env!("CARGO_BIN_EXE_qd"));
        command.args(arguments).arg("--data-dir").arg(&data).env("HOME", directory).current_dir(directory);
        command.env_remove("QD_TOKEN").env_remove("XDG_RUNTIME_DIR");
        if rustix::process::geteuid().is_root() {
            command.uid(user).gid(user);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::inherit()).spawn()?;
        if arguments.contains(&"pi-server") {
            // It is ready when it answers.
            let stdin = child.stdin.as_mut().unwrap();
            std::io::Write::write_all(stdin, b"{\"id\":\"a\",\"type\":\"list_sessions\"}\n")?;
        }
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let is_ready = |line: &str| line.contains("\"token\"") || line.contains("\"a\"");
        assert!(lines.any(|line| is_ready(&line.unwrap())), "{arguments:?}");
        drop(lines);
        let token = std::fs::read_to_string(data.join("owner-token")).unwrap().trim().to_owned();
        Ok(Server { child, token, data })
    }

    fn process(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.child.id())
    }

    /// Whether these bytes are anywhere in what the server can write to; none where we may not look.
    fn has_in_memory(&self, wanted: &[u8]) -> Option<bool> {
        let memory = std::fs::File::open(self.process("mem")).ok()?;
        let maps = std::fs::read_to_string(self.process("maps")).unwrap();
        let finder = memchr::memmem::Finder::new(wanted);
        let mut window = vec![0; WINDOW_BYTES + wanted.len()];
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
            if !rights.starts_with("rw") {
                continue;
            }
            let (start, end) = range.split_once('-').unwrap();
            let [mut at, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
            while at < end {
                let length = usize::try_from(end - at).unwrap().min(window.len());
                // A page that nobody has touched, or that is gone by now, has nothing in it.
                let read = memory.read_at(&mut window[..length], at).unwrap_or(0);
                if finder.find(&window[..read]).is_some() {
                    return Some(true);
                }
                at += WINDOW_BYTES as u64;
            }
        }
        Some(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// With the token in hand an agent would be the owner. The hub needs its hash only.
#[tokio::test]
async fn the_owner_token_is_not_in_the_memory_of_a_server_that_has_started() {
    for arguments in [&["up", "--ready-json", "--listen", "127.0.0.1:0"][..], &["pi-server", "--port", "0"]] {
        let directory = tempfile::tempdir().unwrap();
        // It is made at the first start, and read at every other.
        for start in ["first", "second"] {
            let user = rustix::process::geteuid().as_raw();
            let server = Server::start(arguments, directory.path(), user).unwrap();
            let look = || server.has_in_memory(server.token.as_bytes());
            if look().is_none() {
                // Who may not look finds nothing either.
                assert!(!rustix::process::geteuid().is_root());
                continue;
            }
            // It says where it is, and then forgets the token.
            eventually(&format!("{start} start of {arguments:?}"), || look() == Some(false)).await;
            // The search finds what is there.
            let known = server.data.as_os_str().as_encoded_bytes();
            assert_eq!(server.has_in_memory(known), Some(true), "{start} start of {arguments:?}");
        }
    }
}

/// The kernel gives the files of a closed process to root, whoever runs it, and so refuses them to its user's others.
#[test]
fn the_memory_of_a_server_is_closed_to_other_programs_of_its_user() {
    const NOBODY: u32 = 65534;
    let own = rustix::process::geteuid();
    let directory = tempfile::tempdir().unwrap();
    // To root all is open, and what is open to all does not tell: so root looks at somebody else's server.
    let user = if own.is_root() { NOBODY } else { own.as_raw() };
    if own.is_root() {
        std::os::unix::fs::chown(directory.path(), Some(user), Some(user)).unwrap();
    }
    let server =
        match Server::start(&["up", "--ready-json", "--listen", "127.0.0.1:0"], directory.path(), user) {
            // Nobody may not start what was built here, in somebody's private directory.
            Err(error) if own.is_root() && error.kind() == std::io::ErrorKind::PermissionDenied => return,
            server => server.unwrap(),
        };
    for file in ["mem", "environ", "auxv"] {
        assert_eq!(std::fs::metadata(server.process(file)).unwrap().uid(), 0, "{file}");
        assert!(own.is_root() || std::fs::File::open(server.process(file)).is_err(), "{file}");
    }
}
