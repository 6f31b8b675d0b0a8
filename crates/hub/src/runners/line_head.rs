//! Heads of link lines, and the splice that turns a line into a client's frame.
//!
//! A runner writes the head first and in one order, so the usual line is read without a JSON parser; any other
//! order is read with one and brought into that order. Both ways give the same bytes.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What an event line becomes; the rest of the line follows unchanged.
pub(crate) const EVENT_PREFIX: &[u8] = b"{\"channel\":\"agent\",";
/// A live event that tells all clients of a session how it stands.
pub(crate) const RESYNC_EVENT: &str = "session.resync";
const LINK_EVENT_PREFIX: &str = "{\"type\":\"event\",";
const LINK_RESPONSE_PREFIX: &str = "{\"type\":\"response\",\"id\":\"";

/// One line of a runner.
#[derive(Debug, PartialEq)]
pub(crate) enum LineHead<'a> {
    Event(EventHead<'a>),
    Response(ResponseHead<'a>),
    /// Anything else that has a `type`: hello, heartbeat, or of a later version.
    Other(Cow<'a, str>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct EventHead<'a> {
    pub session_id: Cow<'a, str>,
    pub ts: i64,
    pub seq: Option<u64>,
    pub event: Cow<'a, str>,
    /// What follows [`EVENT_PREFIX`] in the client's frame.
    pub tail: Cow<'a, str>,
    /// Where in `tail` the event's own fields begin: behind the head, or at the closing brace if it has none.
    pub body_at: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ResponseHead<'a> {
    pub id: Cow<'a, str>,
    pub session_id: Option<Cow<'a, str>>,
    pub success: bool,
    /// The fields after `id`, with the closing brace.
    pub tail: Cow<'a, str>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadLine(String);

/// Reads the head of one line (without its `\n`). `runner_id` is whose line it is, whatever the line says.
pub(crate) fn parse<'a>(line: &'a str, runner_id: &str) -> Result<LineHead<'a>, BadLine> {
    if let Some(head) = parse_event_fast(line, runner_id) {
        return Ok(LineHead::Event(head));
    }
    if let Some(head) = parse_response_fast(line, runner_id) {
        return Ok(LineHead::Response(head));
    }
    parse_any(line, runner_id)
}

/// Names that decide what a line is. Clients read the last of two equal names, so each may stand there once.
const HEAD_NAMES: [&str; 9] =
    ["event", "type", "session_id", "runner_id", "ts", "seq", "id", "channel", "success"];
const EVENT_PLACE: usize = 0;

/// Checks a line of another machine: it is whole JSON, and no name of its head stands there twice, or would once our
/// own fields are before it. Its tail can then be passed on as it is.
pub(crate) fn check(line: &str) -> Result<(), BadLine> {
    serde_json::from_str::<CheckedObject>(line).map(drop).map_err(|error| BadLine(error.to_string()))
}

/// An object that passed the check.
struct CheckedObject;

impl<'de> Deserialize<'de> for CheckedObject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CheckedVisitor;
        impl<'de> Visitor<'de> for CheckedVisitor {
            type Value = CheckedObject;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CheckedObject, A::Error> {
                let mut seen = [false; HEAD_NAMES.len()];
                let mut is_response = false;
                while let Some(JsonKey(name)) = map.next_key::<JsonKey<'de>>()? {
                    if name == "type" {
                        is_response = map.next_value::<JsonKey<'de>>()?.0 == "response";
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    let Some(place) = HEAD_NAMES.iter().position(|head| *head == name) else { continue };
                    // Every frame has a channel of ours.
                    if std::mem::replace(&mut seen[place], true) || name == "channel" {
                        return Err(A::Error::custom(format_args!("'{name}' must not stand there again")));
                    }
                }
                // An answer has an event of ours.
                if is_response && seen[EVENT_PLACE] {
                    return Err(A::Error::custom("an answer is no event"));
                }
                Ok(CheckedObject)
            }
        }
        deserializer.deserialize_map(CheckedVisitor)
    }
}

