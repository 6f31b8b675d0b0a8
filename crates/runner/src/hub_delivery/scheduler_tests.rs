//! Every interleaving of speaking, catching up, acks and lost links delivers each record once and in order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use qd_core::event_writer::{RecordSpan, ResponseSpan};

use super::*;

/// A round as a session would say it: records, then a live event, then responses.
struct TestRound {
    block: Bytes,
    records: Vec<RecordSpan>,
    responses: Vec<ResponseSpan>,
}

impl TestRound {
    fn new(
        session_id: &str,
        seqs: std::ops::Range<u64>,
        has_event: bool,
        answers: &[(u64, &str)],
    ) -> TestRound {
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
        TestRound { block: text.into(), records, responses }
    }

    fn output<'a>(&'a self, session_id: &'a str) -> SessionOutput<'a> {
        SessionOutput {
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

fn scheduler() -> DeliveryScheduler {
    DeliveryScheduler { window_max: 200, catch_up_max: 100, ..DeliveryScheduler::new("r") }
}

/// With sessions of last time, each with its last record, and a link to a hub that has these records.
fn linked(sessions: &[(&str, u64)], hub_has: &[(&str, u64)]) -> DeliveryScheduler {
    let mut scheduler = scheduler();
    for (session_id, last_seq) in sessions {
        scheduler.restore(session_id, *last_seq);
    }
    scheduler.link_up(1, &hub_has.iter().map(|(session_id, seq)| ((*session_id).to_owned(), *seq)).collect());
    scheduler
}

/// Lets a session say a round.
fn publish(
    scheduler: &mut DeliveryScheduler,
    session_id: &str,
    seqs: std::ops::Range<u64>,
    has_event: bool,
    answers: &[(u64, &str)],
) -> PublishVerdict {
    scheduler.publish(&TestRound::new(session_id, seqs, has_event, answers).output(session_id))
}

fn text(block: &Bytes) -> &str {
    std::str::from_utf8(block).unwrap()
}

fn sent(verdict: PublishVerdict) -> String {
    match verdict {
        PublishVerdict::Send { block, .. } => text(&block).to_owned(),
        other => panic!("{other:?} where a block should go out"),
    }
}

#[test]
fn a_live_block_goes_out_as_it_is() {
    let mut scheduler = scheduler();
    scheduler.link_up(1, &BTreeMap::new());
    let round = TestRound::new("s", 1..3, true, &[(1, "prompt")]);
    let PublishVerdict::Send { link, block } = scheduler.publish(&round.output("s")) else {
        panic!("not sent")
    };
    assert_eq!((link, block.as_ptr()), (1, round.block.as_ptr()), "nothing may be copied");
}

#[test]
fn answers_go_to_their_own_connection_only() {
    let mut scheduler = scheduler();
    scheduler.link_up(2, &BTreeMap::new());
    let block =
        sent(publish(&mut scheduler, "s", 1..2, true, &[(1, "prompt"), (2, "prompt"), (9, "prompt")]));
    assert!(block.contains("answer 2") && !block.contains("answer 1") && !block.contains("answer 9"));
}

#[test]
fn answers_with_a_place_wait_until_the_session_is_live_again() {
    let mut scheduler = scheduler();
    scheduler.link_up(1, &BTreeMap::new());
    sent(publish(&mut scheduler, "s", 1..2, false, &[]));
    let second = TestRound::new("s", 2..3, true, &[(1, "session.attach"), (1, "prompt")]);
    let PublishVerdict::Send { link, .. } = scheduler.publish(&second.output("s")) else {
        panic!("not sent")
    };
    scheduler.unsent(link, &second.output("s"));
    assert_eq!(scheduler.next(), DeliveryStep::Send("answer 1 prompt\n".into()));
    let DeliveryStep::Read(turn) = scheduler.next() else { panic!("the record is to be read") };
    assert_eq!((turn.after, turn.published), (1, 2));
    let block = scheduler.records_read(&turn, vec![(2, record_line("s", 2).into())]).unwrap();
    assert_eq!(text(&block), record_line("s", 2));
    assert_eq!(scheduler.next(), DeliveryStep::Send("answer 1 session.attach\n".into()));
    assert_eq!(scheduler.next(), DeliveryStep::Room, "live again only when the link has room");
    scheduler.has_room(1);
    assert_eq!(scheduler.next(), DeliveryStep::Snapshot("s".into()));
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    assert_eq!(sent(publish(&mut scheduler, "s", 3..4, false, &[])), record_line("s", 3));
}

#[test]
fn a_full_window_makes_the_session_catch_up_at_the_pace_of_the_acks() {
    let mut scheduler = scheduler();
    scheduler.link_up(1, &BTreeMap::new());
    let mut next = 1;
    loop {
        match publish(&mut scheduler, "s", next..next + 1, false, &[]) {
            PublishVerdict::Send { .. } => next += 1,
            PublishVerdict::Wake => break,
            PublishVerdict::Nothing => panic!("a record must go somewhere"),
        }
    }
    assert!(next > 2, "the window holds several");
    assert!(matches!(scheduler.next(), DeliveryStep::Read(_)), "there is still room for a turn");
    scheduler.catch_up_bytes = scheduler.catch_up_max;
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    scheduler.catch_up_bytes = 0;
    assert!(scheduler.ack(1, "s", next - 1));
    assert!(matches!(scheduler.next(), DeliveryStep::Read(turn) if turn.after == next - 1));
}

#[test]
fn an_answer_with_a_place_goes_out_between_the_records_it_stands_between() {
    let mut scheduler = linked(&[("s", 2)], &[]);
    let attach = TestRound::new("s", 3..4, false, &[(1, "session.attach")]);
    assert_eq!(scheduler.publish(&attach.output("s")), PublishVerdict::Wake);
    assert_eq!(publish(&mut scheduler, "s", 4..6, false, &[]), PublishVerdict::Wake);
    let mut out = String::new();
    let rows =
        |turn: &CatchUpTurn| (turn.after + 1..6).map(|seq| (seq, record_line("s", seq).into())).collect();
    loop {
        match scheduler.next() {
            DeliveryStep::Send(block) => out.push_str(text(&block)),
            DeliveryStep::Read(turn) => {
                let read = scheduler.records_read(&turn, rows(&turn)).unwrap();
                out.push_str(text(&read));
                scheduler.ack(1, "s", turn.published);
            }
            _ => break,
        }
    }
    let records: Vec<String> = (1..6).map(|seq| record_line("s", seq)).collect();
    assert_eq!(out, records[..3].concat() + "answer 1 session.attach\n" + &records[3..].concat());
}

#[test]
fn no_live_event_goes_out_before_the_snapshot_that_explains_it() {
    let mut scheduler = linked(&[("s", 1)], &[("s", 1)]);
    assert_eq!(publish(&mut scheduler, "s", 0..0, true, &[]), PublishVerdict::Wake);
    assert_eq!(scheduler.next(), DeliveryStep::Snapshot("s".to_owned()));
    assert_eq!(
        sent(publish(&mut scheduler, "s", 2..3, true, &[(1, "prompt")])),
        record_line("s", 2) + "answer 1 prompt\n"
    );
    let resync = "{\"type\":\"event\",\"event\":\"session.resync\"}\n";
    let mut round = TestRound::new("s", 3..4, true, &[]);
    round.block = (text(&round.block).to_owned() + resync + "late\n").into();
    assert_eq!(sent(scheduler.publish(&round.output("s"))), record_line("s", 3) + resync + "late\n");
    assert_eq!(sent(publish(&mut scheduler, "s", 0..0, true, &[])), "event\n");
}

#[test]
fn a_deleted_session_releases_its_answers_and_its_name() {
    let mut scheduler = linked(&[("s", 5)], &[]);
    assert_eq!(publish(&mut scheduler, "s", 6..7, false, &[(1, "session.delete")]), PublishVerdict::Wake);
    assert_eq!(scheduler.next(), DeliveryStep::Send("answer 1 session.delete\n".into()));
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    assert_eq!(sent(publish(&mut scheduler, "s", 1..2, false, &[])), record_line("s", 1));
}

#[test]
fn a_session_that_is_forgotten_releases_what_waited_for_its_place() {
    let mut scheduler = linked(&[("s", 5)], &[]);
    let attach = TestRound::new("s", 0..0, false, &[(1, "session.attach")]);
    assert_eq!(scheduler.publish(&attach.output("s")), PublishVerdict::Wake);
    assert!(!scheduler.has_queued_answers(), "it waits for the records before it");
    scheduler.forget("s");
    assert_eq!(scheduler.next(), DeliveryStep::Send("answer 1 session.attach\n".into()));
    assert_eq!((scheduler.next(), scheduler.sessions()), (DeliveryStep::Wait, Vec::new()));
    assert_eq!(
        sent(publish(&mut scheduler, "s", 0..0, false, &[(1, "session.delete")])),
        "answer 1 session.delete\n"
    );
}

#[test]
fn a_hub_that_claims_to_have_everything_gets_nothing_and_breaks_nothing() {
    let mut scheduler = linked(&[("s", 5)], &[("s", u64::MAX)]);
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    assert_eq!(sent(publish(&mut scheduler, "s", 6..7, false, &[(1, "prompt")])), "answer 1 prompt\n");
    scheduler.ack(1, "s", u64::MAX);
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
}

#[test]
fn a_refused_session_sends_nothing_and_holds_up_nobody() {
    let mut scheduler = linked(&[("mine", 0), ("theirs", 3)], &[]);
    assert!(scheduler.refuse(1, "theirs"));
    assert!(!scheduler.refuse(1, "theirs"), "told once");
    assert_eq!(publish(&mut scheduler, "theirs", 4..5, true, &[(1, "session.attach")]), PublishVerdict::Wake);
    assert_eq!(scheduler.next(), DeliveryStep::Send("answer 1 session.attach\n".into()));
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    assert_eq!(sent(publish(&mut scheduler, "mine", 1..2, false, &[])), record_line("mine", 1));
}

#[test]
fn records_the_hub_has_already_are_left_out() {
    let mut scheduler = linked(&[("s", 2)], &[("s", 4)]);
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
    assert_eq!(
        sent(publish(&mut scheduler, "s", 3..7, false, &[])),
        record_line("s", 5) + &record_line("s", 6)
    );
}

#[test]
fn records_that_are_gone_are_passed_over() {
    let mut scheduler = linked(&[("s", 2)], &[]);
    let DeliveryStep::Read(turn) = scheduler.next() else { panic!("there is something to read") };
    assert_eq!(scheduler.records_read(&turn, Vec::new()), None);
    assert_eq!(scheduler.next(), DeliveryStep::Wait);
}

#[test]
fn attaches_beyond_the_bound_are_refused_and_creations_are_not() {
    let mut scheduler = linked(&[("s", 1)], &[]);
    scheduler.sessions.get_mut("s").unwrap().held_answer_bytes = HELD_ANSWER_BYTES_MAX;
    assert_eq!(
        publish(&mut scheduler, "s", 0..0, false, &[(1, "session.attach"), (1, "session.create")]),
        PublishVerdict::Wake
    );
    let DeliveryStep::Send(refusal) = scheduler.next() else { panic!("the attach is answered at once") };
    assert!(text(&refusal).contains("\"success\":false") && text(&refusal).contains("Please retry"));
    assert_eq!(scheduler.sessions["s"].held_answers.len(), 1);
}

#[test]
fn a_hub_that_takes_no_answers_is_found_out() {
    let mut scheduler = scheduler();
    scheduler.link_up(2, &BTreeMap::new());
    let line = Bytes::from(vec![b'x'; 1 << 20]);
    scheduler.send_line(1, line.clone());
    assert!(!scheduler.has_queued_answers(), "answers to an earlier link are dropped");
    for _ in 0..ANSWER_BYTES_MAX >> 20 {
        scheduler.send_line(2, line.clone());
    }
    assert!(!scheduler.is_overrun());
    scheduler.send_line(2, line);
    assert!(scheduler.is_overrun());
    while let DeliveryStep::Send(_) = scheduler.next() {}
    assert!(!scheduler.is_overrun() && scheduler.answer_bytes == 0);
}

/// A hub that keeps what it gets and corrects nothing: a record out of order or twice is a failure.
#[derive(Default)]
struct ModelHub {
    read: BTreeMap<String, u64>,
    committed: BTreeMap<String, u64>,
}

/// One runner and one hub with a link between them.
struct DeliveryModel {
    scheduler: DeliveryScheduler,
    spool: BTreeMap<String, BTreeMap<u64, Bytes>>,
    published: BTreeMap<String, u64>,
    hub: ModelHub,
    links: u64,
    link: Option<VecDeque<Bytes>>,
    /// What the sender has read and not yet sent.
    sender: Option<(CatchUpTurn, Vec<(u64, Bytes)>)>,
    /// Blocks of sessions that wait for room in their link.
    waiting: BTreeMap<String, (u64, Bytes, TestRound)>,
    answers_asked: usize,
    answers_got: usize,
}

#[derive(Debug, Clone)]
enum ModelAction {
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
    SenderStep,
    HubReads,
    HubCommits,
    Acks,
    Loss,
    Connect,
}

impl DeliveryModel {
    fn new() -> DeliveryModel {
        DeliveryModel {
            scheduler: scheduler(),
            spool: BTreeMap::new(),
            published: BTreeMap::new(),
            hub: ModelHub::default(),
            links: 0,
            link: None,
            sender: None,
            waiting: BTreeMap::new(),
            answers_asked: 0,
            answers_got: 0,
        }
    }

    fn act(&mut self, act: &ModelAction) {
        match act {
            ModelAction::Publish { session, records, has_event, answer } => {
                self.publish(&format!("s{session}"), *records, *has_event, *answer);
            }
            ModelAction::Room { session, has_room } => self.room(&format!("s{session}"), *has_room),
            ModelAction::SenderStep => self.sender(),
            ModelAction::HubReads => self.hub_reads(),
            ModelAction::HubCommits => self.hub.committed = self.hub.read.clone(),
            ModelAction::Acks => self.acks(),
            ModelAction::Loss => {
                // What the hub has read and not committed is gone with the link.
                self.link = None;
                self.hub.read = self.hub.committed.clone();
                self.scheduler.link_down();
                (self.answers_asked, self.answers_got) = (0, 0);
            }
            ModelAction::Connect if self.link.is_none() => {
                self.links += 1;
                self.link = Some(VecDeque::new());
                // The sender of the old link is gone.
                self.sender = None;
                self.scheduler.link_up(self.links, &self.hub.committed);
                self.acks();
            }
            ModelAction::Connect => {}
        }
    }

    fn publish(&mut self, session_id: &str, records: u64, has_event: bool, answer: Option<bool>) {
        // A session says nothing while it waits.
        self.room(session_id, true);
        let last = self.published.entry(session_id.to_owned()).or_default();
        let cmd = |is_attach| if is_attach { "session.attach" } else { "prompt" };
        let answers: Vec<_> = answer.map(|is_attach| (self.links, cmd(is_attach))).into_iter().collect();
        let round = TestRound::new(session_id, *last + 1..*last + 1 + records, has_event, &answers);
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
        let verdict = self.scheduler.publish(&round.output(session_id));
        if let PublishVerdict::Send { link, block } = verdict {
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
            _ => self.scheduler.unsent(link, &round.output(session_id)),
        }
    }

    fn sender(&mut self) {
        let Some(queue) = &mut self.link else { return };
        if let Some((turn, rows)) = self.sender.take() {
            queue.extend(self.scheduler.records_read(&turn, rows));
            return;
        }
        match self.scheduler.next() {
            DeliveryStep::Send(block) => queue.push_back(block),
            DeliveryStep::Read(turn) => {
                let spool = &self.spool[&turn.session_id];
                let rows = spool.range(turn.after + 1..).take(turn.rows_max.min(3));
                let rows = rows.map(|(seq, line)| (*seq, line.clone())).collect();
                self.sender = Some((turn, rows));
            }
            DeliveryStep::Room => self.scheduler.has_room(self.links),
            DeliveryStep::Snapshot(_) | DeliveryStep::Wait => {}
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
            self.scheduler.ack(self.links, session_id, *seq);
            self.spool.entry(session_id.clone()).or_default().retain(|stored, _| stored > seq);
        }
    }

    /// Peace: everything must arrive.
    fn converge(&mut self) {
        self.act(&ModelAction::Connect);
        for session in 0..3 {
            self.act(&ModelAction::Room { session, has_room: true });
        }
        let mut quiet_rounds = 0;
        while quiet_rounds < 20 {
            let before = (self.hub.read.clone(), self.answers_got);
            for act in
                [ModelAction::SenderStep, ModelAction::HubReads, ModelAction::HubCommits, ModelAction::Acks]
            {
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
        assert!(self.scheduler.catching_up.is_empty(), "all are live again");
        assert_eq!(self.scheduler.catch_up_bytes, 0);
        assert!(
            self.scheduler
                .sessions
                .values()
                .all(|session| session.sent_bytes == 0 && session.held_answer_bytes == 0)
        );
    }
}

fn act() -> impl Strategy<Value = ModelAction> {
    let publish = (0..3u8, 0..4u64, any::<bool>(), any::<Option<bool>>());
    prop_oneof![
        6 => publish.prop_map(|(session, records, has_event, answer)| ModelAction::Publish {
            session, records, has_event, answer,
        }),
        6 => (0..3u8, prop::bool::weighted(0.7)).prop_map(|(session, has_room)| ModelAction::Room { session, has_room }),
        6 => Just(ModelAction::SenderStep),
        4 => Just(ModelAction::HubReads),
        2 => Just(ModelAction::HubCommits),
        2 => Just(ModelAction::Acks),
        1 => Just(ModelAction::Loss),
        2 => Just(ModelAction::Connect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_record_arrives_once_and_in_order(acts in prop::collection::vec(act(), 0..150)) {
        let mut world = DeliveryModel::new();
        for act in &acts {
            world.act(act);
        }
        world.converge();
    }
}
