use bytes::Bytes;
use qd_store::{RunnerBatch, RunnerSession, RunnerStore, TAIL_BYTES_MAX, TAIL_LINES_MAX};

use super::RunnerFiles;
use super::runner::{session, until_spooled};
use crate::fixtures::{line, unit};

async fn seqs(store: &RunnerStore, limit: usize) -> Vec<u64> {
    store.tail("s", limit).await.unwrap().into_iter().map(|(seq, _)| seq).collect()
}

fn great(seq: u64, bytes: u64) -> RunnerBatch {
    let spool = vec![(seq, Bytes::from(vec![b'x'; bytes as usize]))];
    RunnerBatch { session_id: "s".into(), spool, ..RunnerBatch::default() }
}

pub(crate) async fn the_newest_lines_stay_after_their_ack(place: &impl RunnerFiles) {
    let store = place.runner().await;
    let size =
        |seqs: std::ops::RangeInclusive<u64>| seqs.map(|seq| line("s", seq).1.len() as u64).sum::<u64>();
    assert_eq!(store.tail("s", 9).await.unwrap(), []);
    store.commit(unit("s", 1..=500)).await.unwrap();
    store.commit(unit("other", 1..=9)).await.unwrap();
    store.ack("other", 9);
    until_spooled(&store, size(1..=500)).await;
    assert_eq!(seqs(&store, usize::MAX).await, (1..=500).collect::<Vec<_>>(), "what waits stays");

    store.ack("s", 400);
    until_spooled(&store, size(401..=500)).await;
    let newest: Vec<_> = (500 - TAIL_LINES_MAX + 1..=500).collect();
    assert_eq!(seqs(&store, usize::MAX).await, newest, "acked or not");
    assert_eq!(store.tail("s", 2).await.unwrap(), [line("s", 499), line("s", 500)]);
    assert_eq!(store.tail("s", 0).await.unwrap(), []);
    store.ack("s", 500);
    until_spooled(&store, 0).await;
    assert_eq!(seqs(&store, usize::MAX).await, newest);
    store.commit(unit("s", 1..=5)).await.unwrap();
    assert_eq!(
        (store.spool_bytes(), seqs(&store, usize::MAX).await),
        (0, newest),
        "what has left stays away"
    );
    store.commit(unit("s", 501..=510)).await.unwrap();
    store.ack("s", 505);
    store.close().await;

    let store = place.runner().await;
    assert_eq!(store.spool_bytes(), size(506..=510), "after reopening only what waits is counted");
    assert_eq!(seqs(&store, usize::MAX).await, (511 - TAIL_LINES_MAX..=510).collect::<Vec<_>>());
    assert_eq!(store.tail("other", 99).await.unwrap().len(), 9);
    assert!(store.tail("nobody", 99).await.unwrap().is_empty());
    store.put_session(super::runner::session("s")).await.unwrap();
    assert!(store.delete_session("s").await.unwrap());
    assert_eq!(store.spool_bytes(), 0);
    assert_eq!(store.tail("s", 9).await.unwrap(), [], "the tail goes with its session");
}

/// A line can be replaced by one as long as it, whether it waits for its ack or not; what is counted stays right.
pub(crate) async fn a_line_is_rewritten_where_it_is(place: &impl RunnerFiles) {
    fn dots(line: &[u8]) -> Option<Vec<u8>> {
        Some(vec![b'.'; line.len()])
    }
    fn longer(line: &[u8]) -> Option<Vec<u8>> {
        Some(vec![b'.'; line.len() + 1])
    }
    let store = place.runner().await;
    let size = line("s", 1).1.len() as u64;
    store.commit(RunnerBatch { rewrites: vec![(1, dots)], ..unit("s", 1..=3) }).await.unwrap();
    store.ack("s", 2);
    until_spooled(&store, size).await;
    let rewrites: Vec<(u64, qd_store::RecordRewrite)> = vec![(2, dots), (3, longer), (99, dots)];
    let batch = RunnerBatch { session_id: "s".into(), rewrites, ..RunnerBatch::default() };
    store.commit(batch).await.unwrap();
    let tail = store.tail("s", 9).await.unwrap();
    let is_rewritten: Vec<bool> =
        tail.iter().map(|(_, line)| line.iter().all(|byte| *byte == b'.')).collect();
    assert_eq!(is_rewritten, [true, true, false], "one that would grow is left alone");
    assert_eq!(store.spool_bytes(), size);
    let rewrites: Vec<(u64, qd_store::RecordRewrite)> = vec![(1, dots)];
    let nobody = RunnerBatch { session_id: "nobody".into(), rewrites, ..RunnerBatch::default() };
    store.commit(nobody).await.unwrap();
    store.close().await;
    let store = place.runner().await;
    assert_eq!((store.spool_bytes(), seqs(&store, 9).await), (size, vec![1, 2, 3]));
}

