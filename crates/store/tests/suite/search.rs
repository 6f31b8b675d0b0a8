use qd_store::{HubSession, HubStore, MessageRow, RecordEffect, SearchQuery};

use super::HubFiles;
use crate::fixtures::{message, put, record};

async fn found(store: &HubStore, query: SearchQuery) -> Vec<String> {
    let query = SearchQuery { limit: if query.limit == 0 { 50 } else { query.limit }, ..query };
    let mut ids: Vec<_> = store.search(query).await.unwrap().into_iter().map(|hit| hit.message_id).collect();
    ids.sort();
    ids
}

fn words(text: &str) -> SearchQuery {
    SearchQuery { text: text.into(), ..SearchQuery::default() }
}

/// Search finds exactly what is there, through insert, update, replace, reactivation and delete.
pub(crate) async fn search_follows_every_change(place: &impl HubFiles) {
    let store = place.hub().await;
    let first = vec![
        record("s", 1, put(message("m0", 0, "alpha beta"))),
        record("s", 2, put(message("m1", 1, "alpha gamma"))),
        record("t", 1, put(message("m0", 0, "alpha delta"))),
    ];
    store.append(first).await.unwrap();
    assert_eq!(found(&store, words("alpha")).await, ["m0", "m0", "m1"]);

    store.append(vec![record("s", 3, put(message("m1", 1, "omega")))]).await.unwrap();
    assert_eq!(found(&store, words("gamma")).await, [""; 0], "the old text is gone");
    assert_eq!(found(&store, words("omega")).await, ["m1"]);

    let list = vec![message("m0", 0, "alpha beta"), message("n1", 1, "sigma")];
    store.append(vec![record("s", 4, Some(RecordEffect::ReplaceMessages(list)))]).await.unwrap();
    assert_eq!(found(&store, words("omega")).await, [""; 0], "left behind by the fork");
    let all = SearchQuery { include_inactive: true, ..words("omega") };
    assert_eq!(found(&store, all).await, ["m1"]);
    assert_eq!(found(&store, words("sigma")).await, ["n1"]);
    let list = vec![message("m0", 0, "alpha beta"), message("m1", 1, "omega two")];
    store.append(vec![record("s", 5, Some(RecordEffect::ReplaceMessages(list)))]).await.unwrap();
    assert_eq!(found(&store, words("omega")).await, ["m1"], "back on the first branch");
    assert_eq!(found(&store, words("omega two")).await, ["m1"]);

    store.delete_session("s").await.unwrap();
    assert_eq!(found(&store, words("alpha")).await, ["m0"]);
    assert_eq!(found(&store, SearchQuery { include_inactive: true, ..words("omega") }).await, [""; 0]);
    store.append(vec![record("s", 1, put(message("z", 0, "alpha again")))]).await.unwrap();
    assert_eq!(found(&store, words("alpha")).await, ["m0", "z"]);
}

pub(crate) async fn search_takes_words_as_words(place: &impl HubFiles) {
    let store = place.hub().await;
    let texts = ["the hp-z8 box", "edit src/main.rs now", "migrations and Größe", "say \"hello\" NOT there"];
    let batch = (0..)
        .zip(texts)
        .map(|(idx, text)| record("s", idx as u64 + 1, put(message(&format!("m{idx}"), idx, text))));
    store.append(batch.collect()).await.unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("hp-z8", &["m0"]),
        ("z8 hp", &["m0"]),
        ("src/main.rs", &["m1"]),
        ("migrat*", &["m2"]),
        ("migrat", &[]),
        ("grosse", &[]),
        ("große", &["m2"]),
        ("grö*", &["m2"]),
        ("gro*", &["m2"]),
        ("\"hello\"", &["m3"]),
        ("NOT there", &["m3"]),
        ("content:box", &[]),
        ("(", &[]),
        ("\"", &[]),
        ("* -", &[]),
        ("", &[]),
        ("box -", &["m0"]),
        ("box\0", &["m0"]),
    ];
    for (text, expected) in cases {
        assert_eq!(found(&store, words(text)).await, *expected, "{text:?}");
    }
}

pub(crate) async fn search_filters_ranks_and_pages(place: &impl HubFiles) {
    let store = place.hub().await;
    let session =
        HubSession { session_id: "s".into(), title: Some("The title".into()), ..HubSession::default() };
    let session =
        HubSession { runner_id: "desk".into(), harness: "pi".into(), cwd: "/src".into(), ..session };
    let long = "filler ".repeat(60);
    let tool = MessageRow { role: "tool".into(), ..message("m2", 2, "needle in a tool") };
    let batch = vec![
        record("s", 4, Some(RecordEffect::UpsertSession(Box::new(session)))),
        record("s", 1, put(message("m0", 0, &format!("{long} needle {long}")))),
        record("s", 2, put(message("m1", 1, "needle needle"))),
        record("s", 3, put(tool)),
        record("t", 1, put(message("m9", 9, &format!("needle {long}")))),
    ];
    store.append(batch).await.unwrap();

    let hits = store.search(SearchQuery { limit: 50, ..words("needle") }).await.unwrap();
    let order: Vec<_> = hits.iter().map(|hit| hit.message_id.as_str()).collect();
    assert_eq!(order, ["m1", "m2", "m9", "m0"], "best first");
    assert_eq!(hits[0].snippet, "[needle] [needle]");
    assert_eq!(hits[0].session_title.as_deref(), Some("The title"));
    let place = (&*hits[0].runner_id, &*hits[0].harness, &*hits[0].cwd);
    assert_eq!(place, ("desk", "pi", "/src"));
    assert!(hits[3].snippet.contains("[needle]") && hits[3].snippet.len() < 200, "{}", hits[3].snippet);

    let needle = || words("needle");
    assert_eq!(found(&store, SearchQuery { session_id: Some("t".into()), ..needle() }).await, ["m9"]);
    assert_eq!(found(&store, SearchQuery { role: Some("tool".into()), ..needle() }).await, ["m2"]);
    let ours = found(&store, SearchQuery { runner_id: Some("desk".into()), ..needle() }).await;
    assert_eq!(ours, ["m0", "m1", "m2"]);
    let pi = SearchQuery { harness: Some("pi".into()), after: Some(101), before: Some(102), ..needle() };
    assert_eq!(found(&store, pi).await, ["m1"]);
    assert_eq!(found(&store, SearchQuery { harness: Some("demo".into()), ..needle() }).await, [""; 0]);
    assert_eq!(found(&store, SearchQuery { after: Some(102), ..needle() }).await, ["m2", "m9"]);
    assert_eq!(found(&store, SearchQuery { before: Some(102), ..needle() }).await, ["m0", "m1"]);
    assert_eq!(found(&store, SearchQuery { limit: 2, ..needle() }).await, ["m1", "m2"]);
    assert_eq!(found(&store, SearchQuery { limit: 2, offset: 2, ..needle() }).await, ["m0", "m9"]);
}
