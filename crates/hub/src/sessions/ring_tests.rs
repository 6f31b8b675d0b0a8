use super::*;
use crate::runners::stall_timeout::WAIT_MAX;

fn chunk(byte: u8, length: usize) -> Bytes {
    Bytes::from(vec![byte; length])
}

fn drain(subscription: &mut Subscription) -> (TakenEvents, Vec<u8>) {
    let mut out = ClientSendQueue::default();
    let taken = subscription.take(&mut out);
    let firsts = out.chunks().map(|bytes| bytes[0]).collect();
    (taken, firsts)
}

/// A frame with a piece of a text.
fn delta(offset: usize, text: &str) -> Bytes {
    let text = format!(
        r#"{{"channel":"agent","session_id":"s","runner_id":"r","ts":1,"event":"stream.text_delta","message_id":"m","delta":"{text}","content_index":0,"offset":{offset}}}"#,
    );
    crate::connection::frame::text(text.as_bytes())
}

/// All text in frames of such pieces.
fn text_of(mut frames: &[u8]) -> String {
    let mut found = String::new();
    while let Some((whole, payload)) = crate::connection::frame::split_text(frames) {
        let event: serde_json::Value = serde_json::from_slice(payload).unwrap();
        assert_eq!(event["offset"], found.chars().count(), "nothing is missing and nothing comes twice");
        found.push_str(event["delta"].as_str().unwrap());
        frames = &frames[whole.len()..];
    }
    assert!(frames.is_empty());
    found
}

#[test]
fn every_subscriber_takes_every_chunk_once_and_nothing_is_kept() {
    let ring = Arc::new(Ring::new(1 << 20, 0));
    ring.publish(chunk(0, 10), None);
    assert_eq!(ring.held_bytes(), 0, "nobody listens, nothing is kept");
    let mut one = ring.subscribe(Mailbox::for_tests());
    let mut two = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(1, 10), Some(4));
    ring.publish(chunk(2, 10), None);
    assert_eq!(drain(&mut one), (TakenEvents::All, vec![1, 2]));
    assert!(ring.held_bytes() > 0);
    assert_eq!(drain(&mut two), (TakenEvents::All, vec![1, 2]));
    assert_eq!((ring.held_bytes(), one.seq, two.seq), (0, 4, 4));
    assert_eq!(drain(&mut one), (TakenEvents::All, vec![]));
}

#[test]
fn a_slow_subscriber_lags_alone_and_holds_nothing() {
    let ring = Arc::new(Ring::new(1000, 0));
    let mut slow = ring.subscribe(Mailbox::for_tests());
    let mut quick = ring.subscribe(Mailbox::for_tests());
    for byte in 1..=50 {
        ring.publish(chunk(byte, 300), None);
        assert_eq!(drain(&mut quick), (TakenEvents::All, vec![byte]));
        assert!(ring.held_bytes() <= 1000 + 364);
    }
    assert_eq!(drain(&mut slow), (TakenEvents::Lagged, vec![]));
    assert_eq!(ring.held_bytes(), 0);
    drop(slow);
    ring.publish(chunk(9, 300), None);
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![9]));
    drop(quick);
    assert_eq!((ring.held_bytes(), ring.subscriber_count()), (0, 0));
}

#[test]
fn a_chunk_greater_than_the_ring_still_reaches_who_is_quick() {
    let ring = Arc::new(Ring::new(100, 0));
    let mut quick = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(1, 5000), None);
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![1]));
}

#[test]
fn leaving_frees_what_only_the_leaver_waited_for() {
    let ring = Arc::new(Ring::new(1 << 20, 0));
    let leaver = ring.subscribe(Mailbox::for_tests());
    let mut stays = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(1, 10), None);
    assert_eq!(drain(&mut stays), (TakenEvents::All, vec![1]));
    drop(leaver);
    assert_eq!(ring.held_bytes(), 0);
    let mut late = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(2, 10), None);
    assert_eq!(drain(&mut late), (TakenEvents::All, vec![2]));
    assert_eq!(drain(&mut stays), (TakenEvents::All, vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_full_ring_waits_for_who_keeps_up_and_not_long_for_who_does_not() {
    let ring = Arc::new(Ring::new(1000, 0));
    let mut quick = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(1, 900), None);
    let began = Instant::now();
    let waiting = tokio::spawn({
        let ring = Arc::clone(&ring);
        async move { ring.make_room(900, &StallTimeout::default()).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![1]));
    waiting.await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(20));

    // One of two that does not move is waited for once, and then not for a long while.
    let mut slow = ring.subscribe(Mailbox::for_tests());
    ring.publish(chunk(2, 900), None);
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![2]));
    let began = Instant::now();
    ring.make_room(900, &StallTimeout::default()).await;
    assert_eq!(began.elapsed(), WAIT_FOR_SLOW);
    ring.publish(chunk(3, 900), None);
    assert_eq!(drain(&mut slow), (TakenEvents::Lagged, vec![]));
    let mut again = ring.subscribe(Arc::clone(&slow.signal.mailbox));
    drop(slow);
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![3]));
    ring.publish(chunk(4, 900), None);
    assert_eq!(drain(&mut quick), (TakenEvents::All, vec![4]));
    let began = Instant::now();
    ring.make_room(900, &StallTimeout::default()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    ring.publish(chunk(5, 900), None);
    assert_eq!(drain(&mut again), (TakenEvents::Lagged, vec![]));
}

