//! The head of a client's frame: read strictly, because hub and runner both act on it.

use std::borrow::Cow;
use std::time::Duration;

use qd_wire::{CodedError, ErrorCode};

use crate::runners::line_head::JsonFields;

/// Objects and arrays inside each other in one frame.
const NESTING_MAX: usize = 100;
/// Bytes of a command's name, a session's id and a runner's id.
const NAME_BYTES_MAX: usize = 256;
/// Fields that must come at most once, because hub and runner both act on them.
const HEAD_FIELDS: [&str; 6] = ["channel", "id", "cmd", "session_id", "runner_id", "depends_on"];
/// The same, of those that are read when it is known whom to answer.
const CONDITION_FIELDS: [&str; 4] = ["idempotency_key", "if_session_version", "wait", "wait_ms"];
/// How long a command waits for its runner: when its sender does not say, and at most.
const WAIT_DEFAULT: Duration = Duration::from_secs(60);
const WAIT_MAX: Duration = Duration::from_secs(600);

/// What routing needs of a frame.
pub(crate) struct CommandHead<'a> {
    pub(crate) cmd: Cow<'a, str>,
    pub(crate) session_id: Option<Cow<'a, str>>,
    pub(crate) runner_id: Option<Cow<'a, str>>,
    /// Commands that must have succeeded before.
    pub(crate) depends_on: Vec<String>,
}

/// Whether a command is to be done only if the session has a certain version.
pub(crate) fn has_version(fields: &JsonFields<'_>) -> bool {
    fields.get("if_session_version").is_some_and(|version| version.get() != "null")
}

/// How long a command may wait for a runner that is away; `None` when it may not.
pub(crate) fn wait(fields: &JsonFields<'_>) -> Result<Option<Duration>, CodedError> {
    let wait = fields.typed::<bool>("wait");
    let wait = wait.map_err(|_| CodedError::invalid("The field 'wait' must be true or false"))?;
    let wait_ms = fields.typed::<u64>("wait_ms");
    let wait_ms =
        wait_ms.map_err(|_| CodedError::invalid("The field 'wait_ms' must be a whole number from 0"))?;
    let limit = wait_ms.map_or(WAIT_DEFAULT, Duration::from_millis);
    if limit > WAIT_MAX {
        return Err(CodedError::invalid(format!("The field 'wait_ms' is at most {}", WAIT_MAX.as_millis())));
    }
    Ok(wait.unwrap_or(false).then_some(limit))
}

/// The fields of a frame, if it is an object and not too deep.
pub(crate) fn read_fields(text: &str) -> Result<JsonFields<'_>, CodedError> {
    if is_too_deep(text) {
        return Err(CodedError::invalid(format!("The frame is nested too deeply (max {NESTING_MAX})")));
    }
    if !text.trim_start().starts_with('{') {
        return Err(CodedError::invalid("The frame is not a JSON object"));
    }
    serde_json::from_str(text)
        .map_err(|error| CodedError::invalid(format!("The frame is not valid JSON: {error}")))
}

/// The parser skips unread values without recursion, but the runner reads them: depth is checked here.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > NESTING_MAX {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Reads what routing needs.
pub(crate) fn read_head<'a>(fields: &JsonFields<'a>) -> Result<CommandHead<'a>, CodedError> {
    // Parsers differ in which of two equal fields they take. A frame that names two sessions could pass the check for
    // one and run in the other.
    HEAD_FIELDS.iter().try_for_each(|name| check_once(fields, name))?;
    let channel =
        text_field(fields, "channel")?.ok_or_else(|| CodedError::invalid("The frame has no channel"))?;
    match &*channel {
        "agent" => {}
        "system" => return Err(CodedError::invalid("The system channel takes no commands; use 'agent'")),
        "files" | "terminal" | "hstry" | "trx" => {
            return Err(
                ErrorCode::Unsupported.with(format!("Channel '{channel}' is not served by this version"))
            );
        }
        _ => return Err(ErrorCode::UnknownCommand.with(format!("Unknown channel '{channel}'"))),
    }
    let head = read_address(fields)?;
    Ok(CommandHead { depends_on: read_dependencies(fields)?, ..head })
}

/// The same for a command that came over HTTP: it is on no channel and depends on nothing.
pub(crate) fn read_body_head<'a>(fields: &JsonFields<'a>) -> Result<CommandHead<'a>, CodedError> {
    HEAD_FIELDS.iter().try_for_each(|name| check_once(fields, name))?;
    let head = read_address(fields)?;
    if read_dependencies(fields)?.is_empty() {
        return Ok(head);
    }
    Err(ErrorCode::Unsupported.with(
        "A command over HTTP cannot have 'depends_on', since it has no id others could name: wait for the answer before \
         you send the next, or use /ws/mux",
    ))
}

