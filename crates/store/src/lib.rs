//! SQLite storage for hub and runner.
#![forbid(unsafe_code)]
