//! What services of the machine want of a session: facts, a place in its record, a question to a person.
//!
//! A call that waits for a person is a task with an open end here. Its question is stored with all that is needed to do
//! it, so when the runner was restarted meanwhile and nobody waits any more, the call is done from there.

use std::collections::BTreeMap;

use qd_core::session::{Allowance, SettledAnswer};
use qd_wire::event::Event;
use qd_wire::run::{GatePolicy, PermissionDetails};
use qd_wire::{CodedError, InputRequest};
use tokio::sync::oneshot;

use super::actor::SessionActor;
use crate::clock::now_ms;
use crate::services;

/// A word of a service call to the session it is for.
pub(crate) enum ServiceInput {
    /// A record of the call; `done` is told when it is stored.
    Record {
        event: Box<Event>,
        done: oneshot::Sender<()>,
    },
    /// A question to a person; the answer comes when there is one.
    Ask {
        request: Box<InputRequest>,
        answer: oneshot::Sender<GateAnswer>,
    },
    Facts(oneshot::Sender<ServiceFacts>),
    /// Nobody waits for the question any more.
    Withdraw {
        request_id: String,
    },
}

/// What became of a question of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GateAnswer {
    Approved,
    /// A person said no, and perhaps why.
    Denied(Option<String>),
    TimedOut,
    /// The session was closed or deleted.
    Withdrawn,
    /// It was not asked: too many questions are open, or one has this id.
    Refused(CodedError),
}

/// What a service call must know of its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceFacts {
    /// Whether the session is there, and not only about to be created.
    pub(crate) exists: bool,
    pub(crate) cwd: Option<String>,
    pub(crate) gate: Option<GatePolicy>,
    /// What a person has allowed for as long as the session lives.
    pub(crate) allowances: Vec<Allowance>,
    pub(crate) version: u64,
}

/// The calls that wait for a person.
#[derive(Default)]
pub(super) struct PendingGates {
    /// By the id of their question.
    waiting: BTreeMap<String, oneshot::Sender<GateAnswer>>,
    /// What is decided and not stored yet.
    decided: Vec<(String, PermissionDetails, GateAnswer)>,
}

impl SessionActor {
    pub(super) async fn service(&mut self, input: ServiceInput) {
        match input {
            ServiceInput::Record { event, done } => {
                if !self.exists {
                    return;
                }
                self.session.service_event(now_ms(), *event, &mut self.out);
                self.publish().await;
                // What could not be stored is not done; nobody may be waiting any more.
                if !self.finished {
                    let _ = done.send(());
                }
            }
            ServiceInput::Ask { request, answer } => self.ask_gate(*request, answer),
            ServiceInput::Facts(answer) => {
                let identity = self.session.identity();
                let memory = self.session.memory();
                let facts = ServiceFacts {
                    exists: self.exists,
                    cwd: identity.cwd.clone(),
                    gate: self.config.gate,
                    allowances: memory.allowances.clone(),
                    version: memory.version,
                };
                // Nobody may be waiting any more.
                let _ = answer.send(facts);
            }
            ServiceInput::Withdraw { request_id } => {
                self.gates.waiting.remove(&request_id);
                self.session.withdraw_question(now_ms(), &request_id, &mut self.out);
            }
        }
    }

    fn ask_gate(&mut self, request: InputRequest, answer: oneshot::Sender<GateAnswer>) {
        let request_id = request.request_id().to_owned();
        let asked = if self.exists {
            self.session.ask_gate(now_ms(), request, &mut self.out).map_err(CodedError::from)
        } else {
            Err(CodedError::session_not_found(&self.session.identity().session_id))
        };
        match asked {
            Ok(()) => drop(self.gates.waiting.insert(request_id, answer)),
            // The caller may have given up.
            Err(error) => drop(answer.send(GateAnswer::Refused(error))),
        }
    }

    /// A person has answered the question of a gate.
    pub(super) async fn gate_answered(&mut self, request_id: &str, answered: SettledAnswer) {
        let SettledAnswer { decision, details, reason, .. } = answered;
        let answer = match decision {
            Some(decision) if decision.is_approval() => GateAnswer::Approved,
            _ => GateAnswer::Denied(reason),
        };
        self.gates.decided.push((request_id.to_owned(), details.unwrap_or_default(), answer));
        self.publish().await;
    }

    /// The time of some questions is over.
    pub(super) async fn gates_timed_out(&mut self) {
        for (request_id, details) in self.session.take_timed_out_gates() {
            self.gates.decided.push((request_id, details, GateAnswer::TimedOut));
        }
        if !self.gates.decided.is_empty() {
            self.publish().await;
        }
    }

    /// The session is closed or deleted: nobody decides about its calls any more.
    pub(super) async fn withdraw_gates(&mut self) {
        let open: Vec<(String, PermissionDetails)> = self
            .session
            .gates()
            .map(|gate| (gate.request.request_id().to_owned(), gate.details.clone().unwrap_or_default()))
            .collect();
        for (request_id, details) in open {
            self.session.withdraw_question(now_ms(), &request_id, &mut self.out);
            self.gates.decided.push((request_id, details, GateAnswer::Withdrawn));
        }
        if !self.gates.decided.is_empty() {
            self.publish().await;
        }
    }

    /// Tells the calls what was decided, once that is stored: what is done is never asked about again.
    pub(super) fn deliver_gate_answers(&mut self) {
        for (request_id, details, answer) in std::mem::take(&mut self.gates.decided) {
            match self.gates.waiting.remove(&request_id) {
                // A call that was taken back at this moment is not done: whoever asked has heard that.
                Some(waiting) => drop(waiting.send(answer)),
                None => {
                    let session_id = &self.session.identity().session_id;
                    services::resume(&self.shared, session_id, &request_id, details, answer);
                }
            }
        }
    }
}
