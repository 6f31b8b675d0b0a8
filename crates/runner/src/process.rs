//! Agent processes as the runner sees them: started under a guard, watched, and ended for good.
//! Nothing here knows a harness, and nothing else in the runner starts an agent: so there is one place that decides
//! what an agent inherits and that makes sure nothing is left behind.

mod agent_process;
mod agent_stdin;
mod environment;
mod exit_status;
mod guard_control;
pub(crate) mod guard_table;
mod guarded_process;
pub mod line_reader;
mod memory_trim;
mod orphan_sweep;
mod process_stats;
pub(crate) mod procfs;
pub(crate) mod program_lookup;
mod spawn;
mod spawn_error;
mod stderr_tail;
mod terminal;

pub use agent_process::{AgentProcess, CloseMode};
pub use agent_stdin::{AgentStdin, STDIN_QUEUE_BYTES_MAX, STDIN_QUEUE_MAX, StdinError};
pub use environment::{Environment, InheritedVariables};
pub use exit_status::ExitStatus;
pub use guarded_process::GuardedProcess;
pub use memory_trim::give_back_memory;
pub(crate) use orphan_sweep::become_reaper;
pub use orphan_sweep::sweep_abandoned;
pub use process_stats::ProcessStats;
pub use spawn::{GuardCommand, Privileges, ProcessConfig, SpawnSpec};
pub use spawn_error::SpawnError;
pub use stderr_tail::{STDERR_LINE_BYTES_MAX, STDERR_LINES_MAX, StderrTail};
pub use terminal::{InputMode, LINE_BYTES_MAX, Terminal, TerminalSignal};
