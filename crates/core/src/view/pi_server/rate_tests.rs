use super::*;

fn rates(per_minute: u32, global_per_minute: u32, ui_per_minute: u32) -> RateWindows {
    RateWindows::new(RateLimits { per_minute, global_per_minute, ui_per_minute })
}

fn admit(
    rates: &mut RateWindows,
    now: i64,
    principal: &str,
    bucket: Bucket,
    session: &str,
) -> Result<(), String> {
    let session = (!session.is_empty()).then_some(session);
    rates.admit(now, &principal.into(), bucket, session, true).map_err(|exceeded| exceeded.to_string())
}

#[test]
fn a_bucket_is_full_for_exactly_one_minute() {
    let mut rates = rates(2, 0, 0);
    assert_eq!(admit(&mut rates, 0, "p", Bucket::Session, "s"), Ok(()));
    assert_eq!(admit(&mut rates, 30_000, "p", Bucket::Session, "s"), Ok(()));
    let full = Err("Rate limit exceeded (2 commands/minute)".to_owned());
    assert_eq!(admit(&mut rates, 30_000, "p", Bucket::Session, "s"), full);
    assert_eq!(admit(&mut rates, 59_999, "p", Bucket::Session, "s"), full);
    assert_eq!(admit(&mut rates, 60_000, "p", Bucket::Session, "s"), Ok(()));
    assert_eq!(admit(&mut rates, 89_999, "p", Bucket::Session, "s"), full, "the second still counts");
    assert_eq!(admit(&mut rates, 90_000, "p", Bucket::Session, "s"), Ok(()));
}

#[test]
fn buckets_sessions_and_principals_do_not_share() {
    let mut rates = rates(1, 0, 1);
    for (principal, bucket, session) in [
        ("p", Bucket::Session, "s"),
        ("p", Bucket::Session, "t"),
        ("p", Bucket::Control, "s"),
        ("p", Bucket::UiResponse, "s"),
        ("p", Bucket::Server, ""),
        ("q", Bucket::Session, "s"),
    ] {
        assert_eq!(
            admit(&mut rates, 0, principal, bucket, session),
            Ok(()),
            "{principal} {bucket:?} {session}"
        );
        assert!(
            admit(&mut rates, 0, principal, bucket, session).is_err(),
            "{principal} {bucket:?} {session}"
        );
    }
}

#[test]
fn all_commands_of_a_principal_count_together() {
    let mut rates = rates(0, 3, 0);
    for (now, session) in [(0, "s"), (1, "t"), (2, "")] {
        assert_eq!(admit(&mut rates, now, "p", Bucket::Session, session), Ok(()));
    }
    let full = Err("Global rate limit exceeded (3 commands/minute)".to_owned());
    assert_eq!(admit(&mut rates, 3, "p", Bucket::UiResponse, "u"), full);
    assert_eq!(admit(&mut rates, 3, "q", Bucket::UiResponse, "u"), Ok(()));
    assert_eq!(rates.global_count("p", 3), 3);
    assert_eq!(rates.global_count("p", 60_000), 2);
    assert_eq!(rates.global_count("nobody", 3), 0);
}

#[test]
fn answers_to_dialogs_have_their_own_limit() {
    let mut rates = rates(1, 0, 2);
    for _ in 0..2 {
        assert_eq!(admit(&mut rates, 0, "p", Bucket::UiResponse, "s"), Ok(()));
    }
    let full = Err("Extension UI response rate limit exceeded (2 responses/minute)".to_owned());
    assert_eq!(admit(&mut rates, 0, "p", Bucket::UiResponse, "s"), full);
}

#[test]
fn a_refused_command_does_not_count() {
    let mut rates = rates(2, 0, 0);
    let principal: Arc<str> = "p".into();
    for _ in 0..5 {
        assert_eq!(rates.admit(0, &principal, Bucket::Session, Some("s"), false), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(admit(&mut rates, 0, "p", Bucket::Session, "s"), Ok(()));
    }
    for now in 0..100 {
        assert!(admit(&mut rates, now, "p", Bucket::Session, "s").is_err());
    }
    assert_eq!(admit(&mut rates, 60_000, "p", Bucket::Session, "s"), Ok(()));
}

#[test]
fn zero_is_no_limit_and_costs_nothing() {
    let mut rates = rates(0, 0, 0);
    for now in 0..10_000 {
        assert_eq!(admit(&mut rates, now, "p", Bucket::Session, "s"), Ok(()));
    }
    assert!(rates.principals.is_empty());
}

#[test]
fn a_clock_set_back_does_not_stop_the_client_for_longer() {
    let mut rates = rates(1, 0, 0);
    assert_eq!(admit(&mut rates, 1_000_000, "p", Bucket::Session, "s"), Ok(()));
    assert!(admit(&mut rates, 500_000, "p", Bucket::Session, "s").is_err());
    assert_eq!(admit(&mut rates, 1_060_000, "p", Bucket::Session, "s"), Ok(()));
}

#[test]
fn idle_windows_are_forgotten_and_busy_ones_are_short() {
    let mut rates = rates(1_000_000, 1_000_000, 0);
    for session in 0..1_000 {
        assert_eq!(admit(&mut rates, 0, "p", Bucket::Session, &format!("s{session}")), Ok(()));
    }
    for _ in 0..1_000 {
        assert_eq!(admit(&mut rates, 1, "q", Bucket::Session, "s"), Ok(()));
    }
    assert_eq!(rates.principals["q"].all.times.len(), 1, "one pair per millisecond");
    assert_eq!(admit(&mut rates, 60_000, "q", Bucket::Session, "s"), Ok(()));
    assert!(!rates.principals.contains_key("p"));
    assert_eq!(rates.principals["q"].sessions.len(), 1);
}
