//! The health of one agent: when to look at its process, when to ask it for a sign of life, and what its silence
//! means.
//!
//! The machine is told what is seen and says what to do; times are Unix milliseconds. Silence is the time without
//! output while the agent works. A tool that runs, or a question that waits for a person, explains silence: it is
//! then no sign of a hang, and never a reason to kill.

mod config;

use qd_wire::data::RunningTool;
use qd_wire::event::AgentPhase;

pub use config::HealthConfig;

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthAction {
    /// Read the figures of the process and tell them by [`AgentHealth::sampled`].
    Sample,
    /// Tell clients the latest figures.
    Heartbeat,
    /// Ask the agent how it is; tell [`AgentHealth::answered`] or [`AgentHealth::probe_refused`].
    Probe,
    /// Tell a person.
    Warn(String),
    /// What the session's health is now; `None` when there is nothing to say any more.
    Status(Option<String>),
    /// Kill the agent and start it again; the text says why.
    Restart(String),
    /// The agent lives but nobody can hear it any more: kill it.
    Kill(String),
}

/// What the agent does, as the session machine sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionActivity<'a> {
    /// A turn runs, or the agent has a request it has not answered.
    pub is_busy: bool,
    pub phase: Option<AgentPhase>,
    pub tools: &'a [RunningTool],
    /// A person is asked something.
    pub has_questions: bool,
}

/// One look at the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSample {
    pub is_alive: bool,
    pub is_stdout_open: bool,
}

/// Supervises one agent, from its start to its end, and the next one after it.
#[derive(Debug)]
pub struct AgentHealth {
    config: HealthIntervals,
    /// The process, while there is one.
    process: Option<SampledProcess>,
    /// The agent answers requests, once it is up.
    ready: Option<ProbeSchedule>,
    /// The last output.
    heard_at: i64,
    work: Option<WorkPeriod>,
    tools: Vec<WatchedTool>,
    has_questions: bool,
    /// What clients were told last.
    shown: Option<String>,
    /// The latest time we know of.
    seen_at: Option<i64>,
    /// When we were to be asked again, as of the last time.
    awaited_at: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct HealthIntervals {
    sample: i64,
    heartbeat: i64,
    warn_after: i64,
    restart_after: Option<i64>,
    probe_every: i64,
    probe_timeout: i64,
}

#[derive(Debug)]
struct SampledProcess {
    sample_at: i64,
    /// The last looks found it alive with its output closed.
    deaf_samples: u32,
}

#[derive(Debug)]
struct ProbeSchedule {
    heartbeat_at: i64,
    probe_at: i64,
    /// When the open probe was sent.
    probe: Option<i64>,
    is_unresponsive: bool,
}

/// A stretch of work.
#[derive(Debug)]
struct WorkPeriod {
    since: i64,
    phase: Option<AgentPhase>,
    /// The silence that began then has been told of.
    told: Option<SilenceNotice>,
    is_condemned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SilenceNotice {
    silent_since: i64,
    is_warning: bool,
    /// When the text about a running tool is renewed.
    renew_at: i64,
}

#[derive(Debug, PartialEq, Eq)]
struct WatchedTool {
    id: String,
    name: String,
    since: i64,
}

/// A deadline missed by more than this means that we did not run ourselves: the machine slept, the disk was full.
const LATE_MS_MAX: i64 = 3_000;

/// Looks with a closed output before a living process is given up: its end may be on its way.
const DEAF_SAMPLES_MAX: u32 = 2;

impl AgentHealth {
    pub fn new(config: &HealthConfig) -> Self {
        AgentHealth {
            config: HealthIntervals::from(config),
            process: None,
            ready: None,
            heard_at: 0,
            work: None,
            tools: Vec::new(),
            has_questions: false,
            shown: None,
            seen_at: None,
            awaited_at: None,
        }
    }

    /// A process runs; it need not answer yet.
    pub fn process_started(&mut self, now: i64) {
        self.forgive(now);
        self.process = Some(SampledProcess { sample_at: now + self.config.sample, deaf_samples: 0 });
    }

    /// The agent takes requests from now on.
    pub fn ready(&mut self, now: i64) {
        self.forgive(now);
        self.heard_at = now;
        self.ready = Some(ProbeSchedule {
            heartbeat_at: now + self.config.heartbeat,
            probe_at: now + self.config.probe_every,
            probe: None,
            is_unresponsive: false,
        });
    }

    /// There is no agent any more; what was said of it is for its end to take back.
    pub fn gone(&mut self) {
        self.process = None;
        self.ready = None;
        self.work = None;
        self.tools.clear();
        self.has_questions = false;
        self.shown = None;
    }

    /// The agent printed something other than the answer to a probe.
    pub fn output(&mut self, now: i64) {
        self.forgive(now);
        self.heard_at = now;
    }

