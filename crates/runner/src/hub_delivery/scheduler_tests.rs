//! Every interleaving of speaking, catching up, acks and lost links delivers each record once and in order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use qd_core::outbox::{RecordSpan, ResponseSpan};

use super::*;

/// A round as a session would say it: records, then a live event, then responses.
struct Round {
    block: Bytes,
    records: Vec<RecordSpan>,
    responses: Vec<ResponseSpan>,
}

impl Round {
    fn new(session_id: &str, seqs: std::ops::Range<u64>, has_event: bool, answers: &[(u64, &str)]) -> Round {
        let mut text = String::new();
        let mut records = Vec::new();
        let mut responses = Vec::new();
        for seq in seqs {
            let start = text.len();
            text.push_str(&record_line(session_id, seq));
            records.push(RecordSpan { seq, range: start..text.len() });
        }
        if has_event {
            text.push_str("event\n");
        }
        for (origin, cmd) in answers {
            let start = text.len();
            text.push_str(&format!("answer {origin} {cmd}\n"));
            responses.push(ResponseSpan {
                origin: *origin,
                id: "h1".into(),
                cmd: (*cmd).into(),
                took_effect: true,
                range: start..text.len(),
            });
        }
        Round { block: text.into(), records, responses }
    }

    fn said<'a>(&'a self, session_id: &'a str) -> Said<'a> {
        Said {
            session_id,
            block: &self.block,
            records: &self.records,
            responses: &self.responses,
            natives: &[],
        }
    }
}

fn record_line(session_id: &str, seq: u64) -> String {
    format!("record {session_id} {seq} {}\n", "x".repeat((seq % 7) as usize * 5))
}

fn flow() -> Flow {
    Flow { window_max: 200, catch_up_max: 100, ..Flow::new("r") }
}

fn text(block: &Bytes) -> &str {
    std::str::from_utf8(block).unwrap()
}

fn sent(verdict: Verdict) -> String {
    match verdict {
        Verdict::Send { block, .. } => text(&block).to_owned(),
        other => panic!("{other:?} where a block should go out"),
    }
}

#[test]
fn a_live_block_goes_out_as_it_is() {
    let mut flow = flow();
    flow.link_up(1, &BTreeMap::new());
    let round = Round::new("s", 1..3, true, &[(1, "prompt")]);
    let Verdict::Send { link, block } = flow.publish(&round.said("s")) else { panic!("not sent") };
    assert_eq!((link, block.as_ptr()), (1, round.block.as_ptr()), "nothing may be copied");
}

#[test]
fn answers_go_to_their_own_connection_only() {
    let mut flow = flow();
    flow.link_up(2, &BTreeMap::new());
    let round = Round::new("s", 1..2, true, &[(1, "prompt"), (2, "prompt"), (9, "prompt")]);
    let block = sent(flow.publish(&round.said("s")));
    assert!(block.contains("answer 2") && !block.contains("answer 1") && !block.contains("answer 9"));
}

#[test]
fn answers_with_a_place_wait_until_the_session_is_live_again() {
    let mut flow = flow();
    flow.link_up(1, &BTreeMap::new());
    let first = Round::new("s", 1..2, false, &[]);
    sent(flow.publish(&first.said("s")));
    let second = Round::new("s", 2..3, true, &[(1, "session.attach"), (1, "prompt")]);
    let Verdict::Send { link, .. } = flow.publish(&second.said("s")) else { panic!("not sent") };
    flow.unsent(link, &second.said("s"));
    assert_eq!(flow.next(), Step::Send("answer 1 prompt\n".into()));
    let Step::Read(turn) = flow.next() else { panic!("the record is to be read") };
    assert_eq!((turn.after, turn.published), (1, 2));
    let block = flow.have_read(&turn, vec![(2, record_line("s", 2).into())]).unwrap();
    assert_eq!(text(&block), record_line("s", 2));
    assert_eq!(flow.next(), Step::Send("answer 1 session.attach\n".into()));
    assert_eq!(flow.next(), Step::Room, "live again only when the link has room");
    flow.has_room(1);
    assert_eq!(flow.next(), Step::Snapshot("s".into()));
    assert_eq!(flow.next(), Step::Wait);
    let third = Round::new("s", 3..4, false, &[]);
    assert_eq!(sent(flow.publish(&third.said("s"))), record_line("s", 3));
}

