//! The authority for sessions and their versions, as section 10 wants it, and what a command means.

use std::collections::BTreeMap;

use qd_wire::command_table::Lane;

use super::super::PiServerSubmission;

pub(super) fn lane<'a>(submission: &PiServerSubmission, session: &'a str) -> Option<(bool, &'a str)> {
    match submission.spec.lane {
        Lane::Session | Lane::Shell => Some((true, session)),
        Lane::Control | Lane::Read | Lane::Service => None,
    }
}

pub(super) fn perform(
    sessions: &mut BTreeMap<String, u64>,
    submission: &PiServerSubmission,
    session: &str,
    fails: bool,
) -> Result<Option<u64>, String> {
    let name = submission.spec.name;
    if name == "list_sessions" {
        return Ok(None);
    }
    let version = sessions.get(session).copied();
    if name == "create_session" || name == "load_session" {
        if version.is_some() {
            return Err(format!("Session {session} already exists"));
        }
        sessions.insert(session.to_owned(), 0);
        return Ok(Some(0));
    }
    let Some(version) = version else { return Err(format!("Session {session} not found")) };
    if let Some(expected) = submission.if_session_version.filter(|expected| *expected != version) {
        return Err(format!("Session version mismatch: expected {expected}, got {version}"));
    }
    if fails {
        return Err("No API key".into());
    }
    if name == "delete_session" {
        sessions.remove(session);
        return Ok(None);
    }
    let version = version + u64::from(submission.spec.mutating);
    sessions.insert(session.to_owned(), version);
    Ok(Some(version))
}

pub(super) fn fingerprint(submission: &PiServerSubmission, payload: usize) -> [u8; 32] {
    let mut digest = [0u8; 32];
    // The client did not write a minted name, and a repeat gets another one.
    let session = submission.session_id.as_deref().filter(|_| submission.names_session);
    let fields = [submission.spec.name, session.unwrap_or("")];
    let depends_on = submission.depends_on.iter().map(String::as_str);
    let version = submission.if_session_version.map_or(9, |version| version as u8);
    let text = fields.into_iter().chain(depends_on).flat_map(|field| field.bytes().chain([0]));
    for (at, byte) in text.chain([version, payload as u8]).enumerate() {
        digest[at % 32] = digest[at % 32].wrapping_mul(31).wrapping_add(byte);
    }
    digest
}