fn read_dependencies(fields: &JsonFields<'_>) -> Result<Vec<String>, CodedError> {
    let dependencies: Option<Vec<String>> = fields
        .typed("depends_on")
        .map_err(|_| CodedError::invalid("The field 'depends_on' must be a list of command ids"))?;
    Ok(dependencies.unwrap_or_default())
}

fn read_address<'a>(fields: &JsonFields<'a>) -> Result<CommandHead<'a>, CodedError> {
    let cmd = text_field(fields, "cmd")?.ok_or_else(|| CodedError::invalid("The frame has no cmd"))?;
    let session_id = text_field(fields, "session_id")?;
    let runner_id = text_field(fields, "runner_id")?;
    Ok(CommandHead { cmd, session_id, runner_id, depends_on: Vec::new() })
}

fn text_field<'a>(fields: &JsonFields<'a>, name: &str) -> Result<Option<Cow<'a, str>>, CodedError> {
    let text = fields.text(name);
    let text = text.map_err(|_| CodedError::invalid(format!("The field '{name}' must be a string")))?;
    if let Some(text) = &text {
        check_length(name, text)?;
    }
    Ok(text)
}

/// Names are short: they are kept, compared and told.
pub(crate) fn check_length(field: &str, name: &str) -> Result<(), CodedError> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(CodedError::invalid(format!("The field '{field}' is longer than {NAME_BYTES_MAX} bytes")))
}

fn check_once(fields: &JsonFields<'_>, name: &str) -> Result<(), CodedError> {
    match fields.0.iter().filter(|(key, _)| key == name).count() {
        0 | 1 => Ok(()),
        _ => Err(CodedError::invalid(format!("The field '{name}' comes twice"))),
    }
}

/// The conditions of a command are the runner's to check; the hub sees to it that it can read them.
pub(crate) fn check_conditions(fields: &JsonFields<'_>) -> Result<(), CodedError> {
    CONDITION_FIELDS.iter().try_for_each(|name| check_once(fields, name))?;
    let key = fields.text("idempotency_key");
    key.map_err(|_| CodedError::invalid("The field 'idempotency_key' must be a string"))?;
    let version = fields.typed::<u64>("if_session_version");
    version
        .map_err(|_| CodedError::invalid("The field 'if_session_version' must be a whole number from 0"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings() {
        assert!(!is_too_deep(&format!("{{\"a\":\"{}\\\"[\"}}", "[".repeat(500))));
        assert!(!is_too_deep(&"[]".repeat(500)));
        assert!(is_too_deep(&"[".repeat(101)));
        assert!(is_too_deep(&"{\"a\":".repeat(200_000)));
    }

    #[test]
    fn what_is_no_command_is_named() {
        let wait = |fields: &str| {
            let text = format!("{{\"channel\":\"agent\",\"cmd\":\"x\",{fields}}}");
            let fields = read_fields(&text)?;
            read_head(&fields)?;
            check_conditions(&fields)?;
            super::wait(&fields)
        };
        assert_eq!(wait("\"wait\":true"), Ok(Some(WAIT_DEFAULT)));
        assert_eq!(wait("\"wait\":true,\"wait_ms\":5"), Ok(Some(Duration::from_millis(5))));
        assert_eq!(wait("\"wait\":null,\"wait_ms\":5"), Ok(None));
        assert!(wait("\"wait\":1").unwrap_err().message.contains("true or false"));
        assert!(wait("\"wait_ms\":-1").unwrap_err().message.contains("whole number"));
        assert!(wait("\"wait\":true,\"wait_ms\":600001").unwrap_err().message.contains("at most 600000"));
        assert!(wait("\"wait\":true,\"wait\":false").unwrap_err().message.contains("comes twice"));
        let body = read_fields("{\"cmd\":\"x\",\"session_id\":\"a\",\"session_id\":\"b\"}").unwrap();
        assert!(read_body_head(&body).map(drop).unwrap_err().message.contains("'session_id' comes twice"));
        for (text, error) in [
            ("7", "not a JSON object"),
            ("{\"channel\":\"agent\"", "not valid JSON"),
            ("{}", "no channel"),
            ("{\"channel\":\"agent\"}", "no cmd"),
            ("{\"channel\":7}", "'channel' must be a string"),
            ("{\"channel\":\"agent\",\"cmd\":[]}", "'cmd' must be a string"),
            ("{\"channel\":\"agent\",\"cmd\":\"x\",\"cmd\":\"y\"}", "'cmd' comes twice"),
            ("{\"channel\":\"agent\",\"cmd\":\"x\",\"depends_on\":5}", "list of command ids"),
            ("{\"channel\":\"moon\",\"cmd\":\"x\"}", "Unknown channel 'moon'"),
        ] {
            let found = read_fields(text).and_then(|fields| read_head(&fields).map(drop)).unwrap_err();
            assert!(found.message.contains(error), "{text}: {found}");
        }
    }
}