#[test]
fn a_full_window_makes_the_session_catch_up_at_the_pace_of_the_acks() {
    let mut flow = flow();
    flow.link_up(1, &BTreeMap::new());
    let mut next = 1;
    loop {
        let round = Round::new("s", next..next + 1, false, &[]);
        match flow.publish(&round.said("s")) {
            Verdict::Send { .. } => next += 1,
            Verdict::Wake => break,
            Verdict::Nothing => panic!("a record must go somewhere"),
        }
    }
    assert!(next > 2, "the window holds several");
    assert!(matches!(flow.next(), Step::Read(_)), "there is still room for a turn");
    flow.catch_up_bytes = flow.catch_up_max;
    assert_eq!(flow.next(), Step::Wait);
    flow.catch_up_bytes = 0;
    assert!(flow.ack(1, "s", next - 1));
    assert!(matches!(flow.next(), Step::Read(turn) if turn.after == next - 1));
}

#[test]
fn an_answer_with_a_place_goes_out_between_the_records_it_stands_between() {
    let mut flow = flow();
    flow.restore("s", 2);
    flow.link_up(1, &BTreeMap::new());
    let attach = Round::new("s", 3..4, false, &[(1, "session.attach")]);
    assert_eq!(flow.publish(&attach.said("s")), Verdict::Wake);
    let later = Round::new("s", 4..6, false, &[]);
    assert_eq!(flow.publish(&later.said("s")), Verdict::Wake);
    let mut out = String::new();
    let rows = |turn: &Turn| (turn.after + 1..6).map(|seq| (seq, record_line("s", seq).into())).collect();
    loop {
        match flow.next() {
            Step::Send(block) => out.push_str(text(&block)),
            Step::Read(turn) => {
                let read = flow.have_read(&turn, rows(&turn)).unwrap();
                out.push_str(text(&read));
                flow.ack(1, "s", turn.published);
            }
            _ => break,
        }
    }
    let records: Vec<String> = (1..6).map(|seq| record_line("s", seq)).collect();
    assert_eq!(out, records[..3].concat() + "answer 1 session.attach\n" + &records[3..].concat());
}

#[test]
fn no_live_event_goes_out_before_the_snapshot_that_explains_it() {
    let mut flow = flow();
    flow.restore("s", 1);
    flow.link_up(1, &BTreeMap::from([("s".to_owned(), 1)]));
    let lost = Round::new("s", 0..0, true, &[]);
    assert_eq!(flow.publish(&lost.said("s")), Verdict::Wake);
    assert_eq!(flow.next(), Step::Snapshot("s".to_owned()));
    let early = Round::new("s", 2..3, true, &[(1, "prompt")]);
    assert_eq!(sent(flow.publish(&early.said("s"))), record_line("s", 2) + "answer 1 prompt\n");
    let resync = "{\"type\":\"event\",\"event\":\"session.resync\"}\n";
    let mut round = Round::new("s", 3..4, true, &[]);
    round.block = (text(&round.block).to_owned() + resync + "late\n").into();
    assert_eq!(sent(flow.publish(&round.said("s"))), record_line("s", 3) + resync + "late\n");
    let after = Round::new("s", 0..0, true, &[]);
    assert_eq!(sent(flow.publish(&after.said("s"))), "event\n");
}

#[test]
fn a_deleted_session_releases_its_answers_and_its_name() {
    let mut flow = flow();
    flow.restore("s", 5);
    flow.link_up(1, &BTreeMap::new());
    let last = Round::new("s", 6..7, false, &[(1, "session.delete")]);
    assert_eq!(flow.publish(&last.said("s")), Verdict::Wake);
    assert_eq!(flow.next(), Step::Send("answer 1 session.delete\n".into()));
    assert_eq!(flow.next(), Step::Wait);
    let first = Round::new("s", 1..2, false, &[]);
    assert_eq!(sent(flow.publish(&first.said("s"))), record_line("s", 1));
}

