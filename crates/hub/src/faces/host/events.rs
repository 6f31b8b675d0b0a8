//! From a host to the hub: its events in order as records, its answers to those who asked.

use bytes::Bytes;
use qd_core::ids::check_session_id;
use qd_core::view::run::host::reorder_buffer::{OrderedEvent, RefusedEvent};
use qd_core::view::run::host::{answer, event, time};
use qd_link::clock::now_ms;
use qd_link::memory::LinkReceiver;
use qd_wire::command_table::{CommandClass, class_of};
use qd_wire::event::{Event, EventPayload};
use qd_wire::input::InputOutcome;
use qd_wire::link::{LinkEvent, LinkLine};
use qd_wire::run::Decision;
use qd_wire::run_protocol::{Envelope, MessageDirection, ResponseData, spec};
use qd_wire::{CodedError, ErrorCode, InputRequest};
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::adapter::{AdapterState, EventGate, HeldEvent, HostAdapter, HostCall, HostRun, LinkCommand};
use crate::runners::link::line_of;

/// Lines that go to the hub in one block, as far as they are here.
const BLOCK_BYTES: usize = 256 << 10;
/// Runs of one host on one connection; each costs some memory.
const RUNS_MAX: usize = 10_000;
/// Events of all runs that wait for those before them; beyond it a hole is given up at once.
const HELD_BYTES_MAX: usize = 64 << 20;
/// What an event costs beside its text while it waits.
const HELD_OVERHEAD_BYTES: usize = 256;
/// How often it is noted that a host is there.
const NOTE_INTERVAL_MS: i64 = 60_000;
/// While no event is missing, time brings nothing.
const NO_HOLE: Duration = Duration::from_secs(3600);

impl HostAdapter {
    /// Reads what the host sends until it is gone.
    pub(super) async fn read_host(&self, mut host: LinkReceiver) -> String {
        loop {
            let mut block = tokio::select! {
                message = host.recv() => match message {
                    Some(message) => self.message(&message),
                    None => return host.close_reason(),
                },
                () = sleep(self.next_hole()) => self.give_up_holes(),
            };
            // What has arrived already goes along, so that a burst costs the hub one wake-up.
            while block.len() < BLOCK_BYTES
                && let Some(message) = host.try_recv()
            {
                block.extend(self.message(&message));
            }
            if !block.is_empty() && self.link.send(block.into()).await.is_err() {
                return "the hub is gone".to_owned();
            }
        }
    }

    /// How long until the oldest missing event is given up.
    fn next_hole(&self) -> Duration {
        let state = self.state.lock();
        let due = state.holes.iter().filter_map(|run_id| state.runs.get(run_id)?.arrivals.due()).min();
        due.map_or(NO_HOLE, |due| Duration::from_millis((due - now_ms()).max(1).unsigned_abs()))
    }

    fn give_up_holes(&self) -> Vec<u8> {
        let now = now_ms();
        let mut state = self.state.lock();
        let mut block = Vec::new();
        for run_id in state.holes.iter().cloned().collect::<Vec<_>>() {
            let mut arrived = Vec::new();
            let Some(run) = state.runs.get_mut(&run_id) else { continue };
            let before = run.arrivals.held_bytes();
            run.arrivals.tick(now, &mut arrived);
            let after = run.arrivals.held_bytes();
            state.held_bytes = state.held_bytes + after - before;
            block.extend(self.pass_on(&mut state, &run_id, arrived));
        }
        block
    }

    /// The lines for the hub that a message of the host makes.
    fn message(&self, message: &Bytes) -> Vec<u8> {
        let envelope: Envelope = match serde_json::from_slice(message) {
            Ok(envelope) => envelope,
            Err(error) => {
                let error = CodedError::invalid(format!("the message is no envelope: {error}"));
                self.out.error(None, None, &error);
                return Vec::new();
            }
        };
        match &*envelope.kind {
            "host.heartbeat" => {
                self.note_host();
                Vec::new()
            }
            "rpc.response" => self.answered(&envelope),
            _ => self.event(envelope),
        }
    }

