//! How supervision speaks to people.

use qd_wire::event::AgentPhase;

/// What the agent was doing, after "while it was".
pub(super) fn doing(phase: Option<AgentPhase>) -> &'static str {
    match phase {
        None => "taking a request",
        Some(AgentPhase::Generating) => "generating an answer",
        Some(AgentPhase::Thinking) => "thinking",
        Some(AgentPhase::ToolRunning) => "between tools",
        Some(AgentPhase::Compacting) => "compacting its context",
        Some(AgentPhase::Retrying) => "retrying after an error",
        Some(AgentPhase::Initializing) => "starting",
    }
}

/// A time span for people: `850 ms`, `34 s`, `12 min`, `3 h 5 min`.
pub(super) fn seconds(milliseconds: i64) -> String {
    let milliseconds = milliseconds.max(0);
    let (total, minutes) = (milliseconds / 1000, milliseconds / 60_000);
    match total {
        0 => format!("{milliseconds} ms"),
        1..120 => format!("{total} s"),
        120..7200 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}