fn parse_event_fast<'a>(line: &'a str, runner_id: &str) -> Option<EventHead<'a>> {
    let tail = line.strip_prefix(LINK_EVENT_PREFIX)?;
    let mut scan = LineScanner { text: tail, at: 0 };
    scan.literal("\"session_id\":\"")?;
    let session_id = scan.plain_string()?;
    scan.literal(",\"runner_id\":\"")?;
    if scan.plain_string()? != runner_id {
        return None;
    }
    scan.literal(",\"ts\":")?;
    let ts = i64::try_from(scan.number()?).ok()?;
    scan.literal(",\"")?;
    let seq = match scan.literal("seq\":") {
        Some(()) => {
            let seq = scan.number()?;
            scan.literal(",\"")?;
            Some(seq)
        }
        None => None,
    };
    scan.literal("event\":\"")?;
    let event = scan.plain_string()?;
    if seq.is_some() && event == RESYNC_EVENT {
        // Its `seq` is a cursor, in an unusual place.
        return None;
    }
    scan.is_at_field_end().then_some(EventHead {
        session_id: Cow::Borrowed(session_id),
        ts,
        seq,
        event: Cow::Borrowed(event),
        tail: Cow::Borrowed(tail),
        body_at: body_at(tail, scan.at),
    })
}

fn parse_response_fast<'a>(line: &'a str, runner_id: &str) -> Option<ResponseHead<'a>> {
    let rest = line.strip_prefix(LINK_RESPONSE_PREFIX)?;
    let mut scan = LineScanner { text: rest, at: 0 };
    let id = scan.plain_string()?;
    scan.literal(",")?;
    let tail = &rest[scan.at..];
    scan.literal("\"session_id\":\"")?;
    let session_id = scan.plain_string()?;
    scan.literal(",\"runner_id\":\"")?;
    if scan.plain_string()? != runner_id {
        return None;
    }
    scan.literal(",\"ts\":")?;
    scan.number()?;
    scan.literal(",\"cmd\":\"")?;
    scan.plain_string()?;
    scan.literal(",\"success\":")?;
    let success = match scan.literal("true") {
        Some(()) => true,
        None => {
            scan.literal("false")?;
            false
        }
    };
    scan.is_at_field_end().then_some(ResponseHead {
        id: Cow::Borrowed(id),
        session_id: Some(Cow::Borrowed(session_id)),
        success,
        tail: Cow::Borrowed(tail),
    })
}

/// A cursor over the usual spelling of a line.
pub(crate) struct LineScanner<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl<'a> LineScanner<'a> {
    pub(crate) fn literal(&mut self, literal: &str) -> Option<()> {
        let found = self.text.as_bytes().get(self.at..)?.starts_with(literal.as_bytes());
        found.then(|| self.at += literal.len())
    }

    /// A string whose opening quote was read; one with escapes is left to the JSON parser.
    pub(crate) fn plain_string(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes().get(self.at..)?;
        let length = memchr::memchr2(b'"', b'\\', bytes)?;
        if bytes[length] != b'"' {
            return None;
        }
        let found = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(found)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let start = self.at;
        let mut value: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.text.as_bytes().get(self.at) {
            value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.at += 1;
        }
        (self.at > start).then_some(value)
    }

    fn is_at_field_end(&self) -> bool {
        matches!(self.text.as_bytes().get(self.at), Some(b',' | b'}')) && self.text.ends_with('}')
    }
}

