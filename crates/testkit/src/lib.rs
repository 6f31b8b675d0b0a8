//! Stand-ins for what surrounds qd, for tests only: a scripted model server ([`llm`]), the real pi set up to talk to
//! it ([`pi`]), a running `qd up` ([`qd`]), other machines joined to it
//! ([`fleet`]), plain clients of its WebSocket ([`mux`]), of its pi-server face
//! ([`pi_server`]) and of its run face ([`run_app`]), plain HTTP ([`http`]), what a careful client makes of
//! the frames ([`replica`]), a push service with browsers ([`push`]), decisions that can be
//! repeated ([`seeded_random`]), and a look at the processes of this machine ([`process`]).
//!
//! Nothing that ships may depend on this crate, and no logic of the product may live here.
#![forbid(unsafe_code)]

pub mod fleet;
pub mod http;
pub mod json_socket;
pub mod llm;
pub mod mux;
pub mod pi;
pub mod pi_server;
pub mod process;
pub mod push;
pub mod qd;
pub mod replica;
pub mod run_app;
pub mod seeded_random;
