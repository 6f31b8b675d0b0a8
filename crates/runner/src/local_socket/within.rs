//! What a program in a session may ask for at the socket: what concerns its own session, and as what it is.

use bytes::Bytes;
use qd_wire::command_table::{CommandClass, CommandHead, Lane, Permission, spec};
use qd_wire::{CodedError, ErrorCode, JsonObject, SYSTEM_SESSION};

/// An agent that could answer would approve its own calls.
const NOT_FROM_WITHIN: &str = "Permission denied: a program inside a session can neither start or steer sessions nor answer \
                               questions; do it in a terminal of your own, or in the app";

/// Whether a command names a session at all.
pub(super) fn is_a_session(named: &str) -> bool {
    !named.is_empty() && named != SYSTEM_SESSION
}

/// Reads the head of a program's command, and gives the line that is done instead: about its own session, a person asked
/// before it changes anything, and recorded as an agent's.
pub(super) fn confined(own: &str, head: &CommandHead<'_>, text: &str) -> Result<Bytes, CodedError> {
    let refused = |words: String| ErrorCode::PermissionDenied.with(words);
    let row = head.cmd.as_deref().and_then(spec).ok_or_else(|| refused(NOT_FROM_WITHIN.to_owned()))?;
    let is_service = row.lane == Lane::Service;
    let may_ask = match row.permission {
        Permission::View => true,
        // Those that are no services have no gate.
        Permission::Files | Permission::Shell => is_service,
        Permission::Operate | Permission::Approve | Permission::Manage => false,
    };
    if !may_ask {
        return Err(refused(NOT_FROM_WITHIN.to_owned()));
    }
    if row.class == CommandClass::Runner {
        return Err(refused(format!(
            "Permission denied: '{}' is about all sessions, and a program inside a session sees its own only",
            row.name
        )));
    }
    let mut command: JsonObject =
        serde_json::from_str(text).map_err(|error| CodedError::invalid(error.to_string()))?;
    match head.session_id.as_deref().filter(|named| is_a_session(named)) {
        Some(named) if named != own => {
            return Err(refused(format!(
                "Permission denied: a program inside session '{own}' cannot reach session '{named}'"
            )));
        }
        Some(_) => {}
        None if is_service || row.needs_session => {
            command.insert("session_id".to_owned(), own.into());
        }
        None => {}
    }
    if is_service {
        // Whatever the session's gate and the roles say.
        command.insert("ask".to_owned(), true.into());
        command.remove("ask_unless_allowed");
        command.insert("actor".to_owned(), "agent".into());
    }
    serde_json::to_vec(&command).map(Bytes::from).map_err(|error| CodedError::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn confine(command: Value) -> Result<Value, CodedError> {
        let text = command.to_string();
        let head = serde_json::from_str(&text).unwrap();
        confined("own", &head, &text).map(|line| serde_json::from_slice(&line).unwrap())
    }

    #[test]
    fn commands_are_about_the_own_session() {
        for cmd in
            ["fs.read", "git.diff", "host.bash", "host.info", "get_state", "get_messages", "session.attach"]
        {
            for (session_id, is_allowed) in [
                (Some("own"), true),
                (Some(""), true),
                (Some("_system"), true),
                (None, true),
                (Some("other"), false),
            ] {
                let done =
                    confine(json!({ "cmd": cmd, "session_id": session_id, "path": "x", "command": "y" }));
                match done {
                    Ok(line) => assert_eq!((&line["session_id"], is_allowed), (&json!("own"), true), "{cmd}"),
                    Err(error) => {
                        assert_eq!(
                            (error.code, is_allowed),
                            (ErrorCode::PermissionDenied, false),
                            "{cmd}: {error}"
                        );
                        assert!(error.message.contains("cannot reach session 'other'"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_about_no_session_stays_so() {
        for session_id in [Some("_system"), Some(""), None] {
            let line = confine(json!({ "cmd": "list_sessions", "session_id": session_id })).unwrap();
            assert_eq!(line["session_id"], json!(session_id));
        }
    }

    #[test]
    fn services_are_asked_about_and_recorded_as_the_agents() {
        let mine = json!({ "cmd": "host.bash", "command": "x", "ask": false, "ask_unless_allowed": true,
                           "actor": "web", "user_role": "owner" });
        let line = confine(mine).unwrap();
        assert!(line.get("ask_unless_allowed").is_none(), "what was allowed before opens nothing");
        assert_eq!(
            (&line["ask"], &line["actor"], &line["command"]),
            (&json!(true), &json!("agent"), &json!("x"))
        );
        assert!(confine(json!({ "cmd": "get_state" })).unwrap().get("ask").is_none());
    }

    #[test]
    fn whatever_a_person_decides_is_refused() {
        for row in qd_wire::command_table::COMMANDS {
            let done = confine(json!({ "cmd": row.name, "session_id": "own" }));
            let is_read = row.permission == Permission::View && row.class != CommandClass::Runner;
            let is_gated = row.is_gated() && row.lane == Lane::Service;
            assert_eq!(done.is_ok(), is_read || is_gated, "{}", row.name);
        }
        for cmd in ["", "_cancel", "_barrier", "fly"] {
            assert!(confine(json!({ "cmd": cmd })).is_err(), "{cmd}");
        }
    }
}
