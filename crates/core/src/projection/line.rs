//! What a change sets in the line that lists show of a session. The projection and the store both take it from here,
//! so that a list that is read says the same as the news of it.

use qd_wire::data::SessionStatus;

use super::{Change, one_line};

/// What lists show of the error that ended an agent.
const ERROR_CHARACTERS_MAX: usize = 500;

/// Fields of the line to set. `None` leaves one as it is, an empty text takes it away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinePatch {
    /// As far as records tell it; live events tell more.
    pub status: Option<SessionStatus>,
    /// `status` does not take the place of `failed`: an agent that died is told to be idle too, since nothing goes on,
    /// but what matters is that it died.
    pub keeps_failed: bool,
    pub harness: Option<String>,
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub branch: Option<String>,
    pub error: Option<String>,
    pub run_tool: Option<String>,
}

impl LinePatch {
    pub fn of(change: &Change) -> Self {
        let nothing = Self::default();
        match change {
            Change::Created { harness, cwd } => Self {
                harness: Some(harness.clone()),
                cwd: cwd.clone(),
                error: Some(String::new()),
                ..Self::at(SessionStatus::Idle)
            },
            Change::Started { tool, .. } => Self {
                run_tool: tool.clone(),
                error: Some(String::new()),
                ..Self::at(SessionStatus::Working)
            },
            Change::Exited { .. } | Change::Closed => Self::at(SessionStatus::Closed),
            Change::Idle { .. } => Self { keeps_failed: true, ..Self::at(SessionStatus::Idle) },
            Change::Failed { error } => {
                Self { error: Some(one_line(error, ERROR_CHARACTERS_MAX)), ..Self::at(SessionStatus::Failed) }
            }
            Change::Titled(title) => Self { title: Some(title.clone()), ..nothing },
            Change::ModelChanged { provider, model_id } => {
                Self { provider: Some(provider.clone()), model: Some(model_id.clone()), ..nothing }
            }
            Change::BranchChanged(branch) => {
                Self { branch: Some(branch.clone().unwrap_or_default()), ..nothing }
            }
            Change::Working(_)
            | Change::Asked(_)
            | Change::Answered(_)
            | Change::Acted { .. }
            | Change::Said { .. }
            | Change::Described(_) => nothing,
        }
    }

    fn at(status: SessionStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// The status after it, of a session that had this one before.
    pub fn status_after(&self, before: SessionStatus) -> SessionStatus {
        match self.status {
            Some(_) if self.keeps_failed && before == SessionStatus::Failed => before,
            Some(status) => status,
            None => before,
        }
    }
}
