//! The contract of both stores, as cases that take a place. A place opens stores on the same data again and
//! again; another backend runs the same cases with a place of its own.

pub(crate) mod hub;
pub(crate) mod runner;
pub(crate) mod search;

use qd_store::{HubStore, RunnerStore};

pub(crate) trait Place {
    fn hub(&self) -> HubStore;
    fn runner(&self) -> RunnerStore;
}
