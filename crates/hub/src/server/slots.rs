//! Slots for HTTP connections. One that has not authenticated its current request may lose its slot to a newcomer, so
//! whoever opens many and does nothing with them keeps nobody out. Authenticated ones have slots of their own, which
//! nobody takes from them. WebSockets need none: a client's is authenticated and counted by `connections_max`, and a
//! runner's belongs to its link.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use qd_link::mutex::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Limits;

/// All customers' IPv6 networks are this long at least; within one, everybody has as many addresses as they like.
const NETWORK_BITS: u32 = 64;
/// Evictions can be thousands a second; the log says so this often.
const EVICTION_LOG_EVERY: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// The slot of the connection whose request is being served.
    static SLOT: Arc<ConnectionSlot>;
}

/// Whose request is being served has been found out.
pub(crate) fn note_authenticated() {
    // Tests, and streams within the process, have no slot.
    let _no_slot = SLOT.try_with(|slot| slot.move_to_authenticated());
}

/// The slots of one listener.
pub(crate) struct ConnectionSlots {
    unauthenticated_max: usize,
    per_address_max: usize,
    authenticated_max: usize,
    /// Counts what happens on the connections; a later event has a greater number.
    events: AtomicU64,
    table: Mutex<SlotTable>,
}

#[derive(Default)]
struct SlotTable {
    last_number: u64,
    unauthenticated: HashMap<u64, Arc<SlotState>>,
    /// How many of those each address has.
    per_address: HashMap<PeerAddress, usize>,
    authenticated: HashMap<u64, Arc<SlotState>>,
    logged_at: Option<Instant>,
}

/// One connection as the others see it.
struct SlotState {
    address: PeerAddress,
    /// The last event on it. One that neither sends nor reads has an old one.
    last_event: AtomicU64,
    /// The hub works on its request, so it is not the peer that is slow.
    is_served: AtomicBool,
    /// The slot is given back; the stream may go on as a WebSocket.
    is_released: AtomicBool,
    evicted: CancellationToken,
}

/// A place among the connections, given back when it is dropped.
pub(crate) struct ConnectionSlot {
    number: u64,
    slots: Arc<ConnectionSlots>,
    state: Arc<SlotState>,
}

/// Notes that something happens on a connection, as long as it has its slot.
pub(crate) struct SlotActivity {
    slots: Arc<ConnectionSlots>,
    state: Arc<SlotState>,
}

/// What counts as one peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PeerAddress {
    Network(IpAddr),
    /// A stream that has no address.
    Named(Arc<str>),
}

impl PeerAddress {
    fn of(peer: &Arc<str>) -> Self {
        let Ok(address) = peer.parse::<SocketAddr>() else { return Self::Named(Arc::clone(peer)) };
        Self::Network(match address.ip().to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - NETWORK_BITS))))
            }
        })
    }
}

impl ConnectionSlots {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            unauthenticated_max: limits.unauthenticated_max,
            per_address_max: limits.unauthenticated_per_address_max,
            authenticated_max: limits.authenticated_max,
            events: AtomicU64::new(0),
            table: Mutex::default(),
        })
    }

    /// A slot for a newcomer, who always gets one: if all are taken, the connection that has been idle longest goes.
    pub(crate) fn take(self: &Arc<Self>, peer: &Arc<str>) -> ConnectionSlot {
        let state = Arc::new(SlotState {
            address: PeerAddress::of(peer),
            last_event: AtomicU64::new(self.next_event()),
            is_served: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            evicted: CancellationToken::new(),
        });
        let mut table = self.table.lock();
        table.last_number += 1;
        let number = table.last_number;
        self.put_unauthenticated(&mut table, number, &state);
        ConnectionSlot { number, slots: Arc::clone(self), state }
    }

    /// Ends an unauthenticated connection, because the process has no room for another. False when there is none.
    pub(crate) fn evict_one(&self) -> bool {
        self.table.lock().evict_of_greatest()
    }

    fn next_event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    fn put_unauthenticated(&self, table: &mut SlotTable, number: u64, state: &Arc<SlotState>) {
        if table.count_of(&state.address) >= self.per_address_max {
            table.evict(|_, candidate| candidate.address == state.address);
        }
        if table.unauthenticated.len() >= self.unauthenticated_max {
            table.evict_of_greatest();
        }
        *table.per_address.entry(state.address.clone()).or_insert(0) += 1;
        table.unauthenticated.insert(number, Arc::clone(state));
    }
}

