//! Commands the hub answered itself. No runner knows them, so the hub checks who depends on them.

use std::collections::VecDeque;

use qd_wire::{CodedError, ErrorCode};

/// Commands of one connection that are remembered; the oldest goes when there is one more.
const FINISHED_MAX: usize = 256;

/// How the latest commands of a connection ended.
#[derive(Default)]
pub(crate) struct FinishedCommands(VecDeque<(String, Result<(), CodedError>)>);

impl FinishedCommands {
    pub(crate) fn note(&mut self, id: String, result: Result<(), CodedError>) {
        self.forget(&id);
        if self.0.len() >= FINISHED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, result));
    }

    /// The name belongs to a command of the runner's from now on.
    pub(crate) fn forget(&mut self, id: &str) {
        self.0.retain(|(known, _)| known != id);
    }

    /// Leaves in `dependencies` those that the runner has to check; an error when one of ours has failed.
    pub(crate) fn settle(&self, own_id: &str, dependencies: &mut Vec<String>) -> Result<(), CodedError> {
        for (id, result) in &self.0 {
            if let Err(error) = result
                && dependencies.contains(id)
                && id != own_id
            {
                return Err(ErrorCode::DependencyFailed.with(format!("Dependency '{id}' failed: {error}")));
            }
        }
        dependencies.retain(|id| id == own_id || !self.0.iter().any(|(known, _)| known == id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_and_no_more() {
        let mut finished = FinishedCommands::default();
        finished.note("bad".to_owned(), Err(ErrorCode::Failed.with("no")));
        let mut list = vec!["bad".to_owned()];
        assert_eq!(
            finished.settle("own", &mut list).unwrap_err(),
            ErrorCode::DependencyFailed.with("Dependency 'bad' failed: no")
        );
        for number in 0..FINISHED_MAX {
            finished.note(number.to_string(), Ok(()));
        }
        let mut list = vec!["bad".to_owned(), "7".to_owned(), "own".to_owned()];
        finished.settle("own", &mut list).unwrap();
        assert_eq!(list, ["bad", "own"], "what is forgotten is the runner's to judge");
        finished.forget("7");
        let mut list = vec!["7".to_owned()];
        finished.settle("own", &mut list).unwrap();
        assert_eq!(list, ["7"]);
    }
}
