//! The hub as its clients and its runner see it: a real server and a real store; the runner is a script.

mod access;
mod attach;
mod commands;
mod garbage;
mod slow;
mod storing;
mod support;
