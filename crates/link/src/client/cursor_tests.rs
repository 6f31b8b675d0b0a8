use serde_json::{Value, json};

use super::*;

fn envelope(mut fields: Value) -> EventEnvelope {
    let object = fields.as_object_mut().unwrap();
    object.insert("session_id".into(), "s".into());
    object.insert("runner_id".into(), "local".into());
    object.insert("ts".into(), 1.into());
    serde_json::from_value(fields).unwrap()
}

fn delta(offset: u64, text: &str) -> EventEnvelope {
    envelope(
        json!({"event":"stream.text_delta","message_id":"m1","content_index":0,"delta":text,"offset":offset}),
    )
}

fn record(seq: u64) -> EventEnvelope {
    envelope(json!({"event":"notify","level":"info","message":"x","seq":seq}))
}

fn message_end(seq: u64, id: &str, idx: u64) -> EventEnvelope {
    let message = json!({"id":id,"idx":idx,"role":"assistant","parts":[],"created_at":1});
    envelope(json!({"event":"stream.message_end","message":message,"seq":seq}))
}

#[test]
fn records_pass_once_and_holes_are_seen() {
    let mut cursor = SessionCursor::after(Some(4));
    assert_eq!(cursor.admit(&mut record(4)), CursorVerdict::Known);
    assert_eq!(cursor.admit(&mut record(5)), CursorVerdict::New);
    assert_eq!(cursor.admit(&mut record(7)), CursorVerdict::Hole { after: 5 });
    assert_eq!(cursor.admit(&mut record(6)), CursorVerdict::New);
    assert_eq!(cursor.last_seq(), Some(6));
}

#[test]
fn deltas_are_cut_where_they_overlap() {
    let mut cursor = SessionCursor::default();
    assert_eq!(cursor.admit(&mut delta(0, "añb")), CursorVerdict::New);
    assert_eq!(cursor.admit(&mut delta(1, "ñb")), CursorVerdict::Known);
    let mut overlapping = delta(2, "bcd");
    assert_eq!(cursor.admit(&mut overlapping), CursorVerdict::Trimmed);
    assert_eq!(overlapping, delta(3, "cd"));
    assert_eq!(cursor.admit(&mut message_end(1, "m1", 0)), CursorVerdict::New);
    assert_eq!(cursor.admit(&mut delta(5, "late")), CursorVerdict::Known);
}

#[test]
fn a_partial_message_continues_what_was_seen() {
    let mut cursor = SessionCursor::default();
    assert_eq!(
        cursor.admit(&mut envelope(
            json!({"event":"stream.message_start","message_id":"m1","role":"assistant"})
        )),
        CursorVerdict::New
    );
    assert_eq!(cursor.admit(&mut delta(0, "one ")), CursorVerdict::New);
    let partial: Partial =
        serde_json::from_value(json!({"message":{"message_id":"m1","role":"assistant","blocks":[
        {"content_index":0,"kind":"text","text":"one two","offset":7},
        {"content_index":1,"kind":"tool_call","text":"{","offset":1,"tool_call_id":"t1","name":"bash"}]}}))
        .unwrap();
    let head = record(1);
    let names: Vec<Value> =
        cursor.catch_up(&head, &partial).iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!((&names[0]["delta"], &names[0]["offset"]), (&json!("two"), &json!(4)));
    assert_eq!(names[1]["event"], "stream.tool_call_start");
    assert_eq!(names[2]["event"], "stream.tool_call_delta");
    assert_eq!(cursor.catch_up(&head, &partial), Vec::new());
    assert_eq!(cursor.admit(&mut delta(7, " three")), CursorVerdict::New);
}

fn attach(fields: Value) -> AttachData {
    let mut attach = json!({"pending_input":[],
        "state":{"session_id":"s","runner_id":"local","harness":"demo","status":"idle","session_version":1,
            "seq":fields["seq"],"message_count":2,"queue":{"steering":[],"follow_up":[]},"pending_input":[]}});
    attach.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(attach).unwrap()
}

fn snapshot(resume: &str, seq: u64, ids: &[&str]) -> AttachData {
    let message = |(idx, id)| json!({"id":id,"idx":idx,"role":"assistant","parts":[],"created_at":1});
    let messages: Vec<Value> = ids.iter().enumerate().map(message).collect();
    attach(json!({"resume":resume,"seq":seq,"messages":messages}))
}

