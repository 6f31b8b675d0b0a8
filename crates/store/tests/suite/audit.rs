use qd_store::{AuditEntry, AuditQuery, HubStore, NewRecord};

use super::HubFiles;
use crate::fixtures::record;

fn deed(kind: &str, principal: &str, ts: i64) -> AuditEntry {
    AuditEntry { ts, kind: kind.into(), principal: Some(principal.into()), ..AuditEntry::default() }
}

fn call(seq: u64, principal: &str, tool: &str) -> NewRecord {
    let row = AuditEntry {
        tool: Some(tool.into()),
        actor: Some("web".into()),
        ok: Some(true),
        duration_ms: Some(12),
        request_id: Some(format!("r{seq}")),
        summary: Some("ls".into()),
        ..deed("tool.call", principal, seq as i64)
    };
    NewRecord { audit: Some(Box::new(row)), ..record("s", seq, None) }
}

async fn ids(store: &HubStore, query: AuditQuery) -> Vec<u64> {
    let query = AuditQuery { limit: if query.limit == 0 { 100 } else { query.limit }, ..query };
    store.audit(query).await.unwrap().into_iter().map(|row| row.id).collect()
}

pub(crate) async fn the_audit_of_a_record_is_written_with_it_once(place: &impl HubFiles) {
    let store = place.hub().await;
    store.append(vec![record("s", 1, None), call(2, "alice", "rpc.bash")]).await.unwrap();
    store.append(vec![call(2, "alice", "rpc.bash"), call(3, "alice", "rpc.fs.read")]).await.unwrap();
    store.close().await;

    let store = place.hub().await;
    store.append(vec![call(2, "alice", "rpc.bash"), call(3, "alice", "rpc.fs.read")]).await.unwrap();
    let rows = store.audit(AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap();
    let expected = AuditEntry {
        id: 1,
        session_id: Some("s".into()),
        runner_id: Some("r1".into()),
        seq: Some(2),
        ..*call(2, "alice", "rpc.bash").audit.unwrap()
    };
    assert_eq!((rows.len(), &rows[1]), (2, &expected), "a record that comes again changes nothing");

    // What was done stays known when the session is gone, and a new one of its name has rows of its own.
    store.delete_session("s").await.unwrap();
    store.append(vec![call(2, "bob", "rpc.bash")]).await.unwrap();
    assert_eq!(
        ids(&store, AuditQuery { session_id: Some("s".into()), ..AuditQuery::default() }).await,
        [3, 2, 1]
    );
}

pub(crate) async fn the_audit_is_filtered_paged_and_pruned(place: &impl HubFiles) {
    let store = place.hub().await;
    store.append(vec![call(1, "alice", "rpc.bash"), call(2, "bob", "rpc.fs.read")]).await.unwrap();
    store.put_audit(deed("login", "alice", 3)).await.unwrap();
    store.put_audit(deed("login", "bob", 4)).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let all = AuditQuery::default;
    assert_eq!(ids(&store, all()).await, [4, 3, 2, 1]);
    assert_eq!(ids(&store, AuditQuery { principal: text("alice"), ..all() }).await, [3, 1]);
    assert_eq!(ids(&store, AuditQuery { tool: text("rpc.bash"), ..all() }).await, [1]);
    assert_eq!(ids(&store, AuditQuery { kind: text("login"), principal: text("bob"), ..all() }).await, [4]);
    assert_eq!(ids(&store, AuditQuery { visible_to: text("alice"), ..all() }).await, [3, 2, 1]);
    assert_eq!(ids(&store, AuditQuery { limit: 2, ..all() }).await, [4, 3]);
    assert_eq!(ids(&store, AuditQuery { limit: 2, before: Some(3), ..all() }).await, [2, 1]);
    assert_eq!(ids(&store, AuditQuery { before: Some(u64::MAX), ..all() }).await, [4, 3, 2, 1]);

    assert!(store.prune_audit(Some(3), u64::MAX >> 1, 1).await.unwrap(), "there is more");
    assert!(store.prune_audit(Some(3), u64::MAX >> 1, 1).await.unwrap());
    assert!(!store.prune_audit(Some(3), u64::MAX >> 1, 1).await.unwrap());
    assert_eq!(ids(&store, all()).await, [4, 3]);
    assert!(!store.prune_audit(None, 1, 100).await.unwrap());
    assert_eq!(ids(&store, all()).await, [4]);
    store.prune_audit(Some(9), 1, 100).await.unwrap();
    store.put_audit(deed("login", "bob", 5)).await.unwrap();
    assert_eq!(ids(&store, all()).await, [5], "ids are never used again");
}
