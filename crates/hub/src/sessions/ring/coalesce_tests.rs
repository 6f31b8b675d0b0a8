use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn event(event: &str, rest: &str) -> String {
    format!(r#"{{"channel":"agent","session_id":"s","runner_id":"r","ts":1,"event":"{event}"{rest}}}"#)
}

fn delta_event(name: &str, message: u8, index: u8, text: &str, offset: Option<usize>) -> String {
    let tool = if name == "tool_call_delta" { r#","tool_call_id":"t""# } else { "" };
    let offset = offset.map_or(String::new(), |offset| format!(r#","offset":{offset}"#));
    let text = crate::runners::line_head::json_string(text);
    event(
        &format!("stream.{name}"),
        &format!(r#","message_id":"m{message}"{tool},"delta":{text},"content_index":{index}{offset}"#),
    )
}

fn frames(texts: &[String]) -> Bytes {
    let mut out = BytesMut::new();
    for text in texts {
        frame::put_text_header(&mut out, text.len());
        out.put_slice(text.as_bytes());
    }
    out.freeze()
}

fn texts(mut frames: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while !frames.is_empty() {
        let (whole, payload) = frame::split_text(frames).unwrap();
        texts.push(String::from_utf8(payload.to_vec()).unwrap());
        frames = &frames[whole.len()..];
    }
    texts
}

fn coalesced(list: &[String]) -> Vec<String> {
    texts(&coalesce(&[frames(list)]))
}

/// Each text with the characters it has.
type TextsById = BTreeMap<String, (String, u64)>;

/// What a client knows after some events.
#[derive(Debug, Default, PartialEq)]
struct ClientTexts {
    texts: TextsById,
    newest: BTreeMap<String, Value>,
    /// Everything that must come one by one, with what was shown when it came.
    steps: Vec<(String, TextsById, BTreeMap<String, Value>)>,
}

fn shown(list: &[String]) -> ClientTexts {
    let mut shown = ClientTexts::default();
    for text in list {
        let event: Value = serde_json::from_str(text).unwrap();
        let name = event["event"].as_str().unwrap();
        match name {
            "stream.text_delta" | "stream.thinking_delta" | "stream.tool_call_delta" => {
                let key = format!(
                    "{name} {} {} {}",
                    event["message_id"], event["tool_call_id"], event["content_index"]
                );
                let (block, position) = shown.texts.entry(key).or_default();
                if let Some(offset) = event["offset"].as_u64() {
                    // A piece that does not go on where the last one ended is shown as a hole.
                    if offset != *position {
                        block.push_str(&format!("[hole at {offset}]"));
                    }
                    *position = offset;
                }
                let text = event["delta"].as_str().unwrap();
                block.push_str(text);
                *position += text.chars().count() as u64;
            }
            "session.heartbeat" | "agent.working" => {
                shown.newest.insert(name.to_owned(), event);
            }
            "tool.progress" => {
                shown.newest.insert(format!("{name} {}", event["tool_call_id"]), event);
            }
            "status" => {
                shown.newest.insert(format!("{name} {}", event["key"]), event);
            }
            _ => shown.steps.push((text.clone(), shown.texts.clone(), shown.newest.clone())),
        }
    }
    shown
}

#[test]
fn pieces_of_one_text_become_one_with_the_first_offset() {
    let list = [
        delta_event("text_delta", 1, 0, "a\n\"", Some(5)),
        delta_event("text_delta", 1, 0, "é😀", Some(8)),
        delta_event("text_delta", 1, 0, "z", Some(10)),
        delta_event("text_delta", 1, 1, "other", Some(0)),
    ];
    assert_eq!(coalesced(&list), [delta_event("text_delta", 1, 0, "a\n\"é😀z", Some(5)), list[3].clone()]);
    // One that does not go on where the last ended stays by itself.
    let list = [delta_event("text_delta", 1, 0, "a", Some(5)), delta_event("text_delta", 1, 0, "b", Some(9))];
    assert_eq!(coalesced(&list), list);
}

#[test]
fn escapes_count_as_the_characters_they_are() {
    for (inside, count) in
        [("", 0), ("ab", 2), (r#"\n\"\\"#, 3), (r"\u00e9", 1), (r"\ud83d\ude00x", 2), ("é😀", 2)]
    {
        let text: String = serde_json::from_str(&format!("\"{inside}\"")).unwrap();
        assert_eq!((characters(inside), text.chars().count()), (count, count as usize), "{inside}");
    }
}

#[test]
fn the_newest_of_those_that_replace_each_other_stays_and_records_stand_between() {
    let working =
        |detail: &str| event("agent.working", &format!(r#","phase":"generating","detail":"{detail}""#));
    let record = event("notify", "").replace(r#""event""#, r#""seq":7,"event""#);
    let list = [working("a"), working("b"), record, working("c"), event("x-odd", ""), working("d")];
    assert_eq!(coalesced(&list), list[1..]);
    let status = |key: &str, text: &str| event("status", &format!(r#","key":"{key}","text":"{text}""#));
    let list = [status("a", "1"), status("b", "2"), status("a", "3")];
    assert_eq!(coalesced(&list), list[1..]);
}

#[test]
fn what_is_no_frame_passes_as_it_is() {
    for bytes in [&b"nonsense"[..], &[0x81], &[0x81, 126], &[0x81, 5, b'a'], &[0x88, 0]] {
        assert_eq!(coalesce(&[Bytes::copy_from_slice(bytes)]), bytes);
    }
}

#[derive(Debug, Clone)]
enum AnyEvent {
    Delta { name: &'static str, message: u8, index: u8, text: String, has_offset: bool, skips: bool },
    Replaced(String),
    Record(u8),
    Other,
}

fn any_event() -> impl Strategy<Value = AnyEvent> {
    let name = prop::sample::select(vec!["text_delta", "thinking_delta", "tool_call_delta"]);
    let delta =
        (name, 0..2_u8, 0..2_u8, any::<String>(), prop::bool::weighted(0.8), prop::bool::weighted(0.1))
            .prop_map(|(name, message, index, text, has_offset, skips)| AnyEvent::Delta {
                name,
                message,
                index,
                text,
                has_offset,
                skips,
            });
    let replaced = (0..6_u8, any::<u8>()).prop_map(|(kind, value)| {
        AnyEvent::Replaced(match kind {
            0 => event("session.heartbeat", &format!(r#","process":{{"alive":true,"pid":{value}}}"#)),
            1 => event("agent.working", &format!(r#","phase":"thinking","detail":"{value}""#)),
            2 | 3 => event(
                "tool.progress",
                &format!(r#","tool_call_id":"t{kind}","name":"bash","partial_output":{value}"#),
            ),
            _ => event("status", &format!(r#","key":"k{kind}","text":"{value}""#)),
        })
    });
    prop_oneof![6 => delta, 3 => replaced, 1 => any::<u8>().prop_map(AnyEvent::Record), 1 => Just(AnyEvent::Other)]
}

/// The events as a runner would write them: numbers without holes, offsets that fit unless they are to skip.
fn written(list: &[AnyEvent]) -> Vec<String> {
    let mut seq = 0;
    let mut lengths: BTreeMap<(&str, u8, u8), usize> = BTreeMap::new();
    let write = |it: &AnyEvent| match it {
        AnyEvent::Delta { name, message, index, text, has_offset, skips } => {
            let length = lengths.entry((name, *message, *index)).or_default();
            *length += usize::from(*skips);
            let offset = has_offset.then_some(*length);
            *length += text.chars().count();
            delta_event(name, *message, *index, text, offset)
        }
        AnyEvent::Replaced(text) => text.clone(),
        AnyEvent::Record(value) => {
            seq += 1;
            event("notify", &format!(r#","message":"{value}""#))
                .replace(r#""event""#, &format!(r#""seq":{seq},"event""#))
        }
        AnyEvent::Other => event("stream.done", r#","reason":"stop""#),
    };
    list.iter().map(write).collect()
}

proptest! {
    #[test]
    fn a_coalesced_stream_shows_the_same(
        list in prop::collection::vec(any_event(), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let list = written(&list);
        let cut = cut.index(list.len() + 1);
        // However the frames are spread over chunks.
        let found = texts(&coalesce(&[frames(&list[..cut]), frames(&list[cut..])]));
        prop_assert!(found.len() <= list.len());
        prop_assert_eq!(shown(&found), shown(&list));
    }
}
