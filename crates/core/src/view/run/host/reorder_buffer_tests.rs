use proptest::prelude::*;

use super::super::acks::HostAcks;
use super::*;

fn numbers(out: &[OrderedEvent<u64>]) -> Vec<i64> {
    out.iter()
        .map(|arrived| match arrived {
            OrderedEvent::Event(seq, event) => {
                assert_eq!(seq, event);
                seq.cast_signed()
            }
            OrderedEvent::Lost(seq) => -seq.cast_signed(),
        })
        .collect()
}

#[test]
fn hole_14_events_in_the_wrong_order_leave_in_the_right_one() {
    let mut arrivals = ReorderBuffer::after(0);
    let mut out = Vec::new();
    for seq in [2, 1, 1, 4, 2, 3] {
        let _ = arrivals.take(0, seq, seq, 1, &mut out);
    }
    assert_eq!((numbers(&out), arrivals.due()), (vec![1, 2, 3, 4], None));
}

#[test]
fn a_hole_is_given_up_after_its_time_and_at_the_bound() {
    let mut arrivals = ReorderBuffer::after(10);
    let mut out = Vec::new();
    for seq in [12, 13, 16] {
        arrivals.take(100, seq, seq, 1, &mut out).unwrap();
    }
    arrivals.tick(100 + HOLE_WAIT_MS - 1, &mut out);
    assert_eq!(numbers(&out), [0; 0]);
    arrivals.tick(100 + HOLE_WAIT_MS, &mut out);
    assert_eq!(numbers(&out), [-11, 12, 13], "the second hole has a time of its own");
    assert_eq!(arrivals.take(0, 11, 11, 1, &mut out), Err(RefusedEvent::Repeated));
    let mut full = ReorderBuffer::after(0);
    out.clear();
    for seq in 2..=HELD_RECORDS_MAX as u64 + 2 {
        full.take(0, seq, seq, 1, &mut out).unwrap();
    }
    assert_eq!(out.len(), HELD_RECORDS_MAX + 2);
    let mut heavy = ReorderBuffer::after(0);
    out.clear();
    heavy.take(0, 3, 3, HELD_BYTES_MAX + 1, &mut out).unwrap();
    assert_eq!(numbers(&out), [-1, -2, 3]);
}

#[test]
fn nobody_can_ask_for_any_number_of_fillings() {
    let mut arrivals = ReorderBuffer::after(5);
    let too_far = arrivals.take(0, 7 + HOLE_RECORDS_MAX, 0, 1, &mut Vec::new());
    assert_eq!(too_far, Err(RefusedEvent::TooFar { expected: 6 }));
    assert_eq!(arrivals.take(0, u64::MAX, 0, 1, &mut Vec::new()), Err(RefusedEvent::TooFar { expected: 6 }));
    assert_eq!(arrivals.due(), None);
}

/// What happens to a connection: an event comes, time passes, a commit comes, it breaks.
#[derive(Debug, Clone)]
enum Step {
    Send(u64),
    Wait(i64),
    Commit(usize),
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..40).prop_map(Step::Send),
        1 => (0i64..HOLE_WAIT_MS * 2).prop_map(Step::Wait),
        3 => (0usize..8).prop_map(Step::Commit),
        1 => Just(Step::Reconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any order, repetition and loss: every number leaves once, in order, and no ack goes beyond what is committed.
    #[test]
    fn each_record_once_in_order_and_no_ack_beyond_the_commit(steps in prop::collection::vec(step(), 0..200)) {
        let (mut arrivals, mut acks) = (ReorderBuffer::after(0), HostAcks::default());
        let (mut log, mut committed, mut now) = (Vec::<OrderedEvent<u64>>::new(), 0usize, 0);
        let mut sent = std::collections::BTreeSet::new();
        for step in steps {
            let mut out = Vec::new();
            match step {
                Step::Send(seq) => {
                    sent.insert(seq);
                    let last = arrivals.last_seq();
                    if arrivals.take(now, seq, seq, 100, &mut out) == Err(RefusedEvent::Repeated) {
                        prop_assert!(seq <= last || arrivals.due().is_some());
                        acks.repeated(now, "r", seq);
                    }
                }
                Step::Wait(ms) => {
                    now += ms;
                    arrivals.tick(now, &mut out);
                }
                Step::Commit(count) => {
                    committed = (committed + count).min(log.len());
                    acks.committed(now, "r", committed as u64);
                }
                Step::Reconnect => {
                    // What is not committed comes again on the next connection.
                    log.truncate(committed);
                    arrivals = ReorderBuffer::after(committed as u64);
                    acks = HostAcks::default();
                    acks.known("r", committed as u64);
                }
            }
            log.extend(out);
            for (place, arrived) in log.iter().enumerate() {
                let (OrderedEvent::Event(seq, _) | OrderedEvent::Lost(seq)) = arrived;
                prop_assert_eq!(*seq, place as u64 + 1);
                if let OrderedEvent::Event(seq, _) = arrived {
                    prop_assert!(sent.contains(seq));
                }
            }
            for (_, seq) in acks.take(now) {
                prop_assert!(seq <= committed as u64);
            }
        }
    }

    /// Without loss nothing is passed over, whatever the order.
    #[test]
    fn nothing_is_lost_that_comes_in_time(order in Just((1u64..60).collect::<Vec<_>>()).prop_shuffle()) {
        let (mut arrivals, mut out) = (ReorderBuffer::after(0), Vec::new());
        for seq in order {
            arrivals.take(0, seq, seq, 1, &mut out).unwrap();
            arrivals.tick(HOLE_WAIT_MS - 1, &mut out);
        }
        prop_assert_eq!(numbers(&out), (1i64..60).collect::<Vec<_>>());
    }
}
