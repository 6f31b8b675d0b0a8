//! Inputs that wait until their host has recorded them. A host may never do so, and what waits is bounded: so each has
//! a time, and none waits longer than its run lives.

use super::adapter::LinkCommand;

/// Inputs that may wait for their record at once.
pub(super) const INPUTS_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct PendingInputs(Vec<PendingInput>);

struct PendingInput {
    run_id: String,
    input_id: String,
    asker: LinkCommand,
    /// Unix milliseconds.
    deadline: i64,
}

impl PendingInputs {
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= INPUTS_MAX
    }

    pub(super) fn add(&mut self, run_id: &str, input_id: String, asker: LinkCommand, deadline: i64) {
        self.0.push(PendingInput { run_id: run_id.to_owned(), input_id, asker, deadline });
    }

    /// The host has recorded an input: those who asked for it.
    pub(super) fn recorded(&mut self, run_id: &str, input_id: &str) -> Vec<LinkCommand> {
        self.take(|input| input.run_id == run_id && input.input_id == input_id)
    }

    /// The run is over: those whose inputs it has not taken.
    pub(super) fn ended(&mut self, run_id: &str) -> Vec<LinkCommand> {
        self.take(|input| input.run_id == run_id)
    }

    /// Those whose time is over.
    pub(super) fn over_time(&mut self, now: i64) -> Vec<LinkCommand> {
        self.take(|input| input.deadline <= now)
    }

    fn take(&mut self, is_it: impl Fn(&PendingInput) -> bool) -> Vec<LinkCommand> {
        self.0.extract_if(.., |input| is_it(input)).map(|input| input.asker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(id: &str) -> LinkCommand {
        LinkCommand { id: id.to_owned(), cmd: "run.input".to_owned(), run_id: None }
    }

    fn ids(askers: Vec<LinkCommand>) -> Vec<String> {
        askers.into_iter().map(|asker| asker.id).collect()
    }

    #[test]
    fn a_host_that_confirms_nothing_does_not_fill_the_list_for_ever() {
        let mut inputs = PendingInputs::default();
        for number in 0..INPUTS_MAX {
            assert!(!inputs.is_full());
            inputs.add("run", format!("i{number}"), asker("a"), 1000);
        }
        assert!(inputs.is_full());
        assert!(inputs.over_time(999).is_empty());
        assert_eq!(inputs.over_time(1000).len(), INPUTS_MAX);
        assert!(!inputs.is_full());
    }

    #[test]
    fn each_is_answered_once_and_none_outlives_its_run() {
        let mut inputs = PendingInputs::default();
        for (run_id, input_id, id) in [("r", "i", "1"), ("r", "i", "2"), ("r", "j", "3"), ("s", "i", "4")] {
            inputs.add(run_id, input_id.to_owned(), asker(id), 1000);
        }
        assert_eq!(ids(inputs.recorded("r", "i")), ["1", "2"]);
        assert!(inputs.recorded("r", "i").is_empty());
        assert_eq!(ids(inputs.ended("r")), ["3"]);
        assert_eq!(ids(inputs.over_time(1000)), ["4"]);
    }
}