#[tokio::test(start_paused = true)]
async fn all_waiting_of_a_link_together_is_bounded() {
    let stall_timeout = StallTimeout::default();
    let began = Instant::now();
    // However many sessions have someone who does not read: the link waits for them as if they were one.
    for number in 0..50 {
        let ring = Arc::new(Ring::new(1000, 0));
        let _stuck = ring.subscribe(Mailbox::for_tests());
        ring.publish(chunk(number, 900), None);
        ring.make_room(900, &stall_timeout).await;
        ring.publish(chunk(number, 900), None);
    }
    assert_eq!(began.elapsed(), WAIT_MAX);
}

#[test]
fn who_is_behind_gets_the_shortest_stream_and_who_keeps_up_gets_every_frame() {
    let ring = Arc::new(Ring::new(1 << 20, 0));
    let mut slow = ring.subscribe(Mailbox::for_tests());
    let mut quick = ring.subscribe(Mailbox::for_tests());
    let (mut out, mut quick_bytes, mut sent) = (ClientSendQueue::default(), 0, 0);
    for number in 0..300_usize {
        let frame = delta(number * 1000, &"x".repeat(1000));
        sent += frame.len();
        ring.publish(frame, Some(number as u64));
        let mut out = ClientSendQueue::default();
        assert_eq!(quick.take(&mut out), TakenEvents::All);
        quick_bytes += out.bytes();
    }
    assert_eq!(quick_bytes, sent);
    while slow.take(&mut out) == TakenEvents::Some {
        assert!(!out.is_full(), "bytes of a text are not made more");
    }
    let frames = out.chunks().count();
    assert!(frames < 120, "{frames} pieces, of 300");
    assert!(out.bytes() < sent && out.bytes() > 300_000);
    assert_eq!((slow.seq, ring.held_bytes()), (299, 0));
}

#[test]
fn those_behind_at_one_place_share_the_shortened_piece() {
    let ring = Arc::new(Ring::new(1 << 20, 0));
    let mut slow: Vec<Subscription> = (0..3).map(|_| ring.subscribe(Mailbox::for_tests())).collect();
    for number in 0..100 {
        ring.publish(delta(number * 1000, &"x".repeat(1000)), None);
    }
    let pieces = slow.iter_mut().map(|slow| {
        let mut out = ClientSendQueue::default();
        assert_eq!(slow.take(&mut out), TakenEvents::All);
        assert_eq!(out.chunks().count(), 1);
        out.chunks().next().unwrap().as_ptr()
    });
    let pieces: std::collections::BTreeSet<_> = pieces.collect();
    assert_eq!((pieces.len(), ring.held_bytes(), ring.state.lock().shortened.len()), (1, 0, 0));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    /// Steps: a number below 8 is a piece of so many thousand characters, another one a reader that takes.
    #[test]
    fn readers_of_any_pace_get_the_whole_text_once(steps in proptest::collection::vec(0..20_usize, 0..200)) {
        let ring = Arc::new(Ring::new(64 << 20, 0));
        let mut readers: Vec<(Subscription, Vec<u8>)> =
            (0..12).map(|_| (ring.subscribe(Mailbox::for_tests()), Vec::new())).collect();
        let mut sent = String::new();
        let take = |(reader, got): &mut (Subscription, Vec<u8>)| {
            let mut out = ClientSendQueue::default();
            let taken = reader.take(&mut out);
            out.chunks().for_each(|chunk| got.extend_from_slice(chunk));
            taken
        };
        for (number, step) in steps.into_iter().enumerate() {
            match step.checked_sub(8) {
                None => {
                    let letter = char::from(b'a' + u8::try_from(number % 26).unwrap());
                    let text = letter.to_string().repeat(step * 1000);
                    ring.publish(delta(sent.len(), &text), None);
                    sent.push_str(&text);
                }
                Some(reader) => {
                    take(&mut readers[reader]);
                }
            }
        }
        for reader in &mut readers {
            while take(reader) == TakenEvents::Some {}
            proptest::prop_assert!(text_of(&reader.1) == sent);
        }
        proptest::prop_assert_eq!((ring.held_bytes(), ring.state.lock().shortened.len()), (0, 0));
    }
}

#[test]
fn a_screen_is_made_once_for_all_who_watch_and_not_while_nobody_does() {
    let ring = Arc::new(Ring::new(1 << 20, 0));
    let made = std::cell::Cell::new(0);
    let publish = |seq: u64, is_end: bool| {
        ring.publish_with(chunk(0, 10), Some(seq), || {
            made.set(made.get() + 1);
            TerminalChunk { frames: Bytes::from(format!("screen {seq}")), is_end }
        });
    };
    let mut agent = ring.subscribe(Mailbox::for_tests());
    publish(1, false);
    assert_eq!(made.get(), 0);
    let mut watching: Vec<Subscription> =
        [1, 2].map(|seen| ring.subscribe_as(SubscriberView::Terminal { seen }, Mailbox::for_tests())).into();
    publish(2, false);
    publish(3, true);
    publish(4, false);
    assert_eq!(made.get(), 3, "once for each chunk, however many watch");
    let taken = |subscription: &mut Subscription| {
        let mut out = ClientSendQueue::default();
        let how = subscription.take(&mut out);
        (how, out.chunks().cloned().collect::<Vec<_>>())
    };
    assert_eq!(taken(&mut watching[0]), (TakenEvents::Ended, vec!["screen 2".into(), "screen 3".into()]));
    assert_eq!(
        taken(&mut watching[1]),
        (TakenEvents::Ended, vec!["screen 3".into()]),
        "it has the second already"
    );
    assert_eq!(taken(&mut agent).1.len(), 4, "events go on as they came");
    drop((watching, agent));
    assert_eq!(ring.held_bytes(), 0);
    publish(5, false);
    assert_eq!(made.get(), 3);
}
