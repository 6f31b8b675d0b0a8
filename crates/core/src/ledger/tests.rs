use super::*;
use qd_wire::ErrorCode;

fn submission(
    token: SubmissionToken,
    id: &str,
    key: Option<&str>,
    frame: &str,
    depends_on: &[&str],
) -> Submission {
    let principal = "p".to_owned();
    Submission {
        token,
        cmd: "prompt".into(),
        key: key.map(|key| IdempotencyKey {
            principal: principal.clone(),
            scope: "s".into(),
            key: key.into(),
        }),
        id: Some(CommandId { principal, connection: "c1".into(), id: id.into() }),
        fingerprint: fingerprint(frame),
        depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
    }
}

fn outcome(result: Result<(), &str>) -> CommandOutcome {
    CommandOutcome {
        cmd: "prompt".into(),
        result: result.map(|()| None).map_err(|error| ErrorCode::Failed.with(error)),
        session_version: Some(1),
        indeterminate: false,
        timed_out: false,
    }
}

#[test]
fn a_key_runs_once_and_replays() {
    let mut ledger = Ledger::default();
    let frame = r#"{"cmd":"prompt","message":"x","session_id":"s"}"#;
    let reordered = r#"{"session_id":"s","id":9,"message":"x","cmd":"prompt"}"#;
    assert_eq!(ledger.submit(0, submission(1, "a", Some("k"), frame, &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(2, "b", Some("k"), reordered, &[])), LedgerVerdict::Join);
    let conflict = ledger.submit(0, submission(3, "c", Some("k"), "{}", &[]));
    assert!(
        matches!(conflict, LedgerVerdict::Reject(LedgerRejection::KeyConflict { key, .. }) if key == "k")
    );
    let released = ledger.finish(1, 1, &outcome(Ok(())));
    assert_eq!(released.joined, [2]);
    assert_eq!(
        ledger.submit(2, submission(4, "d", Some("k"), frame, &[])),
        LedgerVerdict::Replay(outcome(Ok(())))
    );
    let later = LedgerLimits::default().key_ttl_ms + 10;
    assert_eq!(ledger.submit(later, submission(5, "e", Some("k"), frame, &[])), LedgerVerdict::Run);
}

#[test]
fn dependencies_wait_fail_or_go_on() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.submit(0, submission(1, "a", None, "{}", &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(2, "b", None, "{}", &["a"])), LedgerVerdict::Wait);
    assert_eq!(ledger.submit(0, submission(3, "c", None, "{}", &["b"])), LedgerVerdict::Wait);
    assert_eq!(
        ledger.submit(0, submission(4, "d", None, "{}", &["nobody"])),
        LedgerVerdict::Reject(LedgerRejection::DependencyUnknown("nobody".into()))
    );
    assert_eq!(
        ledger.submit(0, submission(5, "e", None, "{}", &["e"])),
        LedgerVerdict::Reject(LedgerRejection::DependsOnItself("e".into()))
    );
    assert_eq!(ledger.finish(1, 1, &outcome(Ok(()))).ready, [2]);
    let released = ledger.finish(2, 2, &outcome(Err("boom")));
    assert_eq!(released.failed, [(3, dependency_failed("b", "boom"))]);
    assert_eq!(
        ledger.submit(3, submission(6, "f", None, "{}", &["b"])),
        LedgerVerdict::Reject(dependency_failed("b", "boom"))
    );
}

