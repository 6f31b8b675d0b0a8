//! What a session file says, line by line and without keeping it.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::time;

/// Entries whose place in the tree is remembered; of a longer file branches further back count as one line.
const ENTRIES_MAX: usize = 500_000;

/// Characters of a session's name.
const TITLE_CHARS_MAX: usize = 256;

/// The first line of a session file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiHeader {
    /// pi's own name of the conversation.
    pub id: String,
    pub cwd: String,
    /// Unix milliseconds; zero where the file does not say.
    pub created_at: i64,
}

/// Reads the first line of a session file; none for a file that is something else.
pub fn session_header(line: &[u8]) -> Option<PiHeader> {
    let entry = StoredEntry::read(line).ok()?;
    if entry.kind != "session" {
        return None;
    }
    Some(PiHeader {
        id: entry.id.filter(|id| !id.is_empty())?,
        cwd: entry.cwd?,
        created_at: entry.timestamp.as_deref().and_then(time::unix_ms).unwrap_or(0),
    })
}

/// What the lines after the header say together. It grows by a few bytes for each line, up to a bound.
#[derive(Debug, Default)]
pub struct PiFileSummary {
    /// The name somebody gave the session last.
    pub title: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub thinking_level: Option<String>,
    /// Messages on the way from the root to each entry, by a short form of the entry's id.
    counts: HashMap<u64, u64>,
    /// On the way to the last entry, which is where the conversation goes on.
    message_count: u64,
}

impl PiFileSummary {
    /// Messages of the conversation, as pi would go on with it.
    pub fn message_count(&self) -> u64 {
        self.message_count
    }

    /// Takes a line. Of a line that was too long to keep, its beginning is enough; a broken one is passed over.
    pub fn line(&mut self, line: &[u8], is_whole: bool) {
        let mut entry = StoredEntry::default();
        let result = entry.read_from(line);
        if entry.kind.is_empty() || (is_whole && result.is_err()) {
            return;
        }
        let Some(id) = &entry.id else { return };
        let before = match entry.parent_id.as_deref() {
            None => 0,
            Some(parent) => self.counts.get(&short(parent)).copied().unwrap_or(self.message_count),
        };
        let is_message = matches!(entry.kind.as_str(), "message" | "custom_message");
        self.message_count = before + u64::from(is_message);
        if self.counts.len() < ENTRIES_MAX {
            self.counts.insert(short(id), self.message_count);
        }
        match entry.kind.as_str() {
            "session_info" => {
                self.title = entry.name.map(|name| name.chars().take(TITLE_CHARS_MAX).collect());
            }
            "thinking_level_change" => self.thinking_level = entry.thinking_level,
            "model_change" => (self.provider, self.model) = (entry.provider, entry.model_id),
            "message" if entry.role.as_deref() == Some("assistant") && entry.message_model.is_some() => {
                (self.provider, self.model) = (entry.message_provider, entry.message_model);
            }
            _ => {}
        }
    }
}

/// pi's ids are eight hexadecimal digits; other ids are mixed down to as many bits.
fn short(id: &str) -> u64 {
    u64::from_str_radix(id, 16).unwrap_or_else(|_| {
        // FNV-1a: no secret is at stake, and it needs no state.
        id.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

/// The fields of a line that matter here. They are filled in as they are read, so that the beginning of a line too
/// long to keep is worth something.
#[derive(Debug, Default)]
struct StoredEntry {
    kind: String,
    id: Option<String>,
    parent_id: Option<String>,
    timestamp: Option<String>,
    cwd: Option<String>,
    name: Option<String>,
    provider: Option<String>,
    model_id: Option<String>,
    thinking_level: Option<String>,
    role: Option<String>,
    message_provider: Option<String>,
    message_model: Option<String>,
}

impl StoredEntry {
    fn read(line: &[u8]) -> Result<StoredEntry, serde_json::Error> {
        let mut entry = StoredEntry::default();
        entry.read_from(line).map(|()| entry)
    }

    fn read_from(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        Fields { entry: self, is_message: false }.deserialize(&mut deserializer)?;
        deserializer.end()
    }
}

struct Fields<'a> {
    entry: &'a mut StoredEntry,
    is_message: bool,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an entry of a session file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Fields { entry, is_message } = self;
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), is_message) {
                ("type", false) => entry.kind = map.next_value()?,
                ("id", false) => entry.id = map.next_value()?,
                ("parentId", false) => entry.parent_id = map.next_value()?,
                ("timestamp", false) => entry.timestamp = map.next_value()?,
                ("cwd", false) => entry.cwd = map.next_value()?,
                ("name", false) => entry.name = map.next_value()?,
                ("provider", false) => entry.provider = map.next_value()?,
                ("modelId", false) => entry.model_id = map.next_value()?,
                ("thinkingLevel", false) => entry.thinking_level = map.next_value()?,
                ("message", false) => map.next_value_seed(Fields { entry, is_message: true })?,
                ("role", true) => entry.role = map.next_value()?,
                ("provider", true) => entry.message_provider = map.next_value()?,
                ("model", true) => entry.message_model = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(lines: &[&str]) -> PiFileSummary {
        let mut summary = PiFileSummary::default();
        lines.iter().for_each(|line| summary.line(line.as_bytes(), true));
        summary
    }

    #[test]
    fn only_a_session_header_is_one() {
        let header = session_header(
            br#"{"type":"session","version":3,"id":"u1","timestamp":"1970-01-01T00:00:01.000Z","cwd":"/w"}"#,
        );
        assert_eq!(header, Some(PiHeader { id: "u1".into(), cwd: "/w".into(), created_at: 1000 }));
        for other in [
            "",
            "{}",
            "hello",
            r#"{"type":"message","id":"a","cwd":"/w"}"#,
            r#"{"type":"session","cwd":"/w"}"#,
        ] {
            assert_eq!(session_header(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn messages_are_those_on_the_way_to_the_last_entry() {
        let lines = [
            r#"{"type":"model_change","id":"a0","parentId":null,"provider":"p","modelId":"m"}"#,
            r#"{"type":"message","id":"a1","parentId":"a0","message":{"role":"user","content":"x"}}"#,
            r#"{"type":"message","id":"a2","parentId":"a1","message":{"role":"assistant","provider":"q","model":"n"}}"#,
            r#"{"type":"session_info","id":"a3","parentId":"a2","name":"old"}"#,
            "half a li",
            r#"{"type":"message","id":"a4","parentId":"a1","message":{"role":"assistant"}}"#,
            r#"{"type":"session_info","id":"a5","parentId":"a4","name":"new"}"#,
            r#"{"type":"thinking_level_change","id":"a6","parentId":"a5","thinkingLevel":"high"}"#,
        ];
        let summary = summary(&lines);
        assert_eq!(summary.message_count(), 2, "the other branch does not count");
        assert_eq!(summary.title.as_deref(), Some("new"));
        assert_eq!((summary.provider.as_deref(), summary.model.as_deref()), (Some("q"), Some("n")));
        assert_eq!(summary.thinking_level.as_deref(), Some("high"));
    }

    #[test]
    fn the_beginning_of_a_long_line_counts() {
        let mut summary = PiFileSummary::default();
        summary.line(
            br#"{"type":"message","id":"a1","parentId":null,"message":{"role":"user","content":"xxxx"#,
            false,
        );
        assert_eq!(summary.message_count(), 1);
        summary.line(
            br#"{"type":"message","id":"a2","parentId":"a1","message":{"role":"user","content":"xxxx"#,
            true,
        );
        assert_eq!(summary.message_count(), 1, "a broken line is no message");
    }
}
