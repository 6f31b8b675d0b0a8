//! Promises checked from outside: what lies in the databases, and what everybody shows when all is quiet.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::oracle::{IMAGE_DATA, SubmissionFate, SubmissionKind};
use crate::plan::{HUB, RUNNERS};
use crate::state::World;
use crate::trace;
use crate::view::SeenMessage;

const SEQ_MASK: i64 = (1 << 40) - 1;

/// A session as its runner has stored it.
pub(crate) struct RunnerSession {
    pub(crate) session_id: String,
    pub(crate) last_seq: u64,
    /// What the runner believes the hub has.
    pub(crate) acked: u64,
}

/// Looks into a database past the locks of whoever has it open: it is the same thread, and between two steps of the
/// simulation nothing is half written.
fn open(path: &Path) -> Option<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let address = format!("file:{}?immutable=1", path.display());
    path.exists().then(|| Connection::open_with_flags(address, flags).unwrap())
}

/// All rows of a query, each made by `read`.
fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Vec<T> {
    let mut statement = connection.prepare(sql).unwrap();
    let found: Vec<T> = statement.query_map([], read).unwrap().map(Result::unwrap).collect();
    found
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::unsigned_abs)
}

/// The sessions of a runner; none while it has no database.
pub(crate) fn runner_sessions(path: &Path) -> Vec<RunnerSession> {
    let Some(connection) = open(path).filter(|connection| has_table(connection, "spool_sessions")) else {
        return Vec::new();
    };
    // A unit that only adds lines does not write the row, so the last number is that of the last line.
    let sql = format!(
        "SELECT s.session_id, max(s.next_seq - 1, coalesce((
             SELECT max(l.spool_key) & {SEQ_MASK} FROM spool l
             WHERE l.spool_key > p.session_key << 40 AND l.spool_key < (p.session_key + 1) << 40), 0)),
             coalesce(p.acked_seq, 0)
         FROM sessions s LEFT JOIN spool_sessions p USING (session_id) ORDER BY s.session_id"
    );
    rows(&connection, &sql, |row| {
        Ok(RunnerSession { session_id: row.get(0)?, last_seq: number(row, 1)?, acked: number(row, 2)? })
    })
}

/// The last lines that a runner has of each session, as it sends them.
pub(crate) fn last_lines(path: &Path, count: u64) -> Vec<u8> {
    let Some(connection) = open(path).filter(|connection| has_table(connection, "spool_sessions")) else {
        return Vec::new();
    };
    let sql = format!(
        "SELECT l.line FROM spool l JOIN spool_sessions p ON p.session_key = l.spool_key >> 40
         JOIN sessions s USING (session_id)
         WHERE (l.spool_key & {SEQ_MASK}) + {count} >= s.next_seq ORDER BY l.spool_key"
    );
    rows(&connection, &sql, |row| row.get::<_, Vec<u8>>(0)).concat()
}

fn has_table(connection: &Connection, name: &str) -> bool {
    let sql = "SELECT count(*) FROM sqlite_master WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get::<_, i64>(0)).is_ok_and(|count| count > 0)
}

/// The records of the hub by session and number.
fn hub_records(world: &World) -> BTreeMap<String, BTreeMap<u64, String>> {
    let mut sessions: BTreeMap<String, BTreeMap<u64, String>> = BTreeMap::new();
    let Some(connection) = open(&world.database(HUB)).filter(|connection| has_table(connection, "records"))
    else {
        return sessions;
    };
    let sql = "SELECT session_id, seq, CAST(body AS TEXT) FROM record_list";
    for (session, seq, body) in rows(&connection, sql, |row| Ok((row.get(0)?, number(row, 1)?, row.get(2)?)))
    {
        sessions.entry(session).or_default().insert(seq, body);
    }
    sessions
}

/// At any moment: the hub's records have no holes, say what their runner said, and are at least what was acked.
pub(crate) fn stored(world: &World) {
    let hub = hub_records(world);
    for (session, records) in &hub {
        let last = records.keys().next_back().copied().unwrap_or(0);
        if records.len() as u64 != last || records.keys().next() != Some(&1) {
            let numbers: Vec<&u64> = records.keys().collect();
            trace::violate(HUB, "records", &format!("session {session} has holes: {numbers:?}"));
        }
        for (seq, body) in records {
            let shown = world.oracle.borrow().records.get(&(session.clone(), *seq)).copied();
            if shown.is_some_and(|shown| shown != world.bodies.hash(body)) {
                trace::violate(
                    HUB,
                    "records",
                    &format!("session {session}: record {seq} is not what was shown"),
                );
            }
        }
    }
    for runner in RUNNERS {
        acked_is_stored(world, runner, &hub);
    }
    shown_is_stored(world, &hub);
}

