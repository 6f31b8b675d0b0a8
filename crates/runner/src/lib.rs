//! Owns agent processes.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod guard;
pub mod process;
