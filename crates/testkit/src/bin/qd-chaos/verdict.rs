//! What was promised, compared with what is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::killer::KillCounts;
use crate::load::{Answer, PIXEL, PromptOutcome, Submission};
use crate::watcher::WatchedSession;

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) sessions: Vec<SessionReport>,
}

#[derive(Default)]
pub(crate) struct SessionReport {
    pub(crate) session: String,
    pub(crate) submissions: Vec<Submission>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) records: Vec<Value>,
    pub(crate) messages: Vec<Value>,
    pub(crate) watched: Vec<WatchedSession>,
    pub(crate) problems: Vec<String>,
}

#[derive(Default)]
struct VerdictCounts {
    records: usize,
    lost: usize,
    doubled: usize,
    submissions: usize,
    done: usize,
    indeterminate: usize,
    refused: usize,
    twice: usize,
    interrupted: usize,
}

/// Prints the table; true if every promise was kept.
pub(crate) fn print(tally: &KillCounts, report: &Report, leftovers: &[String]) -> bool {
    let mut problems: Vec<String> = leftovers.to_vec();
    println!(
        "\nkilled: hub {}, runner {}, agent {}; link cut {}, stalled {}\n",
        tally.hub, tally.runner, tally.agent, tally.cut, tally.stalled
    );
    println!(
        "{:<8}{:>9}{:>6}{:>9}{:>9}{:>7}{:>8}{:>9}{:>7}{:>8}{:>12}",
        "session",
        "records",
        "lost",
        "doubled",
        "prompts",
        "done",
        "indet.",
        "refused",
        "twice",
        "interr.",
        "reconnects"
    );
    let mut broken = 0;
    for session in &report.sessions {
        let counts = count(session, &mut problems);
        broken += counts.lost + counts.doubled + counts.twice;
        let reconnects: u64 = session.watched.iter().map(|watched| watched.reconnects).sum();
        println!(
            "{:<8}{:>9}{:>6}{:>9}{:>9}{:>7}{:>8}{:>9}{:>7}{:>8}{:>12}",
            session.session,
            counts.records,
            counts.lost,
            counts.doubled,
            counts.submissions,
            counts.done,
            counts.indeterminate,
            counts.refused,
            counts.twice,
            counts.interrupted,
            reconnects
        );
    }
    println!("\norphans: {}", leftovers.len());
    for (reason, count) in refusals(report) {
        println!("refused {count} times: {reason}");
    }
    for problem in &problems {
        println!("BROKEN: {}", problem.chars().take(2_000).collect::<String>());
    }
    if !problems.is_empty() {
        keep(report);
    }
    println!(
        "{}",
        if problems.is_empty() && broken == 0 { "every promise was kept" } else { "promises were broken" }
    );
    problems.is_empty() && broken == 0
}

/// Leaves all records and what people were told where somebody can look at them.
fn keep(report: &Report) {
    for session in &report.sessions {
        let mut text = String::new();
        session.records.iter().for_each(|record| text.push_str(&format!("{record}\n")));
        session.submissions.iter().for_each(|submission| text.push_str(&format!("{submission:?}\n")));
        let path = std::env::temp_dir().join(format!("qd-chaos-{}.jsonl", session.session));
        match std::fs::write(&path, text) {
            Ok(()) => println!("kept: {}", path.display()),
            Err(error) => println!("{} cannot be written: {error}", path.display()),
        }
    }
}

/// Why prompts were refused, and how often.
fn refusals(report: &Report) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for submission in report.sessions.iter().flat_map(|session| &session.submissions) {
        if let PromptOutcome::Refused(reason) = &submission.outcome {
            *reasons.entry(reason.chars().take(300).collect()).or_default() += 1;
        }
    }
    reasons
}

