//! Types of the protocols, ids and the one command table.
#![forbid(unsafe_code)]
