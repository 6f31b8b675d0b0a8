//! pi's own lines as the pi-server document has them: passed on, with the document's names where pi's are newer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Status lines of our bridge extension (and of its predecessors) are signals to the runner, not to people.
const PRIVATE_STATUS_PREFIX: &str = "qd_";
const PRIVATE_STATUS_KEYS: &[&str] = &["octo_phase", "oqto_phase"];

/// How pi begins its lines; what it is comes next.
const HEAD: &str = "{\"type\":\"";

/// The longest name of an event that is looked for without parsing the line.
const NAME_BYTES_MAX: usize = 64;

/// One native line of pi, which must be JSON, as watchers get it; `None` when it is not for them.
///
/// Deltas are most of the traffic and are told by their first bytes; they are neither parsed nor copied.
pub fn pass_through(line: &str) -> Option<Cow<'_, str>> {
    let Some(name) = name_at_head(line) else { return other_order(line) };
    match name {
        "message_update" => Some(Cow::Borrowed(line)),
        "response" => None,
        "extension_ui_request" => ui_request(line, name),
        "compaction_start" | "compaction_end" => compaction(line, name),
        _ => Some(Cow::Borrowed(line)),
    }
}

fn name_at_head(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(HEAD)?;
    let bytes = rest.as_bytes();
    let end = memchr::memchr(b'"', bytes.get(..NAME_BYTES_MAX).unwrap_or(bytes))?;
    rest.get(..end).filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

/// A line whose type does not come first: a reply, or an event of a pi that writes in another order.
fn other_order(line: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct EventHead<'a> {
        #[serde(rename = "type", borrow)]
        name: Cow<'a, str>,
    }
    let head: EventHead<'_> = serde_json::from_str(line).ok()?;
    if head.name == "response" {
        return None;
    }
    // Written again with its type first, it is looked at like any other.
    let mut fields: qd_wire::JsonObject = serde_json::from_str(line).ok()?;
    fields.remove("type");
    let rest = serde_json::Value::Object(fields).to_string();
    let name = serde_json::Value::from(head.name.as_ref());
    let separator = if rest == "{}" { "" } else { "," };
    let rewritten = format!("{{\"type\":{name}{separator}{}", &rest[1..]);
    match name_at_head(&rewritten) {
        Some(_) => pass_through(&rewritten).map(|event| Cow::Owned(event.into_owned())),
        // A name pi does not have; there is nothing to know about it.
        None => Some(Cow::Owned(rewritten)),
    }
}

/// Questions are told from the session's own books, to all harnesses alike; what only wants to be shown is passed on,
/// with the document's name for its `id`.
fn ui_request<'a>(line: &'a str, name: &str) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'a> {
        #[serde(default, borrow)]
        id: Option<&'a RawValue>,
        #[serde(default, borrow)]
        request_id: Option<&'a RawValue>,
        #[serde(default, borrow)]
        method: Cow<'a, str>,
        #[serde(default, borrow)]
        status_key: Cow<'a, str>,
    }
    let request: Request<'_> = serde_json::from_str(line).ok()?;
    let is_private = request.status_key.starts_with(PRIVATE_STATUS_PREFIX)
        || PRIVATE_STATUS_KEYS.contains(&request.status_key.as_ref());
    match request.method.as_ref() {
        "select" | "confirm" | "input" | "editor" | "interview" => return None,
        "setStatus" if is_private => return None,
        _ => {}
    }
    match (request.id, request.request_id) {
        (Some(id), None) => {
            let rest = line.get(HEAD.len() + name.len() + 1..)?;
            Some(Cow::Owned(format!("{HEAD}{name}\",\"requestId\":{id}{rest}")))
        }
        _ => Some(Cow::Borrowed(line)),
    }
}

/// The document's names are those of an older pi, for what pi does of its own accord.
fn compaction<'a>(line: &'a str, name: &str) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Compaction<'a> {
        #[serde(default, borrow)]
        reason: Cow<'a, str>,
    }
    let compaction: Compaction<'_> = serde_json::from_str(line).ok()?;
    if !is_automatic(&compaction.reason) {
        return Some(Cow::Borrowed(line));
    }
    let rest = line.get(HEAD.len()..)?;
    debug_assert!(rest.starts_with(name));
    Some(Cow::Owned(format!("{HEAD}auto_{rest}")))
}

fn is_automatic(reason: &str) -> bool {
    matches!(reason, "threshold" | "overflow")
}