pub(crate) async fn great_lines_shorten_the_tail(place: &impl RunnerFiles) {
    let store = place.runner().await;
    let third = TAIL_BYTES_MAX / 3;
    for seq in 1..=5 {
        store.commit(great(seq, third)).await.unwrap();
    }
    store.ack("s", 4);
    until_spooled(&store, third).await;
    assert_eq!(seqs(&store, 9).await, [3, 4, 5], "what waits counts");
    store.commit(great(6, TAIL_BYTES_MAX + 1)).await.unwrap();
    store.ack("s", 5);
    until_spooled(&store, TAIL_BYTES_MAX + 1).await;
    assert_eq!(seqs(&store, 9).await, [6]);
    store.ack("s", 6);
    until_spooled(&store, 0).await;
    assert_eq!(seqs(&store, 9).await, [0; 0], "a line that does not fit leaves nothing");
    store.commit(great(7, 10)).await.unwrap();
    store.ack("s", 7);
    until_spooled(&store, 0).await;
    assert_eq!(seqs(&store, 9).await, [7]);
}

/// A hub may know more than a runner whose last commits a power cut took: its ack must not swallow new lines.
pub(crate) async fn an_ack_reaches_no_further_than_the_lines(place: &impl RunnerFiles) {
    let store = place.runner().await;
    store.commit(unit("s", 1..=3)).await.unwrap();
    store.ack("s", 50);
    until_spooled(&store, 0).await;
    store.commit(unit("s", 4..=5)).await.unwrap();
    assert_eq!(store.spool_bytes(), 2 * line("s", 4).1.len() as u64);
    assert_eq!(store.spool_after("s", 3, 9).await.unwrap(), [line("s", 4), line("s", 5)]);
    store.ack("s", 5);
    until_spooled(&store, 0).await;
    assert_eq!(seqs(&store, 9).await, [1, 2, 3, 4, 5]);
}

/// A unit of lines alone writes nothing else: the next number follows from them, also when none of them is left.
pub(crate) async fn the_next_number_follows_from_the_lines(place: &impl RunnerFiles) {
    let next = async |store: &RunnerStore| store.session("s").await.unwrap().unwrap().next_seq;
    let store = place.runner().await;
    store.put_session(RunnerSession { next_seq: 1, ..session("s") }).await.unwrap();
    assert_eq!(next(&store).await, 1);
    store.commit(unit("other", 1..=9)).await.unwrap();
    store.commit(unit("s", 1..=5)).await.unwrap();
    assert_eq!(next(&store).await, 6);
    store.close().await;

    let store = place.runner().await;
    assert_eq!(next(&store).await, 6);
    store.commit(great(6, TAIL_BYTES_MAX + 1)).await.unwrap();
    store.ack("s", 6);
    let others: u64 = (1..=9).map(|seq| line("other", seq).1.len() as u64).sum();
    until_spooled(&store, others).await;
    assert_eq!(seqs(&store, usize::MAX).await, [] as [u64; 0], "the line was too great for a tail");
    assert_eq!(next(&store).await, 7);
    store.close().await;
    let store = place.runner().await;
    assert_eq!((next(&store).await, store.sessions().await.unwrap()[0].next_seq), (7, 7));
    assert_eq!(store.spool_bytes(), others);
    store.close().await;
}