fn count(session: &SessionReport, problems: &mut Vec<String>) -> VerdictCounts {
    let name = &session.session;
    let mut counts = VerdictCounts { records: session.records.len(), ..VerdictCounts::default() };
    let mut say = |problem: String| problems.push(format!("{name}: {problem}"));
    session.problems.iter().for_each(|problem| say(problem.clone()));
    let stored: BTreeMap<u64, &Value> =
        session.records.iter().filter_map(|record| Some((record["seq"].as_u64()?, record))).collect();
    for (expected, seq) in (1..).zip(stored.keys()) {
        if expected != *seq {
            counts.lost += 1;
            say(format!("record {expected} is missing"));
            break;
        }
    }
    counts.doubled += session.records.len() - stored.len();
    for watched in &session.watched {
        watched.problems.iter().for_each(|problem| say(problem.clone()));
        for (seq, record) in &watched.records {
            if stored.get(seq) != Some(&record) {
                counts.lost += 1;
                say(format!("record {seq} was seen and is gone or another: {record}"));
            }
        }
        if !watched.messages.is_empty() && watched.messages != session.messages {
            say(format!(
                "a client shows {} messages, the hub has {}",
                watched.messages.len(),
                session.messages.len()
            ));
        }
    }
    messages(session, &mut counts, &mut say);
    submissions(session, &mut counts, &mut say);
    answers(session, &mut counts, &mut say);
    counts
}

fn messages(session: &SessionReport, counts: &mut VerdictCounts, say: &mut impl FnMut(String)) {
    let mut ids = BTreeSet::new();
    for (idx, message) in session.messages.iter().enumerate() {
        if !ids.insert(message["id"].to_string()) {
            counts.doubled += 1;
            say(format!("message {} is there twice", message["id"]));
        }
        if message["idx"].as_u64() != Some(idx as u64) {
            say(format!("message {} has idx {}, not {idx}", message["id"], message["idx"]));
        }
    }
}

/// Whether a message is of this prompt: its text carries the prompt's key.
fn is_of(message: &Value, key: &str) -> bool {
    let texts = message["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    message["role"] == "user" && texts.flat_map(str::split_whitespace).any(|word| word == key)
}

fn submissions(session: &SessionReport, counts: &mut VerdictCounts, say: &mut impl FnMut(String)) {
    counts.submissions = session.submissions.len();
    for Submission { key, has_image, outcome } in &session.submissions {
        let own = || session.messages.iter().filter(|message| is_of(message, key));
        let runs = own().count();
        let is_marked = |message: &&Value| message["interrupted"] == true;
        counts.interrupted += own().filter(is_marked).count();
        if *has_image && own().filter(is_marked).any(|message| !message["parts"].to_string().contains(PIXEL))
        {
            counts.lost += 1;
            say(format!("{key} is marked as interrupted, and its image is gone"));
        }
        if runs > 1 {
            counts.twice += 1;
            say(format!("{key} ran {runs} times"));
        }
        match outcome {
            PromptOutcome::Done => {
                counts.done += 1;
                // Every acknowledged input is in the conversation exactly once, or waits.
                if runs == 0 && !is_waiting(session, key) {
                    counts.lost += 1;
                    say(format!("{key} was accepted, and is neither in the conversation nor in the queue"));
                }
            }
            PromptOutcome::Indeterminate => counts.indeterminate += 1,
            PromptOutcome::Refused(error) => {
                counts.refused += 1;
                if runs > 0 {
                    say(format!("{key} was refused and ran: {error}"));
                }
            }
            PromptOutcome::Nothing => say(format!("{key} was never answered")),
        }
    }
}

/// Every acknowledged answer is in the record that settles its question, and there is one such record.
fn answers(session: &SessionReport, counts: &mut VerdictCounts, say: &mut impl FnMut(String)) {
    for Answer { request_id, value } in &session.answers {
        let is_end = |record: &&Value| {
            record["event"] == "agent.input_resolved" && record["request_id"] == request_id.as_str()
        };
        let found: Vec<&Value> =
            session.records.iter().filter(is_end).map(|record| &record["answer"]).collect();
        if found != [value] {
            counts.lost += 1;
            say(format!("{request_id} was answered with {value}, the records say {found:?}"));
        }
    }
}

/// Whether the prompt is in the queue as it was last told.
fn is_waiting(session: &SessionReport, key: &str) -> bool {
    let mut queues = session.records.iter().filter(|record| record["event"] == "queue.changed");
    let Some(record) = queues.next_back() else { return false };
    let lanes = ["steering", "follow_up"].map(|lane| record["queue"][lane].as_array());
    let texts = lanes.into_iter().flatten().flatten().filter_map(Value::as_str);
    texts.flat_map(str::split_whitespace).any(|word| word == key)
}
