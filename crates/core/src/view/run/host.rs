//! Hosts that others wrote for the run document, and the document's server seen from our own runner.
//!
//! Towards a foreign host the hub plays the document's server: [`reorder_buffer`] brings a run's events in order and fills
//! holes, [`acks`] says what is committed, [`event`] turns events into canonical records, [`foreign_run`] keeps what is known
//! of a run, [`request`] turns canonical commands into messages for the host, and [`answer`] its answers into
//! canonical ones. [`server_connection`] is the other way round: our runner plays the host.

pub mod acks;
pub mod answer;
pub mod event;
pub mod foreign_run;
pub mod reorder_buffer;
pub mod request;
pub mod server_connection;
pub mod time;