    /// What the agent does now.
    pub fn activity(&mut self, now: i64, activity: SessionActivity<'_>) {
        self.forgive(now);
        if self.has_questions && !activity.has_questions {
            // The time a person took is not the agent's silence.
            self.heard_at = now;
        }
        self.has_questions = activity.has_questions;
        match (&mut self.work, activity.is_busy) {
            (Some(work), true) => work.phase = activity.phase,
            (work @ None, true) => {
                *work =
                    Some(WorkPeriod { since: now, phase: activity.phase, told: None, is_condemned: false });
            }
            (work, false) => *work = None,
        }
        let is_same = |(tool, running): (&WatchedTool, &RunningTool)| tool.id == running.tool_call_id;
        let unchanged =
            self.tools.len() == activity.tools.len() && self.tools.iter().zip(activity.tools).all(is_same);
        if !unchanged {
            let tool = |running: &RunningTool| WatchedTool {
                id: running.tool_call_id.clone(),
                name: running.name.clone(),
                since: running.started_at,
            };
            self.tools = activity.tools.iter().map(tool).collect();
        }
    }

    /// What a look at the process found.
    pub fn sampled(&mut self, sample: ProcessSample) {
        if let Some(process) = &mut self.process {
            let is_deaf = sample.is_alive && !sample.is_stdout_open;
            process.deaf_samples = if is_deaf { process.deaf_samples + 1 } else { 0 };
        }
    }

    /// The agent answered a probe, or anything else.
    pub fn answered(&mut self) {
        if let Some(ready) = &mut self.ready {
            ready.probe = None;
            ready.is_unresponsive = false;
        }
    }

    /// The probe could not even be sent: the agent does not read.
    pub fn probe_refused(&mut self, now: i64) {
        self.forgive(now);
        if let Some(ready) = &mut self.ready {
            ready.probe = None;
            ready.is_unresponsive = true;
            ready.probe_at = now + self.config.probe_every;
        }
    }

    pub fn is_unresponsive(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.is_unresponsive)
    }

    /// When [`due`](Self::due) is to be asked next.
    pub fn next_deadline(&self) -> Option<i64> {
        let sample = self.process.as_ref().map(|process| process.sample_at);
        let heartbeat =
            self.ready.as_ref().filter(|_| self.process.is_some()).map(|ready| ready.heartbeat_at);
        let probe = self.ready.as_ref().and_then(|ready| match ready.probe {
            None => Some(ready.probe_at),
            Some(sent) if !ready.is_unresponsive => Some(sent + self.config.probe_timeout),
            Some(_) => None,
        });
        [sample, heartbeat, probe, self.silence_deadline()].into_iter().flatten().min()
    }

    /// What is to be done at this moment; each thing is said once.
    pub fn due(&mut self, now: i64) -> Vec<HealthAction> {
        self.forgive(now);
        let mut orders = Vec::new();
        self.due_looks(now, &mut orders);
        self.due_probe(now, &mut orders);
        self.due_silence(now, &mut orders);
        let status = self.status(now);
        if self.shown != status {
            self.shown.clone_from(&status);
            orders.push(HealthAction::Status(status));
        }
        self.due_end(now, &mut orders);
        self.awaited_at = self.next_deadline();
        orders
    }

    /// Time in which we did not run counts for nothing, and neither does a clock that is set.
    fn forgive(&mut self, now: i64) {
        let Some(before) = self.seen_at.replace(now) else { return };
        let is_late = self.awaited_at.is_some_and(|awaited| now - awaited > LATE_MS_MAX);
        if now >= before && !is_late {
            return;
        }
        self.awaited_at = None;
        let shift = now - before;
        self.heard_at += shift;
        if let Some(process) = &mut self.process {
            process.sample_at += shift;
        }
        if let Some(ready) = &mut self.ready {
            ready.heartbeat_at += shift;
            ready.probe_at += shift;
            ready.probe = ready.probe.map(|sent| sent + shift);
        }
        if let Some(work) = &mut self.work {
            work.since += shift;
            if let Some(told) = &mut work.told {
                told.silent_since += shift;
                told.renew_at += shift;
            }
        }
    }

    fn due_looks(&mut self, now: i64, orders: &mut Vec<HealthAction>) {
        let Some(process) = &mut self.process else { return };
        if process.sample_at <= now {
            process.sample_at = now + self.config.sample;
            orders.push(HealthAction::Sample);
        }
        if let Some(ready) = self.ready.as_mut().filter(|ready| ready.heartbeat_at <= now) {
            ready.heartbeat_at = now + self.config.heartbeat;
            orders.push(HealthAction::Heartbeat);
        }
    }

    fn due_probe(&mut self, now: i64, orders: &mut Vec<HealthAction>) {
        let timeout = self.config.probe_timeout;
        let Some(ready) = &mut self.ready else { return };
        match ready.probe {
            // It stays open: a late answer still tells that the agent is back.
            Some(sent) if !ready.is_unresponsive && sent + timeout <= now => ready.is_unresponsive = true,
            Some(_) => return,
            None if ready.probe_at <= now => {
                ready.probe = Some(now);
                ready.probe_at = now + self.config.probe_every;
                orders.push(HealthAction::Probe);
                return;
            }
            None => return,
        }
        orders.push(HealthAction::Warn(format!(
            "The agent does not respond: it has not answered for {}. Its process lives; session.restart starts it \
             again.",
            seconds(timeout)
        )));
    }

