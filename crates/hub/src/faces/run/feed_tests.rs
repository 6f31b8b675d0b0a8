use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::hub::{Hub, test_hub};

const CHUNK_BYTES: usize = 1000;
const ROOM_BYTES: usize = 256 << 10;
/// Greater than any number of a record here.
const PLACE: u64 = 1_000_000;

/// One hub for many cases, with its directory; each case forgets its sessions.
fn shared_hub() -> &'static Hub {
    static HUB: LazyLock<(Arc<Hub>, tempfile::TempDir)> = LazyLock::new(|| test_hub(|_| {}));
    &HUB.0
}

/// A session and what its log has: which records show something, and of what class.
struct LoggedRun {
    /// Its place among the runs, which is told in its frames.
    place: u64,
    entry: Arc<SessionEntry>,
    log: Vec<Option<EventClass>>,
    /// The last record that was published, shown or not.
    published: u64,
}

impl LoggedRun {
    fn new(hub: &Hub, name: &str, place: u64) -> Self {
        LoggedRun { place, entry: hub.session_or_new(name, &Arc::from("r")), log: Vec::new(), published: 0 }
    }

    /// Stores one more record, and publishes it to the feed at once or with the next one.
    fn append(&mut self, feed: &EventFeed, class: Option<EventClass>, is_late: bool) {
        self.log.push(class);
        self.entry.begin_commit();
        self.entry.ring.publish(Bytes::new(), Some(self.log.len() as u64));
        if !is_late {
            self.publish(feed);
        }
    }

    fn publish(&mut self, feed: &EventFeed) {
        let mut chunks = Vec::new();
        let mut after = self.published;
        for seq in self.published + 1..=self.log.len() as u64 {
            if let Some(class) = self.log[seq as usize - 1] {
                let text = self.place * PLACE + seq;
                let frames = Bytes::from(format!("{text:>CHUNK_BYTES$}"));
                chunks.push(RecordEvents { entry: Arc::clone(&self.entry), after, seq, class, frames });
                after = seq;
            }
        }
        feed.publish(chunks);
        for _ in self.published..self.log.len() as u64 {
            self.entry.finish_commit();
        }
        self.published = self.log.len() as u64;
    }
}

/// An app that notes what it got.
struct TestApp {
    follower: FeedSubscription,
    /// Of each run: the records that have come.
    got: Vec<Vec<u64>>,
    /// Of each run: the last record before it joined.
    from: Vec<u64>,
    reading: Option<MissingEvents>,
}

impl TestApp {
    fn join(feed: &Arc<EventFeed>, runs: &[LoggedRun]) -> Self {
        TestApp {
            follower: feed.join(Mailbox::for_tests()),
            got: vec![Vec::new(); runs.len()],
            from: runs.iter().map(|run| run.published).collect(),
            reading: None,
        }
    }

    /// Takes about `count` events.
    fn take(&mut self, count: usize) {
        let mut out = ClientSendQueue::default();
        out.push(Bytes::from(vec![0; ROOM_BYTES - count * CHUNK_BYTES]));
        self.follower.take(&mut out);
        let chunks: Vec<Bytes> = out.chunks().skip(1).cloned().collect();
        for chunk in chunks {
            let text: u64 = std::str::from_utf8(&chunk).unwrap().trim().parse().unwrap();
            self.got[usize::try_from(text / PLACE).unwrap()].push(text % PLACE);
        }
    }

    fn read(&mut self, runs: &[LoggedRun], rows: usize, is_done: bool) {
        if self.reading.is_none() {
            self.reading = self.follower.missing();
        }
        if !is_done {
            return;
        }
        let Some(missing) = self.reading.take() else { return };
        let place = runs.iter().position(|run| Arc::ptr_eq(&run.entry, &missing.entry)).unwrap();
        let log = &runs[place].log;
        let end = (missing.after + rows as u64).min(log.len() as u64);
        if self.follower.has_read(&missing, end, end == missing.after) {
            for seq in missing.after + 1..=end {
                let class = log[seq as usize - 1];
                if class.is_some_and(|class| missing.filter.wants(&missing.entry.id, class)) {
                    self.got[place].push(seq);
                }
            }
        }
    }