    /// Heartbeats only say that the host is there.
    fn note_host(&self) {
        let now = now_ms();
        let mut state = self.state.lock();
        if now - state.noted_at < NOTE_INTERVAL_MS {
            return;
        }
        state.noted_at = now;
        let (store, host_id) = (self.hub.store.clone(), std::sync::Arc::clone(&self.host_id));
        self.hub.tasks.spawn(async move {
            if let Err(error) = store.touch_host(&host_id, now).await {
                tracing::warn!(host = %host_id, %error, "it cannot be noted that a host is there");
            }
        });
    }

    fn event(&self, envelope: Envelope) -> Vec<u8> {
        let Envelope { kind, ts, run_id, seq, data, .. } = envelope;
        let refuse = |run_id: Option<&str>, error: &str| {
            self.out.error(Some(&kind), run_id, &CodedError::invalid(error));
            Vec::new()
        };
        if spec(&kind).is_some_and(|row| row.way != MessageDirection::Event) {
            return refuse(run_id.as_deref(), "a host does not send this");
        }
        let Some(run_id) = run_id else { return refuse(None, "'run_id' is missing") };
        if let Err(error) = check_session_id(&run_id) {
            return refuse(None, &error.to_string());
        }
        let Some(seq) = seq.filter(|seq| *seq > 0) else {
            return refuse(Some(&run_id), "'seq' is missing; a run's events are numbered from 1");
        };
        let now = now_ms();
        let bytes = HELD_OVERHEAD_BYTES + data.to_string().len();
        let mut state = self.state.lock();
        // Before the body is translated: events of runs that are not taken cost as little as possible.
        if !self.is_open(&mut state, &run_id, seq) {
            return Vec::new();
        }
        let (event, problem) = event::record(&kind, data);
        let held = HeldEvent { ts: ts.as_deref().and_then(time::from_text).unwrap_or(now), event };
        let Some(run) = state.runs.get_mut(&run_id) else { return Vec::new() };
        let (before, mut arrived) = (run.arrivals.held_bytes(), Vec::new());
        let taken = run.arrivals.take(now, seq, held, bytes, &mut arrived);
        // The bound is for all runs together; the run that grows gives up its hole, the others are not punished for it.
        if state_is_full(state.held_bytes, before, bytes)
            && let Some(run) = state.runs.get_mut(&run_id)
        {
            run.arrivals.give_up(now, &mut arrived);
        }
        let after = state.runs.get(&run_id).map_or(0, |run| run.arrivals.held_bytes());
        state.held_bytes = state.held_bytes + after - before;
        match taken {
            Ok(()) => {
                if let Some(problem) = problem {
                    self.out.error(Some(&kind), Some(&run_id), &CodedError::invalid(problem));
                }
            }
            // The host sends again because it has not seen the ack, so it gets another.
            Err(RefusedEvent::Repeated) => self.out.acks(|acks, now| acks.repeated(now, &run_id, seq)),
            Err(RefusedEvent::TooFar { expected }) => {
                tracing::warn!(host = %self.host_id, run_id, seq, expected, "a run's numbers jump too far");
                let error = CodedError::invalid(format!("seq {seq} is too far ahead of {expected}"));
                self.out.error(Some(&kind), Some(&run_id), &error);
            }
        }
        self.pass_on(&mut state, &run_id, arrived)
    }

    /// Whether a run's events are taken; a run that is new here is looked up first.
    fn is_open(&self, state: &mut AdapterState, run_id: &str, seq: u64) -> bool {
        if !state.runs.contains_key(run_id) {
            let gate = match (self.hub.session(run_id), self.hub.deleted_on(run_id)) {
                (Some(entry), _) if entry.runner_id != self.host_id => EventGate::Refused,
                (None, Some(owner)) if owner == self.host_id => EventGate::Deleted,
                (None, Some(_)) => EventGate::Refused,
                _ if state.runs.len() >= RUNS_MAX => {
                    let error = format!("more than {RUNS_MAX} runs on one connection; connect again");
                    self.out.error(None, Some(run_id), &ErrorCode::LimitReached.with(error));
                    return false;
                }
                _ => EventGate::Open,
            };
            if gate == EventGate::Refused {
                self.refused(run_id, "the run is not this host's");
            }
            state.runs.insert(run_id.to_owned(), HostRun::new(0, Some(Default::default()), gate));
        }
        match state.runs.get(run_id).map(|run| &run.gate) {
            Some(EventGate::Open) => true,
            // Nobody wants them any more: the host need not keep them.
            Some(EventGate::Deleted) => {
                self.out.acks(|acks, now| {
                    acks.committed(now, run_id, seq);
                    acks.repeated(now, run_id, seq);
                });
                false
            }
            Some(EventGate::Refused) | None => false,
        }
    }

