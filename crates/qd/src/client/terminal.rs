//! A program in a terminal, on this terminal: keys go to it as they are typed, what it writes is shown as it is, and
//! its size follows the window. Detaching leaves it running.
//!
//! Both directions share one loop, because output must be shown while a pipe waits for the program to take its input.
//! Whatever happens, the terminal of the person is put back in order at the end.

mod keys;
mod raw_mode;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use qd_link::client::{Attachment, AttachmentUpdate, CallError, ClientRequest, MuxClient};
use qd_wire::ErrorCode;
use qd_wire::data::{AttachData, Resume};
use qd_wire::run::{RunResizeParams, RunStdinParams};
use qd_wire::{Command, Event, EventPayload};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use keys::{KeyDecoder, KeyInput};
use raw_mode::RawMode;
pub(crate) use raw_mode::window_size;

/// An empty screen; what was on it has been scrolled up before.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
/// Undoes what a full-screen program may have left on: attributes, scrolling region, mouse, hidden cursor, bracketed
/// paste, application keys. The scrolling region takes the cursor along, so that is kept.
const RESET: &[u8] =
    b"\x1b[0m\x1b7\x1b[r\x1b8\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?25h\x1b[?2004l\x1b[?1l\x1b>";
/// Leaves the alternate screen, and goes to a line of its own.
const LEAVE_ALTERNATE: &[u8] = b"\x1b[?1049l\r\n";
/// How long a pipe waits before it offers again what the program had no room for.
const RETRY: Duration = Duration::from_millis(100);
/// Ctrl-D: the end of input at the beginning of a line; elsewhere it must be said twice.
const END_OF_INPUT: &str = "\u{4}";

/// How it ended for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalEnd {
    /// The person left; the program goes on.
    Detached,
    Exited {
        exit_code: i32,
        signal: Option<i32>,
        error: Option<String>,
    },
    /// The session was closed or deleted without a word of the program's end.
    Gone,
}

/// What the end of a pipe means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtInputEnd {
    /// The program has no more input either: it was started for this.
    Tell,
    /// Nothing: somebody else may go on typing.
    Watch,
}

/// Whether keys and screen are a person's.
pub(crate) fn is_interactive(output: &Output) -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !output.json
}

/// Shows a run here until it ends or the person leaves.
pub(crate) async fn follow(
    output: &Output,
    attachment: Attachment,
    at_input_end: AtInputEnd,
) -> Result<TerminalEnd> {
    let is_terminal = is_interactive(output);
    let raw = if is_terminal { Some(RawMode::enter()?) } else { None };
    let mut view = TerminalView {
        output,
        attachment,
        typed: keys::read_stdin()?,
        keys: KeyDecoder::new(is_terminal),
        resized: signal(SignalKind::window_change())?,
        is_terminal,
        at_input_end,
        is_lost: false,
        is_alternate: false,
        is_line_open: false,
        ending: None,
    };
    let result = view.run().await;
    // Also after an error: a program that was cut off has left its modes on, and the shell would get mouse reports as
    // input.
    if raw.is_some() {
        write_terminal(RESET)?;
        if view.is_alternate {
            write_terminal(LEAVE_ALTERNATE)?;
        }
    }
    drop(raw);
    result
}

/// The exit code of `qd` for a program's end: its own, or 128 and the signal, as shells have it.
pub(crate) fn exit_code(exit_code: i32, signal: Option<i32>) -> u8 {
    match signal {
        Some(signal) => u8::try_from(128 + signal).unwrap_or(1),
        None => u8::try_from(exit_code).unwrap_or(1),
    }
}

struct TerminalView<'a> {
    output: &'a Output,
    attachment: Attachment,
    typed: mpsc::Receiver<Vec<u8>>,
    keys: KeyDecoder,
    resized: Signal,
    is_terminal: bool,
    at_input_end: AtInputEnd,
    /// The program has the alternate screen.
    is_alternate: bool,
    /// What was sent last did not end its line.
    is_line_open: bool,
    /// The connection is lost, and the person was told.
    is_lost: bool,
    ending: Option<TerminalEnd>,
}

enum TerminalWake {
    Update(Box<AttachmentUpdate>),
    Typed(Option<Vec<u8>>),
    Resized,
}

