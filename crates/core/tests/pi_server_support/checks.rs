//! What must hold for every frame, whatever is in it; the fuzz target of `fuzz/` has the same checks.

mod canonical;

use std::collections::BTreeMap;

use canonical::canonical;
use qd_core::view::pi_server::request::{PiServerRequest, read, whole_characters};
use qd_wire::command_table::CommandHead;
use qd_wire::pi_server::Target;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What holds for every frame. Panics where it does not.
pub(crate) fn check_frame(text: &str) {
    let sent: Option<Map<String, Value>> = serde_json::from_str(text).ok();
    let is_object = |whole: &String| serde_json::from_str::<Map<String, Value>>(whole).is_ok();
    if sent.is_none()
        && let Some(whole) = whole_characters(text).filter(is_object)
    {
        // Halves of characters are read as replacement characters.
        assert_eq!(read(text), read(&whole));
        return check_frame(&whole);
    }
    match read(text) {
        Ok(request) => check_request(text, &request, &sent.expect("only objects are valid")),
        Err(invalid) => {
            assert!(!invalid.command.is_empty());
            match &sent {
                None => assert_eq!((invalid.id, invalid.command.as_str()), (None, "unknown")),
                Some(sent) => {
                    assert_eq!(invalid.id.as_ref(), sent.get("id"), "the id is echoed as it was sent");
                    let errors = invalid.error.strip_prefix("Validation failed: ").expect("a reason");
                    assert!(errors.contains(": "), "{errors}");
                }
            }
        }
    }
}

fn check_request(text: &str, request: &PiServerRequest, sent: &Map<String, Value>) {
    let name = sent["type"].as_str().expect("a type");
    assert_eq!((request.spec.name, request.command.name()), (name, name));
    assert_eq!(request.envelope.id.as_deref(), sent.get("id").and_then(Value::as_str));
    if request.spec.target == Target::Session {
        assert_eq!(request.session_id.as_deref(), sent.get("sessionId").and_then(Value::as_str));
    }
    // The order of fields does not matter, nor do the names of the intent; every other field does.
    // The values stay as they were written, as they do with a client that only orders them otherwise.
    let raw: BTreeMap<String, &RawValue> = serde_json::from_str(text).expect("an object");
    let name_of = |name: &str| Value::from(name).to_string();
    let field = |(name, value): (&String, &&RawValue)| format!("{}:{value}", name_of(name));
    let reversed: Vec<String> = raw.iter().rev().map(field).collect();
    let again = read(&format!("{{{}}}", reversed.join(","))).expect("the same fields are as valid");
    assert_eq!(again.fingerprint, request.fingerprint);
    assert_eq!(again.command, request.command);
    let others = raw.iter().filter(|(name, _)| *name != "idempotencyKey").map(field);
    let others: Vec<String> = others.chain(["\"idempotencyKey\":\"another\"".to_owned()]).collect();
    let other_name = read(&format!("{{{}}}", others.join(","))).expect("a key is always welcome");
    // Nobody can repeat a frame without a name, so it needs no fingerprint.
    let is_named = request.envelope.id.is_some() || request.envelope.idempotency_key.is_some();
    assert_eq!(request.fingerprint == [0; 32], !is_named);
    if is_named {
        assert_eq!(other_name.fingerprint, request.fingerprint);
    }
    let other_meaning = format!("{{{},\"x-{}\":true}}", others.join(","), "another".repeat(3));
    let other_meaning = read(&other_meaning).expect("unknown fields are welcome");
    assert_ne!(other_meaning.fingerprint, other_name.fingerprint);
    check_canonical(request);
}

/// The canonical command is one, says which session, and carries the key and the version.
fn check_canonical(request: &PiServerRequest) {
    let text = canonical(request, None, Some("uid-1"));
    if request.spec.canonical.is_empty() {
        return assert_eq!(text, "");
    }
    let head: CommandHead<'_> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(head.cmd.as_deref(), Some(request.spec.canonical));
    assert_eq!(head.session_id.as_deref(), request.session_id.as_deref());
    assert_eq!(head.idempotency_key.as_deref(), Some("uid-1"));
    assert_eq!(head.if_session_version, request.envelope.if_session_version);
    let parsed = qd_wire::Command::parse(request.spec.canonical, &text);
    parsed.unwrap_or_else(|error| panic!("{error}: {text}"));
    let minted = canonical(request, Some("minted"), None);
    let head: CommandHead<'_> = serde_json::from_str(&minted).expect("a command");
    assert_eq!((head.session_id.as_deref(), head.idempotency_key.as_deref()), (Some("minted"), None));
}