    /// Tells the host, and the log, that a run is not its own. Called once for each.
    pub(super) fn refused(&self, run_id: &str, reason: &str) {
        tracing::warn!(host = %self.host_id, run_id, reason, "a host's run is refused");
        let error = ErrorCode::WrongRunner.with(format!("nothing of this run is taken: {reason}"));
        self.out.error(None, Some(run_id), &error);
    }

    /// The lines of events that leave in their order, and of what they answer.
    fn pass_on(
        &self,
        state: &mut AdapterState,
        run_id: &str,
        arrived: Vec<OrderedEvent<HeldEvent>>,
    ) -> Vec<u8> {
        let mut block = Vec::new();
        let Some(run) = state.runs.get_mut(run_id) else { return block };
        for arrived in arrived {
            let (seq, mut held) = match arrived {
                OrderedEvent::Event(seq, held) => (seq, held),
                OrderedEvent::Lost(seq) => {
                    tracing::warn!(host = %self.host_id, run_id, seq, "a host never sent an event");
                    (seq, HeldEvent { ts: now_ms(), event: event::lost(seq) })
                }
            };
            // Compares the open questions before and after: an input or an exit answers a question without naming it.
            let settled = run.book.as_mut().map(|book| {
                let asked = |question: &InputRequest| {
                    let id = question.request_id();
                    (id.to_owned(), book.asked_seq(id))
                };
                let open: Vec<_> = book.questions().iter().map(asked).collect();
                book.read(held.ts, seq, &held.event);
                open.into_iter().filter(|(id, _)| book.question(id).is_none()).collect::<Vec<_>>()
            });
            let mut is_resolution = false;
            if let EventPayload::Known(Event::AgentInputResolved { request_id, asked_seq, .. }) =
                &mut held.event
            {
                is_resolution = true;
                let of_it = |(id, seq): &(String, Option<u64>)| seq.filter(|_| id == request_id);
                *asked_seq = settled.iter().flatten().find_map(of_it);
            }
            let answered = match &held.event {
                EventPayload::Known(Event::RunInput { input_id, .. }) => {
                    let data = json!({ "input_id": input_id, "duplicate": false });
                    Some((state.inputs.recorded(run_id, input_id), Ok(Some(data))))
                }
                EventPayload::Known(Event::RunExited { .. }) => {
                    let error = ErrorCode::RunEnded.with("The run has ended before it took the input");
                    Some((state.inputs.ended(run_id), Err(error)))
                }
                EventPayload::Known(_) | EventPayload::Other(_) => None,
            };
            block.extend(self.event_line(run_id, held.ts, Some(seq), held.event));
            for (request_id, asked_seq) in settled.into_iter().flatten().filter(|_| !is_resolution) {
                block.extend(self.resolved_line(run_id, request_id, asked_seq, (None, None, None)));
            }
            if let Some((askers, result)) = answered {
                for asker in &askers {
                    let answer = match &result {
                        Ok(data) => Ok(data.clone()),
                        Err(error) => Err(error),
                    };
                    block.extend(self.response(asker, answer));
                }
            }
        }
        if run.arrivals.due().is_some() {
            state.holes.insert(run_id.to_owned());
        } else {
            state.holes.remove(run_id);
        }
        block
    }