fn acked_is_stored(world: &World, runner: &str, hub: &BTreeMap<String, BTreeMap<u64, String>>) {
    let path = world.database(runner);
    for session in runner_sessions(&path) {
        let id = &session.session_id;
        let committed = hub.get(id).and_then(|records| records.keys().next_back().copied()).unwrap_or(0);
        if session.acked > committed {
            let detail = format!("session {id}: {} acked, {committed} committed", session.acked);
            trace::violate(runner, "acks", &detail);
        }
    }
    let Some(connection) = open(&path).filter(|connection| has_table(connection, "spool")) else { return };
    let sql = "SELECT p.session_id, l.spool_key, CAST(l.line AS TEXT) FROM spool l
               JOIN spool_sessions p ON p.session_key = l.spool_key >> 40";
    for (session, key, line) in rows(&connection, sql, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    }) {
        let seq = (key & SEQ_MASK).unsigned_abs();
        let Some(body) = hub.get(&session).and_then(|records| records.get(&seq)) else { continue };
        if world.bodies.hash(body) != world.bodies.hash(line.trim_end()) {
            let detail = format!("session {session}: record {seq} is {body}, but the runner said {line}");
            trace::violate(runner, "records", &detail);
        }
    }
}

/// What a client was shown is durable.
fn shown_is_stored(world: &World, hub: &BTreeMap<String, BTreeMap<u64, String>>) {
    for (session, seq) in world.oracle.borrow().records.keys() {
        if !hub.get(session).is_some_and(|records| records.contains_key(seq)) {
            trace::violate(HUB, "records", &format!("session {session}: record {seq} was shown and is gone"));
        }
    }
}

/// What is still not as it must be after healing; empty when all is quiet.
pub(crate) fn unsettled(world: &World) -> Vec<String> {
    let mut missing = Vec::new();
    let oracle = world.oracle.borrow();
    for submission in oracle.submissions.values().filter(|it| it.fate.is_none()) {
        missing.push(format!("{} of {} has no fate", submission.key, submission.client));
    }
    for runner in RUNNERS {
        if oracle.runners.get(runner).is_none_or(|status| status != "Online") {
            missing.push(format!("{runner} is {:?}", oracle.runners.get(runner)));
        }
    }
    for session in &oracle.created {
        let state = oracle.states.get(session).map_or("unknown", String::as_str);
        if !["idle", "dormant", "closed", "failed"].contains(&state) {
            missing.push(format!("session {session} is {state}"));
        }
    }
    if !missing.is_empty() {
        return missing;
    }
    let hub = hub_records(world);
    let last = |session: &str| hub.get(session).and_then(|it| it.keys().next_back().copied()).unwrap_or(0);
    for runner in RUNNERS {
        for session in runner_sessions(&world.database(runner)) {
            let (id, hub_last) = (&session.session_id, last(&session.session_id));
            if hub_last != session.last_seq || session.acked != session.last_seq {
                missing.push(format!(
                    "session {id}: {} at {runner}, {} acked, {hub_last} at the hub",
                    session.last_seq, session.acked
                ));
            }
        }
    }
    for client in world.plan.clients {
        missing.extend(client_behind(world, client, &last));
    }
    missing
}

fn client_behind(world: &World, name: &str, last: &dyn Fn(&str) -> u64) -> Vec<String> {
    let clients = world.clients.borrow();
    let Some(client) = clients.get(name) else { return vec![format!("{name} is down")] };
    let mut missing = Vec::new();
    let (views, library) = (client.views.borrow(), client.library.borrow());
    for session in &world.oracle.borrow().created {
        match views.get(session).filter(|view| view.is_attached()) {
            None => missing.push(format!("{name} is not attached to {session}")),
            Some(view)
                if view.last != Some(last(session)) || view.is_offline || !view.questions.is_empty() =>
            {
                missing.push(format!(
                    "{name} has {:?} of {session}, offline {}, questions {:?}",
                    view.last, view.is_offline, view.questions
                ));
            }
            Some(_) => {}
        }
    }
    for (session, view) in library.iter().filter(|(session, view)| view.last != Some(last(session))) {
        missing.push(format!(
            "the library of {name} has {:?} of {session}, not {}",
            view.last,
            last(session)
        ));
    }
    missing
}

/// When all is quiet: everybody shows the same, everything ran at most once, nothing asked is forgotten.
pub(crate) fn settled(world: &World) {
    stored(world);
    let hub = hub_records(world);
    trace::add("records", hub.values().map(|records| records.len() as u64).sum());
    let messages = hub_messages(world);
    for (name, client) in world.clients.borrow().iter() {
        for (session, view) in client.views.borrow().iter().chain(client.library.borrow().iter()) {
            let stored = messages.get(session).cloned().unwrap_or_default();
            if view.messages != stored {
                let detail = format!("session {session}: {:?} shown, {stored:?} stored", view.messages);
                trace::violate(name, "messages", &detail);
            }
        }
    }
    questions_are_answered(&hub);
    answers_are_kept(world, &hub);
    submissions_ran_once(world, &hub, &messages);
}

