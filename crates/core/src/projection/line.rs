//! What a change sets in the line that lists show of a session. The projection and the store both take it from here,
//! so that a list that is read says the same as the news of it.

use qd_wire::data::SessionStatus;

use super::{ProjectionChange, one_line};

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
    pub fn of(change: &ProjectionChange) -> Self {
        let nothing = Self::default();
        match change {
            ProjectionChange::Created { harness, cwd } => Self {
                harness: Some(harness.clone()),
                cwd: cwd.clone(),
                error: Some(String::new()),
                ..Self::at(SessionStatus::Idle)
            },
            ProjectionChange::Started { tool, .. } => Self {
                run_tool: tool.clone(),
                error: Some(String::new()),
                ..Self::at(SessionStatus::Working)
            },
            ProjectionChange::Exited { .. } | ProjectionChange::Closed => Self::at(SessionStatus::Closed),
            ProjectionChange::Idle { .. } => Self { keeps_failed: true, ..Self::at(SessionStatus::Idle) },
            ProjectionChange::Failed { error } => {
                Self { error: Some(one_line(error, ERROR_CHARACTERS_MAX)), ..Self::at(SessionStatus::Failed) }
            }
            ProjectionChange::Titled(title) => Self { title: Some(title.clone()), ..nothing },
            ProjectionChange::ModelChanged { provider, model_id } => {
                Self { provider: Some(provider.clone()), model: Some(model_id.clone()), ..nothing }
            }
            ProjectionChange::BranchChanged(branch) => {
                Self { branch: Some(branch.clone().unwrap_or_default()), ..nothing }
            }
            ProjectionChange::Working(_)
            | ProjectionChange::Asked(_)
            | ProjectionChange::Answered(_)
            | ProjectionChange::Acted { .. }
            | ProjectionChange::Said { .. }
            | ProjectionChange::Described(_) => nothing,
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
