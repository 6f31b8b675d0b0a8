//! Agent processes as the runner sees them: started under a guard, watched, and ended for good.

mod agent;
pub(crate) mod clock;
mod control;
mod error;
mod exit;
mod guarded;
pub mod lines;
mod memory;
pub(crate) mod procfs;
mod spawn;
mod stats;
mod stderr;
mod stdin;
mod sweep;
mod terminal;

pub use agent::{AgentProcess, Close};
pub use error::SpawnError;
pub use exit::ExitStatus;
pub use memory::give_back_memory;
pub use spawn::{Environment, GuardCommand, Inherit, ProcessConfig, Spawn};
pub use stats::ProcessStats;
pub use stderr::{STDERR_LINE_BYTES_MAX, STDERR_LINES_MAX, StderrTail};
pub use stdin::{AgentStdin, STDIN_QUEUE_BYTES_MAX, STDIN_QUEUE_MAX, StdinError};
pub use sweep::sweep_abandoned;
pub use terminal::{InputMode, LINE_BYTES_MAX, Terminal, TerminalProcess, TerminalSignal};
