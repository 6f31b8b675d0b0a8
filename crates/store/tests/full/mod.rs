//! What a full disk does to either store.

use bytes::Bytes;
use qd_store::{HubStore, RunnerStore, StoreError, StoreOptions};

use crate::fixtures::{DatabaseFiles, record, unit};

/// A full disk: `Full` for what does not fit, all that was acknowledged still there, and on it goes with room.
pub(crate) async fn a_full_hub_loses_nothing(files: &DatabaseFiles) {
    let options = StoreOptions { pages_max: Some(60), ..files.options() };
    let store = HubStore::open(&files.path("hub.db"), options).unwrap();
    let big = |seq| {
        let mut record = record("s", seq, None);
        record.body = Bytes::from(vec![b'x'; 10_000]);
        vec![record]
    };
    let mut seq = 1;
    let error = loop {
        match store.append(big(seq)).await {
            Ok(_) => seq += 1,
            Err(error) => break error,
        }
        assert!(seq < 1000, "the limit does not bite");
    };
    assert!(matches!(error, StoreError::Full), "{error}");
    assert!(seq > 5, "some fitted: {seq}");
    // Several in one group: each is told.
    let mut group = Vec::new();
    for _ in 0..3 {
        group.push(store.enqueue_append(big(seq)).await.unwrap());
    }
    for request in group {
        assert!(matches!(request.await, Err(StoreError::Full)));
    }
    let stored = |records: Vec<(u64, Bytes)>| records.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
    let acknowledged: Vec<_> = (1..seq).collect();
    assert_eq!(stored(store.records_after("s", 0, 1000, usize::MAX).await.unwrap()), acknowledged);

    store.set_full_for_tests(false).await.unwrap();
    store.append(big(seq)).await.unwrap();
    store.close().await;
    let acknowledged: Vec<_> = (1..=seq).collect();
    assert_eq!(stored(files.hub().records_after("s", 0, 1000, usize::MAX).await.unwrap()), acknowledged);
}

/// When the spool is full, acks still get through, and they make the room that new lines need.
pub(crate) async fn acks_make_room_in_a_full_spool(files: &DatabaseFiles) {
    let options = StoreOptions { pages_max: Some(80), ..files.options() };
    let store = RunnerStore::open(&files.path("runner.db"), options).unwrap();
    let mut seq = 1;
    let error = loop {
        match store.commit(unit("s", seq..=seq + 99)).await {
            Ok(()) => seq += 100,
            Err(error) => break error,
        }
        assert!(seq < 100_000, "the limit does not bite");
    };
    assert!(matches!(error, StoreError::Full), "{error}");
    let spooled = store.spool_after("s", 0, usize::MAX).await.unwrap();
    assert_eq!(spooled.len() as u64, seq - 1);
    assert_eq!(store.spool_bytes(), spooled.iter().map(|(_, line)| line.len() as u64).sum::<u64>());

    store.ack("s", seq - 1);
    let deadline = std::time::Duration::from_secs(10);
    let retried = tokio::time::timeout(deadline, async {
        while store.commit(unit("s", seq..=seq + 99)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    assert!(retried.await.is_ok(), "the acks made no room");
    assert_eq!(store.spool_after("s", seq - 1, usize::MAX).await.unwrap().len(), 100);
}
