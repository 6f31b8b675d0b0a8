//! Answers to lines that the face never sees.

use std::fmt;

use qd_wire::CodedError;
use qd_wire::pi_server::{NAME_CHARS_MAX, Response, ServerMessage};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// The answer to a line that begins with `head`; the id is echoed if it stands there.
pub(super) fn refusal(head: &[u8], error: CodedError) -> String {
    let response = ServerMessage::Response(Response {
        id: id_in(head).map(Value::String),
        command: "unknown".to_owned(),
        success: false,
        data: None,
        error: Some(error.message),
        code: Some(error.code),
        limit: error.limit,
        session_version: None,
        replayed: None,
        timed_out: None,
        indeterminate: None,
    });
    // Plain text fields only, so it can always be written.
    serde_json::to_string(&response).unwrap_or_default()
}

/// The id of a command of which only the beginning is there.
fn id_in(head: &[u8]) -> Option<String> {
    let mut id = None;
    // The beginning of an object is no whole object; what was seen before it broke off counts.
    let _broken_off = IdVisitor(&mut id).deserialize(&mut serde_json::Deserializer::from_slice(head));
    id.filter(|id: &String| id.chars().count() <= NAME_CHARS_MAX)
}

/// Reads an object field by field, so that an id before the break is found although the whole cannot be parsed.
struct IdVisitor<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for IdVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IdVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a command")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "id" {
                *self.0 = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_where_it_can_be_seen() {
        let id = |head: &str| id_in(head.as_bytes());
        assert_eq!(id(r#"{"type":"prompt","id":"7","message":"xxx"#), Some("7".to_owned()));
        assert_eq!(id(r#"{"a":{"id":"inner"},"id":"é","m"#), Some("é".to_owned()));
        for nothing in [
            "",
            "xxxx",
            r#"{"type":"prompt","message":"xxx"#,
            r#"{"id":"cut of"#,
            r#"{"id":7,"m"#,
            r#"[{"id":"x"}"#,
        ] {
            assert_eq!(id(nothing), None, "{nothing}");
        }
        assert_eq!(id(&format!("{{\"id\":\"{}\",", "x".repeat(257))), None);
    }
}
