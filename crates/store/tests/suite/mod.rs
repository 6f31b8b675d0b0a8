//! The contract of both stores, as cases that take a place. A place opens stores on the same data again and
//! again; another backend runs the same cases with a place of its own.

pub(crate) mod audit;
pub(crate) mod fleet;
pub(crate) mod hub;
pub(crate) mod people;
pub(crate) mod push;
pub(crate) mod runner;
pub(crate) mod search;
pub(crate) mod submissions;
pub(crate) mod tail;
pub(crate) mod tokens;
pub(crate) mod usage;

use qd_store::{HubStore, RunnerStore};

use crate::fixtures::Files;

pub(crate) trait Place {
    fn hub(&self) -> HubStore;
    fn runner(&self) -> RunnerStore;
}

impl Place for Files {
    fn hub(&self) -> HubStore {
        HubStore::open(&self.path("hub.db"), self.options()).unwrap()
    }

    fn runner(&self) -> RunnerStore {
        RunnerStore::open(&self.path("runner.db"), self.options()).unwrap()
    }
}
