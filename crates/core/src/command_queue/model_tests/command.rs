//! Where the model keeps commands.

use qd_wire::command_table::Lane;

use super::super::{AgentWork, QueuedCommand};
use crate::ledger::SubmissionToken;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ModelPlace {
    Held {
        repeats: bool,
        since: i64,
    },
    InLane,
    InHand,
    Parked,
    Prompt {
        interrupts: bool,
        follows: bool,
    },
    Edit,
    WithAgent(AgentWork),
    GivenUp(AgentWork),
    /// It was given up, and its answer is being worked in.
    Late,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ModelCommand {
    pub(super) command: QueuedCommand,
    pub(super) place: ModelPlace,
    /// Places are entered in this order.
    pub(super) order: i64,
    /// It is the one of its lane.
    pub(super) has_turn: bool,
    /// It is the change of the queue that is under way.
    pub(super) is_editing: bool,
}

/// The prompt the agent is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GivenPrompt {
    Nobody,
    ToWrite(SubmissionToken),
    KeptToWrite,
    Written { token: SubmissionToken, at: i64, turns: u64, accepted: bool },
}

pub(super) const KEPT: fn(&ModelCommand) -> bool = |item| is_kept(item.place);

pub(super) fn is_kept(place: ModelPlace) -> bool {
    matches!(place, ModelPlace::WithAgent(AgentWork::Delivery { .. }))
}

pub(super) fn in_lane(item: &ModelCommand, lane: Lane) -> bool {
    item.place == ModelPlace::InLane && item.command.lane == lane
}