impl TerminalView<'_> {
    async fn run(&mut self) -> Result<TerminalEnd> {
        let mut is_input_open = true;
        loop {
            if let Some(ending) = self.ending.take() {
                return Ok(ending);
            }
            let wake = tokio::select! {
                update = self.attachment.next() => TerminalWake::Update(Box::new(update?)),
                typed = self.typed.recv(), if is_input_open => TerminalWake::Typed(typed),
                _ = self.resized.recv(), if self.is_terminal => TerminalWake::Resized,
            };
            match wake {
                TerminalWake::Update(update) => self.update(*update)?,
                TerminalWake::Typed(Some(bytes)) => self.send_keys(&bytes).await?,
                TerminalWake::Typed(None) => {
                    is_input_open = false;
                    self.input_ended().await?;
                }
                TerminalWake::Resized => self.resize().await,
            }
        }
    }

    fn update(&mut self, update: AttachmentUpdate) -> Result<()> {
        match update {
            AttachmentUpdate::Attached(attach) => self.attached(&attach),
            AttachmentUpdate::Event { event, frame } => {
                if self.output.json {
                    self.output.event_line(&event, frame.as_ref())?;
                }
                match event.payload {
                    EventPayload::Known(event) => self.event(event),
                    EventPayload::Other(_) => Ok(()),
                }
            }
            AttachmentUpdate::Disconnected { reason, .. } => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    self.note(&format!(
                        "connection lost ({reason}); the program keeps running; reconnecting"
                    ));
                }
                Ok(())
            }
            AttachmentUpdate::System(_) => Ok(()),
        }
    }

    fn attached(&mut self, attach: &AttachData) -> Result<()> {
        if std::mem::take(&mut self.is_lost) && !self.is_terminal {
            self.note("reconnected");
        }
        let is_gap = attach.resume == Resume::Gap;
        if let Some(terminal) = attach.terminal.as_deref().filter(|_| is_gap) {
            self.is_alternate = terminal.alternate;
            if self.is_terminal {
                // What the person had on the screen stays among the lines above.
                write_terminal("\n".repeat(usize::from(terminal.rows)).as_bytes())?;
                write_terminal(CLEAR)?;
            }
            if !self.output.json {
                write_terminal(terminal.scrollback.as_bytes())?;
                write_terminal(terminal.screen.as_bytes())?;
            }
        }
        // Where records follow, the last of them says so, after everything else.
        if let Some(run) = attach.state.run.as_ref().filter(|_| is_gap)
            && let Some(exit_code) = run.exit_code
        {
            self.ending = Some(TerminalEnd::Exited { exit_code, signal: run.signal, error: None });
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            // With `--json` the event has been printed as the server sent it.
            Event::RunOutput { text, .. } if !self.output.json => {
                write_terminal(text.as_bytes())?;
                self.is_alternate = is_alternate_after(&text).unwrap_or(self.is_alternate);
            }
            Event::RunExited { exit_code, signal, error } => {
                self.ending = Some(TerminalEnd::Exited { exit_code, signal, error });
            }
            Event::SessionClosed { .. } => self.ending = Some(TerminalEnd::Gone),
            _ => {}
        }
        Ok(())
    }

    async fn send_keys(&mut self, bytes: &[u8]) -> Result<()> {
        match self.keys.take(bytes) {
            KeyInput::Text(text) if text.is_empty() => Ok(()),
            KeyInput::Text(text) if !self.is_terminal => self.send_all(text).await,
            KeyInput::Text(text) => {
                self.send(Command::RunStdin(RunStdinParams { text, actor: Some("cli".to_owned()) })).await
            }
            KeyInput::Detach => {
                self.ending = Some(TerminalEnd::Detached);
                Ok(())
            }
        }
    }

    /// A pipe has no more: the program is told as a person would with Ctrl-D.
    async fn input_ended(&mut self) -> Result<()> {
        if self.is_terminal {
            self.ending = Some(TerminalEnd::Detached);
            return Ok(());
        }
        if self.at_input_end == AtInputEnd::Watch {
            return Ok(());
        }
        let times = if self.is_line_open { 2 } else { 1 };
        self.send_all(END_OF_INPUT.repeat(times)).await
    }

    /// What comes by a pipe arrives whole: the next piece waits until the program has room for this one.
    async fn send_all(&mut self, text: String) -> Result<()> {
        self.is_line_open = !text.ends_with('\n');
        let params = RunStdinParams { text, actor: Some("cli".to_owned()) };
        let mut request = ClientRequest::session(self.attachment.session_id(), Command::RunStdin(params));
        loop {
            let Some(client) = self.attachment.client().cloned() else {
                return Err(CliError::unreachable("the connection was lost before all input was passed on"));
            };
            let call = async move { (client.call(&request).await, request) };
            let (answer, again) = self.show_until(call).await?;
            let response = answer?;
            if response.success || self.ending.is_some() {
                return Ok(());
            }
            match response.failed().map(|error| error.code) {
                Some(ErrorCode::RunEnded | ErrorCode::InputClosed) => {
                    // Nobody reads any more, as with any pipe; how the program ended is still to come.
                    self.typed.close();
                    return Ok(());
                }
                Some(ErrorCode::InputFull) => {}
                _ => return Err(CallError::Refused(Box::new(response)).into()),
            }
            self.show_until(tokio::time::sleep(RETRY)).await?;
            request = again;
        }
    }

    /// Shows what happens until something else is done.
    async fn show_until<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        tokio::pin!(work);
        loop {
            // The end of the program may arrive while we wait, and its output must not wait for its input.
            let update = tokio::select! {
                done = &mut work => return Ok(done),
                update = self.attachment.next() => update?,
            };
            self.update(update)?;
        }
    }

    async fn resize(&mut self) {
        let Some((cols, rows)) = window_size() else { return };
        // A window smaller than any program can use changes nothing; the next one will.
        let resize = Command::RunResize(RunResizeParams { cols, rows });
        if let Err(error) = self.send(resize).await {
            tracing::debug!(error = %error.message, "the run was not told the window's size");
        }
    }

    /// Sends in the order of the keys. While the connection is lost nothing can be typed, and the bell says so.
    async fn send(&mut self, command: Command) -> Result<()> {
        let Some(client) = self.attachment.client() else { return Ok(write_terminal(b"\x07")?) };
        match post(client, self.attachment.session_id(), command).await {
            Ok(()) => Ok(()),
            Err(CallError::Closed(_)) => Ok(write_terminal(b"\x07")?),
            Err(error) => Err(error.into()),
        }
    }

    /// A line of our own among the program's; it may be drawn over.
    fn note(&self, text: &str) {
        let text = harmless(text);
        let line = if self.is_terminal {
            format!("\r\n\x1b[2m[qd: {text}]\x1b[0m\r\n")
        } else {
            format!("{text}\n")
        };
        self.output.note(&line);
    }
}

