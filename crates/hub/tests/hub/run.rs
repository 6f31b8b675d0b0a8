//! The run face: apps of the run document.

mod app;
mod calls;
mod http;
mod slow;
pub(crate) mod support;
