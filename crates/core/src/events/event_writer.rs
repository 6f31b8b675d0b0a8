//! What a session says, as link lines: each event is serialised once, here.
//!
//! Every line begins with its kind, the session's ids and the time, in one spelling. So the hub finds the head of a
//! line without parsing its body, and passes the bytes on as they are.

mod delta;

use std::ops::Range;

use qd_wire::event::Event;
use qd_wire::{CodedError, EventPayload};
use serde::Serialize;

pub use delta::Delta;
use delta::LastDelta;
pub(crate) use delta::count_characters;

/// Lines ready for the link, and which of them are records.
#[derive(Debug, Default)]
pub struct EventWriter {
    bytes: Vec<u8>,
    records: Vec<RecordSpan>,
    responses: Vec<ResponseSpan>,
    natives: Vec<Range<usize>>,
    /// The size of the last hand-over: the next is likely as large, so a flood is written without regrowing.
    expected_bytes: usize,
    last_delta: Option<LastDelta>,
}

/// Room made at once at most.
const EXPECTED_BYTES_MAX: usize = 128 * 1024;

/// What stands between the time and the text of a native event.
const NATIVE_JOINT: &[u8] = b",\"event\":\"x-native\",\"native\":";

/// Where a record's line lies in the batch (with its `\n`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSpan {
    pub seq: u64,
    pub range: Range<usize>,
}

/// Where a response's line lies, and whom it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseSpan {
    /// Where the command came from: a number the runner gives each of its connections.
    pub origin: u64,
    pub id: String,
    pub cmd: String,
    /// Whether the command has taken effect by this round: it succeeded, and not some time before.
    pub took_effect: bool,
    pub range: Range<usize>,
}

/// Everything said in one round.
#[derive(Debug, Default)]
pub struct EventBatch {
    pub bytes: Vec<u8>,
    pub records: Vec<RecordSpan>,
    pub responses: Vec<ResponseSpan>,
    /// Live events in another form than ours; only the hub gets them.
    pub natives: Vec<Range<usize>>,
}

impl EventBatch {
    /// The same without the responses, for when those were given another way.
    pub fn without_responses(self) -> EventBatch {
        let EventBatch { bytes, mut records, responses, mut natives } = self;
        let mut rest = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for response in &responses {
            rest.extend_from_slice(&bytes[from..response.range.start]);
            from = response.range.end;
        }
        rest.extend_from_slice(&bytes[from..]);
        let ranges = records.iter_mut().map(|record| &mut record.range).chain(&mut natives);
        for range in ranges {
            let before = |response: &&ResponseSpan| response.range.start < range.start;
            let removed: usize = responses.iter().filter(before).map(|response| response.range.len()).sum();
            *range = range.start - removed..range.end - removed;
        }
        EventBatch { bytes: rest, records, responses: Vec::new(), natives }
    }
}

/// The unchanging front of every event of a session.
#[derive(Debug, Clone)]
pub struct EventFront {
    event: Vec<u8>,
    /// `"session_id":…,"runner_id":…,"ts":` of responses.
    response: Vec<u8>,
}

/// The answer to a command, before it is a line.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseLine<'a> {
    /// Where the command came from; not written, only noted in the span.
    pub origin: u64,
    pub id: &'a str,
    pub cmd: &'a str,
    /// `data` as JSON text, or the error.
    pub result: Result<Option<&'a str>, &'a CodedError>,
    pub session_version: Option<u64>,
    pub replayed: bool,
    pub indeterminate: bool,
    /// Its time was over before it was done.
    pub timed_out: bool,
}

impl EventFront {
    pub fn new(session_id: &str, runner_id: &str) -> Self {
        let mut ids = Vec::new();
        ids.extend_from_slice(b"\"session_id\":");
        write_json(&mut ids, session_id);
        ids.extend_from_slice(b",\"runner_id\":");
        write_json(&mut ids, runner_id);
        ids.extend_from_slice(b",\"ts\":");
        let mut event = b"{\"type\":\"event\",".to_vec();
        event.extend_from_slice(&ids);
        EventFront { event, response: ids }
    }
}

impl EventWriter {
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn records(&self) -> &[RecordSpan] {
        &self.records
    }

    /// Hands over everything collected; the writer is empty afterwards.
    pub fn take(&mut self) -> EventBatch {
        self.expected_bytes = self.bytes.len().min(EXPECTED_BYTES_MAX);
        self.last_delta = None;
        EventBatch {
            bytes: std::mem::take(&mut self.bytes),
            records: std::mem::take(&mut self.records),
            responses: std::mem::take(&mut self.responses),
            natives: std::mem::take(&mut self.natives),
        }
    }