fn hub_messages(world: &World) -> BTreeMap<String, BTreeMap<u64, SeenMessage>> {
    let mut sessions: BTreeMap<String, BTreeMap<u64, SeenMessage>> = BTreeMap::new();
    let Some(connection) = open(&world.database(HUB)) else { return sessions };
    let sql = "SELECT session_id, idx, id, content FROM messages WHERE active = 1";
    let found = rows(&connection, sql, |row| {
        Ok((row.get::<_, String>(0)?, number(row, 1)?, row.get(2)?, row.get(3)?))
    });
    for (session, idx, id, text) in found {
        let before = sessions.entry(session.clone()).or_default().insert(idx, SeenMessage { id, text });
        if let Some(before) = before {
            trace::violate(HUB, "messages", &format!("session {session}: two messages at {idx}: {before:?}"));
        }
    }
    sessions
}

fn questions_are_answered(hub: &BTreeMap<String, BTreeMap<u64, String>>) {
    for (session, records) in hub {
        let mut open = std::collections::BTreeSet::new();
        for body in records.values() {
            let Ok(event) = serde_json::from_str::<serde_json::Value>(body) else { continue };
            match event["event"].as_str() {
                Some("agent.input_needed") => {
                    open.insert(event["request"]["request_id"].to_string());
                    trace::count("questions");
                }
                Some("agent.input_resolved") => {
                    open.remove(&event["request_id"].to_string());
                }
                _ => {}
            }
        }
        if !open.is_empty() {
            trace::violate(HUB, "questions", &format!("session {session}: {open:?} were never resolved"));
        }
    }
}

/// What somebody answered and was acknowledged is in the history exactly once, and nothing else is there in its place.
fn answers_are_kept(world: &World, hub: &BTreeMap<String, BTreeMap<u64, String>>) {
    for ((session, request_id), value) in &world.oracle.borrow().answers {
        let bodies = hub.get(session).into_iter().flat_map(BTreeMap::values);
        let events = bodies.filter_map(|body| serde_json::from_str::<serde_json::Value>(body).ok());
        let ends = events.filter(|event| {
            event["event"] == "agent.input_resolved" && event["request_id"] == request_id.as_str()
        });
        let answers: Vec<serde_json::Value> = ends.map(|event| event["answer"].clone()).collect();
        if answers != [serde_json::Value::from(value.as_str())] {
            let detail =
                format!("session {session}: {value:?} answered {request_id}, the history has {answers:?}");
            trace::violate(HUB, "answers", &detail);
        }
    }
}

fn submissions_ran_once(
    world: &World,
    hub: &BTreeMap<String, BTreeMap<u64, String>>,
    messages: &BTreeMap<String, BTreeMap<u64, SeenMessage>>,
) {
    let oracle = world.oracle.borrow();
    for submission in oracle.submissions.values() {
        let (SubmissionKind::Say { has_image, .. }, key) = (&submission.kind, &submission.key) else {
            continue;
        };
        let said = messages.get(&submission.session).into_iter().flat_map(BTreeMap::values);
        let count = said.filter(|message| message.text.contains(key.as_str())).count();
        let waiting = usize::from(is_waiting(hub, &submission.session, key));
        if count + waiting > 1 {
            trace::violate(HUB, "once", &format!("{key} is there {count} times and waits {waiting} times"));
        }
        if *has_image && is_marked_without_image(hub, &submission.session, key) {
            trace::violate(HUB, "images", &format!("{key} is marked as interrupted and has lost its image"));
        }
        match &submission.fate {
            Some(SubmissionFate::Success) if count + waiting == 0 => {
                trace::violate(HUB, "outcomes", &format!("{key} succeeded, but its message is nowhere"));
            }
            Some(SubmissionFate::Failed(error)) if count > 0 => {
                trace::violate(HUB, "outcomes", &format!("{key} failed ({error}), but its message is there"));
            }
            _ => {}
        }
    }
}

fn is_marked_without_image(hub: &BTreeMap<String, BTreeMap<u64, String>>, session: &str, key: &str) -> bool {
    let mut bodies = hub.get(session).into_iter().flat_map(BTreeMap::values);
    bodies
        .any(|body| body.contains("\"interrupted\":true") && body.contains(key) && !body.contains(IMAGE_DATA))
}

/// Whether a message waits in the queue of a turn that was stopped.
fn is_waiting(hub: &BTreeMap<String, BTreeMap<u64, String>>, session: &str, key: &str) -> bool {
    let bodies = hub.get(session).into_iter().flat_map(BTreeMap::values);
    let mut queues = bodies.filter(|body| body.contains("\"event\":\"queue.changed\""));
    queues.next_back().is_some_and(|body| body.contains(key))
}
