//! What lists show of a run, folded from its records.

use qd_wire::event::Event;
use qd_wire::run::AwaitingReason;
use serde::{Deserialize, Serialize};

use super::Kind;
use super::event::requested;
use super::record::Record;

/// Questions of one run that are remembered; a list shows the oldest.
const PENDING_MAX: usize = 16;

/// What is known of a run up to a record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The last record that is in it.
    pub seq: u64,
    pub tool: Option<String>,
    pub command: Option<String>,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub exit_code: Option<i32>,
    /// Oldest first.
    pub pending: Vec<Pending>,
}

/// A question that nobody has answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pending {
    pub request_id: String,
    pub reason: AwaitingReason,
    pub prompt: String,
    pub op_tool: Option<String>,
    pub op_args_summary: Option<String>,
}

#[derive(Deserialize)]
struct Started {
    tool: String,
    command: String,
}

#[derive(Deserialize)]
struct Created {
    harness: String,
}

#[derive(Deserialize)]
struct Exited {
    exit_code: i32,
}

#[derive(Deserialize)]
struct Named {
    request_id: Option<String>,
    input_id: Option<String>,
}

impl Facts {
    /// Takes in the next record. Most say nothing here, and cost nothing.
    pub fn fold(&mut self, kind: Kind, record: &Record<'_>) {
        self.seq = self.seq.max(record.seq);
        match &*record.event {
            "run.started" => {
                if let Some(Started { tool, command }) = record.read() {
                    self.start(record.ts, tool, command);
                }
            }
            "session.created" if kind == Kind::Agent => {
                if let Some(Created { harness }) = record.read() {
                    self.start(record.ts, harness.clone(), harness);
                }
            }
            "run.exited" => {
                self.end(record.ts, record.read::<Exited>().map_or(-1, |exited| exited.exit_code))
            }
            "session.closed" if self.ended_at.is_none() => self.end(record.ts, 0),
            "agent.input_needed" => self.ask(record),
            "agent.input_resolved" => {
                let Some(Event::AgentInputResolved { request_id, .. }) = event(record) else { return };
                self.settle(&request_id);
            }
            // A host of others does not record decisions: what was approved is typed, or its call has a result.
            "run.input" | "tool.result" if !self.pending.is_empty() => {
                let Some(Named { request_id, input_id }) = record.read() else { return };
                request_id.or(input_id).iter().for_each(|id| self.settle(id));
            }
            _ => {}
        }
    }

    fn start(&mut self, ts: i64, tool: String, command: String) {
        self.tool = Some(tool);
        self.command = Some(command);
        self.started_at.get_or_insert(ts);
        self.ended_at = None;
        self.exit_code = None;
    }

    fn settle(&mut self, request_id: &str) {
        self.pending.retain(|pending| pending.request_id != request_id);
    }

    fn end(&mut self, ts: i64, exit_code: i32) {
        self.pending.clear();
        self.ended_at = Some(ts);
        self.exit_code = Some(exit_code);
    }

    fn ask(&mut self, record: &Record<'_>) {
        let Some(Event::AgentInputNeeded { request }) = event(record) else { return };
        let (data, _) = requested(&request);
        if self.pending.len() < PENDING_MAX {
            self.pending.push(Pending {
                request_id: data.request_id,
                reason: data.reason,
                prompt: data.prompt,
                op_tool: data.op_tool,
                op_args_summary: data.op_args_summary,
            });
        }
    }
}

fn event(record: &Record<'_>) -> Option<Event> {
    let name = serde_json::Value::from(&*record.event);
    serde_json::from_str(&format!("{{\"event\":{name},{}", record.rest)).ok()
}
