//! A stored record as views see it. The hub reads its head once, when it comes over the link; a record that is read
//! back from a store is parsed here, without a JSON parser where it is spelled as we spell it.
//!
//! The fast way is only for our own spelling and only looks at the head. Any other spelling is read by the JSON
//! parser and means the same.

use std::borrow::Cow;

use qd_wire::JsonObject;
use serde_json::Value;
use serde_json::value::RawValue;

/// Fields of the head: all others are what the record says.
const HEAD_NAMES: [&str; 7] = ["channel", "type", "session_id", "runner_id", "ts", "seq", "event"];

/// What kind of session it is, as far as its records are read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// A program in a terminal.
    Terminal,
    /// Any other agent.
    Agent,
}

impl SessionKind {
    pub fn of(harness: &str) -> SessionKind {
        if qd_wire::run::is_terminal(harness) { SessionKind::Terminal } else { SessionKind::Agent }
    }
}

/// A record, as far as every view of it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// JSON strings, with their quotes.
    pub session_id: Cow<'a, str>,
    pub runner_id: Cow<'a, str>,
    /// Unix milliseconds.
    pub ts: i64,
    pub seq: u64,
    pub event: Cow<'a, str>,
    /// What the record says, without the opening brace: `"text":"…"}` or `}`.
    pub rest: Cow<'a, str>,
}

impl<'a> Record<'a> {
    /// Reads the text of a record as it is stored, or as it came over the link. `None` for what is no record: live
    /// events, and what is no JSON object of ours.
    pub fn parse(text: &'a str) -> Option<Record<'a>> {
        parse_fast(text).unwrap_or_else(|| parse_any(text))
    }

    /// Reads an event that is no record, as it came over the link; its number is 0.
    pub fn parse_live(text: &str) -> Option<Record<'static>> {
        read_object(text, |_, _| Some(0))
    }

    /// What the record says, as an object of its own.
    pub fn data(&self) -> String {
        format!("{{{}", self.rest)
    }

    /// The same, read.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.data()).ok()
    }
}

/// The usual spelling. The outer `None` is for any other one.
fn parse_fast(text: &str) -> Option<Option<Record<'_>>> {
    let rest =
        text.strip_prefix("{\"channel\":\"agent\",").or_else(|| text.strip_prefix("{\"type\":\"event\","))?;
    let rest = rest.strip_prefix("\"session_id\":")?;
    let (session_id, rest) = plain_string(rest)?;
    let rest = rest.strip_prefix(",\"runner_id\":")?;
    let (runner_id, rest) = plain_string(rest)?;
    let rest = rest.strip_prefix(",\"ts\":")?;
    let (ts, rest) = number(rest)?;
    let Some(rest) = rest.strip_prefix(",\"seq\":") else {
        return rest.starts_with(",\"event\":").then_some(None);
    };
    let (seq, rest) = number(rest)?;
    let rest = rest.strip_prefix(",\"event\":")?;
    let (event, rest) = plain_string(rest)?;
    let rest = match rest.strip_prefix(',') {
        Some(rest) if rest.starts_with('"') && rest.ends_with('}') => rest,
        None if rest == "}" => rest,
        _ => return None,
    };
    Some(Some(Record {
        session_id: Cow::Borrowed(session_id),
        runner_id: Cow::Borrowed(runner_id),
        ts: i64::try_from(ts).ok()?,
        seq,
        event: Cow::Borrowed(event.get(1..event.len() - 1)?),
        rest: Cow::Borrowed(rest),
    }))
}

/// A string without escapes, with its quotes, and what follows it.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let length = memchr::memchr2(b'"', b'\\', inner.as_bytes())?;
    (inner.as_bytes()[length] == b'"').then(|| text.split_at(length + 2))
}

fn number(text: &str) -> Option<(u64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

fn parse_any(text: &str) -> Option<Record<'_>> {
    read_object(text, |object, event| object.get("seq").filter(|_| event != "session.resync")?.as_u64())
}

fn read_object(text: &str, seq_of: impl Fn(&JsonObject, &str) -> Option<u64>) -> Option<Record<'static>> {
    let mut object: JsonObject = serde_json::from_str(text).ok()?;
    let quoted = |value: Option<&Value>| value.filter(|value| value.is_string()).map(Value::to_string);
    let session_id = quoted(object.get("session_id"))?;
    let runner_id = quoted(object.get("runner_id"))?;
    let event = object.get("event")?.as_str()?.to_owned();
    let seq = seq_of(&object, &event)?;
    let ts = object.get("ts").and_then(Value::as_i64).unwrap_or(0);
    for name in HEAD_NAMES {
        object.remove(name);
    }
    // The text was read a moment ago, so it can be written.
    let rest = RawValue::from_string(Value::Object(object).to_string()).ok()?;
    Some(Record {
        session_id: session_id.into(),
        runner_id: runner_id.into(),
        ts,
        seq,
        event: event.into(),
        rest: rest.get()[1..].to_owned().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = r#"{"channel":"agent","session_id":"s","runner_id":"r","ts":5,"seq":7,"event":"run.output","stream":"stdout","text":"a\"b"}"#;

    #[test]
    fn the_usual_spelling_and_any_other_say_the_same() {
        let usual = Record::parse(USUAL).unwrap();
        assert_eq!((&*usual.session_id, &*usual.runner_id, usual.ts, usual.seq), ("\"s\"", "\"r\"", 5, 7));
        assert_eq!((&*usual.event, &*usual.rest), ("run.output", r#""stream":"stdout","text":"a\"b"}"#));
        let odd = r#" {"event":"run.output","stream":"stdout","text":"a\"b","seq":7,"ts":5,"runner_id":"r","session_id":"s","channel":"agent"}"#;
        assert_eq!(Record::parse(odd).unwrap(), usual);
        let link = USUAL.replacen("\"channel\":\"agent\"", "\"type\":\"event\"", 1);
        assert_eq!(Record::parse(&link).unwrap(), usual);
    }

    #[test]
    fn names_with_escapes_and_empty_bodies_are_read() {
        let escaped =
            r#"{"channel":"agent","session_id":"s\"x","runner_id":"r","ts":5,"seq":7,"event":"agent.idle"}"#;
        let record = Record::parse(escaped).unwrap();
        assert_eq!((&*record.session_id, &*record.rest), (r#""s\"x""#, "}"));
        let plain =
            r#"{"channel":"agent","session_id":"s","runner_id":"r","ts":5,"seq":7,"event":"agent.idle"}"#;
        assert_eq!(Record::parse(plain).unwrap().data(), "{}");
    }

    #[test]
    fn a_live_event_has_no_number() {
        let live = r#"{"type":"event","session_id":"s","runner_id":"r","ts":5,"event":"agent.idle","a":1}"#;
        let record = Record::parse_live(live).unwrap();
        assert_eq!((record.seq, record.ts, &*record.event, &*record.rest), (0, 5, "agent.idle", "\"a\":1}"));
        assert!(Record::parse(live).is_none());
    }

    #[test]
    fn what_is_no_record_is_none() {
        for text in [
            "",
            "nonsense",
            "[]",
            "{}",
            r#"{"channel":"agent","session_id":"s","runner_id":"r","ts":5,"event":"agent.working","phase":"x"}"#,
            r#"{"channel":"agent","session_id":"s","runner_id":"r","ts":5,"event":"session.resync","seq":5}"#,
            r#"{"channel":"agent","session_id":5,"runner_id":"r","ts":5,"seq":1,"event":"x"}"#,
            r#"{"channel":"system","type":"error","error":"x"}"#,
        ] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
    }
}