    pub(super) fn event_line(
        &self,
        run_id: &str,
        ts: i64,
        seq: Option<u64>,
        payload: EventPayload,
    ) -> Vec<u8> {
        line_of(&LinkLine::Event(LinkEvent {
            session_id: run_id.to_owned(),
            runner_id: Some(self.host_id.to_string()),
            // A time before all times would be left out of the line.
            ts: ts.max(1),
            seq,
            payload,
        }))
    }

    /// The host does not say that a question is over, so whoever follows the run is told here. `by` is who has decided,
    /// what, and how that came, as far as it is known.
    pub(super) fn resolved_line(
        &self,
        run_id: &str,
        request_id: String,
        asked_seq: Option<u64>,
        by: (Option<String>, Option<Decision>, Option<String>),
    ) -> Vec<u8> {
        let (user_id, decision, actor) = by;
        let event = Event::AgentInputResolved {
            request_id,
            outcome: Some(InputOutcome::Answered),
            user_id,
            decision,
            actor,
            asked_seq,
            answer: None,
        };
        self.event_line(run_id, now_ms(), None, EventPayload::Known(event))
    }

    fn answered(&self, envelope: &Envelope) -> Vec<u8> {
        let Ok(data) = serde_json::from_value::<ResponseData>(envelope.data.clone()) else {
            let error = CodedError::invalid("the data is no response");
            self.out.error(Some("rpc.response"), envelope.run_id.as_deref(), &error);
            return Vec::new();
        };
        let mut state = self.state.lock();
        // Also where the answer comes too late for its asker.
        if let Some(start) = state.starts.iter_mut().find(|start| start.request_id == data.request_id) {
            let result = data.result.clone().unwrap_or_default();
            start.run_id = answer::started_run(envelope.run_id.as_deref(), &result).filter(|_| data.ok);
        }
        // Its time was over, or it was cancelled.
        let Some(HostCall { asker, kind, .. }) = state.calls.remove(&data.request_id) else {
            tracing::debug!(host = %self.host_id, request_id = data.request_id, "an answer nobody waits for");
            return Vec::new();
        };
        let result = data.result.unwrap_or_default();
        let class = class_of(&asker.cmd);
        let answered = answer::data(kind, data.ok, &result, data.error.as_deref());
        match answered {
            Ok(_) if class == CommandClass::Create => {
                self.run_started(&state, &asker, answer::started_run(envelope.run_id.as_deref(), &result))
            }
            // Whoever asked for more than a signal is not interested in which one it was.
            Ok(_) if class != CommandClass::Stop && stops(kind) => self.response(&asker, Ok(None)),
            Ok(data) => self.response(&asker, Ok(Some(data))),
            Err(error) => {
                state.starts.retain(|start| start.request_id != data.request_id);
                self.response(&asker, Err(&error))
            }
        }
    }

    /// A run that was asked for is there. Its events may have come before, or come later.
    pub(super) fn run_started(
        &self,
        state: &AdapterState,
        asker: &LinkCommand,
        run_id: Option<String>,
    ) -> Vec<u8> {
        let Some(run_id) = run_id.filter(|run_id| check_session_id(run_id).is_ok()) else {
            let error = "The host started a run and gave it no name that can be used";
            return self.response(asker, Err(&ErrorCode::Failed.with(error)));
        };
        let new = qd_core::view::run::host::foreign_run::ForeignRun::default();
        let book = state.runs.get(&run_id).and_then(|run| run.book.as_ref()).unwrap_or(&new);
        let mut data = serde_json::to_value(book.attach(&run_id, &self.host_id, None)).unwrap_or_default();
        // As the answer of a runner names what it made.
        data["session_id"] = json!(run_id);
        let asker = LinkCommand { run_id: Some(run_id), ..asker.clone() };
        self.response(&asker, Ok(Some(data)))
    }
}

/// Whether a message of this type ends a program.
fn stops(kind: &str) -> bool {
    spec(kind).is_some_and(|row| class_of(row.canonical) == CommandClass::Stop)
}

fn state_is_full(held_bytes: usize, before: usize, bytes: usize) -> bool {
    held_bytes.saturating_sub(before) + before + bytes > HELD_BYTES_MAX
}
