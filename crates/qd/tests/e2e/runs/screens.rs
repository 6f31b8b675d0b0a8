//! Full-screen programs look right to whoever attaches: their screen is compared with that of a real terminal
//! (tmux) that shows the same program.

use serde_json::{Value, json};

use qd_testkit::mux::Mux;
use qd_testkit::qd::Qd;

use crate::{demo, until};

/// What a client that has attached sees, as lines of text: the snapshot drawn on an empty terminal.
async fn seen(mux: &mut Mux, session: &str) -> Vec<String> {
    let attached = mux.ok(json!({"cmd": "run.screen", "session_id": session})).await;
    drawn(&attached)
}

fn drawn(snapshot: &Value) -> Vec<String> {
    let size = |name: &str| u16::try_from(snapshot[name].as_u64().unwrap()).unwrap().try_into().unwrap();
    let cols: std::num::NonZero<u16> = size("cols");
    let mut parser = vt100::Parser::new(size("rows"), cols, 0);
    parser.process(snapshot["scrollback"].as_str().unwrap().as_bytes());
    parser.process(snapshot["screen"].as_str().unwrap().as_bytes());
    let screen = parser.screen();
    screen.rows(0, cols.get()).map(|row| row.trim_end().to_owned()).collect()
}

/// The same program in tmux, which is the terminal we are compared with.
struct Tmux {
    socket: std::path::PathBuf,
}

impl Tmux {
    fn start(qd: &Qd, size: (u16, u16), command: &str) -> Tmux {
        let tmux = Tmux { socket: qd.sandbox().path("tmux.sock") };
        let (cols, rows) = (size.0.to_string(), size.1.to_string());
        // No status line: the program has the whole screen.
        let settings = qd.sandbox().path("tmux.conf");
        std::fs::write(&settings, "set -g status off\nset -s extended-keys on\n").unwrap();
        let settings = settings.to_str().unwrap();
        tmux.run(&["-f", settings, "new-session", "-d", "-x", &cols, "-y", &rows, command], qd);
        tmux
    }

    fn run(&self, arguments: &[&str], qd: &Qd) -> String {
        let output = std::process::Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .args(arguments)
            .current_dir(qd.sandbox().work())
            .env("HOME", qd.sandbox().home())
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("tmux is installed (make test installs it)");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self, qd: &Qd) -> Vec<String> {
        let text = self.run(&["capture-pane", "-p"], qd);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It may have ended with its program.
        let _ = std::process::Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").status();
    }
}

/// Waits until both show the same, and this text is there.
async fn same(qd: &Qd, mux: &mut Mux, session: &str, tmux: &Tmux, text: &str) {
    until(text, async || {
        let ours = seen(mux, session).await.join("\n");
        let theirs = tmux.screen(qd).join("\n");
        let is_same = ours.trim_end() == theirs.trim_end() && ours.contains(text);
        if is_same { Ok(()) } else { Err(format!("ours:\n{ours}\n\nthe terminal's:\n{theirs}")) }
    })
    .await;
}

async fn run_of(qd: &Qd, mux: &mut Mux, size: (u16, u16), command: &str) -> String {
    let config = json!({
        "harness": "pty", "cwd": qd.sandbox().work(),
        "run": {"cmd": command, "cols": size.0, "rows": size.1, "env": {"LC_ALL": "C.UTF-8"}}
    });
    mux.create(config).await
}

#[tokio::test]
async fn vim_looks_right_after_attach_resize_and_re_attach() {
    let (qd, mut mux) = demo().await;
    let text: String = (1..=200).map(|number| format!("line {number} 中文 emoji 🦀 עברית\n")).collect();
    std::fs::write(qd.sandbox().work().join("file.txt"), text).unwrap();
    let command = "exec vim -u NONE -N --noplugin -n -c 'set nomore shortmess=I noruler' file.txt";
    let session = run_of(&qd, &mut mux, (100, 30), command).await;
    let tmux = Tmux::start(&qd, (100, 30), command);
    same(&qd, &mut mux, &session, &tmux, "line 1 ").await;
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "50Gzt"})).await;
    tmux.run(&["send-keys", "50Gzt"], &qd);
    same(&qd, &mut mux, &session, &tmux, "line 50 ").await;
    mux.ok(json!({"cmd": "run.resize", "session_id": session, "cols": 70, "rows": 20})).await;
    tmux.run(&["resize-window", "-x", "70", "-y", "20"], &qd);
    let mut second = qd.connect().await;
    same(&qd, &mut second, &session, &tmux, "line 50 ").await;
}

#[tokio::test]
async fn htop_draws_its_frame_and_a_pager_scrolls() {
    let (qd, mut mux) = demo().await;
    let session = run_of(&qd, &mut mux, (100, 30), "exec htop -C").await;
    let screen = until("htop on the screen", async || {
        let screen = seen(&mut mux, &session).await;
        let has_keys = screen.iter().rfind(|line| !line.is_empty()).is_some_and(|last| last.contains("F10"));
        let is_drawn = has_keys && screen.iter().any(|line| line.contains("PID"));
        if is_drawn { Ok(screen) } else { Err(screen.join("\n")) }
    })
    .await;
    assert_eq!(screen.len(), 30);
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "q"})).await;
    mux.wait_event("run.exited").await;
    let numbers: String = (1..=300).map(|number| format!("entry {number}\n")).collect();
    std::fs::write(qd.sandbox().work().join("numbers"), numbers).unwrap();
    let session = run_of(&qd, &mut mux, (60, 15), "exec less numbers").await;
    let tmux = Tmux::start(&qd, (60, 15), "exec less numbers");
    same(&qd, &mut mux, &session, &tmux, "entry 1").await;
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "G"})).await;
    tmux.run(&["send-keys", "G"], &qd);
    same(&qd, &mut mux, &session, &tmux, "entry 300").await;
}

#[tokio::test]
async fn the_terminal_interface_of_a_real_agent_looks_right() {
    let (qd, mut mux, _llm) = crate::pi().await;
    let command = qd_testkit::pi::pi_command().unwrap().join(" ");
    let environment = format!(
        "export PI_CODING_AGENT_DIR='{}' PI_OFFLINE=1; exec {command} --no-session",
        qd.sandbox().pi_dir().display()
    );
    let session = run_of(&qd, &mut mux, (100, 30), &environment).await;
    let tmux = Tmux::start(&qd, (100, 30), &environment);
    let mut second = qd.connect().await;
    same(&qd, &mut second, &session, &tmux, "pi").await;
    second.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "hello there"})).await;
    tmux.run(&["send-keys", "hello there"], &qd);
    same(&qd, &mut second, &session, &tmux, "hello there").await;
}
