use super::*;

fn slots(
    unauthenticated_max: usize,
    per_address_max: usize,
    authenticated_max: usize,
) -> Arc<ConnectionSlots> {
    ConnectionSlots::new(&Limits {
        unauthenticated_max,
        unauthenticated_per_address_max: per_address_max,
        authenticated_max,
        ..Limits::default()
    })
}

fn take(slots: &Arc<ConnectionSlots>, peer: &str) -> Arc<ConnectionSlot> {
    Arc::new(slots.take(&Arc::from(peer)))
}

fn is_open(slot: &ConnectionSlot) -> bool {
    !slot.state.evicted.is_cancelled()
}

/// Serves a request of somebody who is known.
async fn authenticate(slot: &Arc<ConnectionSlot>) {
    Arc::clone(slot).serve(async { note_authenticated() }).await;
}

#[test]
fn a_newcomer_gets_the_slot_of_the_one_that_was_idle_longest() {
    let slots = slots(3, 3, 1);
    let (one, two, three) = (take(&slots, "1.1.1.1:1"), take(&slots, "1.1.1.1:2"), take(&slots, "1.1.1.1:3"));
    assert!(is_open(&one) && is_open(&two) && is_open(&three), "as many as there is room for");
    one.activity().note();
    let four = take(&slots, "1.1.1.1:4");
    assert!(is_open(&one) && !is_open(&two) && is_open(&three) && is_open(&four));
    drop(three);
    let five = take(&slots, "1.1.1.1:5");
    assert!(is_open(&one) && is_open(&four) && is_open(&five), "a slot that is given back is free");
    drop((one, two, four, five));
    let table = slots.table.lock();
    assert!(table.unauthenticated.is_empty() && table.per_address.is_empty(), "nothing stays behind");
}

#[test]
fn one_address_takes_nothing_from_others() {
    let slots = slots(6, 4, 1);
    let quiet = take(&slots, "2.2.2.2:1");
    let loud: Vec<_> = (1..=5).map(|port| take(&slots, &format!("1.1.1.1:{port}"))).collect();
    assert!(!is_open(&loud[0]) && is_open(&loud[1]), "its own oldest went at the bound of one address");
    let others: Vec<_> = (1..=3).map(|host| take(&slots, &format!("3.3.3.{host}:1"))).collect();
    assert!(is_open(&quiet), "older than all, but alone");
    assert!(others.iter().all(|slot| is_open(slot)));
    assert_eq!(loud.iter().filter(|slot| is_open(slot)).count(), 2);
}

#[test]
fn a_network_counts_as_one_address() {
    let of = |peer: &str| PeerAddress::of(&Arc::from(peer));
    assert_eq!(of("[2001:db8:1:2:3:4:5:6]:9"), of("[2001:db8:1:2:9::9]:1"));
    assert_ne!(of("[2001:db8:1:2::1]:9"), of("[2001:db8:1:3::1]:9"));
    assert_eq!(of("[::ffff:1.2.3.4]:9"), of("1.2.3.4:8"));
    assert_ne!(of("1.2.3.4:9"), of("1.2.3.5:9"));
    assert_eq!(of("pipe"), of("pipe"));
}

#[tokio::test]
async fn authenticated_connections_keep_their_slots_until_their_next_request() {
    let slots = slots(1, 1, 1);
    let known = take(&slots, "1.1.1.1:1");
    authenticate(&known).await;
    let beyond = take(&slots, "1.1.1.1:2");
    authenticate(&beyond).await;
    assert!(is_open(&known) && is_open(&beyond), "one beyond the bound is served all the same");
    let stranger = take(&slots, "1.1.1.1:3");
    assert!(is_open(&known) && !is_open(&beyond) && is_open(&stranger));
    Arc::clone(&known).serve(async {}).await;
    assert!(is_open(&known) && !is_open(&stranger), "now nobody knows whose request it is");
    let next = take(&slots, "1.1.1.1:4");
    assert!(!is_open(&known) && is_open(&next));
}

#[tokio::test]
async fn who_waits_for_the_hub_is_spared_unless_hardly_anybody_else_is_left() {
    let slots = slots(4, 4, 1);
    let oldest = take(&slots, "1.1.1.1:1");
    let old = take(&slots, "1.1.1.1:2");
    let (done, waits) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(Arc::clone(&oldest).serve(waits));
    while !oldest.state.is_served.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    let all: Vec<_> = (3..=5).map(|port| take(&slots, &format!("1.1.1.1:{port}"))).collect();
    assert!(is_open(&oldest) && !is_open(&old));
    for slot in &all[..2] {
        slot.state.is_served.store(true, Ordering::Relaxed);
    }
    let _newcomer = take(&slots, "1.1.1.1:6");
    assert!(!is_open(&oldest), "three of four are served, so the oldest of all goes");
    done.send(()).unwrap();
    served.await.unwrap().unwrap();
}