#[test]
fn a_session_that_is_forgotten_releases_what_waited_for_its_place() {
    let mut flow = flow();
    flow.restore("s", 5);
    flow.link_up(1, &BTreeMap::new());
    let attach = Round::new("s", 0..0, false, &[(1, "session.attach")]);
    assert_eq!(flow.publish(&attach.said("s")), Verdict::Wake);
    assert!(!flow.has_loose(), "it waits for the records before it");
    flow.forget("s");
    assert_eq!(flow.next(), Step::Send("answer 1 session.attach\n".into()));
    assert_eq!((flow.next(), flow.sessions()), (Step::Wait, Vec::new()));
    let last = Round::new("s", 0..0, false, &[(1, "session.delete")]);
    assert_eq!(sent(flow.publish(&last.said("s"))), "answer 1 session.delete\n");
}

#[test]
fn a_hub_that_claims_to_have_everything_gets_nothing_and_breaks_nothing() {
    let mut flow = flow();
    flow.restore("s", 5);
    flow.link_up(1, &BTreeMap::from([("s".to_owned(), u64::MAX)]));
    assert_eq!(flow.next(), Step::Wait);
    let round = Round::new("s", 6..7, false, &[(1, "prompt")]);
    assert_eq!(sent(flow.publish(&round.said("s"))), "answer 1 prompt\n");
    flow.ack(1, "s", u64::MAX);
    assert_eq!(flow.next(), Step::Wait);
}

#[test]
fn a_refused_session_sends_nothing_and_holds_up_nobody() {
    let mut flow = flow();
    flow.restore("mine", 0);
    flow.restore("theirs", 3);
    flow.link_up(1, &BTreeMap::new());
    assert!(flow.refuse(1, "theirs"));
    assert!(!flow.refuse(1, "theirs"), "told once");
    let round = Round::new("theirs", 4..5, true, &[(1, "session.attach")]);
    assert_eq!(flow.publish(&round.said("theirs")), Verdict::Wake);
    assert_eq!(flow.next(), Step::Send("answer 1 session.attach\n".into()));
    assert_eq!(flow.next(), Step::Wait);
    let round = Round::new("mine", 1..2, false, &[]);
    assert_eq!(sent(flow.publish(&round.said("mine"))), record_line("mine", 1));
}

#[test]
fn records_the_hub_has_already_are_left_out() {
    let mut flow = flow();
    flow.restore("s", 2);
    flow.link_up(1, &BTreeMap::from([("s".to_owned(), 4)]));
    assert_eq!(flow.next(), Step::Wait);
    let round = Round::new("s", 3..7, false, &[]);
    assert_eq!(sent(flow.publish(&round.said("s"))), record_line("s", 5) + &record_line("s", 6));
}

#[test]
fn records_that_are_gone_are_passed_over() {
    let mut flow = flow();
    flow.restore("s", 2);
    flow.link_up(1, &BTreeMap::new());
    let Step::Read(turn) = flow.next() else { panic!("there is something to read") };
    assert_eq!(flow.have_read(&turn, Vec::new()), None);
    assert_eq!(flow.next(), Step::Wait);
}

#[test]
fn attaches_beyond_the_bound_are_refused_and_creations_are_not() {
    let mut flow = flow();
    flow.restore("s", 1);
    flow.link_up(1, &BTreeMap::new());
    flow.lanes.get_mut("s").unwrap().held_bytes = HELD_BYTES_MAX;
    let round = Round::new("s", 0..0, false, &[(1, "session.attach"), (1, "session.create")]);
    assert_eq!(flow.publish(&round.said("s")), Verdict::Wake);
    let Step::Send(refusal) = flow.next() else { panic!("the attach is answered at once") };
    assert!(text(&refusal).contains("\"success\":false") && text(&refusal).contains("Please retry"));
    assert_eq!(flow.lanes["s"].held.len(), 1);
}