    /// One event. `seq` makes it a record.
    pub fn event(&mut self, front: &EventFront, ts: i64, seq: Option<u64>, payload: &EventPayload) {
        self.line(front, ts, seq, payload);
    }

    /// One known event, without wrapping it first.
    pub fn known(&mut self, front: &EventFront, ts: i64, seq: Option<u64>, event: &Event) {
        self.line(front, ts, seq, event);
    }

    /// What a program wrote, written by hand as a delta is. The order of the fields is pinned: who makes another form
    /// of it cuts the line after `"event":"run.output",` and takes the rest as it is.
    pub fn run_output(&mut self, front: &EventFront, ts: i64, seq: u64, text: &str) {
        let start = self.bytes.len();
        // Most text needs few escapes; what needs more grows the line.
        self.bytes.reserve((text.len() + text.len() / 8 + front.event.len() + 128).max(self.expected_bytes));
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(&front.event);
        write_number(bytes, ts.unsigned_abs());
        bytes.extend_from_slice(b",\"seq\":");
        write_number(bytes, seq);
        bytes.extend_from_slice(b",\"event\":\"run.output\",\"stream\":\"stdout\",\"text\":");
        write_json(bytes, text);
        bytes.extend_from_slice(b"}\n");
        self.records.push(RecordSpan { seq, range: start..self.bytes.len() });
    }

    /// One event in another form than ours, for those who watch the session through it. `native` is a JSON text,
    /// written last and as it is, so that the hub can cut it out; one that is not a line of its own is left out.
    pub fn native(&mut self, front: &EventFront, ts: i64, native: &str) {
        let native = native.trim();
        if native.is_empty() || native.contains('\n') {
            debug_assert!(false, "a native event must be one line");
            return;
        }
        let start = self.bytes.len();
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(&front.event);
        write_number(bytes, ts.unsigned_abs());
        bytes.extend_from_slice(NATIVE_JOINT);
        bytes.extend_from_slice(native.as_bytes());
        bytes.extend_from_slice(b"}\n");
        self.natives.push(start..self.bytes.len());
    }

    /// The one answer to a command.
    pub fn response(&mut self, front: &EventFront, ts: i64, response: &ResponseLine<'_>) {
        let start = self.bytes.len();
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(b"{\"type\":\"response\",\"id\":");
        write_json(bytes, response.id);
        bytes.push(b',');
        bytes.extend_from_slice(&front.response);
        write_number(bytes, ts.unsigned_abs());
        bytes.extend_from_slice(b",\"cmd\":");
        write_json(bytes, response.cmd);
        match response.result {
            Ok(data) => {
                bytes.extend_from_slice(b",\"success\":true");
                if let Some(data) = data {
                    bytes.extend_from_slice(b",\"data\":");
                    bytes.extend_from_slice(data.as_bytes());
                }
            }
            Err(error) => {
                bytes.extend_from_slice(b",\"success\":false,\"error\":");
                write_json(bytes, &error.message);
                bytes.extend_from_slice(b",\"code\":\"");
                bytes.extend_from_slice(error.code.as_str().as_bytes());
                bytes.push(b'"');
            }
        }
        if let Some(version) = response.session_version {
            bytes.extend_from_slice(b",\"session_version\":");
            write_number(bytes, version);
        }
        if response.replayed {
            bytes.extend_from_slice(b",\"replayed\":true");
        }
        if response.indeterminate {
            bytes.extend_from_slice(b",\"indeterminate\":true");
        }
        if response.timed_out {
            bytes.extend_from_slice(b",\"timed_out\":true");
        }
        bytes.extend_from_slice(b"}\n");
        let (id, cmd) = (response.id.to_owned(), response.cmd.to_owned());
        let took_effect = response.result.is_ok() && !response.replayed;
        let range = start..self.bytes.len();
        self.responses.push(ResponseSpan { origin: response.origin, id, cmd, took_effect, range });
    }

    fn line<T: Serialize>(&mut self, front: &EventFront, ts: i64, seq: Option<u64>, body: &T) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&front.event);
        write_number(&mut self.bytes, ts.unsigned_abs());
        if let Some(seq) = seq {
            self.bytes.extend_from_slice(b",\"seq\":");
            write_number(&mut self.bytes, seq);
        }
        // The body is an object of its own: its opening brace becomes the comma that joins it to the front.
        let joint = self.bytes.len();
        write_json(&mut self.bytes, body);
        self.bytes[joint] = b',';
        self.bytes.push(b'\n');
        if let Some(seq) = seq {
            self.records.push(RecordSpan { seq, range: start..self.bytes.len() });
        }
    }
}