async fn post(client: &MuxClient, session_id: &str, command: Command) -> Result<(), CallError> {
    client.post(&ClientRequest::session(session_id, command)).await.map(drop)
}

/// Whether a program is on the alternate screen after it wrote this; `None` where it says nothing of that.
fn is_alternate_after(text: &str) -> Option<bool> {
    let on = ["\u{1b}[?1049h", "\u{1b}[?47h"].iter().filter_map(|word| text.rfind(word)).max();
    let off = ["\u{1b}[?1049l", "\u{1b}[?47l"].iter().filter_map(|word| text.rfind(word)).max();
    (on.is_some() || off.is_some()).then_some(on > off)
}

/// Prints what a run has written so far, or with `follow` goes on to its end.
pub(crate) async fn print_run(output: &Output, mut attachment: Attachment, follow: bool) -> Result<()> {
    let mut until = None;
    loop {
        let update = tokio::select! {
            update = attachment.next() => update?,
            interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
        };
        match update {
            AttachmentUpdate::Attached(attach) if !follow => until = Some(attach.seq),
            AttachmentUpdate::Event { event, frame } => {
                if output.json {
                    output.event_line(&event, frame.as_ref())?;
                }
                match event.payload {
                    EventPayload::Known(Event::RunOutput { text, .. }) if !output.json => {
                        // A person's terminal gets the colours, a file what was written.
                        write_terminal(text.as_bytes())?;
                    }
                    EventPayload::Known(Event::RunExited { .. }) => return Ok(()),
                    EventPayload::Known(_) | EventPayload::Other(_) => {}
                }
            }
            AttachmentUpdate::Attached(_)
            | AttachmentUpdate::System(_)
            | AttachmentUpdate::Disconnected { .. } => {}
        }
        if until.is_some_and(|until| attachment.last_seq().is_none_or(|seq| seq >= until)) {
            return Ok(());
        }
    }
}

/// To the terminal, at once.
fn write_terminal(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Tells a run how large the window is where it is shown.
pub(crate) async fn send_window_size(client: &MuxClient, session_id: &str) -> Result<()> {
    if let Some((cols, rows)) = window_size() {
        post(client, session_id, Command::RunResize(RunResizeParams { cols, rows })).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alternate_screen_is_known_by_the_last_word_about_it() {
        assert_eq!(is_alternate_after("plain"), None);
        assert_eq!(is_alternate_after("\u{1b}[?1049hx"), Some(true));
        assert_eq!(is_alternate_after("\u{1b}[?1049hx\u{1b}[?1049l"), Some(false));
        assert_eq!(is_alternate_after("\u{1b}[?1049l\u{1b}[?1049h"), Some(true));
    }

    #[test]
    fn the_exit_code_is_the_programs_as_shells_have_it() {
        assert_eq!(exit_code(0, None), 0);
        assert_eq!(exit_code(7, None), 7);
        assert_eq!(exit_code(-1, Some(9)), 137);
        assert_eq!(exit_code(-1, None), 1);
    }
}