#[test]
fn a_hub_that_takes_no_answers_is_found_out() {
    let mut flow = flow();
    flow.link_up(2, &BTreeMap::new());
    let line = Bytes::from(vec![b'x'; 1 << 20]);
    flow.tell(1, line.clone());
    assert!(!flow.has_loose(), "answers to an earlier link are dropped");
    for _ in 0..LOOSE_BYTES_MAX >> 20 {
        flow.tell(2, line.clone());
    }
    assert!(!flow.is_overrun());
    flow.tell(2, line);
    assert!(flow.is_overrun());
    while let Step::Send(_) = flow.next() {}
    assert!(!flow.is_overrun() && flow.loose_bytes == 0);
}

/// A hub that keeps what it gets and corrects nothing: a record out of order or twice is a failure.
#[derive(Default)]
struct Hub {
    read: BTreeMap<String, u64>,
    committed: BTreeMap<String, u64>,
}

/// One runner and one hub with a link between them.
struct World {
    flow: Flow,
    spool: BTreeMap<String, BTreeMap<u64, Bytes>>,
    published: BTreeMap<String, u64>,
    hub: Hub,
    links: u64,
    link: Option<VecDeque<Bytes>>,
    /// What the pump has read and not yet sent.
    pump: Option<(Turn, Vec<(u64, Bytes)>)>,
    /// Blocks of sessions that wait for room in their link.
    waiting: BTreeMap<String, (u64, Bytes, Round)>,
    answers_asked: usize,
    answers_got: usize,
}

#[derive(Debug, Clone)]
enum Act {
    Publish {
        session: u8,
        records: u64,
        has_event: bool,
        answer: Option<bool>,
    },
    /// A session that waited for room gets it or gives up.
    Room {
        session: u8,
        has_room: bool,
    },
    Pump,
    HubReads,
    HubCommits,
    Acks,
    Loss,
    Connect,
}

impl World {
    fn new() -> World {
        World {
            flow: flow(),
            spool: BTreeMap::new(),
            published: BTreeMap::new(),
            hub: Hub::default(),
            links: 0,
            link: None,
            pump: None,
            waiting: BTreeMap::new(),
            answers_asked: 0,
            answers_got: 0,
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Publish { session, records, has_event, answer } => {
                self.publish(&format!("s{session}"), *records, *has_event, *answer);
            }
            Act::Room { session, has_room } => self.room(&format!("s{session}"), *has_room),
            Act::Pump => self.pump(),
            Act::HubReads => self.hub_reads(),
            Act::HubCommits => self.hub.committed = self.hub.read.clone(),
            Act::Acks => self.acks(),
            Act::Loss => {
                // What the hub has read and not committed is gone with the link.
                self.link = None;
                self.hub.read = self.hub.committed.clone();
                self.flow.link_down();
                (self.answers_asked, self.answers_got) = (0, 0);
            }
            Act::Connect if self.link.is_none() => {
                self.links += 1;
                self.link = Some(VecDeque::new());
                // The pump of the old link is gone.
                self.pump = None;
                self.flow.link_up(self.links, &self.hub.committed);
                self.acks();
            }
            Act::Connect => {}
        }
    }

    fn publish(&mut self, session_id: &str, records: u64, has_event: bool, answer: Option<bool>) {
        // A session says nothing while it waits.
        self.room(session_id, true);
        let last = self.published.entry(session_id.to_owned()).or_default();
        let cmd = |is_attach| if is_attach { "session.attach" } else { "prompt" };
        let answers: Vec<_> = answer.map(|is_attach| (self.links, cmd(is_attach))).into_iter().collect();
        let round = Round::new(session_id, *last + 1..*last + 1 + records, has_event, &answers);
        *last += records;
        let spool = self.spool.entry(session_id.to_owned()).or_default();
        for record in &round.records {
            spool.insert(record.seq, round.block.slice(record.range.clone()));
        }
        if round.block.is_empty() {
            return;
        }
        if self.link.is_some() {
            self.answers_asked += answers.len();
        }
        let verdict = self.flow.publish(&round.said(session_id));
        if let Verdict::Send { link, block } = verdict {
            assert_eq!(
                self.link.as_ref().map(|_| self.links),
                Some(link),
                "a block for a link that is not there"
            );
            self.waiting.insert(session_id.to_owned(), (link, block, round));
        }
    }

