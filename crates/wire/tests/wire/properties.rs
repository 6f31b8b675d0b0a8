//! Whatever JSON comes, no reader panics; and what was read once is written and read the same for ever.

use proptest::prelude::*;
use qd_wire::command_table::COMMANDS;
use qd_wire::link::LinkLine;
use qd_wire::mux::{ClientFrame, ServerFrame};
use qd_wire::{Command, CommandHead, EventEnvelope, InputRequest, Message, Part};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Words of the protocol, so that random objects reach the typed readers and not only their first refusal.
const KEYS: &[&str] = &[
    "type",
    "event",
    "cmd",
    "channel",
    "id",
    "session_id",
    "runner_id",
    "ts",
    "seq",
    "role",
    "parts",
    "text",
    "message",
    "messages",
    "idx",
    "created_at",
    "source",
    "payload",
    "meta",
    "request",
    "request_id",
    "phase",
    "delta",
    "content_index",
    "message_id",
    "config",
    "harness",
    "success",
    "data",
    "attach",
    "options",
    "title",
];
const WORDS: &[&str] = &[
    "text",
    "x-a",
    "tool_call",
    "agent",
    "system",
    "event",
    "command",
    "response",
    "ack",
    "agent.idle",
    "agent.working",
    "generating",
    "stream.text_delta",
    "stream.message_end",
    "session.resync",
    "x-pi.foo",
    "prompt",
    "session.create",
    "user",
    "assistant",
    "url",
    "select",
    "permission",
    "connected",
    "error",
    "",
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(WORDS).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 8, |inner| {
        let key = prop_oneof![4 => proptest::sample::select(KEYS).prop_map(str::to_owned), 1 => ".{0,4}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// One reading settles the shape: writing and reading again changes nothing.
fn check_stable<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &Value) {
    let Ok(typed) = serde_json::from_value::<T>(value.clone()) else { return };
    let once = serde_json::to_value(&typed).expect("what was read can be written");
    let again: T = serde_json::from_value(once.clone()).unwrap_or_else(|error| panic!("{error}: {once}"));
    assert_eq!(again, typed, "{once}");
    assert_eq!(serde_json::to_value(&again).expect("serialises"), once);
}

fn check_all(value: &Value) {
    check_stable::<Message>(value);
    check_stable::<Part>(value);
    check_stable::<EventEnvelope>(value);
    check_stable::<InputRequest>(value);
    check_stable::<LinkLine>(value);
    check_stable::<ServerFrame>(value);
    check_stable::<ClientFrame>(value);
    check_stable::<Command>(value);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_read_without_panic_and_stays_stable(value in json()) {
        check_all(&value);
    }

    #[test]
    fn any_change_to_a_good_frame_is_survived(
        example in proptest::sample::select(good_frames()),
        key in proptest::sample::select(KEYS),
        replacement in json(),
    ) {
        let mut value: Value = serde_json::from_str(&example).expect("an example");
        let object = value.as_object_mut().expect("an object");
        object.insert(key.to_owned(), replacement);
        check_all(&value);
        for outer in [("channel", "agent"), ("type", "event")] {
            let mut framed = value.clone();
            framed[outer.0] = Value::from(outer.1);
            check_all(&framed);
        }
    }

    #[test]
    fn any_text_is_refused_or_read(text in ".{0,200}", row in 0..COMMANDS.len()) {
        // Only the absence of a panic matters here; both results are right for random text.
        drop(serde_json::from_str::<CommandHead<'_>>(&text));
        drop(Command::parse(COMMANDS[row].name, &text));
        drop(serde_json::from_str::<LinkLine>(&text));
    }

    #[test]
    fn any_extension_part_comes_out_as_it_went_in(fields in proptest::collection::vec((".{0,6}", json()), 0..6), body in json()) {
        let mut object: Map<String, Value> = fields.into_iter().collect();
        object.insert("payload".to_owned(), body.clone());
        object.insert("meta".to_owned(), body);
        object.insert("type".to_owned(), Value::from("x-any"));
        let before = Value::Object(object);
        let part: Part = serde_json::from_value(before.clone()).expect("a part");
        prop_assert_eq!(serde_json::to_value(part).expect("serialises"), before);
    }
}

fn good_frames() -> Vec<String> {
    [include_str!("examples/part2_events.jsonl"), include_str!("examples/commands.jsonl")]
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.starts_with('{'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn deep_json_is_refused_not_fatal() {
    let text =
        format!(r#"{{"type":"x-a","id":"p","payload":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let error = serde_json::from_str::<Part>(&text).expect_err("too deep").to_string();
    assert!(error.contains("recursion limit"), "{error}");
}