fn kept(attach: AttachData) -> Vec<String> {
    attach.messages.unwrap().into_iter().map(|message| message.id).collect()
}

#[test]
fn a_gap_moves_the_cursor_and_keeps_only_new_messages() {
    let mut cursor = SessionCursor::after(Some(1));
    assert_eq!(cursor.admit(&mut message_end(2, "m0", 0)), CursorVerdict::New);
    let mut gap = snapshot("gap", 9, &["m0", "m1"]);
    assert_eq!(cursor.take_attach(&mut gap), 9);
    assert_eq!(cursor.last_seq(), Some(9));
    assert_eq!(kept(gap), ["m1"]);
    assert_eq!(cursor.admit(&mut record(9)), CursorVerdict::Known);
    assert_eq!(cursor.admit(&mut record(10)), CursorVerdict::New);
}

#[test]
fn a_snapshot_is_the_cursor_of_one_that_had_none() {
    let mut cursor = SessionCursor::default();
    cursor.take_attach(&mut snapshot("ok", 4, &["m0", "m1"]));
    assert_eq!(cursor.last_seq(), Some(4));
    assert_eq!(cursor.admit(&mut message_end(5, "m1", 1)), CursorVerdict::Known);
    assert_eq!(cursor.admit(&mut message_end(6, "m2", 2)), CursorVerdict::New);
    assert_eq!(cursor.last_seq(), Some(6));
    let mut gap = snapshot("gap", 6, &["m0", "m1", "m2"]);
    cursor.take_attach(&mut gap);
    assert_eq!(kept(gap), Vec::<String>::new());
}

#[test]
fn a_session_made_anew_under_the_same_name_is_shown_whole() {
    let mut cursor = SessionCursor::default();
    cursor.take_attach(&mut snapshot("ok", 40, &["m0", "m1", "m2"]));
    let mut gap = snapshot("gap", 3, &["n0", "n1"]);
    cursor.take_attach(&mut gap);
    assert_eq!(kept(gap), ["n0", "n1"]);
    assert_eq!(cursor.last_seq(), Some(3));
    assert_eq!(cursor.admit(&mut message_end(4, "n2", 2)), CursorVerdict::New);
}

#[test]
fn a_resync_keeps_the_cursor_and_says_where_its_state_stands() {
    let resync = || {
        let mut resync = attach(json!({"resume":"gap","seq":5}));
        resync.state.seq = 8;
        resync
    };
    // What was seen: as the hub thinks, less (a hole will show), more, and of another session.
    for (seen, cursor_after) in [(5, 5), (4, 4), (6, 6), (9, 5)] {
        let mut cursor = SessionCursor::after(Some(seen));
        assert_eq!(cursor.take_attach(&mut resync()), 8);
        assert_eq!(cursor.last_seq(), Some(cursor_after), "{seen}");
    }
    // Without records to follow and without messages the cursor is simply new.
    let mut cursor = SessionCursor::after(Some(3));
    assert_eq!(cursor.take_attach(&mut attach(json!({"resume":"gap","seq":5}))), 5);
    assert_eq!(cursor.last_seq(), Some(5));
}

#[test]
fn the_memory_of_ended_messages_has_a_bound() {
    let mut ended = EndedMessages::default();
    for number in 0..ENDED_MESSAGES_MAX * 2 {
        assert!(ended.insert(&number.to_string()));
    }
    assert_eq!((ended.order.len(), ended.ids.len()), (ENDED_MESSAGES_MAX, ENDED_MESSAGES_MAX));
    assert!(!ended.insert(&ENDED_MESSAGES_MAX.to_string()));
}

#[test]
fn a_record_known_by_its_number_only_moves_the_cursor_as_a_whole_one_does() {
    let mut cursor = SessionCursor::after(Some(4));
    assert_eq!(cursor.admit_number(4), CursorVerdict::Known);
    assert_eq!(cursor.admit_number(6), CursorVerdict::Hole { after: 4 });
    assert_eq!(cursor.last_seq(), Some(4));
    assert_eq!(cursor.admit_number(5), CursorVerdict::New);
    cursor.give_up_before(3);
    assert_eq!(cursor.last_seq(), Some(5), "never back");
    cursor.give_up_before(9);
    assert_eq!(cursor.admit_number(9), CursorVerdict::New);
    assert_eq!(cursor.admit_number(u64::MAX), CursorVerdict::Hole { after: 9 });
}