    fn room(&mut self, session_id: &str, has_room: bool) {
        let Some((link, block, round)) = self.waiting.remove(session_id) else { return };
        match &mut self.link {
            // A block for an old link goes nowhere, whether it is told or not.
            _ if link != self.links && has_room => {}
            Some(queue) if has_room => queue.push_back(block),
            _ => self.flow.unsent(link, &round.said(session_id)),
        }
    }

    fn pump(&mut self) {
        let Some(queue) = &mut self.link else { return };
        if let Some((turn, rows)) = self.pump.take() {
            queue.extend(self.flow.have_read(&turn, rows));
            return;
        }
        match self.flow.next() {
            Step::Send(block) => queue.push_back(block),
            Step::Read(turn) => {
                let spool = &self.spool[&turn.session_id];
                let rows = spool.range(turn.after + 1..).take(turn.rows_max.min(3));
                let rows = rows.map(|(seq, line)| (*seq, line.clone())).collect();
                self.pump = Some((turn, rows));
            }
            Step::Room => self.flow.has_room(self.links),
            Step::Snapshot(_) | Step::Wait => {}
        }
    }

    fn hub_reads(&mut self) {
        let Some(block) = self.link.as_mut().and_then(VecDeque::pop_front) else { return };
        for line in text(&block).lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("record") => {
                    let (session_id, seq) = (words.next().unwrap(), words.next().unwrap());
                    let read = self.hub.read.entry(session_id.to_owned()).or_default();
                    assert_eq!(seq.parse::<u64>().unwrap(), *read + 1, "of {session_id}");
                    *read += 1;
                }
                Some("answer") => self.answers_got += 1,
                _ => {}
            }
        }
    }

    fn acks(&mut self) {
        for (session_id, seq) in &self.hub.committed {
            self.flow.ack(self.links, session_id, *seq);
            self.spool.entry(session_id.clone()).or_default().retain(|stored, _| stored > seq);
        }
    }

    /// Peace: everything must arrive.
    fn converge(&mut self) {
        self.act(&Act::Connect);
        for session in 0..3 {
            self.act(&Act::Room { session, has_room: true });
        }
        let mut quiet_rounds = 0;
        while quiet_rounds < 20 {
            let before = (self.hub.read.clone(), self.answers_got);
            for act in [Act::Pump, Act::HubReads, Act::HubCommits, Act::Acks] {
                self.act(&act);
            }
            let is_quiet = before == (self.hub.read.clone(), self.answers_got);
            quiet_rounds = if is_quiet { quiet_rounds + 1 } else { 0 };
        }
        assert_eq!(
            self.hub.committed,
            self.published.clone().into_iter().filter(|(_, seq)| *seq > 0).collect()
        );
        assert_eq!(self.answers_asked, self.answers_got);
        assert!(self.flow.catching_up.is_empty(), "all are live again");
        assert_eq!(self.flow.catch_up_bytes, 0);
        assert!(self.flow.lanes.values().all(|lane| lane.sent_bytes == 0 && lane.held_bytes == 0));
    }
}

fn act() -> impl Strategy<Value = Act> {
    let publish = (0..3u8, 0..4u64, any::<bool>(), any::<Option<bool>>());
    prop_oneof![
        6 => publish.prop_map(|(session, records, has_event, answer)| Act::Publish {
            session, records, has_event, answer,
        }),
        6 => (0..3u8, prop::bool::weighted(0.7)).prop_map(|(session, has_room)| Act::Room { session, has_room }),
        6 => Just(Act::Pump),
        4 => Just(Act::HubReads),
        2 => Just(Act::HubCommits),
        2 => Just(Act::Acks),
        1 => Just(Act::Loss),
        2 => Just(Act::Connect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_record_arrives_once_and_in_order(acts in prop::collection::vec(act(), 0..150)) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
        world.converge();
    }
}
