//! A client: one connection that follows sessions and gives commands, as the web page does, and beside it sessions
//! followed by the library's own attachment, as the command line does.

mod act;
mod connection;
mod library;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use qd_link::client::{ConnectOptions, MuxClient};
use qd_wire::CommandResponse;
use tokio::sync::oneshot;

use crate::net::SimDial;
use crate::state::{PORT, TOKEN, World};
use crate::view::SessionView;
use qd_testkit::seeded_random::SeededRandom;

/// One life of a client; a crash ends it and all it knew.
pub(crate) struct ClientState {
    pub(crate) name: &'static str,
    pub(crate) random: RefCell<SeededRandom>,
    /// What the own connection shows, by session.
    pub(crate) views: RefCell<BTreeMap<String, SessionView>>,
    /// What the library shows.
    pub(crate) library: RefCell<BTreeMap<String, SessionView>>,
    pub(crate) mux: RefCell<Option<MuxClient>>,
    /// Creations whose answers have not come. A creation attaches, so its answer is read in its place among the frames.
    creating: RefCell<BTreeMap<u64, oneshot::Sender<CommandResponse>>>,
    /// What the client wants to do next may need a new key.
    next_key: Cell<u64>,
    life: u64,
}

impl ClientState {
    fn percent(&self, percent: u64) -> bool {
        self.random.borrow_mut().percent(percent)
    }

    fn millis(&self, low: u64, high: u64) -> Duration {
        self.random.borrow_mut().millis(low, high)
    }

    fn mint_key(&self) -> String {
        let number = self.next_key.get();
        self.next_key.set(number + 1);
        format!("{}.{}.{number}.", self.name, self.life)
    }
}

/// The whole client, until it crashes.
pub(crate) async fn run(world: Rc<World>, name: &'static str) -> turmoil::Result {
    let mut random = world.new_life(name);
    let state = Rc::new(ClientState {
        name,
        life: random.next() % 1_000_000,
        random: RefCell::new(random),
        views: RefCell::default(),
        library: RefCell::default(),
        mux: RefCell::new(None),
        creating: RefCell::default(),
        next_key: Cell::new(1),
    });
    world.clients.borrow_mut().insert(name, Rc::clone(&state));
    tokio::task::spawn_local(act::run(Rc::clone(&world), Rc::clone(&state)));
    tokio::task::spawn_local(library::run(Rc::clone(&world), Rc::clone(&state)));
    connection::run(world, state).await;
    Ok(())
}

fn connect_options(world: &World) -> ConnectOptions {
    let mut options = ConnectOptions::new(&format!("http://hub:{PORT}"), TOKEN);
    options.ping_interval = world.plan.ping;
    options.timeout = Duration::from_secs(5);
    options.dial = Arc::new(SimDial);
    options
}