    /// Since when the agent has been silent although it should not be.
    fn silent_since(&self) -> Option<i64> {
        self.ready.as_ref()?;
        let work = self.work.as_ref().filter(|_| !self.has_questions)?;
        Some(work.since.max(self.heard_at))
    }

    fn silence_deadline(&self) -> Option<i64> {
        let silent_since = self.silent_since()?;
        let work = self.work.as_ref()?;
        let speak = match work.told.filter(|told| told.silent_since == silent_since) {
            None => Some(silent_since + self.config.warn_after),
            Some(told) if !self.tools.is_empty() => Some(told.renew_at),
            Some(told) if !told.is_warning => Some(silent_since + self.config.warn_after),
            Some(_) => None,
        };
        let is_stuck = self.is_unresponsive() && self.tools.is_empty() && !work.is_condemned;
        let end = self.config.restart_after.filter(|_| is_stuck).map(|after| silent_since + after);
        [speak, end].into_iter().flatten().min()
    }

    fn due_silence(&mut self, now: i64, orders: &mut Vec<HealthAction>) {
        let Some(silent_since) = self.silent_since() else { return };
        let warn_after = self.config.warn_after;
        let runs_tool = !self.tools.is_empty();
        let Some(work) = self.work.as_mut().filter(|_| silent_since + warn_after <= now) else { return };
        let told = work.told.filter(|told| told.silent_since == silent_since);
        let was_warned = told.is_some_and(|told| told.is_warning);
        if runs_tool {
            if told.is_none_or(|told| told.renew_at <= now) {
                work.told =
                    Some(SilenceNotice { silent_since, is_warning: was_warned, renew_at: now + warn_after });
            }
        } else if !was_warned {
            work.told = Some(SilenceNotice { silent_since, is_warning: true, renew_at: now + warn_after });
            orders.push(HealthAction::Warn(format!(
                "The agent has been silent for {} while it was {}. It may be waiting for its model, or hang; \
                 abort or session.restart ends the wait.",
                seconds(now - silent_since),
                doing(work.phase)
            )));
        }
    }

    /// The text for those who look at the session.
    fn status(&self, now: i64) -> Option<String> {
        if self.is_unresponsive() {
            return Some("The agent does not respond".to_owned());
        }
        let silent_since = self.silent_since()?;
        let told = self.work.as_ref()?.told.filter(|told| told.silent_since == silent_since)?;
        if self.tools.is_empty() {
            return told.is_warning.then(|| "The agent is silent".to_owned());
        }
        // The text as of its last renewal, so that it changes no more often than that.
        let at = now.min(told.renew_at - self.config.warn_after);
        let tools: Vec<String> =
            self.tools.iter().map(|tool| format!("{} for {}", tool.name, seconds(at - tool.since))).collect();
        Some(format!("Running {}", tools.join(", ")))
    }

    fn due_end(&mut self, now: i64, orders: &mut Vec<HealthAction>) {
        if let Some(process) = &mut self.process
            && process.deaf_samples >= DEAF_SAMPLES_MAX
        {
            process.deaf_samples = 0;
            orders.push(HealthAction::Kill(
                "The agent closed its output although its process lives".to_owned(),
            ));
        }
        let Some(after) = self.config.restart_after else { return };
        let Some(silent_since) = self.silent_since() else { return };
        let is_stuck = self.is_unresponsive() && self.tools.is_empty() && silent_since + after <= now;
        if let Some(work) = self.work.as_mut().filter(|work| is_stuck && !work.is_condemned) {
            work.is_condemned = true;
            orders.push(HealthAction::Restart(format!(
                "The agent hung: no output for {} while it was {}, and no answer to a request. It was killed and is \
                 started again",
                seconds(now - silent_since),
                doing(work.phase)
            )));
        }
    }
}

impl From<&HealthConfig> for HealthIntervals {
    fn from(config: &HealthConfig) -> Self {
        // At least one millisecond, so that no deadline is always due.
        let whole = |duration: std::time::Duration| {
            i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4)
        };
        HealthIntervals {
            sample: whole(config.sample),
            heartbeat: whole(config.heartbeat),
            warn_after: whole(config.warn_after),
            restart_after: config.restart_after.map(whole),
            probe_every: whole(config.probe_every),
            probe_timeout: whole(config.probe_timeout),
        }
    }
}

/// What the agent was doing, after "while it was".
fn doing(phase: Option<AgentPhase>) -> &'static str {
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
fn seconds(milliseconds: i64) -> String {
    let milliseconds = milliseconds.max(0);
    let (total, minutes) = (milliseconds / 1000, milliseconds / 60_000);
    match total {
        0 => format!("{milliseconds} ms"),
        1..120 => format!("{total} s"),
        120..7200 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests;
