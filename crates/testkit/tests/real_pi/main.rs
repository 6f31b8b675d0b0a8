//! Drives the real pi against the scripted model, one test per scenario: proof that each directive means to pi what
//! `qd_testkit::llm` says. Needs `tests/agents/install.sh`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test code, helpers included")]

mod agent;
mod extensions;
mod failures;
mod scenarios;
