//! What a client has seen, told from the first bytes of each frame.

use std::time::Instant;

use memchr::memmem::find;

use crate::client::Client;
use crate::clock;
use crate::error::Outcome;
use crate::fake_pi::DELTA_TEXT;

/// The event's name is within this many bytes.
const HEAD_BYTES: usize = 220;

/// Counts of one client.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    /// Deltas of the agent that arrived; one frame may carry several.
    pub(crate) deltas: u64,
    /// Records by their `seq`.
    pub(crate) records: u64,
    pub(crate) last_seq: u64,
    /// Turns that ended.
    pub(crate) settled: u64,
    /// Gaps the client was told of.
    pub(crate) resyncs: u64,
    /// When deltas last came.
    pub(crate) last_delta: Instant,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            frames: 0,
            deltas: 0,
            records: 0,
            last_seq: 0,
            settled: 0,
            resyncs: 0,
            last_delta: clock::now(),
        }
    }
}

impl Counts {
    /// Looks at one frame, of the mux or of a raw forwarder.
    pub(crate) fn frame(&mut self, frame: &[u8]) {
        self.frames += 1;
        let head = &frame[..frame.len().min(HEAD_BYTES)];
        let name = match head.strip_prefix(b"{\"type\":\"") {
            Some(name) => name,
            None => match find(head, b"\"event\":\"") {
                Some(at) => {
                    self.record(&head[..at]);
                    &head[at + 9..]
                }
                None => return,
            },
        };
        if name.starts_with(b"stream.text_delta") || name.starts_with(b"message_update") {
            if let Some(text) = delta_text(frame) {
                self.deltas += (text.len() / DELTA_TEXT.len()) as u64;
            }
        } else if name.starts_with(b"agent.idle") || name.starts_with(b"agent_settled") {
            self.settled += 1;
        } else if name.starts_with(b"session.resync") {
            self.resyncs += 1;
        }
    }

    fn record(&mut self, head: &[u8]) {
        let Some(at) = find(head, b"\"seq\":") else { return };
        let digits = head[at + 6..].iter().take_while(|byte| byte.is_ascii_digit());
        let seq = digits.fold(0, |seq, digit| seq * 10 + u64::from(digit - b'0'));
        if seq > self.last_seq {
            self.last_seq = seq;
            self.records += 1;
        }
    }

    /// Reads until `turns` turns have ended in all.
    pub(crate) async fn until_settled(&mut self, client: &mut Client, turns: u64) -> Outcome<()> {
        while self.settled < turns {
            let before = self.deltas;
            client.read(|frame| self.frame(frame)).await?;
            if self.deltas > before {
                self.last_delta = clock::now();
            }
        }
        Ok(())
    }
}

/// The text of a delta; the fake agents print none that needs an escape.
pub(crate) fn delta_text(frame: &[u8]) -> Option<&[u8]> {
    let rest = &frame[find(frame, b"\"delta\":\"")? + 9..];
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub_alone::delta_line;

    #[test]
    fn frames_of_both_sides_are_counted_alike() {
        let mut counts = Counts::default();
        counts.frame(&delta_line("{\"channel\":\"agent\",", 24));
        counts.frame(
            br#"{"type":"message_update","assistantMessageEvent":{"delta":"Hello, worldHello, world"}}"#,
        );
        assert_eq!(counts.deltas, 3, "a merged delta counts as those it carries");
        for seq in [4, 5, 5] {
            let text =
                format!(r#"{{"channel":"agent","session_id":"s","ts":1,"seq":{seq},"event":"agent.idle"}}"#);
            counts.frame(text.as_bytes());
        }
        counts.frame(br#"{"type":"agent_settled"}"#);
        counts.frame(br#"{"channel":"agent","session_id":"s","ts":1,"event":"session.resync","seq":9}"#);
        assert_eq!((counts.records, counts.last_seq, counts.settled, counts.resyncs), (2, 5, 4, 1));
    }
}