fn write_json<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) {
    // Writing to a vector cannot fail, and our types have string keys only.
    if let Err(error) = serde_json::to_writer(&mut *bytes, value) {
        debug_assert!(false, "a wire type must serialise: {error}");
    }
}

fn write_number(bytes: &mut Vec<u8>, number: u64) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut rest = number;
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    bytes.extend_from_slice(&buffer[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use qd_wire::{EventEnvelope, link::LinkLine};

    #[test]
    fn a_native_event_is_a_live_event_with_its_text_last() {
        let mut writer = EventWriter::default();
        writer.native(&EventFront::new("s1", "local"), 7, "{\"type\":\"turn_start\",\"z\":[1, 2]}");
        let round = writer.take();
        let text = String::from_utf8(round.bytes).unwrap();
        let front = "{\"type\":\"event\",\"session_id\":\"s1\",\"runner_id\":\"local\",\"ts\":7,";
        let rest = "\"event\":\"x-native\",\"native\":{\"type\":\"turn_start\",\"z\":[1, 2]}}\n";
        assert_eq!(text, format!("{front}{rest}"));
        assert!(round.records.is_empty());
        let LinkLine::Event(event) = serde_json::from_str(&text).unwrap() else { panic!("an event") };
        let EventPayload::Other(other) = event.payload else { panic!("not one of ours") };
        assert_eq!(other.event, qd_wire::event::NATIVE);
    }

    #[test]
    fn the_fields_of_run_output_have_their_order() {
        let mut writer = EventWriter::default();
        let text = "a\r\n\u{1b}[1m\"\\\u{7f}\u{0} \u{6f22} \u{1f600}";
        writer.run_output(&EventFront::new("s1", "local"), 7, 42, text);
        let round = writer.take();
        let line = String::from_utf8(round.bytes).unwrap();
        let expected = concat!(
            r#"{"type":"event","session_id":"s1","runner_id":"local","ts":7,"seq":42,"event":"run.output","#,
            r#""stream":"stdout","text":"a\r\n\u001b[1m\"\\"#,
        );
        assert!(line.starts_with(expected), "{line}");
        assert_eq!(round.records, [RecordSpan { seq: 42, range: 0..line.len() }]);
        let LinkLine::Event(event) = serde_json::from_str(&line).unwrap() else { panic!("an event") };
        let output = Event::RunOutput { stream: "stdout".into(), text: text.into() };
        assert_eq!(event.payload, EventPayload::Known(output));
        assert_eq!(event.seq, Some(42));
    }

    #[test]
    fn lines_are_what_the_wire_types_say() {
        let front = EventFront::new("s\"1", "local");
        let mut writer = EventWriter::default();
        let idle = Event::AgentIdle { reason: None, message_version: None };
        writer.known(&front, 7, Some(3), &idle);
        writer.delta(
            &front,
            8,
            Delta {
                event: "stream.text_delta",
                message_id: "a1",
                tool_call_id: None,
                delta: "x\n\u{2028}",
                content_index: 0,
                offset: 5,
            },
        );
        let response = ResponseLine {
            origin: 0,
            id: "h1",
            cmd: "abort",
            result: Ok(None),
            session_version: None,
            replayed: false,
            indeterminate: false,
            timed_out: false,
        };
        writer.response(&front, 9, &response);
        let round = writer.take();
        let text = String::from_utf8(round.bytes.clone()).unwrap();
        let round = round.without_responses();
        let (records, rest) = (round.records, String::from_utf8(round.bytes).unwrap());
        assert_eq!(rest.lines().collect::<Vec<_>>(), text.lines().take(2).collect::<Vec<_>>());
        let lines: Vec<_> =
            rest.lines().map(|line| serde_json::from_str::<LinkLine>(line).unwrap()).collect();
        let envelope = |seq, event| EventEnvelope {
            session_id: "s\"1".into(),
            runner_id: "local".into(),
            ts: if seq == Some(3) { 7 } else { 8 },
            seq,
            payload: EventPayload::Known(event),
        };
        assert_eq!(lines[0], LinkLine::Event(envelope(Some(3), idle).into()));
        let delta = Event::TextDelta {
            message_id: "a1".into(),
            delta: "x\n\u{2028}".into(),
            content_index: 0,
            offset: Some(5),
        };
        assert_eq!(lines[1], LinkLine::Event(envelope(None, delta).into()));
        assert_eq!(records, [RecordSpan { seq: 3, range: 0..text.find('\n').unwrap() + 1 }]);
    }
}