/// The fields of an object in their order, values unread.
pub(crate) struct JsonFields<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> JsonFields<'a> {
    /// The value of a field; the last one where a name comes twice.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// A field of a given type; `null` counts as absent.
    pub(crate) fn typed<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        self.get(name).map_or(Ok(None), |value| serde_json::from_str::<Option<T>>(value.get()))
    }

    /// A string, borrowed where it has no escapes; `null` counts as absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, serde_json::Error> {
        Ok(self.typed::<JsonKey<'a>>(name)?.map(|JsonKey(text)| text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonFields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((JsonKey(name), value)) = map.next_entry::<JsonKey<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(FieldsVisitor).map(JsonFields)
    }
}

/// A string borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

fn parse_any<'a>(line: &'a str, runner_id: &str) -> Result<LineHead<'a>, BadLine> {
    let bad = |error: serde_json::Error| BadLine(error.to_string());
    let fields: JsonFields<'a> = serde_json::from_str(line).map_err(bad)?;
    let kind: Cow<'a, str> = text(&fields, "type")?.ok_or_else(|| BadLine("it has no type".to_owned()))?;
    match &*kind {
        "event" => {
            let session_id = text(&fields, "session_id")?
                .ok_or_else(|| BadLine("an event without session_id".to_owned()))?;
            let event =
                text(&fields, "event")?.ok_or_else(|| BadLine("an event without a name".to_owned()))?;
            // The `seq` of a resync is a cursor in its body: it is no record, and the field stays behind the head.
            let is_record = event != RESYNC_EVENT && fields.get("seq").is_some();
            let order: &[&str] = if is_record {
                &["session_id", "runner_id", "ts", "seq", "event"]
            } else {
                &["session_id", "runner_id", "ts", "event"]
            };
            let (tail, head_end) = tail(&fields, order, &[], runner_id);
            Ok(LineHead::Event(EventHead {
                session_id,
                body_at: body_at(&tail, head_end),
                ts: fields.typed("ts").map_err(bad)?.unwrap_or(0),
                seq: if is_record { fields.typed("seq").map_err(bad)? } else { None },
                event,
                tail: Cow::Owned(tail),
            }))
        }
        "response" => {
            let id = text(&fields, "id")?.ok_or_else(|| BadLine("a response without id".to_owned()))?;
            let order =
                ["session_id", "runner_id", "ts", "cmd", "success", "data", "error", "session_version"];
            Ok(LineHead::Response(ResponseHead {
                id,
                session_id: text(&fields, "session_id")?,
                success: fields.typed("success").map_err(bad)?.unwrap_or(false),
                tail: Cow::Owned(tail(&fields, &order, &["id"], runner_id).0),
            }))
        }
        _ => Ok(LineHead::Other(kind)),
    }
}

fn text<'a>(fields: &JsonFields<'a>, name: &str) -> Result<Option<Cow<'a, str>>, BadLine> {
    fields.text(name).map_err(|error| BadLine(format!("{name}: {error}")))
}

/// Where the fields behind a head begin that ends at `head_end`.
fn body_at(tail: &str, head_end: usize) -> usize {
    head_end + usize::from(tail.as_bytes().get(head_end) == Some(&b','))
}

/// The fields as `"name":value,…}`: those of `order` first, the others as they came, without `type` and `skip`. Also
/// says where those of `order` end.
fn tail(fields: &JsonFields<'_>, order: &[&str], skip: &[&str], runner_id: &str) -> (String, usize) {
    let mut out = String::new();
    for name in order {
        match fields.get(name) {
            // A runner speaks for itself only.
            _ if *name == "runner_id" => push_field(&mut out, name, &json_string(runner_id)),
            Some(value) => push_field(&mut out, name, value.get()),
            None => {}
        }
    }
    let head_end = out.len();
    for (name, value) in &fields.0 {
        let known = order.contains(&&**name) || skip.contains(&&**name);
        if !known && name != "type" && name != "channel" {
            push_field(&mut out, name, value.get());
        }
    }
    out.push('}');
    (out, head_end)
}

fn push_field(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(&json_string(name));
    out.push(':');
    out.push_str(value);
}

/// A string as JSON.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
#[path = "line_head_tests.rs"]
mod tests;
