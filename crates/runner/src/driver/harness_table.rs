//! The table of harnesses. A new one is its two folders and a row here; nothing else names it.

use qd_core::agent::NativeMessage;
use qd_wire::{CodedError, ErrorCode};

use super::harness::{Harness, HarnessSettings};
use super::{Driver, StartRequest, demo, pi, pty};
use crate::config::RunnerConfig;

/// All there are, in the order in which they are listed.
pub static TABLE: &[&dyn Harness] = &[&demo::Demo, &pty::PTY, &pty::TERMINAL, &pi::Pi];

/// What `qd run` starts when nobody says.
pub static DEFAULT: &dyn Harness = &pi::Pi;

/// A command line for a first session, which needs nothing installed.
pub fn first_try() -> &'static str {
    TABLE.iter().find_map(|harness| harness.first_try()).unwrap_or("qd run -- bash")
}

/// A harness of a runner with what is set for it.
#[derive(Debug, Clone)]
pub struct RegisteredHarness {
    pub harness: &'static dyn Harness,
    pub settings: HarnessSettings,
}

/// The harnesses that a runner knows. Not all of them need be installed.
#[derive(Debug, Clone)]
pub struct Harnesses(Vec<RegisteredHarness>);

impl Default for Harnesses {
    fn default() -> Self {
        Harnesses::new(TABLE, |_| HarnessSettings::default())
    }
}

impl Harnesses {
    /// Those of a table, with the settings of each.
    pub fn new(
        table: &[&'static dyn Harness],
        mut settings: impl FnMut(&'static dyn Harness) -> HarnessSettings,
    ) -> Self {
        let row = |harness: &&'static dyn Harness| RegisteredHarness {
            harness: *harness,
            settings: settings(*harness),
        };
        Harnesses(table.iter().map(row).collect())
    }

    /// Adds one; one of the same name gives way.
    pub fn register(&mut self, harness: &'static dyn Harness, settings: HarnessSettings) {
        self.0.retain(|row| row.harness.name() != harness.name());
        self.0.push(RegisteredHarness { harness, settings });
    }

    /// What is set for one.
    pub fn settings_mut(&mut self, name: &str) -> Option<&mut HarnessSettings> {
        let row = self.0.iter_mut().find(|row| row.harness.name() == name);
        row.map(|row| &mut row.settings)
    }

    pub fn find(&self, name: &str) -> Option<&RegisteredHarness> {
        self.0.iter().find(|row| row.harness.name() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &RegisteredHarness> {
        self.0.iter()
    }

    /// The names of those that can be started.
    pub fn installed(&self) -> Vec<String> {
        let installed = self.0.iter().filter(|row| row.harness.is_installed(&row.settings));
        installed.map(|row| row.harness.name().to_owned()).collect()
    }

    /// What a harness can do beyond prompts; nothing for one that is not known.
    pub fn capabilities(&self, name: &str) -> Vec<String> {
        let names = self.find(name).map_or(&[][..], |row| row.harness.capabilities());
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Whether it can be started, and if not, why.
    pub(crate) fn check(&self, name: &str) -> Result<&RegisteredHarness, CodedError> {
        let row = self.find(name);
        if let Some(row) = row.filter(|row| row.harness.is_installed(&row.settings)) {
            return Ok(row);
        }
        let has = self.installed().join(", ");
        Err(ErrorCode::HarnessNotFound.with(match row {
            Some(row) => format!(
                "{name} is not installed on this runner, which has: {has}; {}",
                row.harness.install_advice()
            ),
            None => format!("Unknown harness '{name}'; this runner has: {has}"),
        }))
    }

    /// Whether a new session may continue what its configuration names.
    pub(crate) fn check_continued(&self, harness: &str, named: Option<&str>) -> Result<(), CodedError> {
        let stored = self.find(harness).and_then(|row| Some((row.harness.stored()?, &row.settings)));
        match (stored, named) {
            (Some((stored, settings)), Some(named)) => stored.check(settings, named),
            _ => Ok(()),
        }
    }

    /// Where a stored conversation took place, if the harness keeps some.
    pub(crate) fn cwd_of_stored(&self, harness: &str, named: &str) -> Option<String> {
        let row = self.find(harness)?;
        row.harness.stored()?.cwd_of(&row.settings, named)
    }

    /// What a harness has written of a conversation by itself, read without an agent; none if it writes nothing that can
    /// be read. Blocks.
    pub(crate) fn stored_messages(
        &self,
        harness: &str,
        native_session_file: &str,
    ) -> Option<Vec<NativeMessage>> {
        let row = self.find(harness)?;
        row.harness.stored()?.messages(&row.settings, native_session_file)
    }

    /// Refuses a text that a person must not send to an agent of this harness.
    pub(crate) fn check_input(&self, harness: &str, text: &str) -> Result<(), CodedError> {
        self.find(harness).map_or(Ok(()), |row| row.harness.check_input(text))
    }

    /// The warning to tell when the agent is started once more without our extension, which is to blame.
    pub(crate) fn blame_extension(&self, harness: &str, error: &str) -> Option<String> {
        self.find(harness)?.harness.blame_extension(error)
    }

    /// Whether the agent tells events in the form of the watching face itself.
    pub(crate) fn tells_native_events(&self, harness: &str) -> bool {
        self.find(harness).is_some_and(|row| row.harness.tells_native_events())
    }
}

/// Starts an agent. It is not ready yet: [`AgentHandle::prepare`](super::AgentHandle::prepare) waits for that.
pub async fn start(runner: &RunnerConfig, request: StartRequest) -> Result<Driver, CodedError> {
    let name = request.config.harness.clone();
    match runner.harnesses.find(&name) {
        Some(row) => row.harness.start(runner, &row.settings, request).await,
        None => {
            let has = runner.harnesses.installed().join(", ");
            Err(ErrorCode::HarnessNotFound.with(format!("Unknown harness '{name}'; this runner has: {has}")))
        }
    }
}