impl SlotTable {
    fn count_of(&self, address: &PeerAddress) -> usize {
        self.per_address.get(address).copied().unwrap_or_default()
    }

    fn remove_unauthenticated(&mut self, number: u64) -> Option<Arc<SlotState>> {
        let state = self.unauthenticated.remove(&number)?;
        if let Some(count) = self.per_address.get_mut(&state.address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&state.address);
            }
        }
        Some(state)
    }

    /// Whoever has most slots loses one, so that many connections from one address cost the others nothing.
    fn evict_of_greatest(&mut self) -> bool {
        let most = self.per_address.values().copied().max().unwrap_or_default();
        self.evict(|table, candidate| table.count_of(&candidate.address) == most)
    }

    /// Ends the candidate that has been idle longest. False when there is none.
    fn evict(&mut self, is_candidate: impl Fn(&SlotTable, &SlotState) -> bool) -> bool {
        let picked = self.pick(is_candidate);
        let Some(state) = picked.and_then(|number| self.remove_unauthenticated(number)) else { return false };
        state.evicted.cancel();
        if self.logged_at.is_none_or(|at| at.elapsed() >= EVICTION_LOG_EVERY) {
            self.logged_at = Some(Instant::now());
            tracing::warn!(
                open = self.unauthenticated.len(),
                address = ?state.address,
                "there are too many unauthenticated connections; the idle ones are closed"
            );
        }
        true
    }

    /// Those for which the hub works are spared, unless they are so many that hardly anybody else would be left.
    fn pick(&self, is_candidate: impl Fn(&SlotTable, &SlotState) -> bool) -> Option<u64> {
        let candidates = || self.unauthenticated.iter().filter(|(_, state)| is_candidate(self, state));
        let (all, served) = candidates().fold((0, 0), |(all, served), (_, state)| {
            (all + 1, served + usize::from(state.is_served.load(Ordering::Relaxed)))
        });
        let spares_served = served * 2 <= all;
        candidates()
            .filter(|(_, state)| !(spares_served && state.is_served.load(Ordering::Relaxed)))
            .min_by_key(|(_, state)| state.last_event.load(Ordering::Relaxed))
            .map(|(number, _)| *number)
    }
}

impl ConnectionSlot {
    /// Serves a request that has come. Who sends it is not known yet, whoever sent the one before.
    pub(crate) async fn serve<T>(self: Arc<Self>, request: impl Future<Output = T>) -> T {
        self.state.is_served.store(true, Ordering::Relaxed);
        self.move_to_unauthenticated();
        let slot = Arc::clone(&self);
        let served = SLOT.scope(self, request).await;
        // From here on it is the peer that has to read.
        slot.state.is_served.store(false, Ordering::Relaxed);
        slot.activity().note();
        served
    }

    /// Waits until the slot is needed for somebody else.
    pub(crate) async fn evicted(&self) {
        self.state.evicted.cancelled().await;
    }

    pub(crate) fn activity(&self) -> SlotActivity {
        SlotActivity { slots: Arc::clone(&self.slots), state: Arc::clone(&self.state) }
    }

    fn move_to_authenticated(&self) {
        let mut table = self.slots.table.lock();
        // Beyond the bound it stays where it is: it is served all the same, unless a newcomer needs the slot.
        if table.authenticated.len() < self.slots.authenticated_max
            && let Some(state) = table.remove_unauthenticated(self.number)
        {
            table.authenticated.insert(self.number, state);
        }
    }

    fn move_to_unauthenticated(&self) {
        let mut table = self.slots.table.lock();
        if let Some(state) = table.authenticated.remove(&self.number) {
            self.slots.put_unauthenticated(&mut table, self.number, &state);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.state.is_released.store(true, Ordering::Relaxed);
        let mut table = self.slots.table.lock();
        table.authenticated.remove(&self.number);
        table.remove_unauthenticated(self.number);
    }
}

impl SlotActivity {
    pub(crate) fn note(&self) {
        if !self.state.is_released.load(Ordering::Relaxed) {
            self.state.last_event.store(self.slots.next_event(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