    fn finish(&mut self, runs: &[LoggedRun]) {
        for _ in 0..10_000 {
            self.take(50);
            self.read(runs, 7, true);
            if self.reading.is_none() && self.follower.missing().is_none() && self.is_at_end() {
                return;
            }
        }
        panic!("it never comes to an end");
    }

    fn is_at_end(&self) -> bool {
        let state = self.follower.feed.state.lock();
        let reader = state.readers[self.follower.key].as_ref().unwrap();
        reader.next == state.first + state.chunks.len() as u64
    }
}

#[derive(Debug, Clone)]
enum FeedStep {
    Append { run: usize, class: Option<EventClass>, is_late: bool },
    Take { app: usize, count: usize },
    Read { app: usize, rows: usize, is_done: bool },
}

fn steps() -> impl Strategy<Value = Vec<FeedStep>> {
    let class = prop_oneof![
        4 => Just(Some(EventClass::Output)),
        1 => Just(Some(EventClass::Tool)),
        2 => Just(Some(EventClass::Other)),
        2 => Just(None),
    ];
    let step = prop_oneof![
        6 => (0..3_usize, class, prop::bool::weighted(0.2))
            .prop_map(|(run, class, is_late)| FeedStep::Append { run, class, is_late }),
        2 => (0..2_usize, 0..6_usize).prop_map(|(app, count)| FeedStep::Take { app, count }),
        2 => (0..2_usize, 1..5_usize, any::<bool>())
            .prop_map(|(app, rows, is_done)| FeedStep::Read { app, rows, is_done }),
    ];
    proptest::collection::vec(step, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whoever falls behind, wherever: each app gets each record it wants of each run once, in order.
    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(steps in steps(), narrow in any::<bool>()) {
        let hub = shared_hub();
        let feed = Arc::new(EventFeed::new(5 * CHUNK_BYTES));
        let mut runs: Vec<LoggedRun> =
            ["a", "b", "c"].iter().zip(0..).map(|(name, place)| LoggedRun::new(hub, name, place)).collect();
        let mut apps = vec![TestApp::join(&feed, &runs), TestApp::join(&feed, &runs)];
        let mut filter = RunFilter::default();
        if narrow {
            filter.add(&runs[0].entry.id, true, false);
            filter.add(&runs[1].entry.id, false, false);
            apps[0].follower.change_filter(|it| *it = filter.clone());
        }
        for step in steps {
            match step {
                FeedStep::Append { run, class, is_late } => runs[run].append(&feed, class, is_late),
                FeedStep::Take { app, count } => apps[app].take(count),
                FeedStep::Read { app, rows, is_done } => apps[app].read(&runs, rows, is_done),
            }
            prop_assert!(feed.held_bytes() <= 7 * CHUNK_BYTES);
        }
        runs.iter_mut().for_each(|run| run.publish(&feed));
        for (number, app) in apps.iter_mut().enumerate() {
            app.finish(&runs);
            let filter = if number == 0 { filter.clone() } else { RunFilter::default() };
            for (place, run) in runs.iter().enumerate() {
                let expected: Vec<u64> = (app.from[place] + 1..=run.log.len() as u64)
                    .filter(|seq| run.log[*seq as usize - 1].is_some_and(|class| filter.wants(&run.entry.id, class)))
                    .collect();
                prop_assert_eq!(&app.got[place], &expected, "app {} run {}", number, place);
            }
        }
        runs.iter().for_each(|run| hub.forget_session(&run.entry));
        drop(apps);
        prop_assert_eq!(feed.held_bytes(), 0);
        prop_assert!(!feed.is_followed());
    }
}

#[test]
fn a_replay_gives_what_was_before_and_goes_on_with_what_comes() {
    let (hub, _directory) = test_hub(|_| {});
    let feed = Arc::new(EventFeed::new(100 * CHUNK_BYTES));
    let mut runs = vec![LoggedRun::new(&hub, "a", 0)];
    for _ in 0..10 {
        runs[0].append(&feed, Some(EventClass::Output), false);
    }
    let mut app = TestApp::join(&feed, &runs);
    runs[0].append(&feed, Some(EventClass::Output), false);
    app.follower.replay(&runs[0].entry, 4);
    // It comes while the past is read, and once more the past is asked for.
    runs[0].append(&feed, Some(EventClass::Output), false);
    app.read(&runs, 2, true);
    app.read(&runs, 2, false);
    app.follower.replay(&runs[0].entry, 8);
    app.read(&runs, 2, true);
    app.finish(&runs);
    assert_eq!(app.got[0], [5, 6, 9, 10, 11, 12]);
    app.follower.replay(&runs[0].entry, 1_000);
    runs[0].append(&feed, Some(EventClass::Output), false);
    app.finish(&runs);
    assert_eq!(app.got[0].last(), Some(&13));
}

#[test]
fn a_run_that_was_deleted_holds_up_nobody() {
    let (hub, _directory) = test_hub(|_| {});
    let feed = Arc::new(EventFeed::new(2 * CHUNK_BYTES));
    let mut runs = vec![LoggedRun::new(&hub, "a", 0)];
    let mut app = TestApp::join(&feed, &runs);
    for _ in 0..6 {
        runs[0].append(&feed, Some(EventClass::Other), false);
    }
    let missing = app.follower.missing().unwrap();
    hub.forget_session(&runs[0].entry);
    assert!(app.follower.has_read(&missing, 0, true));
    let mut next = vec![LoggedRun::new(&hub, "a", 0)];
    next[0].append(&feed, Some(EventClass::Other), false);
    app.finish(&next);
    assert_eq!(app.got[0], [1]);
}

#[test]
fn subscriptions_narrow_output_and_tools_and_nothing_else() {
    let (a, b) = (Arc::from("a"), "b");
    let mut filter = RunFilter::default();
    let all = [EventClass::Output, EventClass::Tool, EventClass::Other];
    assert!(all.iter().all(|class| filter.wants(b, *class)));
    assert!(filter.add(&a, false, false));
    let wanted = |filter: &RunFilter, run: &str| all.map(|class| filter.wants(run, class));
    assert_eq!((wanted(&filter, "a"), wanted(&filter, b)), ([false, true, true], [false, false, true]));
    assert!(filter.add(&Arc::from(b), true, true));
    assert_eq!((wanted(&filter, "a"), wanted(&filter, b)), ([false, false, true], [true, true, true]));
    filter.remove(None);
    assert_eq!(wanted(&filter, b), [false, false, true]);
}

/// What is no record goes to whoever listens, and changes nothing in what they get of the log.
#[test]
fn what_has_no_number_comes_beside_the_records() {
    let hub = shared_hub();
    let feed = Arc::new(EventFeed::new(5 * CHUNK_BYTES));
    let mut runs = vec![LoggedRun::new(hub, "live", 0)];
    let mut apps = [TestApp::join(&feed, &runs), TestApp::join(&feed, &runs)];
    let live = |run: &LoggedRun| {
        let frames = Bytes::from(format!("{:>CHUNK_BYTES$}", 0));
        RecordEvents { entry: Arc::clone(&run.entry), after: 0, seq: 0, class: EventClass::Other, frames }
    };
    feed.publish(vec![live(&runs[0])]);
    runs[0].append(&feed, Some(EventClass::Other), false);
    apps[0].finish(&runs);
    assert_eq!(apps[0].got[0], [0, 1]);
    // The other one has not taken it when its room is needed: that one is gone, and nothing else.
    for _ in 0..9 {
        runs[0].append(&feed, Some(EventClass::Other), false);
    }
    feed.publish(vec![live(&runs[0])]);
    for app in &mut apps {
        app.finish(&runs);
    }
    let records = |app: &TestApp| app.got[0].iter().copied().filter(|seq| *seq > 0).collect::<Vec<_>>();
    assert_eq!((records(&apps[0]), records(&apps[1])), ((1..=10).collect(), (1..=10).collect()));
    assert_eq!(apps[1].got[0].iter().filter(|seq| **seq == 0).count(), 1);
}