#[test]
fn what_is_in_flight_is_never_evicted() {
    let limits =
        LedgerLimits { outcomes_max: 2, outcome_bytes_max: 1000, in_flight_max: 3, key_ttl_ms: 1000 };
    let mut ledger = Ledger::new(limits);
    assert_eq!(ledger.submit(0, submission(1, "a", Some("a"), "{}", &[])), LedgerVerdict::Run);
    for token in 2..20 {
        let id = token.to_string();
        assert_eq!(ledger.submit(0, submission(token, &id, Some(&id), "{}", &[])), LedgerVerdict::Run);
        ledger.finish(0, token, &outcome(Ok(())));
    }
    assert_eq!(ledger.submit(0, submission(30, "x", Some("a"), "{}", &[])), LedgerVerdict::Join);
    assert_eq!(
        ledger.submit(0, submission(31, "y", Some("19"), "{}", &[])),
        LedgerVerdict::Replay(outcome(Ok(())))
    );
    assert_eq!(ledger.submit(0, submission(32, "z", Some("2"), "{}", &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(33, "v", Some("3"), "{}", &[])), LedgerVerdict::Run);
    assert!(matches!(
        ledger.submit(0, submission(34, "w", Some("4"), "{}", &[])),
        LedgerVerdict::Reject(LedgerRejection::Busy)
    ));
}

#[test]
fn a_dependent_waits_for_the_command_that_had_the_name() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.submit(0, submission(1, "1", None, "{}", &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(2, "1", None, "{}", &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(3, "x", None, "{}", &["1"])), LedgerVerdict::Wait);
    assert_eq!(ledger.finish(1, 1, &outcome(Err("of another tab"))), ReleasedCommands::default());
    assert_eq!(ledger.finish(1, 2, &outcome(Ok(()))).ready, [3]);
}

#[test]
fn a_connections_own_ids_come_first_and_those_of_earlier_ones_are_found() {
    let mut ledger = Ledger::default();
    let from = |token, connection: &str, id: &str, depends_on: &[&str]| {
        let mut submission = submission(token, id, None, "{}", depends_on);
        submission.id = submission.id.map(|name| CommandId { connection: connection.into(), ..name });
        submission
    };
    assert_eq!(ledger.submit(0, from(1, "a", "1", &[])), LedgerVerdict::Run);
    ledger.finish(0, 1, &outcome(Err("version mismatch")));
    assert_eq!(ledger.submit(0, from(2, "b", "1", &[])), LedgerVerdict::Run);
    ledger.finish(0, 2, &outcome(Ok(())));
    let failed = LedgerVerdict::Reject(dependency_failed("1", "version mismatch"));
    assert_eq!(ledger.submit(0, from(3, "a", "2", &["1"])), failed);
    assert_eq!(ledger.submit(0, from(4, "b", "2", &["1"])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, from(5, "after a reconnect", "3", &["1"])), LedgerVerdict::Run);
}

#[test]
fn what_was_answered_at_once_can_be_depended_on() {
    let limits = LedgerLimits { outcomes_max: 3, ..LedgerLimits::default() };
    let mut ledger = Ledger::new(limits);
    ledger.answered_at_once(1, "p", "c1", "a");
    assert_eq!(ledger.submit(0, submission(2, "b", None, "{}", &["a"])), LedgerVerdict::Run);
    // Also from another connection, as long as the principal is the same.
    ledger.answered_at_once(3, "p", "c2", "there");
    ledger.answered_at_once(4, "q", "c1", "theirs");
    assert_eq!(ledger.submit(0, submission(5, "c", None, "{}", &["there"])), LedgerVerdict::Run);
    let unknown = |id: &str| LedgerVerdict::Reject(LedgerRejection::DependencyUnknown(id.into()));
    assert_eq!(ledger.submit(0, submission(6, "d", None, "{}", &["theirs"])), unknown("theirs"));
    // At the bound the oldest is still known, and one more drives it out.
    assert_eq!(ledger.submit(0, submission(7, "e", None, "{}", &["a"])), LedgerVerdict::Run);
    ledger.answered_at_once(8, "p", "c1", "more");
    assert_eq!(ledger.submit(0, submission(9, "f", None, "{}", &["a"])), unknown("a"));
}

#[test]
fn the_newest_command_of_a_name_speaks_for_it_also_when_it_was_answered_at_once() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.submit(0, submission(1, "a", None, "{}", &[])), LedgerVerdict::Run);
    ledger.finish(0, 1, &outcome(Err("boom")));
    ledger.answered_at_once(2, "p", "c1", "a");
    assert_eq!(ledger.submit(0, submission(3, "b", None, "{}", &["a"])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(4, "a", None, "{}", &[])), LedgerVerdict::Run);
    assert_eq!(ledger.submit(0, submission(5, "c", None, "{}", &["a"])), LedgerVerdict::Wait);
}
