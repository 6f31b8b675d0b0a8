//! What people send to the agent, from the queue to the conversation: prompts that were accepted, inputs that still wait, and
//! changes of the queue.

pub(super) mod accepted_prompts;
pub(super) mod queue_edit;
pub(super) mod undelivered_inputs;
