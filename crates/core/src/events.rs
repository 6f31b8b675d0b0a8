//! Event lines: how they are written, and how stored ones are read again.

pub mod event_writer;
pub mod record;
