//! Stand-ins for what surrounds qd, for tests only: a scripted model server ([`llm`]), and the real pi set up to
//! talk to it ([`pi`]).
//!
//! Nothing that ships may depend on this crate, and no logic of the product may live here.
#![forbid(unsafe_code)]

pub mod llm;
pub mod pi;
