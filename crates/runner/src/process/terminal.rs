//! Pseudo-terminals: the runner has the outer side, a program the inner one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize,
};

use tokio::io::unix::AsyncFd;

use super::guarded_process::GuardedProcess;

/// The outer side of a terminal. Reading and writing never block.
#[derive(Debug)]
pub struct Terminal {
    outer: OwnedFd,
}

/// What a program has told its terminal about its input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputMode {
    /// The program reads whole lines, and a line longer than the kernel's bound is cut there.
    pub is_by_lines: bool,
    /// What is typed is not shown: the program reads lines without echo, as for a password. A program that reads
    /// keys shows them itself, so its silence says nothing.
    pub is_hidden: bool,
    /// A carriage return, which is what Enter sends, arrives as a newline.
    pub is_return_newline: bool,
}

/// The longest line a program that reads lines can get; the kernel drops the rest.
pub const LINE_BYTES_MAX: usize = 4095;

impl Terminal {
    /// Opens a terminal of this size.
    pub fn open(cols: u16, rows: u16) -> io::Result<Self> {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let flags = rustix::fs::fcntl_getfl(&outer)?;
        rustix::fs::fcntl_setfl(&outer, flags | OFlags::NONBLOCK)?;
        let terminal = Terminal { outer };
        terminal.resize(cols, rows)?;
        Ok(terminal)
    }

    /// The same, told when it can be read or written. To be called inside a tokio runtime.
    #[allow(unsafe_code)]
    pub fn watched(self) -> io::Result<AsyncFd<Terminal>> {
        // SAFETY: the descriptor is open and stays so for as long as the terminal lives, which owns it and never gives
        // it away; `as_raw_fd` always returns this one.
        Ok(unsafe { AsyncFd::register(self) }?)
    }

    /// The inner side, for a program. Erasing a character of several bytes takes one key there.
    pub(super) fn inner(&self) -> io::Result<OwnedFd> {
        let path = ptsname(&self.outer, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inner = rustix::fs::open(path, flags, Mode::empty())?;
        let mut attributes = tcgetattr(&inner)?;
        attributes.input_modes |= InputModes::IUTF8;
        tcsetattr(&inner, OptionalActions::Now, &attributes)?;
        Ok(inner)
    }

    /// Sets the size; the kernel tells the programs in front with SIGWINCH.
    pub fn resize(&self, cols: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.outer, size)?)
    }

    /// How the program takes its input now.
    pub fn input_mode(&self) -> InputMode {
        // Without an answer nothing is known; a terminal whose program is gone still gives one.
        let Ok(attributes) = tcgetattr(&self.outer) else { return InputMode::default() };
        let is_by_lines = attributes.local_modes.contains(LocalModes::ICANON);
        InputMode {
            is_by_lines,
            is_hidden: is_by_lines && !attributes.local_modes.contains(LocalModes::ECHO),
            is_return_newline: attributes.input_modes.contains(InputModes::ICRNL),
        }
    }

    /// The process group in front.
    fn front(&self) -> Option<Pid> {
        tcgetpgrp(&self.outer).ok().filter(|group| group.as_raw_nonzero().get() > 1)
    }

    /// Reads what there is; `WouldBlock` when there is nothing, an error when no program has the terminal open.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.outer, buffer)?)
    }

    /// Writes what there is room for; `WouldBlock` when there is none.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.outer, bytes)?)
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }
}

impl std::os::fd::AsRawFd for Terminal {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.outer.as_raw_fd()
    }
}

/// What a program in a terminal can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalSignal {
    /// As Ctrl-C does.
    Interrupt,
    Terminate,
    /// The terminal goes away: shells end by this and ignore the request to end.
    HangUp,
}

impl GuardedProcess {
    /// Sends a signal: the interrupt to the group in front, the others to the program's own group too.
    pub fn signal_terminal(&self, terminal: &Terminal, signal: TerminalSignal) {
        let (word, number): (&[u8], Signal) = match signal {
            TerminalSignal::Interrupt => (b"int\n", Signal::INT),
            TerminalSignal::Terminate => (b"term\n", Signal::TERM),
            TerminalSignal::HangUp => (b"hup\n", Signal::HUP),
        };
        let front = terminal.front().filter(|group| group.as_raw_nonzero().get() != self.pid);
        if let Some(group) = front {
            // Gone already is the wish; one that we may not signal dies with the rest when the program ends.
            let _ = kill_process_group(group, number);
        }
        if front.is_none() || signal != TerminalSignal::Interrupt {
            self.send_order(word);
        }
    }
}
