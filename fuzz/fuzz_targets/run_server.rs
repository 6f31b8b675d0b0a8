//! A hostile server of the run protocol and a runner that talk in turns, a line each: the server is never believed to
//! have more than it was sent, and cannot speak in the name of anybody but an operator.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use qd_core::view::run::host::server_connection::{PRINCIPAL, ServerConnection, TranslatedLines};
use qd_fuzz::json::is_json;
use qd_wire::command_table::CommandHead;
use qd_wire::link::{HelloSession, LinkLine, RunnerHello};
use qd_wire::people::Role;

const SENT_BEFORE: u64 = 7;

fuzz_target!(|text: &str| {
    let session = HelloSession { session_id: "run-1".to_owned(), last_seq: SENT_BEFORE, state: None };
    let hello =
        RunnerHello { runner_id: "host-1".to_owned(), sessions: vec![session], ..RunnerHello::default() };
    let acked = HashMap::from([("run-1".to_owned(), u64::MAX)]);
    let (mut connection, welcome) = ServerConnection::welcome(&hello, &acked);
    assert_eq!(welcome.sessions[0].last_seq, SENT_BEFORE, "an ack of more than there is");
    let mut sent = HashMap::from([("run-1".to_owned(), SENT_BEFORE)]);
    for (turn, line) in text.lines().enumerate() {
        let outcome = match line.strip_prefix('<') {
            // Our own runner writes JSON; what is in it may come from anywhere.
            Some(line) if !is_json(line) => continue,
            Some(line) => {
                note_sent(&mut sent, line);
                connection.line(turn as i64, line)
            }
            None => connection.message(turn as i64, line),
        };
        check(&outcome, &sent);
    }
});

fn note_sent(sent: &mut HashMap<String, u64>, line: &str) {
    let Some(record) = qd_core::record::Record::parse(line) else { return };
    let Ok(run_id) = serde_json::from_str::<String>(&record.session_id) else { return };
    let seq = sent.entry(run_id).or_default();
    *seq = (*seq).max(record.seq);
}

fn check(outcome: &TranslatedLines, sent: &HashMap<String, u64>) {
    if let Some((run_id, seq)) = &outcome.acked {
        assert!(sent.get(run_id).is_some_and(|sent| seq <= sent), "{run_id} is acked up to {seq}");
    }
    assert!(outcome.to_runner.is_empty() || outcome.to_runner.ends_with('\n'));
    for line in outcome.to_runner.lines() {
        if let Ok(LinkLine::Ack { .. }) = serde_json::from_str(line) {
            continue;
        }
        let head: CommandHead<'_> =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(
            (head.user_id.as_deref(), head.user_role),
            (Some(PRINCIPAL), Some(Role::Operator)),
            "{line}"
        );
        assert_eq!(head.connection_id.as_deref(), Some(PRINCIPAL));
        assert!(head.cmd.is_some() && head.depends_on.is_none());
    }
    for message in &outcome.to_server {
        assert!(is_json(message), "{message}");
    }
}
