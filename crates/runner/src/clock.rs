//! The wall clock, which a simulated world replaces.

pub(crate) use qd_link::clock::now_ms;
